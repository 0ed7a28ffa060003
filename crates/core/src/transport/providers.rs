//! Providers: how to build their requests, and what their responses mean. Pure.
//!
//! There is one file for each provider. A provider builds requests and classifies responses; it never opens a
//! connection, waits or logs. The formats are those of the providers' published documentation.

use std::time::SystemTime;

use bytes::Bytes;
use hyper::{HeaderMap, Uri};

use super::capabilities::Capabilities;
use super::credentials::Credentials;
use super::invalid::Invalid;
use super::network_policy::Exposed;
use crate::message::Message;

mod bodies;
mod classify;
mod endpoint;
#[cfg(test)]
pub(crate) mod fixture;
mod form;
pub(super) mod headers;
mod json;
mod mac;
pub(super) mod mailbox;
mod mailgun;
mod outcome;
mod postmark;
mod resend;
mod sendgrid;
mod ses;
mod sigv4;
mod webhook;

pub use outcome::MessageOutcome;

/// Maximum characters of a tag.
const TAG_MAX: usize = 128;

/// The kind of a mail as a tag that every provider accepts.
fn tag(message: &Message) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let mapped = message.kind.chars().map(|c| if fits(c) { c } else { '_' });
    mapped.take(TAG_MAX).collect()
}

/// A provider of [`ALL`].
pub(super) struct Entry {
    /// Its name in the transports file.
    pub(super) name: &'static str,
    /// Whether its credential is the key `api_key`.
    pub(super) has_api_key: bool,
    create: Create,
}

/// Creates a provider from its endpoint, `from` and its credentials, which it takes over.
type Create = fn(&str, &str, &Credentials) -> Result<Box<dyn Provider>, Invalid>;

const fn entry(name: &'static str, has_api_key: bool, create: Create) -> Entry {
    Entry {
        name,
        has_api_key,
        create,
    }
}

/// All providers. A new one is a line here, and a file beside this one.
pub(super) const ALL: [Entry; 6] = [
    entry("webhook", false, |endpoint, from, credentials| {
        Ok(Box::new(webhook::Webhook::new(
            endpoint,
            from,
            credentials,
        )?))
    }),
    entry("ses", false, |endpoint, from, credentials| {
        Ok(Box::new(ses::Ses::new(endpoint, from, credentials)?))
    }),
    entry("sendgrid", true, |endpoint, from, credentials| {
        Ok(Box::new(sendgrid::SendGrid::new(
            endpoint,
            from,
            credentials,
        )?))
    }),
    entry("postmark", true, |endpoint, from, credentials| {
        Ok(Box::new(postmark::Postmark::new(
            endpoint,
            from,
            credentials,
        )?))
    }),
    entry("resend", true, |endpoint, from, credentials| {
        Ok(Box::new(resend::Resend::new(endpoint, from, credentials)?))
    }),
    entry("mailgun", true, |endpoint, from, credentials| {
        Ok(Box::new(mailgun::Mailgun::new(
            endpoint,
            from,
            credentials,
        )?))
    }),
];

/// Creates the provider of this name. `endpoint` and `from` may be empty if the provider has a default or needs none.
/// The provider takes its credentials over.
///
/// # Errors
/// The key that is missing or invalid.
pub fn choose(
    name: &str,
    endpoint: &str,
    from: &str,
    credentials: &Credentials,
) -> Result<Box<dyn Provider>, Invalid> {
    match ALL.iter().find(|entry| entry.name == name) {
        Some(entry) => (entry.create)(endpoint, from, credentials),
        None => Err(Invalid::new("provider", "is not one that mailroom knows")),
    }
}

/// One POST request. It has no `Debug`, because the headers contain the API key and the body the signed token.
pub struct Request {
    /// The URL.
    pub uri: Uri,
    /// All headers except `host`, `content-length` and `user-agent`, which the client adds.
    pub headers: HeaderMap,
    /// Equal for equal messages, except for the time: a repeated batch is byte by byte the same.
    pub body: Bytes,
}

/// A response. The body is cut at the client's limit.
pub struct Response<'a> {
    /// The status code, 3xx included: redirects are not followed.
    pub status: u16,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: &'a [u8],
    /// Whether the connection or the time ended before the body did. A body that was cut at the limit is none of these:
    /// no true success is that long.
    pub is_broken_off: bool,
    /// The time of its arrival, for a `Retry-After` that is a date.
    pub now: SystemTime,
}

/// The protocol of one provider.
pub trait Provider: Capabilities {
    /// The request with these messages, at most [`Capabilities::batch_limit`].
    ///
    /// # Errors
    /// Why the messages cannot be put into one request. Each is then tried alone; an error for a single message is
    /// permanent.
    fn request(&self, messages: &[&Message], now: SystemTime) -> Result<Request, String>;

    /// What a request exposes to the network if the endpoint has no TLS.
    fn exposed(&self) -> Exposed {
        Exposed::Credentials
    }

    /// One outcome for each message of the request, in order.
    fn outcomes(&self, messages: usize, response: &Response<'_>) -> Vec<MessageOutcome>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn domains_go_in_ascii_and_kinds_as_tags() {
        let all = fixture::credentials(
            "api_key = a\nregion = c\naccess_key_id = d\nsecret_access_key = e",
        );
        let mut message = fixture::plain(1);
        message.kind = "Grüße an alle!".repeat(20);
        message.recipients = vec!["ada@bücher.example".to_owned()];
        message.reply_to = vec!["help@bücher.example".to_owned()];
        assert_eq!(tag(&message).len(), TAG_MAX);
        assert!(tag(&message).starts_with("Gr__e_an_alle_"));
        for sender in ["ses", "sendgrid", "postmark", "resend", "mailgun"] {
            let provider = choose(sender, "", "Bücher <a@bücher.example>", &all).unwrap();
            let request = provider.request(&[&message], UNIX_EPOCH).unwrap();
            let body = String::from_utf8_lossy(&request.body).replace("%40", "@");
            assert!(
                body.contains("ada@xn--bcher-kva.example"),
                "{sender}: {body}"
            );
            assert!(body.contains("a@xn--bcher-kva.example"), "{sender}: {body}");
            assert!(
                body.contains("help@xn--bcher-kva.example"),
                "{sender}: {body}"
            );
            assert!(!body.contains("bücher.example"), "{sender}: {body}");
            assert!(body.contains(&tag(&message)), "{sender}: {body}");
        }
    }

    #[test]
    fn a_sender_beyond_ascii_is_for_those_that_take_it() {
        let all = fixture::credentials(&format!(
            "secret = whsec_{}\napi_key = a\nregion = c\naccess_key_id = d\nsecret_access_key = e",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        ));
        for Entry { name: sender, .. } in ALL {
            let chosen = choose(sender, "https://a.example", "jörg@example.com", &all);
            match sender {
                "webhook" | "sendgrid" => assert!(chosen.is_ok(), "{sender}"),
                _ => assert_eq!(
                    chosen.err().unwrap().to_string(),
                    "from has letters beyond ASCII before the @, which the provider does not take"
                ),
            }
        }
    }

    #[test]
    fn each_makes_a_text_of_mail_with_html_alone() {
        let all = fixture::credentials(&format!(
            "secret = whsec_{}\napi_key = a\nregion = c\naccess_key_id = d\nsecret_access_key = e",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        ));
        let message = Message {
            body_text: None,
            body_html: Some("<p>Only <b>this</b></p>".to_owned()),
            ..fixture::plain(1)
        };
        for Entry { name: sender, .. } in ALL {
            let provider = choose(sender, "https://a.example", "a@example.com", &all).unwrap();
            let request = provider.request(&[&message], UNIX_EPOCH).unwrap();
            let body = String::from_utf8_lossy(&request.body).replace('+', " ");
            assert!(body.contains("Only this"), "{sender}: {body}");
        }
    }

    #[test]
    fn each_knows_the_size_that_it_takes() {
        let all = fixture::credentials(&format!(
            "secret = whsec_{}\napi_key = a\nregion = c\naccess_key_id = d\nsecret_access_key = e",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        ));
        let sizes = ALL.map(|Entry { name, .. }| {
            let provider = choose(name, "https://a.example", "a@example.com", &all).unwrap();
            (name, provider.max_message_size())
        });
        assert_eq!(
            sizes,
            [
                ("webhook", None),
                ("ses", Some(40_000_000)),
                ("sendgrid", Some(30_000_000)),
                ("postmark", Some(10_000_000)),
                ("resend", Some(40_000_000)),
                ("mailgun", Some(25_000_000)),
            ]
        );
    }

    #[test]
    fn unknown_providers_are_refused() {
        let credentials = fixture::credentials("api_key = hunter2");
        for sender in ["outbox", "", "smtp"] {
            assert!(choose(sender, "https://a.example", "a@example.com", &credentials).is_err());
        }
    }

    #[test]
    fn each_wants_what_it_cannot_do_without() {
        let none = fixture::credentials("");
        for (sender, field) in [
            ("webhook", "secret"),
            ("ses", "region"),
            ("sendgrid", "api_key"),
            ("postmark", "api_key"),
            ("resend", "api_key"),
            ("mailgun", "api_key"),
        ] {
            let error = choose(sender, "", "a@example.com", &none).err().unwrap();
            assert_eq!(error, Invalid::missing(field));
        }
        let all = fixture::credentials(
            "api_key = a\nregion = c\naccess_key_id = d\nsecret_access_key = e",
        );
        for sender in ["ses", "sendgrid", "postmark", "resend", "mailgun"] {
            let error = choose(sender, "", "", &all).err().unwrap();
            assert_eq!(error, Invalid::missing("from"));
        }
    }

    #[test]
    fn an_endpoint_with_the_path_of_requests_is_refused() {
        let all = fixture::credentials(
            "api_key = a\nregion = c\naccess_key_id = d\nsecret_access_key = e",
        );
        for (sender, path) in [
            ("mailgun", "/v3"),
            ("mailgun", "/v3/example.com"),
            ("mailgun", "/v3/example.com/messages"),
            ("sendgrid", "/v3"),
            ("sendgrid", "/v3/mail/send"),
            ("postmark", "/email"),
            ("postmark", "/email/batch"),
            ("resend", "/emails"),
            ("resend", "/emails/batch"),
            ("ses", "/v2/email"),
            ("ses", "/v2/email/outbound-emails"),
            ("ses", "/v2/email/outbound-bulk-emails"),
        ] {
            for slash in ["", "/"] {
                let endpoint = format!("https://api.example.net{path}{slash}");
                let error = choose(sender, &endpoint, "a@example.com", &all);
                let what = format!(
                    "must not end with {path}, which mailroom appends; write what is before it"
                );
                assert_eq!(
                    error.err(),
                    Some(Invalid::new("endpoint", what)),
                    "{sender}"
                );
            }
        }
    }

    #[test]
    fn what_several_mails_take_has_a_verdict_for_each() {
        let all = fixture::credentials(&format!(
            "secret = whsec_{}\napi_key = a\nregion = c\naccess_key_id = d\nsecret_access_key = e",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        ));
        for Entry { name: sender, .. } in ALL {
            let provider = choose(sender, "https://a.example", "a@example.com", &all).unwrap();
            for messages in [1, provider.batch_limit()] {
                for status in (100..600).step_by(7).chain([200, 202, 400, 422, 429, 500]) {
                    for body in ["", "{}", "[]", "null", "<html>", "[{}]"] {
                        let outcomes = fixture::outcomes(&*provider, messages, status, body);
                        let apart = outcomes
                            .iter()
                            .any(|v| matches!(v, MessageOutcome::SendAlone { .. }));
                        assert!(messages > 1 || !apart, "{sender} {status} {body}");
                        let sent = outcomes
                            .iter()
                            .any(|v| matches!(v, MessageOutcome::Sent { .. }));
                        assert!(!sent || (200..300).contains(&status));
                    }
                }
            }
        }
    }
}
