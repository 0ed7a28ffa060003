//! Lines that repeat. Pure.

use std::time::{Duration, Instant};

/// The least time between two lines.
const INTERVAL: Duration = Duration::from_secs(60);

/// Lets one line a minute through.
#[derive(Debug, Default)]
pub struct Throttle {
    told_at: Option<Instant>,
    left_out: u64,
}

impl Throttle {
    /// Whether to write a line now: `None`, or the number of lines that were left out since the latest one.
    pub fn pass(&mut self, now: Instant) -> Option<u64> {
        let is_due = |at: Instant| now.saturating_duration_since(at) >= INTERVAL;
        if self.told_at.is_none_or(is_due) {
            self.told_at = Some(now);
            return Some(std::mem::take(&mut self.left_out));
        }
        self.left_out = self.left_out.saturating_add(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute_tells_of_those_that_were_left_out() {
        let start = Instant::now();
        let mut throttle = Throttle::default();
        let told: Vec<Option<u64>> = [0, 1, 59, 60, 61, 200]
            .map(|second| throttle.pass(start + Duration::from_secs(second)))
            .into();
        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
