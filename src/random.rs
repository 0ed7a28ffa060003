//! Randomness for secrets, codes and keys, from the server's strong source and no other.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::token::{CODE_LEN, SECRET_LEN};

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

/// A token's secret.
///
/// # Errors
/// As [`fill`].
#[pg_extern(sql = false)]
fn _random_secret() -> Result<Vec<u8>, ErrorReport> {
    let mut secret = vec![0; SECRET_LEN];
    fill(&mut secret)?;
    Ok(secret)
}

/// A token's code: five decimal digits, uniform over 00000 to 99999.
///
/// # Errors
/// As [`fill`].
#[pg_extern(sql = false)]
fn _random_code() -> Result<String, ErrorReport> {
    loop {
        let mut draw = [0; 4];
        fill(&mut draw)?;
        if let Some(code) = uniform_code(u32::from_ne_bytes(draw)) {
            return Ok(code);
        }
    }
}

/// Maps a uniform draw to a uniform code, or asks for another draw: the draws above the last whole
/// multiple of 100,000 would make the low codes likelier than the others.
fn uniform_code(draw: u32) -> Option<String> {
    const CODES: u32 = 10_u32.pow(CODE_LEN as u32);
    (draw < u32::MAX - u32::MAX % CODES).then(|| format!("{:0CODE_LEN$}", draw % CODES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_keep_their_leading_zeros() {
        assert_eq!(uniform_code(0).unwrap(), "00000");
        assert_eq!(uniform_code(100_042).unwrap(), "00042");
        assert_eq!(uniform_code(99_999).unwrap(), "99999");
    }

    #[test]
    fn the_incomplete_last_stretch_is_drawn_again() {
        assert!(uniform_code(u32::MAX).is_none());
        assert!(uniform_code(4_294_900_000).is_none());
        assert_eq!(uniform_code(4_294_899_999).unwrap(), "99999");
    }
}
