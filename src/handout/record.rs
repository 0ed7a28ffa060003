//! A row of `job_runs`, the diary of the worker.

use pgrx::datum::TimestampWithTimeZone;
use pgrx::prelude::*;

use crate::batch::Trigger;
use crate::server;
use crate::table::schema_of;
use crate::trigger::Kind;
use crate::way::{Wanted, WayIn};

/// In the order in which the values come.
const JOB_RUNS: Wanted = Wanted {
    table: c"job_runs",
    columns: &[
        (c"id", Kind::BigInt),
        (c"started_at", Kind::TimestampTz),
        (c"duration", Kind::Interval),
        (c"collected", Kind::Integer),
        (c"skipped", Kind::Integer),
        (c"trigger", Kind::Text),
    ],
    numbered: true,
    checks: &[
        "(trigger = ANY (ARRAY['limit'::text, 'timeout'::text, 'urgent'::text, 'poll'::text]))",
        "((collected >= 0) AND (skipped >= 0))",
    ],
    ..Wanted::NOTHING
};

thread_local! {
    static INTO_JOB_RUNS: WayIn = const { WayIn::new(JOB_RUNS) };
}

/// `_record(timestamptz, integer, integer, text)` of `60_worker.sql`.
#[pg_extern(sql = false)]
fn _record(
    started_at: TimestampWithTimeZone,
    collected: i32,
    skipped: i32,
    trigger: &[u8],
    fcinfo: pg_sys::FunctionCallInfo,
) -> bool {
    // As the table's constraints have it.
    let is_known = Trigger::ALL
        .iter()
        .any(|known| known.as_str().as_bytes() == trigger);
    if !is_known || collected < 0 || skipped < 0 {
        return false;
    }
    let started_at = started_at.into_inner();
    let Some(duration) = server::now().checked_sub(started_at) else {
        return false;
    };
    // SAFETY: what the server called with, for a function in the schema of the library's tables; the values are
    // of the columns' types, and memory for an interval is filled in.
    unsafe {
        let Some(job_runs) = INTO_JOB_RUNS.with(|into| into.open(schema_of(fcinfo))) else {
            return false;
        };
        let length = pg_sys::palloc0(size_of::<pg_sys::Interval>()).cast::<pg_sys::Interval>();
        (*length).time = duration;
        job_runs.store([
            pg_sys::Datum::from(job_runs.next_id()),
            pg_sys::Datum::from(started_at),
            pg_sys::Datum::from(length),
            pg_sys::Datum::from(collected),
            pg_sys::Datum::from(skipped),
            pgrx::pg_getarg_datum(fcinfo, 3).unwrap_or(pg_sys::Datum::null()),
        ]);
        pg_sys::CommandCounterIncrement();
    }
    true
}
