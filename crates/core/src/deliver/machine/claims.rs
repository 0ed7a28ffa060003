//! What a deliverer claims, and when it settles.

use std::collections::HashSet;

use super::state::Deliverer;
use crate::deliver::Time;
use crate::deliver::breaker::SendPermit;
use crate::deliver::events::Action;
use crate::deliver::exchange::{BudgetState, ClaimLimit, ExchangeResult};
use crate::deliver::mail::Mail;
use crate::deliver::rate_limiter;
use crate::deliver::settlements::Settlements;

/// At this number, settlements no longer wait for others.
pub(super) const SETTLE_AT: usize = 512;
/// Number of full sets of concurrent requests for which mail is held.
const PREFETCH: usize = 2;
/// The maximum number of held mails that a claim aims at.
const MAX_HELD: usize = 2_048;
/// The maximum number of mails in one claim, which keeps the transaction short.
const MAX_CLAIM: usize = 512;
/// The maximum total size of held mails in bytes, unless one mail is larger.
const MAX_HELD_BYTES: usize = 32 << 20;
/// The size of a mail in bytes that the first claim expects; later ones expect that of the latest claim. The server sends
/// all that is claimed before its size is looked at.
const FIRST_MAIL_SIZE: usize = 256 << 10;
/// Number of mails that are claimed to choose a probe from.
const PROBE_CANDIDATES: usize = 8;
/// Number of mails that are claimed in spite of a full queue when one of them is urgent.
const URGENT_CLAIM: usize = 16;

impl Deliverer {
    /// Starts an exchange if there is something to settle or to claim, and none is running.
    pub(super) fn start_exchange(&mut self, now: Time, actions: &mut Vec<Action>) {
        if self.exchange_is_running || now < self.exchange_retry_at {
            return;
        }
        let claim = self.claim_limit(now);
        if claim.is_none() && self.next_settle().is_none_or(|at| now < at) {
            return;
        }
        if self.repeat_at <= now {
            self.settlements.extend(std::mem::take(&mut self.refused));
        }
        let held = &self.held;
        self.settlements.update_attempts(|id| held.attempts(id));
        self.settle_at = None;
        self.claim_is_urgent &= claim.is_none();
        self.exchange_is_running = true;
        self.exchange_time.began = now;
        actions.push(Action::Exchange {
            settlements: Box::new(std::mem::take(&mut self.settlements)),
            claim,
        });
    }

    /// When there is something to settle.
    pub(super) fn next_settle(&self) -> Option<Time> {
        let is_delayed = !self.requests.is_empty() && self.settlements.len() < SETTLE_AT;
        let settle_at = self.settle_at.filter(|_| is_delayed).unwrap_or_default();
        let settle_at = (!self.settlements.is_empty()).then_some(settle_at);
        let repeat_at = (!self.refused.is_empty()).then_some(self.repeat_at);
        let at = settle_at.into_iter().chain(repeat_at).min()?;
        (!self.exchange_is_running).then(|| at.max(self.exchange_retry_at))
    }

    /// How much to claim now, if anything.
    pub(super) fn claim_limit(&mut self, now: Time) -> Option<ClaimLimit> {
        if self.is_halted || !self.claim_wanted || self.config.is_none() {
            return None;
        }
        let mut mails = match self.breaker.permit(now) {
            SendPermit::Requests(concurrency) => {
                let target = self.held_target(concurrency);
                self.free_places(target)
                    .or_else(|| self.urgent_places(target))?
            }
            // With a configuration that was just read.
            SendPermit::Probe
                if self.queue.is_empty()
                    && self.config_is_fresh
                    && !self.rate_limiter.is_waiting(now) =>
            {
                PROBE_CANDIDATES << self.probe_doublings
            }
            SendPermit::Probe | SendPermit::WaitUntil(_) | SendPermit::ProbeInFlight => {
                return None;
            }
        };
        let bytes = MAX_HELD_BYTES.saturating_sub(self.held.bytes).max(1);
        let mail_size = self.mail_size.unwrap_or(FIRST_MAIL_SIZE).max(1);
        // A paused transport needs mails of any size to choose a probe from: the first one may be what is refused.
        if !self.breaker.is_paused() {
            mails = mails.min(bytes / mail_size).max(1);
        }
        Some(ClaimLimit {
            mails: u32::try_from(mails).unwrap_or(u32::MAX),
            bytes,
            check_budgets: self.check_budgets,
        })
    }

    /// Whether more mails would be claimed if there were any.
    pub(super) fn may_claim(&mut self, now: Time) -> bool {
        match self.breaker.permit(now) {
            _ if now < self.exchange_retry_at => false,
            SendPermit::Requests(concurrency) => {
                let target = self.held_target(concurrency);
                self.free_places(target).is_some()
            }
            SendPermit::WaitUntil(_) => false,
            SendPermit::Probe | SendPermit::ProbeInFlight => true,
        }
    }

    /// How many mails to hold at this number of concurrent requests.
    fn held_target(&self, concurrency: usize) -> usize {
        let target = concurrency
            .saturating_mul(PREFETCH)
            .saturating_mul(self.batch_limit())
            .max(self.throughput.within(self.exchange_time.prefetch()))
            .min(MAX_HELD);
        rate_limiter::limit_held(self.rate(), self.batch_limit(), target)
    }

    /// How many more mails to claim in spite of a full queue because one of them is urgent.
    fn urgent_places(&self, target: usize) -> Option<usize> {
        let free = (target + URGENT_CLAIM).saturating_sub(self.held.len());
        (self.claim_is_urgent && free > 0).then_some(free.min(URGENT_CLAIM))
    }

    /// How many more mails to hold; `None` if too few to be worth a claim.
    fn free_places(&self, target: usize) -> Option<usize> {
        let free = target.saturating_sub(self.held.len());
        let is_worth_it = free >= target.div_ceil(4) && self.held.bytes < MAX_HELD_BYTES;
        is_worth_it.then_some(free.min(MAX_CLAIM))
    }

    /// Applies the result of an exchange.
    pub(super) fn note_exchanged(&mut self, now: Time, result: ExchangeResult) {
        self.exchange_is_running = false;
        self.exchange_time.end(now);
        self.exchange_retry_at = now.saturating_add(result.retry_after);
        if !result.retry_after.is_zero() {
            // The next exchange settles them first.
            let newer = std::mem::replace(&mut self.settlements, result.repeated);
            self.settlements.extend(newer);
        } else if !result.repeated.is_empty() {
            self.refused.extend(result.repeated);
            self.repeat_at = now.saturating_add(result.repeat_after);
        }
        self.drop_settled(result.settled, &result.lost, result.unsettled);
        let Some((limit, claimed)) = result.claimed else {
            return;
        };
        let size: usize = claimed.mails.iter().map(|mail| mail.size).sum();
        self.mail_size = size.checked_div(claimed.mails.len()).or(self.mail_size);
        let count = claimed.mails.len() + claimed.surplus;
        self.claim_wanted = count >= limit.mails as usize || claimed.surplus > 0;
        if let Some(budget) = claimed.budget {
            self.check_budgets = budget != BudgetState::Unlimited;
            self.claim_at = match budget {
                BudgetState::SpentFor(wait) => Some(now.saturating_add(wait)),
                BudgetState::Unlimited | BudgetState::Available => None,
            };
        }
        for mail in claimed.mails {
            self.take_in(now, mail);
        }
    }

    /// No longer holds what an exchange settled. An outcome that could not be settled is kept for a later claim of the
    /// same message: if it is sent, or has ended, it must not be sent again.
    fn drop_settled(&mut self, settled: Settlements, lost: &[i64], unsettled: Settlements) {
        let ids: Vec<i64> = settled.ids().chain(unsettled.ids()).copied().collect();
        if !lost.is_empty() {
            for one in settled.split() {
                if one.is_final() && one.ids().any(|id| lost.contains(id)) {
                    self.held.drop_late(one);
                }
            }
        }
        for one in unsettled.split() {
            if !one.sent.is_empty() {
                self.held.drop_late(one);
            }
        }
        for id in ids {
            self.held.remove(id);
        }
    }

    /// Holds a mail that was claimed.
    fn take_in(&mut self, now: Time, mut mail: Mail) {
        mail.claimed_at = self.exchange_time.began;
        if self.held.contains(&mail) {
            // Its lease had expired. It is settled with the new claim.
            self.held.insert(&mail);
            return self.queue.renew(mail);
        }
        self.forget(mail.message.id);
        self.held.insert(&mail);
        if let Some(outcome) = self.held.take_late(&mail) {
            return self.settlements.extend(outcome);
        }
        if self.has_unknown_age(&mail) {
            return self.release(&mail);
        }
        match mail.batch.clone().filter(|_| self.is_idempotent()) {
            Some(key) => {
                let config = self.config.as_ref();
                let account = config.map(|config| config.account.as_str());
                self.retry_batches.collect(now, key, account, mail);
            }
            None => self.queue.put(mail),
        }
    }

    /// Drops the waiting mails whose claims are no longer valid; those in flight are dropped when their requests end,
    /// unless they have been claimed again by then. The claims are released: the database may only have found the rows
    /// locked.
    pub(super) fn drop_lost(&mut self, in_force: &HashSet<i64>) {
        let is_lost = |mail: &Mail| !in_force.contains(&mail.message.id);
        self.held.lose_others(in_force);
        self.split_batches(|mails| mails.iter().any(is_lost));
        for mail in self.queue.retain(|mail| !is_lost(mail)) {
            self.release(&mail);
        }
    }

    /// Drops the mail with this id, if one is held, because its database now has another one. Nothing is settled for it any
    /// more; if it is in flight, its response will be ignored.
    fn forget(&mut self, id: i64) {
        if self.held.remove(id).is_none() {
            return;
        }
        let has_id = |mail: &Mail| mail.message.id == id;
        self.split_batches(|mails| mails.iter().any(has_id));
        self.queue.retain(|mail| !has_id(mail));
        self.settlements.remove(id);
        self.refused.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::deliver::events::Event;
    use crate::deliver::mail::Claim;

    #[test]
    fn what_could_not_be_settled_is_tried_again_when_it_is_time() {
        let mut deliverer = Deliverer::default();
        let mut repeated = Settlements::default();
        repeated.sent(Claim { id: 1, attempts: 0 }, None, &[]);
        let retry_at = Duration::from_secs(1);
        let failed = ExchangeResult {
            repeated,
            retry_after: retry_at,
            ..ExchangeResult::default()
        };
        let actions = deliverer.handle(Time::ZERO, Event::Exchanged(Box::new(failed)));
        assert!(actions.is_empty(), "not before");
        // Nothing else may ever happen.
        assert_eq!(deliverer.wake_at(), Some(retry_at));
        let actions = deliverer.handle(retry_at, Event::Tick);
        assert!(matches!(actions[..], [Action::Exchange { .. }]));
    }
}
