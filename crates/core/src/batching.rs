//! When to collect a batch of tokens, as a state machine. Pure.
//!
//! A batch is collected when `limit` tokens wait, when the oldest of them has waited for `timeout`, when an urgent one
//! waits, or when a poll finds tokens that no wake-up announced. The caller passes the time and the backlog, so the
//! tests use a virtual clock. The module must never lose the age of a waiting token: otherwise a slow stream of tokens
//! would postpone a batch without end.

use std::time::Duration;

/// A time of the caller's monotonic clock, since an origin of its choice.
pub type Time = Duration;

/// The settings `mailroom.batch_limit` and `mailroom.batch_timeout`.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Number of tokens that fill a batch, at least 1.
    pub limit: u32,
    /// How long the oldest token may wait for further ones.
    pub timeout: Duration,
}

/// The waiting tokens; the caller need not count beyond the limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backlog {
    /// Number of waiting tokens.
    pub count: u32,
    /// Whether one of them is urgent.
    pub urgent: bool,
}

/// Why the caller checks the backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A commit announced tokens, or the time of an earlier decision has come.
    Woken,
    /// A poll, or the first check after a start: no commit announced tokens.
    Polled,
    /// A check right after a batch.
    AfterBatch,
}

/// Why a batch is collected; recorded in `job_runs.trigger`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The batch is full.
    Limit,
    /// The oldest token has waited long enough.
    Timeout,
    /// An urgent token waits.
    Urgent,
    /// A poll found tokens that no wake-up announced.
    Poll,
}

impl Trigger {
    /// The spelling in `job_runs.trigger`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Timeout => "timeout",
            Self::Urgent => "urgent",
            Self::Poll => "poll",
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Collect a batch now.
    Go(Trigger),
    /// Check again at this time, or after a wake-up.
    WaitUntil(Time),
    /// No token waits.
    Idle,
}

/// The state between two checks.
#[derive(Debug, Default)]
pub struct Batcher {
    /// When the oldest waiting token was first seen, or an earlier time.
    oldest: Option<Time>,
    /// Whether a batch was decided and has not been recorded as taken: it failed and has to be repeated.
    owed: Option<Trigger>,
    /// Whether the last batch moved nothing although tokens were counted: other consumers have locked them. Another
    /// attempt is useless before the next wake-up.
    stalled: bool,
}

impl Batcher {
    /// Decides after a check of the backlog.
    pub fn decide(&mut self, rule: Rule, now: Time, backlog: Backlog, look: Look) -> Decision {
        if backlog.count == 0 {
            *self = Self::default();
            return Decision::Idle;
        }
        if look != Look::AfterBatch {
            self.stalled = false;
        } else if self.stalled {
            return Decision::Idle;
        }
        let unannounced = self.oldest.is_none() && look == Look::Polled;
        let deadline = self.oldest.get_or_insert(now).saturating_add(rule.timeout);
        let trigger = if backlog.urgent {
            Trigger::Urgent
        } else if let Some(owed) = self.owed {
            owed
        } else if backlog.count >= rule.limit {
            Trigger::Limit
        } else if unannounced {
            Trigger::Poll
        } else if now >= deadline {
            Trigger::Timeout
        } else {
            return Decision::WaitUntil(deadline);
        };
        // The tokens that the batch leaves may have been waiting since this check.
        self.oldest = Some(now);
        self.owed = Some(trigger);
        Decision::Go(trigger)
    }

    /// Records that the batch that was just collected moved `moved` tokens. Must not be called for a batch that failed.
    pub fn taken(&mut self, moved: u32) {
        self.owed = None;
        self.stalled = moved == 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULE: Rule = Rule {
        limit: 3,
        timeout: Duration::from_secs(5),
    };

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn waiting(count: u32) -> Backlog {
        Backlog {
            count,
            urgent: false,
        }
    }

    #[test]
    fn an_empty_queue_is_idle() {
        let mut batcher = Batcher::default();
        for look in [Look::Woken, Look::Polled, Look::AfterBatch] {
            assert_eq!(
                batcher.decide(RULE, at(1), waiting(0), look),
                Decision::Idle
            );
        }
    }

    #[test]
    fn a_full_batch_goes_at_once_and_the_rest_when_the_timeout_ends() {
        let mut batcher = Batcher::default();
        assert_eq!(
            batcher.decide(RULE, at(100), waiting(5), Look::Woken),
            Decision::Go(Trigger::Limit)
        );
        batcher.taken(3);
        let rest = batcher.decide(RULE, at(110), waiting(2), Look::AfterBatch);
        assert_eq!(
            rest,
            Decision::WaitUntil(at(5_100)),
            "their age counts from the first look"
        );
        let early = batcher.decide(RULE, at(5_099), waiting(2), Look::Woken);
        assert_eq!(early, Decision::WaitUntil(at(5_100)));
        let due = batcher.decide(RULE, at(5_100), waiting(2), Look::Woken);
        assert_eq!(due, Decision::Go(Trigger::Timeout));
    }

    #[test]
    fn a_trickle_does_not_postpone_the_oldest() {
        let mut batcher = Batcher::default();
        batcher.decide(RULE, at(0), waiting(1), Look::Woken);
        let second = batcher.decide(RULE, at(4_900), waiting(2), Look::Woken);
        assert_eq!(second, Decision::WaitUntil(at(5_000)));
    }

    #[test]
    fn something_urgent_does_not_wait() {
        let mut batcher = Batcher::default();
        let urgent = Backlog {
            count: 1,
            urgent: true,
        };
        assert_eq!(
            batcher.decide(RULE, at(0), urgent, Look::Woken),
            Decision::Go(Trigger::Urgent)
        );
    }

    #[test]
    fn a_poll_collects_unannounced_tokens() {
        let mut batcher = Batcher::default();
        assert_eq!(
            batcher.decide(RULE, at(0), waiting(1), Look::Polled),
            Decision::Go(Trigger::Poll)
        );
    }

    #[test]
    fn the_poll_floor_leaves_a_partial_batch_alone() {
        let mut batcher = Batcher::default();
        batcher.decide(RULE, at(0), waiting(1), Look::Woken);
        let polled = batcher.decide(RULE, at(1_000), waiting(1), Look::Polled);
        assert_eq!(polled, Decision::WaitUntil(at(5_000)));
    }

    #[test]
    fn rows_that_other_consumers_hold_do_not_make_it_spin() {
        let mut batcher = Batcher::default();
        assert_eq!(
            batcher.decide(RULE, at(0), waiting(3), Look::Woken),
            Decision::Go(Trigger::Limit)
        );
        batcher.taken(0);
        assert_eq!(
            batcher.decide(RULE, at(1), waiting(3), Look::AfterBatch),
            Decision::Idle
        );
        let woken = batcher.decide(RULE, at(2), waiting(3), Look::Woken);
        assert_eq!(
            woken,
            Decision::Go(Trigger::Limit),
            "a wake-up is a reason to try again"
        );
    }

    #[test]
    fn a_batch_that_failed_is_owed() {
        let mut batcher = Batcher::default();
        batcher.decide(RULE, at(0), waiting(1), Look::Woken);
        let due = batcher.decide(RULE, at(5_000), waiting(1), Look::Woken);
        assert_eq!(due, Decision::Go(Trigger::Timeout));
        // The batch failed: the caller does not call `taken`.
        let again = batcher.decide(RULE, at(6_000), waiting(1), Look::Polled);
        assert_eq!(
            again,
            Decision::Go(Trigger::Timeout),
            "the wait does not start again"
        );
        batcher.taken(1);
        let next = batcher.decide(RULE, at(6_000), waiting(1), Look::AfterBatch);
        assert!(matches!(next, Decision::WaitUntil(_)));
    }

    #[test]
    fn a_limit_of_one_never_waits() {
        let rule = Rule { limit: 1, ..RULE };
        let mut batcher = Batcher::default();
        assert_eq!(
            batcher.decide(rule, at(0), waiting(1), Look::Woken),
            Decision::Go(Trigger::Limit)
        );
    }

    proptest! {
        /// For any sequence of arrivals, no token waits longer than the timeout once it was seen.
        #[test]
        fn nothing_waits_past_the_timeout(arrivals in prop::collection::vec((1..2_000_u64, 0..3_u32), 1..60)) {
            let mut batcher = Batcher::default();
            let mut queue: Vec<Time> = Vec::new();
            let mut now = 0;
            let mut wake = None;
            for (gap, count) in arrivals {
                let next = now + gap;
                // The deadline comes before the next arrival.
                while let Some(deadline) = wake.filter(|d| *d <= at(next)) {
                    wake = drain(&mut batcher, &mut queue, deadline);
                }
                now = next;
                queue.extend((0..count).map(|_| at(now)));
                wake = drain(&mut batcher, &mut queue, at(now));
                if let Some(oldest) = queue.first() {
                    prop_assert!(wake.is_some(), "tokens wait and nothing is planned");
                    prop_assert!(wake.unwrap() <= *oldest + RULE.timeout);
                }
            }
        }
    }

    /// Collects batches at `now` until none is due, and returns the time of the next check.
    fn drain(batcher: &mut Batcher, queue: &mut Vec<Time>, now: Time) -> Option<Time> {
        let mut look = Look::Woken;
        loop {
            let seen = u32::try_from(queue.len()).unwrap().min(RULE.limit);
            match batcher.decide(RULE, now, waiting(seen), look) {
                Decision::Go(_) => {
                    let moved = queue.len().min(RULE.limit as usize);
                    queue.drain(..moved);
                    batcher.taken(u32::try_from(moved).unwrap());
                    look = Look::AfterBatch;
                }
                Decision::WaitUntil(deadline) => return Some(deadline),
                Decision::Idle => return None,
            }
        }
    }
}
