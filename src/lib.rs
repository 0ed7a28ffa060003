//! mailroom: transactional mail inside PostgreSQL.
//!
//! SQL owns the data and its transitions (`sql/`, put in order by [`install`]), `mailroom-core` (`crates/core`) all that
//! needs no database. This library owns what only the server can do:
//!
//! | module | owns |
//! |---|---|
//! | [`install`] | the order of the files in `sql/` |
//! | [`settings`] | the settings `mailroom.*` |
//! | [`accounts`] | what an email and a login may be, and their lower case |
//! | [`tokens`] | secrets, keys, signing, links |
//! | [`pending`], [`outbox`] | where the scans of a session start; locks of a claim; templates |
//! | [`cursor`] | what these scans share (pure) |
//! | [`restore`] | what a restored dump asks of triggers and of transactions that hand out |
//! | [`worker`] | the launcher, and the worker of each database |
//! | [`shared_memory`] | what sessions, workers and the launcher tell each other |
//! | [`pg`] | the server's interfaces, as safe functions |

use std::sync::atomic::{AtomicBool, Ordering};

use pgrx::prelude::*;

mod accounts;
mod cursor;
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
