//! The rules for a row of `accounts`, and the key of an address, by which accounts are unique.
//!
//! What an address is, [`mailroom_core::address`] decides, for accounts as for mail: an account whose address cannot be
//! sent to would wait for a link that never comes. Text that cannot be converted to UTF-8 is refused for the same reason.

use std::borrow::Cow;

use mailroom_core::{address, line};
use pgrx::prelude::*;

use super::lower_case;
use crate::pg::encoding;

/// Maximum characters of a login, which is often an address.
const LOGIN_MAX: usize = 254;

/// Maximum characters of a value that an error quotes.
const QUOTE_MAX: usize = 64;

/// The reason against text that cannot be converted to UTF-8.
const NOT_READ: &str = "holds bytes that are no characters in the database's encoding";

/// A rule that a value violates.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    /// The name that its constraint would have.
    rule: &'static str,
    /// What is wrong, for a sentence that begins with the value.
    reason: String,
    /// The remedy.
    hint: &'static str,
}

impl Violation {
    fn new(rule: &'static str, reason: impl Into<String>, hint: &'static str) -> Self {
        let reason = reason.into();
        Self { rule, reason, hint }
    }
}

/// Returns the rule that an email violates; `None` is text that cannot be read.
fn email_violation(email: Option<&str>) -> Option<Violation> {
    let reason = match email.map(address::check) {
        Some(Ok(())) => return None,
        Some(Err(reason)) => reason.to_string(),
        None => NOT_READ.to_owned(),
    };
    Some(Violation::new(
        "accounts_email_must_be_an_address",
        reason,
        "An address is local@domain, without a name, quotes and blanks.",
    ))
}

/// Returns the first rule that a login violates; `None` is text that cannot be read.
fn login_violation(login: Option<&str>) -> Option<Violation> {
    let Some(login) = login else {
        return Some(Violation::new(
            "accounts_login_must_be_text",
            NOT_READ,
            "Give a name in the encoding of the database.",
        ));
    };
    if login.is_empty() {
        Some(Violation::new(
            "accounts_login_must_not_be_empty",
            "is empty",
            "Give a name.",
        ))
    } else if let Some(found) = line::first_control(login) {
        Some(Violation::new(
            "accounts_login_must_not_contain_control_characters",
            format!("contains the control character {}", line::Named(found)),
            "Give a name without line breaks, tabs and other control characters.",
        ))
    } else if let Some(found) = login.chars().find(|c| line::is_invisible(*c)) {
        Some(Violation::new(
            "accounts_login_must_not_contain_invisible_characters",
            format!("contains the invisible character {}", line::Named(found)),
            "Give a name of characters that a reader sees, without joiners and marks of direction.",
        ))
    } else if login.trim().len() != login.len() {
        Some(Violation::new(
            "accounts_login_must_not_begin_or_end_with_blanks",
            "begins or ends with a blank",
            "Give the name alone.",
        ))
    } else if login.len() > LOGIN_MAX && login.chars().count() > LOGIN_MAX {
        Some(Violation::new(
            "accounts_login_must_not_exceed_254_characters",
            format!("has {} characters", login.chars().count()),
            "Give a name of 254 characters at most.",
        ))
    } else {
        None
    }
}

/// The sentence that tells what is wrong with a value of this column.
fn detail(column: &str, value: Option<&str>, reason: &str) -> String {
    match value {
        Some(value) => format!("The {column} {} {reason}.", line::quoted(value, QUOTE_MAX)),
        None => format!("The {column} {reason}."),
    }
}

/// Returns the first rule that an email or a login in lower case violates; no row if both are valid, or one is NULL.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn _account_problem(
    email: Option<&[u8]>,
    login: Option<&[u8]>,
) -> TableIterator<
    'static,
    (
        name!(rule, Vec<u8>),
        name!(detail, Vec<u8>),
        name!(hint, Vec<u8>),
    ),
> {
    let violation = email.zip(login).and_then(|(email, login)| {
        let (email, login) = (encoding::to_utf8(email), encoding::to_utf8(login));
        if let Some(found) = email_violation(email.as_deref()) {
            let detail = detail("email", email.as_deref(), &found.reason);
            return Some((found, detail));
        }
        let found = login_violation(login.as_deref())?;
        let detail = detail("login", login.as_deref(), &found.reason);
        Some((found, detail))
    });
    TableIterator::new(violation.into_iter().map(|(found, detail)| {
        (
            found.rule.into(),
            encoding::from_utf8_lossy(&detail).into_owned(),
            found.hint.into(),
        )
    }))
}

/// Whether a row can be stored as it is: email and login are valid, and ASCII in lower case. Allocates nothing.
#[pg_extern(sql = false)]
fn _account_is_plain(email: &[u8], login: &[u8]) -> bool {
    fn plain(text: &[u8]) -> Option<&str> {
        let is_plain = |byte: &u8| byte.is_ascii() && !byte.is_ascii_uppercase();
        std::str::from_utf8(text)
            .ok()
            .filter(|_| text.iter().all(is_plain))
    }
    plain(email).is_some_and(|email| address::check(email).is_ok())
        && plain(login).is_some_and(|login| login_violation(Some(login)).is_none())
}

/// Whether mail can be sent to a text as it is.
#[pg_extern(sql = false)]
fn _is_address(address: &[u8]) -> bool {
    encoding::to_utf8(address).is_some_and(|address| address::check(&address).is_ok())
}

#[pg_extern(sql = false)]
fn mailroom_address_key(address: &[u8]) -> Option<Vec<u8>> {
    key(&encoding::to_utf8(address)?)
}

/// The key of an address with blanks around it or not, in the encoding of the database; `None` for other text.
pub fn key(address: &str) -> Option<Vec<u8>> {
    let key = address::key(address.trim_matches([' ', '\t'])).ok()?;
    Some(match encoding::from_utf8(&key) {
        Some(written) => written.into_owned(),
        // A letter whose lower case the encoding does not have stays as it is.
        None => key_of_known_letters(address, &key)?,
    })
}

/// The key of an address whose key the encoding cannot represent.
fn key_of_known_letters(address: &str, key: &str) -> Option<Vec<u8>> {
    let (local, _) = address.rsplit_once('@')?;
    let (_, domain) = key.rsplit_once('@')?;
    let local = encoding::from_utf8(local.trim_start_matches([' ', '\t']))?;
    let local: Cow<'_, [u8]> = lower_case::fold(&local);
    Some([local.as_ref(), b"@", domain.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(text: &str) -> Option<&'static str> {
        login_violation(Some(text)).map(|violation| violation.rule)
    }

    #[test]
    fn an_email_is_what_mail_can_be_sent_to() {
        for good in ["a@b", "first.last+tag@exa-mple.com", "ü@bücher.example"] {
            assert_eq!(email_violation(Some(good)), None, "{good}");
        }
        for bad in [
            "",
            "a@b@c",
            " a@b",
            "a@b\r\nBcc: c",
            "<eve@evil.example>.corp.example",
            "ada@example.com.",
            "\"ada\"@example.com",
        ] {
            let found = email_violation(Some(bad)).unwrap();
            assert_eq!(found.rule, "accounts_email_must_be_an_address", "{bad}");
            assert_eq!(found.reason, address::check(bad).unwrap_err().to_string());
        }
        assert_eq!(email_violation(None).unwrap().reason, NOT_READ);
    }

    #[test]
    fn a_login_is_a_line_that_a_reader_sees() {
        for good in ["admin", "ａdmin", "Anna Müller", "日本", "l", "é"] {
            assert_eq!(login(good), None, "{good}");
        }
        let blanks = Some("accounts_login_must_not_begin_or_end_with_blanks");
        let invisible = Some("accounts_login_must_not_contain_invisible_characters");
        let control = Some("accounts_login_must_not_contain_control_characters");
        for (bad, rule) in [
            ("", Some("accounts_login_must_not_be_empty")),
            ("a\nb", control),
            ("a\u{85}b", control),
            ("a\u{2028}b", control),
            ("admin\u{200b}", invisible),
            ("ad\u{200d}min", invisible),
            ("ad\u{ad}min", invisible),
            (" admin", blanks),
            ("admin\u{3000}", blanks),
        ] {
            assert_eq!(login(bad), rule, "{bad:?}");
        }
        let unread = login_violation(None).unwrap();
        assert_eq!(unread.rule, "accounts_login_must_be_text");
    }

    #[test]
    fn the_length_of_a_login_is_that_of_its_characters() {
        let long = Some("accounts_login_must_not_exceed_254_characters");
        assert_eq!(login(&"l".repeat(254)), None);
        assert_eq!(login(&"l".repeat(255)), long);
        assert_eq!(login(&"é".repeat(254)), None);
        assert_eq!(login(&"é".repeat(255)), long);
    }

    #[test]
    fn a_detail_shows_what_a_reader_does_not_see() {
        let value = "admin\u{200b}\n";
        assert_eq!(
            detail("login", Some(value), "is odd"),
            "The login \"admin<U+200B><U+000A>\" is odd."
        );
        assert_eq!(
            detail("email", None, NOT_READ),
            format!("The email {NOT_READ}.")
        );
    }

    #[test]
    fn what_can_be_stored_as_it_is_is_its_own_key() {
        assert!(_account_is_plain(b"a@example.com", b"a b"));
        for (email, login) in [
            ("A@example.com", "a"),
            ("a@example.com", "A"),
            ("a@example.com", "a "),
            ("a@example.com.", "a"),
            ("ü@example.com", "a"),
        ] {
            assert!(
                !_account_is_plain(email.as_bytes(), login.as_bytes()),
                "{email} {login}"
            );
        }
    }
}
