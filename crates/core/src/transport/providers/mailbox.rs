//! Sender and recipients in the formats of the providers. Pure.
//!
//! The sender may have a display name, `Example <noreply@example.com>`; recipients are addresses only. They are checked
//! again here: a row that was inserted by hand was not checked when the mail was scheduled, and some providers take
//! them as one string.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Message, bodies};
use crate::address::{self, AddressError};
use crate::line;
use crate::transport::invalid::Invalid;

/// Maximum bytes of text in an encoded word, which has at most 75 characters (RFC 2047).
const WORD_BYTES: usize = 45;

/// An address with or without a display name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mailbox {
    name: Option<String>,
    address: String,
}

impl Mailbox {
    /// Parses `from`: an address, or a name and an address in angle brackets.
    ///
    /// # Errors
    /// The error in the setting.
    pub fn parse(setting: &str) -> Result<Self, Invalid> {
        let text = setting.trim();
        let wrong = |what: &str| Invalid::new("from", what);
        if text.is_empty() {
            return Err(wrong("is missing"));
        }
        if line::first_control(text).is_some() {
            return Err(wrong("contains a control character"));
        }
        let (name, address) = match text.strip_suffix('>') {
            None => (None, text),
            Some(rest) => {
                let (name, address) = rest
                    .rsplit_once('<')
                    .ok_or_else(|| wrong("has > without <"))?;
                let name = parse_name(name.trim())
                    .ok_or_else(|| wrong("has a name that cannot be read: quote it"))?;
                (Some(name).filter(|name| !name.is_empty()), address.trim())
            }
        };
        let address = address::to_ascii(address).map_err(|problem| wrong(&problem.to_string()))?;
        Ok(Self {
            name,
            address: address.into_owned(),
        })
    }

    /// As [`Mailbox::parse`], for a provider that accepts no mail from an address with a non-ASCII local part, or loses
    /// it. Every message would be refused.
    ///
    /// # Errors
    /// The error in the setting.
    pub fn parse_ascii(setting: &str) -> Result<Self, Invalid> {
        let mailbox = Self::parse(setting)?;
        if !mailbox.address.is_ascii() {
            let problem = "has letters beyond ASCII before the @, which the provider does not take";
            return Err(Invalid::new("from", problem));
        }
        Ok(mailbox)
    }

    /// The address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The display name as people read it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The domain.
    pub fn domain(&self) -> &str {
        self.address
            .rsplit_once('@')
            .map_or("", |(_, domain)| domain)
    }

    /// Name and address, the name quoted if RFC 5322 requires it: for APIs that encode non-ASCII text themselves.
    pub fn text(&self) -> String {
        match self.name() {
            None => self.address.clone(),
            Some(name) if name.chars().all(is_phrase_text) => {
                format!("{name} <{}>", self.address)
            }
            Some(name) => {
                let name = name.replace('\\', "\\\\").replace('"', "\\\"");
                format!("\"{name}\" <{}>", self.address)
            }
        }
    }

    /// Name and address in ASCII, a non-ASCII name as encoded words (RFC 2047): for APIs that copy it into the header.
    pub fn ascii_text(&self) -> String {
        match self.name() {
            Some(name) if !name.is_ascii() => format!("{} <{}>", encode(name), self.address),
            _ => self.text(),
        }
    }
}

fn is_phrase_text(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~ ".contains(c)
}

/// The name before the angle brackets, without quotes.
fn parse_name(text: &str) -> Option<String> {
    let Some(quoted) = text.strip_prefix('"') else {
        return (!text.contains(['"', '<', '>'])).then(|| text.to_owned());
    };
    let mut name = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    loop {
        match rest.next()? {
            '"' => return rest.as_str().is_empty().then_some(name),
            '\\' => name.push(rest.next()?),
            c => name.push(c),
        }
    }
}

/// Text as encoded words (RFC 2047), separated by spaces.
pub fn encode(name: &str) -> String {
    let mut words = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let mut end = rest.len().min(WORD_BYTES);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (word, after) = rest.split_at(end);
        words.push(format!("=?UTF-8?B?{}?=", STANDARD.encode(word.as_bytes())));
        rest = after;
    }
    // White space between encoded words is not part of the text.
    words.join(" ")
}

/// Prepares a mail for a provider: checks it as [`check`] does, converts the domains of its addresses to ASCII, and
/// makes its [`bodies`].
///
/// # Errors
/// As [`check`].
pub fn ready(message: &Message, most: usize) -> Result<Cow<'_, Message>, String> {
    check(message, most)?;
    let is_ascii = |list: &Vec<String>| list.iter().all(|address| address.is_ascii());
    let mut lists = message.address_lists().into_iter();
    if lists.all(|(_, list)| is_ascii(list)) && bodies::are_ready(message) {
        return Ok(Cow::Borrowed(message));
    }
    let mut message = message.clone();
    for (name, list) in message.address_lists_mut() {
        for (index, address) in list.iter_mut().enumerate() {
            let ascii = address::to_ascii(address).map_err(|why| invalid(name, index, &why))?;
            *address = ascii.into_owned();
        }
    }
    message.body_text = bodies::text(&message).map(Cow::into_owned);
    message.body_html = bodies::html(&message).map(str::to_owned);
    Ok(Cow::Owned(message))
}

/// The problem of an address in a list. It does not name a character, which is part of the address.
fn invalid(list: &str, index: usize, why: &AddressError) -> String {
    let what = match why {
        AddressError::LocalCharacter(_) | AddressError::DomainCharacter(_) => {
            "has a character that no address may have".to_owned()
        }
        AddressError::Control(_) => "contains a control character".to_owned(),
        other => other.to_string(),
    };
    format!("{list}[{}] {what}", index + 1)
}

/// Prepares several mails as [`ready`] does.
///
/// # Errors
/// As [`ready`].
pub fn all_ready<'m>(
    messages: &[&'m Message],
    most: usize,
) -> Result<Vec<Cow<'m, Message>>, String> {
    messages
        .iter()
        .map(|message| ready(message, most))
        .collect()
}

/// Checks that a mail has valid addresses, at most `most`, and a body.
///
/// # Errors
/// What is missing or invalid, without an address.
pub fn check(message: &Message, most: usize) -> Result<(), String> {
    let original = ("original_recipients", &message.original_recipients);
    for (name, list) in message.address_lists().into_iter().chain([original]) {
        for (index, address) in list.iter().enumerate() {
            address::check(address).map_err(|why| invalid(name, index, &why))?;
        }
    }
    if message.recipients.is_empty() {
        return Err("there is no recipient".to_owned());
    }
    let count = message.recipients.len() + message.cc.len() + message.bcc.len();
    if count > most {
        return Err(format!(
            "there are {count} recipients, and the provider takes {most} at most"
        ));
    }
    let said = |body: &Option<String>| body.as_deref().is_some_and(|body| !body.is_empty());
    if !said(&message.body_text) && !said(&message.body_html) {
        return Err("there is no body".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use proptest::prelude::*;

    fn parse(setting: &str) -> Mailbox {
        Mailbox::parse(setting).unwrap()
    }

    #[test]
    fn names_and_addresses() {
        let bare = parse(" noreply@example.com ");
        assert_eq!(bare.name(), None);
        assert_eq!(bare.text(), "noreply@example.com");
        assert_eq!(bare.domain(), "example.com");
        let named = parse("Example Ltd <noreply@example.com>");
        assert_eq!(named.name(), Some("Example Ltd"));
        assert_eq!(named.text(), "Example Ltd <noreply@example.com>");
        let quoted = parse(r#""Example, \"Ltd\"" <noreply@example.com>"#);
        assert_eq!(quoted.name(), Some(r#"Example, "Ltd""#));
        assert_eq!(quoted.text(), r#""Example, \"Ltd\"" <noreply@example.com>"#);
        let unquoted = parse("Example, Ltd. <noreply@example.com>");
        assert_eq!(unquoted.text(), r#""Example, Ltd." <noreply@example.com>"#);
        assert_eq!(parse("<a@example.com>").name(), None);
    }

    #[test]
    fn names_beyond_ascii_are_encoded_where_it_matters() {
        let mailbox = parse("Bücher <a@example.com>");
        assert_eq!(mailbox.text(), "\"Bücher\" <a@example.com>");
        assert_eq!(
            mailbox.ascii_text(),
            "=?UTF-8?B?QsO8Y2hlcg==?= <a@example.com>"
        );
        let long = parse(&format!("{} <a@example.com>", "ü".repeat(60)));
        let text = long.ascii_text();
        assert!(text.split(' ').all(|word| word.len() <= 75), "{text}");
    }

    #[test]
    fn what_is_no_sender() {
        for (setting, problem) in [
            ("", "from is missing"),
            ("Example", "from has no @"),
            ("Example <>", "from is empty"),
            ("a@example.com>", "from has > without <"),
            (
                "a@example.com\r\nBcc: b@example.com",
                "from contains a control character",
            ),
            (
                "\"Example <a@example.com>",
                "from has a name that cannot be read: quote it",
            ),
            (
                "Example <a@x.example，b＠y.example>",
                "from has a domain behind the @ that has no form in ASCII",
            ),
        ] {
            assert_eq!(
                Mailbox::parse(setting).unwrap_err().to_string(),
                problem,
                "{setting}"
            );
        }
    }

    #[test]
    fn mails_that_cannot_be_sent() {
        let check_with = |change: fn(&mut Message)| {
            let mut message = fixture::message();
            change(&mut message);
            check(&message, 3).unwrap_err()
        };
        assert!(check(&fixture::message(), 3).is_ok());
        assert_eq!(
            check(&fixture::message(), 2).unwrap_err(),
            "there are 3 recipients, and the provider takes 2 at most"
        );
        assert_eq!(
            check_with(|m| m.cc = vec!["Ann <ann@example.com>".to_owned()]),
            "cc[1] has a character that no address may have"
        );
        assert_eq!(
            check_with(|m| m.bcc = vec!["a@example.com,b@example.com".to_owned()]),
            "bcc[1] has a character that no address may have"
        );
        assert_eq!(
            check_with(|m| m.reply_to = vec!["a@example.com\r\nBcc: b@example.com".to_owned()]),
            "reply_to[1] contains a control character"
        );
        assert_eq!(
            check_with(|m| m.reply_to = vec!["a@x.example，b＠y.example".to_owned()]),
            "reply_to[1] has a domain behind the @ that has no form in ASCII"
        );
        assert_eq!(
            check_with(|m| {
                m.body_text = None;
                m.body_html = Some(String::new());
            }),
            "there is no body"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_it_was(name in "[ -~ü€]{0,20}") {
            let name = name.trim();
            let mailbox = Mailbox {
                name: Some(name.to_owned()).filter(|name| !name.is_empty()),
                address: "a@example.com".to_owned(),
            };
            prop_assert_eq!(Mailbox::parse(&mailbox.text()).unwrap(), mailbox);
        }

        #[test]
        fn no_setting_gets_out_of_its_field(setting in ".{0,20}<?a@example\\.com>?") {
            if let Ok(mailbox) = Mailbox::parse(&setting) {
                prop_assert!(!mailbox.text().chars().any(char::is_control));
                prop_assert_eq!(mailbox.ascii_text().is_ascii(), mailbox.address().is_ascii());
                prop_assert!(mailbox.address().ends_with("a@example.com"));
                prop_assert!(address::check(mailbox.address()).is_ok());
            }
        }
    }
}
