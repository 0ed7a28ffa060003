//! Where this session's next scan for due mail of `outbox` starts.
//!
//! The counterpart of [`crate::scan`]: claimed rows stay in the index `outbox_due` until vacuum may remove
//! them, so a session remembers, for each priority, how far it claimed, and starts there. Rows come in
//! behind a position: a transaction commits late, a claim is released, lapses or is rolled back, somebody
//! schedules into the past. A position can therefore delay a row and must never lose one. Four rules:
//!
//! - it stays [`SLACK`] behind the present, so that transactions may take that long to commit;
//! - a scan looks at everything, as a *sweep*, as soon as a budget allows ([`crate::sweep`]);
//! - so does one that found fewer rows than asked, as long as sweeps are [`CHEAP`]: in pages, so that a busy machine
//!   changes nothing. A sweep also finds priorities that no position is known for;
//! - once sweeps are dear, a scan starts at the positions, and looks at a piece of what lies behind them as soon as the
//!   budget allows ([`crate::trail`]). When a round of pieces, through all priorities, was cheap, sweeps are cheap again.
//!
//! Rows that are stepped over, those of groups that somebody holds, can be any number, and a claim looks at so many
//! rows and no more. So a sweep that breaks off in a priority goes on from there the next time ([`Lane::paused`]),
//! and leaves the position of the scan, which may be further, as it is. Else what lies behind a large group would
//! wait for the group. Claims of whole groups look at the rows of groups only, and remember their own positions.
//!
//! A scan is of one transport, with which the index begins: what waits for the others costs it nothing. A session remembers
//! the positions of [`TRANSPORTS`] of them, those that it scanned last.
//!
//! The state belongs to this process alone; losing it costs one sweep. A `timestamptz` is handled as what it is, an `i64`
//! of microseconds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::restore;
use crate::server;
use crate::sweep::Sweeps;
use crate::trail::{PIECE, Trail};

/// Microseconds that a position stays behind the present.
pub const SLACK: i64 = 100_000;
/// Sweeps are cheap that look at fewer pages than this, over and over: a dead row is a look. That is some milliseconds. A
/// session's first call looks at some thousand for its plans.
const CHEAP: i64 = 10_000;
/// What a sweep that is cheap, and a look at pieces, takes at most.
const LONGEST: Duration = Duration::from_millis(25);
/// What a mail that was found may cost in pages, and a group; what is beyond that was stepped over.
const PAGES_A_MAIL: i64 = 8;
const PAGES_A_GROUP: i64 = 32;
/// What a look at a piece of one priority counts at least.
const PAGES_A_LOOK: i64 = 25;
/// Priorities that a position is kept for: as many as there are, from -100 to 100.
const PRIORITIES: usize = 201;
/// Transports that anything is remembered of.
const TRANSPORTS: usize = 64;

/// Just behind the row `id` of those with this `send_at`, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    send_at: i64,
    id: i64,
}

impl Position {
    /// Before all rows.
    const START: Self = Self {
        send_at: i64::MIN,
        id: i64::MIN,
    };
}

/// What is remembered of one priority.
struct Lane {
    /// Where a scan starts.
    position: Position,
    /// Where the next look behind it goes on, if the last one ended before it.
    paused: Option<Position>,
    trail: Trail<Position>,
}

impl Lane {
    /// The next piece of what lies behind the position.
    fn piece(&self) -> (Position, Position) {
        let paused = self.paused.filter(|at| *at < self.position);
        let until = self.trail.piece(paused, self.position);
        (paused.unwrap_or(Position::START), until)
    }
}

#[derive(Default)]
struct Due {
    lanes: BTreeMap<i16, Lane>,
    sweeps: Sweeps,
    /// Pages that this process had looked at when the scan began, and when it was last noted how far it came.
    began: i64,
    noted: i64,
    /// Pages that the last sweep looked at, and the fewer of those of the last two.
    pages: (i64, i64),
    /// Whether this scan looks at pieces, and what they may cost yet, in pages.
    piece: Option<i64>,
    /// The priority that the round of pieces came to, and its pages so far.
    round: (i16, i64),
    /// Of the scan that goes on; what a call that failed left is forgotten.
    notes: Vec<Note>,
}

/// What a scan starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Start {
    /// Everything: it is a sweep.
    Sweep,
    /// The positions, and a piece of what lies behind them first.
    Piece,
    /// The positions.
    Positions,
}

/// How far a scan of one priority came.
#[derive(Clone, Copy)]
struct Note {
    priority: i16,
    at: Position,
    kind: Kind,
    /// Pages that were looked at.
    pages: i64,
}

#[derive(Clone, Copy)]
enum Kind {
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
    fn begin(&mut self, now: Instant, pages: i64) -> Start {
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

    fn is_cheap(&self) -> bool {
        self.pages.1 < CHEAP
    }

    /// The priorities of which a piece is next, with those pieces.
    fn pieces(&self) -> impl Iterator<Item = (i16, Position, Position)> {
        let lanes = self.piece.map(|_| self.lanes.range(self.round.0..));
        lanes.into_iter().flatten().map(|(priority, lane)| {
            let (from, until) = lane.piece();
            (*priority, from, until)
        })
    }

    /// Notes how far it came with one priority; whether to look at more pieces.
    fn note(&mut self, pages: i64, priority: i16, at: Position, kind: Kind) -> bool {
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
            .lanes
            .get(&priority)
            .is_none_or(|lane| at >= lane.position);
        left > 0 && !unfinished && is_last
    }

    /// Ends the scan, at this time of the server's clock. What was found should have cost so many pages.
    fn end(&mut self, now: Instant, pages: i64, swept: bool, found: i64, clock: i64) {
        for note in std::mem::take(&mut self.notes) {
            self.apply(note, clock);
        }
        if swept {
            let all = pages.saturating_sub(self.began);
            for lane in self.lanes.values_mut() {
                // What is dead was claimed of late, and in many more marks than this it is not.
                lane.trail
                    .keep(if all < PIECE { 0 } else { all / PIECE + 2 });
            }
            self.swept(all - found);
        } else if self.piece.is_some() && self.lanes.range(self.round.0..).next().is_none() {
            self.swept(self.round.1);
        }
        self.sweeps
            .end_bounded(now, swept || self.piece.is_some(), LONGEST);
    }

    /// What lies behind the positions was looked at for so many pages.
    fn swept(&mut self, pages: i64) {
        self.pages = (pages, pages.min(self.pages.0));
        self.round = (i16::MIN, 0);
    }

    /// The next scan starts behind this at the latest.
    fn put_back(&mut self, priority: i16, at: Position) {
        if let Some(lane) = self.lanes.get_mut(&priority) {
            lane.position = at.min(lane.position);
        }
    }

    fn apply(&mut self, note: Note, clock: i64) {
        let at = note.at.min(Position {
            send_at: clock.saturating_sub(SLACK),
            id: i64::MIN,
        });
        let known = self.lanes.len();
        let lane = match self.lanes.entry(note.priority) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if known == PRIORITIES => return,
            Entry::Vacant(entry) => entry.insert(Lane {
                position: at,
                paused: None,
                trail: Trail::default(),
            }),
        };
        match note.kind {
            Kind::Scan => {
                lane.position = at.max(lane.position);
                lane.trail.add(at, note.pages);
            }
            Kind::Sweep { back, unfinished } => {
                lane.position = if back { at } else { at.max(lane.position) };
                lane.paused = unfinished.then_some(note.at);
                // As sweeps are cheap no piece is looked at; but once they are not, this will lie behind the position, too.
                lane.trail.add(at, note.pages);
            }
            Kind::Piece { unfinished } => {
                if !unfinished {
                    lane.trail.looked(note.at, note.pages);
                }
                let is_last = !unfinished && note.at >= lane.position;
                lane.paused = (!is_last).then_some(note.at);
                let next = note.priority.saturating_add(i16::from(is_last));
                self.round = (next, self.round.1 + note.pages);
            }
        }
    }
}

/// What is remembered of one transport.
struct Transport {
    /// In the encoding of the database; empty for the mail that clients deliver.
    name: Box<[u8]>,
    of_mails: Due,
    of_groups: Due,
    /// The number of the latest use.
    used: u64,
}

/// What this session remembers.
#[derive(Default)]
struct Memory {
    transports: Vec<Transport>,
    uses: u64,
}

impl Memory {
    /// What is remembered of a transport; of one that is not known the beginning, in the place of the one that was used
    /// least recently if there are too many.
    fn of(&mut self, name: &[u8], groups: bool) -> &mut Due {
        self.uses += 1;
        let known = self.transports.iter().position(|one| *one.name == *name);
        let place = known.unwrap_or_else(|| self.forget_one_for(name));
        let transport = &mut self.transports[place];
        transport.used = self.uses;
        if groups {
            &mut transport.of_groups
        } else {
            &mut transport.of_mails
        }
    }

    fn forget_one_for(&mut self, name: &[u8]) -> usize {
        if self.transports.len() >= TRANSPORTS {
            let oldest = (0..self.transports.len()).min_by_key(|at| self.transports[*at].used);
            self.transports.swap_remove(oldest.unwrap_or(0));
        }
        self.transports.push(Transport {
            name: name.into(),
            of_mails: Due::default(),
            of_groups: Due::default(),
            used: 0,
        });
        self.transports.len() - 1
    }
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::new(Memory::default());
}

fn with_due<T>(transport: &[u8], groups: bool, work: impl FnOnce(&mut Due) -> T) -> T {
    MEMORY.with_borrow_mut(|memory| work(memory.of(transport, groups)))
}

/// Pages that this process has looked at so far.
pub fn pages() -> i64 {
    // SAFETY: counters of this process, which only it writes.
    unsafe { pg_sys::pgBufferUsage.shared_blks_hit + pg_sys::pgBufferUsage.shared_blks_read }
}

/// Mail of this priority or less is urgent: password recoveries have it, budgets may reserve a share for it.
const URGENT_PRIORITY: i16 = -10;

#[pg_extern(sql = false)]
fn _urgent_priority() -> i16 {
    URGENT_PRIORITY
}

/// Begins a claim, of mails or of a whole group: `sweep` when it is to look at everything, `piece` when it is to look at a
/// piece of what lies behind the positions and then from these on, `positions` when only at that.
#[pg_extern(sql = false)]
fn _due_begin(transport: &[u8], groups: bool) -> Result<&'static str, ErrorReport> {
    restore::pass_or_refuse()?;
    let start = with_due(transport, groups, |due| due.begin(Instant::now(), pages()));
    Ok(match start {
        Start::Sweep => "sweep",
        Start::Piece => "piece",
        Start::Positions => "positions",
    })
}

/// Whether a scan that found too little may look at everything.
#[pg_extern(sql = false)]
fn _due_may_sweep(transport: &[u8], groups: bool) -> bool {
    with_due(transport, groups, |due| due.is_cheap())
}

/// The known positions as they were when the scan began, the most urgent priority first, and where a sweep broke off.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn _due_positions(
    transport: &[u8],
    groups: bool,
) -> TableIterator<
    'static,
    (
        name!(priority, i16),
        name!(send_at, i64),
        name!(id, i64),
        name!(paused_send_at, Option<i64>),
        name!(paused_id, Option<i64>),
    ),
> {
    let lanes: Vec<_> = with_due(transport, groups, |due| {
        due.noted = pages();
        due.lanes
            .iter()
            .map(|(priority, lane)| {
                let (at, paused) = (lane.position, lane.paused);
                let paused = (paused.map(|at| at.send_at), paused.map(|at| at.id));
                (*priority, at.send_at, at.id, paused.0, paused.1)
            })
            .collect()
    });
    TableIterator::new(lanes)
}

/// The pieces that are next, one of each priority, in the order in which they are to be looked at.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn _due_pieces(
    transport: &[u8],
    groups: bool,
) -> TableIterator<
    'static,
    (
        name!(priority, i16),
        name!(send_at, i64),
        name!(id, i64),
        name!(until_send_at, i64),
        name!(until_id, i64),
    ),
> {
    let pieces: Vec<_> = with_due(transport, groups, |due| {
        due.noted = pages();
        due.pieces()
            .map(|(priority, from, until)| {
                (priority, from.send_at, from.id, until.send_at, until.id)
            })
            .collect()
    });
    TableIterator::new(pieces)
}

/// Notes how far a scan of one priority came, and that of a sweep, which may have the next scan go on from there.
#[pg_extern(sql = false)]
fn _due_note(
    transport: &[u8],
    groups: bool,
    priority: i16,
    send_at: i64,
    id: i64,
    back: bool,
    unfinished: Option<bool>,
) {
    let kind = unfinished.map_or(Kind::Scan, |unfinished| Kind::Sweep { back, unfinished });
    let at = Position { send_at, id };
    with_due(transport, groups, |due| {
        due.note(pages(), priority, at, kind)
    });
}

/// Notes how far a look at a piece came; whether to look at another.
#[pg_extern(sql = false)]
fn _due_note_piece(
    transport: &[u8],
    groups: bool,
    priority: i16,
    send_at: i64,
    id: i64,
    unfinished: bool,
) -> bool {
    let kind = Kind::Piece { unfinished };
    let at = Position { send_at, id };
    with_due(transport, groups, |due| {
        due.note(pages(), priority, at, kind)
    })
}

/// Has the next scan of a priority start behind this row at the latest: what was found after it was not claimed.
#[pg_extern(sql = false)]
fn _due_put_back(transport: &[u8], groups: bool, priority: i16, send_at: i64, id: i64) {
    let at = Position { send_at, id };
    with_due(transport, groups, |due| due.put_back(priority, at));
}

/// Ends a scan: from what was noted the next one goes on.
#[pg_extern(sql = false)]
fn _due_end(transport: &[u8], groups: bool, swept: bool, mails: i32, mail_groups: i32) {
    let found = PAGES_A_MAIL * i64::from(mails) + PAGES_A_GROUP * i64::from(mail_groups);
    // SAFETY: reads the clock.
    let clock = unsafe { pg_sys::GetCurrentTimestamp() };
    with_due(transport, groups, |due| {
        due.end(Instant::now(), pages(), swept, found, clock)
    });
}

/// By which a claimant is told from all others.
#[pg_extern(sql = false)]
fn _session_id() -> String {
    server::session_id()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_000_000_000;

    fn at(send_at: i64, id: i64) -> Position {
        Position { send_at, id }
    }

    /// A whole scan with these notes.
    fn scan(due: &mut Due, notes: &[Note]) {
        due.begin(Instant::now(), 0);
        due.notes.extend(notes);
        due.end(Instant::now(), 0, false, 0, NOW);
    }

    fn came_to(priority: i16, at: Position) -> Note {
        Note {
            priority,
            at,
            kind: Kind::Scan,
            pages: 0,
        }
    }

    fn swept_to(priority: i16, at: Position, back: bool, unfinished: bool) -> Note {
        Note {
            kind: Kind::Sweep { back, unfinished },
            ..came_to(priority, at)
        }
    }

    #[test]
    fn positions_advance_by_priority_when_a_scan_ends() {
        let mut due = Due::default();
        due.begin(Instant::now(), 0);
        due.notes.push(came_to(0, at(50, 5)));
        assert!(due.lanes.is_empty(), "not before");
        due.begin(Instant::now(), 0);
        due.end(Instant::now(), 0, false, 0, NOW);
        assert!(due.lanes.is_empty(), "nor ever, of a scan that failed");
        scan(
            &mut due,
            &[
                came_to(0, at(50, 5)),
                came_to(-10, at(90, 1)),
                came_to(0, at(50, 4)),
            ],
        );
        assert_eq!(due.lanes[&0].position, at(50, 5));
        assert_eq!(due.lanes[&-10].position, at(90, 1));
        assert_eq!(due.lanes.keys().next(), Some(&-10), "urgent first");
    }

    #[test]
    fn a_sweep_that_found_enough_moves_a_position_back() {
        let mut due = Due::default();
        scan(&mut due, &[came_to(0, at(900, 1))]);
        scan(&mut due, &[swept_to(0, at(120, 7), true, false)]);
        assert_eq!(due.lanes[&0].position, at(120, 7));
    }

    #[test]
    fn what_was_found_and_not_claimed_is_found_again() {
        let mut due = Due::default();
        scan(&mut due, &[came_to(0, at(900, 1))]);
        due.put_back(0, at(120, 7));
        assert_eq!(due.lanes[&0].position, at(120, 7));
        due.put_back(0, at(500, 1));
        assert_eq!(due.lanes[&0].position, at(120, 7));
        due.put_back(1, at(120, 7));
        assert!(!due.lanes.contains_key(&1), "a sweep finds it");
    }

    #[test]
    fn one_dear_sweep_does_not_make_sweeps_dear() {
        let now = Instant::now();
        let mut due = Due::default();
        let mut sweep = |pages| {
            due.begin(now, 100);
            due.end(now, 100 + pages, true, 0, NOW);
            due.pages.1 < CHEAP
        };
        assert!(sweep(CHEAP), "the first of the session");
        assert!(!sweep(CHEAP), "two in a row");
        assert!(sweep(10));
        assert!(sweep(CHEAP), "one dear one");
        assert!(!sweep(CHEAP));
    }

    #[test]
    fn a_dear_sweep_leaves_the_marks_of_scans() {
        let mut due = Due::default();
        let scanned = Note {
            pages: PIECE,
            ..came_to(0, at(10, 1))
        };
        scan(&mut due, &[scanned]);
        let now = Instant::now();
        let mut sweep = |pages| {
            due.begin(now, 0);
            due.notes.push(swept_to(0, at(20, 1), false, false));
            due.end(now, pages, true, 0, NOW);
            due.lanes[&0].piece().1
        };
        assert_eq!(sweep(PIECE), at(10, 1));
        assert_eq!(sweep(PIECE - 1), at(20, 1), "all of it is cheap");
    }

    #[test]
    fn what_is_found_does_not_make_sweeps_dear() {
        let now = Instant::now();
        let mut due = Due::default();
        for _ in 0..3 {
            due.begin(now, 0);
            due.end(now, 3 * CHEAP, true, 2 * CHEAP + 1, NOW);
            assert!(due.pages.1 < CHEAP);
        }
    }

    #[test]
    fn a_sweep_that_breaks_off_goes_on_from_there() {
        let mut due = Due::default();
        scan(&mut due, &[came_to(0, at(900, 1))]);
        scan(&mut due, &[swept_to(0, at(300, 2), false, true)]);
        assert_eq!(due.lanes[&0].position, at(900, 1), "the scan stays ahead");
        assert_eq!(due.lanes[&0].paused, Some(at(300, 2)));
        scan(&mut due, &[came_to(0, at(950, 1))]);
        assert_eq!(due.lanes[&0].paused, Some(at(300, 2)), "it was no sweep");
        scan(&mut due, &[swept_to(0, at(400, 2), false, false)]);
        assert_eq!(due.lanes[&0].paused, None);
    }

    #[test]
    fn a_transport_has_positions_of_its_own() {
        let mut memory = Memory::default();
        scan(memory.of(b"", false), &[came_to(0, at(50, 5))]);
        scan(memory.of(b"", true), &[came_to(0, at(60, 6))]);
        assert!(memory.of(b"relay", false).lanes.is_empty());
        assert_eq!(memory.of(b"", false).lanes[&0].position, at(50, 5));
        assert_eq!(memory.of(b"", true).lanes[&0].position, at(60, 6));
    }

    #[test]
    fn of_too_many_transports_the_one_used_least_recently_is_forgotten() {
        let mut memory = Memory::default();
        for transport in 0..TRANSPORTS {
            let name = transport.to_string();
            scan(memory.of(name.as_bytes(), false), &[came_to(0, at(1, 1))]);
        }
        let mut known = |name: &str| !memory.of(name.as_bytes(), false).lanes.is_empty();
        assert!(known("0"));
        assert!(!known("another"), "in the place of 1");
        assert!(known("0"));
        assert!(known("2"));
        assert!(!known("1"), "in the place of 3");
        assert!(!known("3"));
        assert_eq!(memory.transports.len(), TRANSPORTS);
    }

    #[test]
    fn priorities_beyond_the_bound_are_left_to_sweeps() {
        let mut due = Due::default();
        let all: Vec<_> = (0..300)
            .map(|priority| came_to(priority, at(1, 1)))
            .collect();
        scan(&mut due, &all);
        assert_eq!(due.lanes.len(), PRIORITIES);
    }

    #[test]
    fn what_lies_behind_is_looked_at_piece_by_piece_once_sweeps_are_dear() {
        // These take no time, so that the budget always allows one.
        let now = Instant::now();
        let mut due = Due::default();
        due.swept(CHEAP);
        due.swept(CHEAP);
        let mut scan = |notes: &[(i16, Position, Kind, i64)]| {
            assert_eq!(due.begin(now, 0), Start::Piece);
            let next: Vec<_> = due.pieces().collect();
            let mut pages = 0;
            for (priority, at, kind, cost) in notes {
                pages += cost;
                due.note(pages, *priority, *at, *kind);
            }
            due.end(now, pages, false, 0, NOW);
            next
        };
        let whole = Kind::Piece { unfinished: false };
        assert_eq!(scan(&[(0, at(10, 1), Kind::Scan, PIECE)]), []);
        assert_eq!(
            scan(&[(0, at(20, 1), Kind::Scan, 10), (5, at(7, 7), Kind::Scan, 0)]),
            [(0, Position::START, at(10, 1))]
        );
        assert_eq!(
            scan(&[(0, at(10, 1), whole, PIECE)]),
            [
                (0, Position::START, at(10, 1)),
                (5, Position::START, at(7, 7))
            ]
        );
        assert_eq!(
            scan(&[(0, at(15, 1), Kind::Piece { unfinished: true }, 5)]),
            [(0, at(10, 1), at(20, 1)), (5, Position::START, at(7, 7))],
            "up to where the scan came meanwhile"
        );
        assert_eq!(
            scan(&[(0, at(20, 1), whole, 5)]),
            [(0, at(15, 1), at(20, 1)), (5, Position::START, at(7, 7))]
        );
        assert_eq!(
            scan(&[(5, at(7, 7), whole, 5)]),
            [(5, Position::START, at(7, 7))]
        );
        assert_eq!(due.begin(now, 0), Start::Sweep, "the round took few pages");
    }

    proptest! {
        #[test]
        fn a_position_never_comes_near_the_present(
            notes in prop::collection::vec((any::<bool>(), -3_i16..3, any::<i64>(), any::<i64>()), 1..50),
        ) {
            let mut due = Due::default();
            for (back, priority, send_at, id) in notes {
                scan(&mut due, &[swept_to(priority, at(send_at, id), back, false)]);
                // Whoever schedules for the moment and commits within the slack is ahead of it.
                prop_assert!(due.lanes[&priority].position < at(NOW - SLACK, 1));
            }
        }
    }
}
