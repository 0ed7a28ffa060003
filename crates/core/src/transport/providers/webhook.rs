//! A server of the application, by Standard Webhooks 1.0. Pure.
//!
//! A mail is one event, `{"type": "mail.send", "timestamp": …, "data": {…}}`, signed with each `secret` of the
//! transport: two during a rotation, one before and after it. All of a request except `webhook-timestamp` and the
//! signature is the same for all attempts; a receiver recognizes a duplicate by its `webhook-id`.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use hyper::header::HeaderName;
use serde::Serialize;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

use super::endpoint::Endpoint;
use super::mac::MacKey;
use super::mailbox;
use super::{Message, MessageOutcome, Provider, Request, Response, bodies, classify, json};
use crate::transport::capabilities::Capabilities;
use crate::transport::credentials::Credentials;
use crate::transport::dates;
use crate::transport::invalid::Invalid;
use crate::transport::network_policy::Exposed;

const PREFIX: &str = "whsec_";
/// With the value `true`, a response of 422 refuses the mail permanently.
const PERMANENT: &str = "mailroom-permanent";
/// Allowed bytes of a secret, by the specification.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The body of a request.
#[derive(Serialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    data: Mail<'a>,
}

/// The contents of the event.
#[derive(Serialize)]
struct Mail<'a> {
    id: i64,
    message_id: &'a str,
    kind: &'a str,
    account_id: Option<i64>,
    expires_at: Option<String>,
    from: Option<&'a str>,
    recipients: &'a [String],
    cc: &'a [String],
    bcc: &'a [String],
    reply_to: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unsubscribe_url: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    original_recipients: &'a [String],
    subject: &'a str,
    text: Option<Cow<'a, str>>,
    html: Option<&'a str>,
    variables: &'a RawValue,
}

/// The provider; see the module.
pub struct Webhook {
    uri: Uri,
    /// The sender that the transport names for the receiver, if it names one.
    from: Option<String>,
    secrets: Vec<MacKey>,
}

impl Webhook {
    /// # Errors
    /// If the endpoint or the secret is missing, or a secret is invalid.
    pub fn new(endpoint: &str, from: &str, credentials: &Credentials) -> Result<Self, Invalid> {
        let secrets = credentials
            .all("secret")
            .map(key)
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| Invalid::new("secret", "is not whsec_ and 24 to 64 bytes in base64"))?;
        if secrets.is_empty() {
            return Err(Invalid::missing("secret"));
        }
        Ok(Self {
            uri: Endpoint::new(endpoint, "")?.uri("")?,
            from: (!from.is_empty())
                .then(|| mailbox::sender(from).map(|sender| sender.text()))
                .transpose()?,
            secrets,
        })
    }

    /// The signatures: `v1,…` for each secret.
    fn signatures(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let parts = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body];
        let sign = |secret: &MacKey| format!("v1,{}", STANDARD.encode(secret.sign(&parts)));
        let signatures: Vec<String> = self.secrets.iter().map(sign).collect();
        signatures.join(" ")
    }
}

fn time(seconds: i64) -> String {
    dates::rfc3339(u64::try_from(seconds).unwrap_or(0))
}

fn key(secret: &str) -> Option<MacKey> {
    let encoded = secret.strip_prefix(PREFIX)?;
    let mut bytes = Zeroizing::new([0_u8; *SECRET_BYTES.end()]);
    // Longer secrets do not fit, and are refused for it.
    let length = STANDARD.decode_slice(encoded, &mut *bytes).ok()?;
    SECRET_BYTES
        .contains(&length)
        .then(|| MacKey::new(&bytes[..length]))
}

impl Capabilities for Webhook {
    fn idempotency_window(&self) -> Option<Duration> {
        Some(Duration::MAX)
    }
}

impl Provider for Webhook {
    /// The secret signs, and is not sent.
    fn exposed(&self) -> Exposed {
        Exposed::Mail
    }

    fn request(&self, messages: &[&Message], now: SystemTime) -> Result<Request, String> {
        let [message] = messages else {
            return Err("an event tells of one mail".to_owned());
        };
        let headers = message.headers.as_deref().map(serde_json::from_str);
        let headers = headers
            .transpose()
            .map_err(|_| "headers is no JSON".to_owned())?;
        let body = Event {
            kind: "mail.send",
            timestamp: time(message.created_at),
            data: Mail {
                id: message.id,
                message_id: &message.message_id,
                kind: &message.kind,
                account_id: message.account_id,
                expires_at: message.expires_at.map(time),
                from: message.from_address.as_deref().or(self.from.as_deref()),
                recipients: &message.recipients,
                cc: &message.cc,
                bcc: &message.bcc,
                reply_to: &message.reply_to,
                headers,
                unsubscribe_url: message.unsubscribe_url.as_deref(),
                original_recipients: &message.original_recipients,
                subject: &message.subject,
                text: bodies::text(message),
                html: message.body_html.as_deref(),
                variables: &message.data,
            },
        };
        let mut request = json::request(self.uri.clone(), &body)?;
        let timestamp = dates::unix(now).to_string();
        let signatures = self.signatures(&message.message_id, &timestamp, &request.body);
        for (name, value) in [
            ("webhook-id", message.message_id.as_str()),
            ("webhook-timestamp", &timestamp),
            ("webhook-signature", &signatures),
        ] {
            let name = HeaderName::from_static(name);
            let value = json::header_value(value, &name)?;
            request.headers.insert(name, value);
        }
        Ok(request)
    }

    fn outcomes(&self, messages: usize, response: &Response<'_>) -> Vec<MessageOutcome> {
        let outcome = match response.status {
            200..300 => MessageOutcome::Sent { provider_id: None },
            410 => MessageOutcome::AccountRefused {
                reason: format!(
                    "{}: the receiver wants nothing any more",
                    classify::reason(response.status, None)
                ),
            },
            422 if classify::text(response.headers, PERMANENT) == Some("true") => {
                MessageOutcome::Refused {
                    reason: classify::reason(response.status, None),
                }
            }
            429 | 502 | 504 => classify::throttled(response, None),
            // The receiver belongs to the application, and may be in the middle of a deployment.
            _ => classify::retry(response, None),
        };
        classify::for_all(messages, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    const OLD: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    const NEW: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

    fn webhook(credentials: &str) -> Result<Webhook, Invalid> {
        Webhook::new(
            "https://a.example/hook",
            "",
            &fixture::credentials(credentials),
        )
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn signatures_are_those_of_the_specification() {
        for row in fixture::vectors("standard_webhooks") {
            let text = |name: &str| row[name].as_str().unwrap();
            let webhook = webhook(&format!("secret = {}", text("secret"))).unwrap();
            let timestamp = row["timestamp"].to_string();
            assert_eq!(
                webhook.signatures(text("id"), &timestamp, text("body").as_bytes()),
                text("signature")
            );
        }
    }

    #[test]
    fn an_event_tells_everything_and_is_the_same_at_each_attempt() {
        let webhook = webhook(&format!("secret = {OLD}")).unwrap();
        let mut message = fixture::message();
        let first = webhook.request(&[&message], at(1_767_323_045)).unwrap();
        message.attempts = 2;
        let second = webhook.request(&[&message], at(1_767_323_105)).unwrap();
        assert_eq!(first.uri, "https://a.example/hook");
        assert_eq!(first.body, second.body);
        assert_eq!(first.headers["webhook-id"], second.headers["webhook-id"]);
        assert_eq!(first.headers["webhook-timestamp"], "1767323045");
        assert_eq!(second.headers["webhook-timestamp"], "1767323105");
        assert_ne!(
            first.headers["webhook-signature"],
            second.headers["webhook-signature"]
        );
        let body = json::parse(&first.body);
        assert_eq!(body["type"], "mail.send");
        assert_eq!(body["timestamp"], "2026-01-02T03:04:05Z");
        let data = &body["data"];
        assert_eq!(data["id"], 7);
        assert_eq!(data["message_id"], message.message_id.as_str());
        assert_eq!(data["account_id"], 3);
        assert_eq!(data["expires_at"], "2026-01-02T03:19:05Z");
        assert_eq!(data["from"], serde_json::Value::Null);
        assert_eq!(data["recipients"][0], "ada@example.com");
        assert_eq!(data["reply_to"][1], "desk@example.net");
        assert_eq!(data["text"], message.body_text.unwrap());
        assert_eq!(data["variables"]["name"], "Ada");
    }

    #[test]
    fn an_event_names_the_sender_of_the_transport() {
        let from = "Bücher <shop@example.com>";
        let secret = fixture::credentials(&format!("secret = {OLD}"));
        let webhook = Webhook::new("https://a.example/hook", from, &secret).unwrap();
        let message = Message {
            account_id: None,
            expires_at: None,
            ..fixture::message()
        };
        let request = webhook.request(&[&message], at(0)).unwrap();
        let body = json::parse(&request.body);
        let data = &body["data"];
        assert_eq!(data["from"], "\"Bücher\" <shop@example.com>");
        assert_eq!(data["account_id"], serde_json::Value::Null);
        assert_eq!(data["expires_at"], serde_json::Value::Null);
        let wrong = Webhook::new("https://a.example/hook", "shop", &secret);
        assert_eq!(wrong.err(), Some(Invalid::new("from", "has no @")));
    }

    #[test]
    fn two_secrets_make_two_signatures() {
        let both = webhook(&format!("secret = {NEW}\nsecret = {OLD}")).unwrap();
        let new = webhook(&format!("secret = {NEW}")).unwrap();
        let old = webhook(&format!("secret = {OLD}")).unwrap();
        let sign = |webhook: &Webhook| webhook.signatures("id", "1", b"body");
        assert_eq!(sign(&both), format!("{} {}", sign(&new), sign(&old)));
    }

    #[test]
    fn secrets_that_are_none_are_refused_without_being_shown() {
        let bytes = |count| STANDARD.encode(vec![7; count]);
        for good in [24, 64] {
            assert!(webhook(&format!("secret = whsec_{}", bytes(good))).is_ok());
        }
        for bad in [
            bytes(32),
            format!("whsec_{}", bytes(23)),
            format!("whsec_{}", bytes(65)),
            format!("whsec_{}=", bytes(24)),
            "whsec_".to_owned(),
        ] {
            assert_eq!(
                webhook(&format!("secret = {bad}"))
                    .err()
                    .map(String::from)
                    .unwrap_or_default(),
                "secret is not whsec_ and 24 to 64 bytes in base64"
            );
        }
        assert_eq!(webhook("").err(), Some(Invalid::missing("secret")));
    }

    #[test]
    fn what_answers_mean() {
        let webhook = webhook(&format!("secret = {OLD}")).unwrap();
        let outcome = |status| fixture::outcome(&webhook, status, "");
        for status in [200, 201, 202, 204] {
            assert_eq!(outcome(status), MessageOutcome::Sent { provider_id: None });
        }
        assert!(matches!(
            outcome(410),
            MessageOutcome::AccountRefused { .. }
        ));
        assert!(matches!(outcome(302), MessageOutcome::Retry { .. }));
        assert!(matches!(outcome(500), MessageOutcome::Retry { .. }));
        for status in [400, 401, 403, 404, 413, 422] {
            assert!(
                matches!(outcome(status), MessageOutcome::Retry { .. }),
                "{status}"
            );
        }
        for status in [429, 502, 504] {
            assert!(matches!(outcome(status), MessageOutcome::Throttled { .. }));
        }
        let mut headers = hyper::HeaderMap::new();
        headers.insert(PERMANENT, "true".parse().unwrap());
        let response = |status| Response {
            status,
            headers: &headers,
            body: b"",
            is_broken_off: false,
            now: UNIX_EPOCH,
        };
        assert_eq!(
            webhook.outcomes(1, &response(422)),
            [MessageOutcome::Refused {
                reason: "http 422".to_owned()
            }]
        );
        assert!(matches!(
            webhook.outcomes(1, &response(400))[..],
            [MessageOutcome::Retry { .. }]
        ));
    }

    proptest! {
        #[test]
        fn no_body_is_ever_quoted(body in ".{1,200}", status in 200_u16..600) {
            let webhook = webhook(&format!("secret = {OLD}")).unwrap();
            prop_assert_eq!(
                fixture::outcome(&webhook, status, &body),
                fixture::outcome(&webhook, status, "")
            );
        }

        #[test]
        fn a_message_id_with_a_line_break_is_refused(id in ".{0,5}[\r\n\0].{0,5}") {
            let webhook = webhook(&format!("secret = {OLD}")).unwrap();
            let message = Message { message_id: id, ..fixture::message() };
            prop_assert!(webhook.request(&[&message], at(0)).is_err());
        }
    }
}
