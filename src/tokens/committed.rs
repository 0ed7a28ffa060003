//! Tokens that a transaction with an old snapshot does not see.

use pgrx::fn_call::{Arg, FnCallError, fn_call};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::pg::transaction;

/// What `_open_tokens` of the extension's schema, given as SQL writes it, returns in a snapshot of this moment.
///
/// # Errors
/// `22023` if there is no such function in that schema.
#[pg_extern(sql = false)]
fn _committed_open_tokens(
    schema: &str,
    holders: Vec<Option<i64>>,
) -> Result<Option<Vec<Option<i64>>>, ErrorReport> {
    let function = format!("{schema}._open_tokens");
    transaction::with_latest_snapshot(|| fn_call(&function, &[&Arg::Value(holders)])).map_err(
        |error: FnCallError| {
            ErrorReport::new(
                PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
                "function _open_tokens cannot be called",
                function_name!(),
            )
            .set_detail(error.to_string())
            .set_hint("Pass the schema of the extension, as SQL writes it.")
        },
    )
}
