//! What a provider is: how it wants its requests, and what its answers mean. Pure.
//!
//! One file each in `providers/`. A provider builds requests and reads answers; it never opens a connection,
//! waits or logs. Contracts are those of the providers' published descriptions.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::{HeaderMap, Uri};

use super::credentials::Credentials;
use super::message::Message;

mod answer;
mod endpoint;
#[cfg(test)]
mod fixture;
mod json;
mod mac;
mod mailbox;
mod mailgun;
mod postmark;
mod resend;
mod sendgrid;
mod ses;
mod sigv4;
mod webhook;

/// The header in which a mail carries its `message_id` where the provider lets us set one, so that whoever gets
/// a mail twice can tell.
const MESSAGE_ID_HEADER: &str = "X-Mailroom-Message-ID";

/// The provider that `mailroom.sender` names, set up: `endpoint` and `from` may be empty where it has a default
/// or needs none. What it needs of the credentials it takes over.
///
/// # Errors
/// Which setting, or which line of the credentials file, is missing or no good; never its value if it is secret.
pub fn choose(
    sender: &str,
    endpoint: &str,
    from: &str,
    credentials: &Credentials,
) -> Result<Box<dyn Provider>, String> {
    match sender {
        "webhook" => Ok(Box::new(webhook::Webhook::new(endpoint, credentials)?)),
        "ses" => Ok(Box::new(ses::Ses::new(endpoint, from, credentials)?)),
        "sendgrid" => Ok(Box::new(sendgrid::SendGrid::new(
            endpoint,
            from,
            credentials,
        )?)),
        "postmark" => Ok(Box::new(postmark::Postmark::new(
            endpoint,
            from,
            credentials,
        )?)),
        "resend" => Ok(Box::new(resend::Resend::new(endpoint, from, credentials)?)),
        "mailgun" => Ok(Box::new(mailgun::Mailgun::new(
            endpoint,
            from,
            credentials,
        )?)),
        other => Err(format!("there is no sender {other:?}")),
    }
}

/// One POST. `Debug` is not there on purpose: headers carry the API key, the body the signed token.
pub struct Request {
    /// Where it goes.
    pub uri: Uri,
    /// All but `host`, `content-length` and `user-agent`, which the client adds.
    pub headers: HeaderMap,
    /// The same bytes for the same messages, time aside: a batch that is sent again is sent as it was.
    pub body: Bytes,
}

/// What came back: complete, but for a body that was cut at the client's limit.
pub struct Answer<'a> {
    /// The HTTP status, 3xx included: a redirect is never followed.
    pub status: u16,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its body.
    pub body: &'a [u8],
    /// When it came, for a `Retry-After` that is a date.
    pub now: SystemTime,
}

/// What an answer, or the want of one, means for one message. Reasons are short, without control characters,
/// and never quote a body: it may echo the token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted.
    Sent {
        /// The provider's own id of the message.
        provider_id: Option<String>,
    },
    /// Not now. Counts as an attempt.
    Retry {
        /// E.g. `http 503`.
        reason: String,
        /// The provider's floor for the next attempt.
        after: Option<Duration>,
    },
    /// The provider asks for less of everything: the channel slows, and the message keeps its attempts.
    Throttled {
        /// E.g. `http 429`.
        reason: String,
        /// When the provider wants to hear again.
        after: Option<Duration>,
    },
    /// This message will never be taken.
    Permanent {
        /// E.g. `http 422 validation_error`.
        reason: String,
    },
    /// Nothing will be taken until somebody acts: credentials, quota, account. The message keeps its attempts.
    Broken {
        /// E.g. `http 401: the credentials were refused`.
        reason: String,
    },
    /// The request was refused as a whole, and it cannot be told for which of its messages: none was accepted,
    /// and each is to be tried alone. Never the verdict on a request with one message.
    Apart {
        /// E.g. `http 422 validation_error`.
        reason: String,
    },
    /// It may have been accepted: the request was written, and no answer came or none that can be read.
    Unknown {
        /// E.g. `timeout after the request was written`.
        reason: String,
    },
}

/// How one provider is spoken to.
pub trait Provider: Send + Sync {
    /// The most messages one request takes; 1 without a batch call that tells of each message.
    fn batch_limit(&self) -> usize {
        1
    }

    /// Whether these messages may share a request: some batch calls want the same contents.
    fn may_share(&self, _first: &Message, _other: &Message) -> bool {
        true
    }

    /// Whether the provider itself recognises a request that it has had, so that sending it again is safe.
    fn is_idempotent(&self) -> bool;

    /// The request that carries these messages, never more than [`Provider::batch_limit`].
    ///
    /// # Errors
    /// Why the messages cannot be put into one; each is then tried alone, and one alone is permanent.
    fn request(&self, messages: &[&Message], now: SystemTime) -> Result<Request, String>;

    /// One verdict for each of the messages of the request, in their order.
    fn verdicts(&self, messages: usize, answer: &Answer<'_>) -> Vec<Verdict>;
}
