//! Random bytes, only from the server's strong source.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// Fills `buffer` from `pg_strong_random`.
///
/// # Errors
/// XX000 if the source fails; there is no fallback to a weaker source.
pub fn fill(buffer: &mut [u8]) -> Result<(), ErrorReport> {
    // SAFETY: the pointer and the length are those of one live, writable slice.
    let filled = unsafe { pg_sys::pg_strong_random(buffer.as_mut_ptr().cast(), buffer.len()) };
    if filled {
        Ok(())
    } else {
        Err(ErrorReport::new(
            PgSqlErrorCode::ERRCODE_INTERNAL_ERROR,
            "could not get random bytes from the server",
            function_name!(),
        ))
    }
}
