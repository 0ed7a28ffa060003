//! Requests that other programs signed, and what a stranger can do to them.

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use uuid::Uuid;

use super::fixture::{
    self, PASSWORD, Posted, SIGNATURE, TIME, assert_forged, assert_malformed, events, receiver,
    secrets, signatures, text,
};
use crate::events::{EventType, Received, Receiver, RejectReason, key, verify};

const MESSAGE_ID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const DAY: i64 = 24 * 3600;

#[test]
fn a_signed_request_has_its_events_in_the_normal_form() {
    let message_id = Uuid::try_parse(MESSAGE_ID).unwrap();
    for (provider, posted, receiver) in fixture::all() {
        let events = events(posted.to(&receiver));
        let event = &events[0];
        assert_eq!(event.message_id, Some(message_id), "{provider}");
        let has_number = event.outbox_id == Some(7);
        assert_eq!(has_number, provider != "mailgun", "{provider}");
        let is_bounce = event.event_type == EventType::Bounced;
        assert_eq!(is_bounce, provider != "postmark", "{provider}");
        assert_eq!(event.is_permanent, is_bounce, "{provider}");
        let recipient = event.recipient.as_deref();
        let expected = (provider != "resend").then_some("ada@example.com");
        assert_eq!(recipient, expected, "{provider}");
        let status = if is_bounce { "5.1.1" } else { "2.0.0" };
        assert_eq!(event.status.as_deref(), Some(status), "{provider}");
        assert!(event.occurred_at < posted.now, "{provider}");
    }
}

#[test]
fn sendgrid_has_several_events_in_a_request_and_those_opened_are_left_out() {
    let (_, posted, receiver) = fixture::sendgrid();
    let events = events(posted.to(&receiver));
    let [first, second] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(first.provider_id.as_deref(), Some("Lli-03HcQ5-JLybO9fXsJg"));
    assert_eq!(second.reason, Some(RejectReason::Blocked));
    assert_eq!(second.recipient.as_deref(), Some("grace@example.com"));
    assert_eq!(second.status.as_deref(), Some("5.7.1"));
    assert!(!second.is_permanent);
    assert_ne!(first.key, second.key);
    let at = UNIX_EPOCH + Duration::from_secs(1_767_323_045 - 60);
    assert_eq!(first.occurred_at, at);
}

#[test]
fn either_secret_of_a_rotation_counts_and_no_other_does() {
    let all = signatures();
    for (provider, posted, both) in fixture::all() {
        let (first, second) = match provider {
            "postmark" => (PASSWORD.to_owned(), "mailroom:second".to_owned()),
            _ => (
                text(&all, &format!("/{provider}/secrets/0")),
                text(&all, &format!("/{provider}/secrets/1")),
            ),
        };
        let by_second = match provider {
            "resend" => posted
                .clone()
                .header("svix-signature", &text(&all, "/resend/signatures/1")),
            "sendgrid" => posted
                .clone()
                .header(SIGNATURE, &text(&all, "/sendgrid/signatures/1")),
            "mailgun" => Posted::new(&[], &text(&all, "/mailgun/bodies/1")),
            _ => Posted::with_password(&String::from_utf8(posted.body.clone()).unwrap(), &second),
        };
        events(posted.to(&both));
        events(by_second.to(&both));
        events(posted.to(&receiver(provider, &[&first])));
        assert_forged(posted.to(&receiver(provider, &[&second])));
        assert_forged(by_second.to(&receiver(provider, &[&first])));
    }
}

#[test]
fn a_changed_body_is_forged_where_the_signature_covers_it() {
    for (_, mut posted, receiver) in [fixture::resend(), fixture::sendgrid()] {
        for index in [0, posted.body.len() / 2, posted.body.len() - 1] {
            posted.body[index] ^= 1;
            assert_forged(posted.to(&receiver));
            posted.body[index] ^= 1;
        }
        posted.body.push(b'\n');
        assert_forged(posted.to(&receiver));
        posted.body[3] = 0xff;
        assert_forged(posted.to(&receiver));
    }
}

#[test]
fn a_token_of_mailgun_counts_once_although_the_body_can_be_changed() {
    let (_, posted, receiver) = fixture::mailgun();
    let original = events(posted.to(&receiver));
    for (from, to) in [
        ("ada@example.com", "grace@example.com"),
        ("\"failed\"", "\"complained\""),
        (MESSAGE_ID, "ffffffff-d9cb-469f-a165-70867728950e"),
    ] {
        let changed = events(posted.clone().body(from, to).to(&receiver));
        assert_ne!(changed, original, "{from}");
        assert_eq!(changed[0].key, original[0].key, "{from}");
    }
    for (from, to) in [
        ("\"1767323045\"", "\"1767323046\""),
        // The time and the token are signed without a separator: a digit must not move from one to the other.
        (
            "\"1767323045\", \"token\": \"6",
            "\"17673230456\", \"token\": \"",
        ),
        (
            "\"1767323045\", \"token\": \"",
            "\"176732304\", \"token\": \"5",
        ),
        ("651869375b", "651869375c"),
        ("\"signature\": \"", "\"signature\": \"f"),
        ("\"signature\": {", "\"unsigned\": {"),
    ] {
        assert_forged(posted.clone().body(from, to).to(&receiver));
    }
}

#[test]
fn a_request_without_its_headers_or_with_others_is_forged() {
    let (_, posted, receiver) = fixture::resend();
    for name in ["svix-id", "svix-timestamp", "svix-signature"] {
        assert_forged(posted.clone().without(name).to(&receiver));
    }
    let signature = text(&signatures(), "/resend/signatures/0");
    for (name, value) in [
        ("svix-id", "msg_3"),
        ("svix-id", ""),
        ("svix-timestamp", "1767323046"),
        ("svix-timestamp", "1767323045.0"),
        ("svix-timestamp", "soon"),
        ("svix-signature", ""),
        ("svix-signature", &signature.replace("v1,", "v2,")),
        ("svix-signature", &signature[..signature.len() - 4]),
        ("svix-signature", &"v1, ".repeat(5000)),
    ] {
        assert_forged(posted.clone().header(name, value).to(&receiver));
    }
    let two = format!("v1,AAAA v1a,x {signature}");
    events(posted.header("svix-signature", &two).to(&receiver));
    let (_, posted, receiver) = fixture::sendgrid();
    for name in [TIME, SIGNATURE] {
        assert_forged(posted.clone().without(name).to(&receiver));
        assert_forged(posted.clone().header(name, "").to(&receiver));
    }
    assert_forged(posted.clone().header(TIME, "1767323046").to(&receiver));
    assert_forged(posted.header(SIGNATURE, "AAAA").to(&receiver));
}

/// What is signed has dots between its parts, so none of them may have one.
#[test]
fn a_dot_in_the_identifier_or_the_time_of_resend_is_forged() {
    let secret = b"0123456789abcdef01234567";
    let receiver = receiver("resend", &[&format!("whsec_{}", STANDARD.encode(secret))]);
    let body = r#"{"type": "email.sent"}"#;
    let received = |id: &str, time: &str| {
        let parts = [id.as_bytes(), b".", time.as_bytes(), b".", body.as_bytes()];
        let signature = STANDARD.encode(verify::mac(secret, &parts).unwrap());
        let signature = format!("v1,{signature}");
        let headers = [
            ("svix-id", id),
            ("svix-timestamp", time),
            ("svix-signature", signature.as_str()),
        ];
        Posted::new(&headers, body).to(&receiver)
    };
    events(received("msg_1", "1767323045"));
    assert_forged(received("msg_1.2", "1767323045"));
    assert_forged(received("msg_1", "1767323045.5"));
}

#[test]
fn the_names_of_headers_are_those_of_svix_or_of_standard_webhooks() {
    let (_, posted, receiver) = fixture::resend();
    let mut other = posted.clone();
    for (name, _) in &mut other.headers {
        *name = match *name {
            "Svix-Id" => "WEBHOOK-ID",
            "Svix-Timestamp" => "webhook-timestamp",
            _ => "Webhook-Signature",
        };
    }
    assert_eq!(other.to(&receiver), posted.to(&receiver));
}

#[test]
fn resend_is_stale_after_five_minutes_and_the_others_when_their_keys_are_forgotten() {
    for (provider, posted, receiver) in fixture::all() {
        for (seconds, is_stale) in match provider {
            "resend" => vec![(300, false), (301, true), (-300, false), (-301, true)],
            "postmark" => vec![(400 * DAY, false)],
            _ => vec![(7 * DAY, false), (7 * DAY + 1, true), (-DAY, false)],
        } {
            let received = posted.clone().later(seconds).to(&receiver);
            assert_eq!(
                received == Received::Stale,
                is_stale,
                "{provider} {seconds}"
            );
            assert!(is_stale || matches!(received, Received::Events(_)));
        }
    }
}

#[test]
fn an_event_that_is_posted_again_has_the_same_key() {
    for (provider, posted, receiver) in fixture::all() {
        let keys = |posted: &Posted, receiver: &Receiver| -> Vec<Uuid> {
            let events = events(posted.to(receiver));
            events.iter().map(|event| event.key).collect()
        };
        let first = keys(&posted, &receiver);
        assert_eq!(
            keys(&posted.clone().later(60), &receiver),
            first,
            "{provider}"
        );
    }
    let part = |transport, id, recipient| key(transport, id, recipient, Some(EventType::Bounced));
    let one = part("shop", "1", Some("ada@example.com"));
    // SHA-256 by Python's hashlib.
    assert_eq!(one.to_string(), "a83b2c83-cddc-32db-249f-be131280753e");
    for other in [
        part("shop1", "", Some("ada@example.com")),
        part("shop", "1a", Some("da@example.com")),
        part("shop", "1", None),
        key(
            "shop",
            "1",
            Some("ada@example.com"),
            Some(EventType::Delivered),
        ),
    ] {
        assert_ne!(other, one);
    }
}

#[test]
fn passwords_of_basic_authentication() {
    let (_, posted, receiver) = fixture::postmark();
    let encoded = STANDARD.encode(PASSWORD);
    for good in [format!("Basic {encoded}"), format!("basic  {encoded} ")] {
        events(posted.clone().header("AUTHORIZATION", &good).to(&receiver));
    }
    for bad in [
        String::new(),
        "Basic".to_owned(),
        encoded.clone(),
        format!("Bearer {encoded}"),
        format!("Basic {}", STANDARD.encode("mailroom:")),
        format!("Basic {}", STANDARD.encode("mailroom:hunter22")),
        format!("Basic {}", STANDARD.encode("mailroom:hunter")),
        format!("Basic {}", "A".repeat(100_000)),
        "Basic é".to_owned(),
    ] {
        assert_forged(posted.clone().header("Authorization", &bad).to(&receiver));
    }
    assert_forged(posted.without("authorization").to(&receiver));
}

#[test]
fn a_genuine_request_that_is_no_event_is_malformed_and_one_that_is_unknown_ignored() {
    let (_, _, receiver) = fixture::postmark();
    let received = |body: &str| Posted::with_password(body, PASSWORD).to(&receiver);
    for body in [
        "",
        "[]",
        "{}",
        "{\"RecordType\": \"Bounce\"",
        "\"Bounce\"",
        "null",
    ] {
        assert_malformed(received(body));
    }
    for body in [
        r#"{"RecordType": "Open", "Recipient": "ada@example.com"}"#,
        r#"{"RecordType": "Bounce", "Type": "AutoResponder"}"#,
        r#"{"RecordType": "SubscriptionChange", "SuppressSending": false}"#,
        r#"{"RecordType": "something new"}"#,
    ] {
        assert_eq!(received(body), Received::Ignored, "{body}");
    }
    let large = format!("{{\"RecordType\": \"{}\"}}", "x".repeat(4 << 20));
    assert_malformed(received(&large));
}

#[test]
fn settings_that_cannot_be_read_are_refused_without_their_value() {
    let good = text(&signatures(), "/sns/topic");
    let refused = |provider, values: &[&str], topic: Option<&str>| {
        let refused = Receiver::new("shop", provider, &secrets(values), topic);
        let refused = refused.err().unwrap();
        assert!(!refused.problem.contains("hunter2"));
        refused.key
    };
    for (provider, secret) in [
        ("resend", "hunter2"),
        ("resend", "whsec_hunter2"),
        ("resend", "whsec_aHVudGVyMg=="),
        ("sendgrid", "hunter2"),
        ("sendgrid", "aHVudGVyMg=="),
        ("mailgun", ""),
        ("postmark", "hunter2"),
        ("postmark", ":hunter2"),
        ("postmark", "hunter2:"),
        ("ses", "hunter2"),
        ("smtp", "hunter2"),
    ] {
        assert_eq!(
            refused(provider, &[secret], Some(&good)),
            "event_secret",
            "{provider}"
        );
    }
    for provider in ["resend", "sendgrid", "mailgun", "postmark"] {
        assert_eq!(refused(provider, &[], None), "event_secret");
    }
    for topic in [
        "",
        "ses-events",
        "arn:aws:sqs:us-east-1:123456789012:ses-events",
        "arn:aws:sns:evil.example/:123456789012:ses-events",
        "arn:aws:sns::123456789012:ses-events",
        "arn:aws:sns:us-east-1:123456789012:ses-events:more",
    ] {
        assert_eq!(refused("ses", &[], Some(topic)), "event_topic", "{topic}");
    }
    assert_eq!(refused("ses", &[], None), "event_topic");
    let key = text(&signatures(), "/sendgrid/secrets/0");
    let mut compressed = STANDARD.decode(&key).unwrap();
    compressed[26] = 2;
    let compressed = STANDARD.encode(compressed);
    assert_eq!(refused("sendgrid", &[&compressed], None), "event_secret");
    // As the page of SendGrid shows it, and as a PEM file.
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n{}\n-----END PUBLIC KEY-----\n",
        &key[..64],
        &key[64..]
    );
    let (_, posted, _) = fixture::sendgrid();
    events(posted.to(&receiver("sendgrid", &[&pem])));
}
