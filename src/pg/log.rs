//! Lines of the server's log that have more than a message.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

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
