//! Whether this session changes rows of the outbox one at a time, because one of them may refuse every change.
//!
//! A session learns that a claim failed when its transaction is rolled back. The state is local to this process;
//! losing it costs one failed claim.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use crate::pg::log::OnceAMinute;
use crate::pg::{log, transaction};
use crate::shared_memory::{announce, mail_due};

/// Time during which a row that could not be changed is not looked at.
const ROW_MEMORY: Duration = Duration::from_secs(60);
/// Time after a failure during which rows are changed one at a time. Longer than the other, so that a bad row that is tried
/// again is tried alone.
const MEMORY: Duration = Duration::from_secs(120);

/// Maximum number of rows of a transport that are remembered. Others are tried again each time.
const ROWS: usize = 10_000;

/// Rows by `outbox.id`, and when they could not be changed.
type Rows = HashMap<i64, Instant>;

thread_local! {
    /// The rows that could not be changed, by transport.
    static BAD: RefCell<HashMap<Box<[u8]>, Rows>> = RefCell::default();
    static FAILED_AT: Cell<Option<Instant>> = const { Cell::new(None) };
    static WARNING: OnceAMinute = const { OnceAMinute::new() };
}

fn is_recent(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at.elapsed() < MEMORY)
}

fn is_careful() -> bool {
    is_recent(FAILED_AT.get()) || is_recent(announce::change_failed_at())
}

/// Announces the end of a lease, makes the commit wait until it is on disk, and begins as [`_begin_changes`]. The
/// commit ignores synchronous_commit, because a crash must not lose the claim of a message that is about to be sent.
#[pg_extern(sql = false)]
fn _claimed(until: TimestampWithTimeZone) -> bool {
    mail_due::announce_claim(until.into_inner());
    transaction::force_sync_commit();
    _begin_changes()
}

/// Begins to change rows. Returns whether to change them one at a time.
#[pg_extern(sql = false)]
fn _begin_changes() -> bool {
    announce::begin_changes();
    is_careful()
}

/// Ends what [`_begin_changes`] began: a later failure of the transaction does not concern these rows.
#[pg_extern(sql = false)]
fn _end_changes() {
    announce::end_changes();
}

/// The rows of a transport that could not be changed in the last minute.
#[pg_extern(sql = false)]
fn _bad_rows(transport: &[u8]) -> Vec<i64> {
    BAD.with_borrow_mut(|bad| {
        let Some(rows) = bad.get_mut(transport) else {
            return Vec::new();
        };
        rows.retain(|_, at| at.elapsed() < ROW_MEMORY);
        rows.keys().copied().collect()
    })
}

/// Has the rows of a transport tried again that could not be changed.
#[pg_extern(sql = false)]
fn _forget_bad_rows(transport: &[u8]) {
    BAD.with_borrow_mut(|bad| bad.remove(transport));
}

/// Records that a row could not be changed; warns at most once a minute.
#[pg_extern(sql = false)]
fn _note_bad_row(id: i64, transport: &[u8], sqlstate: &str) {
    FAILED_AT.set(Some(Instant::now()));
    BAD.with_borrow_mut(|bad| {
        let rows = bad.entry(transport.into()).or_default();
        if rows.len() < ROWS {
            rows.insert(id, Instant::now());
        }
    });
    if WARNING.with(OnceAMinute::is_due) {
        log::warn(
            &format!("mailroom: mail {id} cannot be changed, and waits"),
            &format!(
                "SQLSTATE {sqlstate}. There may be others, which is said once a minute at most."
            ),
            "Look for triggers or constraints that were added to the outbox.",
        );
    }
}
