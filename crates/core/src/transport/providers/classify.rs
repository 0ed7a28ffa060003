//! What the status and the headers of a response mean, whichever provider sent it. Pure.
//!
//! A reason consists of the status, of fixed texts, and of an error code if it has the form of one. A body may repeat
//! the token, so no part of it that could be a token is used.

use std::time::Duration;

use hyper::HeaderMap;

use super::{MessageOutcome, Response};
use crate::transport::dates;

/// Longer than any error code of the providers, shorter than a signed token.
const CODE_MAX: usize = 64;
/// Longer than any message id of the providers.
const ID_MAX: usize = 255;
/// The longest wait that one response may cause: quotas are counted by day.
const FLOOR_MAX: Duration = Duration::from_secs(24 * 3600);
/// A larger number is a time since 1970 in seconds, not a wait: 2001-09-09 as a time, 31 years as a wait.
const DATE_FROM: u64 = 1_000_000_000;
/// An even larger number is a time in milliseconds: again 2001-09-09, or 33,000 years.
const MILLIS_FROM: u64 = 1_000_000_000_000;

/// An error code of the provider, if it has the form of one: letters, digits, `_`, `.` and `-`, at most 64.
pub fn code(text: &str) -> Option<&str> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    ((1..=CODE_MAX).contains(&text.len()) && text.bytes().all(good)).then_some(text)
}

/// The provider's id of a message, if it has the form of one: printable ASCII without spaces.
pub fn id(text: &str) -> Option<String> {
    ((1..=ID_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()))
        .then(|| text.to_owned())
}

/// For example `http 422 validation_error`.
pub fn reason(status: u16, code: Option<&str>) -> String {
    match code {
        Some(code) => format!("http {status} {code}"),
        None => format!("http {status}"),
    }
}

/// The request was accepted, but the response cannot be read.
fn unreadable(status: u16) -> MessageOutcome {
    MessageOutcome::Ambiguous {
        reason: format!("http {status} with a response that cannot be read"),
    }
}

/// A status of success without the provider's sign of a true success.
fn unsigned(status: u16) -> MessageOutcome {
    MessageOutcome::NotProvider {
        reason: format!(
            "http {status} without the provider's sign of success: the endpoint does not take mail"
        ),
    }
}

/// The outcome of a 2xx to a request with one message. `sign` is the sign of a true success, the provider's id. A response
/// that breaks off is taken for one: only the id is lost.
pub fn accepted(response: &Response<'_>, sign: Option<&str>) -> MessageOutcome {
    let sign = sign.filter(|sign| !sign.is_empty());
    if sign.is_none() && !response.is_broken_off {
        return unsigned(response.status);
    }
    MessageOutcome::Sent {
        provider_id: sign.and_then(id),
    }
}

/// The outcomes of a 2xx to a request with several messages by the results in its body; `None` is a result without a sign
/// of the provider.
pub fn accepted_batch(
    messages: usize,
    response: &Response<'_>,
    results: Vec<Option<MessageOutcome>>,
) -> Vec<MessageOutcome> {
    let signs = results.iter().flatten().count();
    if signs == 0 || results.len() != messages {
        return unfit(messages, response, signs);
    }
    let outcome = |result: Option<_>| result.unwrap_or_else(|| unreadable(response.status));
    results.into_iter().map(outcome).collect()
}

/// The outcomes of a 2xx to a request with several messages whose results, so many of them with a sign of the provider, are
/// not one for each message. With one it was the provider that answered, and any message may have been accepted.
pub fn unfit(messages: usize, response: &Response<'_>, signs: usize) -> Vec<MessageOutcome> {
    let outcome = if signs == 0 && !response.is_broken_off {
        unsigned(response.status)
    } else {
        unreadable(response.status)
    };
    vec![outcome; messages]
}

/// The outcome of a request with one message by its status, other than 2xx, if the provider's error code says no more.
pub fn by_status(response: &Response<'_>, code: Option<&str>) -> MessageOutcome {
    let status = response.status;
    let reason = reason(status, code);
    match status {
        400 | 413 | 414 | 422 | 431 | 451 => MessageOutcome::Refused { reason },
        401 | 407 => MessageOutcome::AccountRefused {
            reason: format!("{reason}: the credentials were refused"),
        },
        403 => MessageOutcome::AccountRefused {
            reason: format!("{reason}: the credentials or the sender's address were refused"),
        },
        402 => MessageOutcome::AccountRefused {
            reason: format!("{reason}: the account cannot send"),
        },
        404 | 405 | 406 | 410 | 415 | 426 | 501 | 505 => MessageOutcome::AccountRefused {
            reason: format!("{reason}: the endpoint does not take mail"),
        },
        511 => MessageOutcome::AccountRefused {
            reason: format!("{reason}: the network wants a login"),
        },
        429 => throttled(response, code),
        300..400 => MessageOutcome::Retry {
            reason: format!("{reason}: a redirect, not followed"),
            after: floor(response),
        },
        _ => retry(response, code),
    }
}

/// Retry, after the wait that the provider asks for.
pub fn retry(response: &Response<'_>, code: Option<&str>) -> MessageOutcome {
    MessageOutcome::Retry {
        reason: reason(response.status, code),
        after: floor(response),
    }
}

/// Throttled, for the time that the provider asks for.
pub fn throttled(response: &Response<'_>, code: Option<&str>) -> MessageOutcome {
    MessageOutcome::Throttled {
        reason: reason(response.status, code),
        after: floor(response),
    }
}

/// The outcome of each message of a request that failed as a whole. If the outcome would end a message, it is not known
/// which one.
pub fn for_all(messages: usize, outcome: MessageOutcome) -> Vec<MessageOutcome> {
    let outcome = match outcome {
        MessageOutcome::Refused { reason } if messages > 1 => MessageOutcome::SendAlone { reason },
        other => other,
    };
    vec![outcome; messages]
}

/// The wait that the provider asks for: the longest of its headers, at most a day.
pub fn floor(response: &Response<'_>) -> Option<Duration> {
    let now = dates::unix(response.now);
    let header = |name| text(response.headers, name);
    let retry = header("retry-after").and_then(|text| {
        whole(text).map(|number| wait(number, now)).or_else(|| {
            let date = dates::parse_http_date(text)?;
            Some(Duration::from_secs(dates::unix(date).saturating_sub(now)))
        })
    });
    // Some providers send these with every response; they matter only if nothing is left.
    let reset = |reset, remaining| {
        let spent = response.status == 429 || header(remaining).and_then(whole) == Some(0);
        header(reset)
            .filter(|_| spent)
            .and_then(whole)
            .map(|number| wait(number, now))
    };
    [
        retry,
        reset("x-ratelimit-reset", "x-ratelimit-remaining"),
        reset("ratelimit-reset", "ratelimit-remaining"),
        reset("x-sib-ratelimit-reset", "x-sib-ratelimit-remaining"),
    ]
    .into_iter()
    .flatten()
    .max()
    .map(|floor| floor.min(FLOOR_MAX))
}

/// A number that is not negative, rounded up: some providers send fractions of a second. One that is too large is the
/// largest.
fn whole(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let rest = u64::from(fraction.bytes().any(|byte| byte != b'0'));
    Some(whole.parse().unwrap_or(u64::MAX).saturating_add(rest))
}

/// Providers send seconds to wait, or a time in seconds or milliseconds.
fn wait(number: u64, now: u64) -> Duration {
    Duration::from_secs(match number {
        ..DATE_FROM => number,
        DATE_FROM..MILLIS_FROM => number.saturating_sub(now),
        MILLIS_FROM.. => (number / 1000).saturating_sub(now),
    })
}

/// A header as text, without surrounding spaces.
pub fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderName, HeaderValue};
    use proptest::prelude::*;
    use std::time::UNIX_EPOCH;

    const NOW: u64 = 1_767_323_045;

    fn floor_of(status: u16, headers: &[(&'static str, &str)]) -> Option<u64> {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| {
                let value = HeaderValue::from_str(value).unwrap();
                (HeaderName::from_static(name), value)
            })
            .collect();
        let response = Response {
            status,
            headers: &headers,
            body: b"",
            is_broken_off: false,
            now: UNIX_EPOCH + Duration::from_secs(NOW),
        };
        floor(&response).map(|floor| floor.as_secs())
    }

    fn outcome(status: u16) -> MessageOutcome {
        let headers = HeaderMap::new();
        let response = Response {
            status,
            headers: &headers,
            body: b"the body",
            is_broken_off: false,
            now: UNIX_EPOCH,
        };
        by_status(&response, None)
    }

    #[test]
    fn floors() {
        assert_eq!(floor_of(503, &[]), None);
        assert_eq!(floor_of(503, &[("retry-after", "120")]), Some(120));
        assert_eq!(floor_of(503, &[("retry-after", " 7 ")]), Some(7));
        let date = "Fri, 02 Jan 2026 03:05:05 GMT";
        assert_eq!(floor_of(503, &[("retry-after", date)]), Some(60));
        let past = "Fri, 02 Jan 2026 03:03:05 GMT";
        assert_eq!(floor_of(429, &[("retry-after", past)]), Some(0));
        assert_eq!(floor_of(429, &[("retry-after", "soon")]), None);
        assert_eq!(floor_of(503, &[("retry-after", "3.5")]), Some(4));
        assert_eq!(floor_of(503, &[("retry-after", "3.0")]), Some(3));
        assert_eq!(floor_of(503, &[("retry-after", "0.001")]), Some(1));
        for none in [
            "-5", "-0.5", "+5", "3.", ".5", "3,5", "3.5.1", "1e3", "3 s", "NaN", "",
        ] {
            assert_eq!(floor_of(429, &[("retry-after", none)]), None, "{none}");
        }
        let far = "9".repeat(30);
        assert_eq!(
            floor_of(429, &[("retry-after", &far)]),
            Some(FLOOR_MAX.as_secs())
        );
        // The wait is limited.
        let for_ever = u64::MAX.to_string();
        let day = FLOOR_MAX.as_secs();
        assert_eq!(floor_of(429, &[("retry-after", &for_ever)]), Some(day));
        assert_eq!(floor_of(429, &[("retry-after", "99999999")]), Some(day));
    }

    #[test]
    fn rate_headers_are_floors_when_nothing_is_left() {
        let at = (NOW + 30).to_string();
        let at_millis = ((NOW + 30) * 1000).to_string();
        assert_eq!(floor_of(429, &[("x-ratelimit-reset", &at)]), Some(30));
        assert_eq!(
            floor_of(429, &[("x-ratelimit-reset", &at_millis)]),
            Some(30)
        );
        assert_eq!(floor_of(429, &[("x-sib-ratelimit-reset", "40")]), Some(40));
        assert_eq!(floor_of(429, &[("ratelimit-reset", "1")]), Some(1));
        assert_eq!(floor_of(429, &[("ratelimit-reset", "1.2")]), Some(2));
        let exact = format!("{at}.25");
        assert_eq!(floor_of(429, &[("x-ratelimit-reset", &exact)]), Some(31));
        assert_eq!(floor_of(500, &[("x-ratelimit-reset", "40")]), None);
        let left = [("x-ratelimit-reset", "40"), ("x-ratelimit-remaining", "9")];
        assert_eq!(floor_of(500, &left), None);
        let spent = [("x-ratelimit-reset", "40"), ("x-ratelimit-remaining", "0")];
        assert_eq!(floor_of(500, &spent), Some(40));
        let both = [("x-ratelimit-reset", "40"), ("retry-after", "5")];
        assert_eq!(floor_of(429, &both), Some(40));
    }

    #[test]
    fn classes_of_statuses() {
        for status in [400, 413, 422] {
            let outcome = outcome(status);
            assert!(
                matches!(outcome, MessageOutcome::Refused { .. }),
                "{status}"
            );
        }
        for status in (401..=407).chain([410, 415, 501, 505, 511]) {
            let outcome = outcome(status);
            assert!(
                matches!(outcome, MessageOutcome::AccountRefused { .. }),
                "{status}"
            );
        }
        for status in [301, 302, 307, 308, 408, 409, 425, 500, 502, 503, 504, 520] {
            let outcome = outcome(status);
            assert!(matches!(outcome, MessageOutcome::Retry { .. }), "{status}");
        }
        assert!(matches!(outcome(429), MessageOutcome::Throttled { .. }));
    }

    #[test]
    fn what_is_permanent_for_a_batch_is_so_for_none_of_it_yet() {
        assert_eq!(
            for_all(2, outcome(422)),
            vec![
                MessageOutcome::SendAlone {
                    reason: "http 422".to_owned()
                };
                2
            ]
        );
        assert_eq!(for_all(1, outcome(422)), vec![outcome(422)]);
        assert_eq!(for_all(3, outcome(500)), vec![outcome(500); 3]);
    }

    proptest! {
        #[test]
        fn a_signed_token_is_no_code(token in "[A-Za-z0-9_-]{86}", text in ".{0,80}") {
            prop_assert_eq!(code(&token), None);
            if let Some(code) = code(&text) {
                prop_assert!(code.len() <= 64);
                prop_assert!(code.bytes().all(|b| b.is_ascii_graphic()));
            }
        }

        #[test]
        fn any_headers_do(value in "[ -~]{0,30}", status in 100_u16..600) {
            let floor = floor_of(status, &[
                ("retry-after", &value), ("x-ratelimit-reset", &value), ("x-sib-ratelimit-reset", &value),
            ]);
            prop_assert!(floor.is_none_or(|floor| floor <= FLOOR_MAX.as_secs()));
        }
    }
}
