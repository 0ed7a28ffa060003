//! The deliverer as the worker has it: what it wants done in the database is done here, one job after the other.
//!
//! No transaction is open while anything is sent (I5): the deliverer has a thread of its own, and decides everything
//! there. The worker settles and claims what it is told (each in one commit), reads settings, and extends the leases of
//! what is held, at once when the clock has jumped.

mod singly;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use pgrx::prelude::*;

use mailroom_core::backoff::Failures;
use mailroom_core::deliver::events::News;
use mailroom_core::deliver::intake::{Appetite, Exchanged};
use mailroom_core::deliver::settlements::Settlements;
use mailroom_core::deliver::thread::{Job, Thread};

use super::clock::Clock;
use super::session::{Failure, Session, stop_requested};
use crate::delivery::report::{self, Report};
use crate::delivery::route;
use crate::registry::SlotIndex;
use crate::settings::sending::{self, Sender};
use crate::{server, settings};

/// Time since the worker started.
type Time = Duration;

/// How long what is in flight has after a stop, and then what is to be settled.
const GRACE: Duration = Duration::from_secs(2);
/// How long a restore is waited for.
const STAND_BY: Duration = Duration::from_secs(1);

/// The worker's deliverer.
pub struct Deliverer {
    claimant: String,
    sender: Sender,
    thread: Thread,
    /// The mails whose claims are not settled yet.
    held: HashSet<i64>,
    /// The latest exchange failed: settle alone first, each mail by itself.
    careful: bool,
    allowed: bool,
    extended_at: Time,
    clock: Clock,
    reported: Option<Report>,
    failures: Failures,
}

impl Deliverer {
    /// One for the settings as they are, unless clients deliver.
    ///
    /// # Errors
    /// When the system has no thread to spare.
    pub fn start(session: &Session, now: Time) -> Result<Option<Self>, std::io::Error> {
        let sender = sending::sender();
        if sender == Sender::Outbox {
            return Ok(None);
        }
        let thread = Thread::start(|body| server::spawn_without_signals("mailroom sender", body))?;
        let deliverer = Self {
            claimant: format!(
                "mailroom worker/{}/{}",
                server::timeline(),
                server::session_id()
            ),
            sender,
            thread,
            held: HashSet::new(),
            careful: false,
            allowed: true,
            extended_at: now,
            clock: Clock::start(),
            reported: None,
            failures: Failures::default(),
        };
        if let Err(failure) = session.take_over(&server::timeline()) {
            failure.warn("mailroom worker could not take over the claims of an earlier one");
        }
        log!("mailroom worker delivers by {}", sender.as_str());
        deliverer.configure();
        Ok(Some(deliverer))
    }

    /// There may be mail; `urgent`: somebody waits for it.
    pub fn look(&self, urgent: bool) {
        self.thread.look(urgent);
    }

    /// Somebody wants everything to be looked at.
    pub fn hurry(&self) {
        self.thread.hurry();
    }

    /// Settings may have changed, or what they name. False when clients deliver from now on.
    #[must_use]
    pub fn reload(&mut self) -> bool {
        self.sender = sending::sender();
        if self.sender == Sender::Outbox {
            return false;
        }
        self.configure();
        true
    }

    /// Readable when there is something to do.
    pub fn bell(&self) -> std::os::fd::RawFd {
        self.thread.bell()
    }

    fn configure(&self) {
        match route::plan() {
            Ok((limits, conduct)) => self.thread.configure(limits, conduct),
            Err(problem) => self.thread.misconfigure(problem),
        }
    }

    /// Does what there is to do now; returns when there is more, apart from what the bell will tell.
    ///
    /// `allowed`: mail may be claimed and sent; otherwise what is in flight is settled and the rest given back.
    ///
    /// # Errors
    /// When the extension is gone.
    pub fn round(
        &mut self,
        session: &Session,
        index: SlotIndex,
        now: Time,
        allowed: bool,
    ) -> Result<Option<Time>, Failure> {
        if self.thread.has_failed() {
            // What was claimed is taken over by the worker's successor.
            error!("mailroom worker: the deliverer has failed");
        }
        if self.allowed != allowed {
            self.allowed = allowed;
            self.thread.allow(allowed);
        }
        self.mind_clock(session, now)?;
        let mut gone = None;
        for job in self.thread.jobs() {
            if let Err(failure) = self.work(session, job, now) {
                gone = Some(failure);
            }
        }
        if let Some(failure) = gone {
            return Err(failure);
        }
        if now.saturating_sub(self.extended_at) >= extension_interval() {
            self.extend(session, now)?;
        }
        self.announce(index, now);
        let extend_at = self.extended_at.saturating_add(extension_interval());
        Ok((!self.held.is_empty()).then_some(extend_at))
    }

    fn work(&mut self, session: &Session, job: Job, now: Time) -> Result<(), Failure> {
        match job {
            Job::Configure => self.configure(),
            Job::Tell(news) => self.tell(&news),
            Job::Exchange {
                settlements,
                appetite,
            } => return self.exchange(session, settlements, appetite, now),
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        session: &Session,
        settlements: Box<Settlements>,
        appetite: Option<Appetite>,
        now: Time,
    ) -> Result<(), Failure> {
        if self.careful && !settlements.is_empty() {
            return self.settle_singly(session, settlements, now);
        }
        let began = Instant::now();
        let (lost, claimed) = match session.exchange(&self.claimant, &settlements, appetite) {
            Ok(done) => done,
            Err(failure) => return self.failed(session, settlements, failure, now),
        };
        self.careful = false;
        if self.failures.end() > 0 {
            log!("mailroom worker claims and settles mail again");
        }
        if stop_requested() {
            // What was claimed is not sent any more.
            self.thread.stop();
        }
        for id in settlements.ids() {
            self.held.remove(id);
        }
        if let Some(claimed) = &claimed {
            let ids = claimed.mails.iter().map(|mail| mail.message.id);
            if self.held.is_empty() {
                self.extended_at = now;
            }
            self.held.extend(ids);
        }
        self.thread.exchanged(Exchanged {
            settled: *settlements,
            lost,
            stuck: Settlements::default(),
            claimed: appetite.zip(claimed),
        });
        if began.elapsed() >= extension_interval() {
            // A standby was waited for, and the leases began before.
            self.extend(session, now)?;
        }
        Ok(())
    }

    /// Nothing of an exchange has happened: it is repeated later. An error when there is nobody to repeat it.
    fn failed(
        &mut self,
        session: &Session,
        settlements: Box<Settlements>,
        failure: Failure,
        now: Time,
    ) -> Result<(), Failure> {
        // A stop cancels statements, too.
        let delay = if stop_requested() {
            self.careful = true;
            Duration::ZERO
        } else if matches!(failure, Failure::Restoring) {
            // What is in flight is settled when the restore is over.
            STAND_BY
        } else if failure.is_extension_gone() || session.is_gone() {
            self.thread.exchange_failed(settlements, self.thread.now());
            return Err(failure);
        } else {
            self.careful = true;
            let verdict = self.failures.record(now);
            if verdict.tell {
                failure.warn(&format!(
                    "mailroom worker could not claim or settle mail (attempt {}, next in {} s)",
                    self.failures.count(),
                    verdict.delay.as_secs()
                ));
            }
            verdict.delay
        };
        self.thread
            .exchange_failed(settlements, self.thread.now().saturating_add(delay));
        Ok(())
    }

    /// Extends all leases if the wall clock has jumped; to be called before anything looks for lapsed ones.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn mind_clock(&mut self, session: &Session, now: Time) -> Result<(), Failure> {
        let Some(jump) = self.clock.take_jump() else {
            return Ok(());
        };
        if self.held.is_empty() {
            return Ok(());
        }
        log!(
            "mailroom worker: the clock has jumped by {} s; the leases of {} mails under way are extended",
            jump / 1_000_000,
            self.held.len()
        );
        self.extend(session, now)
    }

    /// Extends the leases of what is held.
    fn extend(&mut self, session: &Session, now: Time) -> Result<(), Failure> {
        self.extended_at = now;
        if self.held.is_empty() {
            return Ok(());
        }
        let ids: Vec<i64> = self.held.iter().copied().collect();
        let in_force = session.extend(&self.claimant, &ids)?;
        if in_force.len() < ids.len() {
            // What is in flight stays held, for its settle.
            self.thread.in_force(in_force.into_iter().collect());
        }
        Ok(())
    }

    /// Gives back what was not sent, waits a little for what was, and settles it.
    pub fn finish(mut self, session: &Session, now: impl Fn() -> Time) {
        let mut deadline = Instant::now() + GRACE;
        let mut has_given_up = false;
        self.thread.stop();
        loop {
            let mut failures = 0;
            for job in self.thread.jobs() {
                failures += usize::from(self.work(session, job, now()).is_err());
            }
            if self.thread.is_resting() {
                return;
            }
            if Instant::now() >= deadline || failures > 0 {
                if std::mem::replace(&mut has_given_up, true) {
                    warning!(
                        "mailroom worker could not settle its last mails; their claims will lapse"
                    );
                    return;
                }
                self.thread.give_up();
                deadline = Instant::now() + GRACE;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            server::wait_for(left, Some(self.thread.bell()));
        }
    }

    fn tell(&self, news: &News) {
        let sender = self.sender.as_str();
        match news {
            News::Paused(reason, next) => warning!(
                "mailroom worker paused sending by {sender}: {reason}; mail waits, and one is tried in {} s, then now and then",
                next.as_secs()
            ),
            News::Throttled(reason, wait) => log!(
                "mailroom worker slows sending by {sender}: {reason}; next after {:.1} s",
                wait.as_secs_f64()
            ),
            News::Resumed(after) => log!(
                "mailroom worker sends again by {sender}, after {} s",
                after.as_secs()
            ),
            News::Ended(count, reason) => warning!(
                "mailroom worker ended {count} mails as error; the latest: {reason}; see outbox_attempts"
            ),
        }
    }

    /// Tells mailroom_status() of what has changed.
    fn announce(&mut self, index: SlotIndex, _now: Time) {
        let status = self.thread.status();
        let elapsed = self.thread.now();
        // Told to a tenth of a second: times that are computed anew in each round would differ each time.
        let next_try = status.next_try.map(|at| {
            let wait = i64::try_from(at.saturating_sub(elapsed).as_micros()).unwrap_or(i64::MAX);
            server::now().saturating_add(wait) / 100_000 * 100_000
        });
        let report = Report {
            sender: self.sender.as_str(),
            channel: status.state,
            reason: status.reason,
            next_try,
            in_flight: status.in_flight,
            unknown: status.ambiguous,
        };
        if self.reported.as_ref() != Some(&report) {
            report::write(index, &report);
            self.reported = Some(report);
        }
    }
}

/// How old the lease of a held mail gets before it is extended: two thirds of it are left for that to succeed.
fn extension_interval() -> Duration {
    settings::lease() / 3
}
