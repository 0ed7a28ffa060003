//! Amazon SES, API v2. Pure.
//!
//! One mail is a SendEmail with `Simple` content. A batch is a SendBulkEmail, which needs a template: an inline
//! template that consists of variables only, with subject and bodies of each mail as their values. SES inserts values
//! as they are and does not interpret variables in them, so a mail may contain braces.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::endpoint::Endpoint;
use super::mailbox::{self, Mailbox, Ready};
use super::sigv4::Signer;
use super::{
    Message, MessageOutcome, Provider, Request, Response, bodies, classify, headers, json, tag,
};
use crate::address::mailbox::bare;
use crate::attachment::Attachment;
use crate::transport::capabilities::{Capabilities, MEGABYTE};
use crate::transport::credentials::Credentials;
use crate::transport::invalid::Invalid;

mod outcome;

const SINGLE: &str = "/v2/email/outbound-emails";
const SEVERAL: &str = "/v2/email/outbound-bulk-emails";
/// Maximum recipients of one SendEmail, and entries of one SendBulkEmail.
const MOST: usize = 50;
/// Maximum bytes of a mail in a batch: fifty of them fit into the limit of one megabyte.
const SHARED_BYTES: usize = 16 * 1024;
const HOST_END: &str = ".amazonaws.com";

/// The provider; see the module.
pub struct Ses {
    endpoint: Endpoint,
    from: Mailbox,
    configuration_set: Option<String>,
    signer: Signer,
}

impl Ses {
    /// # Errors
    /// The setting that is missing.
    pub fn new(endpoint: &str, from: &str, credentials: &Credentials) -> Result<Self, Invalid> {
        let known = credentials
            .get("region")
            .map_or_else(String::new, |region| {
                format!("https://email.{region}{HOST_END}")
            });
        if endpoint.is_empty() && known.is_empty() {
            return Err(Invalid::missing("region"));
        }
        let endpoint = Endpoint::base(endpoint, &known, &[SINGLE, SEVERAL])?;
        let region = credentials
            .get("region")
            .or_else(|| region_of(endpoint.host()))
            .ok_or_else(|| Invalid::missing("region"))?
            .to_owned();
        Ok(Self {
            endpoint,
            from: mailbox::ascii_sender(from)?,
            configuration_set: credentials.get("configuration_set").map(str::to_owned),
            signer: Signer::new(credentials, &region, "ses")?,
        })
    }

    fn single(&self, ready: &Ready<'_>) -> Result<Value, String> {
        let message = ready.message;
        let mut body = Map::new();
        put_body(&mut body, "Text", ready.text.as_deref());
        put_body(&mut body, "Html", ready.html);
        let mut request = self.envelope(ready)?;
        request.insert("Destination".to_owned(), destination(ready));
        let mut simple = json!({
            "Subject": {"Data": message.subject, "Charset": "UTF-8"},
            "Body": body,
            "Headers": headers(ready),
        });
        if !message.attachments.is_empty() {
            simple["Attachments"] = message.attachments.iter().map(file).collect();
        }
        request.insert("Content".to_owned(), json!({"Simple": simple}));
        request.insert("EmailTags".to_owned(), tags(message));
        Ok(Value::Object(request))
    }

    fn bulk(&self, mails: &[Ready<'_>]) -> Result<Value, String> {
        let mut content = Map::new();
        content.insert("Subject".to_owned(), json!("{{subject}}"));
        if mails.iter().any(|ready| ready.text.is_some()) {
            content.insert("Text".to_owned(), json!("{{text}}"));
        }
        if mails.iter().any(|ready| ready.html.is_some()) {
            content.insert("Html".to_owned(), json!("{{html}}"));
        }
        let entries: Vec<Value> = mails
            .iter()
            .map(|ready| {
                let message = ready.message;
                // All variables of the template must be present, or SES accepts the mail and does not send it.
                let values = json!({
                    "subject": message.subject,
                    "text": ready.text.as_deref().unwrap_or(""),
                    "html": ready.html.unwrap_or(""),
                });
                json!({
                    "Destination": destination(ready),
                    "ReplacementEmailContent": {
                        "ReplacementTemplate": {"ReplacementTemplateData": values.to_string()},
                    },
                    "ReplacementHeaders": headers(ready),
                    "ReplacementTags": tags(message),
                })
            })
            .collect();
        let mut request = match mails {
            // The same for all, see `may_share`.
            [first, ..] => self.envelope(first)?,
            [] => Map::new(),
        };
        request.insert(
            "DefaultContent".to_owned(),
            json!({"Template": {
                "TemplateContent": content,
                "TemplateData": "{\"subject\":\"\",\"text\":\"\",\"html\":\"\"}",
            }}),
        );
        request.insert("BulkEmailEntries".to_owned(), Value::Array(entries));
        Ok(Value::Object(request))
    }

    fn envelope(&self, ready: &Ready<'_>) -> Result<Map<String, Value>, String> {
        let mut envelope = Map::new();
        let from = mailbox::ascii_text(ready.ascii_from(&self.from)?);
        envelope.insert("FromEmailAddress".to_owned(), json!(from));
        if !ready.reply_to.is_empty() {
            envelope.insert("ReplyToAddresses".to_owned(), ascii_texts(&ready.reply_to));
        }
        let set = self.configuration_set.as_deref();
        json::put_some(&mut envelope, "ConfigurationSetName", set);
        // Links are signed and must not be rewritten, even if the account or the configuration set enables tracking.
        envelope.insert(
            "ConfigurationOverrides".to_owned(),
            json!({"Tracking": {"ClickTrackingEnabled": "DISABLED", "OpenTrackingEnabled": "DISABLED"}}),
        );
        Ok(envelope)
    }
}

/// The region in `email.eu-west-1.amazonaws.com`.
fn region_of(host: &str) -> Option<&str> {
    let (service, region) = host.strip_suffix(HOST_END)?.split_once('.')?;
    (service.starts_with("email") && !region.contains('.')).then_some(region)
}

fn put_body(body: &mut Map<String, Value>, name: &str, text: Option<&str>) {
    if let Some(text) = text {
        body.insert(name.to_owned(), json!({"Data": text, "Charset": "UTF-8"}));
    }
}

/// SES copies names into the header.
fn ascii_texts(list: &[Mailbox]) -> Value {
    list.iter().map(mailbox::ascii_text).collect()
}

fn destination(ready: &Ready<'_>) -> Value {
    let mut destination = Map::new();
    for (name, list) in [
        ("ToAddresses", &ready.to),
        ("CcAddresses", &ready.cc),
        ("BccAddresses", &ready.bcc),
    ] {
        if !list.is_empty() {
            destination.insert(name.to_owned(), ascii_texts(list));
        }
    }
    Value::Object(destination)
}

fn headers(ready: &Ready<'_>) -> Value {
    let headers = headers::all(ready).into_iter();
    headers
        .map(|(name, value)| json!({"Name": name, "Value": value}))
        .collect()
}

/// A file. Its encoding must be named: without, SES writes the contents as they are, as 7-bit text.
fn file(file: &Attachment) -> Value {
    let mut said = Map::new();
    for (name, value) in [
        ("FileName", Some(file.filename.clone())),
        ("ContentType", Some(file.content_type.clone())),
        (
            "ContentDisposition",
            Some(file.disposition().to_ascii_uppercase()),
        ),
        ("ContentId", file.content_id.clone()),
        ("ContentTransferEncoding", Some("BASE64".to_owned())),
        ("RawContent", Some(file.base64())),
    ] {
        json::put_some(&mut said, name, value);
    }
    Value::Object(said)
}

fn tags(message: &Message) -> Value {
    json!([
        {"Name": "message_id", "Value": message.message_id},
        {"Name": "outbox_id", "Value": message.id.to_string()},
        {"Name": "kind", "Value": tag(message)},
    ])
}

/// Whether a mailbox has a local part that SES does not take, which it takes in ASCII only. Domains are converted.
fn has_foreign_local_part(mailbox: &str) -> bool {
    let address = bare(mailbox);
    let local = address.rsplit_once('@').map_or(address, |(local, _)| local);
    !local.is_ascii()
}

fn refuse_foreign_local_parts(message: &Message) -> Result<(), String> {
    for (name, list) in message.address_lists() {
        if let Some(index) = list
            .iter()
            .position(|mailbox| has_foreign_local_part(mailbox))
        {
            let place = index + 1;
            return Err(format!(
                "{name}[{place}] is not ASCII before the @, which SES does not take"
            ));
        }
    }
    Ok(())
}

/// Whether a small mail with one recipient, which fits into a bulk request, has a text and HTML.
fn small_parts(message: &Message) -> Option<(bool, bool)> {
    let is_to_one =
        message.recipients.len() == 1 && message.cc.is_empty() && message.bcc.is_empty();
    let html = bodies::html(message);
    let bytes = quoted_twice(&message.subject) + html.map_or(0, quoted_twice);
    if !is_to_one || bytes > SHARED_BYTES {
        return None;
    }
    let text = bodies::text(message);
    let bytes = bytes + text.as_deref().map_or(0, quoted_twice);
    (bytes <= SHARED_BYTES).then_some((text.is_some(), html.is_some()))
}

/// Size in bytes of this text as JSON within JSON.
fn quoted_twice(text: &str) -> usize {
    let quoted = |byte: u8| match byte {
        b'"' | b'\\' => 4,
        b'\n' | b'\r' | b'\t' | 8 | 12 => 3,
        0..32 => 7,
        _ => 1,
    };
    text.bytes().map(quoted).sum()
}

impl Capabilities for Ses {
    fn batch_limit(&self) -> usize {
        MOST
    }

    fn may_share(&self, first: &Message, other: &Message) -> bool {
        // A bulk request has one sender and one list of addresses for answers.
        first.from_address == other.from_address
            && first.reply_to == other.reply_to
            && refuse_foreign_local_parts(first).is_ok()
            && refuse_foreign_local_parts(other).is_ok()
            && small_parts(first).is_some_and(|parts| small_parts(other) == Some(parts))
    }

    fn has_success_sign(&self) -> bool {
        true
    }

    fn max_message_size(&self) -> Option<u64> {
        Some(40 * MEGABYTE)
    }

    fn idempotency_window(&self) -> Option<Duration> {
        None
    }
}

impl Provider for Ses {
    fn request(&self, messages: &[&Message], now: SystemTime) -> Result<Request, String> {
        let ready = Ready::all(messages, MOST)?;
        messages
            .iter()
            .try_for_each(|message| refuse_foreign_local_parts(message))?;
        let (path, body) = match &ready[..] {
            [mail] => (SINGLE, self.single(mail)?),
            _ => (SEVERAL, self.bulk(&ready)?),
        };
        let mut request = json::request(self.endpoint.uri(path)?, &body)?;
        self.signer.sign(&mut request, now)?;
        Ok(request)
    }

    fn outcomes(&self, messages: usize, response: &Response<'_>) -> Vec<MessageOutcome> {
        let body = json::parse(response.body);
        if !(200..300).contains(&response.status) {
            return classify::for_all(messages, outcome::refusal(response, &body));
        }
        if messages == 1 {
            return vec![classify::accepted(response, body["MessageId"].as_str())];
        }
        let results = body["BulkEmailEntryResults"].as_array();
        let results = results.into_iter().flatten();
        let results = results
            .map(|result| outcome::entry(result, response))
            .collect();
        classify::accepted_batch(messages, response, results)
    }
}

#[cfg(test)]
mod tests;
