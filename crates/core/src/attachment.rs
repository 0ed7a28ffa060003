//! A file of a message. Pure.

use bytes::Bytes;

/// A file that is sent with a message: an attachment, or an image that its HTML shows.
///
/// `Debug` shows neither its name nor its contents.
#[derive(Clone, Default)]
pub struct Attachment {
    /// 1 to 255 octets, without control characters and slashes, and with an extension.
    pub filename: String,
    /// The media type, with its parameters if it has some: `text/calendar; method=REQUEST`. At most 78 octets, ASCII.
    pub content_type: String,
    /// The id by which the HTML refers to it, as `cid:` and the id, without angle brackets; `None` for an attachment that is
    /// not shown.
    pub content_id: Option<String>,
    /// The contents. Mails that have the same file share them.
    pub content: Bytes,
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Attachment").finish_non_exhaustive()
    }
}
