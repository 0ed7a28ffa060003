//! A message in the format of RFC 5322 and MIME. Pure.
//!
//! Bodies are encoded as 7-bit text (quoted-printable or base64 if needed), which every server accepts. Headers are
//! ASCII, except for addresses with a non-ASCII local part, which need a server with SMTPUTF8. `Bcc` is never written. The SMTP client doubles dots at line starts.
//!
//! With files, a message is mixed[alternative[text, related[HTML, files that it shows …]], other files …]; a level that
//! would have one part is left out.

use std::borrow::Cow;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mail_builder::MessageBuilder;
use mail_builder::headers::content_type::ContentType;
use mail_builder::headers::message_id::MessageId;
use mail_builder::headers::raw::Raw;
use mail_builder::headers::text::Text;
use mail_builder::mime::MimePart;

use super::providers::headers;
use super::providers::mailbox::{self, Mailbox, Ready};
use super::{dates, encode};
use crate::attachment::Attachment;
use crate::line;
use crate::message::Message;

#[cfg(test)]
mod tests;

/// Bytes of a line, its end aside (RFC 5322, section 2.1.1).
const LINE_MAX: usize = 998;
/// Bytes that one line of base64 encodes: it has 76.
const BASE64_LINE: usize = 57;
/// Bytes of a `message_id`: a UUID has 36.
const ID_MAX: usize = 128;

/// The message at `now`, with CR LF line ends. It is from `from`, unless it says whom it is from.
///
/// # Errors
/// Why the message cannot be written; the reason quotes no part of it.
pub(super) fn build(from: &Mailbox, ready: &Ready<'_>, now: SystemTime) -> Result<Vec<u8>, String> {
    let message = ready.message;
    let from = ready.from(from);
    check_id(message)?;
    if line::first_control(&message.subject).is_some() {
        return Err("the subject has a control character".to_owned());
    }
    let id = format!("{}@{}", message.message_id, from.domain());
    let date = i64::try_from(dates::unix(now)).unwrap_or(i64::MAX);
    let mut builder = MessageBuilder::new()
        .header("From", raw("From", mailbox::ascii_text(from)))
        .header("To", addresses("To", &ready.to));
    if !ready.cc.is_empty() {
        builder = builder.header("Cc", addresses("Cc", &ready.cc));
    }
    if !ready.reply_to.is_empty() {
        builder = builder.header("Reply-To", addresses("Reply-To", &ready.reply_to));
    }
    builder = match encode::text(&message.subject) {
        Cow::Borrowed(plain) => builder.header("Subject", Text::new(plain)),
        Cow::Owned(words) => builder.header("Subject", raw("Subject", words)),
    };
    builder = builder.date(date).message_id(MessageId::new(id));
    for (name, value) in headers::all(ready) {
        let value = raw(&name, value);
        builder = builder.header(name, value);
    }
    let builder = builder.body(body(ready)?);
    let mut bytes = builder.write_to_vec().map_err(|error| error.to_string())?;
    if !bytes.ends_with(b"\r\n") {
        bytes.extend_from_slice(b"\r\n");
    }
    check_lines(&bytes)?;
    Ok(bytes)
}

/// Whether the message needs a server with SMTPUTF8: an address has a non-ASCII local part.
pub(super) fn needs_utf8(from: &Mailbox, ready: &Ready<'_>) -> bool {
    !ready.from(from).address().is_ascii() || !ready.is_ascii()
}

/// Checks the `message_id`, which becomes part of headers, SMTP parameters and file names.
///
/// # Errors
/// When it has other characters than a UUID.
pub(super) fn check_id(message: &Message) -> Result<(), String> {
    let id = &message.message_id;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if (1..=ID_MAX).contains(&id.len()) && id.bytes().all(fits) {
        Ok(())
    } else {
        Err("the message_id is no UUID".to_owned())
    }
}

/// A header of which the value is written as it is. The builder folds only what has no encoded words.
fn raw(name: &str, value: String) -> Raw<'static> {
    Raw::new(mailbox::fold(name, value))
}

/// The header of this name with these mailboxes.
fn addresses(name: &str, list: &[Mailbox]) -> Raw<'static> {
    let one = |mailbox: &Mailbox| match mailbox.name() {
        Some(_) => mailbox::ascii_text(mailbox),
        None => format!("<{}>", mailbox.address()),
    };
    raw(name, list.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn body(ready: &Ready<'_>) -> Result<MimePart<'static>, String> {
    // Without HTML, nothing shows a file.
    let is_shown = |file: &&Attachment| ready.html.is_some() && file.content_id.is_some();
    let files = ready.message.attachments.iter();
    let (shown, others): (Vec<_>, Vec<_>) = files.partition(is_shown);
    let text = ready.text.as_deref().map(|text| part("text/plain", text));
    let html = ready.html.map(|html| {
        let kind = ContentType::new("multipart/related").attribute("type", "text/html");
        with_files(kind, part("text/html", html), &shown)
    });
    let said = match (text, html) {
        (Some(text), Some(html)) => MimePart::new("multipart/alternative", vec![text, html]),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => return Err("there is no body".to_owned()),
    };
    Ok(with_files(
        ContentType::new("multipart/mixed"),
        said,
        &others,
    ))
}

/// A multipart of this kind of a part and the files behind it; the part itself if there are none.
fn with_files(
    kind: ContentType<'static>,
    first: MimePart<'static>,
    files: &[&Attachment],
) -> MimePart<'static> {
    if files.is_empty() {
        return first;
    }
    let files = files.iter().map(|one| file(one));
    let parts: Vec<_> = std::iter::once(first).chain(files).collect();
    MimePart::new(kind, parts)
}

/// A file. Its name is in both headers: some readers know it in that of the type only, and as encoded words, which the
/// standards do not allow there.
fn file(file: &Attachment) -> MimePart<'static> {
    let name = encode::text(&file.filename).replace('"', "\\\"");
    let kind = format!("{}; name=\"{name}\"", file.content_type);
    let disposition =
        ContentType::new(file.disposition()).attribute("filename", file.filename.clone());
    let part = MimePart::raw(base64(&file.content))
        .header("Content-Type", raw("Content-Type", kind))
        .header("Content-Disposition", disposition)
        .transfer_encoding("base64");
    match &file.content_id {
        Some(id) => part.cid(id.clone()),
        None => part,
    }
}

/// One body with CR LF line ends.
fn part(kind: &'static str, text: &str) -> MimePart<'static> {
    let lines = normalize(text);
    let is_odd = |c: char| c.is_ascii_control() && !matches!(c, '\r' | '\n' | '\t');
    if !lines.contains(is_odd) {
        return MimePart::new(kind, lines);
    }
    // The builder copies control characters, which RFC 5322 does not allow.
    MimePart::new(kind, base64(lines.as_bytes())).transfer_encoding("base64")
}

/// Base64 in lines of 76 characters.
fn base64(bytes: &[u8]) -> String {
    let lines = bytes.len().div_ceil(BASE64_LINE);
    let mut encoded = String::with_capacity(lines * (BASE64_LINE / 3 * 4 + 2));
    for chunk in bytes.chunks(BASE64_LINE) {
        STANDARD.encode_string(chunk, &mut encoded);
        encoded.push_str("\r\n");
    }
    encoded
}

/// Replaces each CR, LF and CR LF by CR LF.
fn normalize(text: &str) -> String {
    let mut lines = String::with_capacity(text.len() + text.len() / 32);
    let mut rest = text;
    while let Some(at) = rest.find(['\r', '\n']) {
        lines.push_str(&rest[..at]);
        lines.push_str("\r\n");
        let end = &rest[at..];
        rest = end.strip_prefix("\r\n").unwrap_or(&end[1..]);
    }
    lines.push_str(rest);
    lines
}

/// Checks the limits that RFC 5322 sets for all lines.
fn check_lines(bytes: &[u8]) -> Result<(), String> {
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let line = line
            .strip_suffix(b"\r\n")
            .ok_or("the message has a line that does not end as one")?;
        if line.len() > LINE_MAX {
            return Err(format!("the message has a line of over {LINE_MAX} bytes"));
        }
        if line.iter().any(|byte| matches!(byte, b'\r' | 0)) {
            return Err("the message has a byte that no server takes".to_owned());
        }
    }
    Ok(())
}
