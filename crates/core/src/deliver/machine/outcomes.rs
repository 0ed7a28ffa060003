//! What a deliverer does with the result of a request: each of its mails is settled, or goes back to the queue.

use std::sync::Arc;

use super::state::{Deliverer, InFlightRequest};
use crate::deliver::Time;
use crate::deliver::breaker::{Disposition, Signal};
use crate::deliver::events::RequestOutcome;
use crate::deliver::mail::Mail;
use crate::deliver::retry_batches::batch_key;
use crate::deliver::settlements::{Ambiguity, FailedAttempt};
use crate::transport::delivered::Refused;
use crate::transport::providers::MessageOutcome;

/// A request that has ended, as far as each of its mails depends on it.
struct EndedRequest {
    number: u64,
    /// `outbox.id` of its first mail. The circuit breaker counts a request once, under this id.
    leader: i64,
    /// Whether it had one mail only.
    is_single: bool,
    /// Whether exactly these mails were in one request before.
    is_retry: bool,
    /// The key of the batch, if it is to be repeated with exactly these mails.
    batch: Option<String>,
    /// Status code of the response.
    status: Option<u16>,
    /// Refused recipients of the only mail; it goes to the others.
    refused: Vec<Refused>,
}

impl Deliverer {
    /// Applies the result of a request.
    pub(super) fn note_request_done(
        &mut self,
        now: Time,
        number: u64,
        outcome: RequestOutcome,
        status: Option<u16>,
    ) {
        let Some(in_flight) = self.requests.remove(&number) else {
            return;
        };
        let InFlightRequest {
            mails,
            is_retry,
            refused,
        } = in_flight;
        let mails = Arc::unwrap_or_clone(mails);
        let count = mails.len();
        self.throughput.add(now, count);
        let (mails, outcome) = self.without_dropped(mails, outcome);
        let is_whole = mails.len() == count;
        let Some(first) = mails.first() else {
            // Its mails were unsendable, so a probe has shown nothing: another one follows.
            return self.breaker.note_unsent(now, number);
        };
        let mut request = EndedRequest {
            number,
            leader: first.message.id,
            is_single: count == 1,
            is_retry: is_retry && is_whole,
            batch: None,
            status,
            refused,
        };
        let is_repeatable =
            |mail: &Mail| self.held.is_in_force(mail) && !self.may_be_forgotten(mail, now);
        if !request.is_single
            && is_whole
            && self.is_recognized(number)
            && is_batch_undecided(&outcome, is_retry)
            && mails.iter().all(is_repeatable)
        {
            let key = |account: &str| batch_key(account, mails.iter());
            request.batch = self.account().map(key);
        }
        self.adapt_batch_limit(count, &outcome);
        self.settle_request(now, &request, mails, outcome);
        // Has an effect only if it was a probe that has shown nothing: another one follows.
        self.breaker.note_unsent(now, number);
        if !self.settlements.is_empty() {
            self.settle_at.get_or_insert(now + self.settle_delay());
        }
    }

    /// A batch that may have been sent was perhaps too large: the next ones have half as many mails. With each one that is
    /// accepted they grow again.
    fn adapt_batch_limit(&mut self, count: usize, outcome: &RequestOutcome) {
        let all = |is: fn(&MessageOutcome) -> bool| match outcome {
            RequestOutcome::Completed(outcomes) => outcomes.iter().all(is),
            _ => false,
        };
        let is_ambiguous = matches!(outcome, RequestOutcome::Abandoned)
            || all(|one| matches!(one, MessageOutcome::Ambiguous { .. }));
        let is_accepted = all(|one| matches!(one, MessageOutcome::Sent { .. }));
        if is_ambiguous && count > 1 {
            self.max_batch = Some(count / 2);
        } else if let Some(limit) = self
            .max_batch
            .filter(|limit| is_accepted && count >= *limit)
        {
            self.max_batch = Some(2 * limit);
        }
    }

    /// Settles the mails of a request, or puts them back.
    fn settle_request(
        &mut self,
        now: Time,
        request: &EndedRequest,
        mails: Vec<Mail>,
        outcome: RequestOutcome,
    ) {
        match outcome {
            RequestOutcome::Abandoned => {
                for mail in mails {
                    let reason = "given up before there was a response";
                    self.note_ambiguous(now, &mail, request, reason);
                }
            }
            RequestOutcome::EndpointDenied(reason) => {
                self.note_unsent(now, request, mails, &reason, Signal::Denied);
            }
            RequestOutcome::NoConnection(reason) => {
                self.note_unsent(now, request, mails, &reason, Signal::Unreachable);
            }
            RequestOutcome::NotSent(reason) => {
                self.note_unsent(now, request, mails, &reason, Signal::Failed);
            }
            RequestOutcome::Completed(outcomes) => {
                self.note_outcomes(now, request, mails, outcomes);
            }
        }
    }

    /// Removes the mails that were dropped while the request was in flight, and their outcomes.
    fn without_dropped(
        &mut self,
        mails: Vec<Mail>,
        outcome: RequestOutcome,
    ) -> (Vec<Mail>, RequestOutcome) {
        if mails.iter().all(|mail| self.held.contains(mail)) {
            return (mails, outcome);
        }
        let is_kept: Vec<bool> = mails.iter().map(|mail| self.held.contains(mail)).collect();
        for (mail, _) in mails.iter().zip(&is_kept).filter(|(_, kept)| !**kept) {
            self.queue.finish(mail);
        }
        let outcome = match outcome {
            RequestOutcome::Completed(outcomes) => {
                RequestOutcome::Completed(only(outcomes, &is_kept))
            }
            other => other,
        };
        (only(mails, &is_kept), outcome)
    }

    /// No mail of the request was sent.
    fn note_unsent(
        &mut self,
        now: Time,
        request: &EndedRequest,
        mails: Vec<Mail>,
        reason: &str,
        signal: fn(String) -> Signal,
    ) {
        let mut uncounted = Vec::new();
        for mail in mails {
            match self.signal(now, &mail, request, signal(reason.to_owned())) {
                Disposition::Release => uncounted.push(mail),
                _ => self.fail(&mail, request, FailedAttempt::new(reason.to_owned())),
            }
        }
        self.put_back(uncounted, request.is_retry);
    }

    /// Puts mails back whose attempt does not count. A repeated batch stays together. A mail whose claim was lost is
    /// released: another deliverer may have it. So is a mail that may have expired.
    fn put_back(&mut self, mails: Vec<Mail>, is_retry: bool) {
        let is_batch = is_retry && mails.len() > 1;
        let (mut kept, mut lost) = (Vec::with_capacity(mails.len()), Vec::new());
        for mail in mails {
            let is_kept = self.held.is_in_force(&mail) && !self.has_unknown_age(&mail);
            if is_kept { &mut kept } else { &mut lost }.push(mail);
        }
        for mail in &lost {
            self.release(mail);
        }
        if !is_batch {
            for mail in kept {
                self.queue.put_back(mail);
            }
        } else if lost.is_empty() {
            self.retry_batches.push(kept);
        } else {
            self.split(kept);
        }
    }

    fn note_outcomes(
        &mut self,
        now: Time,
        request: &EndedRequest,
        mails: Vec<Mail>,
        outcomes: Vec<MessageOutcome>,
    ) {
        let is_refused_as_a_whole = !request.is_single
            && !request.is_retry
            && !self.breaker.is_paused()
            && request
                .status
                .is_some_and(|status| !(200..300).contains(&status))
            && outcomes
                .iter()
                .all(|outcome| matches!(outcome, MessageOutcome::AccountRefused { .. }));
        if is_refused_as_a_whole {
            // Requests with one mail each show whether the account, one mail or the batch call is refused.
            for mail in mails {
                self.send_alone(mail);
            }
            return;
        }
        let mut uncounted = Vec::new();
        for (mail, outcome) in mails.into_iter().zip(outcomes) {
            match outcome {
                MessageOutcome::SendAlone { .. } if !request.is_single => {
                    self.send_alone(mail);
                    self.breaker.note_split(now, request.number);
                }
                outcome => uncounted.extend(self.note_outcome(now, mail, request, outcome)),
            }
        }
        self.put_back(uncounted, request.is_retry);
    }

    /// Puts a mail back that was refused in a batch, perhaps because of another mail: its next request has no other mail.
    fn send_alone(&mut self, mut mail: Mail) {
        mail.alone = true;
        self.put_back(vec![mail], false);
    }

    /// Settles a mail by its outcome. Returns it if the attempt does not count.
    fn note_outcome(
        &mut self,
        now: Time,
        mail: Mail,
        request: &EndedRequest,
        outcome: MessageOutcome,
    ) -> Option<Mail> {
        let Some(signal) = signal_of(&outcome) else {
            let reason = outcome.reason().to_owned();
            match outcome {
                MessageOutcome::RecipientDeferred { .. } => {
                    self.fail(&mail, request, FailedAttempt::new(reason));
                }
                _ => self.end(mail, reason, request.status),
            }
            return None;
        };
        let mut disposition = self.signal(now, &mail, request, signal);
        if request.batch.is_some() && matches!(outcome, MessageOutcome::Retry { .. }) {
            // The provider recognizes the batch only if it is repeated as a whole, which the row has to say.
            disposition = Disposition::Settle;
        }
        match disposition {
            Disposition::Release => return Some(mail),
            Disposition::End => self.end(mail, outcome.reason().to_owned(), request.status),
            Disposition::Settle | Disposition::CountAttempt => match outcome {
                MessageOutcome::Sent { provider_id } => {
                    self.settlements
                        .sent(mail.claim(), provider_id, &request.refused);
                    self.queue.finish(&mail);
                }
                MessageOutcome::Ambiguous { reason } => {
                    self.note_ambiguous(now, &mail, request, &reason);
                }
                MessageOutcome::Retry { reason, after }
                | MessageOutcome::Throttled { reason, after } => {
                    let attempt = FailedAttempt {
                        retry_after: after,
                        ..FailedAttempt::new(reason)
                    };
                    self.fail(&mail, request, attempt);
                }
                MessageOutcome::Refused { reason }
                | MessageOutcome::RecipientRefused { reason }
                | MessageOutcome::RecipientDeferred { reason }
                | MessageOutcome::SendAlone { reason }
                | MessageOutcome::AccountRefused { reason } => {
                    self.fail(&mail, request, FailedAttempt::new(reason));
                }
            },
        }
        None
    }

    fn signal(
        &mut self,
        now: Time,
        mail: &Mail,
        request: &EndedRequest,
        signal: Signal,
    ) -> Disposition {
        let id = mail.message.id;
        self.breaker
            .record(now, id, request.leader, request.number, signal)
    }

    /// Whether the provider recognizes a repetition of this request.
    fn is_recognized(&self, request: u64) -> bool {
        request > self.last_request_to_old_account && self.is_idempotent()
    }

    /// Counts an attempt that may have sent the mail. It ends if it may not be repeated.
    fn note_ambiguous(&mut self, now: Time, mail: &Mail, request: &EndedRequest, reason: &str) {
        self.ambiguous_count += 1;
        let is_recognized = request.batch.is_some()
            || request.is_single
                && self.is_recognized(request.number)
                && !self.may_be_forgotten(mail, now);
        let is_last = !is_recognized && mail.ambiguous_attempts >= self.max_ambiguous();
        // A provider that recognizes a repeated request does not recognize one mail of a batch.
        let (ambiguity, in_batch) = if request.is_single {
            (Ambiguity::Alone, "")
        } else {
            (Ambiguity::InBatch, "with others: ")
        };
        let attempt = FailedAttempt {
            permanent: is_last,
            ambiguity,
            ..FailedAttempt::new(format!("may have been sent: {in_batch}{reason}"))
        };
        self.fail(mail, request, attempt);
    }

    /// Settles a failed attempt.
    fn fail(&mut self, mail: &Mail, request: &EndedRequest, attempt: FailedAttempt) {
        if attempt.permanent || mail.message.is_last_attempt {
            self.failure_log.add(&attempt.reason);
        }
        let attempt = FailedAttempt {
            status: request.status,
            batch: request.batch.clone().filter(|_| !attempt.permanent),
            ..attempt
        };
        self.settlements.failed(mail.claim(), attempt);
        self.queue.finish(mail);
    }
}

/// The items that are kept.
fn only<T>(all: Vec<T>, is_kept: &[bool]) -> Vec<T> {
    let kept = all.into_iter().zip(is_kept).filter(|(_, kept)| **kept);
    kept.map(|(item, _)| item).collect()
}

/// Whether a batch is to be repeated with exactly these mails: the provider may have accepted it, and has said nothing
/// definite about any of them.
fn is_batch_undecided(outcome: &RequestOutcome, is_retry: bool) -> bool {
    match outcome {
        RequestOutcome::Abandoned => true,
        RequestOutcome::NoConnection(_)
        | RequestOutcome::NotSent(_)
        | RequestOutcome::EndpointDenied(_) => is_retry,
        RequestOutcome::Completed(outcomes) => outcomes.iter().all(|outcome| match outcome {
            MessageOutcome::Ambiguous { .. } | MessageOutcome::Retry { .. } => true,
            MessageOutcome::Throttled { .. } | MessageOutcome::AccountRefused { .. } => is_retry,
            MessageOutcome::Sent { .. }
            | MessageOutcome::Refused { .. }
            | MessageOutcome::RecipientRefused { .. }
            | MessageOutcome::RecipientDeferred { .. }
            | MessageOutcome::SendAlone { .. } => false,
        }),
    }
}

/// What the outcome of one mail means for the transport; `None` if nothing.
fn signal_of(outcome: &MessageOutcome) -> Option<Signal> {
    Some(match outcome {
        MessageOutcome::Sent { .. } => Signal::Accepted,
        MessageOutcome::RecipientRefused { .. } | MessageOutcome::RecipientDeferred { .. } => {
            return None;
        }
        MessageOutcome::Refused { reason } | MessageOutcome::SendAlone { reason } => {
            Signal::MessageRefused(reason.clone())
        }
        MessageOutcome::Retry { reason, .. } => Signal::Failed(reason.clone()),
        MessageOutcome::Ambiguous { reason } => Signal::Ambiguous(reason.clone()),
        MessageOutcome::Throttled { reason, after } => Signal::Throttled(reason.clone(), *after),
        MessageOutcome::AccountRefused { reason } => Signal::AccountRefused(reason.clone()),
    })
}
