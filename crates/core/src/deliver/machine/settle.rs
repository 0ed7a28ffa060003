//! How a held mail is put among the settlements without a response, and how batches are split.

use std::sync::Arc;

use super::state::Deliverer;
use crate::deliver::Time;
use crate::deliver::mail::Mail;
use crate::deliver::settlements::{Ambiguity, FailedAttempt, FailedMail};

impl Deliverer {
    /// Settles a failed attempt of a mail that is not in the queue. What a fallback cannot carry does not end but goes back,
    /// as mailroom_mark_error_many decides.
    pub(super) fn fail(&mut self, mail: &Mail, attempt: FailedAttempt) {
        let was_not_sent = attempt.status.is_none() && !attempt.is_ambiguous();
        let returns = mail.fell_back && attempt.permanent && was_not_sent;
        if (attempt.permanent || mail.ends_as_error) && !returns {
            self.failure_log.add(&attempt.reason);
        }
        let claim = mail.claim();
        self.settlements.failed.push(FailedMail { claim, attempt });
        self.queue.finish(mail);
    }

    /// Ends a mail that may have been sent, and that cannot be repeated safely. It is not in the queue.
    pub(super) fn end_ambiguous(&mut self, mail: &Mail, reason: &str) {
        let attempt = FailedAttempt {
            ambiguity: Ambiguity::InBatch,
            ..FailedAttempt::permanent(format!("may have been sent: {reason}"))
        };
        self.fail(mail, attempt);
    }

    /// Takes a mail that cannot be expressed as a request out of its request, and ends it.
    pub(super) fn end_unsendable(&mut self, request: u64, id: i64, reason: String) {
        let Some(mails) = self.requests.get_mut(&request) else {
            return;
        };
        let mails = Arc::make_mut(mails);
        let Some(index) = mails.iter().position(|mail| mail.message.id == id) else {
            return;
        };
        let mail = mails.remove(index);
        if self.held.contains(&mail) {
            self.fail(&mail, FailedAttempt::permanent(reason));
        } else {
            self.queue.finish(&mail);
        }
    }

    /// Releases a mail that is not in the queue.
    pub(super) fn release(&mut self, mail: &Mail) {
        self.claim_wanted = true;
        self.settlements.released.push(mail.claim());
    }

    /// Releases the held mails that are neither in flight nor settled, for the time of a pause. The mail that each probe
    /// repeats stays claimed: more urgent mail would be claimed before it, and it must not go to a fallback.
    pub(super) fn release_waiting_in_pause(&mut self) {
        self.release_waiting(self.breaker.same_probe());
    }

    /// Releases all held mails that are neither in flight nor settled, except this one, or its batch.
    pub(super) fn release_waiting(&mut self, kept: Option<i64>) {
        let mut waiting = self.queue.retain(|mail| Some(mail.message.id) == kept);
        let is_kept = |mails: &[Mail]| mails.iter().any(|mail| Some(mail.message.id) == kept);
        waiting.extend(self.retry_batches.take_where(|mails| !is_kept(mails)));
        waiting.iter().for_each(|mail| self.release(mail));
    }

    /// Splits the batches for which the predicate is true.
    pub(super) fn split_batches(&mut self, is_split: impl Fn(&[Mail]) -> bool) {
        let mails = self.retry_batches.take_where(is_split);
        self.split(mails);
    }

    /// Ends the wait for the rest of the batches that have waited for too long.
    pub(super) fn end_batch_waits(&mut self, now: Time) {
        if self.retry_batches.expires_at().is_none_or(|at| now < at) {
            return;
        }
        let may_claim = self.may_claim(now);
        let (to_split, to_release) = self.retry_batches.take_expired(now, may_claim);
        to_release.iter().for_each(|mail| self.release(mail));
        self.split(to_split);
    }

    /// Puts the mails of a split batch into the queue one by one. Each of them may have been sent.
    pub(super) fn split(&mut self, mails: Vec<Mail>) {
        for mut mail in mails {
            mail.ambiguous_alone = false;
            if mail.ambiguous_attempts > self.max_ambiguous() {
                self.end_ambiguous(&mail, "with others, which cannot be sent again with it");
            } else {
                self.queue.put(mail);
            }
        }
    }
}
