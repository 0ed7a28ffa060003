//! Resend: webhooks signed by Svix, or by Standard Webhooks 1.0, which is the same. Pure.
//!
//! An HMAC-SHA256 over identifier, time and body. The identifier is the same for all attempts to post an event, and the
//! time is that of the attempt. A mail to several recipients has an event for each, which does not say whose it is.
//! Format: "Event types" in Resend's documentation, and its description by OpenAPI; "Verifying payloads" in that of Svix.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use super::EVENT_SECRET;
use super::json::{List, Scalar, nested};
use super::reported::{self, Identity, Ids, MailIds, Reported};
use super::verify::{self, MAC_LEN};
use super::{EventType, Received, RejectReason, Request, timestamp};
use crate::transport::invalid::Invalid;

const PREFIX: &str = "whsec_";
/// Allowed bytes of a secret, by the specification.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// How much the time of a signature may differ from now, by the specification.
const TOLERANCE: Duration = Duration::from_secs(300);
/// How the headers begin.
const HEADERS: [&str; 2] = ["svix-", "webhook-"];
/// Maximum octets of an identifier.
const ID_MAX: usize = 255;

/// The signing secret of a webhook.
pub(super) struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// # Errors
    /// If it is not `whsec_` and base64.
    pub(super) fn new(secret: &str) -> Result<Self, Invalid> {
        let decode = |encoded| STANDARD.decode(encoded).ok().map(Zeroizing::new);
        secret
            .strip_prefix(PREFIX)
            .and_then(decode)
            .filter(|bytes| SECRET_BYTES.contains(&bytes.len()))
            .map(Self)
            .ok_or_else(|| Invalid::new(EVENT_SECRET, "is not whsec_ and 24 to 64 bytes in base64"))
    }
}

/// Whether one of these secrets signed the request; then the identifier of the event.
pub(super) fn verify<'a>(request: &Request<'a>, secrets: &[Secret]) -> Result<&'a str, Received> {
    let header = |name: &str| {
        HEADERS
            .iter()
            .find_map(|prefix| request.header(&format!("{prefix}{name}")))
    };
    let all = (header("id"), header("timestamp"), header("signature"));
    let (Some(id), Some(time), Some(signatures)) = all else {
        return Err(Received::Forged(
            "one of the headers svix-id, svix-timestamp and svix-signature is missing",
        ));
    };
    if id.is_empty() || id.len() > ID_MAX || id.contains('.') {
        // The parts of what is signed are separated by dots.
        return Err(Received::Forged("svix-id is not an identifier"));
    }
    let signed_at = Some(time)
        .filter(|time| !time.contains('.'))
        .and_then(timestamp::unix)
        .ok_or(Received::Forged("svix-timestamp is not a time"))?;
    let parts = [id.as_bytes(), b".", time.as_bytes(), b".", request.body];
    let mut is_signed = Choice::from(0);
    for secret in secrets {
        let Some(expected) = verify::mac(&secret.0, &parts) else {
            continue;
        };
        for signature in signatures.split(' ').filter_map(mac_of) {
            is_signed |= expected.ct_eq(&signature);
        }
    }
    if !bool::from(is_signed) {
        return Err(Received::Forged(
            "no signature is of a secret of event_secret",
        ));
    }
    verify::check_age(signed_at, request.now, TOLERANCE)?;
    // Nor may the time be ahead by more.
    verify::check_age(request.now, signed_at, TOLERANCE)?;
    Ok(id)
}

/// The bytes of `v1,…`; other versions are signatures by other means.
fn mac_of(signature: &str) -> Option<[u8; MAC_LEN]> {
    let encoded = signature.strip_prefix("v1,")?;
    STANDARD.decode(encoded).ok()?.try_into().ok()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(rename = "type")]
    kind: Scalar,
    created_at: Scalar,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Data<'a> {
    email_id: Scalar,
    #[serde(borrow)]
    tags: Option<&'a RawValue>,
    #[serde(borrow)]
    bounce: Option<&'a RawValue>,
    #[serde(borrow)]
    suppressed: Option<&'a RawValue>,
    #[serde(borrow)]
    failed: Option<&'a RawValue>,
}

/// The fields of `bounce`, `suppressed` and `failed`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    #[serde(rename = "type")]
    kind: Scalar,
    sub_type: Scalar,
    reason: Scalar,
    message: Scalar,
    diagnostic_code: Scalar,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Tag {
    name: Scalar,
    value: Scalar,
}

/// The events of a body: one or none. `id` is the identifier that the headers have.
///
/// Permanent is a bounce of the type `Permanent` with the subtype `NoEmail` or `General`.
pub(super) fn read(body: &str, id: &str) -> Result<Vec<Reported>, Received> {
    let payload: Payload<'_> = serde_json::from_str(body)
        .map_err(|_| Received::Malformed("the body is not an event in JSON"))?;
    let kind = payload.kind.text();
    let kind = kind.ok_or(Received::Malformed("the body has no type"))?;
    let data: Data<'_> = nested(payload.data);
    let details: Details = nested(data.bounce.or(data.suppressed).or(data.failed));
    let Some((event_type, reason)) = meaning(kind, &details) else {
        return Ok(Vec::new());
    };
    let detail = details
        .diagnostic_code
        .text()
        .or(details.message.text())
        .or(details.reason.text());
    Ok(vec![Reported {
        identity: Identity::Event(id.to_owned()),
        event_type,
        reason,
        is_permanent: details.kind.text() == Some("Permanent")
            && matches!(details.sub_type.text(), Some("NoEmail" | "General")),
        mail: ids(data.tags),
        provider_id: data.email_id.text().and_then(reported::provider_id),
        status: None,
        detail: detail.map(str::to_owned),
        recipient: None,
        occurred_at: payload.created_at.text().and_then(timestamp::rfc3339),
    }])
}

/// What a type of event means; `None` if it does not matter here.
fn meaning(kind: &str, details: &Details) -> Option<(EventType, Option<RejectReason>)> {
    Some(match kind {
        "email.sent" => (EventType::Accepted, None),
        "email.delivered" => (EventType::Delivered, None),
        "email.delivery_delayed" => (EventType::Deferred, None),
        "email.bounced" => (EventType::Bounced, Some(RejectReason::Bounced)),
        "email.complained" => (EventType::Complained, Some(RejectReason::Spam)),
        "email.suppressed" => {
            let reason = match details.reason.text() {
                Some("previous_bounce") => RejectReason::Bounced,
                Some("previous_complaint") => RejectReason::Spam,
                _ => RejectReason::Blocked,
            };
            (EventType::Rejected, Some(reason))
        }
        "email.failed" => (EventType::Failed, None),
        _ => return None,
    })
}

/// From the tags: an object, or a list of names and values as it was earlier.
fn ids(tags: Option<&RawValue>) -> MailIds {
    let mut ids: Ids = nested(tags);
    for Tag { name, value } in nested::<List<Tag>>(tags).0 {
        match name.text() {
            Some("message_id") => ids.message_id = value,
            Some("outbox_id") => ids.outbox_id = value,
            _ => {}
        }
    }
    ids.read()
}
