//! The rules of a scan. Pure: the caller passes the time, and that of the processor, which counts for sweeps: how long they
//! wait for it says nothing about the rows that they step over.
//!
//! A scan has parts, such as the priorities of due mail, and keeps a position in each. A position is a hint. Rows can
//! appear before it: a transaction commits late, or returns what it took when it is rolled back; a row was locked, or
//! its group was busy. Three rules find them:
//!
//! - a scan is a *sweep* as often as its credit allows: it starts at the beginning of each part. Sweeps take at most a
//!   twentieth of the time. While there is little to step over, every scan is one;
//! - a sweep that is cut off by a limit of its own continues there the next time: any number of rows that cannot be
//!   taken hide nothing;
//! - a position stays [`SLACK`] behind the present.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Sweeps take one part in this many of the time.
const SHARE: i64 = 20;
/// Credit that a scan has at first, and at most, in microseconds: so many sweeps in a row are not spaced.
const CREDIT: i64 = 100_000;
/// What is counted at most for a sweep that failed, in microseconds: when it failed is not known, and the session may have
/// done other work since.
const FAILED: i64 = 1_000_000;
/// Microseconds that a position stays behind the present. Mail is due from the start of the transaction that schedules it:
/// one that takes no longer than this is in no need of a sweep.
const SLACK: i64 = 1_000_000;

/// The position just after a row: of a time in microseconds, if the index has one, and an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub at: i64,
    pub id: i64,
}

impl Position {
    /// The position before all rows.
    pub const START: Self = Self {
        at: i64::MIN,
        id: i64::MIN,
    };
}

/// What is remembered of one part.
struct Part {
    /// Where a scan starts that is no sweep.
    position: Position,
    /// Where the next sweep starts: it was cut off there.
    cut_off: Option<Position>,
    /// How far the running scan got.
    reached: Option<Position>,
}

impl Part {
    fn start(&self, is_sweep: bool) -> Position {
        if is_sweep {
            self.cut_off.unwrap_or(Position::START)
        } else {
            self.position
        }
    }
}

/// What a session remembers of one scan.
pub struct Scan {
    parts: BTreeMap<i16, Part>,
    /// Whether the running scan is a sweep.
    is_sweep: bool,
    /// When its current look began, by the processor's time, if it is a sweep. Set before the look, so that one that fails is counted.
    look: Option<Instant>,
    /// Microseconds that sweeps may take, as of `counted`.
    credit: i64,
    counted: Instant,
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl Scan {
    pub fn new(now: Instant) -> Self {
        Self {
            parts: BTreeMap::new(),
            is_sweep: false,
            look: None,
            credit: CREDIT,
            counted: now,
        }
    }

    /// Begins a scan. Returns whether it is a sweep.
    pub fn begin(&mut self, now: Instant, processor: Instant) -> bool {
        if let Some(began) = self.look.take() {
            let since = micros(processor.saturating_duration_since(began));
            self.credit = self.credit.saturating_sub(since.min(FAILED));
        }
        self.is_sweep = self.may_sweep(now);
        self.look = self.is_sweep.then_some(processor);
        for part in self.parts.values_mut() {
            part.reached = None;
        }
        self.is_sweep
    }

    /// Begins a sweep, whether or not there is credit.
    pub fn sweep(&mut self, now: Instant, processor: Instant) {
        self.begin(now, processor);
        self.is_sweep = true;
        self.look = Some(processor);
    }

    fn may_sweep(&mut self, now: Instant) -> bool {
        let earned = micros(now.saturating_duration_since(self.counted)) / SHARE;
        self.credit = self.credit.saturating_add(earned).min(CREDIT);
        // A part of a microsecond is not lost, however often this is called.
        self.counted +=
            Duration::from_micros(earned.unsigned_abs().saturating_mul(SHARE.unsigned_abs()));
        self.credit > 0
    }

    /// Begins a look, unless one has begun. Returns the parts that the scan knows, and where it starts in each: all parts,
    /// or in a sweep those that it came to.
    pub fn parts(&mut self, processor: Instant) -> Vec<(i16, Position)> {
        if self.is_sweep {
            self.look.get_or_insert(processor);
        }
        let known = self.parts.iter();
        let known = known.filter(|(_, part)| !self.is_sweep || part.reached.is_some());
        known
            .map(|(number, part)| (*number, self.start_of(part)))
            .collect()
    }

    fn start_of(&self, part: &Part) -> Position {
        part.reached.unwrap_or(part.start(self.is_sweep))
    }

    /// Returns where the running scan starts in one part.
    pub fn start(&self, part: i16) -> Position {
        let part = self.parts.get(&part);
        part.map_or(Position::START, |part| self.start_of(part))
    }

    /// Returns where the next scan will start in part 0.
    pub fn next_start(&mut self, now: Instant) -> Position {
        let is_sweep = self.may_sweep(now);
        let part = self.parts.get(&0);
        part.map_or(Position::START, |part| part.start(is_sweep))
    }

    /// Records how far the scan got in one part: to the last row that was wanted, to the end, or to where it was cut off by
    /// a limit. `clock` is the server's time in microseconds.
    pub fn note(&mut self, part: i16, at: Position, cut_off: bool, clock: i64) {
        let settled = at.min(Position {
            at: clock.saturating_sub(SLACK),
            id: i64::MIN,
        });
        let is_sweep = self.is_sweep;
        let part = self.parts.entry(part).or_insert(Part {
            position: settled,
            cut_off: None,
            reached: None,
        });
        part.reached = Some(at);
        if is_sweep {
            part.cut_off = cut_off.then_some(at);
        }
        // A sweep takes the first rows, so those that it did not come to are after it, perhaps before the old position.
        part.position = if is_sweep && !cut_off {
            settled
        } else {
            settled.max(part.position)
        };
    }

    /// Ends a look. Returns how long it takes until a scan may sweep; zero if this one did.
    pub fn end(&mut self, now: Instant, processor: Instant) -> Duration {
        if let Some(began) = self.look.take() {
            self.spend(processor.saturating_duration_since(began));
        }
        if self.is_sweep || self.may_sweep(now) {
            return Duration::ZERO;
        }
        let missing = self.credit.saturating_sub(1).saturating_mul(-SHARE);
        Duration::from_micros(missing.unsigned_abs())
    }

    /// Counts time that a sweep took.
    pub fn spend(&mut self, spent: Duration) {
        if self.is_sweep {
            self.credit = self.credit.saturating_sub(micros(spent));
        }
    }

    /// Makes the next scan of a part start at this position at the latest.
    pub fn back(&mut self, part: i16, at: Position) {
        if let Some(part) = self.parts.get_mut(&part) {
            part.position = part.position.min(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const CLOCK: i64 = 1_000_000_000;

    fn at(at: i64) -> Position {
        Position { at, id: 1 }
    }

    /// A scan that is no sweep, as the credit is spent.
    fn poor(now: Instant) -> Scan {
        let mut scan = Scan::new(now);
        assert!(
            scan.begin(now, now),
            "the first scan of a session is a sweep"
        );
        assert_eq!(scan.end(now + 1_000 * MS, now + 1_000 * MS), Duration::ZERO);
        assert!(!scan.begin(now + 1_000 * MS, now + 1_000 * MS));
        scan
    }

    #[test]
    fn sweeps_take_a_twentieth_of_the_time() {
        let start = Instant::now();
        let (mut scan, mut now, mut swept) = (Scan::new(start), start, Duration::ZERO);
        for _ in 0..10_000 {
            let took = if scan.begin(now, now) { 7 * MS } else { MS };
            swept += if took == MS { Duration::ZERO } else { took };
            now += took;
            scan.end(now, now);
            now += MS;
        }
        let all = now - start;
        assert!(
            swept <= all / 20 + 110 * MS && swept >= all / 25,
            "{swept:?} of {all:?}"
        );
    }

    #[test]
    fn small_sweeps_are_not_spaced() {
        let (mut scan, mut now) = (Scan::new(Instant::now()), Instant::now());
        for _ in 0..10_000 {
            assert!(scan.begin(now, now));
            now += MS / 10;
            scan.end(now, now);
            now += 2 * MS;
        }
    }

    #[test]
    fn a_scan_says_when_it_may_sweep() {
        let start = Instant::now();
        let mut scan = poor(start);
        let now = start + 1_000 * MS;
        let wait = scan.end(now, now);
        assert!(wait > 16_000 * MS && wait < 18_100 * MS, "{wait:?}");
        assert!(!scan.begin(now + wait - MS, now + wait - MS));
        assert!(scan.begin(now + wait + MS, now + wait + MS));
    }

    #[test]
    fn a_sweep_that_fails_is_counted() {
        let now = Instant::now();
        let mut scan = Scan::new(now);
        assert!(scan.begin(now, now));
        assert!(!scan.begin(now + 5_000 * MS, now + 5_000 * MS));
        assert!(!scan.begin(now + 17_000 * MS, now + 17_000 * MS));
        assert!(scan.begin(now + 19_000 * MS, now + 19_000 * MS));
        assert!(
            !scan.begin(now + 35_000 * MS, now + 35_000 * MS),
            "a second is counted, at most"
        );
        assert!(scan.begin(now + 3_700_000 * MS, now + 3_700_000 * MS));
    }

    #[test]
    fn what_is_taken_between_two_looks_is_not_counted() {
        let now = Instant::now();
        let mut scan = Scan::new(now);
        assert!(scan.begin(now, now));
        scan.note(3, at(10), false, CLOCK);
        scan.end(now + MS, now + MS);
        assert_eq!(scan.parts(now + 1_000 * MS), [(3, at(10))]);
        scan.end(now + 1_001 * MS, now + 1_001 * MS);
        assert!(scan.begin(now + 1_002 * MS, now + 1_002 * MS));
        scan.end(now + 1_002 * MS, now + 1_002 * MS);
        scan.spend(1_000 * MS);
        assert!(
            !scan.begin(now + 1_003 * MS, now + 1_003 * MS),
            "unless the caller says so"
        );
    }

    #[test]
    fn a_scan_starts_at_the_positions() {
        let now = Instant::now();
        let mut scan = poor(now);
        scan.note(5, at(50), false, CLOCK);
        scan.note(-5, at(70), false, CLOCK);
        assert_eq!(scan.start(5), at(50));
        scan.note(5, at(40), false, CLOCK);
        assert_eq!(scan.start(5), at(40), "the same scan continues where it is");
        scan.begin(now, now);
        assert_eq!(scan.parts(now), [(-5, at(70)), (5, at(50))], "never back");
        assert_eq!(scan.start(6), Position::START);
        scan.back(5, at(20));
        scan.back(6, at(20));
        assert_eq!(scan.parts(now), [(-5, at(70)), (5, at(20))]);
    }

    #[test]
    fn a_position_stays_behind_the_present() {
        let now = Instant::now();
        let mut scan = poor(now);
        scan.note(0, at(CLOCK), false, CLOCK);
        scan.begin(now, now);
        assert!(scan.start(0) < at(CLOCK - SLACK));
        scan.note(
            0,
            Position {
                at: i64::MIN,
                id: 9,
            },
            false,
            CLOCK,
        );
        assert_eq!(scan.next_start(now).at, CLOCK - SLACK);
    }

    #[test]
    fn a_sweep_that_found_enough_moves_a_position_back() {
        let now = Instant::now();
        let mut scan = Scan::new(now);
        scan.begin(now, now);
        scan.note(0, at(900), false, CLOCK);
        scan.note(1, at(900), false, CLOCK);
        scan.end(now, now);
        scan.begin(now, now);
        assert_eq!(scan.parts(now), [], "a sweep has come to none");
        assert_eq!(scan.start(0), Position::START);
        scan.note(0, at(120), false, CLOCK);
        assert_eq!(scan.parts(now), [(0, at(120))]);
        scan.end(now + 1_000 * MS, now + 1_000 * MS);
        scan.begin(now + 1_000 * MS, now + 1_000 * MS);
        assert_eq!(scan.parts(now), [(0, at(120)), (1, at(900))]);
    }

    #[test]
    fn a_sweep_that_was_cut_off_continues_there() {
        let now = Instant::now();
        let mut scan = Scan::new(now);
        scan.begin(now, now);
        scan.note(0, at(900), false, CLOCK);
        scan.end(now, now);
        scan.begin(now, now);
        scan.note(0, at(100), true, CLOCK);
        scan.end(now, now);
        assert_eq!(scan.next_start(now), at(100));
        scan.begin(now, now);
        assert_eq!(scan.start(0), at(100));
        scan.note(0, at(950), false, CLOCK);
        scan.end(now, now);
        scan.begin(now, now);
        assert_eq!(scan.start(0), Position::START, "the next one does not");
        scan.note(0, at(100), true, CLOCK);
        scan.end(now + 1_000 * MS, now + 1_000 * MS);
        scan.begin(now + 1_000 * MS, now + 1_000 * MS);
        assert_eq!(
            scan.start(0),
            at(950),
            "and the position does not move back"
        );
    }
}
