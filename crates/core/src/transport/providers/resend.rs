//! Resend. Pure.
//!
//! One mail, or up to 100 with a result for each. Resend remembers an `Idempotency-Key` for a day, and answers a
//! repeated request like the first. The key of a batch is made from those of its mails, so that the same mails in the same
//! order, which is that of their ids, have the same key. The batch call drops files without a word; a mail with files goes
//! alone.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use hyper::header::{AUTHORIZATION, HeaderName};
use hyper::http::HeaderValue;
use serde_json::{Map, Value, json};
use zeroize::Zeroizing;

use super::endpoint::Endpoint;
use super::mac::sha256_hex;
use super::mailbox::{self, Mailbox, Ready};
use super::{
    Message, MessageOutcome, Provider, Request, Response, bodies, classify, headers, json, tag,
};
use crate::attachment::Attachment;
use crate::transport::capabilities::{Capabilities, MEGABYTE};
use crate::transport::credentials::Credentials;
use crate::transport::invalid::Invalid;

const SINGLE: &str = "/emails";
const SEVERAL: &str = "/emails/batch";
/// Maximum recipients of one mail.
const MOST: usize = 50;
/// Maximum mails of one request.
const BATCH: usize = 100;
/// Maximum bytes of a mail in a batch.
const SHARED_BYTES: usize = 64 * 1024;
/// Documented as a day; one hour is subtracted for the duration of a request and for differences between clocks.
const MEMORY: Duration = Duration::from_secs(23 * 3600);
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Makes Resend report the errors of single mails, and send the others.
const VALIDATION: HeaderName = HeaderName::from_static("x-batch-validation");

/// The provider; see the module.
pub struct Resend {
    endpoint: Endpoint,
    from: Mailbox,
    authorization: Zeroizing<String>,
}

impl Resend {
    /// # Errors
    /// The setting that is missing.
    pub fn new(endpoint: &str, from: &str, credentials: &Credentials) -> Result<Self, Invalid> {
        Ok(Self {
            endpoint: Endpoint::base(endpoint, "https://api.resend.com", &[SINGLE, SEVERAL])?,
            from: mailbox::ascii_sender(from)?,
            authorization: json::bearer(credentials.require("api_key")?),
        })
    }

    fn mail(&self, ready: &Ready<'_>) -> Result<Value, String> {
        let message = ready.message;
        let mut mail = Map::new();
        mail.insert(
            "from".to_owned(),
            json!(ready.ascii_from(&self.from)?.text()),
        );
        mail.insert("to".to_owned(), json!(mailbox::texts(&ready.to)));
        for (name, list) in [
            ("cc", &ready.cc),
            ("bcc", &ready.bcc),
            ("reply_to", &ready.reply_to),
        ] {
            if !list.is_empty() {
                mail.insert(name.to_owned(), json!(mailbox::texts(list)));
            }
        }
        mail.insert("subject".to_owned(), json!(message.subject));
        json::put_some(&mut mail, "text", ready.text.as_deref());
        json::put_some(&mut mail, "html", ready.html);
        let id = &message.message_id;
        let headers = headers::all(ready).into_iter();
        mail.insert("headers".to_owned(), headers.collect());
        if !message.attachments.is_empty() {
            let files = message.attachments.iter().map(file).collect();
            mail.insert("attachments".to_owned(), files);
        }
        mail.insert(
            "tags".to_owned(),
            json!([
                {"name": "message_id", "value": id},
                {"name": "outbox_id", "value": message.id.to_string()},
                {"name": "kind", "value": tag(message)},
            ]),
        );
        Ok(Value::Object(mail))
    }
}

fn file(file: &Attachment) -> Value {
    let mut said = Map::new();
    for (name, value) in [
        ("filename", Some(file.filename.clone())),
        ("content_type", Some(file.content_type.clone())),
        ("content_id", file.content_id.clone()),
        ("content", Some(file.base64())),
    ] {
        json::put_some(&mut said, name, value);
    }
    Value::Object(said)
}

/// The idempotency key of a request with these mails.
fn idempotency_key(messages: &[&Message]) -> String {
    match messages {
        [message] => message.idempotency_key(),
        _ => {
            let keys = messages.iter().map(|message| message.idempotency_key());
            let keys: Vec<String> = keys.collect();
            format!("batch-{}", sha256_hex(keys.join("\n").as_bytes()))
        }
    }
}

impl Capabilities for Resend {
    fn batch_limit(&self) -> usize {
        BATCH
    }

    fn may_share(&self, first: &Message, other: &Message) -> bool {
        bodies::bytes(first) <= SHARED_BYTES && bodies::bytes(other) <= SHARED_BYTES
    }

    fn has_success_sign(&self) -> bool {
        true
    }

    fn max_message_size(&self) -> Option<u64> {
        Some(40 * MEGABYTE)
    }

    fn idempotency_window(&self) -> Option<Duration> {
        Some(MEMORY)
    }
}

impl Provider for Resend {
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
        let headers = &mut request.headers;
        json::secret_header(headers, AUTHORIZATION, &self.authorization)?;
        let key = json::header_value(&idempotency_key(messages), &IDEMPOTENCY_KEY)?;
        headers.insert(IDEMPOTENCY_KEY, key);
        if messages.len() > 1 {
            headers.insert(VALIDATION, HeaderValue::from_static("permissive"));
        }
        Ok(request)
    }

    fn outcomes(&self, messages: usize, response: &Response<'_>) -> Vec<MessageOutcome> {
        let body = json::parse(response.body);
        if !(200..300).contains(&response.status) {
            return refusal(messages, response, &body);
        }
        if messages == 1 {
            return vec![classify::accepted(response, body["id"].as_str())];
        }
        results(messages, response, &body)
    }
}

/// The outcomes of a batch: `errors` has the indexes of the refused mails, `data` the ids of the others in order.
fn results(messages: usize, response: &Response<'_>, body: &Value) -> Vec<MessageOutcome> {
    let none = Vec::new();
    let list = |name: &str| body[name].as_array().unwrap_or(&none).iter();
    let accepted = list("data").map(|data| {
        let id = data["id"].as_str().filter(|id| !id.is_empty())?;
        Some(MessageOutcome::Sent {
            provider_id: classify::id(id),
        })
    });
    let mut results: Vec<Option<MessageOutcome>> = accepted.collect();
    let places = list("errors").map(|error| usize::try_from(error["index"].as_u64()?).ok());
    let places: BTreeSet<Option<usize>> = places.collect();
    let refused = list("errors").len();
    let is_fit = |place: &Option<usize>| place.is_some_and(|place| place < messages);
    if results.len() + refused != messages || places.len() != refused || !places.iter().all(is_fit)
    {
        let signs = results.iter().flatten().count() + places.iter().flatten().count();
        return classify::unfit(messages, response, signs);
    }
    // In their order, so that each finds those before it in place.
    for place in places.into_iter().flatten() {
        let refused = MessageOutcome::Refused {
            reason: classify::reason(response.status, Some("validation_error")),
        };
        results.insert(place, Some(refused));
    }
    classify::accepted_batch(messages, response, results)
}

fn refusal(messages: usize, response: &Response<'_>, body: &Value) -> Vec<MessageOutcome> {
    let name = body["name"].as_str().and_then(classify::code);
    let reason = || classify::reason(response.status, name);
    let broken = |why: &str| MessageOutcome::AccountRefused {
        reason: format!("{}: {why}", reason()),
    };
    let used = || {
        format!(
            "{}: its idempotency key was used for another message",
            reason()
        )
    };
    let outcome = match name.unwrap_or("") {
        // A request with this key but with other contents was accepted before.
        "invalid_idempotent_request" => {
            return vec![MessageOutcome::KeyUsed { reason: used() }; messages];
        }
        "concurrent_idempotent_requests" => classify::retry(response, name),
        "daily_quota_exceeded" | "monthly_quota_exceeded" => broken("the quota is spent"),
        "invalid_from_address" => broken("from was refused"),
        "missing_api_key" | "restricted_api_key" | "invalid_api_key" | "suspended_api_key" => {
            broken("the credentials were refused")
        }
        "rate_limit_exceeded" => classify::throttled(response, name),
        _ => classify::by_status(response, name),
    };
    classify::for_all(messages, outcome)
}

#[cfg(test)]
mod tests;
