//! What the result of one message changes in the circuit breaker, and what is to be done with the message.

use std::time::Duration;

use super::{
    CircuitBreaker, Disposition, FIRST_THROTTLE, LONGEST_AFTER, LONGEST_REFUSAL_PAUSE,
    LONGEST_THROTTLE, MAX_FAILED, MAX_REFUSED, MAX_REJECTED, MAX_THROTTLED, MAX_UNREACHABLE,
    MIN_REJECTED, Signal, State, doubled,
};
use crate::deliver::Time;
use crate::deliver::events::LogEvent;

impl CircuitBreaker {
    /// Records the result of a message.
    ///
    /// `id` is its `outbox.id`, `leader` that of the first message of its request, `request` the number of the request. The
    /// messages of a request count once, under the leader, because they had one response.
    pub fn record(
        &mut self,
        now: Time,
        id: i64,
        leader: i64,
        request: u64,
        signal: Signal,
    ) -> Disposition {
        if request < self.evidence_from && !self.is_paused() {
            // The request was sent before a pause or a change of the configuration.
            match signal {
                Signal::Failed(_) | Signal::Ambiguous(_) | Signal::Unreachable(_) => {
                    return Disposition::Settle;
                }
                Signal::Throttled(..) | Signal::AccountRefused(_) | Signal::MessageRefused(_) => {
                    return Disposition::Release;
                }
                Signal::Accepted | Signal::Denied(_) => {}
            }
        }
        match signal {
            Signal::Accepted => self.note_accepted(now, id, leader, request),
            Signal::Failed(reason) => self.note_failed(now, id, leader, request, &reason),
            Signal::Ambiguous(reason) => {
                // It may have been sent: that counts in each state.
                self.note_failed(now, id, leader, request, &reason);
                Disposition::Settle
            }
            Signal::Unreachable(reason) => {
                if id == leader {
                    self.unreachable += 1;
                }
                self.note_failed(now, id, leader, request, &reason)
            }
            Signal::Throttled(reason, after) => {
                self.note_throttled(now, id, request, reason, after)
            }
            Signal::AccountRefused(reason) => {
                self.note_account_refused(now, id, leader, request, reason)
            }
            Signal::MessageRefused(reason) => self.note_message_refused(now, id, request, &reason),
            Signal::Denied(reason) => {
                if request >= self.evidence_from {
                    self.pause_for(now, &reason, LONGEST_REFUSAL_PAUSE);
                }
                Disposition::Release
            }
        }
    }

    fn note_accepted(&mut self, now: Time, id: i64, leader: i64, request: u64) -> Disposition {
        self.suspects.remove(id);
        self.forget_failures();
        self.throttled_for_long.clear();
        if request >= self.clears_refusals_from {
            self.suspects.next_epoch();
            self.refused.clear();
        }
        if let State::Paused { since, .. } = self.state {
            // A request from before the pause shows nothing about the transport as it is now.
            if request < self.evidence_from {
                return Disposition::Settle;
            }
            self.state = State::Sending;
            self.refused.clear();
            self.suspects.forget_probed();
            let paused_for = now.saturating_sub(since);
            self.changes.push(LogEvent::Resumed(paused_for));
        }
        self.pauses = 0;
        self.throttles = 0;
        // Counts requests, so only the leader.
        if self.concurrency < self.max_concurrency && id == leader {
            self.accepted += 1;
            if self.accepted >= self.concurrency {
                self.accepted = 0;
                self.concurrency += 1;
                self.is_throttle_reported &= self.concurrency < self.max_concurrency;
            }
        }
        Disposition::Settle
    }

    /// A message got no further. The attempt counts unless the transport is paused.
    fn note_failed(
        &mut self,
        now: Time,
        id: i64,
        leader: i64,
        request: u64,
        reason: &str,
    ) -> Disposition {
        if self.is_paused() {
            self.suspects.add_probed(id);
            if request >= self.evidence_from {
                self.pause(now, reason);
            }
            return Disposition::Release;
        }
        if id == leader {
            self.failures += 1;
            self.failed.insert(leader);
        }
        let is_transport = self.failures >= MAX_FAILED && self.failed.len() > 1;
        if is_transport || self.unreachable >= MAX_UNREACHABLE {
            self.pause(now, reason);
            return Disposition::Release;
        }
        Disposition::Settle
    }

    fn note_throttled(
        &mut self,
        now: Time,
        id: i64,
        request: u64,
        reason: String,
        after: Option<Duration>,
    ) -> Disposition {
        let is_at_fault = self.suspects.add(id, MAX_THROTTLED);
        let is_long = after.is_some_and(|after| after > LONGEST_THROTTLE);
        if is_long {
            self.throttled_for_long.insert(id);
        }
        let is_believed = is_long && self.throttled_for_long.len() > 1;
        if self.is_paused() {
            if request >= self.evidence_from {
                self.pause_for_throttle(now, &reason, is_believed);
            }
            return Disposition::Release;
        }
        if is_at_fault {
            return Disposition::CountAttempt;
        }
        if is_believed {
            self.pause_for_throttle(now, &reason, true);
            return Disposition::Release;
        }
        if matches!(self.state, State::Sending) {
            // Once for all requests that were in flight at the same time.
            self.concurrency = (self.concurrency / 2).max(1);
            self.accepted = 0;
            self.throttles = self.throttles.saturating_add(1);
        }
        let own = doubled(FIRST_THROTTLE, self.throttles, LONGEST_THROTTLE);
        let wait = after
            .filter(|_| !is_long)
            .unwrap_or(own)
            .max(own.min(FIRST_THROTTLE));
        let until = now.saturating_add(wait);
        if !std::mem::replace(&mut self.is_throttle_reported, true) {
            let change = LogEvent::Throttled(reason.clone(), wait);
            self.changes.push(change);
        }
        match &mut self.state {
            State::Throttled { until: known, .. } => *known = (*known).max(until),
            state => *state = State::Throttled { until, reason },
        }
        Disposition::Release
    }

    /// Pauses because the provider asks for a wait. If it is believed, the pause has its maximum length at once.
    fn pause_for_throttle(&mut self, now: Time, why: &str, is_believed: bool) {
        if is_believed {
            self.pauses = LONGEST_AFTER;
        }
        self.pause_for(now, why, LONGEST_REFUSAL_PAUSE);
    }

    fn note_account_refused(
        &mut self,
        now: Time,
        id: i64,
        leader: i64,
        request: u64,
        reason: String,
    ) -> Disposition {
        let is_at_fault = self.suspects.add(id, 1);
        if self.is_paused() {
            if request >= self.evidence_from {
                self.refused.insert(leader);
                self.pause_for(now, &reason, self.longest_refusal_pause());
            }
            return Disposition::Release;
        }
        if is_at_fault {
            return Disposition::CountAttempt;
        }
        if self.refused.is_empty() {
            // Requests that are in flight now may have been processed before the refusal.
            self.clears_refusals_from = self.latest.saturating_add(1);
        }
        self.refused.insert(leader);
        self.refusal = reason;
        if self.refused.len() >= MAX_REFUSED {
            self.attribute_refusals(now);
        }
        Disposition::Release
    }

    fn note_message_refused(
        &mut self,
        now: Time,
        id: i64,
        request: u64,
        reason: &str,
    ) -> Disposition {
        let was_refused = self.suspects.add_rejected(id);
        if self.is_paused() {
            if request >= self.evidence_from {
                self.pause_for(now, reason, LONGEST_REFUSAL_PAUSE);
            }
            return Disposition::Release;
        }
        if was_refused {
            return Disposition::End;
        }
        self.rejected.insert(id);
        self.rejections += 1;
        if self.rejections >= MAX_REJECTED && self.rejected.len() >= MIN_REJECTED {
            self.pause_for(now, reason, LONGEST_REFUSAL_PAUSE);
            return Disposition::Release;
        }
        Disposition::CountAttempt
    }
}
