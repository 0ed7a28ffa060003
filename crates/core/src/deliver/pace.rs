//! Mail waits for the rate.

use std::time::Duration;

use super::Time;
use super::machine::Deliverer;
use super::mail::Mail;
use super::rate::{Rate, Unit};

/// The longest that mail waits for company because the rate binds.
const PATIENCE: Duration = Duration::from_secs(1);
/// A wait that ends a moment too early would be in vain.
const MOMENT: Duration = Duration::from_millis(1);

impl Deliverer {
    pub(super) fn rate(&self) -> Option<Rate> {
        self.limits.as_ref().and_then(|limits| limits.rate)
    }

    /// The most that mails which share a request may weigh: what the bucket ever holds.
    pub(super) fn heaviest(&self) -> u32 {
        self.rate().map_or(u32::MAX, Rate::burst)
    }

    /// What one more mail in a request adds to its cost.
    pub(super) fn weight(&self, mail: &Mail) -> u32 {
        self.rate().map_or(0, |rate| match rate.unit() {
            Unit::Requests => 0,
            unit => cost(unit, [mail]),
        })
    }

    /// How many mails go in a second, about, and no fewer than two requests of them.
    pub(super) fn paced_target(&self, target: usize) -> usize {
        self.rate().map_or(target, |rate| {
            let burst = usize::try_from(rate.burst()).unwrap_or(usize::MAX);
            let batch = self.batch_limit();
            let mails = match rate.unit() {
                Unit::Requests => burst.max(2).saturating_mul(batch),
                Unit::Messages | Unit::Recipients => burst.max(2 * burst.min(batch)),
            };
            target.min(mails)
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
        if self.bucket.take(rate, clock, cost(rate.unit(), &mails)) {
            return Some(mails);
        }
        let mut kept = if has_waited { mails.len() - 1 } else { 0 };
        let there = self.bucket.there(rate, clock);
        while kept > 0 && cost(rate.unit(), &mails[..kept]) > there {
            kept -= 1;
        }
        if kept == 0 {
            let whole = self.bucket.wait_for(rate, clock, cost(rate.unit(), &mails));
            let least = self
                .bucket
                .wait_for(rate, clock, cost(rate.unit(), &mails[..1]));
            self.paced_until = Some(now + whole.min(PATIENCE.max(least)) + MOMENT);
        } else {
            self.bucket
                .take(rate, clock, cost(rate.unit(), &mails[..kept]));
        }
        for mail in mails.drain(kept..).rev() {
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
        let wanted = cost(rate.unit(), &mails);
        if self.bucket.take(rate, clock, wanted) {
            return Some(mails);
        }
        let wait = self.bucket.wait_for(rate, clock, wanted);
        self.paced_until = Some(now + wait + MOMENT);
        self.again.push(mails);
        None
    }
}

fn nanos(time: Time) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// What one request with these mails costs, as the bucket counts it.
fn cost<'m>(unit: Unit, mails: impl IntoIterator<Item = &'m Mail>) -> u32 {
    let addresses = |mail: &Mail| {
        let message = &mail.message;
        (message.recipients.len() + message.cc.len() + message.bcc.len()).max(1)
    };
    let count: usize = match unit {
        Unit::Requests => 1,
        Unit::Messages => mails.into_iter().count(),
        Unit::Recipients => mails.into_iter().map(addresses).sum(),
    };
    u32::try_from(count).unwrap_or(u32::MAX)
}
