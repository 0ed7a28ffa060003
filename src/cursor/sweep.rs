//! When a scan may start at the very beginning: the budget that the cursors of `pending` and `outbox` share.
//!
//! A full scan, a *sweep*, is due when the time since the last one is [`SPACING`] times what that one cost. While
//! there are few dead rows to skip, every scan is a sweep; when there are many, sweeps take at most a twentieth of the
//! time. Pure: the caller passes the time.

use std::time::{Duration, Instant};

/// Minimum time between two sweeps, as a multiple of the cost of the first.
pub const SPACING: u32 = 20;

/// The sweeps of one queue in one session.
#[derive(Default)]
pub struct Sweeps {
    began: Option<Instant>,
    last: Option<Sweep>,
}

#[derive(Clone, Copy)]
struct Sweep {
    ended: Instant,
    cost: Duration,
}

impl Sweeps {
    /// Starts the clock of a scan.
    pub fn begin(&mut self, now: Instant) {
        self.began = Some(now);
    }

    /// Whether the budget allows a sweep.
    pub fn is_due(&self, now: Instant) -> bool {
        self.wait(now).is_zero()
    }

    /// The time until the budget allows a sweep.
    pub fn wait(&self, now: Instant) -> Duration {
        self.last.map_or(Duration::ZERO, |sweep| {
            let since = now.saturating_duration_since(sweep.ended);
            sweep.cost.saturating_mul(SPACING).saturating_sub(since)
        })
    }

    /// Ends a scan and starts the clock of its next part, if there is one.
    pub fn end(&mut self, now: Instant, swept: bool) {
        self.end_bounded(now, swept, Duration::MAX);
    }

    /// As [`Sweeps::end`], for a sweep whose own limits keep it below `most`: one that took longer waited for
    /// something else, such as a processor.
    pub fn end_bounded(&mut self, now: Instant, swept: bool, most: Duration) {
        if swept {
            let began = self.began.unwrap_or(now);
            let cost = now.saturating_duration_since(began).min(most);
            self.last = Some(Sweep { ended: now, cost });
        }
        self.began = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn sweep(sweeps: &mut Sweeps, start: Instant, cost: Duration) -> Instant {
        sweeps.begin(start);
        sweeps.end(start + cost, true);
        start + cost
    }

    #[test]
    fn the_first_scan_is_a_sweep() {
        assert!(Sweeps::default().is_due(Instant::now()));
    }

    #[test]
    fn sweeps_are_spaced_by_what_they_cost() {
        let start = Instant::now();
        let mut sweeps = Sweeps::default();
        sweep(&mut sweeps, start, 10 * MS);
        assert!(
            !sweeps.is_due(start + 209 * MS),
            "the last sweep took 10 ms"
        );
        assert!(sweeps.is_due(start + 210 * MS));
    }

    #[test]
    fn what_a_sweep_waits_for_does_not_count() {
        let start = Instant::now();
        let mut sweeps = Sweeps::default();
        sweeps.begin(start);
        sweeps.end_bounded(start + 1_000 * MS, true, 10 * MS);
        assert!(!sweeps.is_due(start + 1_199 * MS));
        assert!(sweeps.is_due(start + 1_200 * MS));
    }
}
