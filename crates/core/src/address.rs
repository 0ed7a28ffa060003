//! The syntax of mail addresses that can be sent to. Pure.
//!
//! An address is `local@domain` as in an SMTP envelope, without display name, comment, quoted local part and address
//! literal. Letters beyond ASCII are allowed in both parts (RFC 6531). Lengths are in octets; the limits are those of
//! RFC 5321 section 4.5.3.1.
//!
//! A domain beyond ASCII must have a form in ASCII (UTS 46). The conversion maps some characters to ASCII ones that end
//! an address, such as the fullwidth comma and @: a domain with one of them has no such form.

use std::borrow::Cow;
use std::fmt;

use idna::AsciiDenyList;

/// Maximum octets of the local part.
const LOCAL_MAX: usize = 64;
/// Maximum octets of the domain.
const DOMAIN_MAX: usize = 255;
/// Maximum octets of a label of the domain.
const LABEL_MAX: usize = 63;
/// Maximum octets of an address: a path has 256, two of them angle brackets.
const ADDRESS_MAX: usize = 254;

/// Why a string is not an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// It is empty.
    Empty,
    /// It contains a control character, such as a line break.
    Control,
    /// It has this many octets.
    TooLong(usize),
    /// It has no @.
    NoAt,
    /// The local part has this many octets.
    LocalTooLong(usize),
    /// The local part contains this character.
    LocalCharacter(char),
    /// The local part is empty, or has a dot at its beginning, at its end, or next to another.
    LocalDots,
    /// The domain has this many octets.
    DomainTooLong(usize),
    /// The domain contains this character.
    DomainCharacter(char),
    /// The domain has an empty label, one that is too long, or one that begins or ends with a hyphen.
    DomainLabel,
    /// The domain has characters beyond ASCII, and no form in ASCII.
    DomainConversion,
}

impl fmt::Display for AddressError {
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
            Self::DomainConversion => {
                write!(f, "has a domain behind the @ that has no form in ASCII")
            }
        }
    }
}

/// Checks an address.
///
/// # Errors
/// The first error found.
pub fn check(address: &str) -> Result<(), AddressError> {
    to_ascii(address).map(drop)
}

/// Checks an address, and returns it with its domain in ASCII.
///
/// # Errors
/// The first error found.
pub fn to_ascii(address: &str) -> Result<Cow<'_, str>, AddressError> {
    check_syntax(address)?;
    let (local, domain) = address.rsplit_once('@').ok_or(AddressError::NoAt)?;
    if domain.is_ascii() {
        return Ok(Cow::Borrowed(address));
    }
    let domain = domain_to_ascii(domain).ok_or(AddressError::DomainConversion)?;
    let address = format!("{local}@{domain}");
    check_syntax(&address)?;
    Ok(Cow::Owned(address))
}

/// The ASCII form of a domain: letters, digits, hyphens and dots; `None` if it has none. An ASCII domain is returned as
/// it is.
pub fn domain_to_ascii(domain: &str) -> Option<Cow<'_, str>> {
    if domain.is_ascii() {
        return Some(Cow::Borrowed(domain));
    }
    idna::domain_to_ascii_cow(domain.as_bytes(), AsciiDenyList::STD3)
        .ok()
        .filter(|domain| check_domain(domain).is_ok())
}

fn check_syntax(address: &str) -> Result<(), AddressError> {
    if address.is_empty() {
        return Err(AddressError::Empty);
    }
    if address.chars().any(char::is_control) {
        return Err(AddressError::Control);
    }
    let (local, domain) = address.rsplit_once('@').ok_or(AddressError::NoAt)?;
    check_local(local)?;
    check_domain(domain)?;
    if address.len() > ADDRESS_MAX {
        return Err(AddressError::TooLong(address.len()));
    }
    Ok(())
}

fn check_local(local: &str) -> Result<(), AddressError> {
    if let Some(found) = local.chars().find(|c| *c != '.' && !is_atom_text(*c)) {
        return Err(AddressError::LocalCharacter(found));
    }
    if local.len() > LOCAL_MAX {
        return Err(AddressError::LocalTooLong(local.len()));
    }
    if local.split('.').any(str::is_empty) {
        return Err(AddressError::LocalDots);
    }
    Ok(())
}

fn check_domain(domain: &str) -> Result<(), AddressError> {
    let allowed =
        |c: char| c.is_ascii_alphanumeric() || c == '-' || (!c.is_ascii() && !c.is_whitespace());
    if let Some(found) = domain.chars().find(|c| *c != '.' && !allowed(*c)) {
        return Err(AddressError::DomainCharacter(found));
    }
    if domain.len() > DOMAIN_MAX {
        return Err(AddressError::DomainTooLong(domain.len()));
    }
    let good = |label: &str| {
        (1..=LABEL_MAX).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    if !domain.split('.').all(good) {
        return Err(AddressError::DomainLabel);
    }
    Ok(())
}

/// The atext of RFC 5322, and the characters that RFC 6531 adds to it except for spaces.
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
            ("", AddressError::Empty),
            ("a@example.com\r\nBcc: b@example.com", AddressError::Control),
            ("a@example.com\0", AddressError::Control),
            ("a\u{85}@example.com", AddressError::Control),
            ("example.com", AddressError::NoAt),
            ("@example.com", AddressError::LocalDots),
            (".a@example.com", AddressError::LocalDots),
            ("a.@example.com", AddressError::LocalDots),
            ("a..b@example.com", AddressError::LocalDots),
            ("Ann <a@example.com>", AddressError::LocalCharacter(' ')),
            ("<a@example.com>", AddressError::LocalCharacter('<')),
            ("\"a b\"@example.com", AddressError::LocalCharacter('"')),
            ("a@b@example.com", AddressError::LocalCharacter('@')),
            ("a,b@example.com", AddressError::LocalCharacter(',')),
            (
                "a\u{2028}b@example.com",
                AddressError::LocalCharacter('\u{2028}'),
            ),
            ("a@", AddressError::DomainLabel),
            ("a@example..com", AddressError::DomainLabel),
            ("a@example.com.", AddressError::DomainLabel),
            ("a@-example.com", AddressError::DomainLabel),
            ("a@example-.com", AddressError::DomainLabel),
            ("a@exam ple.com", AddressError::DomainCharacter(' ')),
            ("a@exam_ple.com", AddressError::DomainCharacter('_')),
            ("a@[127.0.0.1]", AddressError::DomainCharacter('[')),
            ("{a@example.com}", AddressError::DomainCharacter('}')),
            ("a@example.com>", AddressError::DomainCharacter('>')),
        ];
        for (bad, why) in cases {
            assert_eq!(check(bad), Err(why), "{bad:?}");
        }
    }

    #[test]
    fn a_domain_goes_in_ascii() {
        for (address, expected) in [
            ("a@Example.COM", "a@Example.COM"),
            ("δοκιμή@παράδειγμα.ελ", "δοκιμή@xn--hxajbheg2az3al.xn--qxam"),
            ("a@BÜCHER.example", "a@xn--bcher-kva.example"),
            // The Japanese full stop, letters and digits of full width, and a hyphen that is not shown.
            ("a@例え。example", "a@xn--r8jz45g.example"),
            ("a@ｓｈｏｐ１．example", "a@shop1.example"),
            ("a@ex\u{ad}ample.com", "a@example.com"),
        ] {
            assert_eq!(to_ascii(address).as_deref(), Ok(expected), "{address}");
        }
    }

    #[test]
    fn one_address_stays_one_in_ascii() {
        for (bad, why) in [
            ("a@x.example，b＠y.example", AddressError::DomainConversion),
            ("a@x.example；b＠y.example", AddressError::DomainConversion),
            ("a@x.example\u{b4}y", AddressError::DomainConversion),
            ("a@x.example＞", AddressError::DomainConversion),
            ("a@℀.example", AddressError::DomainConversion),
            ("a@bücher＿x.example", AddressError::DomainConversion),
            ("a@－x.example", AddressError::DomainConversion),
            ("a@\u{ad}", AddressError::DomainConversion),
            ("a@\u{ad}.example", AddressError::DomainConversion),
            ("a@ü。。example", AddressError::DomainConversion),
        ] {
            assert_eq!(check(bad), Err(why), "{bad}");
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        for c in ('\u{80}'..'\u{20000}').filter(|c| !c.is_control()) {
            let address = format!("a@x{c}y.example");
            if let Ok(ascii) = to_ascii(&address) {
                let domain = ascii.strip_prefix("a@").unwrap();
                assert!(domain.chars().all(fits), "U+{:04X}: {ascii}", u32::from(c));
            }
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
            Err(AddressError::LocalTooLong(65))
        );
        // 191 octets of domain, the @, and 62 before it.
        assert_eq!(check(&format!("{}@{long_domain}", local(62))), Ok(()));
        assert_eq!(
            check(&format!("{}@{long_domain}", local(63))),
            Err(AddressError::TooLong(255))
        );
        assert_eq!(
            check(&format!("a@{}", [label.as_str(); 4].join("."))),
            Err(AddressError::TooLong(257))
        );
        assert_eq!(
            check(&format!("a@{}", [label.as_str(); 5].join("."))),
            Err(AddressError::DomainTooLong(319))
        );
        assert_eq!(
            check(&format!("a@d{label}")),
            Err(AddressError::DomainLabel)
        );
        // Octets, not characters.
        assert_eq!(
            check(&format!("{}@example.com", "ü".repeat(33))),
            Err(AddressError::LocalTooLong(66))
        );
    }

    proptest! {
        #[test]
        fn what_passes_cannot_break_out_of_a_header(text in "\\PC{0,20}|.{0,20}@.{0,20}|[a-z.@<>,;:\\\\\" \r\n\t-]{0,20}") {
            if check(&text).is_ok() {
                prop_assert!(!text.contains(|c: char| c.is_control() || c.is_whitespace() || "<>()[],;:\\\"".contains(c)));
                prop_assert_eq!(text.matches('@').count(), 1);
                prop_assert!(text.len() <= ADDRESS_MAX);
                let ascii = to_ascii(&text).unwrap();
                prop_assert_eq!(to_ascii(&ascii).unwrap(), ascii.clone());
            }
        }
    }
}
