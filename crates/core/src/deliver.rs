//! Which claimed mail is sent when, and what becomes of it.
//!
//! | module | owns |
//! |---|---|
//! | [`machine`] | the deliverer: a state machine without clock, threads and I/O |
//! | [`events`] | what it is told, and what it wants done |
//! | `answers` | what it makes of answers |
//! | [`intake`] | what it claims, holds and settles |
//! | `pick` | which mails go next, and together |
//! | `pace` | how it waits for the rate |
//! | [`breaker`] | the circuit breaker: whether the provider is to be asked at all just now |
//! | `suspects` | messages of which it is not known whether they are at fault |
//! | [`rate`] | how much may go now |
//! | `tempo` | how fast mail goes |
//! | `queue` | claimed mails that wait for a request |
//! | [`mail`] | a claimed mail |
//! | `memory` | how long a provider knows a request again |
//! | [`batch`] | requests that a provider knows again by all of their mails |
//! | [`store`] | what it needs of the database and of its process |
//! | [`owner`] | does in the database what it wants done |
//! | [`settlements`] | what is to be told to the outbox |
//! | `ended` | what is said in the log of mail that ends as an error |
//! | [`thread`] | the thread on which one a transport runs, as its owner has it |
//! | `driver` | what that thread does |

use std::time::{Duration, SystemTime};

mod answers;
pub mod batch;
pub mod breaker;
mod driver;
mod ended;
pub mod events;
#[cfg(test)]
pub(crate) mod fixture;
pub mod intake;
pub mod machine;
pub mod mail;
mod memory;
pub mod owner;
mod pace;
mod pick;
mod queue;
pub mod rate;
pub mod settlements;
pub mod store;
mod suspects;
mod tempo;
pub mod thread;

/// Time since the deliverer started; never goes back.
pub type Time = Duration;

/// The two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For waits.
    pub at: Time,
    /// For `expires_at`.
    pub wall: SystemTime,
}
