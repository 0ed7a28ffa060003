//! Mailgun. Pure.
//!
//! One mail a request, as a form, which has parts if there are files: a request with several mails needs common contents
//! with variables, and has one result for all. Tracking is off, because it rewrites links.

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
use super::{
    Message, MessageOutcome, Provider, Request, Response, classify, form, headers, json, tag,
};
use crate::attachment::Attachment;
use crate::transport::capabilities::{Capabilities, MEGABYTE};
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

    fn fields(&self, ready: &Ready<'_>) -> Result<Vec<(String, String)>, String> {
        let message = ready.message;
        let mut fields = Vec::new();
        let mut field = |name: &str, value: &str| fields.push((name.to_owned(), value.to_owned()));
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
        Ok(fields)
    }
}

/// A file. Mailgun makes the content id of an inline part of its file name.
fn file(file: &Attachment) -> form::File<'_> {
    form::File {
        field: file.disposition(),
        filename: file.content_id.as_deref().unwrap_or(&file.filename),
        content_type: &file.content_type,
        content: &file.content,
    }
}

impl Capabilities for Mailgun {
    fn has_success_sign(&self) -> bool {
        true
    }

    fn max_message_size(&self) -> Option<u64> {
        Some(25 * MEGABYTE)
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
        let fields = self.fields(&ready)?;
        let (content_type, body) = if message.attachments.is_empty() {
            form::url_encoded(&fields)
        } else {
            let files: Vec<_> = message.attachments.iter().map(file).collect();
            form::multipart(&message.message_id, &fields, &files)
        };
        let mut headers = HeaderMap::with_capacity(8);
        let content_type = json::header_value(&content_type, &CONTENT_TYPE)?;
        headers.insert(CONTENT_TYPE, content_type);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        json::secret_header(&mut headers, AUTHORIZATION, &self.authorization)?;
        Ok(Request {
            uri: self.endpoint.uri(&self.path)?,
            headers,
            body: Bytes::from(body),
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
mod tests;
