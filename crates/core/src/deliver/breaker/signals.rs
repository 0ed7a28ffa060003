//! Input and output of the circuit breaker.

use crate::deliver::Time;

/// Which message and request a result is of.
#[derive(Clone, Copy)]
pub struct Origin {
    /// `outbox.id`.
    pub id: i64,
    /// The same of the first message of the request. The messages of a request count once, under the leader, because they
    /// had one response; only refusals for contents or addresses count for each message.
    pub leader: i64,
    /// Number of the request.
    pub request: u64,
    /// Whether the request had one message only.
    pub is_single: bool,
    /// Whether another message of the request was accepted.
    pub is_beside_accepted: bool,
}

/// What is to be done with the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Settle it by its outcome; unless that is `Sent`, the attempt counts as a failed one.
    Settle,
    /// Send it again; the attempt does not count.
    Release,
    /// Send it again in a request of its own; the attempt does not count.
    SendAlone,
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
