//! Input and output of the circuit breaker.

use std::time::Duration;

use crate::deliver::Time;

/// What the result of one message shows about the transport. The text is the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The provider accepted the message.
    Accepted,
    /// The provider refused the message for its contents or addresses.
    MessageRefused(String),
    /// The provider failed temporarily, or the connection was lost before the end of the message.
    Failed(String),
    /// The provider sent no response to a request that may have arrived.
    Ambiguous(String),
    /// The provider could not be reached.
    Unreachable(String),
    /// The provider asks for fewer requests, or for none during this time.
    Throttled(String, Option<Duration>),
    /// The provider refuses the account for every message, for example because the credentials are wrong.
    AccountRefused(String),
    /// The network policy denies the endpoint.
    Denied(String),
}

/// What is to be done with the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Settle it by its outcome.
    Settle,
    /// Send it again; the attempt does not count.
    Release,
    /// Settle it as a failed attempt, because other messages are accepted.
    CountAttempt,
    /// Settle it as an error.
    End,
}

/// What may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendPermit {
    /// Up to this number of concurrent requests.
    Requests(usize),
    /// A probe: one request.
    Probe,
    /// Nothing before this time.
    WaitUntil(Time),
    /// Nothing before the result of the probe in flight.
    ProbeInFlight,
}
