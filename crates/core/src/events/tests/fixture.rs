//! Requests of providers, signed by other programs: `tests/vectors/event_signatures.json`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::events::{
    Event, Received, Receiver, Request, mailgun, postmark, resend, sendgrid, ses, sns,
};

/// A request that a test changes before it is received.
#[derive(Clone)]
pub struct Posted {
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    pub now: SystemTime,
}

/// How long keys are remembered.
pub const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
/// The password of a user of basic authentication.
pub const PASSWORD: &str = "mailroom:hunter2";

pub fn signatures() -> Value {
    let all = include_str!("../../../../../tests/vectors/event_signatures.json");
    serde_json::from_str(all).unwrap()
}

/// The time at which they were signed.
pub fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_767_323_045)
}

/// The value at a path, as text.
pub fn text(value: &Value, path: &str) -> String {
    value.pointer(path).unwrap().as_str().unwrap().to_owned()
}

pub fn secrets(values: &[&str]) -> Vec<Zeroizing<String>> {
    values
        .iter()
        .map(|value| Zeroizing::new((*value).to_owned()))
        .collect()
}

pub fn receiver(provider: &str, values: &[&str]) -> Receiver {
    let topic = text(&signatures(), "/sns/topic");
    let topic = (provider == "ses").then_some(topic.as_str());
    Receiver::new("shop", provider, &secrets(values), topic).unwrap()
}

impl Posted {
    pub fn new(headers: &[(&'static str, &str)], body: &str) -> Self {
        let header = |(name, value): &(&'static str, &str)| (*name, (*value).to_owned());
        Self {
            headers: headers.iter().map(header).collect(),
            body: body.as_bytes().to_vec(),
            now: now(),
        }
    }

    /// With basic authentication.
    pub fn with_password(body: &str, password: &str) -> Self {
        let credentials = format!("Basic {}", STANDARD.encode(password));
        Self::new(&[("authorization", &credentials)], body)
    }

    /// The same with another value of a header.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers
            .retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self.headers.push((name, value.to_owned()));
        self
    }

    /// The same without a header.
    pub fn without(mut self, name: &str) -> Self {
        self.headers
            .retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self
    }

    /// The same with a replacement in the body, which must contain what is replaced.
    pub fn body(mut self, from: &str, to: &str) -> Self {
        let body = String::from_utf8(self.body).unwrap();
        assert!(body.contains(from), "{from}");
        self.body = body.replacen(from, to, 1).into_bytes();
        self
    }

    /// The same so many seconds later, or earlier if it is negative.
    pub fn later(mut self, seconds: i64) -> Self {
        let by = Duration::from_secs(seconds.unsigned_abs());
        self.now = if seconds < 0 {
            self.now - by
        } else {
            self.now + by
        };
        self
    }

    /// Calls with the request.
    pub fn with<T>(&self, call: impl FnOnce(&Request<'_>) -> T) -> T {
        let headers: Vec<(&str, &str)> = self
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        call(&Request {
            headers: &headers,
            body: &self.body,
            now: self.now,
            retention: RETENTION,
        })
    }

    pub fn to(&self, receiver: &Receiver) -> Received {
        self.with(|request| receiver.receive(request))
    }
}

/// The events of a genuine request.
#[track_caller]
pub fn events(received: Received) -> Vec<Event> {
    match received {
        Received::Events(events) => events,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub fn assert_forged(received: Received) {
    assert!(matches!(received, Received::Forged(_)), "{received:?}");
}

#[track_caller]
pub fn assert_malformed(received: Received) {
    assert!(matches!(received, Received::Malformed(_)), "{received:?}");
}

/// A request of each provider that is not SES, and its receiver: the first secret of two signed it.
pub fn all() -> Vec<(&'static str, Posted, Receiver)> {
    vec![resend(), sendgrid(), mailgun(), postmark()]
}

fn both(provider: &str, all: &Value) -> Receiver {
    let secret = |index: usize| text(all, &format!("/{provider}/secrets/{index}"));
    receiver(provider, &[&secret(0), &secret(1)])
}

pub fn resend() -> (&'static str, Posted, Receiver) {
    let all = signatures();
    let posted = Posted::new(
        &[
            ("Svix-Id", &text(&all, "/resend/id")),
            ("Svix-Timestamp", &text(&all, "/resend/timestamp")),
            ("Svix-Signature", &text(&all, "/resend/signatures/0")),
        ],
        &text(&all, "/resend/body"),
    );
    ("resend", posted, both("resend", &all))
}

pub fn sendgrid() -> (&'static str, Posted, Receiver) {
    let all = signatures();
    let posted = Posted::new(
        &[
            (TIME, &text(&all, "/sendgrid/timestamp")),
            (SIGNATURE, &text(&all, "/sendgrid/signatures/0")),
        ],
        &text(&all, "/sendgrid/body"),
    );
    ("sendgrid", posted, both("sendgrid", &all))
}

pub const TIME: &str = "x-twilio-email-event-webhook-timestamp";
pub const SIGNATURE: &str = "x-twilio-email-event-webhook-signature";

pub fn mailgun() -> (&'static str, Posted, Receiver) {
    let all = signatures();
    let posted = Posted::new(&[], &text(&all, "/mailgun/bodies/0"));
    ("mailgun", posted, both("mailgun", &all))
}

pub fn postmark() -> (&'static str, Posted, Receiver) {
    let body = r#"{"RecordType":"Delivery","MessageID":"883953f4-6105-42a2-a16a-77a8eac79483","Recipient":"ada@example.com",
        "DeliveredAt":"2026-01-02T03:04:00Z","Details":"250 2.0.0 OK",
        "Metadata":{"message_id":"0f8fad5b-d9cb-469f-a165-70867728950e","outbox_id":"7"}}"#;
    let posted = Posted::with_password(body, PASSWORD);
    (
        "postmark",
        posted,
        receiver("postmark", &[PASSWORD, "mailroom:second"]),
    )
}

/// The events of a body without verification; only the signature of Mailgun, which is in the body, is verified.
pub fn read(provider: &str, body: &str) -> Result<Vec<Event>, Received> {
    let reported = match provider {
        "ses" => {
            let message = sns::Message::parse(body)?;
            ses::read(message.text(), message.id(), message.sent_at())
        }
        "sendgrid" => sendgrid::read(body)?,
        "postmark" => postmark::read(body)?,
        "resend" => resend::read(body, "msg_2W2D3qXLS5fOaPja1GDg7rF2CwB")?,
        "mailgun" => {
            // The keys that django-anymail's tests sign with.
            let keys = ["TEST_WEBHOOK_SIGNING_KEY", "TEST_API_KEY"];
            let keys = keys.map(|key| mailgun::SigningKey::new(key).unwrap());
            let request = Request {
                headers: &[],
                body: body.as_bytes(),
                now: now(),
                retention: Duration::MAX,
            };
            mailgun::read(&request, body, &keys)?
        }
        other => panic!("{other}"),
    };
    let events = reported.into_iter();
    Ok(events
        .map(|reported| reported.into_event("shop", now()))
        .collect())
}
