//! When a sender with `--once` ends. Pure.

use std::time::Duration;

use mailroom_core::deliver::Time;

use super::plan::Ending;

/// How long mail may stay due while none is sent, and how long polls may fail, before the sender ends.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// What a sender knows of its database.
pub struct State {
    /// Mails that were tried and settled so far.
    pub tried: u64,
    /// Whether the sender holds unsettled claims.
    pub holds: bool,
    /// Whether mail is due, or tokens are to be collected.
    pub is_left: bool,
    /// Whether `mailroom_pause()` was called.
    pub is_paused: bool,
}

/// The progress that a sender with `--once` has seen.
#[derive(Default)]
pub struct Once {
    tried: u64,
    since: Option<Time>,
    /// When the first poll failed since one succeeded.
    unpolled_since: Option<Time>,
}

impl Once {
    /// How the sender ends after a poll, because no poll has succeeded for a while.
    pub fn end_unpolled(&mut self, now: Time, is_polled: bool) -> Option<Ending> {
        if is_polled {
            self.unpolled_since = None;
            return None;
        }
        let since = *self.unpolled_since.get_or_insert(now);
        (now.saturating_sub(since) >= MAX_WAIT).then_some(Ending::Unreached)
    }

    /// How the sender ends, or `None` while it goes on.
    pub fn end(&mut self, now: Time, state: &State) -> Option<Ending> {
        let Some(since) = self.since.filter(|_| state.tried == self.tried) else {
            // At the first call the deliverer has not claimed yet.
            self.tried = state.tried;
            self.since = Some(now);
            return None;
        };
        if state.holds {
            return None;
        }
        if !state.is_left {
            return Some(Ending::Done);
        }
        let is_stuck = state.is_paused || now.saturating_sub(since) >= MAX_WAIT;
        is_stuck.then_some(Ending::Left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(tried: u64) -> State {
        State {
            tried,
            holds: false,
            is_left: true,
            is_paused: false,
        }
    }

    #[test]
    fn it_ends_when_nothing_is_left_or_nothing_moves() {
        let at = Duration::from_secs;
        let mut once = Once::default();
        assert_eq!(once.end(at(0), &left(0)), None);
        assert_eq!(once.end(at(4), &left(0)), None);
        assert_eq!(once.end(at(5), &left(1)), None, "progress");
        assert_eq!(once.end(at(9), &left(1)), None);
        assert_eq!(once.end(at(10), &left(1)), Some(Ending::Left));
        let holds = State {
            holds: true,
            ..left(1)
        };
        assert_eq!(once.end(at(99), &holds), None);
        let paused = State {
            is_paused: true,
            ..left(2)
        };
        assert_eq!(once.end(at(99), &paused), None, "progress");
        assert_eq!(once.end(at(99), &paused), Some(Ending::Left));
        let done = State {
            is_left: false,
            ..left(2)
        };
        assert_eq!(once.end(at(99), &done), Some(Ending::Done));
    }

    #[test]
    fn it_ends_when_polls_fail() {
        let at = Duration::from_secs;
        let mut once = Once::default();
        assert_eq!(once.end_unpolled(at(0), false), None);
        assert_eq!(once.end_unpolled(at(4), false), None);
        assert_eq!(once.end_unpolled(at(5), true), None);
        assert_eq!(once.end_unpolled(at(6), false), None);
        assert_eq!(once.end_unpolled(at(10), false), None);
        assert_eq!(once.end_unpolled(at(11), false), Some(Ending::Unreached));
    }
}
