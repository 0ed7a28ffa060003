//! The launcher, and the worker of one database: waits, looks, and takes a batch when the rule says so.
//!
//! Every step is a SQL function that any member of mailroom_collector may call, in a transaction of its own
//! and with the rights of mailroom_collector. A failure ends that transaction, is logged once, and delays the
//! next try; a failed statement never ends the worker, and never loses what the transaction had taken.
//!
//! | module | owns |
//! |---|---|
//! | [`launcher`] | one worker for each database that has the extension |
//! | `main` | a worker's start and end |
//! | `state` | what it knows between two steps |
//! | `run` | its loop: what it does for which reason, and after a failure |
//! | `collect` | taking batches of tokens, answering requests, telling clients |
//! | `upkeep` | looking at queue and outbox, expired leases, purge |
//! | `wait` | waiting until there is a reason to act |
//! | `session` | its transactions |
//! | `deliverer` | the deliverer of `mailroom-core`, with this process as its host |
//! | [`utility`] | statements that stop and start workers |

#![forbid(unsafe_code)]

use crate::pg::entry::{self, Mains};

mod collect;
mod deliverer;
mod launcher;
mod main;
mod run;
mod session;
mod sqlstate;
mod state;
mod transports;
mod upkeep;
mod utility;
mod wait;

/// Registers the launcher with the postmaster, and the hooks that stop and start workers. Called from `_PG_init` while
/// libraries are being preloaded.
pub fn register() {
    entry::set(Mains {
        launcher: launcher::main,
        worker: main::main,
    });
    utility::install_hooks();
    launcher::register();
}
