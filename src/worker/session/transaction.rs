//! Transactions of the worker, with limited privileges and time.

use std::time::Duration;

use pgrx::prelude::*;

use super::Failure;
use crate::pg::log::OnceAMinute;
use crate::pg::signals::stop_requested;
use crate::pg::{notify, process, transaction as pg_transaction};

/// How long the statements of a worker's transaction may run. A batch takes milliseconds; a transaction that takes this
/// long is stuck.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);

thread_local! {
    static COULD_NOT_NOTIFY: OnceAMinute = const { OnceAMinute::new() };
}

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
    let outcome = pg_transaction::run(timeout, role, body);
    if outcome.is_ok() {
        send_notifications();
    } else {
        notify::take_kept();
    }
    outcome.map_err(|failure| match failure {
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

/// Sends the notifications that this process owes, in a transaction of their own. If that fails, listeners poll.
pub fn send_notifications() {
    let owed = notify::take_kept();
    if owed.is_empty() {
        return;
    }
    let sent: Result<(), Failure> = pg_transaction::run(STATEMENT_TIMEOUT, None, || {
        notify::send(&owed);
        Ok(())
    });
    if let Err(failure) = sent
        && !stop_requested()
        && COULD_NOT_NOTIFY.with(OnceAMinute::is_due)
    {
        failure.warn("mailroom worker could not notify the sessions that listen, which will poll");
    }
}
