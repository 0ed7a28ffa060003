//! Where this session's next scan for due mail of `outbox` starts.
//!
//! The counterpart of [`crate::scan`]: claimed rows stay in the index `outbox_due` until vacuum may remove
//! them, so a session remembers, for each priority, how far it claimed, and starts there. Rows come in
//! behind a position: a transaction commits late, a claim is released, lapses or is rolled back, somebody
//! schedules into the past. A position can therefore delay a row and must never lose one. Three rules:
//!
//! - it stays [`SLACK`] behind the present, so that transactions may take that long to commit;
//! - a scan that finds fewer rows than asked becomes a sweep, as long as sweeps are [`CHEAP`]: in pages, so that a
//!   busy machine changes nothing;
//! - a sweep is due in any case as soon as its budget allows ([`crate::sweep`]). It also finds priorities that
//!   no position is known for.
//!
//! Rows that are stepped over, those of groups that somebody holds, can be any number, and a claim looks at so many
//! rows and no more. So a sweep that breaks off in a priority goes on from there the next time ([`Lane::paused`]),
//! and leaves the position of the scan, which may be further, as it is. Else what lies behind a large group would
//! wait for the group. Claims of whole groups look at the rows of groups only, and remember their own positions.
//!
//! Leases that lapsed are looked for in the same way: from where the last look ended, and from the first one as often
//! as the budget allows. So are requests, and what a purge may delete. The state belongs to this process alone; losing it
//! costs one sweep. A `timestamptz` is handled as what it is, an `i64` of microseconds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Instant;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::restore;
use crate::server;
use crate::sweep::Sweeps;

/// Microseconds that a position stays behind the present.
const SLACK: i64 = 100_000;
/// A scan that found too little becomes a sweep whatever the budget says if sweeps look at fewer pages than this, over
/// and over: a dead row is a look. That is some milliseconds. A session's first call looks at some thousand for its plans.
const CHEAP: i64 = 10_000;
/// What a row that was found may cost in pages; what is beyond that was stepped over. Rows of groups, each of another, cost
/// the most: some thirty.
const PAGES_A_ROW: i64 = 40;
/// Priorities that a position is kept for: as many as there are, from -100 to 100.
const PRIORITIES: usize = 201;

/// Just behind the row `id` of those with this `send_at`, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    send_at: i64,
    id: i64,
}

/// What is remembered of one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lane {
    /// Where a scan starts.
    position: Position,
    /// Where the next sweep goes on, if the last one broke off here.
    paused: Option<Position>,
}

#[derive(Default)]
struct Due {
    lanes: BTreeMap<i16, Lane>,
    sweeps: Sweeps,
    /// Pages that this process had looked at when the scan began.
    began: i64,
    /// Pages that the last sweep looked at, and the fewer of those of the last two.
    pages: (i64, i64),
    /// Of the scan that goes on; what a call that failed left is forgotten.
    notes: Vec<Note>,
}

/// How far a scan of one priority came.
#[derive(Clone, Copy)]
struct Note {
    priority: i16,
    at: Position,
    /// The next scan goes on from here even if an earlier one was further: below that lies what a sweep that found
    /// enough did not come to.
    back: bool,
    /// Of a sweep, whether the next one goes on from here.
    unfinished: Option<bool>,
}

impl Due {
    fn begin(&mut self, now: Instant, pages: i64) -> bool {
        self.notes.clear();
        self.sweeps.begin(now);
        self.began = pages;
        self.sweeps.is_due(now)
    }

    fn may_sweep(&self, now: Instant) -> bool {
        self.pages.1 < CHEAP || self.sweeps.is_due(now)
    }

    /// Ends the scan, at this time of the server's clock.
    fn end(&mut self, now: Instant, pages: i64, swept: bool, found: i32, clock: i64) {
        for note in std::mem::take(&mut self.notes) {
            self.apply(note, clock);
        }
        if swept {
            let cost = pages.saturating_sub(self.began) - PAGES_A_ROW * i64::from(found);
            self.pages = (cost, cost.min(self.pages.0));
        }
        self.sweeps.end(now, swept);
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
            }),
        };
        lane.position = if note.back { at } else { at.max(lane.position) };
        if let Some(unfinished) = note.unfinished {
            lane.paused = unfinished.then_some(note.at);
        }
    }
}

/// A walk over what is settled, answered or deleted as it goes: leases that lapsed, requests, what a purge may delete.
#[derive(Default)]
struct Walk {
    /// The key up to which the last one came.
    position: i64,
    sweeps: Sweeps,
    /// This one starts at the beginning.
    sweeping: bool,
    /// Pages that this process had looked at when it began.
    began: i64,
    /// Pages that the last one from the beginning looked at, and the fewer of those of the last two: a session's first
    /// looks at some hundred for its plans.
    pages: (i64, i64),
}

/// A walk starts at the beginning whatever the budget says if those that did look at no more pages, over and over.
const CHEAP_WALK: i64 = 100;

impl Walk {
    fn is_to_sweep(&self, now: Instant) -> bool {
        self.pages.1 <= CHEAP_WALK || self.sweeps.is_due(now)
    }

    /// Where it starts; `None` for the beginning.
    fn begin(&mut self, now: Instant, pages: i64) -> Option<i64> {
        self.sweeping = self.is_to_sweep(now);
        self.sweeps.begin(now);
        self.began = pages;
        (!self.sweeping).then_some(self.position)
    }

    /// Ends it, having come so far; `None` when there was nothing.
    fn end(&mut self, now: Instant, pages: i64, position: Option<i64>) {
        self.position = position.unwrap_or(self.position);
        if self.sweeping {
            let cost = pages.saturating_sub(self.began);
            self.pages = (cost, cost.min(self.pages.0));
        }
        self.sweeps.end(now, self.sweeping);
    }
}

/// What this session remembers.
#[derive(Default)]
struct Memory {
    of_mails: Due,
    of_groups: Due,
    leases: Walk,
    /// By name.
    walks: BTreeMap<String, Walk>,
    /// The extension that these are of: one that is made anew begins to count anew.
    extension: pg_sys::Oid,
}

impl Memory {
    fn of(&mut self, groups: bool) -> &mut Due {
        if groups {
            &mut self.of_groups
        } else {
            &mut self.of_mails
        }
    }
}

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::new(Memory::default());
}

fn with_due<T>(groups: bool, work: impl FnOnce(&mut Due) -> T) -> T {
    MEMORY.with_borrow_mut(|memory| work(memory.of(groups)))
}

/// Pages that this process has looked at so far.
fn pages() -> i64 {
    // SAFETY: counters of this process, which only it writes.
    unsafe { pg_sys::pgBufferUsage.shared_blks_hit + pg_sys::pgBufferUsage.shared_blks_read }
}

/// Mail of this priority or less is urgent: password recoveries have it, budgets may reserve a share for it.
const URGENT_PRIORITY: i16 = -10;

#[pg_extern(sql = false)]
fn _urgent_priority() -> i16 {
    URGENT_PRIORITY
}

/// Begins a claim, of mails or of a whole group; whether it is to start at the very beginning.
#[pg_extern(sql = false)]
fn _due_begin(groups: bool) -> Result<bool, ErrorReport> {
    restore::pass_or_refuse()?;
    Ok(with_due(groups, |due| due.begin(Instant::now(), pages())))
}

/// Whether a scan that found too little may look at everything now.
#[pg_extern(sql = false)]
fn _due_may_sweep(groups: bool) -> bool {
    with_due(groups, |due| due.may_sweep(Instant::now()))
}

/// The known positions as they were when the scan began, the most urgent priority first, and where a sweep broke off.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn _due_positions(
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
    let lanes: Vec<_> = with_due(groups, |due| {
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

/// Notes how far a scan of one priority came.
#[pg_extern(sql = false)]
fn _due_note(
    groups: bool,
    priority: i16,
    send_at: i64,
    id: i64,
    back: bool,
    unfinished: Option<bool>,
) {
    let note = Note {
        priority,
        at: Position { send_at, id },
        back,
        unfinished,
    };
    with_due(groups, |due| due.notes.push(note));
}

/// Ends a scan: from what was noted the next one goes on.
#[pg_extern(sql = false)]
fn _due_end(groups: bool, swept: bool, found: i32) {
    // SAFETY: reads the clock.
    let clock = unsafe { pg_sys::GetCurrentTimestamp() };
    with_due(groups, |due| {
        due.end(Instant::now(), pages(), swept, found, clock)
    });
}

/// Begins a look for leases that lapsed: the end of lease from which on to look; NULL for all.
#[pg_extern(sql = false)]
fn _leases_begin() -> Option<i64> {
    MEMORY.with_borrow_mut(|memory| memory.leases.begin(Instant::now(), pages()))
}

/// Ends it: all that lapsed before `until` were looked at.
#[pg_extern(sql = false)]
fn _leases_end(until: i64) {
    let until = until.saturating_sub(SLACK);
    MEMORY.with_borrow_mut(|memory| memory.leases.end(Instant::now(), pages(), Some(until)));
}

/// The end of lease from which on the next look for lapsed ones starts, unless it is for all.
#[pg_extern(sql = false)]
fn _leases_from() -> i64 {
    MEMORY.with_borrow(|memory| memory.leases.position)
}

/// The walk of this name.
fn with_walk<T>(name: &str, work: impl FnOnce(&mut Walk) -> T) -> T {
    // SAFETY: in a transaction; the name ends with a zero; none is the invalid number.
    let extension = unsafe { pg_sys::get_extension_oid(c"mailroom".as_ptr(), true) };
    MEMORY.with_borrow_mut(|memory| {
        if memory.extension != extension {
            memory.extension = extension;
            memory.walks.clear();
        }
        work(memory.walks.entry(name.to_owned()).or_default())
    })
}

/// Begins a walk: the key behind which to look; NULL for the beginning.
#[pg_extern(sql = false)]
fn _walk_begin(name: &str) -> Option<i64> {
    with_walk(name, |walk| walk.begin(Instant::now(), pages()))
}

/// Where the next one will begin; NULL for the beginning.
#[pg_extern(sql = false)]
fn _walk_from(name: &str) -> Option<i64> {
    with_walk(name, |walk| {
        (!walk.is_to_sweep(Instant::now())).then_some(walk.position)
    })
}

/// Ends a walk, having come so far; NULL when there was nothing.
#[pg_extern(sql = false)]
fn _walk_end(name: &str, position: Option<i64>) {
    with_walk(name, |walk| walk.end(Instant::now(), pages(), position));
}

/// Has the next walk look behind this key again.
#[pg_extern(sql = false)]
fn _walk_back(name: &str, key: i64) {
    with_walk(name, |walk| walk.position = walk.position.min(key));
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
            back: false,
            unfinished: None,
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
        let back = Note {
            back: true,
            unfinished: Some(false),
            ..came_to(0, at(120, 7))
        };
        scan(&mut due, &[back]);
        assert_eq!(due.lanes[&0].position, at(120, 7));
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
    fn what_is_found_does_not_make_sweeps_dear() {
        let now = Instant::now();
        let mut due = Due::default();
        for _ in 0..3 {
            due.begin(now, 0);
            due.end(now, 3 * CHEAP, true, 1_000, NOW);
            assert!(due.pages.1 < CHEAP);
        }
    }

    #[test]
    fn a_sweep_that_breaks_off_goes_on_from_there() {
        let mut due = Due::default();
        scan(&mut due, &[came_to(0, at(900, 1))]);
        let sweep = |at, unfinished| Note {
            unfinished: Some(unfinished),
            ..came_to(0, at)
        };
        scan(&mut due, &[sweep(at(300, 2), true)]);
        assert_eq!(due.lanes[&0].position, at(900, 1), "the scan stays ahead");
        assert_eq!(due.lanes[&0].paused, Some(at(300, 2)));
        scan(&mut due, &[came_to(0, at(950, 1))]);
        assert_eq!(due.lanes[&0].paused, Some(at(300, 2)), "it was no sweep");
        scan(&mut due, &[sweep(at(400, 2), false)]);
        assert_eq!(due.lanes[&0].paused, None);
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
    fn a_walk_starts_where_the_last_one_ended_when_the_beginning_is_dear() {
        let start = Instant::now();
        let ms = |ms| start + std::time::Duration::from_millis(ms);
        let mut walk = Walk::default();
        let mut walked = |begin, end, cost, position| {
            let from = walk.begin(ms(begin), 0);
            walk.end(ms(end), if from.is_none() { cost } else { 1 }, position);
            from
        };
        // One dear look, as the first of a session is, does not make it dear; two in a row do.
        assert_eq!(walked(0, 10, 2 * CHEAP_WALK, Some(5)), None);
        assert_eq!(walked(10, 20, 2 * CHEAP_WALK, Some(6)), None);
        assert_eq!(walked(20, 21, 0, None), Some(6), "10 ms, of 200");
        assert_eq!(walked(22, 23, 0, Some(9)), Some(6));
        assert_eq!(walked(24, 25, 0, None), Some(9));
        assert_eq!(walked(220, 230, CHEAP_WALK, None), None, "its turn again");
        assert_eq!(walked(231, 232, CHEAP_WALK, None), None, "which was cheap");
    }

    proptest! {
        #[test]
        fn a_position_never_comes_near_the_present(
            notes in prop::collection::vec((any::<bool>(), -3_i16..3, any::<i64>(), any::<i64>()), 1..50),
        ) {
            let mut due = Due::default();
            for (back, priority, send_at, id) in notes {
                scan(&mut due, &[Note { back, ..came_to(priority, at(send_at, id)) }]);
                // Whoever schedules for the moment and commits within the slack is ahead of it.
                prop_assert!(due.lanes[&priority].position < at(NOW - SLACK, 1));
            }
        }
    }
}
