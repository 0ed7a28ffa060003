//! How mail waits for the rate limit of the provider.

use std::time::Duration;

use super::Time;
use super::mail::Mail;
use super::token_bucket::TokenBucket;
use crate::transport::rate::{Rate, Unit};

/// The longest that a mail waits for a fuller batch while the rate limits sending.
const MAX_BATCH_WAIT: Duration = Duration::from_secs(1);
/// Added to each wait, because a wait that ends before the bucket has filled is useless.
const WAIT_MARGIN: Duration = Duration::from_millis(1);

/// The token bucket of one transport, and the time until which its mail waits.
#[derive(Default)]
pub(super) struct RateLimiter {
    bucket: TokenBucket,
    waits_until: Option<Time>,
}

impl RateLimiter {
    /// Until when mail waits, if it does.
    pub(super) fn waits_until(&self) -> Option<Time> {
        self.waits_until
    }

    /// Whether mail waits now.
    pub(super) fn is_waiting(&self, now: Time) -> bool {
        self.waits_until.is_some_and(|until| now < until)
    }

    /// Splits the mails of a request into those that may be sent now and the others. While the rate limits sending, a
    /// mail waits for as full a batch as the bucket can hold; otherwise a single one is sent at once.
    pub(super) fn admit(
        &mut self,
        rate: Option<Rate>,
        now: Time,
        mut mails: Vec<Mail>,
    ) -> (Vec<Mail>, Vec<Mail>) {
        let Some(rate) = rate else {
            self.waits_until = None;
            return (mails, Vec::new());
        };
        let has_waited = self.waits_until.take().is_some();
        let clock = nanoseconds(now);
        if self.bucket.take(rate, clock, cost(rate.unit(), &mails)) {
            return (mails, Vec::new());
        }
        let mut admitted = if has_waited { mails.len() - 1 } else { 0 };
        let available = self.bucket.available(rate, clock);
        while admitted > 0 && cost(rate.unit(), &mails[..admitted]) > available {
            admitted -= 1;
        }
        if admitted == 0 {
            let unit = rate.unit();
            let all = self.bucket.wait_for(rate, clock, cost(unit, &mails));
            let first = self.bucket.wait_for(rate, clock, cost(unit, &mails[..1]));
            self.waits_until = Some(now + all.min(MAX_BATCH_WAIT.max(first)) + WAIT_MARGIN);
        } else {
            self.bucket
                .take(rate, clock, cost(rate.unit(), &mails[..admitted]));
        }
        let rest = mails.split_off(admitted);
        (mails, rest)
    }

    /// Whether all these mails may be sent now in one request.
    pub(super) fn admits_all(&mut self, rate: Option<Rate>, now: Time, mails: &[Mail]) -> bool {
        let Some(rate) = rate else {
            return true;
        };
        let clock = nanoseconds(now);
        let cost = cost(rate.unit(), mails);
        if self.bucket.take(rate, clock, cost) {
            return true;
        }
        let wait = self.bucket.wait_for(rate, clock, cost);
        self.waits_until = Some(now + wait + WAIT_MARGIN);
        false
    }
}

/// The highest cost of a request with more than one mail: what the bucket can hold.
pub(super) fn max_batch_cost(rate: Option<Rate>) -> u32 {
    rate.map_or(u32::MAX, Rate::burst)
}

/// What one more mail adds to the cost of its request.
pub(super) fn added_cost(rate: Option<Rate>, mail: &Mail) -> u32 {
    rate.map_or(0, |rate| match rate.unit() {
        Unit::Requests => 0,
        unit => cost(unit, [mail]),
    })
}

/// Limits the number of mails to hold to about what the rate lets through in a second, and at least two requests.
pub(super) fn limit_held(rate: Option<Rate>, batch_limit: usize, target: usize) -> usize {
    rate.map_or(target, |rate| {
        let burst = usize::try_from(rate.burst()).unwrap_or(usize::MAX);
        let mails = match rate.unit() {
            Unit::Requests => burst.max(2).saturating_mul(batch_limit),
            Unit::Messages | Unit::Recipients => burst.max(2 * burst.min(batch_limit)),
        };
        target.min(mails)
    })
}

fn nanoseconds(time: Time) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1)
}

/// The cost of one request with these mails, in the unit of the rate.
fn cost<'m>(unit: Unit, mails: impl IntoIterator<Item = &'m Mail>) -> u32 {
    let recipients = |mail: &Mail| {
        let message = &mail.message;
        (message.recipients.len() + message.cc.len() + message.bcc.len()).max(1)
    };
    let count: usize = match unit {
        Unit::Requests => 1,
        Unit::Messages => mails.into_iter().count(),
        Unit::Recipients => mails.into_iter().map(recipients).sum(),
    };
    u32::try_from(count).unwrap_or(u32::MAX)
}
