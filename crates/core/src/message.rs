//! A message as it was claimed. Pure.

use serde_json::value::RawValue;

use crate::attachment::Attachment;
use crate::row::read_by_name;

read_by_name! {
    /// One claimed row of the outbox, rendered and ready to be sent.
    ///
    /// `Debug` shows the id only: subject, bodies and data may contain a signed token.
    #[derive(Clone, Default)]
    pub struct Message {
        /// `outbox.id`.
        pub id: i64,
        /// `outbox.message_id` as text: the same for all attempts.
        pub message_id: String,
        /// `activation`, `password_recovery`, or a kind of the application.
        pub kind: String,
        /// At least one mailbox, as it was written: `Ann Lee <ann@example.com>`, or an address. They were checked when the
        /// message was scheduled.
        pub recipients: Vec<String>,
        /// Mailboxes of the Cc header.
        pub cc: Vec<String>,
        /// Mailboxes that the other recipients do not see.
        pub bcc: Vec<String>,
        /// Mailboxes of the Reply-To header; without any, answers go to the sender. A redirection leaves them, because
        /// nothing is sent to them.
        pub reply_to: Vec<String>,
        /// The mailbox that the mail is from; `None` for that of the transport.
        pub from_address: Option<String>,
        /// Headers of the application's as a JSON object of strings.
        pub headers: Option<String>,
        /// Where a click unsubscribes (RFC 8058).
        pub unsubscribe_url: Option<String>,
        /// Without line breaks.
        pub subject: String,
        /// The plain body.
        pub body_text: Option<String>,
        /// The HTML body.
        pub body_html: Option<String>,
        /// The variables of the template; for token mail these are login, signed token, code and link.
        pub data: Box<RawValue>,
        /// Failed attempts so far.
        pub attempts: i32,
        /// Whether the next attempt is the last: of `outbox.max_attempts`, or because the message expires then.
        pub is_last_attempt: bool,
        /// When the message was scheduled, in seconds since 1970.
        pub created_at: i64,
        /// The same in full: with microseconds.
        pub created_at_text: String,
        /// When it expires, in seconds since 1970; `None` for no limit.
        pub expires_at: Option<i64>,
        /// `accounts.id` for token mail.
        pub account_id: Option<i64>,
    }
    with {
        /// The original addresses of a redirected message; otherwise empty.
        pub original_recipients: Vec<String>,
        /// Its files, in their order.
        pub attachments: Vec<Attachment>,
    }
}

impl Message {
    /// The lists of addresses, each with its name.
    pub fn address_lists(&self) -> [(&'static str, &Vec<String>); 4] {
        [
            ("recipients", &self.recipients),
            ("cc", &self.cc),
            ("bcc", &self.bcc),
            ("reply_to", &self.reply_to),
        ]
    }

    /// Redirects the message to this address only, for `mailroom.redirect_to`.
    pub fn redirect(&mut self, address: String) {
        let mut original = std::mem::replace(&mut self.recipients, vec![address]);
        original.append(&mut self.cc);
        original.append(&mut self.bcc);
        self.original_recipients = original;
    }

    /// What identifies the message at a provider that recognizes repeated requests: the same for all attempts, over all
    /// transports, and after a dump; another one for each message of other databases, which may have the same
    /// `message_id`.
    pub fn idempotency_key(&self) -> String {
        format!("{}-{}-{}", self.message_id, self.id, self.created_at_text)
    }

    /// Whether it carries a token. An application cannot use these kinds.
    pub fn is_token_mail(&self) -> bool {
        matches!(self.kind.as_str(), "activation" | "password_recovery")
    }

    /// About how many octets it has as it is sent; see [`encoded_size`].
    pub fn encoded_bytes(&self) -> u64 {
        let subject = self.subject.len();
        let bodies = self.content_bytes() - subject;
        let files: usize = self.attachments.iter().map(|file| file.content.len()).sum();
        let [subject, bodies, files] =
            [subject, bodies, files].map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX));
        encoded_size(subject, bodies, files)
    }

    /// Size of subject and bodies in bytes.
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

/// About how many octets a mail has as it is sent, by the octets of its subject, its bodies and its files: bodies may need
/// twice their size, and files are in base64 with line ends.
pub fn encoded_size(subject: u64, bodies: u64, files: u64) -> u64 {
    let files = files.saturating_mul(137) / 100;
    subject
        .saturating_add(bodies.saturating_mul(2))
        .saturating_add(files)
}
