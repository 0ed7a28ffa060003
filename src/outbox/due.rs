//! Where this session's next scan for due mail of `outbox` starts.
//!
//! The counterpart of [`crate::pending`]: claimed rows stay in the index `outbox_due` until vacuum may remove them, so
//! a session remembers, for each priority, how far it claimed, and starts there. Rows can appear before a position: a
//! transaction commits late, a claim is released, expires or is rolled back, a session schedules mail in the past. So
//! a position may delay a row but must never lose one. Four rules:
//!
//! - a position stays [`scan::SLACK`] behind the present, so that transactions may take that long to commit;
//! - while sweeps are cheap, a scan reads everything, as a *sweep*, once a budget allows it
//!   ([`crate::cursor::sweep`]);
//! - while they are cheap, a scan that found fewer rows than requested sweeps too. The limit ([`scan::CHEAP`]) is in
//!   pages, which do not depend on the load of the machine. A sweep also finds priorities that have no position yet;
//! - once sweeps are expensive, a scan starts at the positions, and also scans a piece of what is before them as soon
//!   as the budget allows ([`crate::cursor::trail`]). If a round of pieces, through all priorities, was cheap, sweeps
//!   are cheap again.
//!
//! A claim skips rows of groups that are claimed. There may be any number of them, and a claim reads a limited number.
//! So a sweep that stops within a priority continues there the next time ([`scan::Priority::paused`]), and does not
//! move the position of the scan back. Otherwise rows after a large group would wait for the group. Claims of whole
//! groups read only rows of groups, and have their own positions.
//!
//! A scan is of one transport, the first column of the index, so mail that waits for other transports costs it
//! nothing. A session remembers the positions of the [`TRANSPORTS`] transports that it scanned last.
//!
//! The state is local to this process; losing it costs one sweep. A `timestamptz` is passed as an `i64` of
//! microseconds, as it is stored.

mod scan;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::time::Instant;

use mailroom_core::deliver::mail::URGENT_PRIORITY;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::pg::process::{self, pages_read as pages};
use crate::restore;

pub use scan::SLACK;
use scan::{Due, Kind, Position, Start};

/// Pages allowed for each mail, and for each group, that a scan finds; others were read to skip rows.
const PAGES_A_MAIL: i64 = 8;
const PAGES_A_GROUP: i64 = 32;
/// Maximum number of transports whose positions are remembered.
const TRANSPORTS: usize = 64;

/// What a session remembers of one transport.
struct Transport {
    /// In the encoding of the database; empty for mail that clients deliver.
    name: Box<[u8]>,
    of_mails: Due,
    of_groups: Due,
    /// `Memory::uses` at the latest use.
    used: u64,
}

/// What this session remembers.
#[derive(Default)]
struct Memory {
    transports: Vec<Transport>,
    uses: u64,
}

impl Memory {
    /// Returns what is remembered of a transport. An unknown one starts at the beginning, and replaces the least
    /// recently used one if there are [`TRANSPORTS`] already.
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

#[pg_extern(sql = false)]
fn _urgent_priority() -> i16 {
    URGENT_PRIORITY
}

/// Begins a scan for a claim of mails, or of a whole group. Returns `sweep` to scan everything, `positions` to scan
/// from the positions on, `piece` to scan a piece of what is before them first.
///
/// # Errors
/// 55000 if a session restores a dump or waits to.
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

/// Whether a scan that found too few rows may sweep.
#[pg_extern(sql = false)]
fn _due_may_sweep(transport: &[u8], groups: bool) -> bool {
    with_due(transport, groups, |due| due.is_cheap())
}

/// Returns the known positions as of the start of the scan, the most urgent priority first, and where sweeps stopped.
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

/// Returns the next pieces to scan, up to the last priority given, in the order in which to scan them.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn _due_pieces(
    transport: &[u8],
    groups: bool,
    last_priority: i16,
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
        due.pieces(last_priority)
            .map(|(priority, from, until)| {
                (priority, from.send_at, from.id, until.send_at, until.id)
            })
            .collect()
    });
    TableIterator::new(pieces)
}

/// Records how far a scan of one priority got. `unfinished` is NULL unless it was a sweep; [`Kind::Sweep`] explains
/// `back` and `unfinished`.
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

/// Records how far the scan of a piece got. Returns whether to scan another.
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

/// Makes the next scan of a priority start after this row at the latest: rows after it were found but not claimed.
#[pg_extern(sql = false)]
fn _due_put_back(transport: &[u8], groups: bool, priority: i16, send_at: i64, id: i64) {
    let at = Position { send_at, id };
    with_due(transport, groups, |due| due.put_back(priority, at));
}

/// Ends a scan that found this many mails of this many groups: its notes become the positions of the next one. Returns
/// the seconds until a scan may read what is before the positions again.
#[pg_extern(sql = false)]
fn _due_end(transport: &[u8], groups: bool, swept: bool, mails: i32, mail_groups: i32) -> f64 {
    let found = PAGES_A_MAIL * i64::from(mails) + PAGES_A_GROUP * i64::from(mail_groups);
    let clock = process::now();
    let wait = with_due(transport, groups, |due| {
        due.end(Instant::now(), pages(), swept, found, clock)
    });
    wait.as_secs_f64()
}

/// A name for this session that no other session has or had.
#[pg_extern(sql = false)]
fn _session_id() -> String {
    process::session_id()
}
