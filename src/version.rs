//! The version of this library, for SQL. Both functions stay in every later version, with what they take and return:
//! a script calls those of the library that the server runs, which may be of any version.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// The version of this library, and of the extension that it was built for.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The three numbers of a version.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let mut parts = version.split('.');
    let mut next = || {
        let part = parts.next()?;
        let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse().ok())?
    };
    let numbers = [next()?, next()?, next()?];
    parts.next().is_none().then_some(numbers)
}

#[pg_extern(sql = false)]
fn _library_version() -> &'static str {
    VERSION
}

/// # Errors
/// 55000 if this library is older than `version`, 22023 if that is no version.
#[pg_extern(sql = false)]
fn _require_library(version: &[u8]) -> Result<(), ErrorReport> {
    let Some(required) = std::str::from_utf8(version).ok().and_then(numbers) else {
        return Err(ErrorReport::new(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "this is no version of mailroom",
            function_name!(),
        )
        .set_detail("A version is three numbers with dots between them.")
        .set_hint("Pass the version that the script leads to."));
    };
    if numbers(VERSION) >= Some(required) {
        return Ok(());
    }
    let [major, minor, patch] = required;
    Err(ErrorReport::new(
        PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("the server still runs library {VERSION} of mailroom"),
        function_name!(),
    )
    .set_detail(format!(
        "Version {major}.{minor}.{patch} of the extension needs its library, or a later one."
    ))
    .set_hint("Restart the server with the new library, then repeat the statement. If shared_preload_libraries does not name mailroom, a new session is enough."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_numbers() {
        assert!(numbers("0.10.0") > numbers("0.9.9"));
        assert!(numbers("1.0.0") > numbers("0.99.99"));
        assert!(numbers(VERSION).is_some());
        for wrong in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "1.2.x",
            "1.2.-3",
            "1.2.+3",
            "1.2.4294967296",
        ] {
            assert_eq!(numbers(wrong), None, "{wrong}");
        }
    }
}
