//! mailroom: transactional mail inside PostgreSQL.
//!
//! SQL owns the data and its transitions (`sql/`, put in order by [`install`]), `mailroom-core` (`crates/core`) all that
//! needs no database. This library owns what only the server can do:
//!
//! | module | owns |
//! |---|---|
//! | [`install`] | the order of the files in `sql/` |
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
mod install;
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
