//! When to poll a database for due mail, and when to tell the deliverer that mail is due. Pure.
//!
//! A notification tells that mail was scheduled, not when it is due; `mailroom_next_due` tells that. Without
//! notifications there are only polls.

use std::time::Duration;

use mailroom_core::deliver::Time;

/// The minimum time between two polls because of notifications.
const SPACING: Duration = Duration::from_millis(100);
/// How long after a poll with due mail the next one follows, at first: the mail may have been claimed by then.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The times of the next poll and of the next due mail.
#[derive(Debug)]
pub struct Watch {
    poll: Duration,
    asked_at: Time,
    ask_at: Time,
    look_at: Option<Time>,
    /// The time to the next poll while mail stays due.
    pause: Duration,
    first_pause: Duration,
}

impl Watch {
    /// Polls at once, and then at least at this interval.
    pub fn new(poll: Duration, now: Time) -> Self {
        Self {
            poll,
            asked_at: now,
            ask_at: now,
            look_at: None,
            pause: FIRST_PAUSE.min(poll),
            first_pause: FIRST_PAUSE.min(poll),
        }
    }

    /// Mail was scheduled. The caller also tells the deliverer.
    pub fn notify(&mut self) {
        self.pause = self.first_pause;
        self.ask_at = self.ask_at.min(self.asked_at.saturating_add(SPACING));
    }

    /// Whether to poll now.
    pub fn is_to_ask(&self, now: Time) -> bool {
        self.ask_at <= now
    }

    /// The result of a poll: in how many seconds mail is due, 0 or less if it is due now, `None` for never. Returns
    /// whether to tell the deliverer.
    pub fn answer(&mut self, now: Time, due_in: Option<f64>) -> bool {
        self.asked_at = now;
        self.look_at = None;
        self.ask_at = now.saturating_add(self.poll);
        match due_in {
            Some(seconds) if seconds <= 0.0 => {
                self.ask_at = now.saturating_add(self.pause);
                self.pause = (2 * self.pause).min(self.poll);
                true
            }
            Some(seconds) => {
                self.pause = self.first_pause;
                let wait = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
                let at = now.saturating_add(wait);
                if at < self.ask_at {
                    self.look_at = Some(at);
                }
                false
            }
            None => {
                self.pause = self.first_pause;
                false
            }
        }
    }

    /// The poll failed: waits this long before the next.
    pub fn put_off(&mut self, now: Time, delay: Duration) {
        self.asked_at = now;
        self.ask_at = now.saturating_add(delay);
    }

    /// Whether mail has become due since the latest call.
    pub fn take_due(&mut self, now: Time) -> bool {
        let is_due = self.look_at.is_some_and(|at| at <= now);
        if is_due {
            self.look_at = None;
            // Polls for the mail that is due next.
            self.ask_at = now;
        }
        is_due
    }

    /// When to call this again.
    pub fn next_at(&self) -> Time {
        self.look_at.map_or(self.ask_at, |at| at.min(self.ask_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn watch() -> Watch {
        Watch::new(Duration::from_secs(5), at(0))
    }

    #[test]
    fn it_asks_at_once_and_then_with_each_poll() {
        let mut watch = watch();
        assert!(watch.is_to_ask(at(0)));
        assert!(!watch.answer(at(0), None));
        assert!(!watch.is_to_ask(at(4_999)));
        assert!(watch.is_to_ask(at(5_000)));
    }

    #[test]
    fn what_becomes_due_is_looked_at_then() {
        let mut watch = watch();
        assert!(!watch.answer(at(0), Some(1.5)));
        assert_eq!(watch.next_at(), at(1_500));
        assert!(!watch.take_due(at(1_499)));
        assert!(watch.take_due(at(1_500)));
        assert!(!watch.take_due(at(1_500)));
        assert!(watch.is_to_ask(at(1_500)));
        assert!(!watch.answer(at(0), Some(60.0)), "after the poll");
        assert_eq!(watch.next_at(), at(5_000));
    }

    #[test]
    fn what_stays_due_is_asked_for_less_and_less() {
        let mut watch = watch();
        let mut now = at(0);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            assert!(watch.answer(now, Some(-1.0)));
            pauses.push((watch.next_at() - now).as_secs());
            now = watch.next_at();
        }
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        watch.notify();
        watch.answer(now, Some(-1.0));
        assert_eq!(watch.next_at() - now, at(1_000));
    }

    #[test]
    fn a_flood_of_notifications_asks_ten_times_a_second() {
        let mut watch = watch();
        watch.answer(at(1_000), None);
        watch.notify();
        assert_eq!(watch.next_at(), at(1_100));
        watch.notify();
        assert_eq!(watch.next_at(), at(1_100));
    }
}
