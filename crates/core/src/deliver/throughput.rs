//! Measures how many mails are sent and how long exchanges with the database take, which determine how many mails to hold.

use std::time::Duration;

use super::Time;

/// The interval of the measurement, and the time for which mail is held at least: an exchange takes part of it.
const INTERVAL: Duration = Duration::from_millis(100);
/// The same as a number of exchanges, for a database that answers slowly. A mail is held during three of them: one that
/// runs before it is claimed, its own, and the one that settles it. Twice as many let the throughput grow.
const EXCHANGES: u32 = 6;

/// The number of mails whose requests ended in the last interval.
#[derive(Default)]
pub struct Throughput {
    since: Time,
    count: usize,
    /// Number of mails in the last interval of 100 ms.
    pub recent: usize,
}

impl Throughput {
    /// Adds mails whose request has ended.
    pub fn add(&mut self, now: Time, mails: usize) {
        self.count += mails;
        let passed = now.saturating_sub(self.since);
        if passed >= INTERVAL {
            let share = INTERVAL.as_secs_f64() / passed.as_secs_f64();
            self.recent = (self.count as f64 * share) as usize;
            self.count = 0;
            self.since = now;
        }
    }

    /// Number of mails in this time at the same rate.
    pub fn within(&self, time: Duration) -> usize {
        (self.recent as f64 * time.as_secs_f64() / INTERVAL.as_secs_f64()) as usize
    }
}

/// The smoothed duration of exchanges.
#[derive(Default)]
pub struct ExchangeTime {
    /// When the latest exchange began.
    pub began: Time,
    average: Duration,
}

impl ExchangeTime {
    /// An exchange has ended.
    pub fn end(&mut self, now: Time) {
        // A long wait for a lock says nothing about the next exchange.
        let took = now.saturating_sub(self.began).min(INTERVAL);
        self.average = (3 * self.average + took) / 4;
    }

    /// The time for which mail is to be held.
    pub fn prefetch(&self) -> Duration {
        INTERVAL.max(EXCHANGES * self.average)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_throughput_is_that_of_the_latest_interval() {
        let mut throughput = Throughput::default();
        let mut recent = |at: u32, mails| {
            throughput.add(at * INTERVAL / 10, mails);
            throughput.recent
        };
        assert_eq!(recent(1, 10), 0, "the first interval is not over");
        assert_eq!(recent(10, 20), 30);
        assert_eq!(recent(15, 500), 30);
        assert_eq!(recent(30, 100), 300, "600 in two intervals");
        assert_eq!(recent(1_000, 1), 0, "nothing for long");
    }

    #[test]
    fn the_duration_of_exchanges_is_smoothed_and_bounded() {
        let mut time = ExchangeTime::default();
        let mut now = Time::ZERO;
        let mut take = |millis| {
            time.began = now;
            now += Duration::from_millis(millis);
            time.end(now);
            time.average.as_millis()
        };
        assert_eq!(take(40), 10);
        let usual: Vec<_> = (0..20).map(|_| take(40)).collect();
        assert_eq!(usual[19], 39);
        assert_eq!(take(5_000), 54, "as if it had taken 100 ms");
    }
}
