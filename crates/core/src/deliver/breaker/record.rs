//! What the result of one message changes in the circuit breaker, and what is to be done with the message.

use std::time::Duration;

use super::suspects::Earlier;
use super::{
    CircuitBreaker, Disposition, FIRST_THROTTLE, LONGEST_AFTER, LONGEST_PAUSE,
    LONGEST_REFUSAL_PAUSE, LONGEST_THROTTLE, MAX_FAILED, MAX_FAILED_UNPROVEN, MAX_FRUITLESS_WAITS,
    MAX_REFUSED, MAX_REJECTED, MAX_THROTTLE_DOUBLINGS, MAX_THROTTLED, MAX_UNREACHABLE, Origin,
    THROTTLE_LOG_INTERVAL, doubled,
};
use crate::deliver::Time;
use crate::deliver::events::LogEvent;
use crate::transport::providers::MessageOutcome;

impl CircuitBreaker {
    /// Records the outcome of a message.
    pub fn record(&mut self, now: Time, of: Origin, outcome: &MessageOutcome) -> Disposition {
        // Whether the request was sent before a pause or a change of the configuration.
        let is_outdated = of.request < self.evidence_from && !self.is_paused();
        let was_sent = !matches!(
            outcome,
            MessageOutcome::NoConnection { .. }
                | MessageOutcome::NotSent { .. }
                | MessageOutcome::EndpointDenied { .. }
        );
        if was_sent && of.request >= self.evidence_from {
            self.same_probe = None;
        }
        match outcome {
            MessageOutcome::Throttled { .. }
            | MessageOutcome::AccountRefused { .. }
            | MessageOutcome::Refused { .. }
            | MessageOutcome::SendAlone { .. }
                if is_outdated =>
            {
                Disposition::Release
            }
            MessageOutcome::Retry { .. }
            | MessageOutcome::NotSent { .. }
            | MessageOutcome::NoConnection { .. }
            | MessageOutcome::Ambiguous { .. }
                if is_outdated =>
            {
                Disposition::Settle
            }
            MessageOutcome::Sent { .. } => self.note_accepted(now, of),
            MessageOutcome::NotProvider { reason } => self.note_not_provider(now, of, reason),
            MessageOutcome::Retry { reason, after } => self.note_failed(now, of, reason, *after),
            MessageOutcome::NotSent { reason } => self.note_failed(now, of, reason, None),
            MessageOutcome::Ambiguous { reason } => {
                // It may have been sent: that counts in each state.
                self.note_failed(now, of, reason, None);
                Disposition::Settle
            }
            MessageOutcome::NoConnection { reason } => {
                self.unreachable += usize::from(of.id == of.leader);
                self.note_failed(now, of, reason, None)
            }
            MessageOutcome::Throttled { reason, after } => {
                self.note_throttled(now, of, reason, *after)
            }
            MessageOutcome::AccountRefused { reason } => self.note_account_refused(now, of, reason),
            MessageOutcome::Refused { reason } | MessageOutcome::SendAlone { reason } => {
                self.note_message_refused(now, of, reason)
            }
            MessageOutcome::EndpointDenied { reason } => {
                self.pause_after(now, of, reason, LONGEST_REFUSAL_PAUSE)
            }
            // These show nothing about the transport.
            MessageOutcome::RecipientRefused { .. }
            | MessageOutcome::Unsendable { .. }
            | MessageOutcome::KeyUsed { .. } => Disposition::End,
            MessageOutcome::RecipientDeferred { .. } | MessageOutcome::Abandoned => {
                Disposition::Settle
            }
        }
    }

    fn note_accepted(&mut self, now: Time, of: Origin) -> Disposition {
        self.suspects.remove(of.id);
        self.unproven_since.take_if(|since| of.request > *since);
        self.forget_failures();
        self.throttled_for_long = None;
        self.suspects.accepted = self.suspects.accepted.max(of.request);
        if of.request >= self.clears_refusals_from {
            self.refused.clear();
        }
        if let Some(since) = self.paused_since() {
            // A request from before the pause shows nothing about the transport as it is now.
            if of.request < self.evidence_from {
                return Disposition::Settle;
            }
            self.pause = None;
            self.refused.clear();
            self.suspects.probed.clear();
            let paused_for = now.saturating_sub(since);
            self.changes.push(LogEvent::Resumed(paused_for));
            self.throttled_since = None;
        }
        if self.throttle.is_none()
            && of.request >= self.first_after_throttle
            && let Some(since) = self.throttled_since.take()
        {
            let throttled_for = now.saturating_sub(since);
            self.changes.push(LogEvent::Resumed(throttled_for));
        }
        self.pauses = 0;
        // Counts requests, so only the leader.
        if of.id == of.leader {
            // One at a time, so that the wait comes near to the one that the provider needs.
            self.throttles = self.throttles.saturating_sub(1);
            self.accepted += 1;
        }
        if self.accepted >= self.concurrency {
            self.accepted = 0;
            self.concurrency = self.max_concurrency.min(self.concurrency + 1);
        }
        Disposition::Settle
    }

    /// A status of success without the provider's sign. The message may have been accepted: if the provider answered before,
    /// the attempt counts as ambiguous; otherwise the next probes show it.
    fn note_not_provider(&mut self, now: Time, of: Origin, reason: &str) -> Disposition {
        let was_unproven = self.unproven_since.is_some_and(|since| of.request > since);
        // Not for a request from before a pause or a change of the configuration.
        if of.request >= self.evidence_from {
            self.unproven_since.get_or_insert(self.latest);
            self.suspects.add_probed(of.id, of.request);
            self.pause_after(now, of, reason, LONGEST_REFUSAL_PAUSE);
        }
        if was_unproven {
            self.same_probe = Some(of.leader);
            Disposition::Release
        } else {
            Disposition::Settle
        }
    }

    /// A message got no further. The attempt counts unless the transport is paused.
    fn note_failed(
        &mut self,
        now: Time,
        of: Origin,
        reason: &str,
        after: Option<Duration>,
    ) -> Disposition {
        let is_paused = self.is_paused();
        if is_paused {
            self.suspects.add_probed(of.id, of.request);
        }
        if self.is_long_wait_believed(of, after) {
            return self.pause_for_long(now, of, reason);
        }
        if is_paused {
            return self.pause_after(now, of, reason, LONGEST_PAUSE);
        }
        if of.id == of.leader {
            self.failures += 1;
            self.failed.insert(of.leader);
        }
        let limit = if self.unproven_since.is_some() {
            MAX_FAILED_UNPROVEN
        } else {
            MAX_FAILED
        };
        let is_transport = self.failures >= limit && self.failed.len() > 1;
        if is_transport || self.unreachable >= MAX_UNREACHABLE {
            return self.pause_after(now, of, reason, LONGEST_PAUSE);
        }
        Disposition::Settle
    }

    fn note_throttled(
        &mut self,
        now: Time,
        of: Origin,
        reason: &str,
        after: Option<Duration>,
    ) -> Disposition {
        // Only the first request after a wait is evidence against its own messages; a later one may be throttled because
        // of earlier requests.
        let is_evidence = self.is_paused() || of.request == self.first_after_throttle;
        let limit = MAX_THROTTLED + u32::from(!is_evidence);
        let is_at_fault = self.suspects.is_at_fault(of.id, limit);
        self.throttled_last = of.leader;
        if is_evidence {
            self.suspects.add(of.id, self.latest);
        }
        let is_paused = self.is_paused();
        if self.is_long_wait_believed(of, after) && (is_paused || !is_at_fault) {
            return self.pause_for_long(now, of, reason);
        }
        let named = after.filter(|after| *after <= LONGEST_THROTTLE);
        if is_paused {
            return self.pause_for_throttle(now, of, reason, named);
        }
        if is_at_fault && of.is_single {
            return Disposition::Settle;
        }
        self.throttled.insert(of.leader);
        if self.throttle.is_none() {
            self.fruitless_waits += 1;
            if self.fruitless_waits >= MAX_FRUITLESS_WAITS && self.throttled.len() > 1 {
                return self.pause_for_throttle(now, of, reason, named);
            }
            // Once for all requests that were in flight at the same time.
            self.concurrency = (self.concurrency / 2).max(1);
            self.accepted = 0;
            self.throttles = (self.throttles + 1).min(MAX_THROTTLE_DOUBLINGS);
        }
        let own = doubled(FIRST_THROTTLE, self.throttles, LONGEST_PAUSE);
        let wait = named.unwrap_or(own).max(FIRST_THROTTLE);
        let until = now.saturating_add(wait);
        let logged_at = self.throttle_logged_at;
        if logged_at.is_none_or(|at| now.saturating_sub(at) >= THROTTLE_LOG_INTERVAL) {
            let change = LogEvent::Throttled(reason.to_owned(), wait);
            self.changes.push(change);
            self.throttle_logged_at = Some(now);
            self.throttled_since.get_or_insert(now);
        }
        let (known, _) = self
            .throttle
            .get_or_insert_with(|| (until, reason.to_owned()));
        *known = until.max(*known);
        if is_at_fault {
            Disposition::SendAlone
        } else {
            Disposition::Release
        }
    }

    /// Whether two different messages in a row were answered with a time that is too long for one message to be believed.
    fn is_long_wait_believed(&mut self, of: Origin, after: Option<Duration>) -> bool {
        after.is_some_and(|after| after > LONGEST_THROTTLE)
            && matches!(self.throttled_for_long.replace(of.leader), Some(other) if other != of.leader)
    }

    /// Pauses for the maximum time at once.
    fn pause_for_long(&mut self, now: Time, of: Origin, reason: &str) -> Disposition {
        if of.request >= self.evidence_from {
            self.pauses = LONGEST_AFTER;
        }
        self.pause_after(now, of, reason, LONGEST_REFUSAL_PAUSE)
    }

    /// Pauses because of a throttle. The next probe is not sent before the time that the provider named, unless urgent mail
    /// has it sent at once.
    fn pause_for_throttle(
        &mut self,
        now: Time,
        of: Origin,
        reason: &str,
        named: Option<Duration>,
    ) -> Disposition {
        if of.request >= self.evidence_from {
            self.pause_for(now, reason, LONGEST_PAUSE, named);
        }
        Disposition::Release
    }

    fn note_account_refused(&mut self, now: Time, of: Origin, reason: &str) -> Disposition {
        let is_at_fault = self.suspects.is_at_fault(of.id, 1);
        self.suspects.add(of.id, self.latest);
        if self.is_paused() {
            if of.request >= self.evidence_from {
                self.refused.insert(of.leader);
            }
            return self.pause_after(now, of, reason, self.longest_refusal_pause());
        }
        if self.refused.is_empty() {
            // Requests that are in flight now may have been processed before the refusal.
            self.clears_refusals_from = self.latest.saturating_add(1);
        }
        self.refused.insert(of.leader);
        reason.clone_into(&mut self.refusal);
        if self.refused.len() >= MAX_REFUSED {
            self.attribute_refusals(now);
        } else if is_at_fault {
            return Disposition::Settle;
        }
        Disposition::Release
    }

    fn note_message_refused(&mut self, now: Time, of: Origin, reason: &str) -> Disposition {
        let is_paused = self.is_paused();
        let earlier = self.suspects.add_rejected(of.id, self.latest, is_paused);
        if is_paused {
            return self.pause_after(now, of, reason, LONGEST_REFUSAL_PAUSE);
        }
        if earlier == Earlier::Fault {
            return Disposition::End;
        }
        if !of.is_beside_accepted {
            self.rejections += 1;
            if self.rejections >= MAX_REJECTED {
                self.suspects.doubt_rejections();
                return self.pause_after(now, of, reason, LONGEST_REFUSAL_PAUSE);
            }
        }
        match earlier {
            Earlier::Nothing => Disposition::Settle,
            _ => Disposition::End,
        }
    }

    /// Pauses, or extends the pause, unless the request was sent before it. No attempt counts.
    fn pause_after(&mut self, now: Time, of: Origin, why: &str, longest: Duration) -> Disposition {
        if of.request >= self.evidence_from {
            self.pause_for(now, why, longest, None);
        }
        Disposition::Release
    }
}
