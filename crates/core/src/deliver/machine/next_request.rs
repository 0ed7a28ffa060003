//! Which mails the next request contains.

use super::state::Deliverer;
use crate::deliver::Time;
use crate::deliver::mail::Mail;
use crate::deliver::rate_limiter::added_cost;
use crate::deliver::retry_batches::is_repeated;
use crate::deliver::settlements::FailedAttempt;

/// The maximum of [`Deliverer::probe_doublings`].
const MAX_PROBE_DOUBLINGS: u32 = 6;
/// The maximum total size in bytes of the large mails in flight, unless one mail is larger: each is in memory twice, since
/// its request has it in base64.
const MAX_BYTES_IN_FLIGHT: usize = 32 << 20;

impl Deliverer {
    /// The next request, if the rate admits one.
    pub(super) fn next_request(&mut self, now: Time) -> Option<Vec<Mail>> {
        self.split_unrepeatable_batches(now);
        let waiting = self.queue.first().map(|mail| mail.priority);
        let is_next = |batch: &[Mail]| {
            let first = &batch[0];
            waiting.is_none_or(|priority| {
                first.priority <= priority && !self.breaker.is_suspect(first.message.id)
            })
        };
        if !self.breaker.has_open_refusals()
            && let Some(mails) = self.retry_batches.take_next(is_next)
        {
            return self.admit(now, mails);
        }
        let Some(first) = self.next_mail(now) else {
            self.attribute_refusals(now);
            return None;
        };
        let max_batch = match self.breaker.unproven_since() {
            Some(_) => 1,
            None => self.max_batch.unwrap_or(usize::MAX),
        };
        let batch_limit = self.batch_limit().min(max_batch);
        let rate = self.rate();
        let mut cost = added_cost(rate, &first);
        let mut mails = vec![first];
        let has_room = self.has_room();
        while mails.len() < batch_limit
            && let Some(next) = self.queue.find(has_room)
            && self.may_share(&mails[0], next)
            && self.may_send(next)
            && !next.is_expired(now)
            && !self.is_unrepeatable(next, now)
            && let sum = cost.saturating_add(added_cost(rate, next))
            && rate.is_none_or(|rate| sum <= rate.burst())
        {
            cost = sum;
            mails.extend(self.queue.take(has_room));
        }
        self.admit(now, mails)
    }

    /// The probe of a paused transport: a mail that was not refused before, or else a batch that may have been sent.
    pub(super) fn next_probe(&mut self, now: Time) -> Option<Vec<Mail>> {
        self.split_unrepeatable_batches(now);
        let same = self.breaker.same_probe();
        let is_same = |mails: &[Mail]| mails.iter().any(|mail| Some(mail.message.id) == same);
        if let Some(mails) = self.retry_batches.take_next(is_same) {
            return self.admit(now, mails);
        }
        let next = self.next_mail(now);
        let is_suspect = |mail: &Mail| {
            let id = mail.message.id;
            self.breaker.is_suspect(id) && self.breaker.same_probe() != Some(id)
        };
        if next.as_ref().is_none_or(is_suspect) {
            // A larger claim may find a mail that was not refused before.
            self.probe_doublings = (self.probe_doublings + 1).min(MAX_PROBE_DOUBLINGS);
        }
        if let Some(mail) = next {
            return self.admit(now, vec![mail]);
        }
        let mails = self.retry_batches.take_next(|_| true)?;
        self.admit(now, mails)
    }

    /// Applies the rate to a request. If it does not admit it now, the mails go back: another request is formed then, with
    /// more urgent mail perhaps.
    fn admit(&mut self, now: Time, mails: Vec<Mail>) -> Option<Vec<Mail>> {
        if self.rate_limiter.admits(self.rate(), now, &mails) {
            return Some(mails);
        }
        if is_repeated(&mails) {
            self.retry_batches.complete.insert(0, mails);
        } else {
            mails.into_iter().for_each(|mail| self.queue.put_back(mail));
        }
        None
    }

    /// Attributes the latest refusals to the transport if no other mail can show whether the refused mails are at fault:
    /// none waits, none is in flight, and none is to be claimed.
    fn attribute_refusals(&mut self, now: Time) {
        let has_refused = !self.queue.is_empty() || !self.retry_batches.complete.is_empty();
        if has_refused
            && self.requests.is_empty()
            && !self.exchange_is_running
            && self.claim_limit(now).is_none()
        {
            self.breaker.attribute_refusals(now);
        }
    }

    /// Which of the waiting mails there is room for. A large mail waits until it fits beside the large ones in flight, and
    /// no other large one overtakes it; those that are not large do, and are bounded as held mails.
    fn has_room(&self) -> impl Fn(&Mail) -> bool + Copy + use<> {
        let mails = self.requests.values().flat_map(|mails| match &mails[..] {
            // A large mail is alone in its request.
            [only] if only.is_large() => Some(only.size),
            _ => None,
        });
        let in_flight = mails.fold(0, usize::saturating_add);
        let is_free = in_flight == 0 || self.breaker.is_paused();
        let fits = move |mail: &Mail| {
            is_free || in_flight.saturating_add(mail.size) <= MAX_BYTES_IN_FLIGHT
        };
        let are_large_taken = is_free || self.queue.find(Mail::is_large).is_none_or(fits);
        move |mail| !mail.is_large() || are_large_taken && fits(mail)
    }

    /// Takes the next mail that can be sent out of the queue, and ends or releases the others on the way. Prefers mails that
    /// were not refused or throttled before, so that a single such mail does not delay the others.
    fn next_mail(&mut self, now: Time) -> Option<Mail> {
        let only_others = self.breaker.has_open_refusals() && !self.breaker.is_paused();
        let has_room = self.has_room();
        loop {
            let breaker = &self.breaker;
            let is_other = |mail: &Mail| has_room(mail) && !breaker.is_suspect(mail.message.id);
            let is_same =
                |mail: &Mail| has_room(mail) && Some(mail.message.id) == breaker.same_probe();
            let mail = match self
                .queue
                .take(is_same)
                .or_else(|| self.queue.take(is_other))
            {
                None if only_others => None,
                // The first mail of a group keeps no other from being the probe.
                None if breaker.is_paused()
                    && let Some(later) = self.queue.take_later(is_other) =>
                {
                    Some(later)
                }
                // The one that was the probe longest ago, or never.
                None if breaker.is_paused() => self
                    .queue
                    .take_first_by(|mail| breaker.last_probe(mail.message.id)),
                None => self
                    .queue
                    .take(|mail| has_room(mail) && !breaker.was_throttled_last(mail.message.id))
                    .or_else(|| self.queue.take(has_room)),
                other => other,
            }?;
            if mail.is_expired(now) {
                // The next claim ends it, and records the reason.
                self.queue.finish(&mail);
                self.release(&mail);
            } else if self.is_unrepeatable(&mail, now) {
                let reason = "so long ago that the provider may not know it again";
                self.end_ambiguous(&mail, reason);
            } else if let Some(config) = &self.config
                && let Err(reason) = config.check(&mail.message)
            {
                self.fail(&mail, FailedAttempt::permanent(reason));
            } else {
                return Some(mail);
            }
        }
    }

    /// Whether the transport may send a mail. Otherwise it ends when it is the first one.
    fn may_send(&self, mail: &Mail) -> bool {
        let config = self.config.as_ref();
        config.is_some_and(|config| config.check(&mail.message).is_ok())
    }

    /// Whether two mails may be in one request. A mail with files is alone: batch calls lose them, or give them to all mails.
    /// A mail that may have been sent alone is recognized only if it is sent alone
    /// again.
    fn may_share(&self, first: &Mail, next: &Mail) -> bool {
        let is_idempotent = self.is_idempotent();
        let must_be_alone = |mail: &Mail| {
            let was_ambiguous = mail.ambiguous_attempts > 0 && mail.ambiguous_alone;
            mail.alone
                || mail.is_large()
                || !mail.message.attachments.is_empty()
                || is_idempotent && (mail.group_key.is_some() || was_ambiguous)
        };
        // A batch that is to be repeated must be due, and claimed, together.
        let has_same_priority = !is_idempotent || first.priority == next.priority;
        has_same_priority
            && !must_be_alone(first)
            && !must_be_alone(next)
            && !self.breaker.is_suspect(next.message.id)
            && self.config.as_ref().is_some_and(|config| {
                let provider = &config.capabilities;
                provider.may_share(&first.message, &next.message)
            })
    }
}
