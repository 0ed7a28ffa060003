//! What a deliverer does with the result of a request: each of its mails is settled, or goes back to the queue.

use std::sync::Arc;
use std::time::Duration;

use super::claims::SETTLE_AT;
use super::state::Deliverer;
use crate::deliver::Time;
use crate::deliver::breaker::{Disposition, FIRST_PAUSE, LONGEST_THROTTLE, Origin};
use crate::deliver::events::RequestResult;
use crate::deliver::mail::Mail;
use crate::deliver::retry_batches::{batch_key, is_repeated};
use crate::deliver::settlements::{Ambiguity, FailedAttempt};
use crate::transport::delivered::Refused;
use crate::transport::providers::MessageOutcome;

/// How long a settlement waits for others: an exchange with the database has a fixed cost.
const SETTLE_DELAY: Duration = Duration::from_millis(5);
/// The same while [`SETTLE_AT`] mails or more are sent in 100 ms.
const BUSY_SETTLE_DELAY: Duration = Duration::from_millis(20);

/// How long a mail that may have arrived waits for an event of the provider, at most.
const EVENT_PATIENCE: Duration = Duration::from_secs(60);

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
    /// Refused recipients of the only mail; it went to the others.
    refused: Vec<Refused>,
}

impl EndedRequest {
    /// The attempt of one of its mails. If `batch` is set, no mail of it ends.
    fn failed_attempt(&self, reason: String) -> FailedAttempt {
        FailedAttempt {
            status: self.status,
            batch: self.batch.clone(),
            ..FailedAttempt::new(reason)
        }
    }

    /// Whether each recipient of a mail with this outcome was refused for its mailbox.
    fn refuses_mailboxes(&self, outcome: &MessageOutcome) -> bool {
        let is_permanent = matches!(
            outcome,
            MessageOutcome::RecipientRefused {
                is_permanent: true,
                ..
            }
        );
        is_permanent && self.refused.iter().all(|one| one.is_permanent)
    }
}

/// If the provider knows the idempotency key, it has accepted this mail in an earlier attempt, if one may have arrived: the
/// contents have changed since, as after a change of the template.
fn with_known_key((mail, outcome): (Mail, MessageOutcome)) -> (Mail, MessageOutcome) {
    match outcome {
        MessageOutcome::KeyUsed { .. } if mail.may_have_arrived => {
            (mail, MessageOutcome::Sent { provider_id: None })
        }
        outcome => (mail, outcome),
    }
}

impl Deliverer {
    /// Applies the result of a request.
    pub(super) fn note_request_done(&mut self, now: Time, number: u64, result: RequestResult) {
        let Some(mails) = self.requests.remove(&number) else {
            return;
        };
        let (count, is_retry) = (mails.len(), is_repeated(&mails));
        self.throughput.add(now, count);
        let outcomes = result.outcomes.into_iter();
        let outcomes = outcomes.chain(std::iter::repeat(MessageOutcome::Abandoned));
        let mut results: Vec<_> = Arc::unwrap_or_clone(mails)
            .into_iter()
            .zip(outcomes)
            .map(with_known_key)
            .collect();
        for (dropped, _) in results.extract_if(.., |(mail, _)| !self.held.contains(mail)) {
            self.queue.finish(&dropped);
        }
        let is_whole = results.len() == count;
        if let Some((first, _)) = results.first() {
            let mut request = EndedRequest {
                number,
                leader: first.message.id,
                is_single: count == 1,
                is_retry: is_retry && is_whole,
                batch: None,
                status: result.status,
                refused: result.refused,
            };
            if is_whole && self.is_to_be_repeated(now, &request, &results) {
                let mails = results.iter().map(|(mail, _)| mail);
                request.batch = self.account().map(|account| batch_key(account, mails));
            }
            self.adapt_batch_limit(count, &results);
            self.settle_request(now, &request, results);
        }
        // Has an effect only if it was a probe that has shown nothing: another one follows.
        self.breaker.end_probe(number, now + FIRST_PAUSE);
        if !self.settlements.is_empty() {
            let is_busy = self.throughput.recent >= SETTLE_AT;
            let delay = if is_busy {
                BUSY_SETTLE_DELAY
            } else {
                SETTLE_DELAY
            };
            self.settle_at.get_or_insert(now + delay);
        }
    }

    /// Whether a batch is to be repeated with exactly these mails: the provider may have accepted it, has said nothing
    /// definite about any of them, and recognizes it then.
    fn is_to_be_repeated(
        &self,
        now: Time,
        request: &EndedRequest,
        results: &[(Mail, MessageOutcome)],
    ) -> bool {
        let is_repeatable = |(mail, outcome): &(Mail, MessageOutcome)| {
            let is_undecided = match outcome {
                MessageOutcome::Ambiguous { .. }
                | MessageOutcome::Abandoned
                | MessageOutcome::NotProvider { .. }
                | MessageOutcome::Retry { .. } => true,
                MessageOutcome::Throttled { .. }
                | MessageOutcome::AccountRefused { .. }
                | MessageOutcome::NoConnection { .. }
                | MessageOutcome::NotSent { .. }
                | MessageOutcome::EndpointDenied { .. } => request.is_retry,
                // The others say something definite.
                _ => false,
            };
            is_undecided && self.held.is_in_force(mail) && !self.may_be_forgotten(mail, now)
        };
        !request.is_single
            && self.is_recognized(request.number)
            && results.iter().all(is_repeatable)
    }

    /// A batch that may have been sent was perhaps too large: the next ones have half as many mails. With each one that is
    /// accepted they grow again.
    fn adapt_batch_limit(&mut self, count: usize, results: &[(Mail, MessageOutcome)]) {
        let all = |is: fn(&MessageOutcome) -> bool| results.iter().all(|(_, outcome)| is(outcome));
        if count > 1 && all(MessageOutcome::is_ambiguous) {
            self.max_batch = Some(count / 2);
        } else if let Some(limit) = self.max_batch
            && count >= limit
            && all(|one| matches!(one, MessageOutcome::Sent { .. }))
        {
            self.max_batch = Some(2 * limit);
        }
    }

    /// Settles the mails of a request, or puts them back.
    fn settle_request(
        &mut self,
        now: Time,
        request: &EndedRequest,
        mut results: Vec<(Mail, MessageOutcome)>,
    ) {
        // Requests with one mail each show whether the account, one mail or the batch call is refused.
        let is_refused_as_a_whole = !request.is_retry
            && !self.breaker.is_paused()
            && request
                .status
                .is_some_and(|status| !(200..300).contains(&status))
            && results
                .iter()
                .all(|(_, outcome)| matches!(outcome, MessageOutcome::AccountRefused { .. }));
        // The accepted ones first, because they tell what refusals in the same response mean.
        let is_refused = |(_, outcome): &(_, _)| !matches!(outcome, MessageOutcome::Sent { .. });
        results.sort_by_key(is_refused);
        let is_beside_accepted = results.first().is_some_and(|first| !is_refused(first));
        let mut uncounted = Vec::new();
        for (mut mail, outcome) in results {
            let origin = Origin {
                id: mail.message.id,
                leader: request.leader,
                request: request.number,
                is_single: request.is_single,
                is_beside_accepted,
            };
            let is_split =
                is_refused_as_a_whole || matches!(outcome, MessageOutcome::SendAlone { .. });
            if is_split && !request.is_single {
                // It was refused perhaps because of another mail.
                mail.alone = true;
                self.put_back(vec![mail], false);
                // If it was the probe, one of them follows alone and at once: released, they would only be claimed, and
                // refused, together again.
                self.breaker.end_probe(request.number, now);
            } else {
                uncounted.extend(self.note_outcome(now, mail, request, origin, outcome));
            }
        }
        self.put_back(uncounted, request.is_retry);
    }

    /// Puts mails back whose attempt does not count. A repeated batch stays together. A mail whose claim was lost is
    /// released: another deliverer may have it. So is a mail that may have expired.
    fn put_back(&mut self, mails: Vec<Mail>, is_retry: bool) {
        let is_batch = is_retry && mails.len() > 1;
        let count = mails.len();
        let mut kept = Vec::with_capacity(count);
        for mail in mails {
            if self.held.is_in_force(&mail) && !self.has_unknown_age(&mail) {
                kept.push(mail);
            } else {
                self.queue.finish(&mail);
                self.release(&mail);
            }
        }
        if !is_batch {
            for mail in kept {
                self.queue.put_back(mail);
            }
        } else if kept.len() == count {
            self.retry_batches.complete.push(kept);
        } else {
            self.split(kept);
        }
    }

    /// Settles a mail by its outcome. Returns it if the attempt does not count.
    fn note_outcome(
        &mut self,
        now: Time,
        mut mail: Mail,
        request: &EndedRequest,
        origin: Origin,
        outcome: MessageOutcome,
    ) -> Option<Mail> {
        let mut disposition = self.breaker.record(now, origin, &outcome);
        if request.batch.is_some() && matches!(outcome, MessageOutcome::Retry { .. }) {
            // The provider recognizes the batch only if it is repeated as a whole, which the row has to say.
            disposition = Disposition::Settle;
        }
        let reason = outcome.reason().to_owned();
        match (disposition, outcome) {
            (Disposition::Release, _) => return Some(mail),
            (Disposition::SendAlone, _) => {
                mail.alone = true;
                return Some(mail);
            }
            (Disposition::Settle, MessageOutcome::Sent { provider_id }) => {
                self.settlements
                    .sent(mail.claim(), provider_id, &request.refused);
                self.queue.finish(&mail);
            }
            (Disposition::Settle, outcome)
                if outcome.is_ambiguous()
                    || matches!(outcome, MessageOutcome::NotProvider { .. }) =>
            {
                self.note_ambiguous(now, &mail, request, &reason);
            }
            (disposition, outcome) => {
                let mut attempt = request.failed_attempt(reason);
                attempt.permanent = disposition == Disposition::End;
                // Of a redirected mail, it is not the recipient who was refused.
                attempt.recipient_refused = request.refuses_mailboxes(&outcome)
                    && mail.message.original_recipients.is_empty()
                    && self.breaker.blames_mailbox(request.number);
                if let MessageOutcome::Retry { after, .. }
                | MessageOutcome::Throttled { after, .. } = outcome
                {
                    // A longer wait is the transport's, which believes it from two messages.
                    attempt.retry_after = after.map(|after| after.min(LONGEST_THROTTLE));
                }
                self.fail(&mail, attempt);
            }
        }
        None
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
        // A provider that recognizes a repeated request does not recognize one mail of a batch.
        let (ambiguity, in_batch) = if request.is_single {
            (Ambiguity::Alone, "")
        } else {
            (Ambiguity::InBatch, "with others: ")
        };
        let attempt = FailedAttempt {
            permanent: !is_recognized && mail.ambiguous_attempts >= self.max_ambiguous(),
            ambiguity,
            retry_after: (!is_recognized && self.has_events()).then(|| wait_for_event(mail, now)),
            ..request.failed_attempt(format!("may have been sent: {in_batch}{reason}"))
        };
        self.fail(mail, attempt);
    }
}

/// How long a mail that may have arrived waits for an event that tells, before it is sent again.
fn wait_for_event(mail: &Mail, now: Time) -> Duration {
    let since_claim = now.saturating_sub(mail.claimed_at);
    let left = mail
        .expires_in
        .map(|after| after.saturating_sub(since_claim));
    left.map_or(EVENT_PATIENCE, |left| EVENT_PATIENCE.min(left / 3))
}
