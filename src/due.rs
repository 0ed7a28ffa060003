//! Where this session's next scan for due mail of `outbox` starts.
//!
//! The counterpart of [`crate::scan`]: claimed rows stay in the index `outbox_due` until vacuum may remove
//! them, so a session remembers, for each priority, how far it claimed, and starts there. Rows come in
//! behind a position: a transaction commits late, a claim is released, lapses or is rolled back, somebody
//! schedules into the past. A position can therefore delay a row and must never lose one. Three rules:
//!
//! - it stays [`SLACK`] behind the present, so that transactions may take that long to commit;
//! - a scan that finds fewer rows than asked becomes a sweep, as long as sweeps are [`CHEAP`];
//! - a sweep is due in any case as soon as its budget allows ([`crate::sweep`]). It also finds priorities that
//!   no position is known for.
//!
//! Leases that lapsed are looked for in the same way: from where the last look ended. The state belongs to
//! this process alone; losing it costs one sweep. A `timestamptz` is handled as what it is, an `i64` of
//! microseconds.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::restore;
use crate::sweep::Sweeps;

/// Microseconds that a position stays behind the present.
const SLACK: i64 = 100_000;
/// A scan that found too little becomes a sweep whatever the budget says if sweeps cost less than this.
const CHEAP: Duration = Duration::from_millis(5);
/// Priorities that a position is kept for; the rows of others wait for a sweep.
const PRIORITIES: usize = 64;

/// Just behind the row `id` of those with this `send_at`, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    send_at: i64,
    id: i64,
}

#[derive(Default)]
struct Due {
    /// By priority.
    positions: std::collections::BTreeMap<i16, Position>,
    /// Leases that ended before this were taken back, in microseconds.
    leases: Option<i64>,
    sweeps: Sweeps,
    /// The outbox row up to which this session's purge came.
    purged: i64,
}

impl Due {
    fn note(&mut self, swept: bool, priority: i16, at: Position, now: i64) {
        let at = at.min(Position {
            send_at: now.saturating_sub(SLACK),
            id: i64::MIN,
        });
        let known = self.positions.len();
        match self.positions.entry(priority) {
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                // What a sweep did not reach lies above its highest, perhaps below the old position.
                let old = *entry.get();
                entry.insert(if swept { at } else { at.max(old) });
            }
            std::collections::btree_map::Entry::Vacant(entry) if known < PRIORITIES => {
                entry.insert(at);
            }
            std::collections::btree_map::Entry::Vacant(_) => {}
        }
    }
}

thread_local! {
    static DUE: RefCell<Due> = RefCell::new(Due::default());
}

/// Begins a claim; whether it is to start at the very beginning.
#[pg_extern(sql = false)]
fn _due_begin() -> Result<bool, ErrorReport> {
    restore::pass_or_refuse()?;
    let now = Instant::now();
    Ok(DUE.with_borrow_mut(|due| {
        due.sweeps.begin(now);
        due.sweeps.is_due(now)
    }))
}

/// Whether a scan that found too little may look at everything now.
#[pg_extern(sql = false)]
fn _due_may_sweep() -> bool {
    let now = Instant::now();
    DUE.with_borrow(|due| due.sweeps.cost_less_than(CHEAP) || due.sweeps.is_due(now))
}

/// The known positions, the most urgent priority first.
#[pg_extern(sql = false)]
fn _due_positions()
-> TableIterator<'static, (name!(priority, i16), name!(send_at, i64), name!(id, i64))> {
    let positions: Vec<_> = DUE.with_borrow(|due| {
        due.positions
            .iter()
            .map(|(priority, at)| (*priority, at.send_at, at.id))
            .collect()
    });
    TableIterator::new(positions)
}

/// Notes how far a scan of one priority came.
#[pg_extern(sql = false)]
fn _due_note(swept: bool, priority: i16, send_at: i64, id: i64) {
    // SAFETY: reads the clock.
    let now = unsafe { pg_sys::GetCurrentTimestamp() };
    DUE.with_borrow_mut(|due| due.note(swept, priority, Position { send_at, id }, now));
}

/// Ends a scan.
#[pg_extern(sql = false)]
fn _due_end(swept: bool) {
    DUE.with_borrow_mut(|due| due.sweeps.end(Instant::now(), swept));
}

/// The end of lease from which on to look for lapsed ones; NULL for all. The next look starts at `until`.
#[pg_extern(sql = false)]
fn _due_leases(swept: bool, until: i64) -> Option<i64> {
    let from = DUE.with_borrow_mut(|due| due.leases.replace(until.saturating_sub(SLACK)));
    from.filter(|_| !swept)
}

/// The outbox row behind which the next batch of a purge starts.
#[pg_extern(sql = false)]
fn _purge_position() -> i64 {
    DUE.with_borrow(|due| due.purged)
}

/// Notes how far a purge came; 0 for all the way.
#[pg_extern(sql = false)]
fn _purge_note(id: i64) {
    DUE.with_borrow_mut(|due| due.purged = id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: i64 = 1_000_000_000;

    fn at(send_at: i64, id: i64) -> Position {
        Position { send_at, id }
    }

    #[test]
    fn positions_advance_by_priority() {
        let mut due = Due::default();
        due.note(false, 0, at(50, 5), NOW);
        due.note(false, -10, at(90, 1), NOW);
        due.note(false, 0, at(50, 4), NOW);
        assert_eq!(due.positions[&0], at(50, 5));
        assert_eq!(due.positions[&-10], at(90, 1));
        assert_eq!(due.positions.keys().next(), Some(&-10), "urgent first");
    }

    #[test]
    fn a_sweep_may_move_a_position_back() {
        let mut due = Due::default();
        due.note(false, 0, at(900, 1), NOW);
        due.note(true, 0, at(120, 7), NOW);
        assert_eq!(due.positions[&0], at(120, 7));
    }

    #[test]
    fn priorities_beyond_the_bound_are_left_to_sweeps() {
        let mut due = Due::default();
        for priority in 0..100 {
            due.note(true, priority, at(1, 1), NOW);
        }
        assert_eq!(due.positions.len(), PRIORITIES);
    }

    proptest! {
        #[test]
        fn a_position_never_comes_near_the_present(
            notes in prop::collection::vec((any::<bool>(), -3_i16..3, any::<i64>(), any::<i64>()), 1..50),
        ) {
            let mut due = Due::default();
            for (swept, priority, send_at, id) in notes {
                due.note(swept, priority, at(send_at, id), NOW);
                // Whoever schedules for the moment and commits within the slack is ahead of it.
                prop_assert!(due.positions[&priority] < at(NOW - SLACK, 1));
            }
        }
    }
}
