//! The rules for a row of `accounts`. Pure: they examine bytes in any encoding in which ASCII bytes mean ASCII, as in
//! all encodings of the server; what depends on the encoding is passed to them.
//!
//! They require less of an address than sending mail to it does ([`mailroom_core::address`]): the application decides
//! who may have an account, and mailroom rejects what could break out of a header.

use std::borrow::Cow;

use mailroom_core::address;
use pgrx::prelude::*;

use crate::pg::encoding::{characters, to_utf8};

/// Maximum characters of an address by RFC 5321 section 4.5.3.1.3, and of a login, which is often an address.
const LENGTH_MAX: usize = 254;

/// A rule for a value: the name that its constraint would have, and the remedy.
type Rule = (&'static str, &'static str);

/// Counts the characters of a text in the server's encoding.
type Count = fn(&[u8]) -> usize;

/// Converts a text in the server's encoding to UTF-8, if that is possible.
type Convert = fn(&[u8]) -> Option<Cow<'_, str>>;

/// Returns the first rule that an email violates.
fn email_problem(email: &[u8], characters: Count, to_utf8: Convert) -> Option<Rule> {
    let at = email.iter().position(|byte| *byte == b'@');
    let one_at = at.is_some_and(|at| {
        at > 0 && at + 1 < email.len() && email.iter().rposition(|byte| *byte == b'@') == Some(at)
    });
    if !one_at {
        Some((
            "accounts_email_must_contain_an_at_sign",
            "Give one address: something, one @, something.",
        ))
    } else if email.iter().any(u8::is_ascii_control) {
        Some((
            "accounts_email_must_not_contain_control_characters",
            "Give the address without line breaks, tabs and other control characters.",
        ))
    } else if email.contains(&b' ') {
        Some((
            "accounts_email_must_not_contain_spaces",
            "Give the address alone, without spaces around or within it.",
        ))
    } else if email.len() > LENGTH_MAX && characters(email) > LENGTH_MAX {
        Some((
            "accounts_email_must_not_exceed_254_characters",
            "An address that mail can be sent to has 254 characters at most.",
        ))
    } else if !email.is_ascii() && !has_domain_in_ascii(email, to_utf8) {
        Some((
            "accounts_email_must_have_a_domain_with_a_form_in_ascii",
            "Give an internationalized domain of letters, digits and hyphens only.",
        ))
    } else {
        None
    }
}

/// Whether the domain of an email can be converted to ASCII. In text that cannot be read it is not converted.
fn has_domain_in_ascii(email: &[u8], to_utf8: Convert) -> bool {
    to_utf8(email).is_none_or(|email| {
        email
            .rsplit_once('@')
            .is_some_and(|(_, domain)| address::domain_to_ascii(domain).is_some())
    })
}

/// Returns the first rule that a login violates.
fn login_problem(login: &[u8], characters: Count) -> Option<Rule> {
    if login.is_empty() {
        Some(("accounts_login_must_not_be_empty", "Give a name."))
    } else if login.iter().any(u8::is_ascii_control) {
        Some((
            "accounts_login_must_not_contain_control_characters",
            "Give a name without line breaks, tabs and other control characters.",
        ))
    } else if login.len() > LENGTH_MAX && characters(login) > LENGTH_MAX {
        Some((
            "accounts_login_must_not_exceed_254_characters",
            "Give a name of 254 characters at most.",
        ))
    } else {
        None
    }
}

#[pg_extern(sql = false)]
fn _account_problem(email: Option<&[u8]>, login: Option<&[u8]>) -> Option<Vec<&'static str>> {
    let (email, login) = (email?, login?);
    let ((name, remedy), column) = email_problem(email, characters, to_utf8)
        .map(|rule| (rule, "email"))
        .or_else(|| login_problem(login, characters).map(|rule| (rule, "login")))?;
    Some(vec![column, name, remedy])
}

#[pg_extern(sql = false)]
fn _account_is_plain(email: &[u8], login: &[u8]) -> bool {
    let is_plain = |text: &[u8]| {
        text.iter()
            .all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase())
    };
    is_plain(email)
        && is_plain(login)
        && email_problem(email, characters, to_utf8).is_none()
        && login_problem(login, characters).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn characters(text: &[u8]) -> usize {
        String::from_utf8_lossy(text).chars().count()
    }

    fn to_utf8(text: &[u8]) -> Option<Cow<'_, str>> {
        std::str::from_utf8(text).ok().map(Cow::Borrowed)
    }

    fn email(text: &str) -> Option<&'static str> {
        email_problem(text.as_bytes(), characters, to_utf8).map(|(name, _)| name)
    }

    fn login(text: &str) -> Option<&'static str> {
        login_problem(text.as_bytes(), characters).map(|(name, _)| name)
    }

    #[test]
    fn an_email_has_one_at_sign_within() {
        assert_eq!(email("a@b"), None);
        assert_eq!(email("first.last+tag@exa-mple.com"), None);
        for bad in ["", "@", "a", "@b", "a@", "a@b@c", "a@@b"] {
            let name = email(bad);
            assert_eq!(
                name,
                Some("accounts_email_must_contain_an_at_sign"),
                "{bad}"
            );
        }
    }

    #[test]
    fn an_email_is_one_word() {
        for bad in ["a\n@b", "a@b\r\nBcc: c", "a\t@b", "a\x7f@b", "\x01a@b"] {
            let name = email(bad);
            let control = Some("accounts_email_must_not_contain_control_characters");
            assert_eq!(name, control, "{bad:?}");
        }
        for bad in [" a@b", "a @b", "a@b "] {
            let name = email(bad);
            assert_eq!(
                name,
                Some("accounts_email_must_not_contain_spaces"),
                "{bad:?}"
            );
        }
        // Beyond ASCII, no character counts as a control character, because the encoding is not known here.
        assert_eq!(email("ü\u{85}@b"), None);
    }

    #[test]
    fn an_email_stays_one_when_its_domain_is_converted() {
        for good in ["a@bücher.example", "ü@x.example", "a@ex_ample", "a,b@c;d"] {
            assert_eq!(email(good), None, "{good}");
        }
        for bad in [
            "a@x.example，b＠y.example",
            "ü@x.example；b＠y",
            "a@x\u{b4}y",
        ] {
            let name = email(bad);
            let domain = Some("accounts_email_must_have_a_domain_with_a_form_in_ascii");
            assert_eq!(name, domain, "{bad}");
        }
        // The domain of text that cannot be read is not converted.
        assert!(email_problem(b"a@\xff", characters, to_utf8).is_none());
    }

    #[test]
    fn lengths_are_bounded() {
        let long = "a".repeat(252);
        assert_eq!(email(&format!("{long}@b")), None);
        assert_eq!(
            email(&format!("{long}@bc")),
            Some("accounts_email_must_not_exceed_254_characters")
        );
        assert_eq!(login(&"l".repeat(254)), None);
        assert_eq!(
            login(&"l".repeat(255)),
            Some("accounts_login_must_not_exceed_254_characters")
        );
        // Characters, not bytes.
        assert_eq!(login(&"é".repeat(254)), None);
    }

    #[test]
    fn a_login_is_not_empty_and_one_line() {
        assert_eq!(login(""), Some("accounts_login_must_not_be_empty"));
        let control = Some("accounts_login_must_not_contain_control_characters");
        assert_eq!(login("a\nb"), control);
        assert_eq!(login("Anna Müller"), None);
    }
}
