//! Delivery: which claimed mail is sent when, and how it is settled.
//!
//! | module | owns |
//! |---|---|
//! | [`mail`] | a claimed mail |
//! | [`settlements`] | the mails to settle |
//! | [`exchange`] | what an exchange with the database claims and returns |
//! | [`events`] | input and output of the state machine |
//! | [`files`] | the files of claimed mails |
//! | `queue` | claimed mails that wait for a request |
//! | `held` | the mails whose settle is not committed |
//! | `retry_batches` | batch requests that are repeated with exactly their mails |
//! | [`token_bucket`], `rate_limiter` | how mail waits for the rate |
//! | `throughput` | how many mails to hold |
//! | `failure_log` | log lines about mail that ends as an error |
//! | [`breaker`] | the circuit breaker of a transport |
//! | [`machine`] | the deliverer: a state machine without clock, threads and I/O |
//! | [`thread`] | the thread that runs the deliverers and sends their requests |
//! | [`clock`] | whether the wall clock has jumped |
//! | [`store`] | the interfaces of a job runner to the database and to its process |
//! | [`runner`] | settles, claims and logs for the delivery thread |

use std::time::Duration;

pub mod breaker;
pub mod clock;
pub mod events;
pub mod exchange;
mod failure_log;
pub mod files;
#[cfg(test)]
pub(crate) mod fixture;
mod held;
pub mod machine;
pub mod mail;
mod queue;
mod rate_limiter;
mod retry_batches;
pub mod runner;
pub mod settlements;
pub mod store;
pub mod thread;
mod throughput;
pub mod token_bucket;

/// Time since an arbitrary start; never goes back.
pub type Time = Duration;
