//! The result of a request for one message, as the circuit breaker and the deliverer judge it. Pure.

use std::time::Duration;

/// The result for one message of a request. The last five are decided without a response. Reasons are short, without control characters, and never quote a body,
/// which may repeat the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageOutcome {
    /// Accepted.
    Sent {
        /// The provider's id of the message.
        provider_id: Option<String>,
    },
    /// Failed for now. The attempt counts.
    Retry {
        /// For example `http 503`.
        reason: String,
        /// The minimum wait before the next attempt, if the provider names one.
        after: Option<Duration>,
    },
    /// The provider asks for fewer requests. The attempt does not count.
    Throttled {
        /// For example `http 429`.
        reason: String,
        /// How long to wait, if the provider says so.
        after: Option<Duration>,
    },
    /// The provider refuses this message. The refusal counts against the message only while other messages are
    /// accepted.
    Refused {
        /// For example `http 422 validation_error`.
        reason: String,
    },
    /// The provider refuses a recipient. The message ends; this shows nothing about the transport.
    RecipientRefused {
        /// For example `http 422 406: the recipient is inactive`.
        reason: String,
        /// Whether the mailbox does not exist or takes no mail, so that further mail to it is futile.
        is_permanent: bool,
    },
    /// The provider does not accept a recipient for now. The attempt counts; this shows nothing about the transport.
    RecipientDeferred {
        /// For example `smtp 450 4.2.0`.
        reason: String,
    },
    /// The provider refuses the account until an operator acts: credentials, quota, suspension. The attempt does not
    /// count.
    AccountRefused {
        /// For example `http 401: the credentials were refused`.
        reason: String,
    },
    /// A status of success without the sign by which the provider accepts a message: something else has answered, such as
    /// the provider under a wrong path, or a proxy. The message waits, unless the provider answered before.
    NotProvider {
        /// For example `http 200 without the provider's sign of success: the endpoint does not take mail`.
        reason: String,
    },
    /// The provider has accepted a request with the same idempotency key and other contents. If an attempt of this message
    /// may have arrived, that was the request.
    KeyUsed {
        /// For example `http 409 invalid_idempotent_request: its idempotency key was used for another message`.
        reason: String,
    },
    /// The batch was refused as a whole for one unknown message: none was accepted, and each is to be sent alone. Never
    /// the outcome of a request with one message.
    SendAlone {
        /// For example `http 422 validation_error`.
        reason: String,
    },
    /// The message may have been accepted: the request was written, and there was no response, or an unreadable one.
    Ambiguous {
        /// For example `timeout after the request was written`.
        reason: String,
    },
    /// The deliverer no longer waited for the response: the message may have been accepted. This shows nothing about the
    /// transport.
    Abandoned,
    /// There was no connection.
    NoConnection {
        /// For example `no connection: connection refused`.
        reason: String,
    },
    /// Nothing of the request was written, or not its end: the message was not sent.
    NotSent {
        /// For example `timeout before the request was written`.
        reason: String,
    },
    /// The network policy denies the endpoint: nothing was sent.
    EndpointDenied {
        /// For example `address 10.0.0.1 is not public; see allowed_networks`.
        reason: String,
    },
    /// This transport can never carry the message: the message ends, and this shows nothing about the transport.
    Unsendable {
        /// For example `there is no body`.
        reason: String,
    },
}

impl MessageOutcome {
    /// Whether it is not known if the message was accepted.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Ambiguous { .. } | Self::Abandoned)
    }

    /// The reason, for people; empty if the message was accepted.
    pub fn reason(&self) -> &str {
        match self {
            Self::Sent { .. } => "",
            Self::Abandoned => "given up before there was a response",
            Self::Retry { reason, .. }
            | Self::Throttled { reason, .. }
            | Self::Refused { reason }
            | Self::RecipientRefused { reason, .. }
            | Self::RecipientDeferred { reason }
            | Self::AccountRefused { reason }
            | Self::SendAlone { reason }
            | Self::NotProvider { reason }
            | Self::KeyUsed { reason }
            | Self::Ambiguous { reason }
            | Self::NoConnection { reason }
            | Self::NotSent { reason }
            | Self::EndpointDenied { reason }
            | Self::Unsendable { reason } => reason,
        }
    }
}
