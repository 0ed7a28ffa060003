//! The rate limit of a provider, in the unit that it counts. Pure.

use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
/// The maximum number of units in a period.
const MAX_NUMBER: u32 = 1_000_000;

/// The unit that the provider counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Addresses: to, cc and bcc.
    Recipients,
    /// Requests, however many messages are in each.
    Requests,
    /// Messages, to however many addresses each is.
    Messages,
}

/// A number of units in a period. The burst is the number for one second, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    unit: Unit,
    /// Nanoseconds from one unit to the next, rounded up so that the rate is never exceeded.
    interval: u64,
    burst: u32,
}

impl Rate {
    /// Parses a rate such as `14 recipients/s`: a number of recipients, requests or messages, per s, min or h. Returns
    /// `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (amount, period) = text.split_once('/')?;
        let (number, unit) = amount.trim().split_once(' ')?;
        let unit = match unit.trim() {
            "recipients" | "recipient" => Unit::Recipients,
            "requests" | "request" => Unit::Requests,
            "messages" | "message" => Unit::Messages,
            _ => return None,
        };
        let seconds = match period.trim() {
            "s" => 1,
            "min" => 60,
            "h" => 3_600,
            _ => return None,
        };
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        let number: u32 = Some(number).filter(|_| digits)?.parse().ok()?;
        (1..=MAX_NUMBER).contains(&number).then(|| Self {
            unit,
            interval: (seconds * SECOND).div_ceil(u64::from(number)),
            burst: (u64::from(number) / seconds).max(1) as u32,
        })
    }

    /// The unit of the rate.
    pub fn unit(self) -> Unit {
        self.unit
    }

    /// The number of units that may be used at once.
    pub fn burst(self) -> u32 {
        self.burst
    }

    /// The time in which this number of units becomes available.
    pub fn time_of(self, units: u32) -> Duration {
        Duration::from_nanos(self.interval.saturating_mul(u64::from(units)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn units_and_periods() {
        for (text, unit, interval, burst) in [
            ("14 recipients/s", Unit::Recipients, 71_428_572, 14),
            ("5 requests/s", Unit::Requests, 200 * MILLISECOND, 5),
            ("100 messages/s", Unit::Messages, 10 * MILLISECOND, 100),
            ("1 request/s", Unit::Requests, SECOND, 1),
            ("600 messages / min", Unit::Messages, 100 * MILLISECOND, 10),
            (" 30  messages/min", Unit::Messages, 2 * SECOND, 1),
            ("1 message/h", Unit::Messages, 3_600 * SECOND, 1),
            ("1000000 recipients/s", Unit::Recipients, 1_000, 1_000_000),
        ] {
            let rate = Rate::parse(text).unwrap();
            assert_eq!(
                (rate.unit(), rate.interval, rate.burst()),
                (unit, interval, burst),
                "{text}"
            );
        }
        for bad in [
            "",
            "14",
            "14/s",
            "14 recipients",
            "recipients/s",
            "14 mails/s",
            "0 messages/s",
            "-1 messages/s",
            "+1 messages/s",
            "1.5 messages/s",
            "1000001 messages/s",
            "1 messages/d",
            "1messages/s",
            "1 messages/s/s",
        ] {
            assert_eq!(Rate::parse(bad), None, "{bad}");
        }
    }
}
