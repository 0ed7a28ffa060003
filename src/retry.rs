//! When a mail that failed is tried again: exponential back-off with full jitter. Pure but for the draw.
//!
//! The wait after the n-th failed attempt is uniform between nothing and [`BASE`] doubled n - 1 times, or
//! [`CAP`] if that is less. Uniform from zero on, rather than around a mean, because mails that failed
//! together, as when a provider was away, would otherwise come back together. With the default of 25 attempts
//! the last one is made about eight hours after the first.

use std::time::Duration;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;

use crate::random;

/// The longest wait after the first failure.
const BASE: Duration = Duration::from_secs(5);
/// The longest wait ever.
const CAP: Duration = Duration::from_secs(3600);

/// The longest wait after so many failed attempts.
fn ceiling(attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1);
    2_u32
        .checked_pow(doublings)
        .map_or(CAP, |factor| BASE.saturating_mul(factor).min(CAP))
}

/// The wait after so many failed attempts, for a uniform draw.
fn delay(attempts: u32, draw: u32) -> Duration {
    let part = f64::from(draw) / f64::from(u32::MAX);
    ceiling(attempts).mul_f64(part)
}

/// Seconds to wait after so many failed attempts.
///
/// # Errors
/// XX000 when the server's random source fails.
#[pg_extern(sql = false)]
fn _backoff(attempts: i32) -> Result<f64, ErrorReport> {
    let mut draw = [0; 4];
    random::fill(&mut draw)?;
    let attempts = u32::try_from(attempts).unwrap_or(0);
    Ok(delay(attempts, u32::from_ne_bytes(draw)).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ceiling_doubles_up_to_the_cap() {
        let seconds: Vec<u64> = [0, 1, 2, 3, 10, 11, 12, 33, u32::MAX]
            .map(|attempts| ceiling(attempts).as_secs())
            .into();
        assert_eq!(seconds, [5, 5, 10, 20, 2560, 3600, 3600, 3600, 3600]);
    }

    proptest! {
        #[test]
        fn a_delay_is_within_its_bounds(attempts: u32, draw: u32) {
            prop_assert!(delay(attempts, draw) <= ceiling(attempts));
            prop_assert!(ceiling(attempts) <= CAP);
        }

        #[test]
        fn the_ceiling_never_falls(attempts in 0..u32::MAX) {
            prop_assert!(ceiling(attempts) <= ceiling(attempts + 1));
        }

        #[test]
        fn the_whole_range_is_used(attempts: u32, draw: u32) {
            // Mirrored draws give mirrored delays: the jitter is full and leans to neither side.
            let sum = delay(attempts, draw) + delay(attempts, u32::MAX - draw);
            let off = sum.abs_diff(ceiling(attempts));
            prop_assert!(off < Duration::from_micros(1));
        }
    }
}
