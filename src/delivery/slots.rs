//! How many requests may be under way, and which of them count. Pure.
//!
//! A request that gets no answer holds its slot until it times out; were all slots alike, one message in a
//! hundred could hold up the rest. So a request that has waited for longer than [`PATIENCE`] moves to a slow lane,
//! and its slot goes to the next one. The slow lane has its own end, for each request costs memory and a
//! connection; what does not fit stays where it is.
//!
//! A second is long where others are answered in a millisecond. When all slots are taken, a request moves sooner:
//! once it has waited for [`UNUSUAL`] times as long as the median of the others. A provider that slows down as a
//! whole must not be sent much more at a time for that, so each such move is paid for with answers, [`PRICE`] of them:
//! whatever happens, no more than one request in so many has left its slot early, but for the first few ([`credit`]).
//! The median is followed as in Ma, Muthukrishnan and Sandler, "Frugal Streaming for Estimating
//! Quantiles" (2013), in steps of a fraction instead of one: a step up for an answer that took longer, a step down
//! for one that did not, so that what takes for ever weighs no more than anything else.
//!
//! The module reads no clock.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Time since the engine started.
pub type Time = Duration;

/// How long a request counts as one that will be answered soon.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// So many times the usual is not usual any more.
const UNUSUAL: u32 = 4;
/// The least that counts as waiting: below that, it may as well be us who are busy.
const LEAST: Duration = Duration::from_millis(10);
/// So many answers let one request leave its slot early.
const PRICE: u32 = 8;
/// At most so many may leave early at once, and a quarter of the slots: where there are few, somebody means it.
const CREDIT: usize = 16;
/// What the median moves by with each answer.
const STEP: u32 = 32;
/// How soon to look again for room in the slow lane.
const CROWDED: Duration = Duration::from_millis(100);

/// The most answers that are kept to pay for early moves, for so many slots.
fn credit(limit: usize) -> u32 {
    PRICE * u32::try_from(CREDIT.min(limit / 4)).unwrap_or(0)
}

/// What is in the slow lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slow {
    pub requests: usize,
    /// In these requests.
    pub letters: usize,
}

/// The slots, and who is in them.
pub struct Slots {
    limit: usize,
    slow_limit: usize,
    fast: usize,
    slow: Slow,
    flying: HashMap<u64, Flying>,
    /// Those that were in the fast lane, oldest first; some have been answered since.
    ages: VecDeque<u64>,
    /// About the median of how long requests take.
    usual: Duration,
    /// Answers that no early move was paid with yet.
    credit: u32,
}

/// A request under way.
struct Flying {
    since: Time,
    letters: usize,
    is_slow: bool,
}

impl Slots {
    /// So many slots, and room for so many slow requests.
    pub fn new(limit: usize, slow_limit: usize) -> Self {
        Self {
            limit,
            slow_limit,
            fast: 0,
            slow: Slow::default(),
            flying: HashMap::new(),
            ages: VecDeque::new(),
            usual: PATIENCE / UNUSUAL,
            credit: credit(limit),
        }
    }

    /// Changes how many there are; what is under way goes on.
    pub fn resize(&mut self, limit: usize, slow_limit: usize) {
        self.limit = limit;
        self.slow_limit = slow_limit;
        self.credit = self.credit.min(credit(limit));
    }

    /// Whether another request may start.
    pub fn has_room(&self) -> bool {
        self.fast < self.limit
    }

    /// All requests under way.
    #[cfg(test)]
    fn in_use(&self) -> usize {
        self.fast + self.slow.requests
    }

    /// What is in the slow lane.
    pub fn slow(&self) -> Slow {
        self.slow
    }

    /// A request with so many letters starts; each has a number of its own.
    pub fn start(&mut self, now: Time, request: u64, letters: usize) {
        self.fast += 1;
        let flying = Flying {
            since: now,
            letters,
            is_slow: false,
        };
        self.flying.insert(request, flying);
        self.ages.push_back(request);
    }

    /// There is an answer to it, by which others can be judged.
    pub fn answered(&mut self, now: Time, request: u64) {
        if let Some(flying) = self.flying.get(&request) {
            self.learn(now.saturating_sub(flying.since));
        }
    }

    /// It has ended.
    pub fn finish(&mut self, request: u64) {
        match self.flying.remove(&request) {
            Some(flying) if flying.is_slow => {
                self.slow.requests -= 1;
                self.slow.letters -= flying.letters;
            }
            Some(_) => self.fast -= 1,
            None => {}
        }
        // Most are answered in the order in which they were sent.
        while let Some(oldest) = self.ages.front()
            && !self.flying.contains_key(oldest)
        {
            self.ages.pop_front();
        }
    }

    fn learn(&mut self, took: Duration) {
        let step = self.usual / STEP;
        self.usual = if took > self.usual {
            self.usual + step
        } else {
            self.usual - step
        };
        self.usual = self.usual.clamp(LEAST / UNUSUAL, PATIENCE / UNUSUAL);
        self.credit = (self.credit + 1).min(credit(self.limit));
    }

    /// How long a request may take now before its slot goes to another.
    fn patience(&self) -> Duration {
        // Beyond the limit, after it was lowered, a move would free nothing.
        if self.fast != self.limit || self.credit < PRICE {
            PATIENCE
        } else {
            self.usual * UNUSUAL
        }
    }

    /// Moves what has waited for long into the slow lane; returns when to call again.
    pub fn age(&mut self, now: Time) -> Option<Time> {
        while let Some(request) = self.ages.front() {
            let patience = self.patience();
            let is_full = !self.has_room();
            if let Some(flying) = self.flying.get_mut(request) {
                let due = flying.since.saturating_add(patience);
                if due > now {
                    // Answers may have changed what is usual, and paid for a move.
                    let soon = now.saturating_add(LEAST);
                    return Some(if is_full { due.min(soon) } else { due });
                }
                if self.slow.requests >= self.slow_limit {
                    return Some(now.saturating_add(CROWDED));
                }
                if now.saturating_sub(flying.since) < PATIENCE {
                    self.credit -= PRICE;
                }
                flying.is_slow = true;
                self.fast -= 1;
                self.slow.requests += 1;
                self.slow.letters += flying.letters;
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

    const fn millis(millis: u64) -> Time {
        Duration::from_millis(millis)
    }

    fn answer(slots: &mut Slots, now: Time, request: u64) {
        slots.answered(now, request);
        slots.finish(request);
    }

    /// Slots of a provider that answers within a millisecond.
    fn used_to_quick(limit: usize, slow_limit: usize) -> Slots {
        let mut slots = Slots::new(limit, slow_limit);
        for request in 1_000_000..1_001_000 {
            slots.start(Duration::ZERO, request, 1);
            answer(&mut slots, millis(1), request);
        }
        slots
    }

    #[test]
    fn what_hangs_gives_its_slot_to_the_next() {
        let mut slots = Slots::new(2, 10);
        slots.start(seconds(0), 1, 1);
        assert_eq!(slots.age(seconds(0)), Some(seconds(1)));
        slots.start(seconds(0), 2, 1);
        assert!(!slots.has_room());
        assert_eq!(slots.age(seconds(0)), Some(LEAST));
        assert_eq!(slots.age(seconds(1)), None);
        assert!(slots.has_room());
        assert_eq!((slots.in_use(), slots.slow().requests), (2, 2));
        slots.finish(1);
        assert_eq!((slots.in_use(), slots.slow().requests), (1, 1));
    }

    #[test]
    fn among_quick_ones_it_does_so_soon_if_another_waits_for_it() {
        let mut slots = used_to_quick(4, 10);
        for request in 1..4 {
            slots.start(seconds(1), request, 1);
        }
        assert_eq!(slots.age(seconds(1) + LEAST), Some(seconds(2)));
        slots.start(seconds(1) + LEAST, 4, 1);
        assert_eq!(slots.age(seconds(1) + LEAST), Some(seconds(2)));
        assert_eq!(
            (slots.in_use(), slots.slow().requests),
            (4, 1),
            "one has left"
        );
        slots.start(seconds(1) + LEAST, 5, 1);
        assert_eq!(slots.age(seconds(1) + LEAST), Some(seconds(1) + 2 * LEAST));
        assert_eq!(slots.slow().requests, 1, "no answer has paid for the next");
        slots.finish(5);
        for request in 6..6 + u64::from(PRICE) {
            slots.start(seconds(1) + LEAST, request, 1);
            answer(&mut slots, seconds(1) + LEAST, request);
        }
        slots.start(seconds(1) + LEAST, 5, 1);
        slots.age(seconds(1) + LEAST);
        assert_eq!(slots.slow().requests, 2, "now they have");
    }

    #[test]
    fn where_there_are_few_slots_nobody_leaves_early() {
        let mut slots = used_to_quick(3, 10);
        for request in 1..4 {
            slots.start(seconds(1), request, 1);
        }
        assert_eq!(
            slots.age(seconds(1) + 2 * LEAST),
            Some(seconds(1) + 3 * LEAST)
        );
        assert_eq!(slots.slow().requests, 0);
        // Nor after the limit was lowered below what is under way.
        let mut slots = used_to_quick(8, 10);
        for request in 1..9 {
            slots.start(seconds(1), request, 1);
        }
        slots.resize(4, 10);
        slots.age(seconds(1) + 2 * LEAST);
        assert_eq!(slots.slow().requests, 0);
    }

    #[test]
    fn a_provider_that_slows_down_is_sent_little_more_at_a_time() {
        let mut slots = used_to_quick(64, 2_048);
        let mut under_way = VecDeque::new();
        let mut most = 0;
        for tick in 0..100_000 {
            let now = seconds(1) + millis(tick);
            while let Some(&(end, request)) = under_way.front()
                && end <= now
            {
                answer(&mut slots, now, request);
                under_way.pop_front();
            }
            slots.age(now);
            while slots.has_room() {
                let request = tick * 10_000 + slots.in_use() as u64;
                slots.start(now, request, 1);
                under_way.push_back((now + millis(700), request));
            }
            most = most.max(slots.in_use());
            if tick > 10_000 {
                assert_eq!(slots.slow().requests, 0, "this is usual now");
            }
        }
        assert!(most > 64, "at first it looks as if some hang");
        assert!(most <= 64 + 2 * CREDIT, "{most}");
    }

    #[test]
    fn a_full_slow_lane_takes_no_more() {
        let mut slots = Slots::new(2, 1);
        slots.start(seconds(0), 1, 1);
        slots.start(seconds(0), 2, 1);
        slots.age(seconds(5));
        assert_eq!(slots.slow().requests, 1);
        slots.start(seconds(5), 3, 1);
        assert!(!slots.has_room());
        assert_eq!(slots.age(seconds(6)), Some(seconds(6) + CROWDED));
        slots.finish(1);
        assert_eq!(
            slots.age(seconds(6)),
            Some(seconds(6) + CROWDED),
            "3 has no room"
        );
        assert!(slots.has_room());
    }

    #[test]
    fn the_letters_in_the_slow_lane_are_counted() {
        let mut slots = Slots::new(4, 4);
        for (request, letters) in [(1, 500), (2, 20), (3, 1)] {
            slots.start(seconds(request - 1), request, letters);
        }
        slots.age(seconds(2));
        let slow = |requests, letters| Slow { requests, letters };
        assert_eq!(slots.slow(), slow(2, 520));
        slots.finish(1);
        assert_eq!(slots.slow(), slow(1, 20));
        slots.finish(3);
        slots.finish(2);
        assert_eq!(slots.slow(), slow(0, 0));
    }

    #[test]
    fn an_answer_that_comes_twice_changes_nothing() {
        let mut slots = Slots::new(1, 1);
        slots.start(seconds(0), 1, 1);
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
            let (mut next, mut answers, mut early) = (0, 0, 0);
            for (step, number) in steps {
                now += Duration::from_millis(200);
                match step {
                    0 if slots.has_room() => {
                        slots.start(now, next, 1);
                        flying.insert(next);
                        next += 1;
                    }
                    1 => {
                        answer(&mut slots, now, number);
                        answers += u32::from(flying.remove(&number));
                    }
                    _ => {
                        let before = slots.credit;
                        slots.age(now);
                        early += (before - slots.credit) / PRICE;
                    }
                }
                prop_assert!(early <= credit(5) / PRICE + answers / PRICE);
                prop_assert_eq!(slots.in_use(), flying.len());
                prop_assert!(slots.slow().requests <= 3);
                prop_assert!(slots.in_use() <= 8);
                prop_assert!(slots.ages.len() <= flying.len() + 200);
            }
        }
    }
}
