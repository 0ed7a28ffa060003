//! Sender and recipients in the formats of the providers. Pure.
//!
//! They are checked again here: a row that was inserted by hand was not checked when the mail was scheduled, and some
//! providers take them as one string.

use std::borrow::Cow;

use super::{Message, bodies};
use crate::address::AddressError;
pub use crate::address::mailbox::Mailbox;
use crate::address::mailbox::MailboxError;
use crate::attachment::{self, Attachment};
use crate::transport::encode::encode;
use crate::transport::invalid::Invalid;

/// How an encoded word begins.
const ANY_WORD: &str = "=?";
/// Maximum characters of a line of a header with encoded words (RFC 2047, section 2).
const LINE_MAX: usize = 76;

/// Parses `from` of the transports file.
///
/// # Errors
/// The error in the setting.
pub fn sender(setting: &str) -> Result<Mailbox, Invalid> {
    let wrong = |what: &str| Invalid::new("from", what);
    if setting.trim().is_empty() {
        return Err(wrong("is missing"));
    }
    Mailbox::parse(setting.trim()).map_err(|why| wrong(&why.to_string()))
}

/// As [`sender`], for a provider that accepts no mail from an address with a non-ASCII local part, or loses it. Every
/// message would be refused.
///
/// # Errors
/// The error in the setting.
pub fn ascii_sender(setting: &str) -> Result<Mailbox, Invalid> {
    let mailbox = sender(setting)?;
    if !mailbox.address().is_ascii() {
        let problem = "has letters beyond ASCII before the @, which the provider does not take";
        return Err(Invalid::new("from", problem));
    }
    Ok(mailbox)
}

/// Name and address in ASCII, a name beyond it as encoded words (RFC 2047): for APIs that copy it into the header. The
/// address may have a local part beyond ASCII.
pub fn ascii_text(mailbox: &Mailbox) -> String {
    match mailbox.name() {
        Some(name) if !name.is_ascii() || name.contains(ANY_WORD) => {
            format!("{} <{}>", encode(name), mailbox.address())
        }
        _ => mailbox.text(),
    }
}

/// Each mailbox as [`Mailbox::text`].
pub fn texts(list: &[Mailbox]) -> Vec<String> {
    list.iter().map(Mailbox::text).collect()
}

/// The value of the header `name`, folded if it has encoded words.
pub fn fold(name: &str, value: String) -> String {
    let mut column = name.len() + ": ".len();
    if !value.contains(ANY_WORD) || column + value.len() <= LINE_MAX {
        return value;
    }
    let mut folded = String::with_capacity(value.len() + value.len() / 16);
    for (place, word) in value.split(' ').enumerate() {
        if place > 0 {
            // A line must not be blank.
            let fits = word.is_empty() || column + 1 + word.len() <= LINE_MAX;
            folded.push_str(if fits { " " } else { "\r\n " });
            column = if fits { column + 1 } else { 1 };
        }
        folded.push_str(word);
        column += word.len();
    }
    folded
}

/// A mail that was checked, with its addresses read, their domains in ASCII, and the bodies that a provider receives.
pub struct Ready<'m> {
    /// The mail itself.
    pub message: &'m Message,
    /// Headers of the application's, in ASCII.
    pub headers: Vec<(String, String)>,
    /// The sender, if the mail has its own.
    from: Option<Mailbox>,
    /// The To header.
    pub to: Vec<Mailbox>,
    /// The Cc header.
    pub cc: Vec<Mailbox>,
    /// The recipients that the others do not see.
    pub bcc: Vec<Mailbox>,
    /// The Reply-To header.
    pub reply_to: Vec<Mailbox>,
    /// The text body.
    pub text: Option<Cow<'m, str>>,
    /// The HTML body.
    pub html: Option<&'m str>,
}

impl<'m> Ready<'m> {
    /// Checks a mail: it has valid addresses, at most `most` recipients, valid files, and a body.
    ///
    /// # Errors
    /// What is missing or invalid, without an address.
    pub fn new(message: &'m Message, most: usize) -> Result<Self, String> {
        read("original_recipients", &message.original_recipients)?;
        let [to, cc, bcc, reply_to] = message.address_lists();
        let from = message.from_address.as_deref().map(|text| {
            Mailbox::parse(text).map_err(|why| format!("from_address {}", invalid(why)))
        });
        let ready = Self {
            message,
            from: from.transpose()?,
            headers: match message.headers.as_deref() {
                Some(json) => crate::headers::read(json)?,
                None => Vec::new(),
            },
            to: read(to.0, to.1)?,
            cc: read(cc.0, cc.1)?,
            bcc: read(bcc.0, bcc.1)?,
            reply_to: read(reply_to.0, reply_to.1)?,
            text: bodies::text(message),
            html: bodies::html(message),
        };
        if let Some(url) = &message.unsubscribe_url {
            crate::headers::check_unsubscribe_url(url)?;
        }
        check_files(&message.attachments)?;
        if ready.to.is_empty() {
            return Err("there is no recipient".to_owned());
        }
        let count = ready.recipients().count();
        if count > most {
            return Err(format!(
                "there are {count} recipients, and the provider takes {most} at most"
            ));
        }
        if ready.text.is_none() && ready.html.is_none() {
            return Err("there is no body".to_owned());
        }
        Ok(ready)
    }

    /// The mails of a request as [`Ready::new`].
    ///
    /// # Errors
    /// As [`Ready::new`], and if one of several has a file: batch calls lose files, or give them to all mails.
    pub fn all(messages: &[&'m Message], most: usize) -> Result<Vec<Self>, String> {
        let has_files = |message: &&Message| !message.attachments.is_empty();
        if messages.len() > 1 && messages.iter().any(has_files) {
            return Err("a mail with files needs a request of its own".to_owned());
        }
        messages
            .iter()
            .map(|message| Self::new(message, most))
            .collect()
    }

    /// The sender: that of the mail, or else of the transport.
    pub fn from<'a>(&'a self, transport: &'a Mailbox) -> &'a Mailbox {
        self.from.as_ref().unwrap_or(transport)
    }

    /// As [`Self::from`], for a provider that takes an address in ASCII only, or loses the mail.
    ///
    /// # Errors
    /// If the address of the mail is not in ASCII.
    pub fn ascii_from<'a>(&'a self, transport: &'a Mailbox) -> Result<&'a Mailbox, String> {
        let from = self.from(transport);
        if from.address().is_ascii() {
            return Ok(from);
        }
        let problem =
            "from_address has letters beyond ASCII before the @, which the provider does not take";
        Err(problem.to_owned())
    }

    /// All that receive the mail.
    pub fn recipients(&self) -> impl Iterator<Item = &Mailbox> {
        self.to.iter().chain(&self.cc).chain(&self.bcc)
    }

    /// Whether each address is in ASCII.
    pub fn is_ascii(&self) -> bool {
        let mut all = self.recipients().chain(&self.reply_to);
        all.all(|mailbox| mailbox.address().is_ascii())
    }
}

/// The mailboxes of a list of this name.
fn read(name: &str, list: &[String]) -> Result<Vec<Mailbox>, String> {
    let read = |(index, text): (usize, &String)| {
        Mailbox::parse(text).map_err(|why| format!("{name}[{}] {}", index + 1, invalid(why)))
    };
    list.iter().enumerate().map(read).collect()
}

/// Judges the files of a mail again. A template may have no HTML that shows them: then they are sent all the same.
fn check_files(files: &[Attachment]) -> Result<(), String> {
    for (index, file) in files.iter().enumerate() {
        let id = file.content_id.as_deref();
        attachment::judge(&file.filename, Some(&file.content_type), id)
            .map_err(|why| format!("attachments[{}] {why}", index + 1))?;
    }
    let ids = files.iter().map(|file| file.content_id.as_deref());
    attachment::judge_all(&ids.collect::<Vec<_>>(), true)
}

/// The problem of a mailbox. It does not name a character, which is part of the address.
fn invalid(why: MailboxError) -> String {
    match why {
        MailboxError::Address(
            AddressError::LocalCharacter(_) | AddressError::DomainCharacter(_),
        ) => "has a character that no address may have".to_owned(),
        MailboxError::Address(AddressError::Control(_)) => {
            "contains a control character".to_owned()
        }
        MailboxError::Name(_) => "has a character that no name has without quotes".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture;
    use super::*;
    use proptest::prelude::*;

    fn parse(setting: &str) -> Mailbox {
        sender(setting).unwrap()
    }

    #[test]
    fn names_beyond_ascii_are_encoded_where_it_matters() {
        let mailbox = parse("Bücher <a@example.com>");
        assert_eq!(mailbox.text(), "\"Bücher\" <a@example.com>");
        assert_eq!(
            ascii_text(&mailbox),
            "=?UTF-8?B?QsO8Y2hlcg==?= <a@example.com>"
        );
        let both = parse("\"Bücher, Ltd.\" <a@example.com>");
        assert_eq!(both.text(), "\"Bücher, Ltd.\" <a@example.com>");
        assert!(!ascii_text(&both).contains(['"', ',']));
        let word = parse("=?utf-8?q?x?= <a@example.com>");
        assert_eq!(word.text(), "\"=?utf-8?q?x?=\" <a@example.com>");
        assert!(ascii_text(&word).starts_with("=?UTF-8?B?"));
        let long = parse(&format!("{} <a@example.com>", "ü".repeat(60)));
        let text = ascii_text(&long);
        assert!(text.split(' ').all(|word| word.len() <= 75), "{text}");
    }

    #[test]
    fn what_is_no_sender() {
        for (setting, problem) in [
            ("", "from is missing"),
            ("Example", "from has no @"),
            ("Example <>", "from is empty"),
            ("a <a@example.com", "from has < and does not end with >"),
            (
                "Example, Ltd. <a@example.com>",
                "from has ',' in a name without quotes",
            ),
            (
                "a@example.com\r\nBcc: b@example.com",
                "from contains the control character U+000D",
            ),
            (
                "\"Example <a@example.com>",
                "from has a quote without its end",
            ),
            (
                "Example <a@x.example，b＠y.example>",
                "from has a domain behind the @ that has no form in ASCII",
            ),
        ] {
            assert_eq!(
                sender(setting).unwrap_err().to_string(),
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
            Ready::new(&message, 3).err().unwrap()
        };
        assert!(Ready::new(&fixture::message(), 3).is_ok());
        assert_eq!(
            Ready::new(&fixture::message(), 2).err().unwrap(),
            "there are 3 recipients, and the provider takes 2 at most"
        );
        assert_eq!(
            check_with(|m| m.cc = vec!["Ann (work) <ann@example.com>".to_owned()]),
            "cc[1] has a character that no name has without quotes"
        );
        assert_eq!(
            check_with(|m| m.from_address = Some("a@example.com\r\nBcc: b@example.com".to_owned())),
            "from_address contains a control character"
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
        assert_eq!(
            check_with(|m| {
                m.attachments = fixture::files();
                m.attachments[1].filename = "a\r\nBcc: b@example.com.pdf".to_owned();
            }),
            "attachments[2] filename contains the control character U+000D"
        );
        assert_eq!(
            check_with(|m| m.attachments = [fixture::files(), fixture::files()].concat()),
            "attachments[4] has the content_id of attachments[2]"
        );
    }

    proptest! {
        #[test]
        fn no_name_gets_out_of_a_header(name in ".{0,40}") {
            let text = format!("\"{}\" <a@example.com>", name.replace('\\', "\\\\").replace('"', "\\\""));
            if let Ok(mailbox) = Mailbox::parse(&text) {
                let text = ascii_text(&mailbox);
                prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{}", text);
            }
        }
    }
}
