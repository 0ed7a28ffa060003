//! Requests of strangers: they cost neither a panic nor more than linear time and memory.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::Value;

use super::fixture::{self, PASSWORD, Posted, receiver, signatures, text};
use crate::events::sns::Certificate;
use crate::events::{BODY_MAX, Event, Received, Receiver};

const PROVIDERS: [&str; 5] = ["ses", "sendgrid", "postmark", "resend", "mailgun"];
/// Bytes that have a meaning in JSON, in times, and in what is signed.
const SPECIAL: &[u8] = b"\"\\{}[]:,.-+eu0 9TZ\n\0\xff";

/// The bodies of the captured requests, each with its provider.
fn bodies() -> Vec<(&'static str, String)> {
    let rows: Vec<Value> =
        serde_json::from_str(include_str!("../../../../../tests/vectors/events.json")).unwrap();
    let provider = |row: &Value| {
        let path = row["path"].as_str().unwrap().replace("amazon_ses", "ses");
        PROVIDERS
            .into_iter()
            .find(|provider| path.contains(provider))
            .unwrap()
    };
    let mut bodies: Vec<_> = rows
        .iter()
        .map(|row| (provider(row), row["body"].as_str().unwrap().to_owned()))
        .collect();
    for (provider, posted, _) in fixture::all() {
        bodies.push((provider, String::from_utf8(posted.body).unwrap()));
    }
    for index in 0..4 {
        bodies.push((
            "ses",
            text(&signatures(), &format!("/sns/notifications/{index}")),
        ));
    }
    bodies
}

/// What holds for the event of any request.
fn check(event: &Event) {
    let is_line = |text: &Option<String>, most: usize| {
        text.as_ref().is_none_or(|text| {
            !text.is_empty() && text.chars().count() <= most && !text.contains(['\0', '\n'])
        })
    };
    assert!(is_line(&event.detail, 1000) && is_line(&event.provider_id, 255));
    assert!(is_line(&event.status, 9) && is_line(&event.recipient, 254));
    assert!(event.occurred_at <= fixture::now());
    assert!(event.outbox_id.is_none_or(|id| id > 0));
}

/// The events of a body as if it were genuine, and the requests with it as they come.
fn receive(provider: &str, body: &[u8], receivers: &[(&str, Receiver)]) {
    let text = String::from_utf8_lossy(body);
    for event in fixture::read(provider, &text).iter().flatten() {
        check(event);
    }
    let mut posted = Posted::with_password("", PASSWORD)
        .header("svix-id", "msg_1")
        .header("svix-timestamp", "1767323045")
        .header("svix-signature", "v1,AAAA")
        .header(fixture::TIME, "1767323045")
        .header(fixture::SIGNATURE, "AAAA");
    posted.body = body.to_vec();
    for (name, receiver) in receivers {
        if let Received::Events(events) = posted.to(receiver) {
            // The signatures of the others cover the body.
            assert!(matches!(*name, "ses" | "postmark" | "mailgun"), "{name}");
            events.iter().for_each(check);
        }
        let _ = posted.with(|request| receiver.certificate_url(request));
    }
}

fn receivers() -> Vec<(&'static str, Receiver)> {
    let mut all: Vec<_> = fixture::all()
        .into_iter()
        .map(|(provider, _, receiver)| (provider, receiver))
        .collect();
    all.push(("ses", receiver("ses", &[PASSWORD])));
    all
}

#[test]
fn mutated_bodies_of_providers_never_panic() {
    let (bodies, receivers) = (bodies(), receivers());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(4000));
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..5_u8, any::<u8>()), 1..6);
    let input = (any::<prop::sample::Index>(), edits);
    let result = runner.run(&input, |(which, edits)| {
        let (provider, body) = which.get(&bodies);
        let mut body = body.clone().into_bytes();
        for (at, edit, byte) in edits {
            if body.is_empty() {
                break;
            }
            let at = at.index(body.len());
            let special = SPECIAL[usize::from(byte) % SPECIAL.len()];
            match edit {
                0 => body[at] = byte,
                1 => body[at] = special,
                2 => body.insert(at, special),
                3 => drop(body.drain(at..(at + usize::from(byte)).min(body.len()))),
                _ => body.truncate(at),
            }
        }
        receive(provider, &body, &receivers);
        Ok(())
    });
    result.unwrap();
}

/// Replaces one value of a document, counted from its beginning, by another of any type.
fn replace(value: &mut Value, left: &mut usize, with: &Value) {
    if *left == 0 {
        *value = with.clone();
    }
    *left = left.wrapping_sub(1);
    match value {
        Value::Array(all) => all.iter_mut().for_each(|value| replace(value, left, with)),
        Value::Object(all) => all
            .values_mut()
            .for_each(|value| replace(value, left, with)),
        _ => {}
    }
}

#[test]
fn a_value_of_another_type_never_panics() {
    let receivers = receivers();
    let others = [
        "null",
        "true",
        "-1",
        "1e308",
        "18446744073709551615",
        "\"\"",
        "\"\\u0000\"",
        "\"9\"",
        "[]",
        "[[\"x\"]]",
        "{}",
        "{\"name\": {}}",
    ];
    let mut count = 0;
    for (provider, body) in bodies() {
        let Ok(document) = serde_json::from_str::<Value>(&body) else {
            continue;
        };
        // Of a message of SNS the text matters.
        let inner = document["Message"]
            .as_str()
            .and_then(|text| serde_json::from_str(text).ok());
        let is_inner = inner.is_some();
        let original: Value = inner.unwrap_or_else(|| document.clone());
        for index in (0..120).cycle().take(360) {
            let other = serde_json::from_str(others[(index + count) % others.len()]).unwrap();
            let (mut changed, mut left) = (original.clone(), index);
            replace(&mut changed, &mut left, &other);
            if changed == original {
                continue;
            }
            let mut document = if is_inner {
                document.clone()
            } else {
                changed.clone()
            };
            if is_inner {
                document["Message"] = Value::String(changed.to_string());
            }
            receive(provider, document.to_string().as_bytes(), &receivers);
            count += 1;
        }
    }
    assert!(count > 3000, "{count}");
}

#[test]
fn mutated_certificates_never_panic() {
    let pem = text(&signatures(), "/sns/certificate");
    let posted = Posted::new(&[], &text(&signatures(), "/sns/notifications/1"));
    let receiver = receiver("ses", &[]);
    let lines: Vec<usize> = (28..pem.len() - 28).collect();
    for at in lines {
        for byte in [b'A', b'\n'] {
            let mut changed = pem.clone().into_bytes();
            changed[at] = byte;
            if let Some(certificate) = Certificate::from_pem(&changed) {
                let received =
                    posted.with(|request| receiver.receive_signed(request, &certificate));
                assert!(matches!(
                    received,
                    Received::Events(_) | Received::Forged(_)
                ));
            }
        }
    }
}

/// How long a body takes that is as large as any may be.
fn time_of(provider: &str, body: &str) -> Duration {
    assert!(body.len() > BODY_MAX - 4096, "{}", body.len());
    let begin = Instant::now();
    if let Ok(events) = fixture::read(provider, body) {
        events.iter().for_each(check);
    }
    begin.elapsed()
}

#[test]
fn the_largest_bodies_take_linear_time() {
    let fill = |head: &str, part: &str, tail: &str| {
        let count = (BODY_MAX - head.len() - tail.len()) / part.len();
        format!("{head}{}{tail}", part.repeat(count))
    };
    let sns = |head: &str, part: &str, tail: &str| {
        let [head, part, tail] = [head, part, tail].map(|text| text.replace('"', "\\\""));
        let begin = r#"{"Type":"Notification","MessageId":"1","Message":""#;
        fill(&format!("{begin}{head}"), &part, &format!("{tail}\"}}"))
    };
    let recipients = r#"{"eventType":"Bounce","bounce":{"bouncedRecipients":["#;
    for (provider, body) in [
        ("ses", fill("", "[", "")),
        ("ses", sns("", "[", "")),
        ("ses", sns(recipients, "{},", "{}]}}")),
        (
            "ses",
            sns(recipients, r#"{"emailAddress":"a@b.example"},"#, "{}]}}"),
        ),
        (
            "ses",
            sns(
                r#"{"eventType":"Send","mail":{"headers":["#,
                r#"{"name":"x"},"#,
                "{}]}}",
            ),
        ),
        (
            "ses",
            sns(
                r#"{"eventType":"Send","mail":{"messageId":""#,
                "x",
                r#"","destination":["a","b"]}}"#,
            ),
        ),
        ("sendgrid", fill("[", "[],", "[]]")),
        (
            "sendgrid",
            fill("[", r#"{"event":"bounce","reason":"550 5.1.1 x"},"#, "{}]"),
        ),
        ("sendgrid", fill("[", "[", "")),
        (
            "sendgrid",
            fill(r#"[{"event":"bounce","reason":""#, " ", r#""}]"#),
        ),
        (
            "postmark",
            fill(
                r#"{"RecordType":"Delivery","Metadata":{"#,
                r#""a":1,"#,
                r#""b":1}}"#,
            ),
        ),
        (
            "postmark",
            fill(r#"{"RecordType":"Delivery","Recipient":""#, "(", r#""}"#),
        ),
        (
            "postmark",
            fill(r#"{"RecordType":"Delivery","Recipient":""#, "\\\"", r#""}"#),
        ),
        (
            "postmark",
            fill(r#"{"RecordType":"Delivery","DeliveredAt":""#, "-", r#""}"#),
        ),
        (
            "postmark",
            fill(r#"{"RecordType":"Delivery","Details":""#, "smtp;", r#""}"#),
        ),
        (
            "resend",
            fill(r#"{"type":"email.sent","data":{"tags":["#, "{},", "{}]}}"),
        ),
        (
            "resend",
            fill(r#"{"type":"email.sent","data":"#, r#"{"data":"#, ""),
        ),
        ("mailgun", fill(r#"{"signature":{"token":""#, "a", r#""}}"#)),
        ("mailgun", fill(r#"{"signature":"#, "[", "")),
    ] {
        // A debug build reads about 20 MiB/s; quadratic time would be hours.
        let taken = time_of(provider, &body);
        assert!(
            taken < Duration::from_secs(5),
            "{provider} {taken:?} {}",
            &body[..60]
        );
    }
}

proptest! {
    #[test]
    fn any_header_is_genuine_or_not(
        time in "[0-9. -]{0,14}",
        signature in "(v1,)?[A-Za-z0-9+/= ]{0,60}",
        password in "(Basic )?[A-Za-z0-9+/=]{0,30}",
    ) {
        for (provider, posted, receiver) in fixture::all() {
            let posted = posted
                .header("svix-timestamp", &time)
                .header("svix-signature", &signature)
                .header(fixture::TIME, &time)
                .header(fixture::SIGNATURE, &signature)
                .header("authorization", &password);
            let is_forged = matches!(posted.to(&receiver), Received::Forged(_));
            // The signature of Mailgun is in its body.
            prop_assert_eq!(is_forged, provider != "mailgun");
        }
    }
}
