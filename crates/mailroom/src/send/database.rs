//! One database: a thread with its connection, its job runner and its back-off.

mod poll;

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mailroom_core::batching::Look;
use mailroom_core::deliver::Time;
use mailroom_core::deliver::runner::{EXTEND_RETRY, JobRunner};
use tokio::runtime::Runtime;

use super::collector::Collector;
use super::host::{self, Process};
use super::once::Once;
use super::outage::{Outage, jitter};
use super::plan::{Ending, Plan};
use super::watch::Watch;
use crate::database_error::DatabaseError;
use crate::readable_fd::ReadableFd;
use crate::session::Session;
use crate::session::outbox::{Ledger, Outbox};

/// How long a connection must last for the next one to be made at once.
const STABLE: Duration = Duration::from_secs(10);
/// How long after the system has refused a thread it is asked again.
pub const START_RETRY: Duration = Duration::from_secs(5);
/// Starts each line of the log.
const LOG_PREFIX: &str = "mailroom send";

/// The state of a database's thread.
pub struct Database {
    plan: Plan,
    runtime: Rc<Runtime>,
    origin: Instant,
    claimant: String,
    runner: Option<JobRunner<Process>>,
    /// When to start the job runner, if it is to be started.
    start_at: Option<Time>,
    ledger: Ledger,
    lease: Rc<Cell<Duration>>,
    outage: Outage,
    /// Number of reloads that were done.
    reloads: u64,
    paused: bool,
}

impl Database {
    /// A database without a connection.
    pub fn new(plan: Plan, runtime: Runtime) -> Self {
        Self {
            runtime: Rc::new(runtime),
            origin: Instant::now(),
            claimant: super::new_claimant(),
            runner: None,
            start_at: Some(Time::ZERO),
            ledger: Ledger::default(),
            lease: Rc::new(Cell::new(Duration::from_secs(60))),
            outage: Outage::default(),
            reloads: plan.control.state().reloads,
            paused: false,
            plan,
        }
    }

    fn now(&self) -> Time {
        self.origin.elapsed()
    }

    fn stop_requested(&self) -> bool {
        self.plan.control.state().stop
    }

    /// Delivers until it is stopped, over one connection after the other.
    pub fn run(mut self) -> Ending {
        loop {
            let began = self.now();
            let plan = self.plan.clone();
            let attached = Session::attach(&self.runtime, &plan.target, &plan.control, &plan.log);
            let failure = match attached {
                Ok(mut session) => match self.serve(&mut session) {
                    Ok(ending) => {
                        self.shut_down_runner(&mut session);
                        session.close();
                        plan.log.log("mailroom send stopped");
                        return ending;
                    }
                    Err(failure) => failure,
                },
                Err(failure) => failure,
            };
            if self.stop_requested() || plan.once {
                self.abandon();
                if self.stop_requested() {
                    return Ending::Done;
                }
                plan.log.warn(
                    &format!("cannot use the database: {failure}"),
                    "",
                    failure.hint(),
                );
                plan.warn_of_passfile();
                return Ending::Unreached;
            }
            if self.now().saturating_sub(began) >= STABLE {
                self.outage.forget();
            }
            let delay = self.outage.begin(&plan, &failure, self.now());
            let mut control = plan.control;
            self.runtime.block_on(async {
                let _ = tokio::time::timeout(jitter(delay), control.stopped()).await;
            });
            if self.stop_requested() {
                self.abandon();
                self.plan.log.log("mailroom send stopped");
                return Ending::Done;
            }
        }
    }

    /// Delivers over this connection until it is stopped.
    fn serve(&mut self, session: &mut Session) -> Result<Ending, DatabaseError> {
        let plan = self.plan.clone();
        if let Some(runner) = &mut self.runner {
            runner.note_new_store();
        }
        let mut watch = Watch::new(plan.poll_interval(), self.now());
        let mut collector = session.is_collector().then(Collector::new);
        let mut look = Some(Look::Polled);
        let mut jobs_fd: Option<ReadableFd> = None;
        let mut once = Once::default();
        loop {
            if self.stop_requested() {
                return Ok(Ending::Done);
            }
            let mut is_left = None;
            if watch.is_to_ask(self.now()) {
                // Held mail is not due, and may be released before the result is used.
                let holds = self.runner.as_ref().is_some_and(|runner| runner.held() > 0);
                let answer = self.poll(session, &mut watch)?;
                look = look.or(answer.map(|_| Look::Polled));
                is_left = answer.filter(|_| !holds);
                if plan.once
                    && let Some(ending) = once.end_unpolled(self.now(), answer.is_some())
                {
                    return Ok(ending);
                }
            }
            self.apply_reload(session, &mut jobs_fd);
            if self.start_at.is_some_and(|at| at <= self.now()) {
                jobs_fd = None;
                self.start_runner(session);
            }
            if let Some(collector) = &mut collector {
                self.collect(session, collector, look.take(), &mut watch)?;
            }
            if watch.take_due(self.now()) {
                self.mail_due(false);
            }
            let next = self.deliver(session)?;
            if plan.once
                && let Some(is_left) = is_left
            {
                let collected = collector.as_ref().is_none_or(Collector::is_done);
                if let Some(ending) = self.is_over(&mut once, is_left, collected) {
                    return Ok(ending);
                }
            }
            let collect_at = collector.as_ref().map(Collector::next_at);
            let until = [next, collect_at, self.start_at].into_iter().flatten();
            let until = until.fold(watch.next_at(), Time::min);
            self.wait(session, until, &mut jobs_fd);
            if self.handle_notifications(session, &mut watch)? {
                look = Some(Look::Woken);
            }
        }
    }

    /// Collects tokens, and does the other tasks of the collector.
    fn collect(
        &mut self,
        session: &mut Session,
        collector: &mut Collector,
        announced: Option<Look>,
        watch: &mut Watch,
    ) -> Result<(), DatabaseError> {
        let timeout = self.plan.max_batch_timeout();
        let origin = self.origin;
        let now = move || origin.elapsed();
        let done = collector.work(session, &self.plan.log, &now, announced, timeout)?;
        if done.any {
            self.mail_due(done.urgent);
            watch.notify();
        }
        Ok(())
    }

    /// Handles the notifications that have arrived. Returns whether one announced tokens.
    fn handle_notifications(
        &mut self,
        session: &mut Session,
        watch: &mut Watch,
    ) -> Result<bool, DatabaseError> {
        let notifications = session.notifications()?;
        if notifications.outbox {
            watch.notify();
            self.mail_due(notifications.urgent);
        }
        if let Some(runner) = self.runner.as_mut().filter(|_| notifications.recheck) {
            runner.retry_now();
        }
        Ok(notifications.tokens)
    }

    fn mail_due(&self, urgent: bool) {
        if let Some(runner) = &self.runner {
            runner.mail_due(urgent);
        }
    }

    /// Reads the transports file again, if that was requested.
    fn apply_reload(&mut self, session: &mut Session, jobs_fd: &mut Option<ReadableFd>) {
        let reloads = self.plan.control.state().reloads;
        if std::mem::replace(&mut self.reloads, reloads) == reloads {
            return;
        }
        if self.runner.as_mut().is_some_and(|runner| !runner.reload()) {
            *jobs_fd = None;
            // Starting it again logs that there is no transport.
            self.shut_down_runner(session);
        }
        if self.runner.is_none() {
            self.start_at = Some(self.now());
        }
    }

    /// Starts the job runner, unless the file names no transport for this database.
    fn start_runner(&mut self, session: &Session) {
        self.start_at = None;
        let (runtime, lease) = (Rc::clone(&self.runtime), Rc::clone(&self.lease));
        let host = Process::new(&self.plan, session.database(), runtime, lease);
        match JobRunner::start(
            host,
            LOG_PREFIX,
            self.claimant.clone(),
            host::spawn,
            self.now(),
        ) {
            Ok(Some(mut runner)) => {
                runner.set_redirect(session.settings().redirect_to.as_deref());
                self.runner = Some(runner);
                self.mail_due(false);
            }
            Ok(None) => {
                let what = "the transports file names no transport for this database";
                self.plan.log.log(what);
            }
            Err(error) => {
                self.start_at = Some(self.now().saturating_add(START_RETRY));
                let what = format!("mailroom send cannot start a thread: {error}");
                let hint = format!("It is tried again in {} s.", START_RETRY.as_secs());
                self.plan.log.warn(&what, "", &hint);
            }
        }
    }

    /// Runs the jobs; returns when to call this again.
    fn deliver(&mut self, session: &mut Session) -> Result<Option<Time>, DatabaseError> {
        let now = self.now();
        if self.runner.as_ref().is_some_and(JobRunner::has_failed) {
            // The leases of its claims expire.
            self.runner = None;
            self.start_at = Some(now);
            self.claimant = super::new_claimant();
            self.ledger = Ledger::default();
            return Err(DatabaseError::lost("the deliverer has failed"));
        }
        let Some(runner) = &mut self.runner else {
            return Ok(None);
        };
        let mut outbox = Outbox::new(session, &mut self.ledger);
        match runner.run_jobs(&mut outbox, now, !self.paused) {
            Ok(next) => Ok(next),
            Err(failure) if failure.is_gone() => Err(failure),
            Err(failure) => {
                let what = format!("mailroom send could not extend its claims: {failure}");
                self.plan.log.warn(&what, "", failure.hint());
                Ok(Some(now.saturating_add(EXTEND_RETRY)))
            }
        }
    }

    /// Waits for the time, or for an event.
    fn wait(&mut self, session: &mut Session, until: Time, jobs_fd: &mut Option<ReadableFd>) {
        let runtime = Rc::clone(&self.runtime);
        let left = until.saturating_sub(self.now());
        if jobs_fd.is_none()
            && let Some(runner) = &self.runner
        {
            let _guard = runtime.enter();
            *jobs_fd = ReadableFd::new(runner.jobs_fd()).ok();
        }
        let mut control = self.plan.control.clone();
        let seen = self.reloads;
        runtime.block_on(async {
            tokio::select! {
                () = session.arrival() => {}
                () = ReadableFd::readable_if_any(jobs_fd.as_ref()) => {}
                () = tokio::time::sleep(left) => {}
                () = async {
                    while !control.state().stop && control.state().reloads == seen {
                        control.changed().await;
                    }
                } => {}
            }
        });
    }

    /// Shuts the job runner down.
    fn shut_down_runner(&mut self, session: &mut Session) {
        if let Some(runner) = self.runner.take() {
            let origin = self.origin;
            let mut outbox = Outbox::new(session, &mut self.ledger);
            runner.shut_down(&mut outbox, move || origin.elapsed());
        }
    }

    /// Ends without a connection.
    fn abandon(&mut self) {
        if let Some(runner) = self.runner.take()
            && runner.held() > 0
        {
            let what = format!(
                "mailroom send could not settle its last {} mails; their claims will lapse",
                runner.held()
            );
            self.plan.log.warn(&what, "There is no connection.", "");
        }
    }
}
