//! Consecutive failures: when to retry, and when to log. Pure: the caller passes the time.
//!
//! The back-off never gives up, and is never shortened by frequent calls.

use std::time::Duration;

use crate::batching::Time;

/// The delay after the first failure. It doubles with each further failure.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The longest delay after a failure.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// The minimum time between two log lines about consecutive failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Consecutive failures.
#[derive(Default)]
pub struct Failures {
    count: u32,
    retry_at: Time,
    logged_at: Time,
}

/// What to do after a failure.
#[derive(Debug, PartialEq, Eq)]
pub struct Retry {
    /// The wait before the next attempt.
    pub delay: Duration,
    /// Whether to log this failure.
    pub log: bool,
}

impl Failures {
    /// Records a failure.
    pub fn record(&mut self, now: Time) -> Retry {
        self.count = self.count.saturating_add(1);
        let delay = FIRST_DELAY
            .saturating_mul(1 << (self.count - 1).min(6))
            .min(LONGEST_DELAY);
        self.retry_at = now.saturating_add(delay);
        let log = self.count == 1 || now.saturating_sub(self.logged_at) >= LOG_INTERVAL;
        if log {
            self.logged_at = now;
        }
        Retry { delay, log }
    }

    /// Number of consecutive failures.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The time of the next attempt.
    pub fn retry_at(&self) -> Time {
        self.retry_at
    }

    /// Records a success. Returns the number of failures before it.
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
        let mut logged_at = Vec::new();
        while now < seconds(1000 + 3600) {
            let retry = failures.record(now);
            if retry.log {
                logged_at.push(now);
            }
            now += retry.delay;
        }
        assert_eq!(logged_at[0], seconds(1000));
        for pair in logged_at.windows(2) {
            let gap = pair[1] - pair[0];
            assert!(gap >= seconds(60) && gap <= seconds(120), "{gap:?}");
        }
        assert!(logged_at.len() >= 30);
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
            Retry {
                delay: seconds(1),
                log: true
            }
        );
        assert_eq!(failures.retry_at(), seconds(4));
    }
}
