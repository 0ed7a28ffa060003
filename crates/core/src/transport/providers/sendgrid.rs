//! SendGrid, API v3. Pure.
//!
//! One mail a request: a request with several mails has one result, so that one bad address would fail all of them.
//! Tracking is off, because it rewrites links.

use std::time::{Duration, SystemTime};

use hyper::header::AUTHORIZATION;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::endpoint::Endpoint;
use super::mailbox::{self, Mailbox, Ready};
use super::{Message, MessageOutcome, Provider, Request, Response, classify, headers, json, tag};
use crate::attachment::Attachment;
use crate::transport::capabilities::{Capabilities, MEGABYTE};
use crate::transport::credentials::Credentials;
use crate::transport::invalid::Invalid;

const PATH: &str = "/v3/mail/send";
/// Maximum recipients of one mail.
const MOST: usize = 1000;

/// The provider; see the module.
pub struct SendGrid {
    endpoint: Endpoint,
    from: Mailbox,
    authorization: Zeroizing<String>,
}

impl SendGrid {
    /// # Errors
    /// The setting that is missing.
    pub fn new(endpoint: &str, from: &str, credentials: &Credentials) -> Result<Self, Invalid> {
        Ok(Self {
            endpoint: Endpoint::base(endpoint, "https://api.sendgrid.com", &[PATH])?,
            from: mailbox::sender(from)?,
            authorization: json::bearer(credentials.require("api_key")?),
        })
    }

    fn body(&self, ready: &Ready<'_>) -> Value {
        let message = ready.message;
        let contents = [
            ("text/plain", ready.text.as_deref()),
            ("text/html", ready.html),
        ];
        let contents: Vec<Value> = contents
            .into_iter()
            .filter_map(|(kind, body)| Some(json!({"type": kind, "value": body?})))
            .collect();
        let mut body = json!({
            "personalizations": [personalization(ready)],
            "from": person(ready.from(&self.from)),
            "subject": message.subject,
            "content": contents,
            "categories": [tag(message)],
            "tracking_settings": {
                "click_tracking": {"enable": false, "enable_text": false},
                "open_tracking": {"enable": false},
                "subscription_tracking": {"enable": false},
            },
        });
        if !ready.reply_to.is_empty() {
            body["reply_to_list"] = people(&ready.reply_to, &mut Vec::new());
        }
        if !message.attachments.is_empty() {
            body["attachments"] = message.attachments.iter().map(file).collect();
        }
        if message.is_token_mail() {
            // An address that unsubscribed from newsletters still gets its links. Bounces and spam reports are not bypassed.
            body["mail_settings"] = json!({"bypass_unsubscribe_management": {"enable": true}});
        }
        body
    }
}

/// A file. SendGrid refuses a mail with a parameter in a type.
fn file(file: &Attachment) -> Value {
    let mut said = Map::new();
    for (name, value) in [
        ("filename", Some(file.filename.clone())),
        ("type", Some(file.media_type().to_owned())),
        ("disposition", Some(file.disposition().to_owned())),
        ("content_id", file.content_id.clone()),
        ("content", Some(file.base64())),
    ] {
        json::put_some(&mut said, name, value);
    }
    Value::Object(said)
}

/// A mailbox.
fn person(mailbox: &Mailbox) -> Value {
    let mut person = Map::new();
    person.insert("email".to_owned(), json!(mailbox.address()));
    json::put_some(&mut person, "name", mailbox.name());
    Value::Object(person)
}

/// The mailboxes whose addresses are not among those seen before: SendGrid refuses a mail that names one twice, even if
/// the case of its local part differs, so this is not [`crate::address::mailboxes`].
fn people(list: &[Mailbox], seen: &mut Vec<String>) -> Value {
    let mut people = Vec::new();
    for mailbox in list {
        let known = mailbox.address().to_lowercase();
        if !seen.contains(&known) {
            seen.push(known);
            people.push(person(mailbox));
        }
    }
    Value::Array(people)
}

/// The recipients. An address that is in two lists counts for the first.
fn personalization(ready: &Ready<'_>) -> Value {
    let message = ready.message;
    let mut seen: Vec<String> = Vec::new();
    let mut personalization = Map::new();
    for (name, list) in [("to", &ready.to), ("cc", &ready.cc), ("bcc", &ready.bcc)] {
        let people = people(list, &mut seen);
        if people != json!([]) {
            personalization.insert(name.to_owned(), people);
        }
    }
    let id = &message.message_id;
    let headers = headers::all(ready).into_iter();
    personalization.insert("headers".to_owned(), headers.collect());
    let custom_args = json!({"message_id": id, "outbox_id": message.id.to_string()});
    personalization.insert("custom_args".to_owned(), custom_args);
    Value::Object(personalization)
}

impl Capabilities for SendGrid {
    fn has_success_sign(&self) -> bool {
        true
    }

    fn max_message_size(&self) -> Option<u64> {
        Some(30 * MEGABYTE)
    }

    fn idempotency_window(&self) -> Option<Duration> {
        None
    }
}

impl Provider for SendGrid {
    fn request(&self, messages: &[&Message], _now: SystemTime) -> Result<Request, String> {
        let [message] = messages else {
            return Err("a request carries one mail".to_owned());
        };
        let ready = Ready::new(message, MOST)?;
        let uri = self.endpoint.uri(PATH)?;
        let mut request = json::request(uri, &self.body(&ready))?;
        json::secret_header(&mut request.headers, AUTHORIZATION, &self.authorization)?;
        Ok(request)
    }

    fn outcomes(&self, messages: usize, response: &Response<'_>) -> Vec<MessageOutcome> {
        let outcome = match response.status {
            // The status is the sign of a true success.
            202 => MessageOutcome::Sent {
                provider_id: classify::text(response.headers, "x-message-id")
                    .and_then(classify::id),
            },
            200..300 => classify::accepted(response, None),
            _ => {
                // There are no error codes, but the name of the rejected field.
                let body = json::parse(response.body);
                let field = body["errors"][0]["field"].as_str().and_then(classify::code);
                classify::by_status(response, field)
            }
        };
        classify::for_all(messages, outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use std::time::UNIX_EPOCH;

    fn sendgrid() -> SendGrid {
        let credentials = fixture::credentials("api_key = SG.hunter2");
        SendGrid::new("", "Example <noreply@example.com>", &credentials).unwrap()
    }

    #[test]
    fn a_mail() {
        let mut message = fixture::message();
        message.cc.push("ADA@example.com".to_owned());
        message.bcc.push("grace@example.com".to_owned());
        message.reply_to.push("HELP@example.net".to_owned());
        let request = sendgrid().request(&[&message], UNIX_EPOCH).unwrap();
        assert_eq!(request.uri, "https://api.sendgrid.com/v3/mail/send");
        assert_eq!(request.headers["authorization"], "Bearer SG.hunter2");
        assert!(request.headers["authorization"].is_sensitive());
        let body = json::parse(&request.body);
        assert_eq!(
            body["from"],
            json!({"email": "noreply@example.com", "name": "Example"})
        );
        assert_eq!(
            body["personalizations"],
            json!([{
                "to": [{"email": "ada@example.com"}],
                "cc": [{"email": "grace@example.com"}],
                "bcc": [{"email": "alan@example.com"}],
                "headers": {
                    "X-Mailroom-Message-ID": message.message_id,
                    "Auto-Submitted": "auto-generated",
                },
                "custom_args": {"message_id": message.message_id, "outbox_id": "7"},
            }])
        );
        assert_eq!(
            body["reply_to_list"],
            json!([{"email": "help@example.net"}, {"email": "desk@example.net"}])
        );
        assert_eq!(body["content"][0]["type"], "text/plain");
        assert_eq!(body["content"][1]["type"], "text/html");
        assert_eq!(body["categories"], json!(["reminder"]));
        assert_eq!(
            body["tracking_settings"],
            json!({
                "click_tracking": {"enable": false, "enable_text": false},
                "open_tracking": {"enable": false},
                "subscription_tracking": {"enable": false},
            })
        );
    }

    #[test]
    fn files_without_the_parameters_of_their_types() {
        let mut message = fixture::with_files();
        message.attachments[0].content_type = "application/pdf ; version=2".to_owned();
        let request = sendgrid().request(&[&message], UNIX_EPOCH).unwrap();
        assert_eq!(
            json::parse(&request.body)["attachments"],
            json!([
                {
                    "filename": "Rechnung \"für\" Zoë 📎.pdf",
                    "type": "application/pdf",
                    "disposition": "attachment",
                    "content": fixture::PDF,
                },
                {
                    "filename": "logo.png",
                    "type": "image/png",
                    "disposition": "inline",
                    "content_id": "logo@example.com",
                    "content": fixture::PNG,
                },
            ])
        );
    }

    #[test]
    fn unsubscribing_from_other_mail_stops_no_recovery() {
        let settings = |kind: &str| {
            let message = Message {
                kind: kind.to_owned(),
                ..fixture::message()
            };
            let request = sendgrid().request(&[&message], UNIX_EPOCH).unwrap();
            json::parse(&request.body)["mail_settings"].clone()
        };
        let bypassed = json!({"bypass_unsubscribe_management": {"enable": true}});
        assert_eq!(settings("activation"), bypassed);
        assert_eq!(settings("password_recovery"), bypassed);
        assert_eq!(settings("reminder"), Value::Null);
    }

    #[test]
    fn one_mail_a_request() {
        let (first, second) = (fixture::plain(1), fixture::plain(2));
        assert_eq!(sendgrid().batch_limit(), 1);
        assert!(sendgrid().request(&[&first, &second], UNIX_EPOCH).is_err());
    }

    #[test]
    fn what_answers_mean() {
        let outcome = |status, body: &str| fixture::outcome(&sendgrid(), status, body);
        for whole in ["", "{}", "<html>"] {
            assert_eq!(
                outcome(202, whole),
                MessageOutcome::Sent { provider_id: None }
            );
            for odd in [200, 201, 204] {
                assert!(
                    matches!(outcome(odd, whole), MessageOutcome::NotProvider { .. }),
                    "{odd} {whole}"
                );
            }
        }
        assert_eq!(
            fixture::broken_off(&sendgrid(), 1, 200, ""),
            [MessageOutcome::Sent { provider_id: None }]
        );
        let body =
            r#"{"errors": [{"message": "ada@ is bad", "field": "personalizations.0.to.0.email"}]}"#;
        assert_eq!(
            outcome(400, body),
            MessageOutcome::Refused {
                reason: "http 400 personalizations.0.to.0.email".to_owned()
            }
        );
        for status in [401, 403, 404, 405] {
            assert!(matches!(
                outcome(status, ""),
                MessageOutcome::AccountRefused { .. }
            ));
        }
        assert!(matches!(outcome(413, ""), MessageOutcome::Refused { .. }));
        assert!(matches!(outcome(429, ""), MessageOutcome::Throttled { .. }));
        assert!(matches!(outcome(500, ""), MessageOutcome::Retry { .. }));
    }

    #[test]
    fn the_id_is_in_a_header() {
        let mut headers = hyper::HeaderMap::new();
        headers.insert("x-message-id", "14c5d75ce93.dfd.64b469".parse().unwrap());
        let response = Response {
            status: 202,
            headers: &headers,
            body: b"",
            is_broken_off: false,
            now: UNIX_EPOCH,
        };
        assert_eq!(
            sendgrid().outcomes(1, &response),
            [MessageOutcome::Sent {
                provider_id: Some("14c5d75ce93.dfd.64b469".to_owned())
            }]
        );
    }
}
