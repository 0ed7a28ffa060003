//! Warnings with a detail, a hint and a SQLSTATE.

use std::cell::Cell;
use std::time::{Duration, Instant};

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// Minimum time between two warnings of one kind in one session.
const SPACING: Duration = Duration::from_secs(60);

/// Limits one kind of warning to one a minute in this session.
pub struct OnceAMinute(Cell<Option<Instant>>);

impl OnceAMinute {
    /// A limiter that allows the first warning.
    pub const fn new() -> Self {
        Self(Cell::new(None))
    }

    /// Whether the caller must write the warning now. If so, the warning counts as written.
    pub fn is_due(&self) -> bool {
        let is_due = self.0.get().is_none_or(|at| at.elapsed() >= SPACING);
        if is_due {
            self.0.set(Some(Instant::now()));
        }
        is_due
    }
}

/// Writes a WARNING. An empty detail or hint is omitted.
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
