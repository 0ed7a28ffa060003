//! What became of mail: the events that providers post to a webhook, verified and brought into one form. Pure.
//!
//! | module | owns |
//! |---|---|
//! | [`Receiver`] | a request of a webhook: whether it is genuine, and which events it has |
//! | `ses` | events of Amazon SES |
//! | [`sns`] | the messages of Amazon SNS that carry them: topic, signature, certificate |
//! | `sendgrid`, `postmark`, `resend`, `mailgun` | verification and events of these providers |
//! | `verify` | passwords, message authentication codes and times |
//! | `reported` | an event as its provider reports it, and its normal form |
//! | `reply` | what the reply of a mail server says of the mailbox |
//! | [`dsn`] | reports of relays, which come by mail |
//! | [`report`] | events as programs report them, and as SQL takes them |
//! | `json`, `timestamp` | reading payloads |
//!
//! The caller passes the time, the headers, the body and the secrets; nothing here reads a clock, a file or a table. A
//! stranger can send any request, so no request is an error: the result is a value, [`Received`]. Whether an event is a
//! duplicate only the table of events knows, by [`Event::key`].
//!
//! The normal form is that of django-anymail, and so are the meanings of the providers' words, except where the tests list
//! a difference with its reason.

use std::time::{Duration, SystemTime};

use uuid::Uuid;

pub mod dsn;
mod json;
mod mailgun;
mod postmark;
mod receiver;
mod reply;
pub mod report;
mod reported;
mod resend;
mod sendgrid;
mod ses;
pub mod sns;
#[cfg(test)]
mod tests;
mod timestamp;
mod verify;

pub use receiver::Receiver;
pub use reported::key;

/// The providers whose events are understood, as in the transports file.
pub const PROVIDERS: [&str; 5] = ["ses", "sendgrid", "postmark", "resend", "mailgun"];
/// The key of the transports file with the secrets.
pub(crate) const EVENT_SECRET: &str = "event_secret";

/// Maximum size of a body in bytes. SendGrid's have up to 768 kB, and those of SNS 256 kB.
pub const BODY_MAX: usize = 4 * 1024 * 1024;

/// What happened to a mail, by the labels of the SQL type `event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The provider took the mail.
    Accepted,
    /// The recipient's server took it.
    Delivered,
    /// The recipient's server did not take it yet; the provider tries again.
    Deferred,
    /// The recipient's server refused it, at once or later.
    Bounced,
    /// The provider did not try to deliver it.
    Rejected,
    /// The recipient called it spam.
    Complained,
    /// The recipient wants no more mail.
    Unsubscribed,
    /// The provider could not process it, for example because a template failed.
    Failed,
}

impl EventType {
    /// Every type.
    pub const ALL: [Self; 8] = [
        Self::Accepted,
        Self::Delivered,
        Self::Deferred,
        Self::Bounced,
        Self::Rejected,
        Self::Complained,
        Self::Unsubscribed,
        Self::Failed,
    ];

    /// The label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Delivered => "delivered",
            Self::Deferred => "deferred",
            Self::Bounced => "bounced",
            Self::Rejected => "rejected",
            Self::Complained => "complained",
            Self::Unsubscribed => "unsubscribed",
            Self::Failed => "failed",
        }
    }
}

/// Why a mail did not reach a recipient, or must not be sent to them, by the labels of the SQL type `reject_reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// The address is not one.
    Invalid,
    /// The recipient's server refused mail to it, now or before.
    Bounced,
    /// No server took it in time.
    TimedOut,
    /// The provider, or a rule of the recipient's server, blocks it.
    Blocked,
    /// The recipient called mail spam, now or before.
    Spam,
    /// The recipient wants no more mail.
    Unsubscribed,
    /// Any other reason.
    Other,
}

impl RejectReason {
    /// Every reason.
    pub const ALL: [Self; 7] = [
        Self::Invalid,
        Self::Bounced,
        Self::TimedOut,
        Self::Blocked,
        Self::Spam,
        Self::Unsubscribed,
        Self::Other,
    ];

    /// The label.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Bounced => "bounced",
            Self::TimedOut => "timed_out",
            Self::Blocked => "blocked",
            Self::Spam => "spam",
            Self::Unsubscribed => "unsubscribed",
            Self::Other => "other",
        }
    }
}

/// An event, as a row of `delivery_events` has it.
///
/// Which mail it is about: `message_id` is that of the outbox, which 74 random bits make hard to guess, and `outbox_id` is a
/// shortcut to it; a mail must have both. `provider_id` finds mail whose provider returns neither.
///
/// `Debug` shows key and type only: the rest may contain an address.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// Equal for two events if they are one event that was posted twice.
    pub key: Uuid,
    /// What happened.
    pub event_type: EventType,
    /// Whether it is about the address rather than this mail: further mail to it is futile. True only of bounced and
    /// rejected mail.
    pub is_permanent: bool,
    /// Why, if the provider says so.
    pub reason: Option<RejectReason>,
    /// The key of the recipient's address, see [`crate::address::key`]; `None` if the provider does not say whose event it
    /// is, or what it says is no address. If the mail has one recipient in all, it is that one.
    pub recipient: Option<String>,
    /// `outbox.id`, if the provider returns it.
    pub outbox_id: Option<i64>,
    /// `outbox.message_id`, if the provider returns it.
    pub message_id: Option<Uuid>,
    /// The provider's own identifier of the mail, as `outbox.provider_id` has it; at most 255 octets.
    pub provider_id: Option<String>,
    /// The enhanced status code of the recipient's server: `5.1.1`.
    pub status: Option<String>,
    /// The reply of the recipient's server, or else how the provider describes the event; one line of at most 1,000
    /// characters. It may quote addresses and links: the caller masks secrets.
    pub detail: Option<String>,
    /// When it happened, to the microsecond. Not later than the request: a clock that is ahead must not make an event look
    /// newer than the next one.
    pub occurred_at: SystemTime,
}

impl std::fmt::Debug for Event {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Event")
            .field("key", &self.key)
            .field("event_type", &self.event_type)
            .finish_non_exhaustive()
    }
}

/// What a request is. The texts are for a log: they quote nothing of the request and no secret, and a stranger must not
/// read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Genuine, with at least one event. Some or all may be duplicates.
    Events(Vec<Event>),
    /// Genuine, without an event that matters here, such as an opened mail.
    Ignored,
    /// Genuine: SNS asks for a GET of this URL, which begins to send events. Its host is that of SNS in the region of the
    /// topic.
    Confirm {
        /// The URL.
        url: String,
    },
    /// Not proven to come from the provider: no signature or password, or that of another key, or another topic.
    Forged(&'static str),
    /// Genuine, but old: it may be one that was recorded and forgotten.
    Stale,
    /// Not what the provider sends.
    Malformed(&'static str),
}

/// A request to a webhook. It has no `Debug`, because its headers may contain a password.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Names and values; the case of names does not matter. Of several headers of a name the first counts.
    pub headers: &'a [(&'a str, &'a str)],
    /// The bytes as they came: a signature is about these.
    pub body: &'a [u8],
    /// The time of its arrival.
    pub now: SystemTime,
    /// How long the keys of events are remembered: `mailroom.retention`. An older request would not be recognized as a
    /// duplicate.
    pub retention: Duration,
}

impl<'a> Request<'a> {
    /// The value of a header.
    fn header(&self, name: &str) -> Option<&'a str> {
        self.headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }
}
