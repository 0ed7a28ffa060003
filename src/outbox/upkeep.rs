//! Where this session's next scan starts over rows that it settles, answers or deletes on the way: expired leases,
//! requests, rows to purge.
//!
//! As for due mail ([`super::due`]), dead rows stay where the scan starts until vacuum may remove them. So a scan
//! starts where the last one ended, and at the beginning as often as a budget allows ([`crate::cursor::sweep`]),
//! because it may have skipped locked rows. A scan from the beginning reads everything at once, except for leases:
//! these leave the most dead rows, one for each mail, and are scanned in pieces ([`crate::cursor::trail`]). The state
//! is local to this process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

use pgrx::prelude::*;

use crate::cursor::sweep::Sweeps;
use crate::cursor::trail::Trail;
use crate::pg::catalog;
use crate::pg::process::pages_read as pages;

use super::due::SLACK;

/// A scan over rows that are answered, deleted or settled over time: requests, rows of one table to purge, leases in
/// force.
#[derive(Default)]
struct Walk {
    /// The key that the last scan reached.
    position: i64,
    sweeps: Sweeps,
    /// Whether the running scan started at the beginning.
    sweeping: bool,
    /// Pages that this process had read when the scan began.
    began: i64,
    /// Pages that the last scan from the beginning read, and the minimum of the last two: a session's first scan reads
    /// some hundred for its plans.
    pages: (i64, i64),
}

/// A scan starts at the beginning despite the budget if one of the last two such scans read no more pages than this.
const CHEAP_WALK: i64 = 100;

impl Walk {
    fn is_to_sweep(&self, now: Instant) -> bool {
        self.pages.1 <= CHEAP_WALK || self.sweeps.is_due(now)
    }

    /// Begins a scan. Returns the key after which it starts; `None` for the beginning.
    fn begin(&mut self, now: Instant, pages: i64) -> Option<i64> {
        self.sweeping = self.is_to_sweep(now);
        self.sweeps.begin(now);
        self.began = pages;
        (!self.sweeping).then_some(self.position)
    }

    /// Ends a scan that reached this key; `None` if it found no rows.
    fn end(&mut self, now: Instant, pages: i64, position: Option<i64>) {
        self.position = position.unwrap_or(self.position);
        if self.sweeping {
            let cost = pages.saturating_sub(self.began);
            self.pages = (cost, cost.min(self.pages.0));
        }
        self.sweeps.end(now, self.sweeping);
    }
}

/// The scan for expired leases, by the microsecond in which they end.
#[derive(Default)]
struct Leases {
    /// All leases that ended by this time were examined.
    position: i64,
    /// Where the next scan of a piece continues, if not at the beginning.
    paused: Option<i64>,
    trail: Trail<i64>,
    sweeps: Sweeps,
    /// What the scan reads now, and the pages that this process had read before that.
    part: Part,
    began: i64,
    /// As in [`Walk`]; a round of pieces counts like a scan from the beginning.
    pages: (i64, i64),
    /// Pages that the round of pieces has read.
    round: i64,
}

#[derive(Clone, Copy, Default)]
enum Part {
    #[default]
    Everything,
    FromPosition,
    Piece {
        until: i64,
    },
}

impl Leases {
    /// Begins a scan. Returns the range to read first: after one lease end, up to another.
    fn begin(&mut self, now: Instant, pages: i64, moment: i64) -> (i64, i64) {
        self.sweeps.begin(now);
        self.began = pages;
        if self.pages.1 <= CHEAP_WALK {
            self.part = Part::Everything;
            (i64::MIN, moment)
        } else {
            self.part = Part::FromPosition;
            (self.position, moment)
        }
    }

    /// Records that all leases up to this lease end were examined. Returns the range to read next, if any.
    fn came_to(&mut self, now: Instant, pages: i64, at: i64) -> Option<(i64, i64)> {
        let cost = pages.saturating_sub(self.began);
        self.began = pages;
        match self.part {
            Part::Everything => {
                self.position = at.saturating_sub(SLACK);
                self.trail.clear();
                self.swept(cost);
            }
            Part::FromPosition => {
                self.position = self.position.max(at.saturating_sub(SLACK));
                self.trail.add(self.position, cost);
                if self.sweeps.is_due(now) {
                    let until = self.trail.piece(self.paused, self.position);
                    self.part = Part::Piece { until };
                    return Some((self.paused.unwrap_or(i64::MIN), until));
                }
                self.sweeps.end(now, false);
                return None;
            }
            Part::Piece { until } => {
                if at >= until {
                    self.trail.looked(self.paused, until, cost);
                } else {
                    self.trail.stopped(self.paused, at, cost);
                }
                self.round += cost;
                self.paused = (at < self.position).then_some(at);
                if self.paused.is_none() {
                    self.swept(self.round);
                }
            }
        }
        self.sweeps.end(now, true);
        None
    }

    /// Records that everything was examined in this many pages.
    fn swept(&mut self, pages: i64) {
        self.pages = (pages, pages.min(self.pages.0));
        self.paused = None;
        self.round = 0;
    }
}

/// What this session remembers.
#[derive(Default)]
struct Memory {
    leases: Leases,
    /// By the name of the scan.
    walks: BTreeMap<String, Walk>,
    /// The extension that `walks` belongs to: after DROP and CREATE EXTENSION its scans start at the beginning.
    extension: Option<pg_sys::Oid>,
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::new(Memory::default());
}

/// Begins a scan for leases that ended by this time. Returns the range of lease ends to read first.
#[pg_extern(sql = false)]
fn _leases_begin(moment: i64) -> TableIterator<'static, (name!(after, i64), name!(until, i64))> {
    let range =
        MEMORY.with_borrow_mut(|memory| memory.leases.begin(Instant::now(), pages(), moment));
    TableIterator::once(range)
}

/// Ends the scan of a range, having reached this lease end. Returns the range to read next, if any.
#[pg_extern(sql = false)]
fn _leases_next(came_to: i64) -> TableIterator<'static, (name!(after, i64), name!(until, i64))> {
    let range =
        MEMORY.with_borrow_mut(|memory| memory.leases.came_to(Instant::now(), pages(), came_to));
    TableIterator::new(range)
}

/// Returns the lease end after which the next scan starts, unless it reads everything.
#[pg_extern(sql = false)]
fn _leases_from() -> i64 {
    MEMORY.with_borrow(|memory| memory.leases.position)
}

/// Calls `work` with the scan of this name.
fn with_walk<T>(name: &str, work: impl FnOnce(&mut Walk) -> T) -> T {
    let extension = catalog::extension();
    MEMORY.with_borrow_mut(|memory| {
        if memory.extension != extension {
            memory.extension = extension;
            memory.walks.clear();
        }
        work(memory.walks.entry(name.to_owned()).or_default())
    })
}

/// Begins a scan. Returns the key after which it starts; NULL for the beginning.
#[pg_extern(sql = false)]
fn _walk_begin(name: &str) -> Option<i64> {
    with_walk(name, |walk| walk.begin(Instant::now(), pages()))
}

/// Returns where the next scan will begin; NULL for the beginning.
#[pg_extern(sql = false)]
fn _walk_from(name: &str) -> Option<i64> {
    with_walk(name, |walk| {
        (!walk.is_to_sweep(Instant::now())).then_some(walk.position)
    })
}

/// Ends a scan that reached this key; NULL if it found no rows.
#[pg_extern(sql = false)]
fn _walk_end(name: &str, position: Option<i64>) {
    with_walk(name, |walk| walk.end(Instant::now(), pages(), position));
}

/// Makes the next scan read what is after this key again.
#[pg_extern(sql = false)]
fn _walk_back(name: &str, key: i64) {
    with_walk(name, |walk| walk.position = walk.position.min(key));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::trail::PIECE;

    #[test]
    fn a_walk_starts_where_the_last_one_ended_when_the_beginning_is_dear() {
        let start = Instant::now();
        let ms = |ms| start + std::time::Duration::from_millis(ms);
        let mut walk = Walk::default();
        let mut walked = |begin, end, cost, position| {
            let from = walk.begin(ms(begin), 0);
            walk.end(ms(end), if from.is_none() { cost } else { 1 }, position);
            from
        };
        // One expensive scan, such as the first of a session, does not make scans expensive; two in a row do.
        assert_eq!(walked(0, 10, 2 * CHEAP_WALK, Some(5)), None);
        assert_eq!(walked(10, 20, 2 * CHEAP_WALK, Some(6)), None);
        assert_eq!(walked(20, 21, 0, None), Some(6), "10 ms, of 200");
        assert_eq!(walked(22, 23, 0, Some(9)), Some(6));
        assert_eq!(walked(24, 25, 0, None), Some(9));
        assert_eq!(walked(220, 230, CHEAP_WALK, None), None, "its turn again");
        assert_eq!(walked(231, 232, CHEAP_WALK, None), None, "which was cheap");
    }

    #[test]
    fn leases_are_looked_at_from_the_position_and_piece_by_piece_once_that_is_dear() {
        let now = Instant::now();
        let mut leases = Leases::default();
        let second = 10 * SLACK;
        // Two expensive scans of everything.
        for _ in 0..2 {
            assert_eq!(leases.begin(now, 0, second), (i64::MIN, second));
            assert_eq!(leases.came_to(now, PIECE, second), None);
        }
        let behind = second - SLACK;
        assert_eq!(leases.begin(now, 0, 2 * second), (behind, 2 * second));
        assert_eq!(
            leases.came_to(now, PIECE, 2 * second),
            Some((i64::MIN, 2 * second - SLACK)),
            "no time was taken, so that the budget allows it"
        );
        assert_eq!(
            leases.came_to(now, 3 * PIECE, behind),
            None,
            "it came to its limit"
        );
        leases.begin(now, 0, 3 * second);
        assert_eq!(
            leases.came_to(now, 1, 3 * second),
            Some((behind, 2 * second - SLACK)),
            "up to the mark"
        );
        assert_eq!(leases.came_to(now, 2, 2 * second - SLACK), None);
        leases.begin(now, 0, 3 * second);
        assert_eq!(
            leases.came_to(now, 1, 3 * second),
            Some((2 * second - SLACK, 3 * second - SLACK))
        );
        assert_eq!(leases.came_to(now, 2, 3 * second - SLACK), None);
        // That round was expensive; the next one is not.
        leases.begin(now, 0, 3 * second);
        assert_eq!(
            leases.came_to(now, 1, 3 * second),
            Some((i64::MIN, 3 * second - SLACK)),
            "the mark is gone with the cheap piece"
        );
        assert_eq!(leases.came_to(now, 2, 3 * second - SLACK), None);
        assert_eq!(leases.begin(now, 0, 4 * second), (i64::MIN, 4 * second));
    }
}
