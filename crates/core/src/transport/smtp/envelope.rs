//! The envelope of a message, as MAIL and RCPT commands. Pure.

use super::extensions::Extensions;
use super::outcome::Stage;
use crate::address;
use crate::transport::mime;
use crate::transport::providers::MessageOutcome;
use crate::transport::providers::mailbox::{Mailbox, Ready};

/// The envelope and content of one message.
pub(super) struct Envelope<'m> {
    from: &'m str,
    /// Whether the message says whom it is from.
    is_own_sender: bool,
    /// To, Cc and Bcc, each mailbox once.
    pub recipients: Vec<&'m str>,
    id: &'m str,
    /// Failed attempts so far.
    pub attempts: i32,
    /// Whether this attempt is the last.
    pub is_last_attempt: bool,
    needs_utf8: bool,
    /// Headers and body, with CR LF line ends.
    pub content: &'m [u8],
}

impl<'m> Envelope<'m> {
    /// The envelope of a message that [`mime::build`] wrote.
    pub fn new(
        from: &'m Mailbox,
        bounces: Option<&'m str>,
        ready: &'m Ready<'m>,
        content: &'m [u8],
    ) -> Self {
        let message = ready.message;
        let recipients = address::mailboxes(ready.recipients().map(Mailbox::address));
        Self {
            from: bounces.unwrap_or_else(|| ready.from(from).address()),
            is_own_sender: message.from_address.is_some(),
            recipients,
            id: &message.message_id,
            attempts: message.attempts,
            is_last_attempt: message.is_last_attempt,
            needs_utf8: mime::needs_utf8(from, ready) || bounces.is_some_and(|to| !to.is_ascii()),
            content,
        }
    }

    /// The same message to some of its recipients, after others got it: there is no later attempt for these.
    pub fn to<'r>(&'r self, recipients: impl Iterator<Item = &'r str>) -> Envelope<'r> {
        Envelope {
            recipients: recipients.collect(),
            is_last_attempt: true,
            ..*self
        }
    }

    /// Checks whether a server with these extensions can accept the message.
    ///
    /// # Errors
    /// `AccountRefused` if it can accept no message of this sender, `Unsendable` if it cannot accept this one; the reason
    /// quotes no part of the message.
    pub fn fits(&self, extensions: Extensions) -> Result<(), MessageOutcome> {
        if !self.from.is_ascii() && !self.is_own_sender && !extensions.utf8 {
            let reason =
                "from has letters beyond ASCII before the @, and the server has no SMTPUTF8: \
                          use another address in from"
                    .to_owned();
            return Err(MessageOutcome::AccountRefused { reason });
        }
        if self.needs_utf8 && !extensions.utf8 {
            let reason =
                "an address has letters beyond ASCII before the @, and the server has no SMTPUTF8"
                    .to_owned();
            return Err(MessageOutcome::Unsendable { reason });
        }
        let size = self.content.len();
        match extensions.size_limit {
            Some(limit) if size > limit => {
                let reason =
                    format!("the mail has {size} bytes, and the server takes {limit} at most");
                Err(MessageOutcome::Unsendable { reason })
            }
            _ => Ok(()),
        }
    }

    /// The MAIL command.
    pub fn mail(&self, extensions: Extensions) -> String {
        let mut line = format!("MAIL FROM:<{}>", self.from);
        if extensions.size {
            line.push_str(&format!(" SIZE={}", self.content.len()));
        }
        if extensions.eight_bit && !self.content.is_ascii() {
            line.push_str(" BODY=8BITMIME");
        }
        if self.needs_utf8 {
            line.push_str(" SMTPUTF8");
        }
        if extensions.dsn {
            line.push_str(&format!(" RET=HDRS ENVID={}", self.id));
        }
        line + "\r\n"
    }

    /// The RCPT command of one recipient.
    pub fn rcpt(&self, recipient: &str, extensions: Extensions) -> String {
        let notify = if extensions.dsn {
            " NOTIFY=FAILURE,DELAY"
        } else {
            ""
        };
        format!("RCPT TO:<{recipient}>{notify}\r\n")
    }

    /// The stage in which the server replies to the content.
    pub fn text_stage(&self) -> Stage {
        if self.recipients.len() == 1 {
            Stage::TextToOne
        } else {
            Stage::TextToSeveral
        }
    }
}
