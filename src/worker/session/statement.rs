//! Statements that are prepared once in this process, so that they are not parsed and planned for each call.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pgrx::datum::DatumWithOid;
use pgrx::prelude::*;
use pgrx::spi::{OwnedPreparedStatement, SpiClient, SpiTupleTable};

use super::Failure;

thread_local! {
    /// The prepared statements by their text. They are kept as long as the process lives.
    static PREPARED: RefCell<BTreeMap<&'static str, &'static OwnedPreparedStatement>> =
        const { RefCell::new(BTreeMap::new()) };
}

/// Returns the prepared statement; prepares it on the first call in this process.
pub fn prepared(
    client: &SpiClient<'_>,
    statement: &'static str,
    arguments: &[DatumWithOid<'_>],
) -> Result<&'static OwnedPreparedStatement, Failure> {
    if let Some(prepared) = PREPARED.with_borrow(|all| all.get(statement).copied()) {
        return Ok(prepared);
    }
    let types: Vec<PgOid> = arguments.iter().map(|one| PgOid::from(one.oid())).collect();
    let prepared = Box::leak(Box::new(client.prepare_mut(statement, &types)?.keep()));
    PREPARED.with_borrow_mut(|all| all.insert(statement, prepared));
    Ok(prepared)
}

/// Runs one statement that returns one row.
pub fn call<R>(
    statement: &'static str,
    arguments: &[DatumWithOid<'_>],
    read: impl FnOnce(&SpiTupleTable<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    Spi::connect_mut(|client: &mut SpiClient<'_>| {
        let prepared = prepared(client, statement, arguments)?;
        let rows = client.update(prepared, Some(1), arguments)?;
        read(&rows.first())
    })
}

pub fn required<T: FromDatum + IntoDatum>(
    row: &SpiTupleTable<'_>,
    column: usize,
) -> Result<T, Failure> {
    row.get(column)?.ok_or_else(|| {
        Failure::refused(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            &format!("column {column} of an internal query is null"),
            None,
        )
    })
}

pub fn integer(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub fn count(value: i32) -> u32 {
    value.unsigned_abs()
}
