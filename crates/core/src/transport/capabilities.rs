//! The properties of a transport by which the deliverer forms and repeats requests. Pure.

use std::sync::Arc;
use std::time::Duration;

use super::rate::Rate;
use crate::address::{self, mailbox};
use crate::message::Message;

/// The megabyte in which providers state the size of a message.
pub(super) const MEGABYTE: u64 = 1_000_000;

/// The properties of a transport.
pub trait Capabilities: Send + Sync {
    /// The maximum number of messages in one request; 1 if the provider has no batch call with a result for each message.
    fn batch_limit(&self) -> usize {
        1
    }

    /// Whether these messages may be in one request: some batch calls need the same contents.
    fn may_share(&self, _first: &Message, _other: &Message) -> bool {
        true
    }

    /// Whether a response of the provider that a message was accepted has a sign that no other server's has. Without one,
    /// any status of success accepts a message.
    fn has_success_sign(&self) -> bool {
        false
    }

    /// The maximum size of a message in bytes as it is sent, base64 included; `None` if none is known.
    fn max_message_size(&self) -> Option<u64> {
        None
    }

    /// How long after a request the provider recognizes its repetition, at least, so that repeating it is safe; `None` if it
    /// recognizes none.
    fn idempotency_window(&self) -> Option<Duration>;
}

/// The configuration of one transport, as far as the state machine reads it.
#[derive(Clone)]
pub struct DeliveryConfig {
    /// Batch size, idempotency and other properties of the provider.
    pub capabilities: Arc<dyn Capabilities>,
    /// Maximum number of concurrent requests.
    pub concurrency: usize,
    /// The maximum rate, in the unit that the provider counts.
    pub rate: Option<Rate>,
    /// How many ambiguous attempts of one mail are repeated.
    pub max_ambiguous: i32,
    /// Whether events of the provider are expected, which tell what became of an ambiguous attempt.
    pub has_events: bool,
    /// Allowed sender addresses, `*@domain` for all addresses of a domain; empty if neither these nor `from` are given. Mail
    /// without a sender of its own is from `from` in any case.
    pub allow_from: Vec<String>,
    /// Identifies the account at the provider: name, provider, endpoint, sender address, digest of the key. Only this
    /// account recognizes a repeated request.
    pub account: String,
}

impl DeliveryConfig {
    /// Checks that the transport may send this message: its sender is one of `allow_from`, and it is not too large.
    ///
    /// # Errors
    /// Why it may not.
    pub fn check(&self, message: &Message) -> Result<(), String> {
        self.check_sender(message)?;
        let Some(max) = self.capabilities.max_message_size() else {
            return Ok(());
        };
        let size = message.encoded_bytes();
        if size > max {
            return Err(format!(
                "it has about {size} bytes as it is sent, and the transport takes {max} at most"
            ));
        }
        Ok(())
    }

    fn check_sender(&self, message: &Message) -> Result<(), String> {
        let Some(from) = message.from_address.as_deref().map(mailbox::bare) else {
            return Ok(());
        };
        let mut patterns = self.allow_from.iter();
        if patterns.any(|pattern| address::is_allowed(pattern, from)) {
            return Ok(());
        }
        Err("from_address is not in allow_from of the transport".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::Attachment;

    struct Small;

    impl Capabilities for Small {
        fn max_message_size(&self) -> Option<u64> {
            Some(1_377)
        }

        fn idempotency_window(&self) -> Option<Duration> {
            None
        }
    }

    fn config() -> DeliveryConfig {
        DeliveryConfig {
            capabilities: Arc::new(Small),
            concurrency: 1,
            rate: None,
            max_ambiguous: 1,
            has_events: false,
            allow_from: vec!["*@example.com".to_owned()],
            account: "small".to_owned(),
        }
    }

    #[test]
    fn a_message_that_is_too_large_encoded_is_refused() {
        let with_file = |bytes: usize| Message {
            subject: "123".to_owned(),
            body_text: Some("1".to_owned()),
            body_html: Some("1".to_owned()),
            attachments: vec![Attachment {
                content: vec![0; bytes].into(),
                ..Attachment::default()
            }],
            ..Message::default()
        };
        assert_eq!(with_file(1_000).encoded_bytes(), 3 + 2 * 2 + 1_370);
        assert_eq!(config().check(&with_file(1_000)), Ok(()));
        assert_eq!(
            config().check(&with_file(1_001)).unwrap_err(),
            "it has about 1378 bytes as it is sent, and the transport takes 1377 at most"
        );
    }

    #[test]
    fn a_sender_that_is_not_allowed_is_refused() {
        let from = |address: &str| Message {
            from_address: Some(address.to_owned()),
            ..Message::default()
        };
        assert_eq!(config().check(&from("Ann <a@example.com>")), Ok(()));
        assert_eq!(
            config().check(&from("a@example.net")).unwrap_err(),
            "from_address is not in allow_from of the transport"
        );
    }
}
