//! How a held mail is put among the settlements without a response, and how batches are split.

use std::sync::Arc;

use super::state::Deliverer;
use crate::deliver::Time;
use crate::deliver::mail::Mail;
use crate::deliver::settlements::{Ambiguity, FailedAttempt};

impl Deliverer {
    /// Ends a mail as an error. It was taken out of the queue.
    pub(super) fn end(&mut self, mail: Mail, reason: String, status: Option<u16>) {
        self.failure_log.add(&reason);
        let attempt = FailedAttempt {
            permanent: true,
            status,
            ..FailedAttempt::new(reason)
        };
        self.settlements.failed(mail.claim(), attempt);
        self.queue.finish(&mail);
    }

    /// Ends a mail that may have been sent, and that cannot be repeated safely. The queue does not know it.
    fn end_ambiguous(&mut self, mail: &Mail, reason: &str) {
        self.failure_log.add(reason);
        let attempt = FailedAttempt {
            permanent: true,
            ambiguity: Ambiguity::InBatch,
            ..FailedAttempt::new(reason.to_owned())
        };
        self.settlements.failed(mail.claim(), attempt);
    }

    /// Ends a mail that [`Self::is_unrepeatable`]. It was taken out of the queue.
    pub(super) fn end_unrepeatable(&mut self, mail: &Mail) {
        self.queue.finish(mail);
        let reason = "may have been sent: so long ago that the provider may not know it again";
        self.end_ambiguous(mail, reason);
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
            self.end(mail, reason, None);
        } else {
            self.queue.finish(&mail);
        }
    }

    /// Releases a mail that was taken out of the queue.
    pub(super) fn release(&mut self, mail: &Mail) {
        self.claim_wanted = true;
        self.settlements.released(mail.claim());
        self.queue.finish(mail);
    }

    /// Releases all held mails that are neither in flight nor settled.
    pub(super) fn release_waiting(&mut self) {
        let mut waiting = self.queue.retain(|_| false);
        waiting.extend(self.retry_batches.take_where(|_| true));
        for mail in waiting {
            self.claim_wanted = true;
            self.settlements.released(mail.claim());
        }
    }

    /// Splits the batches whose other mails have not been claimed again in time.
    pub(super) fn split_expired_batches(&mut self, now: Time) {
        let mails = self.retry_batches.take_expired(now);
        self.split(mails);
    }

    /// Splits the batches for which the predicate is true.
    pub(super) fn split_batches(&mut self, is_split: impl Fn(&[Mail]) -> bool) {
        let mails = self.retry_batches.take_where(is_split);
        self.split(mails);
    }

    /// Puts the mails of a split batch into the queue one by one. Each of them may have been sent.
    pub(super) fn split(&mut self, mails: Vec<Mail>) {
        for mut mail in mails {
            mail.ambiguous_alone = false;
            if mail.ambiguous_attempts > self.max_ambiguous() {
                let reason = "may have been sent: with others, which cannot be sent again with it";
                self.end_ambiguous(&mail, reason);
            } else {
                self.queue.put(mail);
            }
        }
    }
}
