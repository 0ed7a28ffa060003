//! What an application may schedule: the rules for a message, apart from those that need a table. Pure.
//!
//! `mailroom_send`, `mailroom_send_many` and the view through which an application inserts mail ask [`check`]. Lengths are
//! in octets of UTF-8 unless they are said to be in characters.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use crate::address::mailbox::Mailbox;
use crate::headers;
use crate::line::{self, Named};
use crate::token::unsubscribe;

/// Maximum number of addresses in recipients, cc and bcc together.
const RECIPIENTS_MAX: usize = 50;
/// Maximum number of addresses in reply_to.
const REPLY_TO_MAX: usize = 10;
/// Maximum octets of a subject: those of a line (RFC 5322 section 2.1.1).
const SUBJECT_MAX: usize = 998;
/// Maximum characters of a name or key.
const NAME_MAX: usize = 255;
/// Maximum octets of the variables of a template as JSON.
const DATA_MAX: u64 = 1_048_576;
/// Maximum characters of an address that a reason quotes.
const QUOTE_MAX: usize = 80;

/// Text of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text<'a> {
    /// It was converted to UTF-8.
    Read(Cow<'a, str>),
    /// It holds bytes that are no characters in the encoding of the database.
    Unread,
}

/// A time in microseconds; the smallest and the largest value stand for the infinite times.
pub type Time = i64;

/// A message that an application wants to schedule. `None` is NULL.
#[derive(Clone, Debug)]
pub struct Draft<'a> {
    /// recipients, cc, bcc and reply_to.
    pub lists: [Vec<Option<Text<'a>>>; 4],
    /// The mailbox that the mail is from.
    pub from_address: Option<Text<'a>>,
    /// Headers of the application's as JSON.
    pub headers: Option<Text<'a>>,
    /// Where a click unsubscribes.
    pub unsubscribe_url: Option<Text<'a>>,
    /// The list from which its recipient can unsubscribe.
    pub list: Option<Text<'a>>,
    /// The subject.
    pub subject: Option<Text<'a>>,
    /// The plain body.
    pub body_text: Option<Body>,
    /// The HTML body.
    pub body_html: Option<Body>,
    /// Names the template.
    pub kind: Option<Text<'a>>,
    /// The application's own key of the mail.
    pub item_key: Option<Text<'a>>,
    /// The key of the group.
    pub group_key: Option<Text<'a>>,
    /// The variables of the template.
    pub data: Data<'a>,
    /// The mail is not sent before.
    pub send_at: Option<Time>,
    /// The mail is not sent after.
    pub expires_at: Option<Time>,
    /// Smaller goes first.
    pub priority: Option<i32>,
    /// The number of attempts.
    pub max_attempts: Option<i32>,
}

/// The size of a body, and whether it can be converted to UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    /// Its size.
    pub octets: u64,
    /// Whether it can be converted to UTF-8.
    pub is_readable: bool,
}

/// The variables of the template: type and size of the JSON value.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// As `jsonb_typeof` has it.
    pub json_type: &'a str,
    /// The size of its text.
    pub octets: u64,
}

/// What the rules depend on besides the message.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The setting mailroom.max_message_size, in octets.
    pub message_size: u64,
    /// The time of the transaction.
    pub now: Time,
}

/// Why a message cannot be scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An address is not valid.
    Address(String),
    /// Another value is not valid.
    Value(String),
}

impl Refusal {
    /// The reason, without a full stop.
    pub fn reason(&self) -> &str {
        match self {
            Self::Address(reason) | Self::Value(reason) => reason,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

const LISTS: [&str; 4] = ["recipients", "cc", "bcc", "reply_to"];

/// The problem of text that cannot be converted to UTF-8.
const NOT_READ: &str = "holds bytes that are no characters in the database's encoding";

/// Checks a message.
///
/// # Errors
/// The first rule that it violates: addresses first, then the other fields in the order of the arguments.
pub fn check(draft: &Draft<'_>, limits: Limits) -> Result<(), Refusal> {
    for (name, list) in LISTS.iter().zip(&draft.lists) {
        check_addresses(name, list).map_err(Refusal::Address)?;
    }
    if let Some(from) = &draft.from_address {
        check_mailbox("from_address", from).map_err(Refusal::Address)?;
    }
    let checks = [
        check_numbers_of_addresses,
        check_texts,
        check_headers,
        check_list,
        check_numbers,
    ];
    for check in checks {
        check(draft).map_err(Refusal::Value)?;
    }
    check_sizes(draft, limits.message_size).map_err(Refusal::Value)?;
    check_times(draft, limits.now).map_err(Refusal::Value)
}

fn check_addresses(name: &str, list: &[Option<Text<'_>>]) -> Result<(), String> {
    for (index, found) in list.iter().enumerate() {
        let place = index + 1;
        match found {
            None => return Err(format!("{name}[{place}] is null")),
            Some(found) => check_mailbox(&format!("{name}[{place}]"), found)?,
        }
    }
    Ok(())
}

fn check_mailbox(name: &str, text: &Text<'_>) -> Result<(), String> {
    let Text::Read(text) = text else {
        return Err(format!("{name} {NOT_READ}"));
    };
    match Mailbox::parse(text) {
        Ok(_) => Ok(()),
        Err(problem) => Err(format!(
            "{name} {} {problem}",
            line::quoted(text, QUOTE_MAX)
        )),
    }
}

fn check_numbers_of_addresses(draft: &Draft<'_>) -> Result<(), String> {
    let [recipients, cc, bcc, reply_to] = draft.lists.each_ref().map(Vec::len);
    if recipients == 0 {
        return Err("recipients is empty".to_owned());
    }
    let all = recipients + cc + bcc;
    if all > RECIPIENTS_MAX {
        return Err(format!(
            "recipients, cc and bcc have {all} addresses, at most {RECIPIENTS_MAX} are allowed"
        ));
    }
    if reply_to > REPLY_TO_MAX {
        return Err(format!(
            "reply_to has {reply_to} addresses, at most {REPLY_TO_MAX} are allowed"
        ));
    }
    Ok(())
}

/// The text of a field that is given: not empty, readable.
fn given<'a>(name: &str, field: Option<&'a Text<'_>>) -> Result<Option<&'a str>, String> {
    match field {
        None => Ok(None),
        Some(Text::Unread) => Err(format!("{name} {NOT_READ}")),
        Some(Text::Read(text)) if text.is_empty() => Err(format!("{name} is empty")),
        Some(Text::Read(text)) => Ok(Some(text)),
    }
}

fn check_texts(draft: &Draft<'_>) -> Result<(), String> {
    if let Some(subject) = given("subject", draft.subject.as_ref())? {
        if subject.len() > SUBJECT_MAX {
            return Err(format!(
                "subject has {} octets, at most {SUBJECT_MAX} are allowed",
                subject.len()
            ));
        }
        check_line("subject", subject)?;
    }
    if let Some(kind) = given("kind", draft.kind.as_ref())? {
        check_name("kind", kind)?;
        check_line("kind", kind)?;
        if matches!(kind, "activation" | "password_recovery") {
            return Err(format!("kind \"{kind}\" is reserved for mail with a token"));
        }
    }
    for (name, key) in [
        ("item_key", &draft.item_key),
        ("group_key", &draft.group_key),
    ] {
        if let Some(key) = given(name, key.as_ref())? {
            check_name(name, key)?;
        }
    }
    for (name, body) in [
        ("body_text", draft.body_text),
        ("body_html", draft.body_html),
    ] {
        match body {
            Some(body) if body.octets == 0 => return Err(format!("{name} is empty")),
            Some(body) if !body.is_readable => return Err(format!("{name} {NOT_READ}")),
            _ => {}
        }
    }
    Ok(())
}

fn check_headers(draft: &Draft<'_>) -> Result<(), String> {
    if let Some(json) = given("headers", draft.headers.as_ref())? {
        headers::read(json)?;
    }
    match given("unsubscribe_url", draft.unsubscribe_url.as_ref())? {
        Some(url) => headers::check_unsubscribe_url(url),
        None => Ok(()),
    }
}

fn check_list(draft: &Draft<'_>) -> Result<(), String> {
    let Some(list) = given("list", draft.list.as_ref())? else {
        return Ok(());
    };
    unsubscribe::check_list(list).map_err(|problem| format!("list {problem}"))?;
    // A click of one must not unsubscribe another.
    let addresses: usize = draft.lists[..3].iter().map(Vec::len).sum();
    if addresses == 1 {
        Ok(())
    } else {
        Err(format!(
            "list is for mail to one address, and recipients, cc and bcc have {addresses}"
        ))
    }
}

fn check_line(name: &str, text: &str) -> Result<(), String> {
    match line::first_control(text) {
        None => Ok(()),
        Some(found) => Err(format!(
            "{name} contains the control character {}",
            Named(found)
        )),
    }
}

fn check_name(name: &str, text: &str) -> Result<(), String> {
    let characters = text.chars().count();
    if characters > NAME_MAX {
        return Err(format!(
            "{name} has {characters} characters, at most {NAME_MAX} are allowed"
        ));
    }
    Ok(())
}

fn check_numbers(draft: &Draft<'_>) -> Result<(), String> {
    for (name, number, range) in [
        ("priority", draft.priority, -100..=100),
        ("max_attempts", draft.max_attempts, 1..=1000),
    ] {
        if let Some(number) = number
            && !range.contains(&number)
        {
            let (first, last) = (range.start(), range.end());
            return Err(format!(
                "{name} is {number}, not between {first} and {last}"
            ));
        }
    }
    Ok(())
}

fn check_sizes(draft: &Draft<'_>, message_size: u64) -> Result<(), String> {
    let Data { json_type, octets } = draft.data;
    if json_type != "object" {
        return Err(format!("data is a JSON {json_type}, not an object"));
    }
    if octets > DATA_MAX {
        return Err(format!(
            "data has {octets} octets as JSON, at most {DATA_MAX} are allowed"
        ));
    }
    let subject = match &draft.subject {
        Some(Text::Read(subject)) => subject.len() as u64,
        _ => 0,
    };
    let bodies = [draft.body_text, draft.body_html].into_iter().flatten();
    let all = subject + octets + bodies.map(|body| body.octets).sum::<u64>();
    if all > message_size {
        return Err(format!(
            "It has {all} octets, at most {message_size} are allowed"
        ));
    }
    Ok(())
}

fn check_times(draft: &Draft<'_>, now: Time) -> Result<(), String> {
    for (name, time) in [("send_at", draft.send_at), ("expires_at", draft.expires_at)] {
        if matches!(time, Some(Time::MIN | Time::MAX)) {
            return Err(format!("{name} is infinite"));
        }
    }
    let Some(expires_at) = draft.expires_at else {
        return Ok(());
    };
    if draft.send_at.is_some_and(|send_at| expires_at <= send_at) {
        return Err("expires_at is not after send_at".to_owned());
    }
    if expires_at <= now {
        return Err("expires_at is past".to_owned());
    }
    Ok(())
}
