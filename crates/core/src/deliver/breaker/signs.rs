//! What a circuit breaker is told, and what it says.

use std::time::Duration;

use crate::deliver::Time;

/// What one message tells of the transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The provider took a message.
    Works,
    /// It refused one for what it is.
    Rejects(String),
    /// It could not now.
    Fails(String),
    /// It could not be reached.
    Unreached(String),
    /// It wants less of everything.
    Throttles(String, Option<Duration>),
    /// It wants nothing any more.
    Refuses(String),
    /// It is nowhere that may be dialled.
    Denied(String),
}

/// What becomes of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposal {
    /// As the answer says: sent, or a failed attempt.
    Settle,
    /// It goes back without an attempt.
    Release,
    /// It counts as an attempt: others go through.
    Charge,
    /// It ends.
    End,
}

/// What the log is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing is sent any more but a probe, the first at this time.
    Paused(String, Time),
    /// Nothing is sent before this time, and then less; told once until it is healthy again.
    Throttled(String, Time),
    /// It is again, after so long.
    Resumed(Duration),
}

/// What may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// So many requests at a time.
    Requests(usize),
    /// One message.
    Probe,
    /// Nothing before then.
    Nothing(Time),
    /// Nothing before the probe under way has an answer.
    Probing,
}
