//! The result of one delivery by a transport that does not use HTTP: SMTP, file, log.

use serde::Serialize;

use super::providers::MessageOutcome;

/// The result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The outcome for the message. Only with [`MessageOutcome::Ambiguous`] may the message have been accepted without
    /// a reply that says so.
    pub result: Result<MessageOutcome, DeliveryError>,
    /// The code of the reply that decided the outcome, if a reply did.
    pub status: Option<u16>,
    /// The recipients that the server refused, in the order of the message. If the message was sent, all its other
    /// recipients were accepted, and those that the server deferred (4yz) count as refused.
    pub refused: Vec<Refused>,
}

/// Why no server decided an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryError {
    /// This transport can never carry the message: the message ends, and the transport is healthy.
    Unsendable(String),
    /// The server was not reached.
    NoConnection(String),
    /// The connection was lost before the end of the message: it was not sent.
    NotSent(String),
    /// The network policy denies the server's address: nothing was sent.
    Denied(String),
}

/// A recipient that the server refused; serialized as an element of `outbox_attempts.refused_recipients`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The address, its domain in ASCII.
    pub recipient: String,
    /// The code of the reply.
    #[serde(rename = "response_code")]
    pub code: u16,
    /// E.g. `smtp 550 5.1.1`.
    #[serde(rename = "error")]
    pub reason: String,
}

impl Delivered {
    /// The reason, for people; empty if the message was accepted.
    pub fn reason(&self) -> &str {
        match &self.result {
            Ok(outcome) => outcome.reason(),
            Err(
                DeliveryError::Unsendable(reason)
                | DeliveryError::NoConnection(reason)
                | DeliveryError::NotSent(reason)
                | DeliveryError::Denied(reason),
            ) => reason,
        }
    }

    /// An outcome, decided by the reply with this code.
    pub(super) fn decided(outcome: MessageOutcome, status: Option<u16>) -> Self {
        Self {
            result: Ok(outcome),
            status,
            refused: Vec::new(),
        }
    }

    /// No server decided an outcome.
    pub(super) fn failed(failure: DeliveryError) -> Self {
        Self {
            result: Err(failure),
            status: None,
            refused: Vec::new(),
        }
    }

    /// See [`DeliveryError::NotSent`].
    pub(super) fn not_sent(reason: impl Into<String>) -> Self {
        Self::failed(DeliveryError::NotSent(reason.into()))
    }

    /// The configuration cannot work.
    pub(super) fn account_refused(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::decided(MessageOutcome::AccountRefused { reason }, None)
    }
}
