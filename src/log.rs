//! Lines of the server's log that have more than a message.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// Writes a WARNING, with detail and hint in their own fields.
pub fn warn(message: String, detail: &str, hint: &str) {
    ErrorReport::new(PgSqlErrorCode::ERRCODE_WARNING, message, "mailroom")
        .set_detail(detail)
        .set_hint(hint)
        .report(PgLogLevel::WARNING);
}
