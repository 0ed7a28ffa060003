//! Secrets, codes and message ids.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pgrx::Uuid;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::pg::random::fill;
use mailroom_core::token::{CODE_LEN, SECRET_LEN};

/// Returns the secret of a new token.
///
/// # Errors
/// As [`fill`].
#[pg_extern(sql = false)]
fn _random_secret() -> Result<Vec<u8>, ErrorReport> {
    let mut secret = vec![0; SECRET_LEN];
    fill(&mut secret)?;
    Ok(secret)
}

/// Returns the code of a new token: five decimal digits, uniform over 00000 to 99999.
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

/// Returns a message id: a UUID of version 7 (RFC 9562, 5.7), so that consecutive ids are adjacent in an index.
///
/// # Errors
/// As [`fill`].
#[pg_extern(sql = false)]
fn _message_id() -> Result<Uuid, ErrorReport> {
    let mut random = [0; 10];
    fill(&mut random)?;
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(Uuid::from_bytes(uuid_v7(
        since_epoch.unwrap_or_default(),
        random,
    )))
}

fn uuid_v7(since_epoch: Duration, random: [u8; 10]) -> [u8; 16] {
    let mut id = [0; 16];
    let millis = since_epoch.as_millis() as u64;
    id[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
    id[6..].copy_from_slice(&random);
    id[6] = id[6] & 0x0f | 0x70;
    id[8] = id[8] & 0x3f | 0x80;
    id
}

/// Maps a uniform draw to a uniform code. Returns `None`, to draw again, for draws from the last multiple of 100,000
/// on, which would make the low codes likelier than the others.
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
    fn message_ids_have_the_time_the_version_and_the_variant() {
        // The example of RFC 9562, A.6.
        let random = [0xcc, 0xc3, 0x18, 0xc4, 0xdc, 0x0c, 0x0c, 0x07, 0x39, 0x8f];
        let id = uuid_v7(Duration::from_millis(0x017F_22E2_79B0), random);
        let expected = [
            0x01, 0x7f, 0x22, 0xe2, 0x79, 0xb0, 0x7c, 0xc3, 0x98, 0xc4, 0xdc, 0x0c, 0x0c, 0x07,
            0x39, 0x8f,
        ];
        assert_eq!(id, expected);
    }

    #[test]
    fn the_incomplete_last_stretch_is_drawn_again() {
        assert!(uniform_code(u32::MAX).is_none());
        assert!(uniform_code(4_294_900_000).is_none());
        assert_eq!(uniform_code(4_294_899_999).unwrap(), "99999");
    }
}
