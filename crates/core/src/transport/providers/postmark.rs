//! Postmark. Pure.
//!
//! One mail, or up to 500 with a result for each. Tracking is off, because it rewrites links.

use std::time::{Duration, SystemTime};

use hyper::header::HeaderName;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::endpoint::Endpoint;
use super::mailbox::{self, Mailbox, Ready};
use super::{
    Message, MessageOutcome, Provider, Request, Response, bodies, classify, headers, json, tag,
};
use crate::transport::capabilities::Capabilities;
use crate::transport::credentials::Credentials;
use crate::transport::invalid::Invalid;

const SINGLE: &str = "/email";
const SEVERAL: &str = "/email/batch";
/// Maximum recipients of one mail.
const MOST: usize = 50;
/// Maximum mails of one request.
const BATCH: usize = 500;
/// Maximum bytes of a mail in a batch: 500 of them are well below the limit of 50 MB.
const SHARED_BYTES: usize = 64 * 1024;
/// Maximum bytes of the addresses of a mail in a batch: the answer repeats them, and 4 KiB of it are read for each mail.
const SHARED_ADDRESSES: usize = 3 * 1024;
const TOKEN: HeaderName = HeaderName::from_static("x-postmark-server-token");

/// The provider; see the module.
pub struct Postmark {
    endpoint: Endpoint,
    from: Mailbox,
    token: Zeroizing<String>,
    stream: Option<String>,
}

impl Postmark {
    /// # Errors
    /// The setting that is missing.
    pub fn new(endpoint: &str, from: &str, credentials: &Credentials) -> Result<Self, Invalid> {
        Ok(Self {
            endpoint: Endpoint::base(endpoint, "https://api.postmarkapp.com", &[SINGLE, SEVERAL])?,
            from: mailbox::ascii_sender(from)?,
            token: Zeroizing::new(credentials.require("api_key")?.to_owned()),
            stream: credentials.get("message_stream").map(str::to_owned),
        })
    }

    fn mail(&self, ready: &Ready<'_>) -> Result<Value, String> {
        let message = ready.message;
        let mut mail = Map::new();
        let list = |list: &[Mailbox]| (!list.is_empty()).then(|| mailbox::texts(list).join(", "));
        for (name, value) in [
            ("From", Some(ready.ascii_from(&self.from)?.text())),
            ("To", list(&ready.to)),
            ("Cc", list(&ready.cc)),
            ("Bcc", list(&ready.bcc)),
            ("ReplyTo", list(&ready.reply_to)),
            ("Subject", Some(message.subject.clone())),
            ("TextBody", ready.text.as_deref().map(str::to_owned)),
            ("HtmlBody", ready.html.map(str::to_owned)),
            ("MessageStream", self.stream.clone()),
            ("Tag", Some(tag(message))),
            ("TrackLinks", Some("None".to_owned())),
        ] {
            json::put_some(&mut mail, name, value);
        }
        let id = &message.message_id;
        let headers = headers::all(ready).into_iter();
        let headers = headers.map(|(name, value)| json!({"Name": name, "Value": value}));
        mail.insert("Headers".to_owned(), headers.collect());
        let metadata = json!({"message_id": id, "outbox_id": message.id.to_string()});
        mail.insert("Metadata".to_owned(), metadata);
        mail.insert("TrackOpens".to_owned(), json!(false));
        Ok(Value::Object(mail))
    }
}

impl Capabilities for Postmark {
    fn batch_limit(&self) -> usize {
        BATCH
    }

    fn may_share(&self, first: &Message, other: &Message) -> bool {
        let is_small = |message: &Message| {
            let addresses = message
                .recipients
                .iter()
                .chain(&message.cc)
                .chain(&message.bcc);
            bodies::bytes(message) <= SHARED_BYTES
                && addresses.map(String::len).sum::<usize>() <= SHARED_ADDRESSES
        };
        is_small(first) && is_small(other)
    }

    fn has_success_sign(&self) -> bool {
        true
    }

    fn idempotency_window(&self) -> Option<Duration> {
        None
    }
}

impl Provider for Postmark {
    fn request(&self, messages: &[&Message], _now: SystemTime) -> Result<Request, String> {
        let ready = Ready::all(messages, MOST)?;
        let (path, body) = match &ready[..] {
            [mail] => (SINGLE, self.mail(mail)?),
            _ => (
                SEVERAL,
                ready
                    .iter()
                    .map(|mail| self.mail(mail))
                    .collect::<Result<_, _>>()?,
            ),
        };
        let mut request = json::request(self.endpoint.uri(path)?, &body)?;
        json::secret_header(&mut request.headers, TOKEN, &self.token)?;
        Ok(request)
    }

    fn outcomes(&self, messages: usize, response: &Response<'_>) -> Vec<MessageOutcome> {
        let body = json::parse(response.body);
        let accepted = (200..300).contains(&response.status);
        match &body {
            Value::Array(results) if accepted && messages > 1 => {
                let results = results.iter();
                let results = results.map(|result| outcome(result, response, Place::Batch));
                classify::accepted_batch(messages, response, results.collect())
            }
            _ if accepted && messages > 1 => classify::unfit(messages, response, 0),
            _ => {
                let outcome = outcome(&body, response, Place::Alone);
                let outcome = outcome.unwrap_or_else(|| match accepted {
                    true => classify::accepted(response, None),
                    false => classify::by_status(response, None),
                });
                classify::for_all(messages, outcome)
            }
        }
    }
}

/// Where a result was found.
#[derive(Clone, Copy)]
enum Place {
    /// The result is the whole response.
    Alone,
    /// The result is one of several; the status of the response does not apply to it.
    Batch,
}

/// The outcome of a message by its result; `None` if that has no error code, the sign that Postmark answered.
fn outcome(result: &Value, response: &Response<'_>, place: Place) -> Option<MessageOutcome> {
    let code = result["ErrorCode"].as_u64()?;
    let name = format!("ErrorCode {code}");
    let reason = || classify::reason(response.status, Some(&name));
    let broken = |why: &str| MessageOutcome::AccountRefused {
        reason: format!("{}: {why}", reason()),
    };
    Some(match code {
        0 if (200..300).contains(&response.status) => MessageOutcome::Sent {
            provider_id: result["MessageID"].as_str().and_then(classify::id),
        },
        10 => broken("the credentials were refused"),
        400 | 401 => broken("the sender's address is not confirmed"),
        405 | 412 | 413 => broken("the account cannot send"),
        // Errors about the message stream, which is a setting of the transport.
        1220..1240 => broken("the message stream does not take mail"),
        406 => MessageOutcome::RecipientRefused { reason: reason() },
        300 | 402 | 403 | 409..=411 => MessageOutcome::Refused { reason: reason() },
        429 => classify::throttled(response, Some(&name)),
        100 => classify::retry(response, Some(&name)),
        _ => match place {
            Place::Alone if (200..300).contains(&response.status) => {
                MessageOutcome::Refused { reason: reason() }
            }
            Place::Alone => classify::by_status(response, Some(&name)),
            // Not accepted. Sent alone, the mail gets a status that says more.
            Place::Batch => MessageOutcome::SendAlone { reason: reason() },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use std::time::UNIX_EPOCH;

    fn postmark() -> Postmark {
        let credentials = fixture::credentials("api_key = hunter2\nmessage_stream = outbound");
        Postmark::new("", "\"Example, Ltd.\" <noreply@example.com>", &credentials).unwrap()
    }

    #[test]
    fn one_mail() {
        let message = fixture::message();
        let request = postmark().request(&[&message], UNIX_EPOCH).unwrap();
        assert_eq!(request.uri, "https://api.postmarkapp.com/email");
        assert_eq!(request.headers["x-postmark-server-token"], "hunter2");
        assert_eq!(
            json::parse(&request.body),
            json!({
                "From": "\"Example, Ltd.\" <noreply@example.com>",
                "To": "ada@example.com",
                "Cc": "grace@example.com",
                "Bcc": "alan@example.com",
                "ReplyTo": "help@example.net, desk@example.net",
                "Subject": message.subject,
                "TextBody": message.body_text,
                "HtmlBody": message.body_html,
                "MessageStream": "outbound",
                "TrackLinks": "None",
                "TrackOpens": false,
                "Tag": "reminder",
                "Headers": [
                    {"Name": "X-Mailroom-Message-ID", "Value": message.message_id},
                    {"Name": "Auto-Submitted", "Value": "auto-generated"},
                ],
                "Metadata": {"message_id": message.message_id, "outbox_id": "7"},
            })
        );
    }

    #[test]
    fn several_mails_are_an_array() {
        let (first, second) = (fixture::plain(1), fixture::plain(2));
        let request = postmark().request(&[&first, &second], UNIX_EPOCH).unwrap();
        assert_eq!(request.uri.path(), "/email/batch");
        let body = json::parse(&request.body);
        assert_eq!(body.as_array().unwrap().len(), 2);
        assert_eq!(
            body[1]["Metadata"]["message_id"],
            second.message_id.as_str()
        );
        assert_eq!(body[1].get("Cc"), None);
    }

    #[test]
    fn large_mails_go_alone() {
        let large = Message {
            body_text: Some("x".repeat(SHARED_BYTES)),
            ..fixture::plain(1)
        };
        assert!(postmark().may_share(&fixture::plain(1), &fixture::plain(2)));
        assert!(!postmark().may_share(&fixture::plain(1), &large));
    }

    #[test]
    fn what_answers_to_one_mean() {
        let outcome = |status, code: u64| {
            let body =
                json!({"ErrorCode": code, "Message": "ada@example.com", "MessageID": "id-1"});
            fixture::outcome(&postmark(), status, &body.to_string())
        };
        assert_eq!(
            outcome(200, 0),
            MessageOutcome::Sent {
                provider_id: Some("id-1".to_owned())
            }
        );
        for code in [300, 402, 403, 411] {
            assert_eq!(
                outcome(422, code),
                MessageOutcome::Refused {
                    reason: format!("http 422 ErrorCode {code}")
                }
            );
        }
        assert_eq!(
            outcome(422, 406),
            MessageOutcome::RecipientRefused {
                reason: "http 422 ErrorCode 406".to_owned()
            }
        );
        for (status, code) in [
            (401, 10),
            (422, 400),
            (422, 401),
            (422, 405),
            (422, 412),
            (422, 413),
        ] {
            assert!(
                matches!(outcome(status, code), MessageOutcome::AccountRefused { .. }),
                "{code}"
            );
        }
        assert!(matches!(
            outcome(422, 1235),
            MessageOutcome::AccountRefused { .. }
        ));
        assert!(matches!(
            outcome(429, 429),
            MessageOutcome::Throttled { .. }
        ));
        assert!(matches!(outcome(503, 100), MessageOutcome::Retry { .. }));
        assert!(matches!(outcome(422, 9999), MessageOutcome::Refused { .. }));
        assert!(matches!(outcome(500, 0), MessageOutcome::Retry { .. }));
        let bare = |status, body| fixture::outcome(&postmark(), status, body);
        for odd in [
            "",
            "{}",
            "[]",
            "<html>",
            "[{\"ErrorCode\": 0}]",
            "{\"ErrorCode\": \"0\"}",
        ] {
            assert!(
                matches!(bare(200, odd), MessageOutcome::NotProvider { .. }),
                "{odd}"
            );
        }
        assert_eq!(
            bare(200, "{\"ErrorCode\": 0}"),
            MessageOutcome::Sent { provider_id: None }
        );
        assert_eq!(
            fixture::broken_off(&postmark(), 1, 200, "{\"To\": \"ada"),
            [MessageOutcome::Sent { provider_id: None }]
        );
        assert!(matches!(bare(500, "<html>"), MessageOutcome::Retry { .. }));
        assert!(matches!(
            bare(401, ""),
            MessageOutcome::AccountRefused { .. }
        ));
    }

    #[test]
    fn each_mail_of_several_has_its_result() {
        let codes = |codes: &[u64]| {
            let results: Vec<Value> = codes
                .iter()
                .map(|code| json!({"ErrorCode": code, "MessageID": "id"}))
                .collect();
            fixture::outcomes(&postmark(), 5, 200, &json!(results).to_string())
        };
        let outcomes = codes(&[0, 406, 405, 9999, 100]);
        assert!(matches!(outcomes[0], MessageOutcome::Sent { .. }));
        assert!(matches!(
            outcomes[1],
            MessageOutcome::RecipientRefused { .. }
        ));
        assert!(matches!(outcomes[2], MessageOutcome::AccountRefused { .. }));
        assert!(matches!(outcomes[3], MessageOutcome::SendAlone { .. }));
        assert!(matches!(outcomes[4], MessageOutcome::Retry { .. }));
        let short = codes(&[0, 0]);
        assert!(
            short
                .iter()
                .all(|v| matches!(v, MessageOutcome::Ambiguous { .. }))
        );
        let two = |body| fixture::outcomes(&postmark(), 2, 200, body);
        let without_code = two(r#"[{"ErrorCode": 0}, {}]"#);
        assert!(matches!(without_code[0], MessageOutcome::Sent { .. }));
        assert!(matches!(without_code[1], MessageOutcome::Ambiguous { .. }));
        for odd in ["", "[]", "{}", "[{}, {}]", r#"{"ErrorCode": 0}"#, "<html>"] {
            assert!(
                two(odd)
                    .iter()
                    .all(|v| matches!(v, MessageOutcome::NotProvider { .. })),
                "{odd}"
            );
        }
        let broken_off = fixture::broken_off(&postmark(), 2, 200, "[");
        assert!(
            broken_off
                .iter()
                .all(|v| matches!(v, MessageOutcome::Ambiguous { .. }))
        );
        let whole = fixture::outcomes(&postmark(), 2, 422, r#"{"ErrorCode": 402}"#);
        assert!(
            whole
                .iter()
                .all(|v| matches!(v, MessageOutcome::SendAlone { .. }))
        );
        let whole = fixture::outcomes(&postmark(), 2, 401, r#"{"ErrorCode": 10}"#);
        assert!(
            whole
                .iter()
                .all(|v| matches!(v, MessageOutcome::AccountRefused { .. }))
        );
    }
}
