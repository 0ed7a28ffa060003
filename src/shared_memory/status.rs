//! What `mailroom_status()` shows about the worker.

use std::sync::atomic::{AtomicI64, Ordering};

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use super::wakeup::{self, Next};

/// Returns the status of the worker of this database; no row if there is none.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "the shape of a SQL row")]
fn _worker_report() -> TableIterator<
    'static,
    (
        name!(pid, i32),
        name!(since, Option<TimestampWithTimeZone>),
        name!(last_batch_at, Option<TimestampWithTimeZone>),
        name!(failures, i32),
        name!(next_wake_at, Option<TimestampWithTimeZone>),
        name!(next_wake_for, &'static str),
    ),
> {
    TableIterator::new(wakeup::of_this_database().map(|wakeup| {
        let status = &wakeup.status;
        let time = |at: &AtomicI64| match at.load(Ordering::Relaxed) {
            0 => None,
            micros => TimestampWithTimeZone::try_from(micros).ok(),
        };
        (
            status.pid.load(Ordering::Relaxed),
            time(&status.since),
            time(&status.last_batch),
            i32::try_from(status.failures.load(Ordering::Relaxed)).unwrap_or(i32::MAX),
            time(&status.next_wake),
            Next::from_number(status.next.load(Ordering::Relaxed)),
        )
    }))
}
