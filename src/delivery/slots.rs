//! How many requests may be under way, and which of them count. Pure.
//!
//! A request that gets no answer holds its slot until it times out; were all slots alike, one message in a
//! hundred could hold up the rest. So a request that has waited for longer than [`PATIENCE`] moves to a slow lane,
//! and its slot goes to the next one. The slow lane has its own end, for each request costs memory and a
//! connection; what does not fit stays where it is. The module reads no clock.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Time since the engine started.
pub type Time = Duration;

/// How long a request counts as one that will be answered soon.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// How soon to look again for room in the slow lane.
const CROWDED: Duration = Duration::from_millis(100);

/// The slots, and who is in them.
pub struct Slots {
    limit: usize,
    slow_limit: usize,
    fast: usize,
    slow: usize,
    /// Whether a request under way is in the slow lane.
    flying: HashMap<u64, bool>,
    /// Those that were in the fast lane, oldest first; some have been answered since.
    ages: VecDeque<(Time, u64)>,
}

impl Slots {
    /// So many slots, and room for so many slow requests.
    pub fn new(limit: usize, slow_limit: usize) -> Self {
        Self {
            limit,
            slow_limit,
            fast: 0,
            slow: 0,
            flying: HashMap::new(),
            ages: VecDeque::new(),
        }
    }

    /// Changes how many there are; what is under way goes on.
    pub fn resize(&mut self, limit: usize, slow_limit: usize) {
        self.limit = limit;
        self.slow_limit = slow_limit;
    }

    /// Whether another request may start.
    pub fn has_room(&self) -> bool {
        self.fast < self.limit
    }

    /// All requests under way.
    #[cfg(test)]
    fn in_use(&self) -> usize {
        self.fast + self.slow
    }

    /// Those of them in the slow lane.
    pub fn slow(&self) -> usize {
        self.slow
    }

    /// A request starts; each has a number of its own.
    pub fn start(&mut self, now: Time, request: u64) {
        self.fast += 1;
        self.flying.insert(request, false);
        self.ages.push_back((now, request));
    }

    /// It has ended.
    pub fn finish(&mut self, request: u64) {
        match self.flying.remove(&request) {
            Some(true) => self.slow -= 1,
            Some(false) => self.fast -= 1,
            None => {}
        }
        // Most are answered in the order in which they were sent.
        while let Some((_, oldest)) = self.ages.front()
            && !self.flying.contains_key(oldest)
        {
            self.ages.pop_front();
        }
    }

    /// Moves what has waited for long into the slow lane; returns when to call again.
    pub fn age(&mut self, now: Time) -> Option<Time> {
        while let Some(&(started, request)) = self.ages.front() {
            let due = started.saturating_add(PATIENCE);
            match self.flying.get_mut(&request) {
                Some(slow) if due <= now => {
                    if self.slow >= self.slow_limit {
                        return Some(now.saturating_add(CROWDED));
                    }
                    *slow = true;
                    self.fast -= 1;
                    self.slow += 1;
                }
                Some(_) => return Some(due),
                None => {}
            }
            self.ages.pop_front();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn seconds(seconds: u64) -> Time {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_hangs_gives_its_slot_to_the_next() {
        let mut slots = Slots::new(2, 10);
        slots.start(seconds(0), 1);
        slots.start(seconds(0), 2);
        assert!(!slots.has_room());
        assert_eq!(slots.age(seconds(0)), Some(seconds(1)));
        assert_eq!(slots.age(seconds(1)), None);
        assert!(slots.has_room());
        assert_eq!((slots.in_use(), slots.slow()), (2, 2));
        slots.finish(1);
        assert_eq!((slots.in_use(), slots.slow()), (1, 1));
    }

    #[test]
    fn a_full_slow_lane_takes_no_more() {
        let mut slots = Slots::new(2, 1);
        slots.start(seconds(0), 1);
        slots.start(seconds(0), 2);
        assert_eq!(slots.age(seconds(5)), Some(seconds(5) + CROWDED));
        slots.start(seconds(5), 3);
        assert!(!slots.has_room());
        slots.finish(1);
        assert_eq!(
            slots.age(seconds(6)),
            Some(seconds(6) + CROWDED),
            "3 has no room"
        );
        assert!(slots.has_room());
    }

    #[test]
    fn an_answer_that_comes_twice_changes_nothing() {
        let mut slots = Slots::new(1, 1);
        slots.start(seconds(0), 1);
        slots.finish(1);
        slots.finish(1);
        slots.finish(7);
        assert_eq!(slots.in_use(), 0);
    }

    proptest! {
        #[test]
        fn the_books_balance(steps in proptest::collection::vec((0..3_u8, 0..20_u64), 0..200)) {
            let mut slots = Slots::new(5, 3);
            let mut now = Duration::ZERO;
            let mut flying = std::collections::HashSet::new();
            let mut next = 0;
            for (step, number) in steps {
                now += Duration::from_millis(200);
                match step {
                    0 if slots.has_room() => {
                        slots.start(now, next);
                        flying.insert(next);
                        next += 1;
                    }
                    1 => {
                        slots.finish(number);
                        flying.remove(&number);
                    }
                    _ => {
                        slots.age(now);
                    }
                }
                prop_assert_eq!(slots.in_use(), flying.len());
                prop_assert!(slots.slow() <= 3);
                prop_assert!(slots.in_use() <= 8);
                prop_assert!(slots.ages.len() <= flying.len() + 200);
            }
        }
    }
}
