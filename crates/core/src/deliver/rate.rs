//! How many messages may go now: a bucket that fills at an even rate. Pure.
//!
//! The generic cell rate algorithm: the bucket is one number, the time at which it will be full again. Within any time t
//! no more than burst + rate · t are granted. The clock comes from the caller, in nanoseconds, and never goes back.

use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// Messages a second, and how many of them may go at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Nanoseconds from one message to the next, rounded up: never faster than said.
    interval: u64,
    burst: u32,
    per_second: u32,
}

impl Rate {
    /// `per_second` messages, at least 1; `burst` of them at once, 0 for as many as come in a tenth of a second,
    /// and two at least: with one alone, whoever comes a moment late has lost that moment.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let per_second = per_second.max(1);
        let burst = match burst {
            0 => (per_second / 10).max(2),
            burst => burst,
        };
        Self {
            interval: SECOND.div_ceil(u64::from(per_second)),
            burst,
            per_second,
        }
    }

    /// As it was set.
    pub fn per_second(self) -> u32 {
        self.per_second
    }

    /// The most that are ever granted at once.
    pub fn burst(self) -> u32 {
        self.burst
    }

    fn time_of(self, messages: u32) -> u64 {
        self.interval.saturating_mul(u64::from(messages))
    }
}

/// The bucket. It is empty when it is asked first, so that one that is made again and again never sends more than one
/// that lasts.
#[derive(Default)]
pub struct Bucket {
    /// When it will be full; `None` before it is asked first.
    full_at: Option<u64>,
}

/// What was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// How many messages may go now.
    pub count: u32,
    /// How long until one more may; `None` if all that were wanted may go now.
    pub wait: Option<Duration>,
}

impl Bucket {
    /// Grants as many of the wanted as may go now.
    pub fn grant(&mut self, rate: Rate, now: u64, wanted: u32) -> Granted {
        let empty = now.saturating_add(rate.time_of(rate.burst));
        let full_at = self.level(now, empty);
        let there = u32::try_from((empty - full_at) / rate.interval).unwrap_or(u32::MAX);
        let count = there.min(wanted);
        let next = full_at + rate.time_of(count);
        self.full_at = Some(next);
        let one_more = next.saturating_add(rate.interval).saturating_sub(empty);
        Granted {
            count,
            wait: (count < wanted).then(|| Duration::from_nanos(one_more)),
        }
    }

    /// How long until so many may go at once, without taking them; more than the burst never may, and count as
    /// the burst.
    pub fn wait_for(&self, rate: Rate, now: u64, wanted: u32) -> Duration {
        let empty = now.saturating_add(rate.time_of(rate.burst));
        let taken = self
            .level(now, empty)
            .saturating_add(rate.time_of(wanted.min(rate.burst)));
        Duration::from_nanos(taken.saturating_sub(empty))
    }

    /// Takes back `unused` of what was granted.
    pub fn give_back(&mut self, rate: Rate, unused: u32) {
        let time = rate.time_of(unused);
        self.full_at = self.full_at.map(|full_at| full_at.saturating_sub(time));
    }

    /// When it will be full: neither fuller than full nor emptier than empty.
    fn level(&self, now: u64, empty: u64) -> u64 {
        self.full_at
            .map_or(empty, |full_at| full_at.clamp(now, empty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLISECOND: u64 = 1_000_000;
    /// Some time after the machine was started.
    const START: u64 = 100_000 * SECOND;

    /// A bucket that was asked before, and has been left alone since.
    fn full(rate: Rate) -> Bucket {
        let mut bucket = Bucket::default();
        assert_eq!(bucket.grant(rate, START - 3_600 * SECOND, 1).count, 0);
        bucket
    }

    #[test]
    fn the_burst_and_then_the_rate() {
        let rate = Rate::new(100, 10);
        let mut bucket = full(rate);
        assert_eq!(bucket.grant(rate, START, 1_000).count, 10);
        assert_eq!(
            bucket.grant(rate, START, 1).wait,
            Some(Duration::from_millis(10))
        );
        let mut sent = 0;
        for millisecond in 1..=30_000 {
            sent += bucket
                .grant(rate, START + millisecond * MILLISECOND, 1_000)
                .count;
        }
        assert_eq!(sent, 3_000);
    }

    #[test]
    fn it_is_empty_at_first() {
        let rate = Rate::new(100, 10);
        let mut bucket = Bucket::default();
        let first = bucket.grant(rate, START, 5);
        assert_eq!(first.count, 0);
        assert_eq!(first.wait, Some(Duration::from_millis(10)));
        assert_eq!(bucket.grant(rate, START + SECOND, 50).count, 10);
    }

    #[test]
    fn one_after_a_rest_goes_at_once() {
        let rate = Rate::new(1, 1);
        let mut bucket = full(rate);
        let one = bucket.grant(rate, START, 1);
        assert_eq!((one.count, one.wait), (1, None));
        let next = bucket.grant(rate, START, 1);
        assert_eq!((next.count, next.wait), (0, Some(Duration::from_secs(1))));
    }

    #[test]
    fn the_burst_by_default_is_a_tenth_of_a_second() {
        assert_eq!(Rate::new(100, 0).burst(), 10);
        assert_eq!(Rate::new(5, 0).burst(), 2);
        assert_eq!(Rate::new(0, 0).burst(), 2);
        assert_eq!(Rate::new(5, 50).burst(), 50);
    }

    #[test]
    fn what_is_given_back_can_go_again_at_once() {
        let rate = Rate::new(10, 10);
        let mut bucket = full(rate);
        assert_eq!(bucket.grant(rate, START, 10).count, 10);
        bucket.give_back(rate, 4);
        assert_eq!(bucket.grant(rate, START, 10).count, 4);
        // Never more than it was.
        bucket.give_back(rate, u32::MAX);
        assert_eq!(bucket.grant(rate, START, 1_000).count, 10);
    }

    #[test]
    fn waiting_for_company_takes_nothing() {
        let rate = Rate::new(100, 50);
        let mut bucket = full(rate);
        assert_eq!(bucket.wait_for(rate, START, 50), Duration::ZERO);
        bucket.grant(rate, START, 50);
        let half = Duration::from_millis(250);
        assert_eq!(bucket.wait_for(rate, START, 25), half);
        assert_eq!(bucket.wait_for(rate, START, 25), half);
        let whole = Duration::from_millis(500);
        assert_eq!(bucket.wait_for(rate, START, 1_000), whole);
    }

    #[test]
    fn a_new_rate_is_in_force_at_once() {
        let slow = Rate::new(1, 100);
        let mut bucket = full(slow);
        assert_eq!(bucket.grant(slow, START, 100).count, 100);
        // At the old rate it would be full in 100 seconds; at the new one that is no time at all.
        let fast = Rate::new(1_000, 100);
        assert_eq!(bucket.grant(fast, START, 1).count, 0);
        assert_eq!(bucket.grant(fast, START + 10 * MILLISECOND, 100).count, 10);
    }

    proptest! {
        #[test]
        fn no_window_has_more_than_burst_and_rate_allow(
            per_second in 1_u32..5_000,
            burst in 0_u32..200,
            steps in prop::collection::vec((0_u64..50 * MILLISECOND, 0_u32..300, 0_u32..50), 1..60),
        ) {
            let rate = Rate::new(per_second, burst);
            let mut bucket = Bucket::default();
            let mut now = START;
            let mut sent: Vec<(u64, u64)> = Vec::new();
            for (pause, wanted, unused) in steps {
                now += pause;
                let granted = bucket.grant(rate, now, wanted);
                prop_assert!(granted.count <= wanted.min(rate.burst()));
                prop_assert_eq!(granted.wait.is_some(), granted.count < wanted);
                let unused = unused.min(granted.count);
                bucket.give_back(rate, unused);
                sent.push((now, u64::from(granted.count - unused)));
            }
            for from in 0..sent.len() {
                let window = &sent[from..];
                for to in 0..window.len() {
                    let time = u128::from(window[to].0 - window[0].0);
                    let count: u64 = window[..=to].iter().map(|(_, count)| count).sum();
                    let most = u128::from(rate.burst()) + time * u128::from(per_second) / u128::from(SECOND);
                    prop_assert!(u128::from(count) <= most, "{count} > {most}");
                }
            }
        }

        #[test]
        fn whoever_waits_as_told_gets_one(per_second in 1_u32..1_000_000, burst in 0_u32..100, wanted in 1_u32..1_000) {
            let rate = Rate::new(per_second, burst);
            let mut bucket = full(rate);
            let first = bucket.grant(rate, START, wanted);
            if let Some(wait) = first.wait {
                let later = START + u64::try_from(wait.as_nanos()).unwrap();
                prop_assert_eq!(bucket.grant(rate, later, 1).count, 1);
            }
        }
    }
}
