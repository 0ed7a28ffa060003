//! Postmark: webhooks with basic authentication, one event each. Pure.
//!
//! Format: "Webhooks overview" and "Bounce API", section "Bounce types", in Postmark's developer documentation.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{Scalar, nested};
use super::reported::{self, Identity, Ids, Reported};
use super::{EventType, Received, RejectReason, timestamp};

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Payload<'a> {
    record_type: Scalar,
    #[serde(rename = "ID")]
    id: Scalar,
    #[serde(rename = "Type")]
    kind: Scalar,
    #[serde(rename = "MessageID")]
    message_id: Scalar,
    email: Scalar,
    recipient: Scalar,
    description: Scalar,
    details: Scalar,
    delivered_at: Scalar,
    bounced_at: Scalar,
    received_at: Scalar,
    changed_at: Scalar,
    suppress_sending: Scalar,
    suppression_reason: Scalar,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

/// What a record means.
type Meaning = (EventType, Option<RejectReason>);

/// The events of a body: one or none.
///
/// Permanent are `HardBounce`, `BadEmailAddress` and `ManuallyDeactivated`.
pub(super) fn read(body: &str) -> Result<Vec<Reported>, Received> {
    let payload: Payload<'_> = serde_json::from_str(body)
        .map_err(|_| Received::Malformed("the body is not an event in JSON"))?;
    let record = payload.record_type.text();
    let record = record.ok_or(Received::Malformed("the body has no RecordType"))?;
    let (meaning, kind) = match record {
        "Delivery" => (Some((EventType::Delivered, None)), None),
        "Bounce" | "SpamComplaint" => {
            let kind = payload.kind.text().unwrap_or(record);
            (bounce(kind), Some(kind))
        }
        "SubscriptionChange" if payload.suppress_sending.text() == Some("false") => (None, None),
        "SubscriptionChange" => {
            let reason = payload.suppression_reason.text();
            let kind = reason.unwrap_or("ManualSuppression");
            (bounce(kind), Some(kind))
        }
        _ => (None, None),
    };
    let report = meaning.map(|meaning| report(&payload, record, meaning, kind));
    Ok(report.into_iter().collect())
}

fn report(
    payload: &Payload<'_>,
    record: &str,
    (event_type, reason): Meaning,
    kind: Option<&str>,
) -> Reported {
    let recipient = payload.email.text().or(payload.recipient.text());
    let time = payload
        .delivered_at
        .text()
        .or(payload.bounced_at.text())
        .or(payload.received_at.text())
        .or(payload.changed_at.text());
    let id = match payload.id.text() {
        Some(id) => id.to_owned(),
        None => [
            record,
            payload.message_id.or_empty(),
            time.unwrap_or_default(),
        ]
        .join("\n"),
    };
    let detail = payload.details.text().or(payload.description.text());
    Reported {
        identity: Identity::Event(id),
        event_type,
        reason,
        is_permanent: matches!(
            kind,
            Some("HardBounce" | "BadEmailAddress" | "ManuallyDeactivated")
        ),
        mail: nested::<Ids>(payload.metadata).read(),
        provider_id: payload.message_id.text().and_then(reported::provider_id),
        status: None,
        detail: detail.map(str::to_owned),
        recipient: recipient.map(str::to_owned),
        occurred_at: time.and_then(timestamp::rfc3339),
    }
}

/// What a type of bounce means; `None` if it does not matter here. An unknown type is a bounce for no known reason.
fn bounce(kind: &str) -> Option<Meaning> {
    Some(match kind {
        "HardBounce" => (EventType::Bounced, Some(RejectReason::Bounced)),
        // Postmark tries again: a hard bounce may follow.
        "SoftBounce" | "Transient" | "DnsError" | "OpenRelayTest" => (EventType::Deferred, None),
        "VirusNotification" => (EventType::Bounced, Some(RejectReason::Other)),
        "BadEmailAddress" => (EventType::Rejected, Some(RejectReason::Invalid)),
        "ManuallyDeactivated" | "Blocked" | "DMARCPolicy" => {
            (EventType::Rejected, Some(RejectReason::Blocked))
        }
        // A filter of content, not a person.
        "SpamNotification" => (EventType::Rejected, Some(RejectReason::Spam)),
        "Unconfirmed" => (EventType::Rejected, None),
        "SpamComplaint" => (EventType::Complained, Some(RejectReason::Spam)),
        "Unsubscribe" | "ManualSuppression" => {
            (EventType::Unsubscribed, Some(RejectReason::Unsubscribed))
        }
        "SMTPApiError" | "TemplateRenderingFailed" => (EventType::Failed, None),
        "Subscribe"
        | "AutoResponder"
        | "AddressChange"
        | "ChallengeVerification"
        | "InboundError" => return None,
        _ => (EventType::Bounced, None),
    })
}
