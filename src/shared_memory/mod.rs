//! What sessions, workers and the launcher tell each other through shared memory; its layout is in
//! [`crate::pg::shared_memory`].
//!
//! | module | owns |
//! |---|---|
//! | [`registry`] | which databases have a worker, or want one |
//! | [`wakeup`] | waking the worker of a database |
//! | [`announce`] | what a transaction announces to the worker when it ends |
//! | [`status`] | what `mailroom_status()` shows of the worker |
//! | `abuse_log` | lines of the log on abuse of links |

#![forbid(unsafe_code)]

mod abuse_log;
pub mod announce;
pub mod registry;
pub mod status;
pub mod wakeup;
