//! mailroom: transactional mail inside PostgreSQL.
//!
//! SQL owns the data and its transitions (`sql/`, in the order given by [`install`]), `mailroom-core` (`crates/core`)
//! everything that needs no database. This library owns what can be done only inside the server:
//!
//! | module | owns |
//! |---|---|
//! | [`install`] | the order of the files in `sql/` |
//! | [`settings`] | the settings `mailroom.*` |
//! | [`accounts`] | the rules for an email and a login, and their lower case |
//! | [`tokens`] | secrets, keys, signing, links |
//! | [`cursor`] | where a session's scans start |
//! | [`pending`] | what a statement reads in `jobs` |
//! | [`outbox`] | locks of a claim; templates |
//! | [`events`] | verifying and reading what providers report |
//! | [`restore`] | what triggers, and transactions that hand out, do while a dump is restored |
//! | [`version`] | the version of the library, for SQL |
//! | [`worker`] | the launcher, and the worker of each database |
//! | [`shared_memory`] | what sessions, workers and the launcher announce to each other |
//! | [`pg`] | safe functions for the server's interfaces |

use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::prelude::*;

mod accounts;
mod cursor;
mod events;
mod install;
mod outbox;
mod pending;
mod pg;
#[cfg(feature = "pg_test")]
mod pg_test;
mod restore;
mod settings;
mod shared_memory;
mod tokens;
mod version;
mod worker;

pgrx::pg_module_magic!(name = c"mailroom", version = c"0.1.0");

/// Whether shared_preload_libraries loaded the library; false under pg_upgrade.
static PRELOADED: AtomicBool = AtomicBool::new(false);

/// Whether shared memory and the launcher exist, which only a preloaded library has.
pub(crate) fn is_preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// The server calls this when it loads the library, in the postmaster or in a session.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    let preloading = pg::process::is_preloading();
    if preloading {
        settings::define_preloaded();
    }
    settings::define();
    if preloading && !pg::process::is_binary_upgrade() {
        PRELOADED.store(true, Ordering::Relaxed);
        pg::shared_memory::reserve();
        worker::register();
    }
}
