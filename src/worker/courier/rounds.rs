//! One round: settle and claim, extend, hand over.

use std::time::{Duration, Instant};

use super::leases::extension_interval;
use super::{Courier, Time};
use crate::delivery::channel::Permit;
use crate::delivery::engine::{Engine, Letter, Parcel, Repeat};
use crate::delivery::providers::Provider;
use crate::delivery::settlements::Claim;
use crate::delivery::slots::Slow;
use crate::registry::SlotIndex;
use crate::server;
use crate::worker::session::{Appetite, Budget, Failure, Session, stop_requested};

/// How long an answer may wait for others to be settled with, when there are few and when there are many.
const COMPANY: Duration = Duration::from_millis(5);
const CROWD: Duration = Duration::from_millis(20);
/// So many answers do not wait.
const FULL: usize = 512;
/// So many mails are held for each request that may be under way, or what goes in [`super::pace::SPAN`] if that is
/// more, and so many in all.
const AHEAD: usize = 2;
const HELD: usize = 2_048;
/// So many are claimed at a time, to keep the transaction short.
const CLAIM: usize = 512;
/// So many bytes of mail are held at most, or one mail.
const HELD_BYTES: usize = 32 << 20;
/// Among so many a probe is chosen.
const CANDIDATES: usize = 8;
/// A pause of this length is sat out with the bag full.
const SHORT: Duration = Duration::from_secs(5);

impl Courier {
    /// Does what there is to do now; returns when there is more, apart from what the engine will tell.
    ///
    /// `allowed`: mail may be claimed and sent; otherwise what is under way is settled and the rest given back.
    pub fn round(
        &mut self,
        session: &Session,
        index: SlotIndex,
        now: Time,
        allowed: bool,
    ) -> Result<Option<Time>, Failure> {
        // After a failure, too: the engine's bell keeps the worker awake until it was heard.
        self.mend(now);
        self.receive(now);
        if now < self.failures.retry_at() {
            return Ok(Some(self.failures.retry_at()));
        }
        self.part_late(now);
        if allowed {
            self.decide(now);
        } else {
            self.forgive();
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            self.look();
        }
        self.sharing.look(now);
        if !allowed || self.channel.is_paused() {
            self.sharing.give_up();
            // What was handed over before the probe came back, or is under way.
            if !allowed || !self.channel.is_probing() {
                self.recall();
            }
            // A probe is chosen among fresh ones.
            self.empty_bag();
        }
        self.mind_clock(session, now)?;
        if allowed && self.is_to_be_probed(now) {
            // What was wrong may have been mended; what is wrong lengthens the pause.
            self.set_up(now);
        }
        let appetite = self.appetite(now, allowed);
        if appetite.is_some() || self.is_settle_due(now) {
            let began = Instant::now();
            self.exchange(session, now, appetite)?;
            if began.elapsed() >= extension_interval() {
                // A standby was waited for, and the leases began before: what was claimed goes back, to be claimed anew.
                self.empty_bag();
            }
            if allowed {
                // Now it is known whether there is anything else.
                self.decide(now);
            }
        }
        self.extend(session, now)?;
        // A stop ends the wait for standbys, too.
        if allowed && !stop_requested() {
            self.hand_over(now);
        }
        self.announce(index, now);
        self.set_bell();
        Ok(self.next(now, allowed))
    }

    /// Has the engine's reports wake the worker when there is something to do: to wait for company once there is one,
    /// to settle once there are many, or to hand over more.
    fn set_bell(&self) {
        let Some(engine) = &self.engine else {
            return;
        };
        let patience = if self.settlements.is_empty() || !self.bag.is_empty() {
            1
        } else {
            FULL.saturating_sub(self.settlements.len())
                .min(self.away_parcels.len())
        };
        engine.ring_at(patience);
    }

    /// Has the engine give back what it has not sent yet.
    pub(super) fn recall(&mut self) {
        if self.away > 0 && !self.recalled {
            self.recalled = true;
            if let Some(engine) = &self.engine {
                engine.recall();
            }
        }
    }

    /// Gives back what is at hand.
    pub(super) fn empty_bag(&mut self) {
        for letter in self.bag.take_all() {
            self.settlements.released(Claim::of(&letter));
        }
        // Those of refused batches that were to go alone, too.
        let (apart, together): (Vec<_>, _) = std::mem::take(&mut self.together)
            .into_iter()
            .partition(|(_, parcel)| parcel.repeat.is_none());
        self.together = together;
        for (_, parcel) in apart {
            for letter in &parcel.letters {
                self.settlements.released(Claim::of(letter));
            }
        }
    }

    /// How long an answer may wait now: an exchange with the database has a price of its own.
    pub(super) fn company(&self) -> Duration {
        if self.tempo.recent() >= FULL {
            CROWD
        } else {
            COMPANY
        }
    }

    fn is_settle_due(&self, now: Time) -> bool {
        !self.settlements.is_empty()
            && (self.away == 0
                || self.settlements.len() >= FULL
                || self.settle_at.is_none_or(|at| at <= now))
    }

    /// How much to claim now.
    fn appetite(&mut self, now: Time, allowed: bool) -> Option<Appetite> {
        if !allowed || !self.look || self.is_to_settle_first() {
            return None;
        }
        let mails = match self.channel.permit(now) {
            Permit::Requests(window) => self.room(window)?,
            Permit::Probe if !self.is_paced(now) => CANDIDATES,
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

    /// A claim that fails must not keep what was sent from being settled.
    fn is_to_settle_first(&self) -> bool {
        self.careful && !self.settlements.is_empty()
    }

    /// How many mails to claim for so many requests at a time; `None` when they are not worth a claim.
    pub(super) fn room(&self, window: usize) -> Option<usize> {
        self.provider.as_ref()?;
        let target = window
            .saturating_mul(AHEAD)
            .saturating_mul(self.batch_limit())
            .max(self.tempo.recent())
            .min(HELD);
        let target = self.paced_target(target);
        let idle = self.slow().letters + self.waiting_together();
        let quick = self.held.len().saturating_sub(idle);
        let room = target.saturating_sub(quick);
        let worth_it = room >= target.div_ceil(4) && self.held_bytes < HELD_BYTES;
        worth_it.then_some(room.min(CLAIM))
    }

    pub(super) fn batch_limit(&self) -> usize {
        match &self.provider {
            Some(provider) if !self.sharing.is_off() => provider.batch_limit().max(1),
            _ => 1,
        }
    }

    pub(super) fn slow(&self) -> Slow {
        self.engine.as_ref().map(Engine::slow).unwrap_or_default()
    }

    fn exchange(
        &mut self,
        session: &Session,
        now: Time,
        appetite: Option<Appetite>,
    ) -> Result<(), Failure> {
        if self.is_to_settle_first() {
            return self.settle_singly(session);
        }
        // Cleared by success.
        self.careful = true;
        self.renumber();
        let claimed = session.exchange(&self.claimant, &self.settlements, appetite)?;
        self.careful = false;
        self.settled(&claimed.lost);
        if self.failures.end() > 0 {
            pgrx::log!("mailroom worker claims and settles mail again");
        }
        let Some(appetite) = appetite else {
            return Ok(());
        };
        let got = claimed.letters.len() + claimed.surplus;
        self.look = got >= appetite.mails as usize || claimed.surplus > 0;
        self.heed(now, claimed.budget);
        for letter in claimed.letters {
            if let Some(letter) = self.take_in(now, letter) {
                self.bag.put(letter);
            }
        }
        Ok(())
    }

    /// Takes note of the budgets, if they were asked: there is none, or the one that is spent frees again then.
    fn heed(&mut self, now: Time, budget: Option<Budget>) {
        let Some(budget) = budget else {
            return;
        };
        self.budgeted = budget != Budget::None;
        self.look_at = match budget {
            Budget::SpentUntil(end) => {
                let micros = end.saturating_sub(server::now()).max(0);
                Some(now.saturating_add(Duration::from_micros(micros.unsigned_abs())))
            }
            Budget::None | Budget::Left => None,
        };
    }

    /// Settles what there is, and claims nothing.
    pub(super) fn settle_only(&mut self, session: &Session) -> Result<(), Failure> {
        if !self.settlements.is_empty() {
            self.renumber();
            let told = session.exchange(&self.claimant, &self.settlements, None)?;
            self.settled(&told.lost);
        }
        Ok(())
    }

    fn settled(&mut self, lost: &[i64]) {
        let settled = std::mem::take(&mut self.settlements);
        self.told(settled, lost);
        self.settle_at = None;
    }

    /// Gives the engine what it may send now.
    fn hand_over(&mut self, now: Time) {
        match self.channel.permit(now) {
            Permit::Requests(window) => {
                if let Some(engine) = &self.engine {
                    engine.set_window(window);
                }
                self.hand_over_again(now);
                let batch = self.batch_limit();
                // What is handed over cannot be overtaken by what is more urgent.
                let most = self.paced_requests(2 * window + self.slow().requests, window);
                let batch = self.paced_batch(batch);
                while self.away_parcels.len() < most
                    && !self.is_paced(now)
                    && let Some(letters) = self.next_letters(batch)
                    && let Some(letters) = self.admit(now, letters)
                {
                    self.turn += 1;
                    self.channel.note_turn(self.turn);
                    self.send(letters, None);
                }
            }
            Permit::Probe => {
                if let Some((letters, repeat)) = self.next_probe(now) {
                    self.turn += 1;
                    self.channel.note_probe(self.turn);
                    self.send(letters, repeat);
                }
            }
            Permit::Nothing(until) => {
                // What was handed over just before that was known waits here as well.
                self.recall();
                if until.saturating_sub(now) > SHORT {
                    self.empty_bag();
                }
            }
            Permit::Probing => {}
        }
    }

    /// Whether a paused channel is to be tried now, as far as there is mail.
    fn is_to_be_probed(&mut self, now: Time) -> bool {
        matches!(self.channel.permit(now), Permit::Probe)
            && !self.is_paced(now)
            && (self.look || self.together.iter().any(|&(at, _)| at <= now))
    }

    /// What to try a paused channel with: a fresh mail, or what may have arrived if there is nothing else.
    fn next_probe(&mut self, now: Time) -> Option<(Vec<Letter>, Option<Repeat>)> {
        self.engine.as_ref()?;
        if let Some(letter) = self.next_letter() {
            let letters = self.admit(now, vec![letter])?;
            self.empty_bag();
            return Some((letters, None));
        }
        let parcel = self.next_again(now)?;
        Some((parcel.letters, parcel.repeat))
    }

    /// The next one, of those that were not refused or throttled before if there are such: one alone holds up nobody.
    fn next_letter(&mut self) -> Option<Letter> {
        let is_fresh = |letter: &Letter| !self.channel.is_suspect(letter.message.id);
        self.bag.take(is_fresh).or_else(|| self.bag.take_first())
    }

    /// The next letters that may share a request.
    fn next_letters(&mut self, batch: usize) -> Option<Vec<Letter>> {
        let first = self.next_letter()?;
        let mut letters = vec![first];
        // What may have arrived is known again only if it goes as it went: alone.
        let is_bound = |provider: &dyn Provider, letter: &Letter| {
            letter.may_have_arrived && provider.is_idempotent()
        };
        while letters.len() < batch
            && let (Some(next), Some(provider)) = (self.bag.first(), &self.provider)
            && !is_bound(&**provider, &letters[0])
            && !is_bound(&**provider, next)
            && provider.may_share(&letters[0].message, &next.message)
        {
            letters.extend(self.bag.take_first());
        }
        Some(letters)
    }

    pub(super) fn send(&mut self, letters: Vec<Letter>, repeat: Option<Repeat>) {
        let Some(engine) = &self.engine else {
            for letter in letters {
                self.bag.put(letter);
            }
            return;
        };
        for letter in &letters {
            if let Some(held) = self.held.get_mut(&letter.message.id) {
                held.away = true;
            }
        }
        self.recalled = false;
        self.away += letters.len();
        self.away_parcels.insert(self.turn, letters.len());
        engine.send(Parcel {
            letters,
            turn: self.turn,
            repeat,
        });
    }

    /// When there is something to do again.
    ///
    /// A probe that is due waits for mail to send: what was given back makes itself heard.
    fn next(&mut self, now: Time, allowed: bool) -> Option<Time> {
        let mut next = self.settle_at;
        let mut sooner = |at: Time| next = Some(next.map_or(at, |known| known.min(at)));
        if self.is_settle_due(now) {
            sooner(now);
        }
        if !self.held.is_empty() {
            sooner(self.extended_at.saturating_add(extension_interval()));
        }
        for (_, parcel) in &self.together {
            if let Some(repeat) = &parcel.repeat {
                sooner(repeat.until);
            }
        }
        if allowed {
            // One that is past waits for the channel, not for the rate.
            let paced = self.paced_until.filter(|&until| until > now);
            for at in [self.look_at, paced].into_iter().flatten() {
                sooner(at);
            }
            let permit = self.channel.permit(now);
            if matches!(permit, Permit::Requests(_) | Permit::Probe) {
                // While the channel takes nothing they wait for it, however long they are due.
                for (at, _) in &self.together {
                    sooner(*at);
                }
            }
            match permit {
                Permit::Nothing(until) => sooner(until),
                Permit::Probe if self.look && !self.is_paced(now) => sooner(now),
                Permit::Requests(window) if self.look && self.room(window).is_some() => {
                    sooner(now);
                }
                Permit::Requests(_) | Permit::Probe | Permit::Probing => {}
            }
        }
        next
    }
}
