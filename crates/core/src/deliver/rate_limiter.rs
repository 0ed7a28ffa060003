//! How mail waits for the rate limit of the provider.

use std::time::Duration;

use super::Time;
use super::mail::Mail;
use super::token_bucket::TokenBucket;
use crate::transport::rate::{Rate, Unit};

/// Added to each wait, because a wait that ends before the bucket has filled is useless.
const WAIT_MARGIN: Duration = Duration::from_millis(1);

/// The token bucket of one transport, and the time until which its mail waits.
#[derive(Default)]
pub(super) struct RateLimiter {
    bucket: TokenBucket,
    /// Until when mail waits, if it does.
    pub(super) waits_until: Option<Time>,
}

impl RateLimiter {
    /// Whether mail waits now.
    pub(super) fn is_waiting(&self, now: Time) -> bool {
        self.waits_until.is_some_and(|until| now < until)
    }

    /// Whether a request with these mails may be sent now. Otherwise they wait until the bucket holds as much: for a second
    /// at most, since no request of several mails costs more than the burst, or for one unit; and for what an earlier mail
    /// of more recipients than the burst still owes.
    pub(super) fn admits(&mut self, rate: Option<Rate>, now: Time, mails: &[Mail]) -> bool {
        self.waits_until = None;
        let Some(rate) = rate else {
            return true;
        };
        let added = mails.iter().map(|mail| added_cost(Some(rate), mail));
        let cost = added.fold(0, u32::saturating_add).max(1);
        if self.bucket.take(rate, now, cost) {
            return true;
        }
        let wait = self.bucket.wait_for(rate, now, cost);
        self.waits_until = Some(now + wait + WAIT_MARGIN);
        false
    }
}

/// What a mail adds to the cost of its request, which is at least 1, in the unit of the rate.
pub(super) fn added_cost(rate: Option<Rate>, mail: &Mail) -> u32 {
    let message = &mail.message;
    let count = match rate.map(Rate::unit) {
        None | Some(Unit::Requests) => 0,
        Some(Unit::Messages) => 1,
        Some(Unit::Recipients) => {
            (message.recipients.len() + message.cc.len() + message.bcc.len()).max(1)
        }
    };
    u32::try_from(count).unwrap_or(u32::MAX)
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
