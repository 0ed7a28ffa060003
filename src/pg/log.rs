//! Lines of the server's log that have more than a message.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// The time between two warnings of one kind in one session.
const SPACING: Duration = Duration::from_secs(60);

/// Lets a kind of warning through once a minute at most, in this session.
pub struct OnceAMinute(Cell<Option<Instant>>);

impl OnceAMinute {
    /// The first is let through.
    pub const fn new() -> Self {
        Self(Cell::new(None))
    }

    /// Whether the warning is to be written, which it is then.
    pub fn is_due(&self) -> bool {
        let is_due = self.0.get().is_none_or(|at| at.elapsed() >= SPACING);
        if is_due {
            self.0.set(Some(Instant::now()));
        }
        is_due
    }
}

/// Writes a WARNING, with detail and hint in their own fields unless they are empty.
pub fn warn(message: &str, detail: &str, hint: &str) {
    warn_as(PgSqlErrorCode::ERRCODE_WARNING, message, detail, hint);
}

/// As [`warn`], with a SQLSTATE.
pub fn warn_as(code: PgSqlErrorCode, message: &str, detail: &str, hint: &str) {
    let mut report = ErrorReport::new(code, message.to_owned(), "mailroom");
    if !detail.is_empty() {
        report = report.set_detail(detail.to_owned());
    }
    if !hint.is_empty() {
        report = report.set_hint(hint.to_owned());
    }
    report.report(PgLogLevel::WARNING);
}
