//! Whether the wall clock has jumped, by which leases end.

use std::time::{Duration, Instant};

use crate::pg::process;

/// It is adjusted all the time; more than this is a jump, at once or by and by.
const JUMP: Duration = Duration::from_secs(1);

/// What the wall clock was, compared with the one that never jumps.
pub struct Clock {
    origin: Instant,
    /// By how many microseconds the wall clock was ahead.
    ahead: i64,
}

impl Clock {
    /// Now.
    pub fn start() -> Self {
        Self {
            origin: Instant::now(),
            ahead: process::now(),
        }
    }

    /// By how many microseconds the wall clock has jumped since this was last asked.
    pub fn take_jump(&mut self) -> Option<i64> {
        let before = micros(self.origin.elapsed());
        let wall = process::now();
        let after = micros(self.origin.elapsed());
        let jump = jump(
            wall.saturating_sub(after).saturating_sub(self.ahead),
            wall.saturating_sub(before).saturating_sub(self.ahead),
        )?;
        self.ahead = self.ahead.saturating_add(jump);
        Some(jump)
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// How far the clock has jumped, if it has: at least and at most that far, for the process may have been halted
/// between its looks at the two clocks.
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
    use super::jump;

    #[test]
    fn a_jump_is_more_than_an_adjustment_and_no_halt() {
        assert_eq!(jump(0, 3), None);
        assert_eq!(jump(-900_000, -890_000), None);
        assert_eq!(jump(7_200_000_000, 7_200_000_005), Some(7_200_000_000));
        assert_eq!(jump(-7_200_000_005, -7_200_000_000), Some(-7_200_000_000));
        // Halted for ten seconds between two looks: nothing can be said.
        assert_eq!(jump(-10_000_000, 0), None);
    }
}
