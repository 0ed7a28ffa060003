//! How fast mail goes, and how long exchanges with the database take: by both it is known how much to hold.

use std::time::Duration;

use super::Time;

/// What goes in so much time is held at least: each exchange with the database takes some of it.
const SPAN: Duration = Duration::from_millis(100);
/// The same where exchanges take long, as over a network: a mail is held while the one before it is under way, while it
/// waits for the next one, and through that; twice as many let the rate grow.
const EXCHANGES: u32 = 6;

/// How many mails came back of late.
#[derive(Default)]
pub struct Tempo {
    since: Time,
    count: usize,
    recent: usize,
}

impl Tempo {
    /// So many more did.
    pub fn note(&mut self, now: Time, mails: usize) {
        self.count += mails;
        let passed = now.saturating_sub(self.since);
        if passed >= SPAN {
            let share = SPAN.as_secs_f64() / passed.as_secs_f64();
            self.recent = (self.count as f64 * share) as usize;
            self.count = 0;
            self.since = now;
        }
    }

    /// In a [`SPAN`], that is.
    pub fn recent(&self) -> usize {
        self.recent
    }

    /// In so much time, at that rate.
    pub fn within(&self, time: Duration) -> usize {
        (self.recent as f64 * time.as_secs_f64() / SPAN.as_secs_f64()) as usize
    }
}

/// How long exchanges take of late.
#[derive(Default)]
pub struct Toll {
    since: Time,
    usual: Duration,
}

impl Toll {
    /// One begins.
    pub fn begin(&mut self, now: Time) {
        self.since = now;
    }

    /// It is over.
    pub fn end(&mut self, now: Time) {
        // One that waited for a lock is no measure of the others.
        let took = now.saturating_sub(self.since).min(SPAN);
        self.usual = (3 * self.usual + took) / 4;
    }

    /// What goes in so much time is held.
    pub fn span(&self) -> Duration {
        SPAN.max(EXCHANGES * self.usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tempo_is_that_of_the_latest_span() {
        let mut tempo = Tempo::default();
        let mut recent = |at: u32, mails| {
            tempo.note(at * SPAN / 10, mails);
            tempo.recent()
        };
        assert_eq!(recent(1, 10), 0, "the first span is not over");
        assert_eq!(recent(10, 20), 30);
        assert_eq!(recent(15, 500), 30);
        assert_eq!(recent(30, 100), 300, "600 in two spans");
        assert_eq!(recent(1_000, 1), 0, "nothing for long");
    }

    #[test]
    fn what_exchanges_take_is_smoothed_and_bounded() {
        let mut toll = Toll::default();
        let mut now = Time::ZERO;
        let mut take = |millis| {
            toll.begin(now);
            now += Duration::from_millis(millis);
            toll.end(now);
            toll.usual.as_millis()
        };
        assert_eq!(take(40), 10);
        let usual: Vec<_> = (0..20).map(|_| take(40)).collect();
        assert_eq!(usual[19], 39);
        assert_eq!(take(5_000), 54, "as if it had taken 100 ms");
    }
}
