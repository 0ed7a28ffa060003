//! One value of `jobs.last_seq` for a whole statement.
//!
//! A statement that selects tokens behind `last_seq` and then raises it reads `jobs` twice. Part of `last_seq` comes from
//! a sequence, which has no snapshots: if another session advanced it between the two reads, the trigger would take the
//! tokens between the two values for ones that the statement did not select, and leave them to be handed out again.
//!
//! So the first value that is read with a snapshot stays the value for that snapshot. An older value is always safe: if
//! a token behind it was taken meanwhile, its row of `pending` is gone or locked, and the statement fails.

use std::cell::Cell;

use pgrx::prelude::*;

use crate::pg::transaction::{self, SnapshotKey};

thread_local! {
    static FIRST_READ: Cell<Option<(SnapshotKey, i64)>> = const { Cell::new(None) };
}

/// Returns the value with which the function was called first with the active snapshot.
#[pg_extern(sql = false)]
fn _first_read(last_value: i64) -> i64 {
    let Some(key) = transaction::active_snapshot() else {
        return last_value;
    };
    let value = match FIRST_READ.get() {
        Some((known, first)) if known == key => first,
        _ => last_value,
    };
    FIRST_READ.set(Some((key, value)));
    value
}
