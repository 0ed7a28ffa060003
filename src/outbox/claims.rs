//! What a claim needs of the library besides its locks and positions.

use std::cell::Cell;

use mailroom_core::deliver::mail::URGENT_PRIORITY;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use crate::pg::log::OnceAMinute;
use crate::pg::{log, process, transaction};
use crate::shared_memory::mail_due;

thread_local! {
    static WARNING: OnceAMinute = const { OnceAMinute::new() };
    /// Number of rows that this session could not change.
    static REFUSED: Cell<i64> = const { Cell::new(0) };
}

#[pg_extern(sql = false)]
fn _urgent_priority() -> i16 {
    URGENT_PRIORITY
}

/// A name for this session that no other session has or had.
#[pg_extern(sql = false)]
fn _session_id() -> String {
    process::session_id()
}

/// Announces the end of a lease, and makes the commit wait until it is on disk. The commit ignores synchronous_commit,
/// because a crash must not lose the claim of a message that is about to be sent.
#[pg_extern(sql = false)]
fn _claimed(until: TimestampWithTimeZone) {
    mail_due::announce_claim(until.into_inner());
    transaction::force_sync_commit();
}

/// Counts a row of the outbox that a constraint or a trigger of the application does not let change; warns at most once a
/// minute.
#[pg_extern(sql = false)]
fn _note_refused(id: i64, sqlstate: &str) {
    REFUSED.set(REFUSED.get().saturating_add(1));
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

/// The number of rows that [`_note_refused`] has counted in this session.
#[pg_extern(sql = false)]
fn _refused() -> i64 {
    REFUSED.get()
}
