//! Checks of the queue and the outbox: waiting tokens, due mail, expired leases, rows to purge.

use std::time::Duration;

use super::session::{Failure, OutboxState, Session, Tell, Waiting};
use super::state::{Mail, POLL_DELAY, Worker};
use crate::pg::process;
use crate::pg::signals::stop_requested;
use crate::settings::{self, Notify};
use crate::shared_memory::senders;
use mailroom_core::batching::{Backlog, Rule, Time};

/// Minimum time between two notifications to senders that mail is due, and between two searches. Mail that becomes due
/// in between is announced together, so a flood of mail costs at most 100 small transactions a second.
const DUE_SPACING: Duration = Duration::from_millis(10);
/// Minimum time between two log lines about failed purges.
const PURGE_LOG_INTERVAL: Duration = Duration::from_secs(60);

impl Mail {
    /// Whether mail has become due that was not due at the last check.
    pub(super) fn is_past_due(&self) -> bool {
        self.next_due.is_some_and(|due| due <= process::now())
    }

    /// When the outbox next needs maintenance.
    ///
    /// The wall clock is read each time, because it may jump; the poll interval bounds the delay that a jump
    /// causes.
    pub(super) fn maintain_at(&self, now: Time) -> Option<Time> {
        let micros = self.next_due?.saturating_sub(process::now()).max(0);
        let at = now.saturating_add(Duration::from_micros(micros.unsigned_abs()));
        Some(at.max(self.maintained_at.saturating_add(DUE_SPACING)))
    }

    /// When to notify senders of due mail; `None` if none was announced.
    pub(super) fn notify_at(&self) -> Option<Time> {
        self.due_now
            .then(|| self.maintained_at.saturating_add(DUE_SPACING))
    }
}

impl Worker {
    pub(super) fn is_poll_due(&self) -> bool {
        let now = self.now();
        now >= self.poll_at() || self.search_at().is_some_and(|at| at <= now)
    }

    /// Reads the queue, and corrects the announced count.
    pub(super) fn look(&mut self, rule: Rule) -> Result<Backlog, Failure> {
        self.look_with(rule, |session| session.waiting(rule.limit))
    }

    /// Reads the queue and maintains the outbox, in one statement.
    pub(super) fn poll(&mut self, rule: Rule) -> Result<Backlog, Failure> {
        self.polls.search |= self.wakeup.take_search();
        self.polls.search_others |= self.polls.search;
        self.take_due_times();
        // The statement returns the next due time after now, so senders must be notified here of mail due by now.
        let tells = self.mail.due_now || self.polls.search || self.mail.is_past_due();
        let tell = if tells { Tell::Senders } else { Tell::None };
        self.notify_deliverer();
        self.check_clock_jump()?;
        self.polls.at = self.now();
        self.mail.maintained_at = self.polls.at;
        let own = self.own_transports();
        let mut state = None;
        let backlog = self.look_with(rule, |session| {
            let (waiting, rest) = session.poll(rule.limit, own, tell)?;
            state = Some(rest);
            Ok(waiting)
        })?;
        // Only now: if the statement fails, the next one notifies senders. Mail that became due after the decision not
        // to notify senders is not in the state that the statement returned.
        self.mail.due_now = !tells && self.mail.is_past_due();
        if let Some(state) = state {
            self.note_maintained(&state);
        }
        self.notices.owed |=
            self.polls.search && backlog.count > 0 && self.leaves_tokens_to_clients();
        self.polls.search = false;
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
        self.notices.check_by = None;
        self.tokens.beyond = waiting.count >= rule.limit;
        self.paused = waiting.paused;
        self.tokens.requested = waiting.urgent;
        // Clients have been notified of tokens that are left to them.
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

    /// Notifies senders of due mail that was announced.
    pub(super) fn notify_due(&mut self) {
        self.mail.maintained_at = self.now();
        self.notify_deliverer();
        if senders::others_deliver() {
            self.session.notify_senders(senders::notify_due);
            self.notices.echo |= settings::notify() != Notify::Off;
        }
        self.mail.due_now = false;
    }

    /// Takes expired claims back, notifies senders of due mail, and notes when to do that again.
    pub(super) fn maintain_outbox(&mut self) -> Result<(), Failure> {
        self.take_due_times();
        self.check_clock_jump()?;
        self.mail.maintained_at = self.now();
        self.notify_deliverer();
        let state = self.session.maintain_outbox(self.own_transports())?;
        self.mail.due_now = false;
        self.note_maintained(&state);
        Ok(())
    }

    /// Extends the leases if the wall clock has jumped, so that mail in flight is not taken back.
    pub(super) fn check_clock_jump(&mut self) -> Result<(), Failure> {
        let now = self.now();
        match &mut self.delivery.deliverer {
            Some(deliverer) => deliverer.check_clock_jump(&mut self.session, now),
            None => Ok(()),
        }
    }

    /// Notifies the deliverer of due mail, and other senders if some of it is urgent.
    fn notify_deliverer(&mut self) {
        if let Some(deliverer) = &self.delivery.deliverer {
            deliverer.mail_due(self.mail.urgent_due);
        }
        if self.mail.urgent_due && senders::others_deliver() {
            self.session.notify_senders(senders::notify_urgent);
        }
        self.mail.urgent_due = false;
    }

    /// The transports that this worker delivers through, if mail of others must be searched for. While a session holds an old
    /// snapshot, the search reads all that others have sent.
    fn own_transports(&self) -> Option<Vec<String>> {
        let deliverer = self.delivery.deliverer.as_ref()?;
        let is_to_search = self.polls.search_others && !senders::others_deliver();
        is_to_search.then(|| deliverer.transports())
    }

    /// Reads what commits announced about the outbox.
    pub(super) fn take_due_times(&mut self) {
        self.mail.due_now |= self.wakeup.take_due_now();
        self.mail.urgent_due |= self.wakeup.take_urgent_due();
        if let Some(due) = self.wakeup.take_due() {
            self.mail.next_due = Some(self.mail.next_due.map_or(due, |known| known.min(due)));
        }
        if self.wakeup.take_for_clients() {
            senders::set_others(true);
        }
    }

    pub(super) fn note_maintained(&mut self, state: &OutboxState) {
        self.polls.search_others &= state.others.is_none();
        self.mail.next_due = state.next_due;
        self.notices.echo |= state.notified;
        self.polls.delay = if state.more {
            POLL_DELAY
        } else {
            settings::poll_interval()
        };
    }

    /// When the next poll is due.
    pub(super) fn poll_at(&self) -> Time {
        // The setting may have been lowered since the last poll.
        let pause = self.polls.delay.min(settings::poll_interval());
        self.polls.at.saturating_add(pause)
    }

    /// When to search for what was not announced; `None` if nothing requires it. A restore has its own interval.
    pub(super) fn search_at(&self) -> Option<Time> {
        let required = self.wakeup.must_search() || (self.polls.search && !self.is_restoring);
        required.then(|| self.mail.maintained_at.saturating_add(DUE_SPACING))
    }

    /// Deletes a batch of rows that are older than the retention if a purge is due. Returns whether it was. Nothing
    /// depends on the purge, so it may fail.
    pub(super) fn purge(&mut self) -> bool {
        let began = self.now();
        let Some(purge) = self
            .purging
            .schedule
            .due(began)
            .filter(|_| !self.is_restoring)
        else {
            return false;
        };
        match self.session.purge(purge) {
            Ok(more) => {
                let now = self.now();
                // The next poll wakes this process anyway.
                self.purging
                    .schedule
                    .done(purge, began, now, more, self.poll_at());
            }
            Err(failure) => {
                let now = self.now();
                self.purging.schedule.failed(now, failure.sqlstate());
                let spaced = |logged: Time| now >= logged.saturating_add(PURGE_LOG_INTERVAL);
                let tells = !stop_requested() && !matches!(failure, Failure::Restoring);
                if tells && self.purging.failed_at.is_none_or(spaced) {
                    self.purging.failed_at = Some(now);
                    failure.warn("mailroom worker could not purge, and tries again in a minute");
                }
            }
        }
        true
    }
}
