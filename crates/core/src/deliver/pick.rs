//! Which mails go next, and together.

use super::machine::Deliverer;
use super::mail::Mail;
use super::{Now, Time};

/// Among so many times the usual number a probe is chosen at most.
const CANDIDATES_MOST: usize = 64;

impl Deliverer {
    /// The mails of the next request that may go by the rate, and whether they went together before.
    pub(super) fn next_mails(&mut self, now: Now) -> Option<(Vec<Mail>, bool)> {
        self.part_forgotten(now.wall);
        if !self.breaker.is_doubtful()
            && let Some(mails) = self.again.pop()
        {
            return self.admit_whole(now.at, mails).map(|mails| (mails, true));
        }
        let Some(first) = self.next_mail(now) else {
            self.end_doubt(now.at);
            return None;
        };
        let batch = self.batch_limit();
        let mut weight = self.weight(&first);
        let mut mails = vec![first];
        while mails.len() < batch
            && let Some(next) = self.queue.first()
            && self.may_share(&mails[0], next)
            && !next.is_late(now.wall)
            && !self.is_spent(next, now.wall)
            && let together = weight.saturating_add(self.weight(next))
            && together <= self.heaviest()
        {
            weight = together;
            mails.extend(self.queue.pop());
        }
        self.admit(now.at, mails).map(|mails| (mails, false))
    }

    /// While it is not known whose fault it is that mails are refused, only others are sent. Without any, in flight or to
    /// be claimed, it is the transport's.
    fn end_doubt(&mut self, now: Time) {
        let has_refused = !self.queue.is_empty() || !self.again.is_empty();
        if has_refused
            && self.breaker.is_doubtful()
            && self.flights.is_empty()
            && !self.exchanging
            && self.appetite(now).is_none()
        {
            self.breaker.end_doubt(now);
        }
    }

    /// The next one, of those that were not refused or throttled before if there are such: one alone holds up no other.
    fn next_mail(&mut self, now: Now) -> Option<Mail> {
        loop {
            let mail = self.take_next()?;
            if mail.is_late(now.wall) {
                // The next claim ends it, with the reason.
                self.release(mail);
            } else if self.is_spent(&mail, now.wall) {
                self.end_spent(mail);
            } else {
                return Some(mail);
            }
        }
    }

    fn take_next(&mut self) -> Option<Mail> {
        if !self.breaker.has_suspects() {
            return self.queue.pop();
        }
        let breaker = &self.breaker;
        let fresh = self.queue.take(|mail| !breaker.is_suspect(mail.message.id));
        let is_doubtful = breaker.is_doubtful() && !breaker.is_paused();
        fresh.or_else(|| if is_doubtful { None } else { self.queue.pop() })
    }

    /// What to try a paused transport with: a fresh mail, or what may have arrived if there is nothing else.
    pub(super) fn next_probe(&mut self, now: Now) -> Option<(Vec<Mail>, bool)> {
        self.part_forgotten(now.wall);
        let next = self.next_mail(now);
        let is_fresh = |mail: &Mail| !self.breaker.is_suspect(mail.message.id);
        // Behind those that were sent before there may be others.
        self.candidates = match &next {
            Some(mail) if is_fresh(mail) => 1,
            _ => (self.candidates * 2).min(CANDIDATES_MOST),
        };
        if let Some(mail) = next {
            return self.admit(now.at, vec![mail]).map(|mails| (mails, false));
        }
        let mails = self.again.pop()?;
        self.admit_whole(now.at, mails).map(|mails| (mails, true))
    }

    /// Whether they may be in one request. What may have arrived is known again only if it goes as it went: alone.
    fn may_share(&self, first: &Mail, next: &Mail) -> bool {
        let Some(limits) = &self.limits else {
            return false;
        };
        let provider = &limits.capabilities;
        let is_bound = |mail: &Mail| {
            mail.alone
                || mail.group_key.is_some() && provider.is_idempotent()
                || provider.is_idempotent() && mail.ambiguous_attempts > 0 && mail.ambiguous_alone
        };
        // So that what is to be sent again together is due, and claimed, together.
        let is_near = !provider.is_idempotent() || first.priority == next.priority;
        is_near
            && !is_bound(first)
            && !is_bound(next)
            && !self.breaker.is_suspect(next.message.id)
            && provider.may_share(&first.message, &next.message)
    }

    pub(super) fn batch_limit(&self) -> usize {
        let limits = self.limits.as_ref();
        limits.map_or(1, |limits| limits.capabilities.batch_limit().max(1))
    }
}
