//! What a mail address may look like. Pure.
//!
//! The address alone, `local@domain`, as it goes into an SMTP envelope: no display name, no comment, no quoted
//! local part, no address literal. Letters beyond ASCII are allowed in both halves (RFC 6531). Lengths count
//! octets, with the limits of RFC 5321 section 4.5.3.1.

use std::fmt;

/// Octets before the @.
const LOCAL_MAX: usize = 64;
/// Octets behind it.
const DOMAIN_MAX: usize = 255;
/// Octets between two dots of the domain.
const LABEL_MAX: usize = 63;
/// A path has 256 octets, two of them angle brackets.
const ADDRESS_MAX: usize = 254;

/// Why something is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is nothing.
    Empty,
    /// A control character, a line break among them.
    Control,
    /// It has this many octets.
    TooLong(usize),
    /// There is no @.
    NoAt,
    /// The part before the @ has this many octets.
    LocalTooLong(usize),
    /// The part before the @ has this character.
    LocalCharacter(char),
    /// The part before the @ is empty, or has a dot at its beginning, at its end, or next to another.
    LocalDots,
    /// The part behind the @ has this many octets.
    DomainTooLong(usize),
    /// The part behind the @ has this character.
    DomainCharacter(char),
    /// The part behind the @ has an empty label, a long one, or one that begins or ends with a hyphen.
    DomainLabel,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "is empty"),
            Self::Control => write!(f, "contains a control character"),
            Self::TooLong(octets) => {
                write!(f, "has {octets} octets, at most {ADDRESS_MAX} are allowed")
            }
            Self::NoAt => write!(f, "has no @"),
            Self::LocalTooLong(octets) => write!(
                f,
                "has {octets} octets before the @, at most {LOCAL_MAX} are allowed"
            ),
            Self::LocalCharacter('@') => write!(f, "has more than one @"),
            Self::LocalCharacter(found) => write!(f, "has {found:?} before the @"),
            Self::LocalDots => write!(f, "has a dot too many, or nothing, before the @"),
            Self::DomainTooLong(octets) => write!(
                f,
                "has {octets} octets behind the @, at most {DOMAIN_MAX} are allowed"
            ),
            Self::DomainCharacter(found) => write!(f, "has {found:?} behind the @"),
            Self::DomainLabel => write!(f, "has no domain name behind the @"),
        }
    }
}

/// Whether this is an address.
///
/// # Errors
/// The first problem found.
pub fn check(address: &str) -> Result<(), Problem> {
    if address.is_empty() {
        return Err(Problem::Empty);
    }
    if address.chars().any(char::is_control) {
        return Err(Problem::Control);
    }
    let (local, domain) = address.rsplit_once('@').ok_or(Problem::NoAt)?;
    check_local(local)?;
    check_domain(domain)?;
    if address.len() > ADDRESS_MAX {
        return Err(Problem::TooLong(address.len()));
    }
    Ok(())
}

fn check_local(local: &str) -> Result<(), Problem> {
    if let Some(found) = local.chars().find(|c| *c != '.' && !is_atom_text(*c)) {
        return Err(Problem::LocalCharacter(found));
    }
    if local.len() > LOCAL_MAX {
        return Err(Problem::LocalTooLong(local.len()));
    }
    if local.split('.').any(str::is_empty) {
        return Err(Problem::LocalDots);
    }
    Ok(())
}

fn check_domain(domain: &str) -> Result<(), Problem> {
    let allowed =
        |c: char| c.is_ascii_alphanumeric() || c == '-' || (!c.is_ascii() && !c.is_whitespace());
    if let Some(found) = domain.chars().find(|c| *c != '.' && !allowed(*c)) {
        return Err(Problem::DomainCharacter(found));
    }
    if domain.len() > DOMAIN_MAX {
        return Err(Problem::DomainTooLong(domain.len()));
    }
    let good = |label: &str| {
        (1..=LABEL_MAX).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    if !domain.split('.').all(good) {
        return Err(Problem::DomainLabel);
    }
    Ok(())
}

/// RFC 5322's atext, and what RFC 6531 adds to it but for spaces of any kind.
fn is_atom_text(c: char) -> bool {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' => true,
        c if c.is_ascii() => "!#$%&'*+-/=?^_`{|}~".contains(c),
        c => !c.is_whitespace(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_an_address() {
        for good in [
            "a@b",
            "user@example.com",
            "first.last+tag@sub.example.co.uk",
            "!#$%&'*+-/=?^_`{|}~@example.com",
            "1@1.com",
            "root@localhost",
            "δοκιμή@παράδειγμα.ελ",
            "user@xn--hxajbheg2az3al.xn--jxalpdlp",
            "उपयोगकर्ता@उदाहरण.भारत",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn what_is_none_and_why() {
        let cases = [
            ("", Problem::Empty),
            ("a@example.com\r\nBcc: b@example.com", Problem::Control),
            ("a@example.com\0", Problem::Control),
            ("a\u{85}@example.com", Problem::Control),
            ("example.com", Problem::NoAt),
            ("@example.com", Problem::LocalDots),
            (".a@example.com", Problem::LocalDots),
            ("a.@example.com", Problem::LocalDots),
            ("a..b@example.com", Problem::LocalDots),
            ("Ann <a@example.com>", Problem::LocalCharacter(' ')),
            ("<a@example.com>", Problem::LocalCharacter('<')),
            ("\"a b\"@example.com", Problem::LocalCharacter('"')),
            ("a@b@example.com", Problem::LocalCharacter('@')),
            ("a,b@example.com", Problem::LocalCharacter(',')),
            (
                "a\u{2028}b@example.com",
                Problem::LocalCharacter('\u{2028}'),
            ),
            ("a@", Problem::DomainLabel),
            ("a@example..com", Problem::DomainLabel),
            ("a@example.com.", Problem::DomainLabel),
            ("a@-example.com", Problem::DomainLabel),
            ("a@example-.com", Problem::DomainLabel),
            ("a@exam ple.com", Problem::DomainCharacter(' ')),
            ("a@exam_ple.com", Problem::DomainCharacter('_')),
            ("a@[127.0.0.1]", Problem::DomainCharacter('[')),
            ("{a@example.com}", Problem::DomainCharacter('}')),
            ("a@example.com>", Problem::DomainCharacter('>')),
        ];
        for (bad, why) in cases {
            assert_eq!(check(bad), Err(why), "{bad:?}");
        }
    }

    #[test]
    fn lengths_are_those_of_rfc_5321() {
        let label = "d".repeat(LABEL_MAX);
        let local = |octets| "l".repeat(octets);
        let long_domain = [label.as_str(); 3].join(".");
        assert_eq!(check(&format!("{}@example.com", local(64))), Ok(()));
        assert_eq!(
            check(&format!("{}@example.com", local(65))),
            Err(Problem::LocalTooLong(65))
        );
        // 191 octets of domain, the @, and 62 before it.
        assert_eq!(check(&format!("{}@{long_domain}", local(62))), Ok(()));
        assert_eq!(
            check(&format!("{}@{long_domain}", local(63))),
            Err(Problem::TooLong(255))
        );
        assert_eq!(
            check(&format!("a@{}", [label.as_str(); 4].join("."))),
            Err(Problem::TooLong(257))
        );
        assert_eq!(
            check(&format!("a@{}", [label.as_str(); 5].join("."))),
            Err(Problem::DomainTooLong(319))
        );
        assert_eq!(check(&format!("a@d{label}")), Err(Problem::DomainLabel));
        // Octets, not characters.
        assert_eq!(
            check(&format!("{}@example.com", "ü".repeat(33))),
            Err(Problem::LocalTooLong(66))
        );
    }

    proptest! {
        #[test]
        fn what_passes_cannot_break_out_of_a_header(text in "\\PC{0,20}|.{0,20}@.{0,20}|[a-z.@<>,;:\\\\\" \r\n\t-]{0,20}") {
            if check(&text).is_ok() {
                prop_assert!(!text.contains(|c: char| c.is_control() || c.is_whitespace() || "<>()[],;:\\\"".contains(c)));
                prop_assert_eq!(text.matches('@').count(), 1);
                prop_assert!(text.len() <= ADDRESS_MAX);
            }
        }
    }
}
