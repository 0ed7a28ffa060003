//! Where this session's next scan for due mail of `outbox` starts.
//!
//! The counterpart of [`crate::pending`]: claimed rows stay in the index `outbox_due` until vacuum may remove
//! them, so a session remembers, for each priority, how far it claimed, and starts there. Rows come in
//! behind a position: a transaction commits late, a claim is released, lapses or is rolled back, a session
//! schedules into the past. A position can therefore delay a row and must never lose one. Four rules:
//!
//! - it stays [`scan::SLACK`] behind the present, so that transactions may take that long to commit;
//! - a scan looks at everything, as a *sweep*, as soon as a budget allows ([`crate::cursor::sweep`]);
//! - so does one that found fewer rows than asked, as long as sweeps are [`scan::CHEAP`]: in pages, so that a busy machine
//!   changes nothing. A sweep also finds priorities that no position is known for;
//! - once sweeps are dear, a scan starts at the positions, and looks at a piece of what lies behind them as soon as the
//!   budget allows ([`crate::cursor::trail`]). When a round of pieces, through all priorities, was cheap, sweeps are cheap again.
//!
//! Rows that are stepped over, those of groups that are claimed, can be any number, and a claim looks at so many
//! rows and no more. So a sweep that breaks off in a priority goes on from there the next time ([`scan::Priority::paused`]),
//! and leaves the position of the scan, which may be further, as it is. Else what lies behind a large group would
//! wait for the group. Claims of whole groups look at the rows of groups only, and remember their own positions.
//!
//! A scan is of one transport, with which the index begins: what waits for the others costs it nothing. A session remembers
//! the positions of [`TRANSPORTS`] of them, those that it scanned last.
//!
//! The state belongs to this process alone; losing it costs one sweep. A `timestamptz` is handled as what it is, an `i64`
//! of microseconds.

mod scan;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::time::Instant;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::pg::process::{self, pages_read as pages};
use crate::restore;

pub use scan::SLACK;
use scan::{Due, Kind, Position, Start};

/// What a mail that was found may cost in pages, and a group; what is beyond that was stepped over.
const PAGES_A_MAIL: i64 = 8;
const PAGES_A_GROUP: i64 = 32;
/// Transports of which positions are remembered.
const TRANSPORTS: usize = 64;

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
    restore::refuse_while_restoring()?;
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
    let priorities: Vec<_> = with_due(transport, groups, |due| {
        due.noted = pages();
        due.priorities
            .iter()
            .map(|(priority, entry)| {
                let (at, paused) = (entry.position, entry.paused);
                let paused = (paused.map(|at| at.send_at), paused.map(|at| at.id));
                (*priority, at.send_at, at.id, paused.0, paused.1)
            })
            .collect()
    });
    TableIterator::new(priorities)
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
    let clock = process::now();
    with_due(transport, groups, |due| {
        due.end(Instant::now(), pages(), swept, found, clock)
    });
}

/// By which a claimant is told from all others.
#[pg_extern(sql = false)]
fn _session_id() -> String {
    process::session_id()
}
