//! Log lines about abuse of links: of each kind at most one a minute, without address or code.

use std::sync::atomic::{AtomicI64, Ordering};

use pgrx::prelude::*;

use crate::pg::process;

use super::wakeup;

/// A kind of abuse.
#[derive(Clone, Copy)]
enum Abuse {
    /// A link was locked after five wrong codes.
    Locked = 0,
    /// A link was requested more often than `mailroom.requests_per_hour` allows.
    Limited = 1,
}

/// Minimum time between two log lines about the same kind of abuse, in microseconds.
const SPACING: i64 = 60_000_000;

/// Writes a LOG line, of each kind at most once a minute: per database, or per session if the database has no worker.
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
