//! What the values of some settings must be.

use std::ffi::CStr;

use pgrx::pg_sys::NAMEDATALEN;

use crate::pg::options::{Check, Objection};

/// What NOTIFY accepts for a channel: otherwise a mistyped channel would fail every INSERT.
pub struct Channel;

impl Check for Channel {
    fn objection(value: &CStr) -> Option<Objection> {
        let fits = (1..NAMEDATALEN as usize).contains(&value.count_bytes());
        (!fits).then_some(Objection {
            detail: c"The name of a channel has 1 to 63 bytes.",
            hint: c"To announce nothing, set mailroom.notify to off.",
        })
    }
}

/// A base of links that does not send a token over the network in clear text.
pub struct LinkBaseUrl;

impl Check for LinkBaseUrl {
    fn objection(value: &CStr) -> Option<Objection> {
        let detail = base_problem(value.to_bytes())?;
        Some(Objection {
            detail,
            hint: c"Set scheme, host and path prefix only, such as https://example.com/account.",
        })
    }
}

/// What a row may have for its transport: otherwise a mistyped name would fail every INSERT.
pub struct TransportName;

impl Check for TransportName {
    fn objection(value: &CStr) -> Option<Objection> {
        (!is_empty_or_name(value.to_bytes())).then_some(Objection {
            detail: c"A transport is named by a lower-case letter, then at most 62 lower-case letters, digits, _ and -.",
            hint: c"Use the name of a transport in the transports file, or an empty text to leave mail to clients.",
        })
    }
}

/// Why a base of links cannot be used; empty is no base.
fn base_problem(base: &[u8]) -> Option<&'static CStr> {
    if !is_uri(base) {
        return Some(c"A URL has neither spaces nor characters beyond ASCII, nor any of <>{}|\\^`\"; write them as punycode or percent-encoded.");
    }
    if base.iter().any(|byte| matches!(byte, b'?' | b'#')) {
        return Some(c"A path and a query with the token follow, so it has no query and no fragment of its own.");
    }
    if authority(base).contains(&b'@') {
        return Some(
            c"It contains a user name or password, which everybody who gets mail would see.",
        );
    }
    (!keeps_tokens(base))
        .then_some(c"Links must begin with https:// and a host; http:// is for this machine only.")
}

/// Whether these are characters of a URI: others are written as punycode or percent-encoded, so that a link is the same
/// in every encoding, and none of them ends a link in a text.
fn is_uri(base: &[u8]) -> bool {
    base.iter()
        .all(|byte| byte.is_ascii_graphic() && !b"<>{}|\\^`\"".contains(byte))
}

/// What is between the scheme and the path: host, port and what may stand before them.
fn authority(base: &[u8]) -> &[u8] {
    let after = base
        .windows(3)
        .position(|window| window == b"://")
        .map_or(base, |at| &base[at + 3..]);
    let end = after.iter().position(|byte| *byte == b'/');
    &after[..end.unwrap_or(after.len())]
}

/// Whether a link with this base keeps its token from the network: https, or this machine.
fn keeps_tokens(base: &[u8]) -> bool {
    let after = |scheme: &[u8]| {
        base.get(..scheme.len())
            .filter(|start| start.eq_ignore_ascii_case(scheme))
    };
    let authority = authority(base);
    if base.is_empty() || after(b"https://").is_some() && !authority.is_empty() {
        return true;
    }
    if after(b"http://").is_none() {
        return false;
    }
    [&b"localhost"[..], b"127.0.0.1", b"[::1]"]
        .iter()
        .any(|host| {
            authority
                .get(..host.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(host))
                && match &authority[host.len()..] {
                    [] => true,
                    [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
                    _ => false,
                }
        })
}

/// Bytes of a transport's name at most, as of PostgreSQL's own names.
const NAME_MAX: usize = 63;

/// The rule of the domain `_transport` in `sql/40_outbox/10_outbox.sql`.
fn is_empty_or_name(name: &[u8]) -> bool {
    let Some((first, rest)) = name.split_first() else {
        return true;
    };
    name.len() <= NAME_MAX
        && first.is_ascii_lowercase()
        && rest
            .iter()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_keep_their_tokens() {
        for good in [
            "",
            "https://example.com",
            "HTTPS://example.com/account",
            "http://localhost",
            "http://LOCALHOST:8080/account",
            "http://127.0.0.1:3000",
            "http://[::1]/a",
        ] {
            assert!(keeps_tokens(good.as_bytes()), "{good}");
        }
        for bad in [
            "example.com",
            "https://",
            "http://example.com",
            "http://localhost.example.com",
            "http://localhost@example.com",
            "http://localhost:80@example.com",
            "http://127.0.0.11",
            "javascript:alert(1)",
            "ftp://localhost",
        ] {
            assert!(!keeps_tokens(bad.as_bytes()), "{bad}");
        }
        for other in [
            "https://m\u{fc}ller.example",
            "https://a b.example",
            "https://a\n",
        ] {
            assert!(!is_uri(other.as_bytes()), "{other}");
        }
        assert!(is_uri(b"https://xn--mller-kva.example/%C3%BC"));
    }

    /// The path of a link follows the base.
    #[test]
    fn a_base_has_no_other_parts() {
        for (bad, word) in [
            ("https://example.com/a?x=1", "query"),
            ("https://example.com?", "query"),
            ("https://example.com/#/app", "fragment"),
            ("https://ada:secret@example.com/a", "password"),
            ("https://ada@example.com", "user name"),
            ("https://example.com/{tenant}", "{}"),
            ("https:///account", "a host"),
            ("http://example.com", "this machine"),
        ] {
            let problem = base_problem(bad.as_bytes()).unwrap().to_str().unwrap();
            assert!(problem.contains(word), "{bad}: {problem}");
        }
        for good in [
            "",
            "https://example.com/@ada/~b/%7Bc%7D",
            "http://localhost:80/a",
        ] {
            assert_eq!(base_problem(good.as_bytes()), None, "{good}");
        }
    }

    #[test]
    fn a_transport_is_named_as_the_domain_demands() {
        let longest = "a".repeat(NAME_MAX);
        for good in ["", "a", "relay-2", "s_3", &longest] {
            assert!(is_empty_or_name(good.as_bytes()), "{good}");
        }
        let longer = "a".repeat(NAME_MAX + 1);
        for bad in [
            " ", "A", "2nd", "_a", "-", "a b", "a.b", "\u{e4}", "a\n", &longer,
        ] {
            assert!(!is_empty_or_name(bad.as_bytes()), "{bad}");
        }
    }
}
