//! Payloads that the captured requests do not have: by the documentation of the providers.

use serde_json::{Value, json};

use super::fixture::{self, assert_malformed};
use crate::events::Event;

pub const MESSAGE_ID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

/// Type, reason, permanence, status and detail of an event in one line; `-` for what is missing.
pub fn summary(event: &Event) -> String {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or("-".to_owned());
    format!(
        "{} {} {} {} {}",
        event.event_type.name(),
        event.reason.map_or("-", |reason| reason.name()),
        if event.is_permanent { "permanent" } else { "-" },
        or_dash(&event.status),
        or_dash(&event.detail),
    )
}

/// The only event of a body; `ignored` if there is none.
#[track_caller]
pub fn read(provider: &str, body: &Value) -> String {
    let events = fixture::read(provider, &body.to_string()).unwrap();
    assert!(events.len() <= 1);
    events.first().map_or("ignored".to_owned(), summary)
}

fn mailgun(data: &Value) -> Value {
    json!({
        "event-data": data,
        // By the keys of django-anymail's tests.
        "signature": {
            "token": "1234567890abcdef1234567890abcdef",
            "timestamp": "1234567890",
            "signature": "3b754b7c269e4c08fb3f5f36b2b5f98e45245965522dc16ca4c9faa0b11b557d",
        },
    })
}

#[test]
fn bounces_and_drops_of_sendgrid() {
    for (event, expected) in [
        (
            json!({"event": "bounce", "type": "bounce", "status": "5.7.1"}),
            "bounced bounced - 5.7.1 -",
        ),
        (
            json!({"event": "bounce", "type": "bounce", "status": "4.2.2"}),
            "bounced bounced - 4.2.2 -",
        ),
        (
            json!({"event": "bounce", "type": "bounce", "reason": "550 5.1.1 unknown"}),
            "bounced bounced permanent 5.1.1 550 5.1.1 unknown",
        ),
        (
            json!({"event": "bounce", "type": "blocked"}),
            "bounced blocked - - -",
        ),
        (
            json!({"event": "bounce", "type": "expired"}),
            "bounced timed_out - - -",
        ),
        (json!({"event": "bounce"}), "bounced - - - -"),
        (
            json!({"event": "dropped", "reason": "Bounced Address"}),
            "rejected bounced permanent - Bounced Address",
        ),
        (
            json!({"event": "dropped", "reason": "Spam Reporting Address"}),
            "rejected spam - - Spam Reporting Address",
        ),
        (json!({"event": "dropped"}), "rejected other - - -"),
        (json!({"event": "spamreport"}), "complained spam - - -"),
        (
            json!({"event": "group_unsubscribe"}),
            "unsubscribed unsubscribed - - -",
        ),
        (json!({"event": "group_resubscribe"}), "ignored"),
        (json!({"event": "account_status_change"}), "ignored"),
        (
            json!({"event": ["delivered"], "timestamp": {}, "email": 7}),
            "delivered - - - -",
        ),
        (json!(7), "ignored"),
    ] {
        assert_eq!(read("sendgrid", &json!([event])), expected, "{event}");
    }
}

#[test]
fn bounces_of_postmark() {
    for (kind, expected) in [
        ("HardBounce", "bounced bounced permanent"),
        ("SoftBounce", "deferred - -"),
        ("Transient", "deferred - -"),
        ("DnsError", "deferred - -"),
        ("SpamNotification", "rejected spam -"),
        ("BadEmailAddress", "rejected invalid permanent"),
        ("ManuallyDeactivated", "rejected blocked permanent"),
        ("Blocked", "rejected blocked -"),
        ("SpamComplaint", "complained spam -"),
        ("TemplateRenderingFailed", "failed - -"),
        ("Unknown", "bounced - -"),
        ("VirusNotification", "bounced other -"),
    ] {
        let body =
            json!({"RecordType": "Bounce", "Type": kind, "ID": 7, "Email": "ada@example.com"});
        assert_eq!(read("postmark", &body), format!("{expected} - -"), "{kind}");
    }
    let policy =
        json!({"RecordType": "Bounce", "Type": "HardBounce", "Details": "smtp;550 5.7.1 no"});
    assert_eq!(
        read("postmark", &policy),
        "bounced bounced - 5.7.1 smtp;550 5.7.1 no"
    );
    let complaint = json!({"RecordType": "SubscriptionChange", "SuppressSending": true,
        "SuppressionReason": "SpamComplaint"});
    assert_eq!(read("postmark", &complaint), "complained spam - - -");
}

#[test]
fn events_of_postmark_without_an_id_are_told_apart() {
    let key = |record: &str, recipient: &str, time: &str| {
        let body = json!({"RecordType": record, "MessageID": "1", "Recipient": recipient,
            "DeliveredAt": time, "SuppressionReason": "HardBounce"});
        fixture::read("postmark", &body.to_string()).unwrap()[0].key
    };
    let one = key("Delivery", "ada@example.com", "2026-01-02T03:04:00Z");
    assert_eq!(
        key("Delivery", "Ada@EXAMPLE.com", "2026-01-02T03:04:00Z"),
        one
    );
    for other in [
        key(
            "SubscriptionChange",
            "ada@example.com",
            "2026-01-02T03:04:00Z",
        ),
        key("Delivery", "eve@example.com", "2026-01-02T03:04:00Z"),
        key("Delivery", "ada@example.com", "2026-01-02T03:04:01Z"),
    ] {
        assert_ne!(other, one);
    }
}

/// One of each schema of the description of Resend's webhooks by OpenAPI.
#[test]
fn events_of_resend() {
    let bounce = |kind: &str, sub_type: &str, code: &str| {
        let diagnostic = [format!("smtp; 550 {code} no")];
        json!({"bounce": {"type": kind, "subType": sub_type, "message": "m", "diagnosticCode": diagnostic}})
    };
    let suppressed = |reason: &str| json!({"suppressed": {"type": "Suppressed", "reason": reason, "message": "m"}});
    for (kind, data, expected) in [
        ("email.sent", json!({}), "accepted - - - -"),
        ("email.delivered", json!({}), "delivered - - - -"),
        ("email.delivery_delayed", json!({}), "deferred - - - -"),
        ("email.complained", json!({}), "complained spam - - -"),
        (
            "email.bounced",
            bounce("Permanent", "NoEmail", "5.1.1"),
            "bounced bounced permanent 5.1.1 smtp; 550 5.1.1 no",
        ),
        (
            "email.bounced",
            bounce("Permanent", "General", "5.7.1"),
            "bounced bounced - 5.7.1 smtp; 550 5.7.1 no",
        ),
        (
            "email.bounced",
            bounce("Permanent", "ContentRejected", "5.6.0"),
            "bounced bounced - 5.6.0 smtp; 550 5.6.0 no",
        ),
        (
            "email.bounced",
            bounce("Transient", "General", "5.1.1"),
            "bounced bounced - 5.1.1 smtp; 550 5.1.1 no",
        ),
        (
            "email.suppressed",
            suppressed("previous_bounce"),
            "rejected bounced - - m",
        ),
        (
            "email.suppressed",
            suppressed("previous_complaint"),
            "rejected spam - - m",
        ),
        ("email.suppressed", json!({}), "rejected blocked - - -"),
        (
            "email.failed",
            json!({"failed": {"reason": "reached_daily_quota"}}),
            "failed - - - reached_daily_quota",
        ),
        ("email.opened", json!({}), "ignored"),
        ("email.clicked", json!({}), "ignored"),
        ("email.scheduled", json!({}), "ignored"),
        ("email.received", json!({}), "ignored"),
        ("contact.created", json!({}), "ignored"),
        ("email.sent", json!([7]), "accepted - - - -"),
    ] {
        let body = json!({"type": kind, "created_at": "2023-10-06T23:47:56.678Z", "data": data});
        assert_eq!(read("resend", &body), expected, "{kind}");
    }
    for body in ["{}", "[]", "7", "{\"type\": 7"] {
        assert_malformed(fixture::read("resend", body).unwrap_err());
    }
}

#[test]
fn resend_finds_a_mail_by_tags_as_an_object_or_as_a_list() {
    for tags in [
        json!({"message_id": MESSAGE_ID, "outbox_id": "7"}),
        json!([{"name": "message_id", "value": MESSAGE_ID}, {"name": "outbox_id", "value": "7"}]),
    ] {
        let body = json!({"type": "email.sent", "data": {"tags": tags, "to": ["ada@example.com"]}});
        let event = fixture::read("resend", &body.to_string())
            .unwrap()
            .remove(0);
        assert_eq!(
            event.message_id.map(|id| id.to_string()).as_deref(),
            Some(MESSAGE_ID)
        );
        assert_eq!(event.outbox_id, Some(7));
        assert_eq!(event.recipient, None);
        assert_eq!(event.occurred_at, fixture::now());
    }
}

#[test]
fn failures_of_mailgun() {
    for (severity, reason, code, expected) in [
        (
            "permanent",
            "bounce",
            "5.1.1",
            "bounced bounced permanent 5.1.1",
        ),
        (
            "permanent",
            "suppress-bounce",
            "",
            "bounced bounced permanent -",
        ),
        ("permanent", "bounce", "5.7.1", "bounced bounced - 5.7.1"),
        ("permanent", "suppress-complaint", "", "bounced spam - -"),
        (
            "permanent",
            "suppress-unsubscribe",
            "",
            "bounced unsubscribed - -",
        ),
        ("permanent", "espblock", "", "bounced blocked - -"),
        ("permanent", "old", "", "bounced timed_out - -"),
        ("permanent", "generic", "5.1.1", "bounced other - 5.1.1"),
        ("temporary", "generic", "4.2.0", "deferred other - 4.2.0"),
    ] {
        let data = json!({"event": "failed", "severity": severity, "reason": reason,
            "delivery-status": {"enhanced-code": code}, "recipient": "ada@example.com"});
        assert_eq!(read("mailgun", &mailgun(&data)), format!("{expected} -"));
    }
    for event in ["opened", "clicked", "stored", "list_member_uploaded"] {
        assert_eq!(
            read("mailgun", &mailgun(&json!({"event": event}))),
            "ignored"
        );
    }
    for data in [json!({}), json!([]), json!(null)] {
        assert_malformed(fixture::read("mailgun", &mailgun(&data).to_string()).unwrap_err());
    }
}

#[test]
fn a_time_that_is_missing_or_ahead_is_that_of_the_request() {
    for time in [
        json!(4_000_000_000_u64),
        json!("soon"),
        json!(null),
        json!(-1),
    ] {
        let body = json!([{"event": "delivered", "timestamp": time}]);
        let event = fixture::read("sendgrid", &body.to_string())
            .unwrap()
            .remove(0);
        assert_eq!(event.occurred_at, fixture::now(), "{time}");
    }
}
