//! Warnings of mail that a claim ends as an error, without a request. What a deliverer ends, it reports itself.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pgrx::prelude::*;

use crate::pg::log;

/// The time between two warnings of one session.
const SPACING: Duration = Duration::from_secs(60);

thread_local! {
    static WARNED_AT: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Mails since then, without a warning.
    static UNTOLD: Cell<u64> = const { Cell::new(0) };
}

/// A mail has ended as an error, for this reason.
#[pg_extern(sql = false)]
fn _note_ended(id: i64, reason: &str) {
    if WARNED_AT.get().is_some_and(|at| at.elapsed() < SPACING) {
        UNTOLD.set(UNTOLD.get().saturating_add(1));
        return;
    }
    WARNED_AT.set(Some(Instant::now()));
    let untold = UNTOLD.replace(0);
    log::warn(
        &format!("mailroom: mail {id} ended as error: {reason}"),
        &format!(
            "Others since the last such line, which is written once a minute at most: {untold}."
        ),
        "Look at outbox.last_error; mailroom_retry_failed puts such mail back.",
    );
}
