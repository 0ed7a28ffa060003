//! Payloads of SES that the captured requests do not have: by its documentation.

use serde_json::{Value, json};

use super::fixture;
use super::payloads::{MESSAGE_ID, read};

fn sns(message: &Value) -> Value {
    json!({"Type": "Notification", "MessageId": "1", "Message": message.to_string()})
}

#[test]
fn bounces_of_ses() {
    let bounce = |kind: &str, sub_type: &str, status: Value| {
        let recipient = json!({"emailAddress": "ada@example.com", "status": status});
        let bounce = json!({
            "bounceType": kind, "bounceSubType": sub_type, "bouncedRecipients": [recipient],
        });
        read(
            "ses",
            &sns(&json!({"eventType": "Bounce", "bounce": bounce, "mail": {}})),
        )
    };
    for (kind, sub_type, status, expected) in [
        (
            "Permanent",
            "General",
            json!("5.1.1"),
            "bounced bounced permanent 5.1.1 Permanent: General",
        ),
        (
            "Permanent",
            "NoEmail",
            json!(null),
            "bounced bounced permanent - Permanent: NoEmail",
        ),
        (
            "Permanent",
            "General",
            json!("5.7.1"),
            "bounced bounced - 5.7.1 Permanent: General",
        ),
        (
            "Transient",
            "General",
            json!("5.4.4"),
            "bounced bounced permanent 5.4.4 Transient: General",
        ),
        (
            "Transient",
            "MailboxFull",
            json!("5.2.2"),
            "bounced bounced - 5.2.2 Transient: MailboxFull",
        ),
        (
            "Undetermined",
            "Undetermined",
            json!(7),
            "bounced bounced - - Undetermined: Undetermined",
        ),
        (
            "Permanent",
            "UnsubscribedRecipient",
            json!("5.1.1"),
            "unsubscribed unsubscribed - 5.1.1 Permanent: UnsubscribedRecipient",
        ),
    ] {
        assert_eq!(bounce(kind, sub_type, status), expected);
    }
}

/// The reply is what is recorded: without control characters.
#[test]
fn a_status_is_found_where_the_recorded_reply_has_it() {
    let recipient = json!({"emailAddress": "ada@example.com", "status": "8.1.1",
        "diagnosticCode": "smtp; \u{7f}550 5.1.1 no such user"});
    let bounce = json!({"bounceType": "Permanent", "bouncedRecipients": [recipient]});
    let event = sns(&json!({"eventType": "Bounce", "bounce": bounce, "mail": {}}));
    assert_eq!(
        read("ses", &event),
        "bounced bounced permanent 5.1.1 smtp;  550 5.1.1 no such user"
    );
}

#[test]
fn other_events_of_ses() {
    for (message, expected) in [
        (
            json!({"notificationType": "Delivery", "delivery": {"recipients": ["ada@example.com"],
                "smtpResponse": "250 2.6.0 accepted"}}),
            "delivered - - 2.6.0 250 2.6.0 accepted",
        ),
        (
            json!({"eventType": "DeliveryDelay", "deliveryDelay": {"delayType": "TransientCommunicationFailure",
                "delayedRecipients": [{"emailAddress": "ada@example.com", "status": "4.4.1",
                    "diagnosticCode": "smtp; 421 4.4.1 no route"}]}}),
            "deferred - - 4.4.1 smtp; 421 4.4.1 no route",
        ),
        (
            json!({"eventType": "Subscription", "mail": {"destination": ["ada@example.com"]},
                "subscription": {"newTopicPreferences": {"unsubscribeAll": true}}}),
            "unsubscribed unsubscribed - - -",
        ),
        (
            json!({"eventType": "Subscription", "subscription": {"newTopicPreferences": {"unsubscribeAll": false}}}),
            "ignored",
        ),
        (json!({"eventType": "something new"}), "ignored"),
        (json!({"eventType": "Send", "mail": 7}), "accepted - - - -"),
    ] {
        assert_eq!(read("ses", &sns(&message)), expected, "{message}");
    }
}

#[test]
fn ses_finds_a_mail_by_tags_or_by_its_header() {
    let event = |mail: Value| {
        let body = sns(&json!({"eventType": "Send", "mail": mail})).to_string();
        fixture::read("ses", &body).unwrap().remove(0)
    };
    let tagged = event(json!({"tags": {"message_id": [MESSAGE_ID], "outbox_id": ["7"]}}));
    assert_eq!(
        tagged.message_id.map(|id| id.to_string()).as_deref(),
        Some(MESSAGE_ID)
    );
    assert_eq!(tagged.outbox_id, Some(7));
    let headers = json!([{"name": "To"}, {"name": "x-mailroom-message-id", "value": MESSAGE_ID}]);
    let by_header = event(json!({"headers": headers, "messageId": "0100-1"}));
    assert_eq!(by_header.message_id, tagged.message_id);
    assert_eq!(by_header.outbox_id, None);
    assert_eq!(by_header.provider_id.as_deref(), Some("0100-1"));
    let neither =
        event(json!({"tags": {"message_id": ["7"], "outbox_id": ["-7"]}, "messageId": "a\nb"}));
    assert_eq!((neither.message_id, neither.outbox_id), (None, None));
    assert_eq!(neither.provider_id, None);
}
