//! A file of a message, and what its name, type and content id may be. Pure.
//!
//! Lengths are in octets of UTF-8.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::line::{self, Named};

mod content_type;
#[cfg(test)]
mod tests;

/// Maximum number of files of a message.
const COUNT_MAX: usize = 20;
/// Maximum octets of a name.
const FILENAME_MAX: usize = 255;
/// Maximum characters of a content id before its `@`.
const ID_MAX: usize = 64;
/// Maximum characters of a content id behind its `@`: SES takes 78 in all.
const ID_DOMAIN_MAX: usize = 13;
/// What a content id has to match.
const ID_PATTERN: &str = "^[A-Za-z0-9._+-]{1,64}(@[A-Za-z0-9.-]{1,13})?$";

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

impl Attachment {
    /// `inline` for a file that the HTML shows, and `attachment` for another one.
    pub fn disposition(&self) -> &'static str {
        match self.content_id {
            Some(_) => "inline",
            None => "attachment",
        }
    }

    /// The content type without its parameters.
    pub fn media_type(&self) -> &str {
        let end = self.content_type.find(';');
        self.content_type[..end.unwrap_or(self.content_type.len())].trim_end()
    }

    /// The contents in base64, without line ends.
    pub fn base64(&self) -> String {
        STANDARD.encode(&self.content)
    }
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Attachment").finish_non_exhaustive()
    }
}

/// Judges name, type and content id of a file. Returns its content type: the one that was given, or that of the extension.
///
/// # Errors
/// The first rule that they violate. The reason names the field and quotes no value.
pub fn judge(
    filename: &str,
    content_type: Option<&str>,
    content_id: Option<&str>,
) -> Result<String, String> {
    let extension = check_filename(filename)?;
    let content_type = match content_type {
        Some(given) => {
            content_type::check(given, &extension)?;
            given
        }
        None => content_type::of_extension(&extension),
    };
    if content_id.is_some_and(|id| !is_content_id(id)) {
        return Err(format!("content_id does not match {ID_PATTERN}"));
    }
    Ok(content_type.to_owned())
}

/// Judges the files of a message together, by their content ids in their order: there are not too many, no id is there
/// twice, and the message has HTML if a file has one.
///
/// # Errors
/// The first rule that they violate.
pub fn judge_all(content_ids: &[Option<&str>], has_html: bool) -> Result<(), String> {
    let count = content_ids.len();
    if count > COUNT_MAX {
        return Err(format!(
            "attachments has {count} files, at most {COUNT_MAX} are allowed"
        ));
    }
    for (index, id) in content_ids.iter().enumerate() {
        let Some(id) = id else { continue };
        let place = index + 1;
        if !has_html {
            return Err(format!(
                "attachments[{place}] has a content_id, which needs body_html"
            ));
        }
        let mut earlier = content_ids[..index].iter();
        if let Some(first) = earlier.position(|other| other.as_ref() == Some(id)) {
            let first = first + 1;
            return Err(format!(
                "attachments[{place}] has the content_id of attachments[{first}]"
            ));
        }
    }
    Ok(())
}

/// Checks a name. Returns its extension in lower case.
fn check_filename(filename: &str) -> Result<String, String> {
    let octets = filename.len();
    if filename.is_empty() {
        return Err("filename is empty".to_owned());
    }
    if octets > FILENAME_MAX {
        return Err(format!(
            "filename has {octets} octets, at most {FILENAME_MAX} are allowed"
        ));
    }
    if let Some(found) = line::first_control(filename) {
        return Err(format!(
            "filename contains the control character {}",
            Named(found)
        ));
    }
    if let Some(found) = filename.chars().find(|c| matches!(c, '/' | '\\')) {
        return Err(format!("filename contains {}", Named(found)));
    }
    match filename.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() && !extension.is_empty() => {
            Ok(extension.to_lowercase())
        }
        _ => Err("filename has no extension".to_owned()),
    }
}

/// Whether this matches [`ID_PATTERN`].
fn is_content_id(id: &str) -> bool {
    let is_made_of = |text: &str, most: usize, others: &[u8]| {
        (1..=most).contains(&text.len())
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
    };
    let (local, domain) = match id.split_once('@') {
        Some((local, domain)) => (local, Some(domain)),
        None => (id, None),
    };
    is_made_of(local, ID_MAX, b"._+-")
        && domain.is_none_or(|domain| is_made_of(domain, ID_DOMAIN_MAX, b".-"))
}
