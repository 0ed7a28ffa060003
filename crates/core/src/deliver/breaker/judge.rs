//! What each sign makes of a circuit breaker, and of the message that it came from.

use std::time::Duration;

use super::{
    Breaker, Disposal, FIRST_BREATH, LONGEST_BREATH, LONGEST_REFUSAL, News, PATIENCE, REFUSED,
    REJECTED, State, UNANSWERED, doubled,
};
use crate::deliver::Time;

impl Breaker {
    pub(super) fn works(&mut self, now: Time, id: i64, witness: i64, request: u64) -> Disposal {
        self.suspects.clear(id);
        self.unanswered.clear();
        self.rejected.clear();
        self.silenced.clear();
        if request >= self.doubted {
            self.suspects.note_passed();
            self.refused.clear();
        }
        if let State::Paused { since, .. } = self.state {
            // What was handed over before the pause tells of the time before.
            if request < self.fresh_from {
                return Disposal::Settle;
            }
            self.state = State::Open;
            self.refused.clear();
            self.news.push(News::Resumed(now.saturating_sub(since)));
        }
        self.pauses = 0;
        self.breaths = 0;
        // The window is one of requests.
        if self.window < self.full && id == witness {
            self.credit += 1;
            if self.credit >= self.window {
                self.credit = 0;
                self.window += 1;
                self.is_throttle_told &= self.window < self.full;
            }
        }
        Disposal::Settle
    }

    /// `spared`: what becomes of it while the transport is paused.
    pub(super) fn fails(
        &mut self,
        now: Time,
        witness: i64,
        request: u64,
        reason: &str,
        spared: Disposal,
    ) -> Disposal {
        if self.is_paused() {
            if request >= self.fresh_from {
                self.pause(now, reason);
            }
            return spared;
        }
        self.unanswered.insert(witness);
        if self.unanswered.len() >= UNANSWERED {
            self.pause(now, reason);
            return spared;
        }
        Disposal::Settle
    }

    pub(super) fn throttles(
        &mut self,
        now: Time,
        id: i64,
        request: u64,
        reason: String,
        after: Option<Duration>,
    ) -> Disposal {
        let charged = self.suspects.accuse(id, PATIENCE);
        let is_long = after.is_some_and(|after| after > LONGEST_BREATH);
        if is_long {
            self.silenced.insert(id);
        }
        let is_believed = is_long && self.silenced.len() > 1;
        if self.is_paused() {
            if request >= self.fresh_from {
                self.pause_long(now, &reason, is_believed);
            }
            return Disposal::Release;
        }
        if charged {
            return Disposal::Charge;
        }
        if is_believed {
            self.pause_long(now, &reason, true);
            return Disposal::Release;
        }
        let fresh = matches!(self.state, State::Open);
        if fresh {
            // Once for all that were under way together.
            self.window = (self.window / 2).max(1);
            self.credit = 0;
            self.breaths = self.breaths.saturating_add(1);
        }
        let own = doubled(FIRST_BREATH, self.breaths, LONGEST_BREATH);
        let wait = after
            .filter(|_| !is_long)
            .unwrap_or(own)
            .max(own.min(FIRST_BREATH));
        let until = now.saturating_add(wait);
        if !std::mem::replace(&mut self.is_throttle_told, true) {
            self.news.push(News::Throttled(reason.clone(), until));
        }
        match &mut self.state {
            State::Throttled { until: known, .. } => *known = (*known).max(until),
            state => *state = State::Throttled { until, reason },
        }
        Disposal::Release
    }

    pub(super) fn refuses(
        &mut self,
        now: Time,
        id: i64,
        witness: i64,
        request: u64,
        reason: String,
    ) -> Disposal {
        let charged = self.suspects.accuse(id, 1);
        if self.is_paused() {
            if request >= self.fresh_from {
                self.refused.insert(witness);
                self.pause_for(now, &reason, self.longest());
            }
            return Disposal::Release;
        }
        if charged {
            return Disposal::Charge;
        }
        if self.refused.is_empty() {
            // What was under way by then may tell of the time before.
            self.doubted = self.latest.saturating_add(1);
        }
        self.refused.insert(witness);
        self.refusal = reason;
        if self.refused.len() >= REFUSED {
            self.end_doubt(now);
        }
        Disposal::Release
    }

    pub(super) fn rejects(&mut self, now: Time, id: i64, request: u64, reason: &str) -> Disposal {
        let was_rejected = self.suspects.reject(id);
        if self.is_paused() {
            if request >= self.fresh_from {
                self.pause_for(now, reason, LONGEST_REFUSAL);
            }
            return Disposal::Release;
        }
        if was_rejected {
            return Disposal::End;
        }
        self.rejected.insert(id);
        if self.rejected.len() >= REJECTED {
            self.pause_for(now, reason, LONGEST_REFUSAL);
            return Disposal::Release;
        }
        Disposal::Charge
    }
}
