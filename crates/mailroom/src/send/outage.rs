//! Back-off while a database cannot be reached or used, and what is logged about it.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use mailroom_core::backoff::Failures;
use mailroom_core::deliver::Time;

use super::plan::Plan;
use crate::database_error::DatabaseError;
use crate::session::Session;

/// The current outage, if there is one.
#[derive(Default)]
pub struct Outage {
    failures: Failures,
    since: Option<Time>,
    /// Whether the database was usable before.
    has_started: bool,
}

impl Outage {
    /// Records a failure; returns how long to wait. The first failure is logged.
    pub fn begin(&mut self, plan: &Plan, failure: &DatabaseError, now: Time) -> Duration {
        let delay = self.failures.record(now).delay;
        if self.since.is_none() {
            self.since = Some(now);
            plan.log.warn(
                &format!("cannot use the database: {failure}"),
                &format!(
                    "It is tried again, in {} s at first, later once a minute.",
                    delay.as_secs()
                ),
                failure.hint(),
            );
            plan.warn_of_passfile();
        }
        delay
    }

    /// The latest connection lasted long enough: a further failure is another outage.
    pub fn forget(&mut self) {
        self.failures.end();
    }

    /// The database works.
    pub fn end(&mut self, plan: &Plan, session: &Session, now: Time) {
        if let Some(since) = self.since.take() {
            let length = now.saturating_sub(since).as_secs();
            plan.log
                .log(&format!("the database can be used again, after {length} s"));
        }
        if !std::mem::replace(&mut self.has_started, true) {
            let what = if session.is_collector() {
                "collects, answers requests and purges"
            } else {
                "does not collect: the role is no member of mailroom_collector"
            };
            plan.log.log(&format!(
                "mailroom send started in database \"{}\"; {what}",
                session.database()
            ));
        }
    }
}

/// A random time between half of it and all of it.
pub fn jitter(delay: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) % 1_000;
    delay / 2 + (delay / 2).mul_f64(random as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_bounds() {
        let delay = Duration::from_secs(8);
        for _ in 0..100 {
            let jittered = jitter(delay);
            assert!((delay / 2..=delay).contains(&jittered), "{jittered:?}");
        }
    }
}
