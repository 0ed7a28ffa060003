//! Whether this session changes rows of the outbox one at a time, because one of them may refuse every change.
//!
//! That a claim failed shows when its transaction is rolled back. The state belongs to this process alone; losing it costs one
//! claim that fails.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use crate::pg::log::OnceAMinute;
use crate::pg::{log, transaction};
use crate::shared_memory::announce;

/// How long rows are changed one at a time after a failure.
const MEMORY: Duration = Duration::from_secs(60);

thread_local! {
    static FAILED_AT: Cell<Option<Instant>> = const { Cell::new(None) };
    static WARNING: OnceAMinute = const { OnceAMinute::new() };
}

fn is_recent(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at.elapsed() < MEMORY)
}

fn is_careful() -> bool {
    is_recent(FAILED_AT.get()) || is_recent(announce::change_failed_at())
}

/// Announces the end of a lease, brings the claim to disk when it commits, with any setting of synchronous_commit (a crash
/// must not forget a message that a sender is about to send), and begins as [`_begin_changes`].
#[pg_extern(sql = false)]
fn _claimed(until: TimestampWithTimeZone) -> bool {
    announce::announce_claim(until.into_inner());
    transaction::force_sync_commit();
    _begin_changes()
}

/// Begins to change rows, and returns whether to do it one at a time.
#[pg_extern(sql = false)]
fn _begin_changes() -> bool {
    announce::begin_changes();
    is_careful()
}

/// They were changed: what comes later is another matter.
#[pg_extern(sql = false)]
fn _end_changes() {
    announce::end_changes();
}

/// A row could not be changed.
#[pg_extern(sql = false)]
fn _note_bad_row(id: i64, sqlstate: &str) {
    FAILED_AT.set(Some(Instant::now()));
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
