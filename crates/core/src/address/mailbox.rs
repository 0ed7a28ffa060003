//! Mailboxes as in a mail header: an address, or a name and an address, `Ann Lee <ann@example.com>`. Pure.
//!
//! The syntax is that of RFC 5322, section 3.4, as far as every reader agrees on what it means: a name is words and
//! quoted strings. Comments, groups, routes and quoted local parts are refused, because programs that read them
//! differently have sent mail to other addresses. Two things are taken as all readers take them: a dot in a word of a name,
//! and letters beyond ASCII (RFC 6532).
//!
//! A name is text and is never decoded: `=?utf-8?q?x?=` is what a reader will see.

use std::fmt;

use super::AddressError;
use crate::line::{self, Named};

/// Maximum characters of a name.
const NAME_MAX: usize = 128;

/// A mail address with or without a name; its domain is in ASCII.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mailbox {
    name: Option<String>,
    address: String,
}

/// Why a text is not a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailboxError {
    /// The address is not one.
    Address(AddressError),
    /// The name contains this character outside quotes.
    Name(char),
    /// The name has this many characters.
    NameTooLong(usize),
    /// A quote has no end.
    Unquoted,
    /// There is no > at the end.
    NoEnd,
}

impl fmt::Display for MailboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => error.fmt(f),
            Self::Name(found) => write!(f, "has {} in a name without quotes", Named(*found)),
            Self::NameTooLong(characters) => write!(
                f,
                "has a name of {characters} characters, at most {NAME_MAX} are allowed"
            ),
            Self::Unquoted => write!(f, "has a quote without its end"),
            Self::NoEnd => write!(f, "has < and does not end with >"),
        }
    }
}

impl From<AddressError> for MailboxError {
    fn from(error: AddressError) -> Self {
        Self::Address(error)
    }
}

impl Mailbox {
    /// Parses one mailbox. Spaces and tabs around it do not count.
    ///
    /// # Errors
    /// The first error found.
    pub fn parse(text: &str) -> Result<Self, MailboxError> {
        let text = text.trim_matches([' ', '\t']);
        if let Some(found) = line::first_control(text) {
            return Err(AddressError::Control(found).into());
        }
        let (name, address) = match unquoted(text, '<')? {
            None => (None, text),
            Some(at) => {
                let name = parse_name(&text[..at])?;
                let address = text[at + 1..].strip_suffix('>');
                (name, address.ok_or(MailboxError::NoEnd)?)
            }
        };
        let characters = name.as_deref().map_or(0, |name| name.chars().count());
        if characters > NAME_MAX {
            return Err(MailboxError::NameTooLong(characters));
        }
        Ok(Self {
            name,
            address: super::to_ascii(address)?.into_owned(),
        })
    }

    /// The address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The name as people read it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The domain.
    pub fn domain(&self) -> &str {
        self.address
            .rsplit_once('@')
            .map_or("", |(_, domain)| domain)
    }

    /// Name and address, the name in quotes unless it is words of ASCII: [`Self::parse`] reads it.
    pub fn text(&self) -> String {
        match self.name() {
            None => self.address.clone(),
            Some(name) if is_words(name) => format!("{name} <{}>", self.address),
            Some(name) => {
                let name = name.replace('\\', "\\\\").replace('"', "\\\"");
                format!("\"{name}\" <{}>", self.address)
            }
        }
    }
}

/// Whether this name is words with one space between them, and no reader takes one for an encoded word.
fn is_words(name: &str) -> bool {
    let fits = |c: char| c.is_ascii() && super::is_atom_text(c);
    !name.contains("=?")
        && name
            .split(' ')
            .all(|word| !word.is_empty() && word.chars().all(fits))
}

/// Where this ASCII character stands for the first time outside quotes.
fn unquoted(text: &str, wanted: char) -> Result<Option<usize>, MailboxError> {
    let mut quotes = Quotes::default();
    let found = text.bytes().position(|byte| {
        let is_quoted = quotes.contain(byte);
        !is_quoted && char::from(byte) == wanted
    });
    // A quote that is open in a text without a name belongs to the address, which says what is wrong with it.
    if found.is_none() && quotes.is_open && text.contains(wanted) {
        return Err(MailboxError::Unquoted);
    }
    Ok(found)
}

/// The words and quoted strings of a name, with one space between them.
fn parse_name(text: &str) -> Result<Option<String>, MailboxError> {
    let mut words: Vec<String> = Vec::new();
    let mut rest = text.trim_start_matches(' ');
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let (word, after) = parse_quoted(&rest[1..])?;
            // Readers differ about words without a space between them.
            if let Some(found) = after.chars().next().filter(|c| *c != ' ') {
                return Err(MailboxError::Name(found));
            }
            words.push(word);
            rest = after;
        } else {
            let end = rest.find(' ').unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let fits = |c: char| c == '.' || !c.is_ascii() || super::is_atom_text(c);
            if let Some(found) = word.chars().find(|c| !fits(*c)) {
                return Err(MailboxError::Name(found));
            }
            words.push(word.to_owned());
            rest = after;
        }
        rest = rest.trim_start_matches(' ');
    }
    let name = words.join(" ");
    Ok((!name.is_empty()).then_some(name))
}

/// The text of a quoted string up to its end, and what follows.
fn parse_quoted(text: &str) -> Result<(String, &str), MailboxError> {
    let mut word = String::with_capacity(text.len());
    let mut rest = text.chars();
    loop {
        match rest.next().ok_or(MailboxError::Unquoted)? {
            '"' => return Ok((word, rest.as_str())),
            '\\' => word.push(rest.next().ok_or(MailboxError::Unquoted)?),
            c => word.push(c),
        }
    }
}

/// Follows quotes through the bytes of a text.
#[derive(Default)]
struct Quotes {
    is_open: bool,
    is_escape: bool,
}

impl Quotes {
    /// Whether the next byte is within quotes, or one of them.
    fn contain(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.is_escape => self.is_escape = false,
            b'\\' if self.is_open => self.is_escape = true,
            b'"' => {
                self.is_open = !self.is_open;
                return true;
            }
            _ => {}
        }
        self.is_open
    }
}

/// The elements of a list, which commas outside quotes separate, without spaces and tabs around them; none if the list is
/// blank. They may be in any encoding in which the bytes of ASCII characters stand for nothing else.
pub fn elements(list: &[u8]) -> Vec<&[u8]> {
    let trimmed = |text: &'_ [u8]| {
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let from = text.iter().position(|byte| !is_blank(byte))?;
        let until = text.iter().rposition(|byte| !is_blank(byte))?;
        Some((from, until + 1))
    };
    if trimmed(list).is_none() {
        return Vec::new();
    }
    let mut quotes = Quotes::default();
    let is_comma = |byte: &u8| !quotes.contain(*byte) && *byte == b',';
    list.split(is_comma)
        .map(|one| trimmed(one).map_or(&[][..], |(from, until)| &one[from..until]))
        .collect()
}

/// The address in a mailbox as it is written there; a text that is none is returned as it is.
pub fn bare(text: &str) -> &str {
    let text = text.trim_matches([' ', '\t']);
    match text.rsplit_once('<') {
        // No address has these characters.
        Some((_, address)) if Mailbox::parse(text).is_ok() => address.trim_end_matches('>'),
        _ => text,
    }
}

#[cfg(test)]
mod tests;
