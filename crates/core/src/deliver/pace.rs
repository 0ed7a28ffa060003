//! Mail waits for the rate.

use std::time::Duration;

use super::Time;
use super::machine::Deliverer;
use super::mail::Mail;
use super::rate::Rate;

/// The longest that mail waits for company because the rate binds.
const PATIENCE: Duration = Duration::from_secs(1);
/// A wait that ends a moment too early would be in vain.
const MOMENT: Duration = Duration::from_millis(1);

impl Deliverer {
    pub(super) fn rate(&self) -> Option<Rate> {
        self.limits.as_ref().and_then(|limits| limits.rate)
    }

    /// The largest batch: half of what the bucket holds, so that a full one may be waited for without wasting what
    /// would flow over.
    pub(super) fn paced_batch(&self, batch: usize) -> usize {
        self.rate().map_or(batch, |rate| {
            let half = usize::try_from(rate.burst() / 2).unwrap_or(usize::MAX);
            batch.min(half.max(1))
        })
    }

    /// Whether mail waits for the rate.
    pub(super) fn is_paced(&self, now: Time) -> bool {
        self.paced_until.is_some_and(|until| now < until)
    }

    /// Those that may go now; the others go back to the queue. While the rate binds, mail waits for as much company as
    /// the bucket may hold; when it does not, a single one goes at once.
    pub(super) fn admit(&mut self, now: Time, mut mails: Vec<Mail>) -> Option<Vec<Mail>> {
        let Some(rate) = self.rate() else {
            self.paced_until = None;
            return Some(mails);
        };
        let has_waited = self.paced_until.take().is_some();
        let clock = nanos(now);
        let wanted = count(mails.len());
        let granted = self.bucket.grant(rate, clock, wanted);
        if granted.count == wanted {
            return Some(mails);
        }
        let kept = if has_waited { granted.count } else { 0 };
        self.bucket.give_back(rate, granted.count - kept);
        if kept == 0 {
            let wait = self.bucket.wait_for(rate, clock, wanted);
            let least = granted.wait.unwrap_or_default();
            self.paced_until = Some(now + wait.min(PATIENCE.max(least)) + MOMENT);
        }
        for mail in mails.drain(kept as usize..).rev() {
            self.queue.put_back(mail);
        }
        (!mails.is_empty()).then_some(mails)
    }

    /// All of them, or none yet.
    pub(super) fn admit_whole(&mut self, now: Time, mails: Vec<Mail>) -> Option<Vec<Mail>> {
        let Some(rate) = self.rate() else {
            return Some(mails);
        };
        let clock = nanos(now);
        let wanted = count(mails.len()).min(rate.burst());
        let granted = self.bucket.grant(rate, clock, wanted);
        if granted.count == wanted {
            return Some(mails);
        }
        self.bucket.give_back(rate, granted.count);
        let wait = self.bucket.wait_for(rate, clock, wanted);
        self.paced_until = Some(now + wait + MOMENT);
        self.again.push(mails);
        None
    }
}

fn nanos(time: Time) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// A number of mails as the bucket counts them.
fn count(mails: usize) -> u32 {
    u32::try_from(mails).unwrap_or(u32::MAX)
}
