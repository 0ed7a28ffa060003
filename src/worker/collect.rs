//! Takes batches of tokens, answers requests, and notifies clients of tokens that are left to them.

use std::time::Duration;

use pgrx::prelude::*;

use super::session::{Failure, Listeners};
use super::state::{Wait, Worker};
use crate::pg::signals::stop_requested;
use crate::settings::{self, Notify};
use crate::shared_memory::wakeup::Next;
use mailroom_core::batching::{Backlog, Batcher, Rule, Time, Trigger};

/// Minimum time between two notifications to clients about tokens that they collect.
const NOTIFY_SPACING: Duration = Duration::from_millis(10);
/// How long tokens are collected without answering requests after that has failed.
const ANSWER_RETRY: Duration = Duration::from_secs(30);

impl Worker {
    /// Answers requests, which become tokens, and notifies clients of tokens that are left to them.
    pub(super) fn serve_clients(&mut self) -> Result<Wait, Failure> {
        self.tokens.batcher = Batcher::default();
        self.wakeup.acknowledge_urgent();
        self.tokens.requested |= self.wakeup.take_requested();
        let answered = if self.tokens.requested && !self.paused {
            self.tokens.trigger = Trigger::Urgent;
            self.session.answer_requests()
        } else {
            Ok(())
        };
        // Before outside listeners are notified: a later announcement then finds a count of 0, and wakes the worker
        // again.
        let announced = self.wakeup.announced();
        self.wakeup.account_for(announced.count);
        if self.listeners() == Listeners::Owed {
            self.notify_listeners();
            self.notices.sent_at = self.now();
        }
        if self.is_restoring {
            return Ok(self.wait_for_restore());
        }
        if self.paused {
            return Ok(self.idle(Next::Resume));
        }
        answered?;
        self.tokens.requested = false;
        Ok(self.idle(Next::Left))
    }

    /// When to notify clients of announced tokens, or to answer requests.
    pub(super) fn serve_clients_at(&self, now: Time) -> Option<Time> {
        let announced = self.wakeup.announced();
        if (announced.urgent || announced.requested) && !self.paused {
            return Some(now);
        }
        let is_owed = announced.count > 0 && settings::notify() == Notify::Auto;
        is_owed.then(|| self.notices.sent_at.saturating_add(NOTIFY_SPACING))
    }

    pub(super) fn notify_listeners(&mut self) {
        self.session.notify_listeners();
        self.notices.owed = false;
        self.notices.echo = true;
    }

    /// Takes one batch. Returns the backlog that is known to remain.
    pub(super) fn take_batch(
        &mut self,
        rule: Rule,
        trigger: Trigger,
        backlog: Backlog,
        outside: Listeners,
    ) -> Result<Backlog, Failure> {
        self.tokens.trigger = trigger;
        // Requesting only as many tokens as are known to wait avoids a search for more, which would scan all dead rows
        // that an old snapshot keeps.
        let size = backlog.count.clamp(1, rule.limit);
        let urgent = self.wakeup.acknowledge_urgent();
        // Read before the queue: tokens that are announced later may or may not be in the batch, and stay announced.
        let announced = self.announced();
        let batch = self.session.run_batch(size, trigger, outside)?;
        self.notices.owed &= outside == Listeners::Notified;
        let notified = batch.collected > 0 && settings::notify() != Notify::Off;
        self.notices.echo |= notified || outside == Listeners::Owed;
        let moved = batch.moved();
        if let Some(deliverer) = self.delivery.deliverer.as_ref().filter(|_| urgent)
            && batch.collected > 0
        {
            deliverer.mail_due(true);
        }
        debug1!(
            "mailroom worker: collected {} tokens, skipped {} (trigger: {})",
            batch.collected,
            batch.skipped,
            trigger.as_str()
        );
        self.tokens.batcher.taken(moved);
        self.wakeup.publish_batch();
        self.recovered();
        if moved < size {
            // None of the tokens that were announced before is left.
            self.wakeup.account_for(announced.count);
            self.tokens.beyond = false;
            return Ok(self.announced());
        }
        self.wakeup.account_for(moved);
        let announced = self.announced();
        self.take_due_times();
        let now = self.now();
        if self.mail.maintain_at(now).is_some_and(|at| at <= now) {
            self.maintain_outbox()?;
        } else if self.mail.notify_at().is_some_and(|at| at <= now) {
            self.notify_due();
        }
        if self.is_poll_due() {
            self.poll(rule)
        } else if urgent || (announced.count < rule.limit && self.tokens.beyond) {
            // The batch may have had room for only one of two urgent tokens.
            self.look(rule)
        } else {
            Ok(announced)
        }
    }

    /// When to answer requests; `None` if there are none.
    pub(super) fn answer_at(&self, now: Time) -> Option<Time> {
        let asked = self.tokens.requested || self.wakeup.announced().requested;
        asked.then(|| self.tokens.answer_at.max(now))
    }

    /// Answers one batch of requests; the resulting tokens are announced. Waiting tokens are not delayed for long: a
    /// failure is logged, and the answers are retried later.
    ///
    /// # Errors
    /// If a dump is being restored or the extension is gone, which the next batch would meet, too.
    pub(super) fn answer_requests(&mut self) -> Result<(), Failure> {
        self.wakeup.take_requested();
        match self.session.answer_requests() {
            Ok(()) => self.tokens.requested = false,
            Err(failure @ (Failure::Restoring | Failure::ExtensionGone)) => return Err(failure),
            Err(_) if stop_requested() => {}
            Err(failure) => {
                self.tokens.requested = true;
                self.tokens.answer_at = self.now().saturating_add(ANSWER_RETRY);
                failure.warn(
                    "mailroom worker could not answer requests, and tries again in half a minute",
                );
            }
        }
        Ok(())
    }

    /// Whether the worker owes outside listeners a notification of announced tokens, which the writers left to it.
    pub(super) fn listeners(&mut self) -> Listeners {
        self.notices.owed |= self.wakeup.take_notify_owed();
        if self.notices.owed && settings::notify() == Notify::Auto {
            Listeners::Owed
        } else {
            Listeners::Notified
        }
    }

    /// The tokens that commits announced.
    pub(super) fn announced(&self) -> Backlog {
        let announced = self.wakeup.announced();
        Backlog {
            count: announced.count,
            urgent: announced.urgent,
        }
    }
}
