//! A transaction of the worker, with bounded rights and time.

use std::time::Duration;

use pgrx::prelude::*;

use super::Failure;
use crate::pg::{process, transaction as pg_transaction};

/// How long the statements of a transaction of the worker may run. A batch takes milliseconds; what takes this long is
/// stuck.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `body` in a transaction, committed on `Ok` and rolled back on `Err` and on any PostgreSQL error; as `role`, if
/// one is given.
///
/// # Errors
/// That of `body`, or what PostgreSQL raised.
pub fn transaction<R>(
    role: Option<pg_sys::Oid>,
    body: impl FnOnce() -> Result<R, Failure>,
) -> Result<R, Failure> {
    transaction_within(STATEMENT_TIMEOUT, role, body)
}

/// As [`transaction`], with another bound.
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
