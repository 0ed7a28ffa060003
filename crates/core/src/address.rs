//! The syntax of mail addresses that can be sent to. Pure.
//!
//! An address is `local@domain` as in an SMTP envelope, without display name, comment, quoted local part and address
//! literal. Letters beyond ASCII are allowed in both parts (RFC 6531). Lengths are in octets; the limits are those of
//! RFC 5321 section 4.5.3.1.
//!
//! A domain beyond ASCII must have a form in ASCII (UTS 46). The conversion maps some characters to ASCII ones that end
//! an address, such as the fullwidth comma and @: a domain with one of them has no such form. It drops others, such as
//! the soft hyphen: all spellings of a domain have one form.
//!
//! This is the only judge: what may be the address of an account, what may be scheduled and what is sent are the same
//! addresses. [`mailbox`] reads them with the names of people, and lists of them.

use std::borrow::Cow;
use std::fmt;

use idna::AsciiDenyList;

use crate::line::{self, Named};

pub mod mailbox;

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
    /// It contains this control character, such as a line break.
    Control(char),
    /// It has this many octets.
    TooLong(usize),
    /// It has no @.
    NoAt,
    /// The local part has this many octets, as it is or in lower case.
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
            Self::Control(found) => write!(f, "contains the control character {}", Named(*found)),
            Self::TooLong(octets) => {
                write!(f, "has {octets} octets, at most {ADDRESS_MAX} are allowed")
            }
            Self::NoAt => write!(f, "has no @"),
            Self::LocalTooLong(octets) => write!(
                f,
                "has {octets} octets before the @, at most {LOCAL_MAX} are allowed"
            ),
            Self::LocalCharacter('@') => write!(f, "has more than one @"),
            Self::LocalCharacter(found) => write!(f, "has {} before the @", Named(*found)),
            Self::LocalDots => write!(f, "has a dot too many, or nothing, before the @"),
            Self::DomainTooLong(octets) => write!(
                f,
                "has {octets} octets behind the @, at most {DOMAIN_MAX} are allowed"
            ),
            Self::DomainCharacter(found) => write!(f, "has {} behind the @", Named(*found)),
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
    let (local, domain) = check_syntax(address)?;
    let address = if domain.is_ascii() {
        Cow::Borrowed(address)
    } else {
        let domain = domain_to_ascii(domain).ok_or(AddressError::DomainConversion)?;
        Cow::Owned(format!("{local}@{domain}"))
    };
    // The lower case of some letters is longer, and the key must be an address too.
    let lower = if local.is_ascii() {
        local.len()
    } else {
        local_key(local).len()
    };
    if lower > LOCAL_MAX {
        return Err(AddressError::LocalTooLong(lower));
    }
    let longest = address.len() - local.len() + lower.max(local.len());
    if longest > ADDRESS_MAX {
        return Err(AddressError::TooLong(longest));
    }
    Ok(address)
}

/// Checks an address, and returns the key by which addresses are compared: the local part in lower case by the rules
/// of Unicode's root locale, and the domain in ASCII, in lower case. A key is an address, and its own key.
///
/// # Errors
/// The first error found.
pub fn key(address: &str) -> Result<Cow<'_, str>, AddressError> {
    let address = to_ascii(address)?;
    let is_folded = |byte: u8| byte.is_ascii() && !byte.is_ascii_uppercase();
    if address.bytes().all(is_folded) {
        return Ok(address);
    }
    let (local, domain) = address.rsplit_once('@').ok_or(AddressError::NoAt)?;
    let key = format!("{}@{}", local_key(local), domain.to_ascii_lowercase());
    Ok(Cow::Owned(key))
}

/// The local part of a key.
fn local_key(local: &str) -> Cow<'_, str> {
    if local.is_ascii() && !local.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Borrowed(local)
    } else {
        Cow::Owned(local.to_lowercase())
    }
}

/// Whether two addresses are certainly one mailbox: domains compare without case and in ASCII; only the receiving host
/// knows which local parts are the same, so these must be equal octet by octet.
pub fn is_same_mailbox(one: &str, other: &str) -> bool {
    if one == other {
        return true;
    }
    let (Some((local, domain)), Some((other_local, other_domain))) =
        (one.rsplit_once('@'), other.rsplit_once('@'))
    else {
        return false;
    };
    if local != other_local {
        return false;
    }
    match (domain_to_ascii(domain), domain_to_ascii(other_domain)) {
        (Some(domain), Some(other)) => domain.eq_ignore_ascii_case(&other),
        _ => false,
    }
}

/// Whether a pattern of `allow_from` allows this address: an address, or `*@domain` for all addresses of a domain.
pub fn is_allowed(pattern: &str, address: &str) -> bool {
    match (pattern.strip_prefix("*@"), address.rsplit_once('@')) {
        (Some(domain), Some((_, other))) => {
            match (domain_to_ascii(domain), domain_to_ascii(other)) {
                (Some(domain), Some(other)) => domain.eq_ignore_ascii_case(&other),
                _ => false,
            }
        }
        _ => is_same_mailbox(pattern, address),
    }
}

/// The addresses, each mailbox once, as it is first written.
pub fn mailboxes<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut mailboxes: Vec<&str> = Vec::new();
    for address in addresses {
        if !mailboxes
            .iter()
            .any(|known| is_same_mailbox(known, address))
        {
            mailboxes.push(address);
        }
    }
    mailboxes
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

/// Checks an address apart from the conversion of its domain, and returns its two parts.
fn check_syntax(address: &str) -> Result<(&str, &str), AddressError> {
    if address.is_empty() {
        return Err(AddressError::Empty);
    }
    if let Some(found) = line::first_control(address) {
        return Err(AddressError::Control(found));
    }
    let (local, domain) = address.rsplit_once('@').ok_or(AddressError::NoAt)?;
    check_local(local)?;
    check_domain(domain)?;
    Ok((local, domain))
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
    // The form in ASCII may be shorter.
    let label_max = if domain.is_ascii() {
        LABEL_MAX
    } else {
        DOMAIN_MAX
    };
    let good = |label: &str| {
        (1..=label_max).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    if !domain.split('.').all(good) {
        return Err(AddressError::DomainLabel);
    }
    Ok(())
}

/// The atext of RFC 5322, and the characters that RFC 6531 adds to it except for blanks and those that are not seen.
fn is_atom_text(c: char) -> bool {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' => true,
        c if c.is_ascii() => "!#$%&'*+-/=?^_`{|}~".contains(c),
        c => !c.is_whitespace() && !line::is_invisible(c),
    }
}

#[cfg(test)]
mod tests;
