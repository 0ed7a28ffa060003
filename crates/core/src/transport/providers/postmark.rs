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
use crate::attachment::Attachment;
use crate::transport::capabilities::{Capabilities, MEGABYTE};
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
        if !message.attachments.is_empty() {
            let files = message.attachments.iter().map(file).collect();
            mail.insert("Attachments".to_owned(), files);
        }
        Ok(Value::Object(mail))
    }
}

fn file(file: &Attachment) -> Value {
    let mut said = Map::new();
    let id = file.content_id.as_ref();
    for (name, value) in [
        ("Name", Some(file.filename.clone())),
        ("ContentType", Some(file.content_type.clone())),
        ("ContentID", id.map(|id| format!("cid:{id}"))),
        ("Content", Some(file.base64())),
    ] {
        json::put_some(&mut said, name, value);
    }
    Value::Object(said)
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

    fn max_message_size(&self) -> Option<u64> {
        Some(10 * MEGABYTE)
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
        406 => MessageOutcome::RecipientRefused {
            reason: reason(),
            is_permanent: true,
        },
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
mod tests;
