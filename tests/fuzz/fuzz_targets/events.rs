//! Fuzzes what providers post: nothing is accepted that was not signed, and an event of a genuine request keeps its
//! limits and is what SQL reads of it.
//!
//! The input is a digit for the kind, lines of headers, an empty line, and the body. Kinds 0 to 4 are the providers; 5 is
//! a change of each byte of the certificate of SNS. A request is received as it is and, since a fuzzer finds no
//! signature, once more with one. Mailgun's is in the body: it takes the place of the first brace.

#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use libfuzzer_sys::fuzz_target;
use mailroom_core::events::sns::Certificate;
use mailroom_core::events::{Event, EventType, PROVIDERS, Received, Receiver, Request, report};
use mailroom_core::{address, line};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use ring::{digest, hmac};
use serde_json::Value;

/// The time at which the requests of the vectors were signed.
const TIME: &str = "1767323045";
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
const PASSWORD: &str = "mailroom:hunter2";
const TOKEN: &str = "651869375b9df3c98fc15c4889b102119add1235c38fc92824";
const MAC_KEY: [u8; 32] = [0x5a; 32];
const SNS: &str = "https://sns.us-east-1.amazonaws.com/";
/// How the SubjectPublicKeyInfo of a key on P-256 begins.
const SPKI_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The signed requests of the vectors.
struct Vectors(Value);

struct Signer {
    random: SystemRandom,
    key: EcdsaKeyPair,
}

static VECTORS: LazyLock<Vectors> = LazyLock::new(|| {
    let all = include_str!("../../vectors/event_signatures.json");
    Vectors(serde_json::from_str(all).expect("the vectors are JSON"))
});
static CERTIFICATE: LazyLock<Certificate> = LazyLock::new(|| {
    let pem = VECTORS.text("/sns/certificate");
    Certificate::from_pem(pem.as_bytes()).expect("a certificate")
});
static SIGNER: LazyLock<Signer> = LazyLock::new(|| {
    let random = SystemRandom::new();
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
    let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("a key pair");
    Signer { random, key }
});
/// For each provider the receiver of requests as they are, which has a secret of the vectors, and that of those that are
/// signed here.
static RECEIVERS: LazyLock<Vec<[Receiver; 2]>> = LazyLock::new(|| {
    let topic = VECTORS.text("/sns/topic");
    let receiver = |provider: &str, secrets: &[String]| {
        let secrets: Vec<_> = secrets.iter().cloned().map(Into::into).collect();
        let topic = (provider == "ses").then_some(topic);
        Receiver::new("shop", provider, &secrets, topic).expect("a receiver")
    };
    let point = SIGNER.key.public_key().as_ref();
    let public = STANDARD.encode([&SPKI_HEAD, point].concat());
    let password = PASSWORD.to_owned();
    let pair = |provider: &str| {
        let theirs = || VECTORS.text(&format!("/{provider}/secrets/0")).to_owned();
        let (theirs, ours) = match provider {
            "ses" => (vec![], vec![password.clone()]),
            "postmark" => (vec![password.clone()], vec![password.clone()]),
            "sendgrid" => (vec![theirs()], vec![public.clone()]),
            "resend" => {
                let ours = format!("whsec_{}", STANDARD.encode(MAC_KEY));
                (vec![theirs()], vec![ours])
            }
            _ => (vec![theirs()], vec![STANDARD.encode(MAC_KEY)]),
        };
        [receiver(provider, &theirs), receiver(provider, &ours)]
    };
    PROVIDERS.into_iter().map(pair).collect()
});

impl Vectors {
    fn text(&self, path: &str) -> &str {
        self.0.pointer(path).and_then(Value::as_str).expect(path)
    }
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(TIME.parse().expect("a number"))
}

fn mac(key: &[u8], parts: &[&str], body: &[u8]) -> hmac::Tag {
    let mut mac = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    parts.iter().for_each(|part| mac.update(part.as_bytes()));
    mac.update(body);
    mac.sign()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The headers that make a request genuine, and its body.
fn signed(provider: &str, body: &[u8]) -> (Vec<(&'static str, String)>, Vec<u8>) {
    let headers = match provider {
        "resend" => {
            let mac = mac(&MAC_KEY, &["msg_1", ".", TIME, "."], body);
            let signature = format!("v1,{}", STANDARD.encode(mac));
            vec![
                ("svix-id", "msg_1".to_owned()),
                ("svix-timestamp", TIME.to_owned()),
                ("svix-signature", signature),
            ]
        }
        "sendgrid" => {
            let text = [TIME.as_bytes(), body].concat();
            let signature = SIGNER.key.sign(&SIGNER.random, &text).expect("it signs");
            vec![
                ("x-twilio-email-event-webhook-timestamp", TIME.to_owned()),
                (
                    "x-twilio-email-event-webhook-signature",
                    STANDARD.encode(signature),
                ),
            ]
        }
        "mailgun" => {
            let key = STANDARD.encode(MAC_KEY);
            let mac = hexadecimal(mac(key.as_bytes(), &[TIME, TOKEN], b"").as_ref());
            let signature = format!(
                r#"{{"signature":{{"timestamp":"{TIME}","token":"{TOKEN}","signature":"{mac}"}},"#
            );
            let rest = body.strip_prefix(b"{").unwrap_or(body);
            return (vec![], [signature.as_bytes(), rest].concat());
        }
        _ => vec![(
            "authorization",
            format!("Basic {}", STANDARD.encode(PASSWORD)),
        )],
    };
    (headers, body.to_vec())
}

/// What holds for every event of a genuine request.
fn check(event: &Event) {
    let is_line = |text: &Option<String>, most: usize| {
        let fits = |text: &String| {
            let length = text.chars().count();
            (1..=most).contains(&length) && line::first_control(text).is_none()
        };
        text.as_ref().is_none_or(fits)
    };
    assert!(is_line(&event.detail, 1000) && is_line(&event.status, 9));
    assert!(is_line(&event.recipient, 254) && is_line(&event.provider_id, 255));
    let provider_id = event.provider_id.as_deref().unwrap_or_default();
    assert!(provider_id.len() <= 255);
    if let Some(recipient) = &event.recipient {
        assert_eq!(address::key(recipient).as_deref(), Ok(recipient.as_str()));
    }
    assert!(event.outbox_id.is_none_or(|id| id > 0));
    assert!((UNIX_EPOCH..=now()).contains(&event.occurred_at));
    let concerns_address = matches!(event.event_type, EventType::Bounced | EventType::Rejected);
    let status = event.status.as_deref().unwrap_or_default();
    assert!(
        !event.is_permanent
            || concerns_address && !status.starts_with("4.") && !status.starts_with("5.7.")
    );
}

fn judge(received: &Received) {
    match received {
        Received::Events(events) => {
            assert!((1..=10_000).contains(&events.len()));
            events.iter().for_each(check);
            for some in events.chunks(report::REPORT_MAX) {
                let some: Vec<Value> = some.iter().map(Event::to_json).collect();
                let written = Value::from(some.clone()).to_string();
                let read = report::read("shop", &written, now()).expect("SQL reads it");
                assert_eq!(read.len(), some.len());
                for (read, mut written) in read.iter().zip(some) {
                    assert!(read.is_proven);
                    let mut again = read.event.to_json();
                    // What is cut off after it was masked may look like a code.
                    again["detail"].take();
                    written["detail"].take();
                    assert_eq!(again, written);
                }
            }
        }
        Received::Confirm { url } => {
            assert!(url.starts_with(&format!("{SNS}?Action=ConfirmSubscription&")));
        }
        _ => {}
    }
}

/// Whether another program signed this body, or this token.
fn is_genuine(provider: &str, body: &[u8]) -> bool {
    let contains = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
    match provider {
        "resend" | "sendgrid" => VECTORS.text(&format!("/{provider}/body")).as_bytes() == body,
        // The token may be written with escapes.
        "mailgun" => contains(TOKEN) || contains("\\u"),
        "postmark" => true,
        _ => false,
    }
}

fn receive(provider: usize, headers: &[(&str, &str)], body: &[u8]) {
    let ([theirs, ours], provider) = (&RECEIVERS[provider], PROVIDERS[provider]);
    let request = |headers, body| Request {
        headers,
        body,
        now: now(),
        retention: RETENTION,
    };
    let as_it_is = request(headers, body);
    let received = theirs.receive(&as_it_is);
    judge(&received);
    let is_refused = matches!(received, Received::Forged(_) | Received::Malformed(_));
    assert!(is_refused || is_genuine(provider, body), "{received:?}");
    if theirs.is_sns() {
        if let Ok(url) = theirs.certificate_url(&as_it_is) {
            assert!(url.starts_with(&format!("{SNS}SimpleNotificationService-")));
        }
        judge(&theirs.receive_signed(&as_it_is, &CERTIFICATE));
    }
    let (added, body) = signed(provider, body);
    let added = added.iter().map(|(name, value)| (*name, value.as_str()));
    // Of several headers of a name the first counts.
    let all: Vec<(&str, &str)> = added.chain(headers.iter().copied()).collect();
    let received = ours.receive(&request(&all, &body));
    judge(&received);
    assert!(!matches!(received, Received::Forged(_)) || ours.is_sns());
}

/// The certificate with bytes changed: it is none, or none that signed the message, or it is the same key.
fn change_certificate(changes: &[u8]) {
    let pem = VECTORS.text("/sns/certificate");
    let lines: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let mut der = STANDARD.decode(lines).expect("base64");
    let genuine = digest::digest(&digest::SHA256, &der);
    der.iter_mut()
        .zip(changes)
        .for_each(|(place, change)| *place ^= change);
    let pem = format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        STANDARD.encode(&der)
    );
    let _ = Certificate::from_pem(changes);
    let Some(certificate) = Certificate::from_pem(pem.as_bytes()) else {
        let changed = digest::digest(&digest::SHA256, &der);
        assert_ne!(changed.as_ref(), genuine.as_ref());
        return;
    };
    let request = Request {
        headers: &[],
        body: VECTORS.text("/sns/notifications/0").as_bytes(),
        now: now(),
        retention: RETENTION,
    };
    judge(&RECEIVERS[0][0].receive_signed(&request, &certificate));
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, rest)) = data.split_first() else {
        return;
    };
    let kind = usize::from(kind % 6);
    if kind == PROVIDERS.len() {
        change_certificate(rest);
        return;
    }
    let end = rest.windows(2).position(|two| two == b"\n\n").unwrap_or(0);
    let headers = String::from_utf8_lossy(&rest[..end]);
    let headers: Vec<(&str, &str)> = headers
        .lines()
        .filter_map(|line| line.split_once(':'))
        .collect();
    let body = rest.get(end + 2..).unwrap_or_default();
    receive(kind, &headers, body);
});
