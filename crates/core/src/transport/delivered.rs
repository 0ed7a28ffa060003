//! The result of one delivery by a transport that does not use HTTP: SMTP, file, log.

use serde::Serialize;

use super::providers::Verdict;

/// The result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The verdict on the message. Only after [`Verdict::Unknown`] may the message have been accepted without a reply that
    /// says so.
    pub result: Result<Verdict, Failure>,
    /// The code of the reply that decided the verdict, if a reply did.
    pub status: Option<u16>,
    /// The recipients that the server refused, in the order of the message. If the message was sent, all its other
    /// recipients were accepted, and those that the server deferred (4yz) count as refused.
    pub refused: Vec<Refused>,
}

/// Why there is no verdict by a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// This transport can never carry the message: the message ends, and the transport is healthy.
    Unsendable(String),
    /// The server was not reached, or the connection was lost before the end of the message: it was not sent.
    Unreached(String),
    /// The server's address must not be dialled: nothing was sent.
    Denied(String),
}

/// A recipient that the server refused; serialized as an element of `outbox_attempts.refused_recipients`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The address, its domain in ASCII.
    pub recipient: String,
    /// Of the reply.
    #[serde(rename = "response_code")]
    pub code: u16,
    /// E.g. `smtp 550 5.1.1`.
    #[serde(rename = "error")]
    pub reason: String,
}

impl Delivered {
    /// Why it was not delivered, for people; empty when it was accepted.
    pub fn reason(&self) -> &str {
        match &self.result {
            Ok(verdict) => verdict.reason(),
            Err(
                Failure::Unsendable(reason) | Failure::Unreached(reason) | Failure::Denied(reason),
            ) => reason,
        }
    }

    /// A verdict, by the reply with this code.
    pub(super) fn judged(verdict: Verdict, status: Option<u16>) -> Self {
        Self {
            result: Ok(verdict),
            status,
            refused: Vec::new(),
        }
    }

    /// No verdict.
    pub(super) fn failed(failure: Failure) -> Self {
        Self {
            result: Err(failure),
            status: None,
            refused: Vec::new(),
        }
    }

    /// See [`Failure::Unreached`].
    pub(super) fn unreached(reason: impl Into<String>) -> Self {
        Self::failed(Failure::Unreached(reason.into()))
    }

    /// The configuration cannot work.
    pub(super) fn broken(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::judged(Verdict::Broken { reason }, None)
    }
}
