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
use crate::attachment::Attachment;
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attachments: Vec<File<'a>>,
    variables: &'a RawValue,
}

/// A file of the mail.
#[derive(Serialize)]
struct File<'a> {
    filename: &'a str,
    content_type: &'a str,
    content_id: Option<&'a str>,
    /// In base64.
    content: String,
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

fn file(file: &Attachment) -> File<'_> {
    File {
        filename: &file.filename,
        content_type: &file.content_type,
        content_id: file.content_id.as_deref(),
        content: file.base64(),
    }
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
                attachments: message.attachments.iter().map(file).collect(),
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
mod tests;
