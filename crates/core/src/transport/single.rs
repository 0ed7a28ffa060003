//! Transports that take one message at a time and do not use HTTP: an SMTP relay, a directory, the log.

use std::time::{Duration, SystemTime};

use super::capabilities::Capabilities;
use super::delivered::{Delivered, Tell};
use super::file::Directory;
use super::log;
use super::smtp::Relay;
use crate::message::Message;

/// Where messages go.
pub enum Single {
    /// To an SMTP relay.
    Smtp(Box<Relay>),
    /// Into files.
    File(Directory),
    /// Into the log, in place of sending.
    Log,
}

impl Single {
    /// Checks whether the message can be delivered at all.
    ///
    /// # Errors
    /// Why it cannot; the reason quotes no part of it.
    pub fn check(&self, message: &Message) -> Result<(), String> {
        match self {
            Self::Smtp(relay) => relay.check(message),
            Self::File(directory) => directory.check(message),
            Self::Log => Ok(()),
        }
    }

    /// Delivers one message. Returns also the line for the log, if that is where it goes. `before_end` is called before the
    /// last part of the message is written: if the returned future is dropped earlier, the message was not sent.
    pub async fn deliver(
        &self,
        message: &Message,
        now: SystemTime,
        before_end: &mut Tell<'_>,
    ) -> (Delivered, Option<String>) {
        match self {
            Self::Smtp(relay) => (relay.send_telling(message, now, before_end).await, None),
            Self::File(directory) => {
                before_end(None);
                (directory.deliver(message, now), None)
            }
            Self::Log => {
                before_end(None);
                let (delivered, line) = log::deliver(message);
                (delivered, Some(line))
            }
        }
    }
}

/// None of them recognizes a repeated message.
impl Capabilities for Single {
    fn idempotency_window(&self) -> Option<Duration> {
        None
    }
}
