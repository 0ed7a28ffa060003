//! What we make of requests of providers beside what django-anymail 15.2 made of them, field by field.
//!
//! django-anymail is a program of others for the same five providers. What differs is in [`DIFFERENCES`], with both values
//! and the reason; any other difference is a failure, and so is one of these that is none any more.

use std::collections::BTreeSet;
use std::time::UNIX_EPOCH;

use serde_json::Value;

use super::fixture;
use crate::address;
use crate::events::{Event, reply, timestamp};

/// A difference: the test that the request was captured from, the field, our value, that of django-anymail, and why.
type Difference = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

const BOUNCED_AT: &str =
    "the bounce has a time of its own; django-anymail takes that of the message of SNS";
const ALWAYS: &str =
    "the reason follows from the type, for every provider; django-anymail says it for some";
const NO_TYPE: &str = "a body without a type is no event";
const WHOSE: &str =
    "Resend does not say whose event it is; django-anymail takes the first recipient";
const PROSE: &str = "django-anymail reads the prose of the message";
const KIND: &str = "the type of the bounce says so; django-anymail reads it of dropped mail only";
const DROPPED: &str =
    "SendGrid's reason is all that is known; django-anymail keeps replies of servers only";

const DIFFERENCES: &[Difference] = &[
    (
        "AmazonSESNotificationsTests.test_bounce_event",
        "occurred_at",
        "1453906784101000",
        "1522087139675000",
        BOUNCED_AT,
    ),
    (
        "MailgunTestCase.test_complained_event",
        "reason",
        "spam",
        "",
        ALWAYS,
    ),
    (
        "MailgunTestCase.test_unsubscribed_event",
        "reason",
        "unsubscribed",
        "",
        ALWAYS,
    ),
    (
        "PostmarkWebhookSecurityTestCase.test_supports_credential_rotation",
        "type",
        "malformed",
        "unknown",
        NO_TYPE,
    ),
    (
        "PostmarkWebhookSecurityTestCase.test_verifies_basic_auth",
        "type",
        "malformed",
        "unknown",
        NO_TYPE,
    ),
    (
        "PostmarkWebhookSecurityTestCase.test_warns_if_no_auth",
        "type",
        "malformed",
        "unknown",
        NO_TYPE,
    ),
    (
        "PostmarkWebhookSecurityTestCase.test_works_with_login_required_middleware",
        "type",
        "malformed",
        "unknown",
        NO_TYPE,
    ),
    (
        "ResendTestCase.test_complained_event",
        "reason",
        "spam",
        "",
        ALWAYS,
    ),
    (
        "ResendTestCase.test_complained_event",
        "recipient",
        "",
        "complained@resend.dev",
        WHOSE,
    ),
    (
        "ResendTestCase.test_delivery_delayed_event",
        "recipient",
        "",
        "delivered@resend.dev",
        WHOSE,
    ),
    (
        "ResendTestCase.test_hard_bounced_event",
        "recipient",
        "",
        "bounced@resend.dev",
        WHOSE,
    ),
    (
        "ResendTestCase.test_sent_event",
        "recipient",
        "",
        "to@example.org",
        WHOSE,
    ),
    (
        "ResendTestCase.test_suppressed_event",
        "reason",
        "bounced",
        "blocked",
        PROSE,
    ),
    (
        "ResendTestCase.test_suppressed_event",
        "recipient",
        "",
        "blocked@example.org",
        WHOSE,
    ),
    (
        "SendGridDeliveryTestCase.test_bounce_event",
        "reason",
        "bounced",
        "",
        KIND,
    ),
    (
        "SendGridDeliveryTestCase.test_dropped_bounced",
        "detail",
        "Bounced Address",
        "",
        DROPPED,
    ),
    (
        "SendGridDeliveryTestCase.test_dropped_invalid_event",
        "detail",
        "Invalid",
        "",
        DROPPED,
    ),
    (
        "SendGridDeliveryTestCase.test_dropped_unsubscribed_event",
        "detail",
        "Unsubscribed Address",
        "",
        DROPPED,
    ),
];

/// The requests with an event that is permanent, which django-anymail does not know.
const PERMANENT: [&str; 8] = [
    "AmazonSESNotificationsTests.test_bounce_event",
    "AmazonSESNotificationsTests.test_multiple_bounce_event",
    "SendGridDeliveryTestCase.test_bounce_event",
    "SendGridDeliveryTestCase.test_dropped_bounced",
    "SendGridDeliveryTestCase.test_dropped_invalid_event",
    "PostmarkDeliveryTestCase.test_bounce_event",
    "PostmarkDeliveryTestCase.test_subscription_change_bounce",
    "MailgunTestCase.test_failed_permanent_event",
];

/// The requests, first those in Mailgun's form until 2018.
fn by_form() -> (Vec<Value>, Vec<Value>) {
    let all: Vec<Value> =
        serde_json::from_str(include_str!("../../../../../tests/vectors/events.json")).unwrap();
    assert_eq!(all.len(), 124, "the requests are incomplete");
    let is_form = |row: &Value| text(row, "content_type").starts_with("multipart/");
    all.into_iter().partition(is_form)
}

fn rows() -> Vec<Value> {
    by_form().1
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The provider that the path names.
fn provider(row: &Value) -> &str {
    match text(row, "path").split('/').nth(2).unwrap_or_default() {
        "amazon_ses" => "ses",
        other => other,
    }
}

/// Our fields that django-anymail has too; empty is none.
fn ours(event: &Event, provider: &str) -> [(&'static str, String); 6] {
    let micros = event
        .occurred_at
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_micros();
    let or_none = |text: &Option<String>| text.clone().unwrap_or_default();
    let is_ours = provider != "sendgrid";
    [
        ("type", event.event_type.name().to_owned()),
        (
            "reason",
            event.reason.map_or("", |reason| reason.name()).to_owned(),
        ),
        ("recipient", or_none(&event.recipient)),
        // django-anymail reads an identifier that it sent itself.
        (
            "provider_id",
            or_none(&event.provider_id.clone().filter(|_| is_ours)),
        ),
        ("detail", or_none(&event.detail)),
        ("occurred_at", micros.to_string()),
    ]
}

/// The same of django-anymail's event; `None` for one that does not matter here.
fn theirs(event: &Value, provider: &str) -> Option<[(&'static str, String); 6]> {
    let id = if provider == "sendgrid" {
        ""
    } else {
        text(event, "message_id")
    };
    let event_type = match text(event, "event_type") {
        "queued" | "sent" => "accepted",
        "opened" | "clicked" | "subscribed" => return None,
        other => other,
    };
    let recipient = address::key(text(event, "recipient")).unwrap_or_default();
    let detail = ["mta_response", "description"].map(|key| text(event, key));
    let detail = detail.into_iter().find(|detail| !detail.is_empty());
    let time = timestamp::rfc3339(text(event, "timestamp")).unwrap_or_else(fixture::now);
    let micros = time.duration_since(UNIX_EPOCH).unwrap().as_micros();
    Some([
        ("type", event_type.to_owned()),
        ("reason", text(event, "reject_reason").to_owned()),
        ("recipient", recipient.into_owned()),
        ("provider_id", id.to_owned()),
        ("detail", detail.and_then(reply::detail).unwrap_or_default()),
        ("occurred_at", micros.to_string()),
    ])
}

/// The name of the test that a request was captured from.
fn name(row: &Value) -> String {
    let parts: Vec<&str> = text(row, "test").split('.').skip(2).collect();
    parts.join(".")
}

fn with_events() -> Vec<Value> {
    let has_events = |row: &Value| row["events"].as_array().is_some_and(|all| !all.is_empty());
    let rows: Vec<Value> = rows().into_iter().filter(has_events).collect();
    assert_eq!(rows.len(), 60, "requests with events");
    rows
}

#[test]
fn we_read_the_requests_of_providers_as_django_anymail_does() {
    let mut found = BTreeSet::new();
    for row in with_events() {
        let provider = provider(&row);
        let events = row["events"].as_array().unwrap();
        let expected: Vec<_> = events
            .iter()
            .filter_map(|event| theirs(event, provider))
            .collect();
        let mut differ = |field: &str, ours: &str, theirs: &str| {
            found.insert([
                name(&row),
                field.to_owned(),
                ours.to_owned(),
                theirs.to_owned(),
            ]);
        };
        let Ok(events) = fixture::read(provider, text(&row, "body")) else {
            let [(field, theirs), ..] = &expected[0];
            differ(field, "malformed", theirs);
            continue;
        };
        assert_eq!(events.len(), expected.len(), "{}", name(&row));
        for (event, theirs) in events.iter().zip(&expected) {
            for ((field, ours), (_, theirs)) in ours(event, provider).iter().zip(theirs) {
                if ours != theirs {
                    differ(field, ours, theirs);
                }
            }
        }
    }
    let listed = |(name, field, ours, theirs, _): &Difference| {
        [*name, *field, *ours, *theirs].map(str::to_owned)
    };
    let listed: BTreeSet<_> = DIFFERENCES.iter().map(listed).collect();
    let (new, gone): (Vec<_>, Vec<_>) = (
        found.difference(&listed).collect(),
        listed.difference(&found).collect(),
    );
    assert!(
        new.is_empty() && gone.is_empty(),
        "new: {new:#?}\nno more: {gone:#?}"
    );
}

#[test]
fn what_is_permanent_in_the_requests_of_providers() {
    let is_permanent = |row: &Value| {
        let events = fixture::read(provider(row), text(row, "body"));
        events.is_ok_and(|events| events.iter().any(|event| event.is_permanent))
    };
    let found: Vec<String> = with_events()
        .iter()
        .filter(|row| is_permanent(row))
        .map(name)
        .collect();
    assert_eq!(found, PERMANENT);
}

#[test]
fn other_genuine_requests_of_providers_have_no_events() {
    let mut count = 0;
    for row in rows() {
        let has_none = row["events"].as_array().is_some_and(Vec::is_empty);
        if has_none && row["status"].as_u64() == Some(200) {
            let events = fixture::read(provider(&row), text(&row, "body"));
            assert_eq!(events.as_deref(), Ok([].as_slice()), "{}", name(&row));
            count += 1;
        }
    }
    assert_eq!(count, 16);
}

#[test]
fn the_form_of_mailgun_until_2018_is_malformed() {
    let (old, _) = by_form();
    assert_eq!(old.len(), 10);
    for row in old {
        let received = fixture::read("mailgun", text(&row, "body")).unwrap_err();
        fixture::assert_malformed(received);
    }
}
