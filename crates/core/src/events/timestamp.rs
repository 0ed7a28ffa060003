//! Times as the providers write them: RFC 3339, and seconds since 1970. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::transport::dates::Civil;

/// The first second after the year 9999.
pub(super) const END: u64 = 253_402_300_800;

/// Parses `2016-04-27T16:28:50.3963933-04:00`: RFC 3339, years 1970 to 9999. The separator may be a space, and the offset
/// `Z`, `+00:00`, `+0000` or `+00`. Digits after the sixth of the fraction are dropped.
pub(super) fn rfc3339(text: &str) -> Option<SystemTime> {
    let (date, time) = text.trim().split_once(['T', 't', ' '])?;
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let (time, ahead, behind) = split_offset(time)?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = fields(clock, ':', [2, 2, 2])?;
    let local = Civil {
        year,
        month,
        day,
        hour,
        minute,
        second,
    };
    let local = local.seconds()?;
    at((local + behind).checked_sub(ahead)?, micros(fraction)?)
}

/// Parses seconds since 1970 in decimal digits, with or without a fraction: `1534109600.089676`.
pub(super) fn unix(text: &str) -> Option<SystemTime> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, "0"));
    at(digits(seconds, 1..=12)?, micros(fraction)?)
}

fn at(seconds: u64, micros: u64) -> Option<SystemTime> {
    let since = Duration::from_secs(seconds) + Duration::from_micros(micros);
    (seconds < END).then(|| UNIX_EPOCH.checked_add(since))?
}

/// The time without its offset, and the seconds by which the offset is ahead of and behind UTC; one of them is 0.
fn split_offset(time: &str) -> Option<(&str, u64, u64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0, 0));
    }
    let (time, offset) = time.split_at(time.rfind(['+', '-'])?);
    let (sign, offset) = offset.split_at(1);
    let compact: String = offset.chars().filter(|c| *c != ':').collect();
    let (hours, minutes) = match compact.len() {
        2 => (compact.as_str(), "00"),
        4 => compact.split_at_checked(2)?,
        _ => return None,
    };
    let seconds = digits(hours, 2..=2)? * 3600 + digits(minutes, 2..=2)? * 60;
    Some(match sign {
        "+" => (time, seconds, 0),
        _ => (time, 0, seconds),
    })
}

/// Numbers of these lengths between separators.
fn fields(text: &str, separator: char, lengths: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut fields = [0; 3];
    for (field, length) in fields.iter_mut().zip(lengths) {
        *field = digits(parts.next()?, length..=length)?;
    }
    parts.next().is_none().then_some(fields)
}

/// The microseconds of a decimal fraction.
fn micros(fraction: &str) -> Option<u64> {
    if fraction.len() > 6 && !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = fraction.get(..6).unwrap_or(fraction);
    let missing = 6 - u32::try_from(kept.len()).ok()?;
    Some(digits(kept, 1..=6)? * 10_u64.pow(missing))
}

fn digits(text: &str, lengths: std::ops::RangeInclusive<usize>) -> Option<u64> {
    (lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn micros_of(time: Option<SystemTime>) -> Option<u128> {
        time.map(|time| time.duration_since(UNIX_EPOCH).unwrap().as_micros())
    }

    // The numbers are those of Python's datetime.
    #[test]
    fn times_of_the_providers() {
        for (text, micros) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2016-01-27T14:59:44.101Z", 1_453_906_784_101_000),
            ("2016-04-27T16:28:50.3963933-04:00", 1_461_788_930_396_393),
            ("2023-02-22T23:41:11.894719+00:00", 1_677_109_271_894_719),
            ("2023-02-22 23:41:11.9+00", 1_677_109_271_900_000),
            ("2024-02-29T23:59:59+0530", 1_709_231_399_000_000),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
        ] {
            assert_eq!(micros_of(rfc3339(text)), Some(micros), "{text}");
        }
        for (text, micros) in [
            ("1461095250", 1_461_095_250_000_000),
            ("1534109600.089676", 1_534_109_600_089_676),
            ("1534109600.0896761", 1_534_109_600_089_676),
        ] {
            assert_eq!(micros_of(unix(text)), Some(micros), "{text}");
        }
    }

    #[test]
    fn other_text_is_no_time() {
        for text in [
            "",
            "T",
            "2016-01-27",
            "2016-01-27T14:59:44",
            "2016-13-27T14:59:44Z",
            "2016-01-27T24:00:00Z",
            "2016-1-27T14:59:44Z",
            "2016-01-27T14:59:44.Z",
            "2016-01-27T14:59:44.1234567xZ",
            "2016-01-27T14:59:44+é0",
            "2016-01-27T14:59:44+1",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
        ] {
            assert_eq!(rfc3339(text), None, "{text}");
        }
        for text in ["", "-1", "1e9", "1.", ".5", "1.x", "9999999999999", "NaN"] {
            assert_eq!(unix(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_time_or_none(text in "[0-9TZ:.+ é-]{0,40}") {
            let _ = (rfc3339(&text), unix(&text));
        }
    }
}
