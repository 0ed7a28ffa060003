//! The deliverer as the worker has it: what it wants done in the database is done here, one job after the other.
//!
//! No transaction is open while anything is sent (I5): the deliverer has a thread of its own, and decides everything
//! there. The worker settles and claims what it is told (each in one commit), reads the transports file, publishes how
//! the transports are, and extends the leases of what is held, at once when the clock has jumped.

mod publish;
mod singly;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgrx::prelude::*;

use mailroom_core::backoff::Failures;
use mailroom_core::deliver::events::News;
use mailroom_core::deliver::intake::{Appetite, Exchanged};
use mailroom_core::deliver::settlements::Settlements;
use mailroom_core::deliver::thread::{Job, Thread};
use mailroom_core::transport::config::{Configured, Error};

use self::publish::Publisher;
use super::clock::Clock;
use super::session::{Failure, Session, stop_requested};
use crate::{log, server, settings, transports, wake};

/// Time since the worker started.
type Time = Duration;

/// How long what is in flight has after a stop, and then what is to be settled.
const GRACE: Duration = Duration::from_secs(2);
/// How long a restore is waited for.
const STAND_BY: Duration = Duration::from_secs(1);

/// The worker's deliverer.
pub struct Deliverer {
    claimant: String,
    database: String,
    thread: Thread,
    publisher: Publisher,
    /// The mails whose claims are not settled yet.
    held: HashSet<i64>,
    /// The latest exchange failed: settle alone first, each mail by itself.
    careful: bool,
    allowed: bool,
    extended_at: Time,
    clock: Clock,
    failures: Failures,
}

/// What one exchange of a transport is to do.
struct Exchange {
    transport: Arc<str>,
    settlements: Box<Settlements>,
    appetite: Option<Appetite>,
    paused: Vec<(Arc<str>, Duration)>,
}

impl Deliverer {
    /// One for the transports of this database, if it has any or the file cannot be read.
    ///
    /// # Errors
    /// When the system has no thread to spare.
    pub fn start(session: &Session, now: Time) -> Result<Option<Self>, std::io::Error> {
        let loaded = transports::load(session.database());
        if matches!(&loaded, Ok(none) if none.is_empty()) {
            return Ok(None);
        }
        let thread = Thread::start(|body| server::spawn_without_signals("mailroom sender", body))?;
        let mut deliverer = Self {
            claimant: format!(
                "mailroom worker/{}/{}",
                server::timeline(),
                server::session_id()
            ),
            database: session.database().to_owned(),
            thread,
            publisher: Publisher::default(),
            held: HashSet::new(),
            careful: false,
            allowed: true,
            extended_at: now,
            clock: Clock::start(),
            failures: Failures::default(),
        };
        if let Err(failure) = session.take_over(&server::timeline()) {
            failure.warn("mailroom worker could not take over the claims of an earlier one");
        }
        wake::set_delivers(true);
        deliverer.configure(loaded);
        Ok(Some(deliverer))
    }

    /// There may be mail; `urgent`: a person waits for it.
    pub fn look(&self, urgent: bool) {
        self.thread.look(urgent);
    }

    /// Everything is to be tried at once.
    pub fn hurry(&self) {
        self.thread.hurry();
    }

    /// The file may have changed, or what it names. False when this database has no transport any more.
    #[must_use]
    pub fn reload(&mut self) -> bool {
        let loaded = transports::load(&self.database);
        if matches!(&loaded, Ok(none) if none.is_empty()) {
            return false;
        }
        self.configure(loaded);
        true
    }

    /// Readable when there is something to do.
    pub fn bell(&self) -> std::os::fd::RawFd {
        self.thread.bell()
    }

    /// Takes over what was read; a file that is no good changes nothing.
    fn configure(&mut self, loaded: Result<Vec<Configured>, Error>) {
        match loaded {
            Ok(transports) => {
                let list = transports::list(&transports);
                if self.publisher.configure(&transports) {
                    log!("mailroom worker delivers through {list}");
                }
                self.thread.configure(transports);
            }
            Err(error) => {
                if self.publisher.note_problem(error.to_string()) {
                    log::warn(
                        format!("mailroom worker: {error}"),
                        "The transports that were read before stay in force; without any, mail waits.",
                        &error.hint(),
                    );
                }
                self.thread.keep_configuration();
            }
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
        let publish_at = self
            .publisher
            .publish(session, &self.claimant, &self.thread, now);
        let extend_at = (!self.held.is_empty())
            .then(|| self.extended_at.saturating_add(extension_interval()));
        Ok([publish_at, extend_at].into_iter().flatten().min())
    }

    fn work(&mut self, session: &Session, job: Job, now: Time) -> Result<(), Failure> {
        match job {
            Job::Configure => {
                let loaded = transports::load(&self.database);
                self.configure(loaded);
            }
            Job::Tell(transport, news) => tell(&transport, &news),
            Job::Exchange {
                transport,
                settlements,
                appetite,
                paused,
            } => {
                let exchange = Exchange {
                    transport,
                    settlements,
                    appetite,
                    paused,
                };
                return self.exchange(session, exchange, now);
            }
        }
        Ok(())
    }

    fn exchange(&mut self, session: &Session, wanted: Exchange, now: Time) -> Result<(), Failure> {
        let Exchange {
            transport,
            settlements,
            appetite,
            paused,
        } = wanted;
        if self.careful && !settlements.is_empty() {
            return self.settle_singly(session, &transport, settlements, now);
        }
        let began = Instant::now();
        let claim = appetite.map(|appetite| (&*transport, appetite, &*paused));
        let (lost, claimed) = match session.exchange(&self.claimant, &settlements, claim) {
            Ok(done) => done,
            Err(failure) => return self.failed(session, &transport, settlements, failure, now),
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
        let exchanged = Exchanged {
            settled: *settlements,
            lost,
            stuck: Settlements::default(),
            claimed: appetite.zip(claimed),
        };
        self.thread.exchanged(&transport, exchanged);
        if began.elapsed() >= extension_interval() {
            // A standby was waited for, and the leases began before.
            self.extend(session, now)?;
        }
        Ok(())
    }

    /// Nothing of an exchange has happened: it is repeated later. An error when nothing is left that could repeat it.
    fn failed(
        &mut self,
        session: &Session,
        transport: &Arc<str>,
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
            self.thread
                .exchange_failed(transport, settlements, self.thread.now());
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
        let retry_at = self.thread.now().saturating_add(delay);
        self.thread
            .exchange_failed(transport, settlements, retry_at);
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
        wake::set_delivers(false);
        self.thread.stop();
        loop {
            let mut failures = 0;
            for job in self.thread.jobs() {
                failures += usize::from(self.work(session, job, now()).is_err());
            }
            if self.thread.is_resting() {
                break;
            }
            if Instant::now() >= deadline || failures > 0 {
                if std::mem::replace(&mut has_given_up, true) {
                    warning!(
                        "mailroom worker could not settle its last mails; their claims will lapse"
                    );
                    break;
                }
                self.thread.give_up();
                deadline = Instant::now() + GRACE;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            server::wait_for(left, Some(self.thread.bell()));
        }
        self.publisher.withdraw(session, &self.claimant);
    }
}

/// A line of the log.
fn tell(transport: &str, news: &News) {
    match news {
        News::Paused(reason, next) => log::warn(
            format!("mailroom worker: transport \"{transport}\" paused: {reason}"),
            &format!(
                "Its mail waits. One message is tried in {} s, then now and then.",
                next.as_secs()
            ),
            "SELECT mailroom_wake_worker() has one tried at once.",
        ),
        News::Throttled(reason, wait) => log!(
            "mailroom worker: transport \"{transport}\" slowed: {reason}; next request in {:.1} s",
            wait.as_secs_f64()
        ),
        News::Resumed(after) => log!(
            "mailroom worker: transport \"{transport}\" resumed after {} s",
            after.as_secs()
        ),
        News::Ended(count, reason) => log::warn(
            format!("mailroom worker: {count} mails of transport \"{transport}\" ended as error"),
            &format!("The latest: {reason}."),
            "Look at outbox_attempts; mailroom_retry_failed puts them back.",
        ),
    }
}

/// How old the lease of a held mail gets before it is extended: two thirds of it are left for that to succeed.
fn extension_interval() -> Duration {
    settings::lease() / 3
}
