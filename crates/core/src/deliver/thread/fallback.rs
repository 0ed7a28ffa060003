//! When transports check for mail of a paused transport, which may fall back on them. Pure.

use std::collections::HashSet;
use std::time::Duration;

use crate::deliver::Time;

/// How often the other transports check while a transport is paused.
const INTERVAL: Duration = Duration::from_secs(5);

/// The paused transports, and the time of the next check.
#[derive(Default)]
pub(super) struct Fallback {
    /// Numbers of the transports that were paused at the latest call.
    paused: HashSet<u64>,
    announce_at: Option<Time>,
}

impl Fallback {
    /// When [`Self::announce`] is to be called next, at the latest.
    pub(super) fn announce_at(&self) -> Option<Time> {
        self.announce_at
    }

    /// Returns the numbers of the transports that have to check now: those that are not paused, when another one has been
    /// paused since the latest call, and every [`INTERVAL`] while one is. `transports` holds each number, and whether the
    /// transport is paused.
    pub(super) fn announce(
        &mut self,
        now: Time,
        transports: Vec<(u64, bool)>,
        is_active: bool,
    ) -> Vec<u64> {
        let (paused, others): (Vec<_>, Vec<_>) = transports
            .into_iter()
            .partition(|(_, is_paused)| *is_paused);
        let paused: HashSet<u64> = paused.into_iter().map(|(number, _)| number).collect();
        let is_new = !paused.is_subset(&self.paused);
        self.paused = paused;
        if self.paused.is_empty() || others.is_empty() || !is_active {
            self.announce_at = None;
            return Vec::new();
        }
        if !is_new && self.announce_at.is_some_and(|at| now < at) {
            return Vec::new();
        }
        self.announce_at = Some(now + INTERVAL);
        others.into_iter().map(|(number, _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_others_check_at_once_and_then_at_intervals() {
        let mut fallback = Fallback::default();
        let at = Duration::from_secs;
        assert!(
            fallback
                .announce(at(0), vec![(1, false), (2, false)], true)
                .is_empty()
        );
        assert_eq!(
            fallback.announce(at(1), vec![(1, true), (2, false)], true),
            [2]
        );
        assert!(
            fallback
                .announce(at(2), vec![(1, true), (2, false)], true)
                .is_empty()
        );
        assert_eq!(
            fallback.announce(at(6), vec![(1, true), (2, false)], true),
            [2]
        );
        let two = vec![(1, true), (2, false), (3, true)];
        assert_eq!(fallback.announce(at(7), two, true), [2]);
        assert!(
            fallback
                .announce(at(8), vec![(1, true), (3, true)], true)
                .is_empty()
        );
        assert_eq!(fallback.announce_at(), None);
    }
}
