//! Whether the wall clock has jumped, by which leases end and mail expires.
//!
//! The times of the deliverer are those of the monotonic clock, which stands still while a machine is suspended.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The wall clock is adjusted all the time. More than this is a jump, at once or by and by.
const JUMP: Duration = Duration::from_secs(1);

/// The difference between the wall clock and the monotonic clock.
pub struct Clock {
    origin: Instant,
    /// By how many microseconds the wall clock was ahead.
    ahead: i64,
}

impl Clock {
    /// The difference as it is now.
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
            ahead: wall(),
        }
    }

    /// By how many microseconds the wall clock has jumped since the latest call.
    pub fn take_jump(&mut self) -> Option<i64> {
        let before = micros(self.origin.elapsed());
        let wall = wall();
        let after = micros(self.origin.elapsed());
        let jump = jump(
            wall.saturating_sub(after).saturating_sub(self.ahead),
            wall.saturating_sub(before).saturating_sub(self.ahead),
        )?;
        self.ahead = self.ahead.saturating_add(jump);
        Some(jump)
    }
}

/// The wall clock, in microseconds since 1970-01-01.
fn wall() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or_else(|before| -micros(before.duration()), micros)
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// How far the clock has jumped, if it has. It has jumped by `least` at least and by `most` at most: the process may have
/// been halted between the two readings of the monotonic clock.
fn jump(least: i64, most: i64) -> Option<i64> {
    let limit = micros(JUMP);
    if least > limit {
        Some(least)
    } else if most < -limit {
        Some(most)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, jump};

    #[test]
    fn a_jump_is_more_than_an_adjustment_and_no_halt() {
        assert_eq!(jump(0, 3), None);
        assert_eq!(jump(-900_000, -890_000), None);
        assert_eq!(jump(7_200_000_000, 7_200_000_005), Some(7_200_000_000));
        assert_eq!(jump(-7_200_000_005, -7_200_000_000), Some(-7_200_000_000));
        // Halted for ten seconds between two readings: nothing can be said.
        assert_eq!(jump(-10_000_000, 0), None);
    }

    #[test]
    fn a_jump_is_told_once() {
        let mut clock = Clock::start();
        assert_eq!(clock.take_jump(), None);
        clock.ahead -= 7_200_000_000;
        let jump = clock.take_jump().unwrap();
        // Readings are cut to microseconds, and the wall clock is being adjusted.
        assert!((7_199_900_000..7_260_000_000).contains(&jump), "{jump}");
        assert_eq!(clock.take_jump(), None);
    }
}
