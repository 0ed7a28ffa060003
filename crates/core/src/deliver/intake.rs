//! What a deliverer claims, holds and settles.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::breaker::Permit;
use super::events::Action;
use super::machine::Deliverer;
use super::mail::Mail;
use super::settlements::Settlements;
use super::{Time, mail::Claim};

/// How long an answer may wait for others to be settled with, when there are few and when there are many: an exchange
/// with the database has a price of its own.
const COMPANY: Duration = Duration::from_millis(5);
const CROWD: Duration = Duration::from_millis(20);
/// So many answers do not wait.
const FULL: usize = 512;
/// So many windows of mails are held, or what goes in [`Toll::span`] if that is more, and so many mails in all.
const AHEAD: usize = 2;
const HELD: usize = 2_048;
/// So many are claimed at a time, to keep the transaction short.
const CLAIM: usize = 512;
/// So many bytes of mail are held at most, or one mail.
const HELD_BYTES: usize = 32 << 20;
/// Among so many a probe is chosen.
const CANDIDATES: usize = 8;
/// So many are claimed although there is no room for them, when a person waits.
const URGENT: usize = 16;
/// More answers than this are not remembered for mail whose claim was lost.
const REMEMBERED: usize = 10_000;

/// How much is to be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appetite {
    /// Mails.
    pub mails: u32,
    /// Bytes; one mail is claimed even if it is larger.
    pub bytes: usize,
    /// There may be budgets, which bound every claim: they are asked when fewer mails come.
    pub budgeted: bool,
}

/// What the budgets say after a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// There is none.
    None,
    /// They have something left.
    Left,
    /// One of them is spent for so long.
    SpentFor(Duration),
}

/// What was claimed.
#[derive(Debug, Default)]
pub struct Claimed {
    /// In the order of claims.
    pub mails: Vec<Mail>,
    /// Mails for which there was no room were given back, and mails that cannot be read have ended.
    pub surplus: usize,
    /// What the budgets say, if they may be why there was no more.
    pub budget: Option<Budget>,
}

/// What came of an exchange.
#[derive(Default)]
pub struct Exchanged {
    /// What was told.
    pub settled: Settlements,
    /// Of these, the mails whose claim had been lost.
    pub lost: Vec<i64>,
    /// What cannot be told, because of these very mails.
    pub stuck: Settlements,
    /// What was claimed, for this appetite; `None` if nothing was to be.
    pub claimed: Option<(Appetite, Claimed)>,
}

/// A mail between its claim and its settle.
pub(super) struct Held {
    /// Of another database, or of this one restored from a dump, another mail may have the same id.
    message_id: String,
    attempts: i32,
    size: usize,
}

impl Deliverer {
    /// Has the database told, and claimed from, when that is due and possible.
    pub(super) fn exchange(&mut self, now: Time, actions: &mut Vec<Action>) {
        if self.exchanging || now < self.retry_at {
            return;
        }
        let appetite = self.appetite(now);
        if appetite.is_none() && !self.is_settle_due(now) {
            return;
        }
        let held = &self.held;
        self.settlements
            .renumber(|id| held.get(&id).map(|held| held.attempts));
        self.settle_at = None;
        self.urgent &= appetite.is_none();
        self.exchanging = true;
        self.toll.begin(now);
        actions.push(Action::Exchange {
            settlements: Box::new(std::mem::take(&mut self.settlements)),
            appetite,
        });
    }

    fn is_settle_due(&self, now: Time) -> bool {
        !self.settlements.is_empty()
            && (self.flights.is_empty()
                || self.settlements.len() >= FULL
                || self.settle_at.is_none_or(|at| at <= now))
    }

    /// How much to claim now.
    pub(super) fn appetite(&mut self, now: Time) -> Option<Appetite> {
        if !self.may_send() || !self.look || self.limits.is_none() {
            return None;
        }
        let mails = match self.breaker.permit(now) {
            Permit::Requests(window) => {
                let urgent = self.urgent.then_some(URGENT);
                self.room(window).or(urgent)?
            }
            Permit::Probe if self.queue.is_empty() && self.is_to_be_probed(now) => {
                CANDIDATES * self.candidates
            }
            Permit::Probe | Permit::Nothing(_) | Permit::Probing => return None,
        };
        let bytes = HELD_BYTES.saturating_sub(self.held_bytes).max(1);
        // What large mails have taught.
        let usual = self.held_bytes / self.held.len().max(1);
        let mails = mails.min(bytes / usual.max(1)).max(1);
        Some(Appetite {
            mails: u32::try_from(mails).unwrap_or(u32::MAX),
            bytes,
            budgeted: self.budgeted,
        })
    }

    /// How many mails to claim for so many requests at a time; `None` when they are not worth a claim.
    fn room(&self, window: usize) -> Option<usize> {
        let target = window
            .saturating_mul(AHEAD)
            .saturating_mul(self.batch_limit())
            .max(self.tempo.within(self.toll.span()))
            .min(HELD);
        let target = self.paced_target(target);
        let room = target.saturating_sub(self.held.len());
        let worth_it = room >= target.div_ceil(4) && self.held_bytes < HELD_BYTES;
        worth_it.then_some(room.min(CLAIM))
    }

    /// An exchange is over.
    pub(super) fn note_exchanged(&mut self, now: Time, exchanged: Exchanged) {
        self.exchanging = false;
        self.retry_at = Time::ZERO;
        self.toll.end(now);
        let Exchanged {
            settled,
            lost,
            stuck,
            claimed,
        } = exchanged;
        let mut dropped = HashMap::new();
        for &id in settled.ids().chain(stuck.ids()) {
            let held = self.drop_held(id);
            if !lost.is_empty() || !stuck.is_empty() {
                dropped.extend(held.map(|held| (id, held.message_id)));
            }
        }
        if !lost.is_empty() {
            for one in settled.singly() {
                if one.is_final() && one.ids().any(|id| lost.contains(id)) {
                    self.remember(one, &mut dropped);
                }
            }
        }
        for one in stuck.singly() {
            // If it was sent, it is not sent again: claimed again, it is only to be settled.
            if !one.sent.ids.is_empty() {
                self.remember(one, &mut dropped);
            }
        }
        let Some((appetite, claimed)) = claimed else {
            return;
        };
        let got = claimed.mails.len() + claimed.surplus;
        self.look = got >= appetite.mails as usize || claimed.surplus > 0;
        if let Some(budget) = claimed.budget {
            self.budgeted = budget != Budget::None;
            self.look_at = match budget {
                Budget::SpentFor(wait) => Some(now.saturating_add(wait)),
                Budget::None | Budget::Left => None,
            };
        }
        for mail in claimed.mails {
            self.take_in(now, mail);
        }
    }

    fn take_in(&mut self, now: Time, mut mail: Mail) {
        let Claim { id, attempts } = mail.claim();
        let message_id = &mail.message.message_id;
        match self.held.get_mut(&id) {
            Some(held) if held.message_id == *message_id => {
                // Its lease was lost meanwhile. What becomes of it is told for the new one.
                held.attempts = attempts;
                self.queue.renew(&mail);
                return;
            }
            Some(_) => self.forget(id),
            None => {}
        }
        self.held_bytes += mail.size;
        let held = Held {
            message_id: message_id.clone(),
            attempts,
            size: mail.size,
        };
        self.held.insert(id, held);
        if self
            .remembered
            .get(&id)
            .is_some_and(|(known, _)| known == message_id)
            && let Some((_, answer)) = self.remembered.remove(&id)
        {
            self.settlements.extend(answer);
            self.settle_at.get_or_insert(now);
            return;
        }
        match mail.batch.clone().filter(|_| self.is_idempotent()) {
            Some(key) => self.regroup(now, key, mail),
            None => {
                mail.batch = None;
                self.queue.put(mail);
            }
        }
    }

    pub(super) fn is_idempotent(&self) -> bool {
        let limits = self.limits.as_ref();
        limits.is_some_and(|limits| limits.capabilities.is_idempotent())
    }

    pub(super) fn max_ambiguous(&self) -> i32 {
        self.limits
            .as_ref()
            .map_or(0, |limits| limits.max_ambiguous)
    }

    /// Gives back all that is not in flight.
    pub(super) fn release_waiting(&mut self) {
        let mut waiting = self.queue.retain(|_| false);
        waiting.extend(std::mem::take(&mut self.again).into_iter().flatten());
        let regrouping = std::mem::take(&mut self.regrouping);
        waiting.extend(regrouping.into_values().flat_map(|(_, mails)| mails));
        for mail in waiting {
            self.look = true;
            self.settlements.released(mail.claim());
        }
    }

    /// Gives back one that was taken out of the queue.
    pub(super) fn release(&mut self, mail: Mail) {
        self.look = true;
        self.settlements.released(mail.claim());
        self.queue.finish(&mail);
    }

    /// Of what waits, that whose claim is in force is kept.
    pub(super) fn drop_lost(&mut self, in_force: &HashSet<i64>) {
        self.part_batches(|mails| {
            let is_lost = |mail: &Mail| !in_force.contains(&mail.message.id);
            mails.iter().any(is_lost)
        });
        let lost = self
            .queue
            .retain(|mail| in_force.contains(&mail.message.id));
        for mail in &lost {
            self.drop_held(mail.message.id);
            self.look = true;
        }
    }

    fn drop_held(&mut self, id: i64) -> Option<Held> {
        let held = self.held.remove(&id)?;
        self.held_bytes = self.held_bytes.saturating_sub(held.size);
        Some(held)
    }

    /// Whether this very mail is held, and not another one with its id.
    pub(super) fn is_held(&self, mail: &Mail) -> bool {
        let held = self.held.get(&mail.message.id);
        held.is_some_and(|held| held.message_id == mail.message.message_id)
    }

    /// Drops a mail in whose database another one has its id now: nothing is told of it any more. If it is in flight, its
    /// answer is dropped when it comes.
    fn forget(&mut self, id: i64) {
        self.drop_held(id);
        let is_it = |mail: &Mail| mail.message.id == id;
        self.part_batches(|mails| mails.iter().any(is_it));
        self.queue.retain(|mail| !is_it(mail));
        self.settlements.remove(id);
    }

    /// Keeps how a mail ended whose claim was lost before that could be told.
    fn remember(&mut self, one: Settlements, dropped: &mut HashMap<i64, String>) {
        if self.remembered.len() >= REMEMBERED {
            self.remembered.clear();
        }
        let id = one.ids().next().copied();
        if let Some(id) = id
            && let Some(message_id) = dropped.remove(&id)
        {
            self.remembered.insert(id, (message_id, one));
        }
    }

    /// How long an answer may wait now.
    pub(super) fn company(&self) -> Duration {
        if self.tempo.recent() >= FULL {
            CROWD
        } else {
            COMPANY
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::deliver::Now;
    use crate::deliver::events::Event;

    #[test]
    fn what_could_not_be_settled_is_tried_again_when_it_is_time() {
        let now = |at| Now {
            at,
            wall: SystemTime::UNIX_EPOCH,
        };
        let mut deliverer = Deliverer::new();
        let mut settlements = Box::new(Settlements::default());
        settlements.sent(Claim { id: 1, attempts: 0 }, None, &[]);
        let retry_at = Duration::from_secs(1);
        let failed = Event::ExchangeFailed {
            settlements,
            retry_at,
        };
        let actions = deliverer.handle(now(Time::ZERO), failed);
        assert!(actions.is_empty(), "not before");
        // Nothing else may ever happen.
        assert_eq!(deliverer.wake_at(), Some(retry_at));
        let actions = deliverer.handle(now(retry_at), Event::Tick);
        assert!(matches!(actions[..], [Action::Exchange { .. }]));
    }
}
