//! What a session remembers of its scans of one transport: positions, sweeps and pieces. Pure: the caller brings the time
//! and counts the pages. The rules are told in [`super`].

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use crate::cursor::sweep::Sweeps;
use crate::cursor::trail::{PIECE, Trail};

/// Microseconds that a position stays behind the present.
pub const SLACK: i64 = 100_000;
/// Sweeps are cheap that look at fewer pages than this, over and over: a dead row is a look. That is some milliseconds. A
/// session's first call looks at some thousand for its plans.
pub const CHEAP: i64 = 10_000;
/// What a sweep that is cheap, and a look at pieces, takes at most.
const LONGEST: Duration = Duration::from_millis(25);
/// What a look at a piece of one priority counts at least.
const PAGES_A_LOOK: i64 = 25;
/// Priorities that a position is kept for: as many as there are, from -100 to 100.
pub const PRIORITIES: usize = 201;

/// Just behind the row `id` of those with this `send_at`, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub send_at: i64,
    pub id: i64,
}

impl Position {
    /// Before all rows.
    pub const START: Self = Self {
        send_at: i64::MIN,
        id: i64::MIN,
    };
}

/// What is remembered of one priority.
pub struct Priority {
    /// Where a scan starts.
    pub position: Position,
    /// Where the next look behind it goes on, if the last one ended before it.
    pub paused: Option<Position>,
    pub trail: Trail<Position>,
}

impl Priority {
    /// The next piece of what lies behind the position.
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
    /// Pages that this process had looked at when the scan began, and when it was last noted how far it came.
    pub began: i64,
    pub noted: i64,
    /// Pages that the last sweep looked at, and the fewer of those of the last two.
    pub pages: (i64, i64),
    /// Whether this scan looks at pieces, and what they may cost yet, in pages.
    pub piece: Option<i64>,
    /// The priority that the round of pieces came to, and its pages so far.
    pub round: (i16, i64),
    /// Of the scan that goes on; what a call that failed left is forgotten.
    pub notes: Vec<Note>,
}

/// What a scan starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Everything: it is a sweep.
    Sweep,
    /// The positions, and a piece of what lies behind them first.
    Piece,
    /// The positions.
    Positions,
}

/// How far a scan of one priority came.
#[derive(Clone, Copy)]
pub struct Note {
    pub priority: i16,
    pub at: Position,
    pub kind: Kind,
    /// Pages that were looked at.
    pub pages: i64,
}

#[derive(Clone, Copy)]
pub enum Kind {
    /// From the position on.
    Scan,
    /// From the beginning on.
    Sweep {
        /// The next scan goes on from here even if an earlier one was further: below that lies what a sweep that found
        /// enough did not come to.
        back: bool,
        /// The next sweep goes on from here.
        unfinished: bool,
    },
    /// A piece behind the position.
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

    /// The priorities of which a piece is next, with those pieces.
    pub fn pieces(&self) -> impl Iterator<Item = (i16, Position, Position)> {
        let priorities = self.piece.map(|_| self.priorities.range(self.round.0..));
        priorities.into_iter().flatten().map(|(priority, entry)| {
            let (from, until) = entry.piece();
            (*priority, from, until)
        })
    }

    /// Notes how far it came with one priority; whether to look at more pieces.
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

    /// Ends the scan, at this time of the server's clock. What was found should have cost so many pages.
    pub fn end(&mut self, now: Instant, pages: i64, swept: bool, found: i64, clock: i64) {
        for note in std::mem::take(&mut self.notes) {
            self.apply(note, clock);
        }
        if swept {
            let all = pages.saturating_sub(self.began);
            for entry in self.priorities.values_mut() {
                // What is dead was claimed of late, and in many more marks than this it is not.
                entry
                    .trail
                    .keep(if all < PIECE { 0 } else { all / PIECE + 2 });
            }
            self.swept(all - found);
        } else if self.piece.is_some() && self.priorities.range(self.round.0..).next().is_none() {
            self.swept(self.round.1);
        }
        self.sweeps
            .end_bounded(now, swept || self.piece.is_some(), LONGEST);
    }

    /// What lies behind the positions was looked at for so many pages.
    pub fn swept(&mut self, pages: i64) {
        self.pages = (pages, pages.min(self.pages.0));
        self.round = (i16::MIN, 0);
    }

    /// The next scan starts behind this at the latest.
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
                // As sweeps are cheap no piece is looked at; but once they are not, this will lie behind the position, too.
                entry.trail.add(at, note.pages);
            }
            Kind::Piece { unfinished } => {
                if !unfinished {
                    entry.trail.looked(note.at, note.pages);
                }
                let is_last = !unfinished && note.at >= entry.position;
                entry.paused = (!is_last).then_some(note.at);
                let next = note.priority.saturating_add(i16::from(is_last));
                self.round = (next, self.round.1 + note.pages);
            }
        }
    }
}
