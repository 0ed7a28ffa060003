//! Parsers for values of the transports file: durations, address patterns, names. Pure.

use std::time::Duration;

use zeroize::Zeroizing;

use crate::{address, line};

/// Maximum bytes of a transport's name.
const NAME_MAX: usize = 63;

/// Whether this is a valid name of a transport: `[a-z][a-z0-9_-]{0,62}`.
pub(super) fn is_name(text: &str) -> bool {
    let fits = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
    };
    text.len() <= NAME_MAX
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(fits)
}

/// A duration with one of PostgreSQL's units, with or without a space between number and unit.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let seconds = match unit.trim_start() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * seconds).ok()
}

/// The form of a name or a password that a person chose.
pub(super) const TEXT: &str = "text without control characters";

/// Parses [`TEXT`].
pub(super) fn text(text: &str) -> Option<Zeroizing<String>> {
    let fits = !text.is_empty() && line::first_control(text).is_none();
    // One allocation of the final size leaves no copy that is not zeroed.
    fits.then(|| Zeroizing::new(text.to_owned()))
}

/// An address, or `*@domain` for all addresses of a domain; the domain in lower case.
pub(super) fn pattern(text: &str) -> Option<String> {
    let (local, domain) = text.trim().rsplit_once('@')?;
    let is_clear = local == "*" || !local.contains('*');
    let pattern = format!("{local}@{}", domain.to_lowercase());
    (is_clear && address::check(&pattern).is_ok()).then_some(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "transactional", "ses-eu_1", &"a".repeat(63)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "1a", "-a", "A", "a.b", "ä", "a b", &"a".repeat(64)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn times() {
        for (text, milliseconds) in [
            ("60 s", 60_000),
            ("60s", 60_000),
            (" 1.5 s ", 1_500),
            ("250ms", 250),
            ("2000 us", 2),
            ("1min", 60_000),
            ("1 h", 3_600_000),
            ("1 d", 86_400_000),
        ] {
            assert_eq!(
                duration(text),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for bad in [
            "", "60", "s", "60 S", "60 sec", "-1 s", "1..2 s", "1 s s", ". s", "1e9 d",
        ] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }

    #[test]
    fn patterns() {
        assert_eq!(pattern("*@Example.COM").as_deref(), Some("*@example.com"));
        assert_eq!(pattern("A.b@x.example").as_deref(), Some("A.b@x.example"));
        for bad in [
            "",
            "*",
            "example.com",
            "*@",
            "a*@example.com",
            "*@*.example.com",
            "a <a@b>",
            "*@x.example，y.example",
            "a@x.example；b＠y.example",
        ] {
            assert_eq!(pattern(bad), None, "{bad}");
        }
    }
}
