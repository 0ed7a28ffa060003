//! A mail as it was claimed, on its way to a provider. Pure.

use serde_json::value::RawValue;

/// One claimed row of the outbox, rendered and ready to be sent.
///
/// `Debug` tells the id alone: subject, bodies and data may carry a signed token.
#[derive(Clone)]
pub struct Message {
    /// `outbox.id`.
    pub id: i64,
    /// `outbox.message_id` in its text form: the same over all attempts, the idempotency key.
    pub message_id: String,
    /// `activation`, `password_recovery`, or the application's own.
    pub kind: String,
    /// At least one address, as they were checked when the mail was scheduled.
    pub recipients: Vec<String>,
    /// Addresses that everybody sees.
    pub cc: Vec<String>,
    /// Addresses that nobody else sees.
    pub bcc: Vec<String>,
    /// All addresses that the mail would go to, if it is redirected to another one; otherwise empty.
    pub original_recipients: Vec<String>,
    /// Without line breaks.
    pub subject: String,
    /// The plain body.
    pub body_text: Option<String>,
    /// The HTML body.
    pub body_html: Option<String>,
    /// The variables of the template; for token mail login, signed token, code and link.
    pub data: Box<RawValue>,
    /// Failed attempts so far.
    pub attempts: i32,
    /// When the mail was scheduled, in seconds since 1970.
    pub created_at: i64,
}

impl Message {
    /// Has it go to this address and to no other, as `mailroom.redirect_to` says.
    pub fn redirect(&mut self, address: String) {
        let mut original = std::mem::replace(&mut self.recipients, vec![address]);
        original.append(&mut self.cc);
        original.append(&mut self.bcc);
        self.original_recipients = original;
    }

    /// Bytes of its subject and bodies.
    pub fn content_bytes(&self) -> usize {
        let bytes = |body: &Option<String>| body.as_deref().map_or(0, str::len);
        self.subject.len() + bytes(&self.body_text) + bytes(&self.body_html)
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Message")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
