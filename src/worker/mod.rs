//! The launcher, and the worker of a database: it waits, checks, and takes a batch when the batch rule says so.
//!
//! Every step is a SQL function that any member of mailroom_collector may call, except the check at the start whether
//! the database is a copy. The worker calls it in a separate transaction with the privileges of mailroom_collector. A failure rolls that transaction back, is logged (repetitions
//! at most once a minute), and delays the next attempt. A failed statement never ends the worker, and never loses what
//! the transaction had taken.
//!
//! | module | owns |
//! |---|---|
//! | [`launcher`] | one worker for each database that has the extension |
//! | `main` | start and end of a worker |
//! | `state` | the state of a worker between two steps |
//! | `run` | the main loop: what the worker does for each cause, and after a failure |
//! | `collect` | taking batches of tokens, answering requests, notifying clients |
//! | `upkeep` | checks of queue and outbox, expired leases, purge |
//! | `wait` | waiting until there is a reason to act |
//! | `session` | the worker's transactions |
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
