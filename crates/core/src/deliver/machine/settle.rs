//! How a held mail is put among the settlements without a response, and how batches are split.

use std::collections::HashSet;
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

    /// Releases all held mails that are neither in flight nor settled.
    pub(super) fn release_waiting(&mut self) {
        let mut waiting = self.queue.retain(|_| false);
        waiting.extend(self.retry_batches.take_where(|_| true));
        waiting.iter().for_each(|mail| self.release(mail));
    }

    /// Splits the batches for which the predicate is true.
    pub(super) fn split_batches(&mut self, is_split: impl Fn(&[Mail]) -> bool) {
        let mails = self.retry_batches.take_where(is_split);
        self.split(mails);
    }

    /// Ends the wait for the rest of the batches that are not complete. Each is split, but released once if the rest could not be
    /// claimed, to be claimed together later.
    pub(super) fn end_collecting(&mut self, now: Time) {
        let mut mails = self.retry_batches.take_expired(now);
        if !mails.is_empty() && !self.may_claim(now) {
            let keys: HashSet<String> =
                mails.iter().filter_map(|mail| mail.batch.clone()).collect();
            let again: HashSet<String> = keys
                .into_iter()
                .filter(|key| self.retry_batches.may_wait_again(key))
                .collect();
            let is_again = |mail: &Mail| mail.batch.as_ref().is_some_and(|key| again.contains(key));
            for mail in mails.extract_if(.., |mail| is_again(mail)) {
                self.release(&mail);
            }
        }
        for key in mails.iter().filter_map(|mail| mail.batch.as_ref()) {
            self.retry_batches.forget_released(key);
        }
        self.split(mails);
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
