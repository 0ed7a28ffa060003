//! When to purge, and how much at a time. Pure: the caller passes the time.
//!
//! A purge is not urgent, and must not delay other work: it deletes as many rows at a time as it can in a short time, and
//! rests much longer. Rows that stay, for example because the application refers to them, are looked at once an hour.

use std::time::Duration;

use crate::batching::Time;

/// The maximum duration of one purge.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// SQLSTATE of a purge that took longer: query_canceled.
const CANCELED: &str = "57014";
/// The maximum number of rows of each table in one purge.
const MAX_ROWS: i32 = 1_000;
/// A purge that took longer is followed by smaller ones, and one that took less than half of it by larger ones.
const AIM: Duration = Duration::from_millis(250);
/// The shortest rest between two purges while there is more to delete.
const SHORTEST_REST: Duration = Duration::from_millis(100);
/// How much longer the rest is than the purge.
const REST: u32 = 4;
/// The rest after a failure.
const RETRY: Duration = Duration::from_secs(60);
/// How often purges look again at the rows that they skipped.
const CYCLE: Duration = Duration::from_secs(3600);

/// One purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The maximum number of rows of each table.
    pub rows: i32,
    /// Whether the next purge starts over with the first row if this one leaves none.
    pub starts_over: bool,
}

/// When to purge next.
pub struct Purges {
    at: Time,
    /// When to look again at the rows that stayed.
    starts_over_at: Time,
    rows: i32,
}

impl Default for Purges {
    fn default() -> Self {
        Self {
            at: Time::ZERO,
            starts_over_at: Time::ZERO,
            rows: MAX_ROWS,
        }
    }
}

impl Purges {
    /// When the next purge is due.
    pub fn at(&self) -> Time {
        self.at
    }

    /// The next purge, if it is due.
    pub fn due(&self, now: Time) -> Option<Purge> {
        (now >= self.at).then_some(Purge {
            rows: self.rows,
            starts_over: now >= self.starts_over_at,
        })
    }

    /// Purges now, and looks at all rows.
    pub fn hurry(&mut self, now: Time) {
        (self.at, self.starts_over_at) = (now, now);
    }

    /// A purge that began at this time has ended. If it left no more rows, the next one is due at `idle_until`.
    pub fn done(&mut self, purge: Purge, began: Time, now: Time, more: bool, idle_until: Time) {
        let took = now.saturating_sub(began);
        if took < AIM / 2 {
            self.rows = MAX_ROWS.min(2 * self.rows);
        } else if took > AIM {
            self.rows = (self.rows / 2).max(1);
        }
        if more {
            self.at = now.saturating_add(SHORTEST_REST.max(took * REST));
            return;
        }
        self.at = idle_until;
        if purge.starts_over {
            self.starts_over_at = now.saturating_add(CYCLE);
        }
    }

    /// A purge has failed with this SQLSTATE.
    pub fn failed(&mut self, now: Time, sqlstate: &str) {
        self.at = now.saturating_add(RETRY);
        if sqlstate == CANCELED {
            self.rows = (self.rows / 10).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn purge(rows: i32, starts_over: bool) -> Purge {
        Purge { rows, starts_over }
    }

    #[test]
    fn rows_that_stay_are_looked_at_once_an_hour_or_when_an_operator_asks() {
        let mut purges = Purges::default();
        let first = purges.due(Time::ZERO).unwrap();
        assert_eq!(first, purge(1_000, true));
        purges.done(first, Time::ZERO, Time::ZERO, true, Time::MAX);
        assert_eq!(purges.due(Time::ZERO), None);
        let second = purges.due(SECOND).unwrap();
        assert!(second.starts_over, "the cycle has not ended");
        purges.done(second, SECOND, SECOND, false, 30 * SECOND);
        assert_eq!(purges.due(29 * SECOND), None);
        let third = purges.due(30 * SECOND).unwrap();
        assert!(!third.starts_over);
        purges.done(third, 30 * SECOND, 30 * SECOND, false, 60 * SECOND);
        assert!(purges.due(3_601 * SECOND).unwrap().starts_over);
        purges.hurry(40 * SECOND);
        assert!(purges.due(40 * SECOND).unwrap().starts_over);
    }

    #[test]
    fn a_purge_that_takes_too_long_is_repeated_with_fewer_rows() {
        let mut purges = Purges::default();
        let mut now = Time::ZERO;
        for rows in [1_000, 100, 10, 1, 1] {
            assert_eq!(purges.due(now).unwrap().rows, rows);
            purges.failed(now, CANCELED);
            assert_eq!(purges.due(now), None);
            now = purges.at();
        }
        // Quick ones grow.
        let quick = purges.due(now).unwrap();
        purges.done(quick, now, now, false, now);
        assert_eq!(purges.due(now).unwrap().rows, 2);
    }

    #[test]
    fn the_longer_a_purge_takes_the_longer_the_rest_and_the_smaller_the_next() {
        for (millis, rest, rows) in [(1, 100, 1_000), (50, 200, 1_000), (1_000, 4_000, 500)] {
            let mut purges = Purges::default();
            let took = Duration::from_millis(millis);
            let purge = purges.due(Time::ZERO).unwrap();
            purges.done(purge, Time::ZERO, took, true, Time::MAX);
            assert_eq!(purges.at(), took + Duration::from_millis(rest));
            assert_eq!(purges.due(purges.at()).unwrap().rows, rows);
        }
    }

    #[test]
    fn other_failures_do_not_make_it_smaller() {
        let mut purges = Purges::default();
        purges.failed(SECOND, "55P03");
        assert_eq!(purges.due(60 * SECOND), None);
        assert_eq!(purges.due(61 * SECOND).unwrap().rows, 1_000);
    }
}
