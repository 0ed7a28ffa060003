//! Warnings about mail that ended as error unreported by a claimant: it cannot be rendered, or its leases expired.

use std::cell::Cell;

use pgrx::prelude::*;

use crate::pg::log::{self, OnceAMinute};

thread_local! {
    static WARNING: OnceAMinute = const { OnceAMinute::new() };
    /// Number of mails that ended since the latest warning.
    static SINCE: Cell<i64> = const { Cell::new(0) };
}

/// Counts mails that have ended, the latest with this id; warns at most once a minute.
#[pg_extern(sql = false)]
fn _note_ended(mails: i64, latest: i64, reason: &str) {
    SINCE.set(SINCE.get().saturating_add(mails));
    if !WARNING.with(OnceAMinute::is_due) {
        return;
    }
    log::warn(
        &format!("mailroom: mail ended as error: {}", SINCE.replace(0)),
        &format!("The latest has id {latest}: {reason}. A session says so once a minute at most."),
        "Look at outbox.last_error; mailroom_retry_failed puts such mail back.",
    );
}
