//! Mailgun: webhooks in JSON, one event each. Pure.
//!
//! An HMAC-SHA256 over time and token, which the body contains. It does not cover the rest of the body: a person who sees a
//! request can change it. So a token counts once: the key of its event is made of the token alone.
//! Format: "Webhooks" and "Securing webhooks" in Mailgun's documentation. The form until 2018 is malformed.

use serde::Deserialize;
use serde_json::value::RawValue;
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

use super::EVENT_SECRET;
use super::json::{Scalar, nested};
use super::reported::{self, Identity, Ids, Reported};
use super::verify::{self, MAC_LEN};
use super::{EventType, Received, RejectReason, Request, timestamp};
use crate::transport::invalid::Invalid;

/// Maximum octets of a token, which has 50 characters.
const TOKEN_MAX: usize = 255;

/// The webhook signing key of an account. It is not the key of the API.
pub(super) struct SigningKey(Zeroizing<Vec<u8>>);

impl SigningKey {
    /// # Errors
    /// If it is empty.
    pub(super) fn new(secret: &str) -> Result<Self, Invalid> {
        if secret.is_empty() {
            return Err(Invalid::new(EVENT_SECRET, "is empty"));
        }
        Ok(Self(Zeroizing::new(secret.as_bytes().to_vec())))
    }
}

/// A body, of which the events are read after the signature is verified.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Payload<'a> {
    #[serde(borrow)]
    signature: Option<&'a RawValue>,
    #[serde(borrow, rename = "event-data")]
    event_data: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Signature {
    token: Scalar,
    timestamp: Scalar,
    signature: Scalar,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct EventData<'a> {
    event: Scalar,
    timestamp: Scalar,
    recipient: Scalar,
    severity: Scalar,
    reason: Scalar,
    #[serde(borrow)]
    delivery_status: Option<&'a RawValue>,
    #[serde(borrow)]
    reject: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    user_variables: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct DeliveryStatus {
    message: Scalar,
    description: Scalar,
    enhanced_code: Scalar,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Reject {
    reason: Scalar,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Headers {
    message_id: Scalar,
    to: Scalar,
}

/// The events of a request, one or none, if one of these keys signed its token.
///
/// Permanent is `failed` with the severity `permanent` and the reason `bounce` or `suppress-bounce`.
pub(super) fn read(
    request: &Request<'_>,
    body: &str,
    keys: &[SigningKey],
) -> Result<Vec<Reported>, Received> {
    let payload: Payload<'_> = serde_json::from_str(body)
        .map_err(|_| Received::Malformed("the body is not an event in JSON"))?;
    let token = verify(request, nested(payload.signature), keys)?;
    let data: EventData<'_> = nested(payload.event_data);
    if data.event.text().is_none() {
        return Err(Received::Malformed("the body has no event"));
    }
    Ok(report(&data, token).into_iter().collect())
}

/// The token, if one of these keys signed it.
fn verify(
    request: &Request<'_>,
    signature: Signature,
    keys: &[SigningKey],
) -> Result<String, Received> {
    let given = mac_of(signature.signature.or_empty())
        .ok_or(Received::Forged("the body has no signature"))?;
    let time = signature.timestamp.or_empty();
    let signed_at = verify::fixed_timestamp(time).ok_or(Received::Forged(
        "the time of the signature is not ten digits",
    ))?;
    let token = signature.token.into_text();
    let token = token
        .filter(|token| token.len() <= TOKEN_MAX)
        .ok_or(Received::Forged("the signature has no token"))?;
    let parts = [time.as_bytes(), token.as_bytes()];
    let expected = keys.iter().filter_map(|key| verify::mac(&key.0, &parts));
    let is_signed = expected.fold(Choice::from(0), |found, mac| found | mac.ct_eq(&given));
    if !bool::from(is_signed) {
        return Err(Received::Forged(
            "the signature is not of a key of event_secret",
        ));
    }
    verify::check_age(signed_at, request.now, request.retention)?;
    Ok(token)
}

/// The bytes of 64 hexadecimal digits.
fn mac_of(digits: &str) -> Option<[u8; MAC_LEN]> {
    if digits.len() != MAC_LEN * 2 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut mac = [0_u8; MAC_LEN];
    for (index, byte) in mac.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(mac)
}

fn report(data: &EventData<'_>, token: String) -> Option<Reported> {
    let status: DeliveryStatus = nested(data.delivery_status);
    let message: Message<'_> = nested(data.message);
    let headers: Headers = nested(message.headers);
    let reject: Reject = nested(data.reject);
    let is_final = data.severity.text() != Some("temporary");
    let why = data.reason.text();
    let (event_type, reason) = match data.event.text()? {
        "accepted" => (EventType::Accepted, None),
        "delivered" => (EventType::Delivered, None),
        "failed" if is_final => (EventType::Bounced, why.map(failure_reason)),
        "failed" => (EventType::Deferred, why.map(failure_reason)),
        "rejected" => {
            let reason = why.map_or(RejectReason::Other, failure_reason);
            (EventType::Rejected, Some(reason))
        }
        "complained" => (EventType::Complained, Some(RejectReason::Spam)),
        "unsubscribed" => (EventType::Unsubscribed, Some(RejectReason::Unsubscribed)),
        _ => return None,
    };
    let detail = status
        .message
        .text()
        .or(status.description.text())
        .or(reject.reason.text());
    // What was rejected has no recipient but that of its header.
    let recipient = data.recipient.text().or(headers.to.text());
    Some(Reported {
        identity: Identity::Token(token),
        event_type,
        reason,
        is_permanent: data.severity.text() == Some("permanent")
            && matches!(why, Some("bounce" | "suppress-bounce")),
        mail: nested::<Ids>(data.user_variables).read(),
        provider_id: headers.message_id.text().and_then(provider_id),
        status: status.enhanced_code.text().map(str::to_owned),
        detail: detail.map(str::to_owned),
        recipient: recipient.map(str::to_owned),
        occurred_at: data.timestamp.text().and_then(timestamp::unix),
    })
}

fn failure_reason(why: &str) -> RejectReason {
    match why {
        "bounce" | "suppress-bounce" => RejectReason::Bounced,
        "suppress-complaint" => RejectReason::Spam,
        "suppress-unsubscribe" => RejectReason::Unsubscribed,
        "espblock" => RejectReason::Blocked,
        "old" => RejectReason::TimedOut,
        _ => RejectReason::Other,
    }
}

/// The identifier as the response to the mail had it, in angle brackets.
fn provider_id(id: &str) -> Option<String> {
    if id.starts_with('<') {
        reported::provider_id(id)
    } else {
        reported::provider_id(&format!("<{id}>"))
    }
}
