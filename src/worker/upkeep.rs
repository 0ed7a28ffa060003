//! Looking at the queue and the outbox: what waits, what is due, leases that expired, rows to purge.

use std::time::Duration;

use super::session::{Failure, OutboxState, Session, Tell, Waiting};
use super::state::{POLL_PAUSE, Worker};
use crate::pg::process;
use crate::pg::signals::stop_requested;
use crate::settings::{self, Notify};
use crate::shared_memory::announce;
use mailroom_core::batching::{Backlog, Rule, Time};

/// How long senders are left alone between two notifications that mail is due: those who come meanwhile are
/// told together, and a flood of mail costs a hundred small transactions a second at most.
const DUE_SPACING: Duration = Duration::from_millis(10);
/// The pause between two batches of a purge, so that it leaves the server to others, and after one that failed.
const PURGE_PAUSE: Duration = Duration::from_millis(100);
const PURGE_RETRY: Duration = Duration::from_secs(60);

impl Worker {
    pub(super) fn is_poll_due(&self) -> bool {
        self.now() >= self.poll_at()
    }

    /// Reads the queue itself, and corrects the announced count by what is there.
    pub(super) fn look(&mut self, rule: Rule) -> Result<Backlog, Failure> {
        self.look_with(rule, |session| session.waiting(rule.limit))
    }

    /// Looks at the queue and after the outbox, in one statement.
    pub(super) fn poll(&mut self, rule: Rule, tell: Tell) -> Result<Backlog, Failure> {
        // What has become due by now is not among what will.
        let due = self.due_now || self.next_due.is_some_and(|due| due <= process::now());
        self.due_now = false;
        let tell = self.senders_to_notify(if due { Tell::Senders } else { tell })?;
        self.check_clock_jump()?;
        self.polled_at = self.now();
        self.maintained_at = self.polled_at;
        let mut state = None;
        let backlog = self.look_with(rule, |session| {
            let (waiting, rest) = session.poll(rule.limit, tell)?;
            state = Some(rest);
            Ok(waiting)
        })?;
        if let Some(state) = state {
            self.note_maintained(&state);
        }
        self.echo |= tell == Tell::Senders && settings::notify() != Notify::Off;
        Ok(backlog)
    }

    pub(super) fn look_with(
        &mut self,
        rule: Rule,
        waiting: impl FnOnce(&Session) -> Result<Waiting, Failure>,
    ) -> Result<Backlog, Failure> {
        self.wakeup.set_limit(rule.limit);
        let announced = self.wakeup.announced();
        self.wakeup.acknowledge_urgent();
        let waiting = waiting(&self.session)?;
        self.is_restoring = false;
        self.check_by = None;
        self.beyond = waiting.count >= rule.limit;
        self.paused = waiting.paused;
        self.asked = waiting.urgent;
        // What is left to clients they were told of.
        let known = if self.leaves_tokens_to_clients() {
            0
        } else {
            waiting.count
        };
        self.wakeup.replace(announced.count, known);
        Ok(Backlog {
            count: waiting.count,
            urgent: waiting.urgent,
        })
    }

    /// Tells senders of mail that was announced.
    pub(super) fn notify_due(&mut self) -> Result<(), Failure> {
        self.due_now = false;
        self.maintained_at = self.now();
        if self.senders_to_notify(Tell::Senders)? == Tell::Senders {
            self.session.notify_due()?;
            self.echo |= settings::notify() != Notify::Off;
        }
        Ok(())
    }

    /// Takes lapsed claims back, tells senders of what is due, and learns when that is to be done again.
    pub(super) fn maintain_outbox(&mut self, tell: Tell) -> Result<(), Failure> {
        self.due_now = false;
        self.check_clock_jump()?;
        self.maintained_at = self.now();
        let tell = self.senders_to_notify(tell)?;
        let state = self.session.maintain_outbox(tell)?;
        self.note_maintained(&state);
        self.echo |= tell == Tell::Senders && settings::notify() != Notify::Off;
        Ok(())
    }

    /// What is under way must not be taken back because the clock has jumped.
    pub(super) fn check_clock_jump(&mut self) -> Result<(), Failure> {
        let now = self.now();
        match &mut self.deliverer {
            Some(deliverer) => deliverer.check_clock_jump(&mut self.session, now),
            None => Ok(()),
        }
    }

    /// The deliverer is to look; others are told if they deliver, too.
    ///
    /// # Errors
    /// If the others cannot be told of urgent mail.
    pub(super) fn senders_to_notify(&mut self, tell: Tell) -> Result<Tell, Failure> {
        let urgent = std::mem::take(&mut self.urgent_due);
        if let Some(deliverer) = &self.deliverer {
            deliverer.mail_due(urgent);
        }
        if !announce::others_deliver() {
            return Ok(Tell::None);
        }
        if urgent && let Err(failure) = self.session.notify_senders(announce::notify_urgent) {
            self.urgent_due = true;
            return Err(failure);
        }
        Ok(tell)
    }

    /// Takes note of what commits said of the outbox.
    pub(super) fn take_due_times(&mut self) {
        self.due_now |= self.wakeup.take_due_now();
        self.urgent_due |= self.wakeup.take_urgent_due();
        if let Some(due) = self.wakeup.take_due() {
            self.next_due = Some(self.next_due.map_or(due, |known| known.min(due)));
        }
    }

    pub(super) fn note_maintained(&mut self, state: &OutboxState) {
        self.next_due = state.next_due;
        announce::set_others(state.others);
        self.poll_pause = if state.more {
            POLL_PAUSE
        } else {
            settings::poll_interval()
        };
    }

    /// When everything is to be looked at next.
    pub(super) fn poll_at(&self) -> Time {
        // The setting may have become smaller since.
        let pause = self.poll_pause.min(settings::poll_interval());
        self.polled_at.saturating_add(pause)
    }

    /// When the outbox wants attention next.
    ///
    /// The wall clock is read in every round, because it may jump; the poll interval bounds what a jump costs.
    pub(super) fn maintain_at(&self, now: Time) -> Option<Time> {
        let micros = self.next_due?.saturating_sub(process::now()).max(0);
        let at = now.saturating_add(Duration::from_micros(micros.unsigned_abs()));
        Some(at.max(self.maintained_at.saturating_add(DUE_SPACING)))
    }

    /// When senders are to be told of mail that is due.
    pub(super) fn notify_at(&self) -> Option<Time> {
        self.due_now
            .then(|| self.maintained_at.saturating_add(DUE_SPACING))
    }

    /// Deletes a batch of rows that are older than the retention, when it is time; returns whether it was. Nothing waits
    /// for it, so it may fail.
    pub(super) fn purge(&mut self) -> bool {
        let now = self.now();
        if now < self.purge_at || self.is_restoring {
            return false;
        }
        let pause = match self.session.purge() {
            Ok(true) => PURGE_PAUSE,
            // With the next poll, which wakes this process anyway.
            Ok(false) => self.poll_at().saturating_sub(self.now()),
            Err(failure) => {
                let spaced = |told: Time| now >= told.saturating_add(PURGE_RETRY);
                let tells = !stop_requested() && !matches!(failure, Failure::Restoring);
                if tells && self.purge_failed_at.is_none_or(spaced) {
                    self.purge_failed_at = Some(now);
                    failure.warn("mailroom worker could not purge, and tries again in a minute");
                }
                PURGE_RETRY
            }
        };
        self.purge_at = self.now().saturating_add(pause);
        true
    }
}
