//! The main loop of the worker: what it does for each cause, and after a failure.

use std::time::Instant;

use pgrx::bgworkers::BackgroundWorker;
use pgrx::prelude::*;

use super::deliverer::Deliverer;
use super::session::{Failure, Listeners, Session};
use super::state::{
    Cause, Delivery, Mail, Notices, POLL_DELAY, Polls, Purging, RESTORE_CHECK, Tokens, Wait, Worker,
};
use crate::pg::options;
use crate::pg::signals::stop_requested;
use crate::settings;
use crate::shared_memory::registry::{self, SlotIndex};
use crate::shared_memory::senders;
use crate::shared_memory::wakeup::{self, Next, WorkerEnd};
use mailroom_core::backoff::Failures;
use mailroom_core::batching::{Batcher, Decision, Look, Time, Trigger};

impl Worker {
    pub(super) fn new(session: Session, index: SlotIndex, wakeup: WorkerEnd) -> Self {
        Self {
            session,
            index,
            wakeup,
            paused: false,
            is_restoring: false,
            delivery: Delivery::default(),
            tokens: Tokens {
                batcher: Batcher::default(),
                trigger: Trigger::Poll,
                beyond: true,
                requested: false,
                answer_at: Time::ZERO,
            },
            mail: Mail::default(),
            polls: Polls {
                at: Time::ZERO,
                delay: POLL_DELAY,
                search: true,
                search_others: true,
            },
            notices: Notices::default(),
            purging: Purging::default(),
            origin: Instant::now(),
            failures: Failures::default(),
        }
    }

    pub(super) fn now(&self) -> Time {
        self.origin.elapsed()
    }

    pub(super) fn run(&mut self) {
        self.session.take_over();
        self.start_deliverer();
        let mut cause = Cause::Polled;
        loop {
            let wait = match self.work(cause) {
                Ok(wait) => wait,
                // A stop cancels the running statement, which then fails.
                Err(_) if stop_requested() => break,
                Err(Failure::Restoring) => self.wait_for_restore(),
                Err(failure) if failure.is_extension_gone() || self.session.is_gone() => {
                    registry::report_absent(self.index);
                    return;
                }
                Err(failure) => {
                    self.session.follow_schema();
                    self.back_off(&failure)
                }
            };
            match self.wait(&wait) {
                Some(next) => cause = next,
                None => break,
            }
        }
        self.stop_deliverer();
        // From now on, commits send NOTIFY themselves; earlier ones may have left it to the worker.
        wakeup::close(self.index);
        if self.listeners() == Listeners::Owed {
            self.notify_listeners();
        }
    }

    /// Suspends work as in a pause while a session restores a dump. That session wakes the worker when it ends.
    pub(super) fn wait_for_restore(&mut self) -> Wait {
        if !std::mem::replace(&mut self.is_restoring, true) {
            log!(
                "mailroom worker stands by in database \"{}\" while a dump is being restored",
                self.session.database()
            );
        }
        self.paused = true;
        self.polls.search = true;
        self.mail.next_due = None;
        Wait {
            until: self.now().saturating_add(RESTORE_CHECK),
            then: Cause::Polled,
            idle: true,
            next: Next::Restored,
        }
    }

    /// Checks what `cause` requires, and takes batches as long as the batch rule says so. Returns what to wait for. The
    /// function is long because it has one arm for each cause and each decision.
    pub(super) fn work(&mut self, cause: Cause) -> Result<Wait, Failure> {
        let rule = settings::batch_rule();
        let (mut look, mut backlog) = match cause {
            Cause::Announced | Cause::Deadline => (Look::Woken, self.announced()),
            Cause::Notified => (Look::Woken, self.look(rule)?),
            Cause::Rechecked => {
                self.session.notify_senders(senders::notify_recheck);
                (Look::Woken, self.poll(rule)?)
            }
            Cause::Polled => (Look::Polled, self.poll(rule)?),
            Cause::DueNow => {
                self.notify_due();
                (Look::Woken, self.announced())
            }
            Cause::Due => {
                self.maintain_outbox()?;
                (Look::Woken, self.announced())
            }
        };
        loop {
            if self.leaves_tokens_to_clients() {
                return self.serve_clients();
            }
            let now = self.now();
            if self.answer_at(now).is_some_and(|at| at <= now) {
                self.answer_requests()?;
                backlog = self.announced();
            }
            let outside = self.listeners();
            match self.tokens.batcher.decide(rule, self.now(), backlog, look) {
                Decision::Go(trigger) => {
                    backlog = self.take_batch(rule, trigger, backlog, outside)?;
                    look = Look::AfterBatch;
                }
                Decision::WaitUntil(until) => {
                    if outside == Listeners::Owed {
                        self.notify_listeners();
                    }
                    return Ok(Wait {
                        until,
                        then: Cause::Deadline,
                        idle: false,
                        next: Next::Timeout,
                    });
                }
                Decision::Idle => return Ok(self.idle(Next::Poll)),
            }
            // The mail of this batch is sent while the next batch is taken.
            self.deliver();
            if stop_requested() || self.reload_if_asked() {
                return Ok(Wait {
                    until: self.now(),
                    then: Cause::Notified,
                    idle: true,
                    next: Next::Poll,
                });
            }
        }
    }

    /// Ends a series of failures, and returns the wait until the poll floor.
    pub(super) fn idle(&mut self, next: Next) -> Wait {
        self.recovered();
        Wait {
            until: self.poll_at(),
            then: Cause::Polled,
            idle: true,
            next,
        }
    }

    /// Whether tokens are left to clients.
    pub(super) fn leaves_tokens_to_clients(&self) -> bool {
        self.paused || !settings::collect()
    }

    pub(super) fn recovered(&mut self) {
        let failures = self.failures.end();
        if failures > 0 {
            log!("mailroom worker works again after {failures} failures");
        }
    }

    /// Schedules the next attempt after a failure. The first of consecutive failures is logged, then at most one a
    /// minute; all are recorded in job_runs.
    pub(super) fn back_off(&mut self, failure: &Failure) -> Wait {
        if self.listeners() == Listeners::Owed {
            // Clients may dequeue what the worker cannot collect.
            self.notify_listeners();
        }
        let recorded = self.session.record_failure(failure, self.tokens.trigger);
        let verdict = self.failures.record(self.now());
        if verdict.log {
            failure.warn(&format!(
                "mailroom worker could not take a batch (attempt {}, next in {} s)",
                self.failures.count(),
                verdict.delay.as_secs()
            ));
            if let Err(second) = recorded {
                second.warn("mailroom worker could not record a failure");
            }
        }
        Wait {
            until: self.failures.retry_at(),
            then: Cause::Polled,
            idle: true,
            next: Next::Retry,
        }
    }

    /// Reloads the configuration after a SIGHUP. Returns whether there was one. Also called between two batches,
    /// because the worker does not wait while tokens keep coming.
    pub(super) fn reload_if_asked(&mut self) -> bool {
        let asked = BackgroundWorker::sighup_received();
        if asked {
            self.reload();
        }
        asked
    }

    fn reload(&mut self) {
        options::reload();
        if let Err(failure) = self.session.follow_settings() {
            failure.warn("mailroom worker could not take up the settings of its database");
        }
        registry::note_stop_grace(self.index);
        if let Err(failure) = self.session.listen() {
            failure.warn("mailroom worker could not change its channel");
        }
        senders::set_others(false);
        self.polls.search_others = true;
        match self.delivery.deliverer.as_mut().map(Deliverer::reload) {
            Some(true) => {}
            Some(false) => self.stop_deliverer(),
            None => self.start_deliverer(),
        }
    }
}
