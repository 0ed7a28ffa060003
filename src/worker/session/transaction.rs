//! Transactions of the worker, with limited privileges and time.

use std::time::Duration;

use pgrx::prelude::*;

use super::Failure;
use crate::pg::{process, transaction as pg_transaction};

/// How long the statements of a worker's transaction may run. A batch takes milliseconds; a transaction that takes this
/// long is stuck.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `body` in a transaction, which is committed on `Ok` and rolled back on `Err` or any PostgreSQL error; as
/// `role`, if one is given.
///
/// # Errors
/// The error of `body`, or the one that PostgreSQL raised.
pub fn transaction<R>(
    role: Option<pg_sys::Oid>,
    body: impl FnOnce() -> Result<R, Failure>,
) -> Result<R, Failure> {
    transaction_within(STATEMENT_TIMEOUT, role, body)
}

/// As [`transaction`], with another timeout.
///
/// # Errors
/// As [`transaction`].
pub fn transaction_within<R>(
    timeout: Duration,
    role: Option<pg_sys::Oid>,
    body: impl FnOnce() -> Result<R, Failure>,
) -> Result<R, Failure> {
    let start = process::now();
    pg_transaction::run(timeout, role, body).map_err(|failure| match failure {
        Failure::Refused {
            sqlstate,
            message,
            hint,
            began: None,
        } => Failure::Refused {
            sqlstate,
            message,
            hint,
            began: Some(start),
        },
        other => other,
    })
}
