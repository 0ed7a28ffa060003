//! What a mail server replied: its enhanced status code (RFC 3463), and whether that is about the mailbox. Pure.

use crate::line;

/// Maximum characters of a detail.
const DETAIL_MAX: usize = 1000;

/// The enhanced status code that a reply begins with: `5.1.1` of `smtp; 550 5.1.1 <ada@example.com>: unknown`, of
/// `550-5.1.1 unknown` and of `5.1.1 unknown`. Codes further inside are prose and may be about anything.
pub(super) fn status(reply: &str) -> Option<&str> {
    let reply = match reply.split_once(';') {
        Some((kind, rest)) if kind.trim().eq_ignore_ascii_case("smtp") => rest,
        _ => reply,
    };
    let reply = reply.trim_start();
    let mut words = reply.splitn(3, [' ', '-']);
    let first = words.next()?;
    let is_code = first.len() == 3 && first.bytes().all(|byte| byte.is_ascii_digit());
    let word = if is_code { words.next()? } else { first };
    Some(word.trim_matches(['#', '(', ')', ':', ','])).filter(|word| is_status(word))
}

/// Whether this is an enhanced status code: a class, 2, 4 or 5, and two numbers of at most three digits.
pub(super) fn is_status(text: &str) -> bool {
    let mut parts = text.split('.');
    let is_class = matches!(parts.next(), Some("2" | "4" | "5"));
    let mut is_number = || {
        parts.next().is_some_and(|part| {
            (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    is_class && is_number() && is_number() && parts.next().is_none()
}

/// Whether a bounce that the provider calls permanent may be one of the address. 5.7.z is policy, which is mostly about
/// the sender; 4.y.z is final for the mail at most. A missing code leaves it to the provider.
pub(super) fn may_be_permanent(status: Option<&str>) -> bool {
    status.is_none_or(|status| !status.starts_with("4.") && !status.starts_with("5.7."))
}

/// Text for people: without control characters, at most [`DETAIL_MAX`] characters; `None` if nothing is left.
pub(super) fn detail(text: &str) -> Option<String> {
    let is_blank = |c: char| c.is_whitespace() || line::is_control(c);
    let plain = |c: char| if line::is_control(c) { ' ' } else { c };
    let text = text.trim_matches(is_blank).chars();
    let text: String = text.map(plain).take(DETAIL_MAX).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_where_a_reply_has_it() {
        for (reply, expected) in [
            (
                "smtp; 550 5.1.1 <jane@example.com>... User unknown",
                Some("5.1.1"),
            ),
            ("smtp;550 5.1.1 The email account", Some("5.1.1")),
            ("550-5.1.10 unknown", Some("5.1.10")),
            ("550 #5.1.0 Address rejected", Some("5.1.0")),
            ("5.1.1 The email account", Some("5.1.1")),
            ("250 2.0.0 OK 1461095248", Some("2.0.0")),
            ("550 unknown 5.1.1", None),
            ("the host 5.1.1.1 said 5.1.1", None),
            ("550", None),
            ("", None),
            ("550 3.1.1 x", None),
            ("550 5.1.1111 x", None),
            ("550 5..1 x", None),
        ] {
            assert_eq!(status(reply), expected, "{reply}");
        }
    }

    #[test]
    fn policy_and_passing_trouble_are_never_permanent() {
        for (status, expected) in [
            (None, true),
            (Some("5.1.1"), true),
            (Some("5.0.0"), true),
            (Some("5.7.1"), false),
            (Some("5.7.26"), false),
            (Some("4.4.7"), false),
        ] {
            assert_eq!(may_be_permanent(status), expected, "{status:?}");
        }
    }

    #[test]
    fn a_detail_is_one_bounded_line() {
        assert_eq!(
            detail(" 5.1.1 no\n5.1.1 such\0 ").as_deref(),
            Some("5.1.1 no 5.1.1 such")
        );
        assert_eq!(detail(" \n "), None);
        assert_eq!(
            detail(&"ü".repeat(2000)).map(|text| text.chars().count()),
            Some(1000)
        );
    }
}
