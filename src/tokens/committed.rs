//! Tokens that a transaction with an old snapshot does not see.

use pgrx::prelude::*;

use crate::pg::transaction;

/// Returns what `reader`, the function `_open_tokens` of the extension's schema, returns with the latest snapshot.
#[pg_extern(sql = false)]
fn _committed_open_tokens(
    reader: pg_sys::Oid,
    holders: Vec<Option<i64>>,
) -> Option<Vec<Option<i64>>> {
    transaction::call_with_latest_snapshot(reader, holders)
}
