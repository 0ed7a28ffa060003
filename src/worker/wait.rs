//! Waits until there is a reason to act, and delivers mail in the meantime.

use std::ops::ControlFlow;
use std::time::Duration;

use super::deliverer::Deliverer;
use super::session::Failure;
use super::state::{Cause, Delivered, Notices, RESTORE_CHECK, Wait, Worker};
use crate::pg::signals::stop_requested;
use crate::pg::{log, notify, process};
use crate::settings;
use crate::shared_memory::wakeup::Next;
use mailroom_core::batching::Time;
use mailroom_core::deliver::runner::EXTEND_RETRY;

/// How long a check is delayed after a notification that is probably the worker's own, or soon after another one.
const ECHO: Duration = Duration::from_secs(1);
/// How long the server holds back statistics unless it is forced to send them.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(1);

impl Worker {
    /// Runs the jobs of the deliverer. Returns when it next needs to be called, or that the extension is gone.
    pub(super) fn deliver(&mut self) -> Delivered {
        let now = self.now();
        if self.delivery.restart_at.is_some_and(|at| at <= now) {
            self.start_deliverer();
        }
        let Some(deliverer) = &mut self.delivery.deliverer else {
            return Delivered::Next(self.delivery.restart_at);
        };
        match deliverer.run_jobs(&mut self.session, now, !self.paused) {
            Ok(next) => Delivered::Next(next),
            // A stop also cancels statements.
            Err(_) if stop_requested() => Delivered::Next(None),
            Err(Failure::Restoring) => Delivered::Next(Some(now.saturating_add(RESTORE_CHECK))),
            Err(failure) if failure.is_extension_gone() || self.session.is_gone() => {
                Delivered::Gone
            }
            Err(failure) => {
                failure.warn("mailroom worker could not extend its claims");
                Delivered::Next(Some(now.saturating_add(EXTEND_RETRY)))
            }
        }
    }

    /// Starts a deliverer if this database has transports. If the system refuses a thread, the worker retries later.
    pub(super) fn start_deliverer(&mut self) {
        let now = self.now();
        self.delivery.restart_at = None;
        match Deliverer::start(&self.session, now) {
            Ok(deliverer) => {
                self.delivery.deliverer = deliverer;
                self.delivery.failures.end();
            }
            Err(error) => {
                let retry = self.delivery.failures.record(now);
                self.delivery.restart_at = Some(self.delivery.failures.retry_at());
                if retry.log {
                    log::warn(
                        &format!(
                            "mailroom worker could not start the sending thread (attempt {}, next in {} s)",
                            self.delivery.failures.count(),
                            retry.delay.as_secs()
                        ),
                        &error.to_string(),
                        "Raise the limits of the server's user on processes and open files.",
                    );
                }
            }
        }
    }

    pub(super) fn stop_deliverer(&mut self) {
        if let Some(deliverer) = self.delivery.deliverer.take() {
            let origin = self.origin;
            deliverer.finish(&mut self.session, move || origin.elapsed());
        }
    }

    /// Waits until `wait.until`, or until there is another reason to act. Returns the reason, or `None` for a stop.
    pub(super) fn wait(&mut self, wait: &Wait) -> Option<Cause> {
        loop {
            if stop_requested() {
                return None;
            }
            if self.reload_if_asked() {
                // The batch rule may have changed, or the cause of a failure may have been fixed.
                return Some(Cause::Notified);
            }
            let Delivered::Next(deliver_at) = self.deliver() else {
                // The extension is gone, which the next statement reports.
                return Some(Cause::Polled);
            };
            let now = self.now();
            let notified = self.take_notified(now);
            if now >= wait.until {
                return Some(wait.then);
            }
            self.take_due_times();
            if self.wakeup.take_recheck() {
                self.purging.schedule.hurry(now);
                if let Some(deliverer) = &mut self.delivery.deliverer {
                    deliverer.retry_now();
                }
                self.polls.search = true;
                return Some(Cause::Rechecked);
            }
            // During a back-off, a wake-up causes no earlier attempt: the next attempt reads all rows.
            let (next, reason) = if now >= self.failures.retry_at() {
                match self.check_due(wait, now, notified) {
                    ControlFlow::Break(cause) => return Some(cause),
                    ControlFlow::Continue(next) => next,
                }
            } else {
                self.deliver_meanwhile(now, wait)
            };
            self.wakeup
                .publish_wait(reason, next.saturating_sub(now), self.failures.count());
            let check_by = self
                .notices
                .check_by
                .filter(|_| now >= self.failures.retry_at());
            let next = [check_by, deliver_at]
                .into_iter()
                .flatten()
                .fold(next, Time::min);
            // Waking slightly late is harmless; waking slightly early would spin.
            let pause = match next.saturating_sub(now) {
                Duration::ZERO => Duration::ZERO,
                pause => pause.saturating_add(Duration::from_micros(999)),
            };
            if pause >= STATISTICS_INTERVAL {
                // At the end of a transaction, the server holds statistics back, because it expects further
                // transactions.
                process::report_statistics();
            }
            process::wait_for(
                pause,
                self.delivery.deliverer.as_ref().map(Deliverer::jobs_fd),
            );
        }
    }

    /// Has the deliverer claim due mail during a back-off. Returns until when to wait and for what. The next attempt notifies
    /// other senders, and reads when mail is due next.
    fn deliver_meanwhile(&mut self, now: Time, wait: &Wait) -> (Time, Next) {
        let Some(deliverer) = &self.delivery.deliverer else {
            return (wait.until, wait.next);
        };
        let is_past = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let is_next_due = is_past(self.mail.maintain_at(now));
        if is_next_due || is_past(self.mail.notify_at()) {
            // The next attempt tells other senders whether it is urgent.
            deliverer.mail_due(self.mail.urgent_due);
            self.mail.maintained_at = now;
            self.mail.next_due = self.mail.next_due.filter(|_| !is_next_due);
            (self.mail.due_now, self.polls.search) = (false, true);
        }
        let due_at = [self.mail.notify_at(), self.mail.maintain_at(now)];
        match due_at.into_iter().flatten().min() {
            Some(at) if at < wait.until => (at, Next::Due),
            _ => (wait.until, wait.next),
        }
    }

    /// Returns the reason to act now, or until when to wait and for what.
    fn check_due(
        &mut self,
        wait: &Wait,
        now: Time,
        notified: bool,
    ) -> ControlFlow<Cause, (Time, Next)> {
        if notified || self.wakeup.take_given_back() {
            return ControlFlow::Break(Cause::Notified);
        }
        let is_past = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let maintain_at = self.mail.maintain_at(now);
        if is_past(maintain_at) {
            return ControlFlow::Break(Cause::Due);
        }
        let notify_at = self.mail.notify_at();
        if is_past(notify_at) {
            return ControlFlow::Break(Cause::DueNow);
        }
        let announced_at = self.announced_at(now, wait.idle);
        if is_past(announced_at) {
            return ControlFlow::Break(Cause::Announced);
        }
        if self.is_poll_due() {
            return ControlFlow::Break(Cause::Polled);
        }
        if self.purge() {
            // The purge took time, and a wait for a lock in it may have reset the latch that a commit had set: check
            // again.
            return ControlFlow::Continue((now, wait.next));
        }
        let next = [
            Some(self.poll_at()),
            Some(self.purging.schedule.at()),
            announced_at,
        ]
        .into_iter()
        .flatten()
        .fold(wait.until, Time::min);
        let due_at = [maintain_at, notify_at, self.search_at()]
            .into_iter()
            .flatten()
            .min();
        ControlFlow::Continue(match due_at.filter(|&at| at < next) {
            Some(at) => (at, Next::Due),
            None => (next, wait.next),
        })
    }

    /// When to act on what commits announced; `None` if that is no reason to act.
    pub(super) fn announced_at(&self, now: Time, idle: bool) -> Option<Time> {
        if self.leaves_tokens_to_clients() {
            return self.serve_clients_at(now);
        }
        let announced = self.announced();
        let full = announced.count >= settings::batch_rule().limit;
        let batch = (announced.urgent || full || (idle && announced.count > 0)).then_some(now);
        batch.or_else(|| self.answer_at(now))
    }

    /// Takes delivery of notifications. Returns whether one is a reason to check the queue now.
    pub(super) fn take_notified(&mut self, now: Time) -> bool {
        let came = notify::drain();
        if self.leaves_tokens_to_clients() {
            // They concern tokens that are left to clients.
            self.notices.check_by = None;
            return false;
        }
        self.notices.is_reason(now, came)
    }
}

impl Notices {
    /// Whether to check the queue now because of notifications, one of which may just have come.
    ///
    /// The server reports neither the sender of a notification nor its channel. A notification right after the worker's
    /// own is most likely that one, and a session that keeps sending NOTIFY to others must not make the worker check
    /// each time. For such notifications, the worker checks once, [`ECHO`] later.
    fn is_reason(&mut self, now: Time, came: bool) -> bool {
        if came {
            let echo = std::mem::take(&mut self.echo);
            let heard_at = self.heard_at;
            let spaced = heard_at.is_none_or(|heard| now >= heard.saturating_add(ECHO));
            if !echo && spaced {
                self.heard_at = Some(now);
                return true;
            }
            self.check_by.get_or_insert(now.saturating_add(ECHO));
        }
        self.check_by.is_some_and(|by| now >= by)
    }
}
