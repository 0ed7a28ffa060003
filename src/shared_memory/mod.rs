//! Communication between sessions, workers and the launcher through shared memory. The layout is in
//! [`crate::pg::shared_memory`].
//!
//! | module | owns |
//! |---|---|
//! | [`registry`] | which databases have or need a worker |
//! | [`wakeup`] | waking the worker of a database |
//! | [`announce`] | what a transaction announces to the worker when it ends |
//! | [`mail_due`] | announcements of due mail and of claims |
//! | [`senders`] | NOTIFY to other senders than the worker |
//! | [`status`] | what `mailroom_status()` shows about the worker |
//! | [`abuse_log`] | log lines about abuse of links and webhooks |

#![forbid(unsafe_code)]

pub mod abuse_log;
pub mod announce;
pub mod mail_due;
pub mod registry;
pub mod senders;
pub mod status;
pub mod wakeup;
