//! The token bucket that limits the rate of a transport. Pure.
//!
//! This is the generic cell rate algorithm (GCRA): the bucket is stored as the time at which it will be full again. Within
//! any time t at most burst + rate · t units are taken. The exception is a single request that costs more than the burst:
//! it waits until the bucket is full, and later requests wait for the excess.

use std::time::Duration;

use super::Time;
use crate::transport::rate::Rate;

/// The token bucket. It is empty at first, so that buckets that are created again and again do not exceed the rate.
#[derive(Default)]
pub struct TokenBucket {
    /// When it will be full; `None` before its first use.
    full_at: Option<Time>,
    /// The rate that `full_at` was computed for.
    rate: Option<Rate>,
}

impl TokenBucket {
    /// Takes this number of units and returns true, or takes nothing. A full bucket gives more than the burst; the excess
    /// is made up for afterwards.
    pub fn take(&mut self, rate: Rate, now: Time, wanted: u32) -> bool {
        let level = self.level(rate, now);
        let is_available = self.wait_for(rate, now, wanted).is_zero();
        let taken = if is_available {
            rate.time_of(wanted)
        } else {
            Duration::ZERO
        };
        self.full_at = Some(level.saturating_add(taken));
        self.rate = Some(rate);
        is_available
    }

    /// The time until this number of units can be taken.
    pub fn wait_for(&self, rate: Rate, now: Time, wanted: u32) -> Duration {
        let needed = rate.time_of(wanted.min(rate.burst()));
        let taken = self.level(rate, now).saturating_add(needed);
        taken.saturating_sub(empty(rate, now))
    }

    /// When it will be full. The result is between full and empty; under a new rate an old debt ends.
    fn level(&self, rate: Rate, now: Time) -> Time {
        match self.full_at {
            None => empty(rate, now),
            Some(full_at) if self.rate == Some(rate) => full_at.max(now),
            Some(full_at) => full_at.clamp(now, empty(rate, now)),
        }
    }
}

/// When a bucket that is empty now will be full.
fn empty(rate: Rate, now: Time) -> Time {
    now.saturating_add(rate.time_of(rate.burst()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MILLISECOND: Duration = Duration::from_millis(1);
    /// Some time after the machine was started.
    const START: Time = Duration::from_secs(100_000);

    fn rate(text: &str) -> Rate {
        Rate::parse(text).unwrap()
    }

    /// A bucket that has had time to fill since its first use.
    fn full(rate: Rate) -> TokenBucket {
        let mut bucket = TokenBucket::default();
        assert!(!bucket.take(rate, START - 7_200 * SECOND, 1));
        bucket
    }

    #[test]
    fn the_burst_and_then_the_rate() {
        let rate = rate("100 messages/s");
        let mut bucket = full(rate);
        assert!(bucket.wait_for(rate, START, 100).is_zero());
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
        let mut bucket = TokenBucket::default();
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
        assert!(!bucket.wait_for(rate, START, 5).is_zero());
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
            period in prop_oneof![Just(("s", 1_u32)), Just(("min", 60)), Just(("h", 3_600))],
            steps in prop::collection::vec((0_u64..50_000_000, 1_u32..300), 1..60),
        ) {
            let rate = rate(&format!("{number} messages/{}", period.0));
            let mut bucket = TokenBucket::default();
            let mut now = START;
            let mut sent: Vec<(Time, u64)> = Vec::new();
            for (pause, wanted) in steps {
                now += Duration::from_nanos(pause) * period.1;
                let taken = bucket.take(rate, now, wanted);
                sent.push((now, if taken { u64::from(wanted) } else { 0 }));
            }
            for from in 0..sent.len() {
                let window = &sent[from..];
                for to in 0..window.len() {
                    let time = (window[to].0 - window[0].0).as_nanos();
                    let count: u64 = window[..=to].iter().map(|(_, count)| count).sum();
                    let largest = window[..=to].iter().map(|(_, count)| *count).max().unwrap();
                    let most = u128::from(rate.burst().max(largest as u32))
                        + time * u128::from(number) / (SECOND * period.1).as_nanos();
                    prop_assert!(u128::from(count) <= most, "{count} > {most}");
                }
            }
        }

        #[test]
        fn after_the_wait_the_units_can_be_taken(number in 1_u32..1_000_000, first in 1_u32..1_000, wanted in 1_u32..1_000) {
            let rate = rate(&format!("{number} messages/s"));
            let mut bucket = full(rate);
            bucket.take(rate, START, first);
            let wait = bucket.wait_for(rate, START, wanted);
            let later = START + wait;
            prop_assert!(wait.is_zero() || !bucket.take(rate, later - Duration::from_nanos(1), wanted));
            prop_assert!(bucket.take(rate, later, wanted));
        }
    }
}
