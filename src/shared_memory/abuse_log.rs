//! Log lines about abuse of links and webhooks: of each kind at most one a minute, without address or code.

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
    /// A request to a webhook was not the provider's.
    Forged = 2,
}

/// The number of kinds.
const KINDS: usize = 3;

/// Minimum time between two log lines about the same kind of abuse, in microseconds.
const SPACING: i64 = 60_000_000;

/// Writes a LOG line that an account was locked or limited.
#[pg_extern(sql = false)]
fn _log_abuse(what: &str, account: i64) {
    let (abuse, message) = match what {
        "locked" => (
            Abuse::Locked,
            "mailroom: a link was locked after five wrong codes",
        ),
        _ => (
            Abuse::Limited,
            "mailroom: a link was asked for more often than mailroom.requests_per_hour allows",
        ),
    };
    log(abuse, message, || {
        format!("Account {account}. Others may have been, which is said once a minute at most.")
    });
}

/// Writes a LOG line that a request to the webhook of this transport was refused, and why, in words without its contents.
pub fn forged(transport: &str, fault: &'static str) {
    log(
        Abuse::Forged,
        "mailroom: a request for events was refused",
        || {
            format!(
                "Transport \"{transport}\": {fault}. Others may have been, which is said once a minute at most."
            )
        },
    );
}

/// Writes a line of each kind at most once a minute: per database, or per session if the database has no worker.
fn log(abuse: Abuse, message: &'static str, detail: impl FnOnce() -> String) {
    thread_local! {
        static LOGGED: [AtomicI64; KINDS] = const { [const { AtomicI64::new(0) }; KINDS] };
    }
    let now = process::now();
    let is_due = |logged: &[AtomicI64; KINDS]| {
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
        ereport!(
            PgLogLevel::LOG,
            PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
            message,
            detail()
        );
    }
}
