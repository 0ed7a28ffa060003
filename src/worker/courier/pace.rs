//! The pace: mail goes to the engine when the server's bucket has room for it.
//!
//! While the rate binds, mail waits for as much of its batch call as the bucket may hold; when it does not, a single
//! mail goes at once. Little is claimed ahead then: what is urgent must not wait behind what was claimed before.

use std::time::Duration;

use super::{Courier, Time};
use crate::delivery::bucket;
use crate::delivery::engine::{Letter, Parcel};

/// The longest that mail waits for company because the rate binds.
const PATIENCE: Duration = Duration::from_secs(1);
/// A wait that ends a moment too early would be in vain.
const MOMENT: Duration = Duration::from_millis(1);

/// What goes in so much time is held at least: each exchange with the database takes some of it.
pub(super) const SPAN: Duration = Duration::from_millis(100);

/// How many mails came back of late.
#[derive(Default)]
pub(super) struct Tempo {
    since: Time,
    count: usize,
    recent: usize,
}

impl Tempo {
    /// So many more did.
    pub(super) fn note(&mut self, now: Time, letters: usize) {
        self.count += letters;
        let passed = now.saturating_sub(self.since);
        if passed >= SPAN {
            let share = SPAN.as_secs_f64() / passed.as_secs_f64();
            self.recent = (self.count as f64 * share) as usize;
            self.count = 0;
            self.since = now;
        }
    }

    /// In a [`SPAN`], that is.
    pub(super) fn recent(&self) -> usize {
        self.recent
    }
}

/// The number of letters as the bucket counts them.
fn count(letters: usize) -> u32 {
    u32::try_from(letters).unwrap_or(u32::MAX)
}

impl Courier {
    /// The largest batch: half of what the bucket holds, so that a full one may be waited for without wasting what
    /// would flow over.
    pub(super) fn paced_batch(&self, batch: usize) -> usize {
        bucket::rate().map_or(batch, |rate| {
            let half = usize::try_from(rate.burst() / 2).unwrap_or(usize::MAX);
            batch.min(half.max(1))
        })
    }

    /// How many mails to hold at most: what goes in a second.
    pub(super) fn paced_target(&self, target: usize) -> usize {
        bucket::rate().map_or(target, |rate| {
            let second = usize::try_from(rate.per_second()).unwrap_or(usize::MAX);
            target.min(second.max(2 * self.paced_batch(self.batch_limit())))
        })
    }

    /// How many requests the engine may have: with a rate none waits there, for many would go at once when slots
    /// come free.
    pub(super) fn paced_requests(&self, most: usize, window: usize) -> usize {
        bucket::rate().map_or(most, |_| window + self.slow().requests)
    }

    /// Whether mail waits for the rate.
    pub(super) fn is_paced(&self, now: Time) -> bool {
        self.paced_until.is_some_and(|until| now < until)
    }

    /// Those of the letters that may go now; the others go back to the bag.
    pub(super) fn admit(&mut self, now: Time, mut letters: Vec<Letter>) -> Option<Vec<Letter>> {
        let Some(rate) = bucket::rate() else {
            self.paced_until = None;
            return Some(letters);
        };
        let has_waited = self.paced_until.take().is_some();
        let wanted = count(letters.len());
        let granted = bucket::grant(rate, wanted);
        if granted.count == wanted {
            return Some(letters);
        }
        let wait = if has_waited && granted.count > 0 {
            // Others may be quicker each time.
            None
        } else {
            bucket::give_back(rate, granted.count);
            let one = granted.wait.unwrap_or_default();
            let all = bucket::wait_for(rate, wanted);
            Some(if granted.count > 0 {
                all.min(PATIENCE)
            } else {
                all.min(one.max(PATIENCE))
            })
        };
        let kept = if wait.is_none() { granted.count } else { 0 };
        for letter in letters.drain(kept as usize..).rev() {
            self.bag.put(letter);
        }
        self.paced_until = wait.map(|wait| now.saturating_add(wait).saturating_add(MOMENT));
        (!letters.is_empty()).then_some(letters)
    }

    /// Whether this parcel may go as a whole now; when it may otherwise.
    pub(super) fn admit_whole(&self, now: Time, parcel: &Parcel) -> Result<(), Time> {
        let Some(rate) = bucket::rate() else {
            return Ok(());
        };
        let wanted = count(parcel.letters.len()).min(rate.burst());
        let granted = bucket::grant(rate, wanted);
        if granted.count == wanted {
            return Ok(());
        }
        bucket::give_back(rate, granted.count);
        let wait = bucket::wait_for(rate, wanted);
        Err(now.saturating_add(wait).saturating_add(MOMENT))
    }

    /// These did not go after all.
    pub(super) fn unsent(&self, letters: usize) {
        if let Some(rate) = bucket::rate() {
            bucket::give_back(rate, count(letters).min(rate.burst()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tempo_is_that_of_the_latest_span() {
        let mut tempo = Tempo::default();
        let mut recent = |at: u32, letters| {
            tempo.note(at * SPAN / 10, letters);
            tempo.recent()
        };
        assert_eq!(recent(1, 10), 0, "the first span is not over");
        assert_eq!(recent(10, 20), 30);
        assert_eq!(recent(15, 500), 30);
        assert_eq!(recent(30, 100), 300, "600 in two spans");
        assert_eq!(recent(1_000, 1), 0, "nothing for long");
    }
}
