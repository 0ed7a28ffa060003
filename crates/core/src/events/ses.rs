//! Events of Amazon SES, as SNS carries them. Pure.
//!
//! One JSON object in the text of an SNS message, in two forms that are almost the same: `eventType` from a configuration
//! set, `notificationType` from the feedback of an identity. The second knows no tags.
//! Format: "Contents of event data" and "Contents of notifications" in the developer guide of Amazon SES.

use std::time::SystemTime;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::{List, Scalar, nested};
use super::reported::{self, Identity, Ids, MailIds, Reported};
use super::{EventType, RejectReason, reply, timestamp};

/// The header that identifies a mail where tags are missing.
const MESSAGE_ID: &str = "X-Mailroom-Message-ID";
/// The status of an address whose domain has no mail server, which SES calls transient.
const NO_SERVER: &str = "5.4.4";

/// The part of the payload that all events have, and one object for each type of event.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Payload<'a> {
    event_type: Scalar,
    notification_type: Scalar,
    #[serde(borrow)]
    mail: Option<&'a RawValue>,
    #[serde(borrow)]
    bounce: Option<&'a RawValue>,
    #[serde(borrow)]
    complaint: Option<&'a RawValue>,
    #[serde(borrow)]
    delivery: Option<&'a RawValue>,
    #[serde(borrow)]
    delivery_delay: Option<&'a RawValue>,
    #[serde(borrow)]
    reject: Option<&'a RawValue>,
    #[serde(borrow)]
    failure: Option<&'a RawValue>,
    #[serde(borrow)]
    subscription: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Mail<'a> {
    message_id: Scalar,
    #[serde(borrow)]
    destination: Option<&'a RawValue>,
    #[serde(borrow)]
    tags: Option<&'a RawValue>,
    #[serde(borrow)]
    headers: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Header {
    name: Scalar,
    value: Scalar,
}

/// The fields of the object of any type of event.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details<'a> {
    timestamp: Scalar,
    bounce_type: Scalar,
    bounce_sub_type: Scalar,
    #[serde(borrow)]
    bounced_recipients: Option<&'a RawValue>,
    complaint_feedback_type: Scalar,
    #[serde(borrow)]
    complained_recipients: Option<&'a RawValue>,
    #[serde(borrow)]
    recipients: Option<&'a RawValue>,
    smtp_response: Scalar,
    delay_type: Scalar,
    #[serde(borrow)]
    delayed_recipients: Option<&'a RawValue>,
    reason: Scalar,
    error_message: Scalar,
    #[serde(borrow)]
    new_topic_preferences: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Recipient {
    email_address: Scalar,
    status: Scalar,
    diagnostic_code: Scalar,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TopicPreferences {
    unsubscribe_all: Scalar,
}

/// What all recipients of an event share.
struct Common {
    event_type: EventType,
    reason: Option<RejectReason>,
    detail: Option<String>,
}

/// The events of the text of an SNS message, none if it is another message: `sns_id` is its identifier, of bounded
/// length, and `sent_at` its time.
///
/// Permanent is a bounce of the type `Permanent`, or one with the status 5.4.4.
pub(super) fn read(text: &str, sns_id: &str, sent_at: Option<SystemTime>) -> Vec<Reported> {
    // SNS says in prose that the topic was validated.
    let Ok(payload) = serde_json::from_str::<Payload<'_>>(text) else {
        return Vec::new();
    };
    let mail: Mail<'_> = nested(payload.mail);
    let details: Details<'_> = nested(object(&payload));
    let Some(common) = common(&payload, &details) else {
        return Vec::new();
    };
    // What all recipients share is bounded before it is copied for each.
    let ids = ids(&mail);
    let provider_id = mail.message_id.text().and_then(reported::provider_id);
    let detail = common.detail.as_deref().and_then(reply::detail);
    let occurred_at = details.timestamp.text().and_then(timestamp::rfc3339);
    let report = |recipient: Recipient| Reported {
        identity: Identity::Event(sns_id.to_owned()),
        event_type: common.event_type,
        reason: common.reason,
        is_permanent: is_permanent(&details, &recipient),
        mail: ids,
        provider_id: provider_id.clone(),
        status: recipient.status.into_text(),
        detail: recipient
            .diagnostic_code
            .into_text()
            .or_else(|| detail.clone()),
        recipient: recipient.email_address.into_text(),
        occurred_at: occurred_at.or(sent_at),
    };
    recipients(&mail, &details)
        .into_iter()
        .map(report)
        .collect()
}

/// The object of the type of event.
fn object<'a>(payload: &Payload<'a>) -> Option<&'a RawValue> {
    payload
        .bounce
        .or(payload.complaint)
        .or(payload.delivery)
        .or(payload.delivery_delay)
        .or(payload.reject)
        .or(payload.failure)
        .or(payload.subscription)
}

/// Type, reason and description; `None` if the event does not matter here.
fn common(payload: &Payload<'_>, details: &Details<'_>) -> Option<Common> {
    let kind = payload
        .event_type
        .text()
        .or(payload.notification_type.text())?;
    let text = |value: &Scalar| value.text().map(str::to_owned);
    let (event_type, reason, detail) = match kind {
        "Bounce" if details.bounce_sub_type.text() == Some("UnsubscribedRecipient") => {
            let reason = Some(RejectReason::Unsubscribed);
            (EventType::Unsubscribed, reason, bounce_kind(details))
        }
        "Bounce" => (
            EventType::Bounced,
            Some(RejectReason::Bounced),
            bounce_kind(details),
        ),
        // "Not spam" takes a complaint back.
        "Complaint" if details.complaint_feedback_type.text() == Some("not-spam") => return None,
        "Complaint" => {
            let detail = text(&details.complaint_feedback_type);
            (EventType::Complained, Some(RejectReason::Spam), detail)
        }
        "Delivery" => (EventType::Delivered, None, text(&details.smtp_response)),
        "DeliveryDelay" => (EventType::Deferred, None, text(&details.delay_type)),
        "Send" => (EventType::Accepted, None, None),
        "Reject" => {
            let reason = Some(RejectReason::Blocked);
            (EventType::Rejected, reason, text(&details.reason))
        }
        "Rendering Failure" => (EventType::Failed, None, text(&details.error_message)),
        "Subscription" if unsubscribes(details) => (
            EventType::Unsubscribed,
            Some(RejectReason::Unsubscribed),
            None,
        ),
        _ => return None,
    };
    Some(Common {
        event_type,
        reason,
        detail,
    })
}

/// `Permanent: General`.
fn bounce_kind(details: &Details<'_>) -> Option<String> {
    let kind = details.bounce_type.text()?;
    Some(format!("{kind}: {}", details.bounce_sub_type.or_empty()))
}

fn unsubscribes(details: &Details<'_>) -> bool {
    let preferences: TopicPreferences = nested(details.new_topic_preferences);
    preferences.unsubscribe_all.text() == Some("true")
}

fn is_permanent(details: &Details<'_>, recipient: &Recipient) -> bool {
    let is_without_server = recipient.status.text() == Some(NO_SERVER);
    let kind = details.bounce_type.text();
    kind == Some("Permanent") || (kind == Some("Transient") && is_without_server)
}

/// Those that the event names, or else all of the mail. One without an address if there are none.
fn recipients(mail: &Mail<'_>, details: &Details<'_>) -> Vec<Recipient> {
    let named = details
        .bounced_recipients
        .or(details.complained_recipients)
        .or(details.delayed_recipients);
    let mut recipients = nested::<List<Recipient>>(named).0;
    if named.is_none() {
        let addresses: List<Scalar> = nested(details.recipients.or(mail.destination));
        let recipient = |email_address| Recipient {
            email_address,
            ..Recipient::default()
        };
        recipients.extend(addresses.0.into_iter().map(recipient));
    }
    if recipients.is_empty() {
        recipients.push(Recipient::default());
    }
    recipients
}

/// From the tags, or else from a header.
fn ids(mail: &Mail<'_>) -> MailIds {
    let mut ids: Ids = nested(mail.tags);
    if ids.message_id.text().is_none() {
        let headers: List<Header> = nested(mail.headers);
        let found = headers.0.into_iter().find(|header| {
            let name = header.name.or_empty();
            name.eq_ignore_ascii_case(MESSAGE_ID)
        });
        ids.message_id = found.map(|header| header.value).unwrap_or_default();
    }
    ids.read()
}
