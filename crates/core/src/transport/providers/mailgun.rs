//! Mailgun. Pure.
//!
//! One mail a request, as a form: a request with several mails needs common contents with variables, and has one result
//! for all. Tracking is off, because it rewrites links.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use hyper::http::HeaderValue;
use zeroize::Zeroizing;

use super::endpoint::Endpoint;
use super::mailbox::{self, Mailbox, Ready};
use super::{Message, MessageOutcome, Provider, Request, Response, classify, headers, json, tag};
use crate::transport::capabilities::Capabilities;
use crate::transport::credentials::Credentials;
use crate::transport::invalid::Invalid;

/// Maximum recipients of one mail.
const MOST: usize = 1000;

/// The provider; see the module.
pub struct Mailgun {
    endpoint: Endpoint,
    path: String,
    from: Mailbox,
    authorization: Zeroizing<String>,
}

impl Mailgun {
    /// # Errors
    /// The setting that is missing, or the domain that is invalid.
    pub fn new(endpoint: &str, from: &str, credentials: &Credentials) -> Result<Self, Invalid> {
        let from = mailbox::ascii_sender(from)?;
        let domain = credentials.get("domain").unwrap_or(from.domain());
        let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if !domain.chars().all(good) {
            return Err(Invalid::new(
                "domain",
                "must be in ASCII: write it as xn--…",
            ));
        }
        let user = Zeroizing::new(format!("api:{}", credentials.require("api_key")?));
        let encoded = Zeroizing::new(STANDARD.encode(user.as_bytes()));
        let path = format!("/v3/{domain}/messages");
        Ok(Self {
            endpoint: Endpoint::base(endpoint, "https://api.mailgun.net", &[&path])?,
            path,
            from,
            authorization: Zeroizing::new(format!("Basic {}", *encoded)),
        })
    }

    fn form(&self, ready: &Ready<'_>) -> Result<String, String> {
        let message = ready.message;
        let mut form = String::new();
        let mut field = |name: &str, value: &str| {
            if !form.is_empty() {
                form.push('&');
            }
            encode(name, &mut form);
            form.push('=');
            encode(value, &mut form);
        };
        field("from", &ready.ascii_from(&self.from)?.text());
        for (name, list) in [("to", &ready.to), ("cc", &ready.cc), ("bcc", &ready.bcc)] {
            for mailbox in list {
                field(name, &mailbox.text());
            }
        }
        field("subject", &message.subject);
        for (name, body) in [("text", ready.text.as_deref()), ("html", ready.html)] {
            if let Some(body) = body {
                field(name, body);
            }
        }
        for name in ["o:tracking", "o:tracking-clicks", "o:tracking-opens"] {
            field(name, "no");
        }
        if !ready.reply_to.is_empty() {
            field("h:Reply-To", &mailbox::texts(&ready.reply_to).join(", "));
        }
        for (name, value) in headers::all(ready) {
            field(&format!("h:{name}"), &value);
        }
        field("o:tag", &tag(message));
        // Each recipient reads it in a header, so not the number of the mail too, which says how many there were.
        field("v:message_id", &message.message_id);
        Ok(form)
    }
}

/// Encodes as `application/x-www-form-urlencoded`.
fn encode(text: &str, out: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"*-._".contains(&byte) {
            out.push(char::from(byte));
        } else if byte == b' ' {
            out.push('+');
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

impl Capabilities for Mailgun {
    fn has_success_sign(&self) -> bool {
        true
    }

    fn idempotency_window(&self) -> Option<Duration> {
        None
    }
}

impl Provider for Mailgun {
    fn request(&self, messages: &[&Message], _now: SystemTime) -> Result<Request, String> {
        let [message] = messages else {
            return Err("a request carries one mail".to_owned());
        };
        let ready = Ready::new(message, MOST)?;
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        json::secret_header(&mut headers, AUTHORIZATION, &self.authorization)?;
        Ok(Request {
            uri: self.endpoint.uri(&self.path)?,
            headers,
            body: Bytes::from(self.form(&ready)?),
        })
    }

    fn outcomes(&self, messages: usize, response: &Response<'_>) -> Vec<MessageOutcome> {
        let outcome = match response.status {
            200..300 => {
                let body = json::parse(response.body);
                // Mailgun's events have it without the brackets.
                let id = body["id"].as_str().map(|id| id.trim_matches(['<', '>']));
                classify::accepted(response, id)
            }
            // There are no error codes, and the text may quote the mail.
            _ => classify::by_status(response, None),
        };
        classify::for_all(messages, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use proptest::prelude::*;
    use std::time::UNIX_EPOCH;

    fn mailgun(from: &str, extra: &str) -> Result<Mailgun, Invalid> {
        let credentials = fixture::credentials(&format!("api_key = hunter2\n{extra}"));
        Mailgun::new("", from, &credentials)
    }

    fn example() -> Mailgun {
        mailgun("Example <noreply@mail.example.com>", "").unwrap()
    }

    fn decode(form: &str) -> Vec<(String, String)> {
        let part = |text: &str| {
            let mut bytes = Vec::new();
            let mut rest = text.bytes();
            while let Some(byte) = rest.next() {
                match byte {
                    b'+' => bytes.push(b' '),
                    b'%' => {
                        let digits = [rest.next().unwrap(), rest.next().unwrap()];
                        let digits = std::str::from_utf8(&digits).unwrap();
                        bytes.push(u8::from_str_radix(digits, 16).unwrap());
                    }
                    byte => bytes.push(byte),
                }
            }
            String::from_utf8(bytes).unwrap()
        };
        form.split('&')
            .map(|field| {
                let (name, value) = field.split_once('=').unwrap();
                (part(name), part(value))
            })
            .collect()
    }

    #[test]
    fn a_mail() {
        let message = fixture::message();
        let request = example().request(&[&message], UNIX_EPOCH).unwrap();
        assert_eq!(
            request.uri,
            "https://api.mailgun.net/v3/mail.example.com/messages"
        );
        // printf api:hunter2 | base64
        assert_eq!(request.headers["authorization"], "Basic YXBpOmh1bnRlcjI=");
        let form = decode(std::str::from_utf8(&request.body).unwrap());
        let expected = [
            ("from", "Example <noreply@mail.example.com>"),
            ("to", "ada@example.com"),
            ("cc", "grace@example.com"),
            ("bcc", "alan@example.com"),
            ("subject", &message.subject),
            ("text", message.body_text.as_deref().unwrap()),
            ("html", message.body_html.as_deref().unwrap()),
            ("o:tracking", "no"),
            ("o:tracking-clicks", "no"),
            ("o:tracking-opens", "no"),
            ("h:Reply-To", "help@example.net, desk@example.net"),
            ("h:X-Mailroom-Message-ID", &message.message_id),
            ("h:Auto-Submitted", "auto-generated"),
            ("o:tag", "reminder"),
            ("v:message_id", &message.message_id),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(form, expected);
    }

    #[test]
    fn the_domain_is_the_senders_unless_the_file_names_one() {
        let other = mailgun("a@example.com", "domain = mg.example.com").unwrap();
        assert_eq!(other.path, "/v3/mg.example.com/messages");
        let beyond = mailgun("a@bücher.example", "").unwrap();
        assert_eq!(beyond.path, "/v3/xn--bcher-kva.example/messages");
        assert!(mailgun("a@example.com", "domain = a/../b").is_err());
    }

    #[test]
    fn what_answers_mean() {
        let outcome = |status, body: &str| fixture::outcome(&example(), status, body);
        assert_eq!(
            outcome(
                200,
                r#"{"id": "<1.2@mail.example.com>", "message": "Queued."}"#
            ),
            MessageOutcome::Sent {
                provider_id: Some("1.2@mail.example.com".to_owned())
            }
        );
        for odd in [
            "",
            "Mailgun Magnificent API",
            "{}",
            "[]",
            r#"{"id": 7}"#,
            r#"{"id": ""}"#,
        ] {
            assert!(
                matches!(outcome(200, odd), MessageOutcome::NotProvider { .. }),
                "{odd}"
            );
        }
        assert_eq!(
            fixture::broken_off(&example(), 1, 200, r#"{"id": "<2026"#),
            [MessageOutcome::Sent { provider_id: None }]
        );
        assert_eq!(
            outcome(
                400,
                r#"{"message": "'to' parameter is not a valid address"}"#
            ),
            MessageOutcome::Refused {
                reason: "http 400".to_owned()
            }
        );
        for status in [401, 402, 403, 404] {
            assert!(matches!(
                outcome(status, ""),
                MessageOutcome::AccountRefused { .. }
            ));
        }
        assert!(matches!(outcome(429, ""), MessageOutcome::Throttled { .. }));
        assert!(matches!(outcome(500, ""), MessageOutcome::Retry { .. }));
    }

    proptest! {
        #[test]
        fn a_form_is_read_as_it_was_written(subject in ".{0,20}", text in ".{1,40}") {
            let message = Message { subject: subject.clone(), body_text: Some(text.clone()), ..fixture::message() };
            let form = decode(&example().form(&Ready::new(&message, MOST).unwrap()).unwrap());
            prop_assert!(form.contains(&("subject".to_owned(), subject)));
            prop_assert!(form.contains(&("text".to_owned(), text)));
            prop_assert_eq!(form.len(), 15);
        }
    }
}
