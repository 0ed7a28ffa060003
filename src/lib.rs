//! mailroom: transactional mail inside PostgreSQL.
//!
//! SQL owns the data and its transitions (`sql/`, compiled in below, in order), `mailroom-core` (`crates/core`) all that
//! needs no database. This library owns what only the server can do:
//!
//! | module | owns |
//! |---|---|
//! | [`signing`] | token and keys as SQL sees them |
//! | [`links`] | what the mail of a token carries, and reading it back |
//! | [`random`] | secrets and codes |
//! | [`encoding`] | text of the database as UTF-8, and back |
//! | [`fold`] | lower case, whatever the locale of the database |
//! | [`rules`] | what an email and a login may be in `accounts` (pure, and as SQL sees it) |
//! | [`compose`] | addresses and templates as SQL sees them |
//! | [`settings`] | the settings `mailroom.*` |
//! | [`scan`] | where a session's scan of `pending` starts |
//! | [`restore`] | what a restored dump asks of triggers and of those who hand out |
//! | [`due`] | where its scan for due mail starts |
//! | [`fallback`] | where its search goes on for mail of a paused transport |
//! | [`sweep`] | how often a scan may start at the beginning (pure) |
//! | [`sqlstate`] | whose fault an error is |
//! | [`registry`] | which databases have a worker, in shared memory |
//! | [`wake`] | waking the worker at commit |
//! | [`ddl`] | making way for DROP DATABASE and its like |
//! | [`notify`] | LISTEN from a worker |
//! | [`launcher`] | one worker for each database that has the extension |
//! | [`worker`] | the worker |
//! | [`transports`] | what the transports file says |
//! | [`log`] | lines of the log with detail and hint |
//! | [`server`] | what differs between server versions |

use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::prelude::*;

mod compose;
mod ddl;
mod due;
mod encoding;
mod fallback;
mod fold;
mod launcher;
mod links;
mod locks;
mod log;
mod notify;
#[cfg(feature = "pg_test")]
mod pg_test;
mod random;
mod registry;
mod restore;
mod rules;
mod scan;
mod server;
mod settings;
mod signing;
mod sqlstate;
mod sweep;
mod trail;
mod transports;
mod wake;
mod walk;
mod worker;

pgrx::pg_module_magic!(name = c"mailroom", version = c"0.1.0");

extension_sql_file!("../sql/05_library.sql", name = "library", bootstrap);
extension_sql_file!(
    "../sql/10_accounts.sql",
    name = "accounts",
    requires = ["library"]
);
extension_sql_file!(
    "../sql/20_tokens.sql",
    name = "tokens",
    requires = ["accounts"]
);
extension_sql_file!(
    "../sql/30_pending.sql",
    name = "pending",
    requires = ["tokens"]
);
extension_sql_file!(
    "../sql/40_outbox.sql",
    name = "outbox",
    requires = ["pending"]
);
extension_sql_file!("../sql/41_due.sql", name = "due", requires = ["outbox"]);
extension_sql_file!("../sql/42_routes.sql", name = "routes", requires = ["due"]);
extension_sql_file!(
    "../sql/42_templates.sql",
    name = "templates",
    requires = ["routes"]
);
extension_sql_file!(
    "../sql/43_send.sql",
    name = "send",
    requires = ["templates"]
);
extension_sql_file!("../sql/44_gather.sql", name = "gather", requires = ["send"]);
extension_sql_file!("../sql/45_claim.sql", name = "claim", requires = ["gather"]);
extension_sql_file!(
    "../sql/46_settle.sql",
    name = "settle",
    requires = ["claim"]
);
extension_sql_file!(
    "../sql/47_groups.sql",
    name = "groups",
    requires = ["settle"]
);
extension_sql_file!(
    "../sql/48_deliver.sql",
    name = "deliver",
    requires = ["settle"]
);
extension_sql_file!(
    "../sql/49_transports.sql",
    name = "transports",
    requires = ["deliver"]
);
extension_sql_file!(
    "../sql/50_handout.sql",
    name = "handout",
    requires = ["transports"]
);
extension_sql_file!(
    "../sql/55_budgets.sql",
    name = "budgets",
    requires = ["handout"]
);
extension_sql_file!(
    "../sql/60_worker.sql",
    name = "worker",
    requires = ["budgets"]
);
extension_sql_file!("../sql/62_waits.sql", name = "waits", requires = ["worker"]);
extension_sql_file!("../sql/65_purge.sql", name = "purge", requires = ["waits"]);
extension_sql_file!(
    "../sql/70_redeem.sql",
    name = "redeem",
    requires = ["purge"]
);
extension_sql_file!(
    "../sql/72_requests.sql",
    name = "requests",
    requires = ["redeem"]
);
extension_sql_file!("../sql/74_home.sql", name = "home", requires = ["requests"]);
extension_sql_file!(
    "../sql/76_own_table.sql",
    name = "own_table",
    requires = ["home"]
);
extension_sql_file!(
    "../sql/80_dump.sql",
    name = "dump",
    requires = ["own_table"]
);
extension_sql_file!(
    "../sql/90_privileges.sql",
    name = "privileges",
    finalize,
    requires = ["dump"]
);

/// Whether the library was loaded by shared_preload_libraries.
static PRELOADED: AtomicBool = AtomicBool::new(false);

/// Whether there is shared memory and a launcher, which only a preloaded library can have.
pub(crate) fn is_preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// Called by the server when it loads the library, in the postmaster or in a session.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    // SAFETY: plain variables of this process, read on its main thread.
    let (preloading, upgrading) = unsafe {
        (
            pg_sys::process_shared_preload_libraries_in_progress,
            pg_sys::IsBinaryUpgrade,
        )
    };
    if preloading {
        settings::define_preloaded();
    }
    settings::define();
    if preloading && !upgrading {
        PRELOADED.store(true, Ordering::Relaxed);
        registry::reserve();
        wake::reserve();
        ddl::hook();
        launcher::register();
    }
}
