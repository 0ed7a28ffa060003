//! Randomness for secrets, codes and keys, from the server's strong source and no other.
//!
//! A call of that source costs the same for few bytes as for many. So secrets and codes are drawn from a supply
//! of this process, which is drawn ahead and wiped as it is used. A signing key is drawn by itself.

use std::cell::RefCell;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use zeroize::{Zeroize, Zeroizing};

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

/// Bytes of a UUID.
const UUID_LEN: usize = 16;

/// Bytes drawn at once: for some 14 tokens.
const SUPPLY_LEN: usize = 512;

/// Bytes drawn ahead; those before `used` are gone.
struct Supply {
    bytes: [u8; SUPPLY_LEN],
    used: usize,
    /// The process that drew them: a child must not use what its parent may use, too.
    process: i32,
}

thread_local! {
    static SUPPLY: RefCell<Supply> = const { RefCell::new(Supply::EMPTY) };
}

impl Supply {
    const EMPTY: Self = Self {
        bytes: [0; SUPPLY_LEN],
        used: SUPPLY_LEN,
        process: 0,
    };

    /// The next bytes, which nobody gets again; `refill` fills what it is given or fails.
    fn take<const N: usize, E>(
        &mut self,
        process: i32,
        refill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Zeroizing<[u8; N]>, E> {
        if self.process != process || SUPPLY_LEN - self.used < N {
            // Until it is full again nothing is to be had from it.
            self.used = SUPPLY_LEN;
            refill(&mut self.bytes)?;
            self.used = 0;
            self.process = process;
        }
        let mut taken = Zeroizing::new([0; N]);
        let part = &mut self.bytes[self.used..self.used + N];
        taken.copy_from_slice(part);
        part.zeroize();
        self.used += N;
        Ok(taken)
    }
}

fn take<const N: usize>() -> Result<Zeroizing<[u8; N]>, ErrorReport> {
    // SAFETY: a plain variable of this process.
    let process = unsafe { pg_sys::MyProcPid };
    SUPPLY.with_borrow_mut(|supply| supply.take(process, fill))
}

/// Random bytes as a UUID of version 4, RFC 9562 section 5.4.
fn as_uuid(mut bytes: [u8; UUID_LEN]) -> [u8; UUID_LEN] {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

/// A UUID of version 4.
///
/// # Errors
/// As [`fill`].
#[pg_extern(sql = false)]
fn _random_uuid() -> Result<pgrx::Uuid, ErrorReport> {
    Ok(pgrx::Uuid::from_bytes(as_uuid(*take()?)))
}

/// A token's secret.
///
/// # Errors
/// As [`fill`].
#[pg_extern(sql = false)]
fn _random_secret() -> Result<Vec<u8>, ErrorReport> {
    Ok(take::<SECRET_LEN>()?.to_vec())
}

/// A token's code: five decimal digits, uniform over 00000 to 99999.
///
/// # Errors
/// As [`fill`].
#[pg_extern(sql = false)]
fn _random_code() -> Result<String, ErrorReport> {
    loop {
        if let Some(code) = uniform_code(u32::from_ne_bytes(*take()?)) {
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

    /// Fills with 1, 2, 3 and so on, beginning anew behind 250.
    fn count(bytes: &mut [u8]) -> Result<(), ()> {
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(i % 250).unwrap() + 1;
        }
        Ok(())
    }

    #[test]
    fn nothing_is_drawn_twice_and_what_was_drawn_is_wiped() {
        let mut supply = Supply::EMPTY;
        assert_eq!(*supply.take::<3, ()>(1, count).unwrap(), [1, 2, 3]);
        assert_eq!(
            *supply
                .take::<2, ()>(1, |_| panic!("there is enough"))
                .unwrap(),
            [4, 5]
        );
        assert_eq!(supply.bytes[..6], [0, 0, 0, 0, 0, 6]);
    }

    #[test]
    fn too_little_is_drawn_anew() {
        let mut supply = Supply::EMPTY;
        let mut refills = 0;
        for _ in 0..SUPPLY_LEN / 32 * 2 {
            let taken = supply
                .take::<31, ()>(1, |bytes| {
                    refills += 1;
                    count(bytes)
                })
                .unwrap();
            assert!(taken.iter().all(|byte| *byte != 0));
        }
        assert_eq!(refills, 2);
    }

    #[test]
    fn another_process_draws_its_own() {
        let mut supply = Supply::EMPTY;
        supply.take::<4, ()>(1, count).unwrap();
        assert_eq!(*supply.take::<2, ()>(2, count).unwrap(), [1, 2]);
    }

    #[test]
    fn without_a_source_there_is_nothing() {
        let mut supply = Supply::EMPTY;
        supply.take::<4, ()>(1, count).unwrap();
        assert!(supply.take::<4, _>(2, |_| Err(())).is_err());
        assert!(supply.take::<4, _>(1, |_| Err(())).is_err());
    }

    #[test]
    fn a_uuid_says_that_it_is_random() {
        let all = as_uuid([0xff; UUID_LEN]);
        assert_eq!((all[6], all[8], all[15]), (0x4f, 0xbf, 0xff));
        let none = as_uuid([0; UUID_LEN]);
        assert_eq!((none[6], none[8], none[15]), (0x40, 0x80, 0));
    }

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
