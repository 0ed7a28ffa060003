//! How much may go now, in what the provider counts: a bucket that fills at an even rate. Pure.
//!
//! The generic cell rate algorithm: the bucket is one number, the time at which it will be full again. Within any time t
//! no more than burst + rate · t is taken, apart from one request that alone needs more than the burst: it waits until
//! the bucket is full, and what comes after it waits for the rest. The clock comes from the caller, in nanoseconds, and
//! never goes back.

use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
/// In a period.
const MOST: u32 = 1_000_000;

/// What the provider counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Addresses: to, cc and bcc.
    Recipients,
    /// Requests, however many messages are in each.
    Requests,
    /// Messages, to however many addresses each is.
    Messages,
}

/// So many in a period, and what comes in a second of them, one at least, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    unit: Unit,
    /// Nanoseconds from one to the next, rounded up: never faster than said.
    interval: u64,
    burst: u32,
}

impl Rate {
    /// Reads a rate as in `14 recipients/s`: recipients, requests or messages, per s, min or h.
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
        (1..=MOST).contains(&number).then(|| Self {
            unit,
            interval: (seconds * SECOND).div_ceil(u64::from(number)),
            burst: (u64::from(number) / seconds).max(1) as u32,
        })
    }

    /// What it counts.
    pub fn unit(self) -> Unit {
        self.unit
    }

    /// The most that is there at once: what comes in a second, one at least.
    pub fn burst(self) -> u32 {
        self.burst
    }

    fn time_of(self, units: u32) -> u64 {
        self.interval.saturating_mul(u64::from(units))
    }
}

/// The bucket. It is empty when it is asked first, so that one that is made again and again never sends more than one
/// that lasts.
#[derive(Default)]
pub struct Bucket {
    /// When it will be full; `None` before it is asked first.
    full_at: Option<u64>,
    /// For which rate that is.
    rate: Option<Rate>,
}

impl Bucket {
    /// Takes all of the wanted, or nothing. More than the burst is there when the bucket is full, and is owed after that.
    pub fn take(&mut self, rate: Rate, now: u64, wanted: u32) -> bool {
        let level = self.level(rate, now);
        let is_there = self.wait_for(rate, now, wanted).is_zero();
        let taken = if is_there { rate.time_of(wanted) } else { 0 };
        self.full_at = Some(level.saturating_add(taken));
        self.rate = Some(rate);
        is_there
    }

    /// How long until so many may be taken.
    pub fn wait_for(&self, rate: Rate, now: u64, wanted: u32) -> Duration {
        let needed = rate.time_of(wanted.min(rate.burst));
        let taken = self.level(rate, now).saturating_add(needed);
        Duration::from_nanos(taken.saturating_sub(empty(rate, now)))
    }

    /// How many are there.
    pub fn there(&self, rate: Rate, now: u64) -> u32 {
        let time = empty(rate, now).saturating_sub(self.level(rate, now));
        u32::try_from(time / rate.interval).unwrap_or(u32::MAX)
    }

    /// When it will be full: never fuller than full, and under a new rate not emptier than empty.
    fn level(&self, rate: Rate, now: u64) -> u64 {
        match self.full_at {
            None => empty(rate, now),
            Some(full_at) if self.rate == Some(rate) => full_at.max(now),
            Some(full_at) => full_at.clamp(now, empty(rate, now)),
        }
    }
}

/// When one that is empty now will be full.
fn empty(rate: Rate, now: u64) -> u64 {
    now.saturating_add(rate.time_of(rate.burst))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLISECOND: u64 = 1_000_000;
    /// Some time after the machine was started.
    const START: u64 = 100_000 * SECOND;

    fn rate(text: &str) -> Rate {
        Rate::parse(text).unwrap()
    }

    /// A bucket that was asked before, and has been left alone since.
    fn full(rate: Rate) -> Bucket {
        let mut bucket = Bucket::default();
        assert!(!bucket.take(rate, START - 7_200 * SECOND, 1));
        bucket
    }

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
            let rate = rate(text);
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

    #[test]
    fn the_burst_and_then_the_rate() {
        let rate = rate("100 messages/s");
        let mut bucket = full(rate);
        assert_eq!(bucket.there(rate, START), 100);
        assert!(bucket.take(rate, START, 100));
        assert_eq!(bucket.wait_for(rate, START, 1), Duration::from_millis(10));
        let mut sent = 0;
        for millisecond in 1..=30_000 {
            let now = START + millisecond * MILLISECOND;
            while bucket.take(rate, now, 1) {
                sent += 1;
            }
        }
        assert_eq!(sent, 3_000);
    }

    #[test]
    fn it_is_empty_at_first() {
        let rate = rate("100 messages/s");
        let mut bucket = Bucket::default();
        assert!(!bucket.take(rate, START, 5));
        assert_eq!(bucket.wait_for(rate, START, 1), Duration::from_millis(10));
        assert!(bucket.take(rate, START + 50 * MILLISECOND, 5));
    }

    #[test]
    fn all_or_nothing() {
        let rate = rate("10 messages/s");
        let mut bucket = full(rate);
        assert!(bucket.take(rate, START, 6));
        assert!(!bucket.take(rate, START, 5));
        assert_eq!(bucket.there(rate, START), 4);
        assert!(bucket.take(rate, START, 4));
    }

    #[test]
    fn more_than_the_burst_goes_when_the_bucket_is_full_and_is_owed() {
        let rate = rate("10 recipients/s");
        let mut bucket = full(rate);
        assert!(bucket.take(rate, START, 1));
        let tenth = Duration::from_millis(100);
        assert_eq!(bucket.wait_for(rate, START, 50), tenth);
        assert!(!bucket.take(rate, START, 50));
        let now = START + 100 * MILLISECOND;
        assert!(bucket.take(rate, now, 50));
        assert_eq!(bucket.there(rate, now), 0);
        // The forty that were owed, and one.
        assert_eq!(bucket.wait_for(rate, now, 1), 41 * tenth);
        assert!(bucket.take(rate, now + 4_100 * MILLISECOND, 1));
    }

    #[test]
    fn a_new_rate_is_in_force_at_once() {
        let slow = rate("1 messages/h");
        let mut bucket = full(slow);
        assert!(bucket.take(slow, START, 1));
        assert_eq!(bucket.wait_for(slow, START, 1), Duration::from_secs(3_600));
        let fast = rate("100 messages/s");
        assert_eq!(bucket.wait_for(fast, START, 1), Duration::from_millis(10));
        assert!(!bucket.take(fast, START, 1));
        assert!(bucket.take(fast, START + 10 * MILLISECOND, 1));
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_burst_and_rate_allow(
            number in 1_u32..5_000,
            period in prop_oneof![Just(("s", 1_u64)), Just(("min", 60)), Just(("h", 3_600))],
            steps in prop::collection::vec((0_u64..50 * MILLISECOND, 1_u32..300), 1..60),
        ) {
            let rate = rate(&format!("{number} messages/{}", period.0));
            let mut bucket = Bucket::default();
            let mut now = START;
            let mut sent: Vec<(u64, u64)> = Vec::new();
            for (pause, wanted) in steps {
                now += pause * period.1;
                let there = bucket.there(rate, now);
                let taken = bucket.take(rate, now, wanted);
                prop_assert_eq!(taken, there >= wanted.min(rate.burst()));
                sent.push((now, if taken { u64::from(wanted) } else { 0 }));
            }
            for from in 0..sent.len() {
                let window = &sent[from..];
                for to in 0..window.len() {
                    let time = u128::from(window[to].0 - window[0].0);
                    let count: u64 = window[..=to].iter().map(|(_, count)| count).sum();
                    let largest = window[..=to].iter().map(|(_, count)| *count).max().unwrap();
                    let most = u128::from(rate.burst().max(largest as u32))
                        + time * u128::from(number) / u128::from(SECOND * period.1);
                    prop_assert!(u128::from(count) <= most, "{count} > {most}");
                }
            }
        }

        #[test]
        fn who_waits_as_told_gets_it(number in 1_u32..1_000_000, first in 1_u32..1_000, wanted in 1_u32..1_000) {
            let rate = rate(&format!("{number} messages/s"));
            let mut bucket = full(rate);
            bucket.take(rate, START, first);
            let wait = bucket.wait_for(rate, START, wanted);
            let later = START + u64::try_from(wait.as_nanos()).unwrap();
            prop_assert!(wait.is_zero() || !bucket.take(rate, later - 1, wanted));
            prop_assert!(bucket.take(rate, later, wanted));
        }
    }
}
