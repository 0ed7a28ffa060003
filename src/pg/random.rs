//! Randomness from the server's strong source and no other.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

/// Fills `buffer` from `pg_strong_random`.
///
/// # Errors
/// XX000 when the source fails; nothing weaker is tried instead.
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
