//! Failures in a row: when to try again, and when to say so.
//!
//! The module reads no clock: `now` comes from the caller, so the tests run on a virtual one. It must never
//! give up, and never hurry because it was asked often.

use std::time::Duration;

use crate::batching::Time;

/// The delay after the first failure; it doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The longest delay after a failure.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// How often the log hears of failures in a row.
const REMINDER: Duration = Duration::from_secs(60);

/// Failures since something last went well.
#[derive(Default)]
pub struct Failures {
    count: u32,
    retry_at: Time,
    told_at: Time,
}

/// What follows from one more failure.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How long to wait before the next try.
    pub delay: Duration,
    /// Whether this one belongs in the log.
    pub tell: bool,
}

impl Failures {
    /// Records one more.
    pub fn record(&mut self, now: Time) -> Verdict {
        self.count = self.count.saturating_add(1);
        let delay = FIRST_DELAY
            .saturating_mul(1 << (self.count - 1).min(6))
            .min(LONGEST_DELAY);
        self.retry_at = now.saturating_add(delay);
        let tell = self.count == 1 || now.saturating_sub(self.told_at) >= REMINDER;
        if tell {
            self.told_at = now;
        }
        Verdict { delay, tell }
    }

    /// How many there were in a row.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// No new try before this time.
    pub fn retry_at(&self) -> Time {
        self.retry_at
    }

    /// Something went well: returns how many failures that ends.
    pub fn end(&mut self) -> u32 {
        std::mem::take(self).count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn delays_double_up_to_a_minute() {
        let mut failures = Failures::default();
        let delays: Vec<u64> = (0..9)
            .map(|_| failures.record(Time::ZERO).delay.as_secs())
            .collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn the_log_hears_of_the_first_and_then_once_a_minute() {
        let mut failures = Failures::default();
        let mut now = seconds(1000);
        let mut told = Vec::new();
        while now < seconds(1000 + 3600) {
            let verdict = failures.record(now);
            if verdict.tell {
                told.push(now);
            }
            now += verdict.delay;
        }
        assert_eq!(told[0], seconds(1000));
        for pair in told.windows(2) {
            let gap = pair[1] - pair[0];
            assert!(gap >= seconds(60) && gap <= seconds(120), "{gap:?}");
        }
        assert!(told.len() >= 30);
    }

    #[test]
    fn success_starts_anew() {
        let mut failures = Failures::default();
        failures.record(seconds(1));
        failures.record(seconds(2));
        assert_eq!(failures.end(), 2);
        assert_eq!(failures.end(), 0);
        assert_eq!(
            failures.record(seconds(3)),
            Verdict {
                delay: seconds(1),
                tell: true
            }
        );
        assert_eq!(failures.retry_at(), seconds(4));
    }
}
