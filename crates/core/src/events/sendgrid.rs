//! SendGrid: the signed event webhook. Pure.
//!
//! A signature by ECDSA with P-256 over the time and the body; the public key is shown beside the webhook. A body is a list
//! of events of several mails, and an event may be repeated within it.
//! Format: "Event Webhook Reference" and "Event Webhook Security Features" in SendGrid's documentation.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::EVENT_SECRET;
use super::json::{List, Scalar};
use super::reported::{self, Identity, Ids, Reported};
use super::verify;
use super::{EventType, Received, RejectReason, Request, timestamp};
use crate::transport::invalid::Invalid;

/// The headers.
const SIGNATURE: &str = "X-Twilio-Email-Event-Webhook-Signature";
const TIMESTAMP: &str = "X-Twilio-Email-Event-Webhook-Timestamp";
/// How the SubjectPublicKeyInfo of a key on P-256 begins (RFC 5480): the algorithm, the curve, and the head of the point.
const SPKI_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// Bytes of an uncompressed point, and its first byte (SEC 1, section 2.3.3).
const POINT_LEN: usize = 65;
const UNCOMPRESSED: u8 = 4;

/// The verification key of a webhook.
pub(super) struct PublicKey([u8; POINT_LEN]);

impl PublicKey {
    /// Reads a key as SendGrid shows it: SubjectPublicKeyInfo in base64, with or without the lines of PEM around it.
    ///
    /// # Errors
    /// If it is not such a key.
    pub(super) fn new(secret: &str) -> Result<Self, Invalid> {
        let encoded: String = secret
            .lines()
            .filter(|line| !line.starts_with("-----"))
            .flat_map(str::split_whitespace)
            .collect();
        STANDARD
            .decode(encoded)
            .ok()
            .and_then(|spki| spki.strip_prefix(&SPKI_HEAD)?.try_into().ok())
            .filter(|point: &[u8; POINT_LEN]| point[0] == UNCOMPRESSED)
            .map(Self)
            .ok_or_else(|| Invalid::new(EVENT_SECRET, "is not the verification key of a webhook"))
    }
}

/// Whether one of these keys signed the request.
pub(super) fn verify(request: &Request<'_>, keys: &[PublicKey]) -> Result<(), Received> {
    let header = |name, missing| request.header(name).ok_or(Received::Forged(missing));
    let time = header(TIMESTAMP, "there is no header with the time of a signature")?;
    let signature = header(SIGNATURE, "there is no header with a signature")?;
    let signature = STANDARD
        .decode(signature)
        .map_err(|_| Received::Forged("the signature is not base64"))?;
    let signed_at = verify::fixed_timestamp(time).ok_or(Received::Forged(
        "the time of the signature is not ten digits",
    ))?;
    let signed = [time.as_bytes(), request.body].concat();
    let is_signed = keys.iter().any(|key| {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key.0);
        key.verify(&signed, &signature).is_ok()
    });
    if !is_signed {
        return Err(Received::Forged(
            "the signature is not of a key of event_secret",
        ));
    }
    verify::check_age(signed_at, request.now, request.retention)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload {
    event: Scalar,
    email: Scalar,
    timestamp: Scalar,
    sg_event_id: Scalar,
    sg_message_id: Scalar,
    #[serde(rename = "type")]
    kind: Scalar,
    reason: Scalar,
    response: Scalar,
    status: Scalar,
    message_id: Scalar,
    outbox_id: Scalar,
}

/// The events of a body. What is not an event is skipped: the others would be lost with it.
///
/// Permanent is a `bounce` of the type `bounce`, and what was dropped because the address is invalid or bounced before.
pub(super) fn read(body: &str) -> Result<Vec<Reported>, Received> {
    let list: List<&RawValue> = serde_json::from_str(body)
        .map_err(|_| Received::Malformed("the body is not a list of events in JSON"))?;
    let event = |event: &RawValue| serde_json::from_str::<Payload>(event.get()).ok();
    let events = list.0.into_iter().filter_map(event);
    Ok(events.filter_map(report).collect())
}

fn report(payload: Payload) -> Option<Reported> {
    let kind = payload.kind.text();
    let (event_type, reason) = match payload.event.text()? {
        "processed" => (EventType::Accepted, None),
        "delivered" => (EventType::Delivered, None),
        "deferred" => (EventType::Deferred, None),
        "bounce" => (EventType::Bounced, kind.and_then(bounce_reason)),
        "dropped" => {
            let why = kind.or(payload.reason.text()).unwrap_or_default();
            (EventType::Rejected, Some(drop_reason(why)))
        }
        "spamreport" => (EventType::Complained, Some(RejectReason::Spam)),
        "unsubscribe" | "group_unsubscribe" => {
            (EventType::Unsubscribed, Some(RejectReason::Unsubscribed))
        }
        _ => return None,
    };
    let is_permanent = match event_type {
        EventType::Bounced => kind == Some("bounce"),
        _ => matches!(reason, Some(RejectReason::Invalid | RejectReason::Bounced)),
    };
    let parts = [&payload.event, &payload.sg_message_id, &payload.timestamp];
    let id = match payload.sg_event_id.text() {
        Some(id) => id.to_owned(),
        None => parts.map(Scalar::or_empty).join("\n"),
    };
    let ids = Ids {
        message_id: payload.message_id,
        outbox_id: payload.outbox_id,
    };
    Some(Reported {
        identity: Identity::Event(id),
        event_type,
        reason,
        is_permanent,
        mail: ids.read(),
        provider_id: payload.sg_message_id.text().and_then(provider_id),
        status: payload.status.into_text(),
        detail: payload.response.into_text().or(payload.reason.into_text()),
        recipient: payload.email.into_text(),
        occurred_at: payload.timestamp.text().and_then(timestamp::unix),
    })
}

fn bounce_reason(kind: &str) -> Option<RejectReason> {
    match kind {
        "bounce" => Some(RejectReason::Bounced),
        "blocked" => Some(RejectReason::Blocked),
        "expired" => Some(RejectReason::TimedOut),
        _ => None,
    }
}

fn drop_reason(why: &str) -> RejectReason {
    match why.to_ascii_lowercase().as_str() {
        "invalid" => RejectReason::Invalid,
        "unsubscribed address" => RejectReason::Unsubscribed,
        "bounce" | "bounced address" => RejectReason::Bounced,
        "blocked" => RejectReason::Blocked,
        "expired" => RejectReason::TimedOut,
        "spam reporting address" => RejectReason::Spam,
        _ => RejectReason::Other,
    }
}

/// The identifier that the response to the mail had, which that of the recipient begins with.
fn provider_id(id: &str) -> Option<String> {
    let end = [".filter", ".recvd"].iter().find_map(|next| id.find(next));
    reported::provider_id(&id[..end.unwrap_or(id.len())])
}
