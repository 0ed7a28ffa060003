//! Dates and times in the formats of HTTP and of the providers. Pure.
//!
//! UTC without leap seconds, years 1970 to 9999; other times are clamped.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// 9999-12-31 23:59:59.
const LAST_SECOND: u64 = 253_402_300_799;
const DAY: u64 = 24 * 3600;
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A time, split into fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    pub year: u64,
    pub month: u64,
    pub day: u64,
    pub hour: u64,
    pub minute: u64,
    pub second: u64,
}

impl Civil {
    fn of(seconds: u64) -> Self {
        let seconds = seconds.min(LAST_SECOND);
        let (days, time) = (seconds / DAY, seconds % DAY);
        // Years that begin in March end with the leap day; all eras of 400 years are equal.
        let from_march = days + 719_468;
        let (era, day_of_era) = (from_march / 146_097, from_march % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let month = if shifted < 10 {
            shifted + 3
        } else {
            shifted - 9
        };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * shifted + 2) / 5 + 1,
            hour: time / 3600,
            minute: time / 60 % 60,
            second: time % 60,
        }
    }

    /// Seconds since 1970; `None` for an invalid time.
    pub fn seconds(self) -> Option<u64> {
        let Self {
            year,
            month,
            day,
            hour,
            minute,
            second,
        } = self;
        let good = (1970..=9999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && hour < 24
            && minute < 60
            && second <= 60;
        if !good {
            return None;
        }
        let year = if month <= 2 { year - 1 } else { year };
        let shifted = if month > 2 { month - 3 } else { month + 9 };
        let day_of_year = (153 * shifted + 2) / 5 + day - 1;
        let (era, year_of_era) = (year / 400, year % 400);
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 719_468;
        Some(days * DAY + hour * 3600 + minute * 60 + second)
    }
}

/// Whole seconds since 1970; 0 for earlier times.
pub fn unix(moment: SystemTime) -> u64 {
    moment
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// The format `2026-01-02T03:04:05Z` (RFC 3339).
pub fn rfc3339(seconds: u64) -> String {
    let at = Civil::of(seconds);
    let mut text = String::with_capacity("9999-12-31T23:59:59Z".len());
    // Needed for each mail: `format!` would take ten times as long.
    for (number, scale, end) in [
        (at.year, 1000, '-'),
        (at.month, 10, '-'),
        (at.day, 10, 'T'),
        (at.hour, 10, ':'),
        (at.minute, 10, ':'),
        (at.second, 10, 'Z'),
    ] {
        let mut scale = scale;
        while scale > 0 {
            // Of these the last digit is none other than a digit.
            text.push(char::from(b'0' + (number / scale % 10) as u8));
            scale /= 10;
        }
        text.push(end);
    }
    text
}

/// The format `20260102T030405Z` (ISO 8601, basic).
pub fn basic(seconds: u64) -> String {
    rfc3339(seconds).replace(['-', ':'], "")
}

/// Parses `Fri, 02 Jan 2026 03:04:05 GMT`, the preferred format of RFC 9110. No server that sends `Retry-After` uses
/// the two obsolete formats.
pub fn parse_http_date(text: &str) -> Option<SystemTime> {
    let (_, rest) = text.trim().split_once(", ")?;
    let mut parts = rest.split(' ');
    let day = digits(parts.next()?, 2)?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64 + 1;
    let year = digits(parts.next()?, 4)?;
    let mut time = parts.next()?.split(':');
    let mut two = || digits(time.next()?, 2);
    let (hour, minute, second) = (two()?, two()?, two()?);
    if time.next().is_some() || parts.next() != Some("GMT") || parts.next().is_some() {
        return None;
    }
    let at = Civil {
        year,
        month,
        day,
        hour,
        minute,
        second,
    };
    UNIX_EPOCH.checked_add(Duration::from_secs(at.seconds()?))
}

fn digits(text: &str, count: usize) -> Option<u64> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_649_367_553, "2022-04-07T21:39:13Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (LAST_SECOND, "9999-12-31T23:59:59Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
        assert_eq!(basic(1_767_323_045), "20260102T030405Z");
    }

    #[test]
    fn http_dates() {
        let known = parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(known.map(unix), Some(784_111_777));
        for bad in [
            "",
            "120",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37:00 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse_http_date(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn taking_apart_and_putting_together(seconds in 0..=LAST_SECOND) {
            prop_assert_eq!(Civil::of(seconds).seconds(), Some(seconds));
        }

        #[test]
        fn any_text_is_a_date_or_none(text in ".{0,40}") {
            let _ = parse_http_date(&text);
        }
    }
}
