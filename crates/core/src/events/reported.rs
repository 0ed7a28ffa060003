//! An event as its provider reports it, and its normal form. Pure.

use std::time::SystemTime;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::json::Scalar;
use super::{Event, EventType, RejectReason, reply};
use crate::address::{self, mailbox::Mailbox};
use crate::line;

/// Maximum octets of a provider's identifier of a mail; a longer one is dropped.
const PROVIDER_ID_MAX: usize = 255;
/// Characters of a UUID with its hyphens.
const UUID_LEN: usize = 36;

/// What mailroom gave the provider to return with each event of a mail, as a payload has it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Ids {
    pub(super) message_id: Scalar,
    pub(super) outbox_id: Scalar,
}

impl Ids {
    /// The identifiers; what cannot be one counts as missing.
    pub(super) fn read(&self) -> MailIds {
        MailIds {
            message_id: self.message_id.text().and_then(uuid),
            outbox_id: self.outbox_id.text().and_then(positive),
        }
    }
}

/// The identifiers of a mail.
#[derive(Clone, Copy, Default)]
pub(super) struct MailIds {
    pub(super) message_id: Option<Uuid>,
    pub(super) outbox_id: Option<i64>,
}

/// What makes an event the same as one that was posted before.
pub(super) enum Identity {
    /// The provider's identifier, together with the recipient and the type.
    Event(String),
    /// This alone: the rest of the request is not authentic.
    Token(String),
}

/// One event as its provider reports it.
pub(super) struct Reported {
    pub(super) identity: Identity,
    pub(super) event_type: EventType,
    pub(super) reason: Option<RejectReason>,
    /// Whether the provider calls it permanent.
    pub(super) is_permanent: bool,
    /// An address, or a mailbox with a name.
    pub(super) recipient: Option<String>,
    pub(super) mail: MailIds,
    pub(super) provider_id: Option<String>,
    /// The enhanced status code, if the provider has a field for it.
    pub(super) status: Option<String>,
    pub(super) detail: Option<String>,
    /// When it happened, if the provider says so.
    pub(super) occurred_at: Option<SystemTime>,
}

impl Reported {
    /// The normal form of an event that `transport` reports at `now`.
    pub(super) fn into_event(self, transport: &str, now: SystemTime) -> Event {
        let detail = self.detail.as_deref().and_then(reply::detail);
        let status = self
            .status
            .as_deref()
            .filter(|status| reply::is_status(status))
            .or_else(|| detail.as_deref().and_then(reply::status));
        let concerns_address = matches!(self.event_type, EventType::Bounced | EventType::Rejected);
        let is_permanent = self.is_permanent && concerns_address && reply::may_be_permanent(status);
        let recipient = self.recipient.as_deref();
        let address = recipient.and_then(address_key);
        let key = match &self.identity {
            Identity::Event(id) => {
                let recipient = address.as_deref().or(recipient);
                key(transport, id, recipient, Some(self.event_type))
            }
            Identity::Token(token) => key(transport, token, None, None),
        };
        Event {
            key,
            event_type: self.event_type,
            is_permanent,
            reason: self.reason,
            outbox_id: self.mail.outbox_id,
            message_id: self.mail.message_id,
            provider_id: self.provider_id,
            status: status.map(str::to_owned),
            detail,
            recipient: address,
            occurred_at: self.occurred_at.map_or(now, |time| time.min(now)),
        }
    }
}

/// The key of an event: the first 128 bits of the SHA-256 of the transport, the provider's identifier of the event, the
/// recipient and the type, each after its length in 8 octets, big-endian. A missing recipient or type is empty; a recipient
/// is the key of its address, or as it is reported if it has none.
pub fn key(
    transport: &str,
    event_id: &str,
    recipient: Option<&str>,
    event_type: Option<EventType>,
) -> Uuid {
    let mut hash = Sha256::new();
    let recipient = recipient.unwrap_or_default();
    for part in [
        transport,
        event_id,
        recipient,
        event_type.map_or("", EventType::name),
    ] {
        // Without the length, text could move from one part to the next.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut first = [0_u8; 16];
    first.copy_from_slice(&digest[..16]);
    Uuid::from_bytes(first)
}

/// The key of an address with or without a name.
pub(super) fn address_key(mailbox: &str) -> Option<String> {
    let mailbox = Mailbox::parse(mailbox).ok()?;
    let key = address::key(mailbox.address()).ok()?;
    Some(key.into_owned())
}

fn positive(text: &str) -> Option<i64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|id| is_number && *id > 0)
}

pub(super) fn uuid(text: &str) -> Option<Uuid> {
    (text.len() == UUID_LEN)
        .then(|| Uuid::try_parse(text).ok())
        .flatten()
}

/// The provider's identifier of a mail, unless it cannot be one.
pub(super) fn provider_id(id: &str) -> Option<String> {
    let fits = (1..=PROVIDER_ID_MAX).contains(&id.len()) && line::first_control(id).is_none();
    fits.then(|| id.to_owned())
}
