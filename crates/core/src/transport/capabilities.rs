//! The properties of a transport by which the deliverer forms and repeats requests. Pure.

use std::sync::Arc;
use std::time::Duration;

use super::rate::Rate;
use crate::address::{self, mailbox};
use crate::message::Message;

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
    /// Allowed sender addresses, `*@domain` for all addresses of a domain; empty if neither these nor `from` are given. Mail
    /// without a sender of its own is from `from` in any case.
    pub allow_from: Vec<String>,
    /// Identifies the account at the provider: name, provider, endpoint, sender address, digest of the key. Only this
    /// account recognizes a repeated request.
    pub account: String,
}

impl DeliveryConfig {
    /// Checks that the transport may send this message: its sender is one of `allow_from`.
    ///
    /// # Errors
    /// That it may not.
    pub fn check_sender(&self, message: &Message) -> Result<(), String> {
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
