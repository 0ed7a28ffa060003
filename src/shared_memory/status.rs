//! What `mailroom_status()` shows about the worker.

use std::sync::atomic::{AtomicI64, Ordering};

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use super::registry;
use super::wakeup::{self, Next};
use crate::pg::process;

/// Returns one row: the status of the worker of this database or, if there is none, why.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity, reason = "the shape of a SQL row")]
fn _worker_report() -> TableIterator<
    'static,
    (
        name!(pid, Option<i32>),
        name!(since, Option<TimestampWithTimeZone>),
        name!(last_batch_at, Option<TimestampWithTimeZone>),
        name!(failures, Option<i32>),
        name!(next_wake_at, Option<TimestampWithTimeZone>),
        name!(next_wake_for, Option<&'static str>),
        name!(problem, Option<String>),
    ),
> {
    let Some(wakeup) = wakeup::of_this_database() else {
        let problem = registry::why_no_worker(process::database());
        return TableIterator::once((None, None, None, None, None, None, problem));
    };
    let status = &wakeup.status;
    let time = |at: &AtomicI64| match at.load(Ordering::Relaxed) {
        0 => None,
        micros => TimestampWithTimeZone::try_from(micros).ok(),
    };
    TableIterator::once((
        Some(status.pid.load(Ordering::Relaxed)),
        time(&status.since),
        time(&status.last_batch),
        Some(i32::try_from(status.failures.load(Ordering::Relaxed)).unwrap_or(i32::MAX)),
        time(&status.next_wake),
        Some(Next::from_number(status.next.load(Ordering::Relaxed))),
        None,
    ))
}
