//! The result of one delivery by a transport that does not use HTTP: SMTP, file, log.

use serde::Serialize;

use super::providers::MessageOutcome;

/// Is told that from now on the message may have been sent, or with a result, that it was sent to some recipients: this is
/// the result if nothing more is heard of the attempt.
pub type Tell<'a> = dyn FnMut(Option<&Delivered>) + Send + 'a;

/// The result of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The outcome for the message. Only with [`MessageOutcome::Ambiguous`] may the message have been accepted without
    /// a reply that says so.
    pub outcome: MessageOutcome,
    /// The code of the reply that decided the outcome, if a reply did.
    pub status: Option<u16>,
    /// The recipients that the server refused, in that order. If the message was sent, all its other recipients were
    /// accepted; those that the server deferred (4yz) count as refused, and those of a further transaction that failed.
    pub refused: Vec<Refused>,
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
    /// Whether the mailbox does not exist or takes no mail.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_permanent: bool,
}

impl Delivered {
    /// An outcome, decided by the reply with this code if there is one.
    pub(super) fn decided(outcome: MessageOutcome, status: Option<u16>) -> Self {
        Self {
            outcome,
            status,
            refused: Vec::new(),
        }
    }

    /// See [`MessageOutcome::NotSent`].
    pub(super) fn not_sent(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::decided(MessageOutcome::NotSent { reason }, None)
    }

    /// See [`MessageOutcome::Unsendable`].
    pub(super) fn unsendable(reason: String) -> Self {
        Self::decided(MessageOutcome::Unsendable { reason }, None)
    }

    /// The configuration cannot work.
    pub(super) fn account_refused(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::decided(MessageOutcome::AccountRefused { reason }, None)
    }
}
