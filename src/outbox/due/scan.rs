//! What a session remembers of its scans of one transport: positions, sweeps and pieces. Pure: the caller passes the
//! time and the number of pages read. [`super`] explains the rules.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use crate::cursor::sweep::Sweeps;
use crate::cursor::trail::{Key, LARGE_PIECE, PIECE, Trail, divide_time};

/// Microseconds that a position stays behind the present.
pub const SLACK: i64 = 100_000;
/// Sweeps are cheap while one of the last two read fewer pages than this, which takes some milliseconds. A page counts
/// each time that it is read, so each dead row counts as one unless it is on the same page as the row before. A claim
/// reads up to 10,000 rows of held groups, which may be 5,000 pages. A session's first call reads some thousand pages
/// for its plans.
pub const CHEAP: i64 = 6_000;
/// Maximum time that is counted for a sweep or a scan of pieces that reads few pages: it takes longer only if it has to
/// wait.
const LONGEST: Duration = Duration::from_millis(25);
/// The same for one that reads many pages, such as the first of a session: so mail that was committed late waits for
/// five seconds at most until the next piece is scanned.
const LONGEST_LARGE: Duration = Duration::from_millis(250);
/// Minimum pages that are counted for the scan of a piece of one priority.
const PAGES_A_LOOK: i64 = 25;
/// Maximum number of priorities with a position: all priorities, from -100 to 100.
pub const PRIORITIES: usize = 201;

/// The position just after a row with this `send_at`, in microseconds, and this `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub send_at: i64,
    pub id: i64,
}

impl Position {
    /// The position before all rows.
    pub const START: Self = Self {
        send_at: i64::MIN,
        id: i64::MIN,
    };
}

impl Key for Position {
    fn divide(after: Option<Self>, end: Self) -> Vec<Self> {
        let at = |send_at| Self {
            send_at,
            id: i64::MIN,
        };
        let Some(after) = after.filter(|after| end.send_at.saturating_sub(after.send_at) <= 1)
        else {
            let times = divide_time(after.map(|after| after.send_at), end.send_at);
            return times.into_iter().map(at).collect();
        };
        // All mail of one transaction is due at the same time.
        let ids = if after.id < 0 {
            (0..63).map(|n| 1 << n).collect()
        } else if end.send_at == after.send_at {
            vec![i64::midpoint(after.id, end.id)]
        } else {
            vec![after.id.saturating_mul(2)]
        };
        let of_first = ids.into_iter().map(|id| Self { id, ..after });
        of_first.chain([at(end.send_at)]).collect()
    }
}

/// What a session remembers of one priority.
pub struct Priority {
    /// Where a scan starts.
    pub position: Position,
    /// Where the next sweep, or the next piece, starts, if not at the beginning.
    pub paused: Option<Position>,
    pub trail: Trail<Position>,
    /// How often everything before the position was scanned in pieces in this round.
    pub times: u32,
}

impl Priority {
    /// Returns the start and the end of the next piece of what is before the position.
    pub fn piece(&self) -> (Position, Position) {
        let paused = self.paused.filter(|at| *at < self.position);
        let until = self.trail.piece(paused, self.position);
        (paused.unwrap_or(Position::START), until)
    }
}

#[derive(Default)]
pub struct Due {
    pub priorities: BTreeMap<i16, Priority>,
    pub sweeps: Sweeps,
    /// Pages that this process had read when the scan began, and when the part began that the next note is about.
    pub began: i64,
    pub noted: i64,
    /// Pages that the last sweep or round of pieces read, and the minimum of the last two.
    pub pages: (i64, i64),
    /// Pages that this scan may still read in pieces; `None` if it scans no pieces.
    pub piece: Option<i64>,
    /// Pages that this round of pieces, through all priorities, has read.
    pub round: i64,
    /// The notes of the running scan; [`Due::begin`] discards those that a failed call left.
    pub notes: Vec<Note>,
}

/// Where a scan starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At the beginning, to scan everything: it is a sweep.
    Sweep,
    /// With a piece of what is before the positions, then at the positions.
    Piece,
    /// At the positions.
    Positions,
}

/// How far a scan of one priority got.
#[derive(Clone, Copy)]
pub struct Note {
    pub priority: i16,
    pub at: Position,
    pub kind: Kind,
    /// Pages that were read.
    pub pages: i64,
}

#[derive(Clone, Copy)]
pub enum Kind {
    /// From the position on.
    Scan,
    /// From the beginning on, or from where the last sweep stopped.
    Sweep {
        /// The next scan starts here even if an earlier one got further, because a sweep that found enough rows did
        /// not read the rows in between.
        back: bool,
        /// The next sweep continues here.
        unfinished: bool,
    },
    /// A piece of what is before the position.
    Piece { unfinished: bool },
}

impl Due {
    pub fn begin(&mut self, now: Instant, pages: i64) -> Start {
        self.notes.clear();
        self.sweeps.begin(now);
        self.began = pages;
        self.noted = pages;
        self.piece = None;
        match (self.sweeps.is_due(now), self.is_cheap()) {
            (false, _) => Start::Positions,
            (true, true) => Start::Sweep,
            (true, false) => {
                self.piece = Some(PIECE);
                Start::Piece
            }
        }
    }

    pub fn is_cheap(&self) -> bool {
        self.pages.1 < CHEAP
    }

    /// Returns the next pieces, of those priorities up to the last one given that were scanned least often.
    pub fn pieces(&self, last_priority: i16) -> impl Iterator<Item = (i16, Position, Position)> {
        let priorities = self.piece.map(|_| self.priorities.range(..=last_priority));
        let priorities = priorities.into_iter().flatten();
        let fewest = priorities.clone().map(|(_, entry)| entry.times).min();
        priorities
            .filter(move |(_, entry)| Some(entry.times) == fewest)
            .map(|(priority, entry)| {
                let (from, until) = entry.piece();
                (*priority, from, until)
            })
    }

    /// Records how far the scan of one priority got. Returns whether to scan another piece.
    pub fn note(&mut self, pages: i64, priority: i16, at: Position, kind: Kind) -> bool {
        let note = Note {
            priority,
            at,
            kind,
            pages: pages.saturating_sub(self.noted),
        };
        self.noted = pages;
        self.notes.push(note);
        let Kind::Piece { unfinished } = kind else {
            return false;
        };
        let left = self.piece.unwrap_or(0) - note.pages.max(PAGES_A_LOOK);
        self.piece = Some(left);
        let is_last = self
            .priorities
            .get(&priority)
            .is_none_or(|entry| at >= entry.position);
        left > 0 && !unfinished && is_last
    }

    /// Ends the scan. `found` is the pages allowed for the rows found, `clock` the server's time in microseconds. Returns
    /// how long it takes until a scan may sweep, or scan a piece, again.
    pub fn end(
        &mut self,
        now: Instant,
        pages: i64,
        swept: bool,
        found: i64,
        clock: i64,
    ) -> Duration {
        for note in std::mem::take(&mut self.notes) {
            self.apply(note, clock);
        }
        if swept {
            let all = pages.saturating_sub(self.began);
            for entry in self.priorities.values_mut() {
                // Dead rows were claimed recently, so most are within this many of the latest marks.
                entry
                    .trail
                    .keep(if all < PIECE { 0 } else { all / PIECE + 2 });
            }
            self.swept(all - found);
        } else if self.piece.is_some() && self.priorities.values().all(|entry| entry.times > 0) {
            self.swept(self.round);
        }
        let is_small = pages.saturating_sub(self.began) < 2 * LARGE_PIECE;
        let most = if is_small { LONGEST } else { LONGEST_LARGE };
        self.sweeps
            .end_bounded(now, swept || self.piece.is_some(), most);
        self.sweeps.wait(now)
    }

    /// Records that everything before the positions was scanned in this many pages.
    pub fn swept(&mut self, pages: i64) {
        self.pages = (pages, pages.min(self.pages.0));
        self.round = 0;
        for entry in self.priorities.values_mut() {
            entry.times = 0;
        }
    }

    /// Makes the next scan of this priority start at this position at the latest.
    pub fn put_back(&mut self, priority: i16, at: Position) {
        if let Some(entry) = self.priorities.get_mut(&priority) {
            entry.position = at.min(entry.position);
        }
    }

    pub fn apply(&mut self, note: Note, clock: i64) {
        let at = note.at.min(Position {
            send_at: clock.saturating_sub(SLACK),
            id: i64::MIN,
        });
        let known = self.priorities.len();
        let entry = match self.priorities.entry(note.priority) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(_) if known == PRIORITIES => return,
            Entry::Vacant(free) => free.insert(Priority {
                position: at,
                paused: None,
                trail: Trail::default(),
                times: 0,
            }),
        };
        match note.kind {
            Kind::Scan => {
                entry.position = at.max(entry.position);
                entry.trail.add(at, note.pages);
            }
            Kind::Sweep { back, unfinished } => {
                entry.position = if back { at } else { at.max(entry.position) };
                entry.paused = unfinished.then_some(note.at);
                // No piece is scanned while sweeps are cheap; once they are not, this is before the position too.
                entry.trail.add(at, note.pages);
            }
            Kind::Piece { unfinished } => {
                let after = entry.paused.filter(|at| *at < entry.position);
                if unfinished {
                    entry.trail.stopped(after, note.at, note.pages);
                } else {
                    entry.trail.looked(after, note.at, note.pages);
                }
                let is_last = !unfinished && note.at >= entry.position;
                entry.paused = (!is_last).then_some(note.at);
                if entry.times == 0 {
                    self.round += note.pages;
                }
                entry.times += u32::from(is_last);
            }
        }
    }
}
