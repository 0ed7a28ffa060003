//! Lines of the log on abuse of links: once a minute at most, without address or code.

use std::sync::atomic::{AtomicI64, Ordering};

use pgrx::prelude::*;

use crate::pg::process;

use super::wakeup;

/// What the log tells of.
#[derive(Clone, Copy)]
enum Abuse {
    /// Five wrong codes were given with one.
    Locked = 0,
    /// One was asked for more often than it is sent.
    Limited = 1,
}

/// Microseconds between two lines of the log on the same sort of abuse.
const SPACING: i64 = 60_000_000;

/// Writes a LOG line, once a minute at most: in this database, or in this session where there is no worker.
#[pg_extern(sql = false)]
fn _log_abuse(what: &str, account: i64) {
    thread_local! {
        static LOGGED: [AtomicI64; 2] = const { [AtomicI64::new(0), AtomicI64::new(0)] };
    }
    let abuse = match what {
        "locked" => Abuse::Locked,
        _ => Abuse::Limited,
    };
    let now = process::now();
    let is_due = |logged: &[AtomicI64; 2]| {
        logged[abuse as usize]
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| {
                (last == 0 || now.saturating_sub(last) >= SPACING).then_some(now)
            })
            .is_ok()
    };
    let is_to_log = match wakeup::of_this_database() {
        Some(wakeup) => is_due(&wakeup.logged),
        None => LOGGED.with(is_due),
    };
    if is_to_log {
        let message = match abuse {
            Abuse::Locked => "mailroom: a link was locked after five wrong codes",
            Abuse::Limited => {
                "mailroom: a link was asked for more often than mailroom.requests_per_hour allows"
            }
        };
        ereport!(
            PgLogLevel::LOG,
            PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
            message,
            format!(
                "Account {account}. Others may have been, which is said once a minute at most."
            )
        );
    }
}
