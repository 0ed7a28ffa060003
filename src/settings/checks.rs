//! What the values of some settings must be.

use std::ffi::CStr;

use pgrx::pg_sys::NAMEDATALEN;

use crate::pg::options::Check;

/// What NOTIFY accepts for a channel: otherwise a mistyped channel would fail every INSERT.
pub struct Channel;

impl Check for Channel {
    fn accepts(value: &CStr) -> bool {
        (1..NAMEDATALEN as usize).contains(&value.count_bytes())
    }
}

/// A base of links that does not send a token over the network in clear text.
pub struct LinkBaseUrl;

impl Check for LinkBaseUrl {
    fn accepts(value: &CStr) -> bool {
        is_uri(value.to_bytes()) && keeps_tokens(value.to_bytes())
    }
}

/// What a row may have for its transport: otherwise a mistyped name would fail every INSERT.
pub struct TransportName;

impl Check for TransportName {
    fn accepts(value: &CStr) -> bool {
        is_empty_or_name(value.to_bytes())
    }
}

/// Whether these are characters of a URI: others are written as punycode or percent-encoded, so that a link is the same
/// in every encoding.
fn is_uri(base: &[u8]) -> bool {
    base.iter().all(u8::is_ascii_graphic)
}

/// Whether a link with this base keeps its token from the network: https, or this machine.
fn keeps_tokens(base: &[u8]) -> bool {
    let after = |scheme: &[u8]| {
        base.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            .then(|| &base[scheme.len()..])
    };
    if base.is_empty() || after(b"https://").is_some_and(|rest| !rest.is_empty()) {
        return true;
    }
    let Some(rest) = after(b"http://") else {
        return false;
    };
    let end = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    let authority = &rest[..end.unwrap_or(rest.len())];
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
