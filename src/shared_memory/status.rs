//! What `mailroom_status()` shows of the worker.

use std::sync::atomic::{AtomicI64, Ordering};

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use super::wakeup;

/// What the worker waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Next {
    /// Nothing waits: the poll floor.
    Poll = 0,
    /// A partial batch: its timeout.
    Timeout = 1,
    /// A failure: the next try.
    Retry = 2,
    /// mailroom_resume().
    Resume = 3,
    /// A message that becomes due, or a claim that lapses.
    Due = 4,
    /// A restore: its end.
    Restored = 5,
    /// Tokens are left to clients: a commit that they are to hear of, or the poll floor.
    Left = 6,
}

impl Next {
    fn from_number(number: u32) -> &'static str {
        match number {
            1 => "timeout of a partial batch",
            2 => "next try after a failure",
            3 => "paused, until mailroom_resume()",
            4 => "a message becomes due or a claim lapses",
            5 => "a dump is being restored",
            6 => "tokens are left to clients (mailroom.collect is off)",
            _ => "poll",
        }
    }
}

/// The status of the worker of this database; no row when there is none.
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
