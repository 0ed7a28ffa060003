//! What owns a deliverer: does in the database what the deliverer wants done, one job after the other.
//!
//! No transaction is open while anything is sent (I5): the deliverer has a thread of its own, and decides everything
//! there. Its owner settles and claims what it is told (each in one commit), has the transports file read, publishes how
//! the transports are, and extends the leases of what is held. The worker of a database is one owner, `mailroom send`
//! another; they differ in their [`Store`] and [`Host`].

mod news;
mod publish;
mod singly;

use std::collections::HashSet;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::publish::Publisher;
use super::Time;
use super::intake::{Appetite, Exchanged};
use super::settlements::Settlements;
use super::store::{Claim, Failure, Host, Kind, Line, Store};
use super::thread::{Job, Thread};
use crate::backoff::Failures;
use crate::transport::config::{Configured, Error};

/// How long what is to be settled has at the end, after what was in flight was given up.
const SETTLING: Duration = Duration::from_secs(2);
/// How often a file is read again that is no good, while there is no transport.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// How long after an exchange that failed the next is tried at the end.
const LAST_TRIES: Duration = Duration::from_millis(100);
/// How long a restore is waited for.
const STAND_BY: Duration = Duration::from_secs(1);

/// A deliverer, as its owner has it.
pub struct Owner<H> {
    host: H,
    /// Begins each line of the log.
    who: &'static str,
    claimant: String,
    thread: Thread,
    publisher: Publisher,
    /// `mailroom.redirect_to`.
    redirect_to: Option<String>,
    /// The mails whose claims are not settled yet.
    held: HashSet<i64>,
    /// The latest exchange failed: settle alone first, each mail by itself.
    careful: bool,
    allowed: bool,
    extended_at: Time,
    /// The same by the deliverer's time.
    leased_at: Time,
    /// When a file that could not be read is read again.
    read_at: Time,
    failures: Failures,
}

/// What one exchange of a transport is to do.
struct Exchange {
    transport: Arc<str>,
    settlements: Box<Settlements>,
    appetite: Option<Appetite>,
    paused: Vec<(Arc<str>, Duration)>,
}

impl<H: Host> Owner<H> {
    /// Starts one, unless the file names no transport for this database. `who` begins each line of its log.
    ///
    /// # Errors
    /// When the system has no thread to spare.
    pub fn start(
        host: H,
        who: &'static str,
        claimant: String,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>>,
        now: Time,
    ) -> Result<Option<Self>, std::io::Error> {
        let loaded = host.load();
        if is_empty(&loaded) {
            return Ok(None);
        }
        let mut owner = Self {
            host,
            who,
            claimant,
            thread: Thread::start(spawn)?,
            publisher: Publisher::default(),
            redirect_to: None,
            held: HashSet::new(),
            careful: false,
            allowed: true,
            extended_at: now,
            leased_at: Time::ZERO,
            read_at: now.saturating_add(READ_AGAIN),
            failures: Failures::default(),
        };
        owner.configure(loaded);
        Ok(Some(owner))
    }

    /// There may be mail; `urgent`: a person waits for it.
    pub fn look(&self, urgent: bool) {
        self.thread.look(urgent);
    }

    /// Everything is to be tried at once.
    pub fn hurry(&mut self) {
        self.read_at = Time::ZERO;
        self.thread.hurry();
    }

    /// The store is another one, which may not know what was published.
    pub fn note_new_store(&mut self) {
        self.publisher.forget();
    }

    /// Reads a file again that was no good from the start: nothing else would. Returns when it is to be read next.
    fn read_again(&mut self, now: Time) -> Option<Time> {
        if !self.publisher.is_without_transports() {
            return None;
        }
        if now >= self.read_at {
            self.read_at = now.saturating_add(READ_AGAIN);
            let loaded = self.host.load();
            if !is_empty(&loaded) {
                self.configure(loaded);
            }
        }
        Some(self.read_at)
    }

    /// The file may have changed, or what it names. False when it names no transport any more.
    #[must_use]
    pub fn reload(&mut self) -> bool {
        let loaded = self.host.load();
        if is_empty(&loaded) {
            return false;
        }
        self.configure(loaded);
        true
    }

    /// Readable when there is something to do.
    pub fn bell(&self) -> RawFd {
        self.thread.bell()
    }

    /// Claims that are not settled yet.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether the deliverer itself has failed: what was claimed is for another one to take over.
    pub fn has_failed(&self) -> bool {
        self.thread.has_failed()
    }

    /// The names of the transports.
    pub fn transports(&self) -> Vec<Arc<str>> {
        let statuses = self.thread.statuses().into_iter();
        statuses.map(|(name, _)| name).collect()
    }

    /// Takes over what was read; a file that is no good changes nothing.
    fn configure(&mut self, loaded: Result<Vec<Configured>, Error>) {
        match loaded {
            Ok(transports) => {
                let names: Vec<String> = transports
                    .iter()
                    .map(|one| format!("{} ({})", one.name, one.provider_name))
                    .collect();
                if self.publisher.configure(&transports) {
                    let line = format!("{} delivers through {}", self.who, names.join(", "));
                    self.host.log(&Line::Log(line));
                }
                self.thread.configure(transports);
            }
            Err(error) => {
                if self.publisher.note_problem(error.to_string()) {
                    self.warn(
                        &error.to_string(),
                        "The transports that were read before stay in force; without any, mail waits.",
                        &error.hint(),
                    );
                }
                self.thread.keep_configuration();
            }
        }
    }

    fn log(&self, message: &str) {
        self.host.log(&Line::Log(format!("{}{message}", self.who)));
    }

    fn warn(&self, message: &str, detail: &str, hint: &str) {
        self.host.log(&Line::Warning {
            message: format!("{}: {message}", self.who),
            detail: detail.to_owned(),
            hint: hint.to_owned(),
        });
    }

    /// Does what there is to do now; returns when there is more, apart from what the bell will tell.
    ///
    /// `allowed`: mail may be claimed and sent; otherwise what is in flight is settled and the rest given back.
    ///
    /// # Errors
    /// When the store is gone.
    pub fn round<S: Store>(
        &mut self,
        store: &mut S,
        now: Time,
        allowed: bool,
    ) -> Result<Option<Time>, S::Failure> {
        if self.allowed != allowed {
            self.allowed = allowed;
            self.thread.allow(allowed);
        }
        let mut gone = None;
        for job in self.thread.jobs() {
            if let Err(failure) = self.work(store, job, now) {
                gone = Some(failure);
            }
        }
        if let Some(failure) = gone {
            return Err(failure);
        }
        if now.saturating_sub(self.extended_at) >= self.extension_interval() {
            self.extend(store, now)?;
        }
        let read_at = self.read_again(now);
        let publish_at = self
            .publisher
            .publish(store, &self.claimant, &self.thread, now);
        let extend_at = (!self.held.is_empty())
            .then(|| self.extended_at.saturating_add(self.extension_interval()));
        Ok([publish_at, extend_at, read_at].into_iter().flatten().min())
    }

    fn work<S: Store>(&mut self, store: &mut S, job: Job, now: Time) -> Result<(), S::Failure> {
        match job {
            Job::Configure => {
                let loaded = self.host.load();
                self.configure(loaded);
                Ok(())
            }
            Job::Tell(transport, news) => {
                self.tell(&transport, &news);
                Ok(())
            }
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
                self.exchange(store, exchange, now)
            }
        }
    }

    fn exchange<S: Store>(
        &mut self,
        store: &mut S,
        wanted: Exchange,
        now: Time,
    ) -> Result<(), S::Failure> {
        let Exchange {
            transport,
            settlements,
            appetite,
            paused,
        } = wanted;
        if self.careful && !settlements.is_empty() {
            return self.settle_singly(store, &transport, settlements, now);
        }
        let began = Instant::now();
        let asked_at = self.thread.now();
        let claim = appetite.map(|appetite| Claim {
            transport: &transport,
            appetite,
            paused: &paused,
        });
        let (lost, claimed) = match store.exchange(&self.claimant, &settlements, claim) {
            Ok(done) => done,
            Err(failure) => return self.failed(&transport, settlements, failure, now),
        };
        self.careful = false;
        if self.failures.end() > 0 {
            self.log(" claims and settles mail again");
        }
        if self.host.stop_requested() {
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
                self.leased_at = asked_at;
            }
            self.held.extend(ids);
            self.thread
                .leases_until(self.leased_at.saturating_add(self.host.lease()));
        }
        let exchanged = Exchanged {
            settled: *settlements,
            lost,
            stuck: Settlements::default(),
            claimed: appetite.zip(claimed),
        };
        self.thread.exchanged(&transport, exchanged);
        if began.elapsed() >= self.extension_interval() {
            // A standby was waited for, and the leases began before.
            self.extend(store, now)?;
        }
        Ok(())
    }

    /// Nothing of an exchange has happened: it is repeated later. An error when nothing is left that could repeat it.
    fn failed<F: Failure>(
        &mut self,
        transport: &Arc<str>,
        settlements: Box<Settlements>,
        failure: F,
        now: Time,
    ) -> Result<(), F> {
        // A stop cancels statements, too.
        let delay = if self.host.stop_requested() {
            self.careful = true;
            LAST_TRIES
        } else if failure.kind() == Kind::Restoring {
            // What is in flight is settled when the restore is over.
            STAND_BY
        } else if failure.kind() == Kind::Gone {
            self.thread
                .exchange_failed(transport, settlements, self.thread.now());
            return Err(failure);
        } else {
            self.careful = true;
            let verdict = self.failures.record(now);
            if verdict.tell {
                failure.warn(&format!(
                    "{} could not claim or settle mail (attempt {}, next in {} s)",
                    self.who,
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

    /// Extends the leases of what is held.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn extend<S: Store>(&mut self, store: &mut S, now: Time) -> Result<(), S::Failure> {
        self.extended_at = now;
        if self.held.is_empty() {
            return Ok(());
        }
        let asked_at = self.thread.now();
        let ids: Vec<i64> = self.held.iter().copied().collect();
        let in_force = store.extend(&self.claimant, &ids)?;
        self.leased_at = asked_at;
        if in_force.len() < ids.len() {
            // What is in flight stays held, for its settle.
            self.thread.in_force(in_force.into_iter().collect());
        }
        // After that: what was lost is not sent.
        self.thread
            .leases_until(asked_at.saturating_add(self.host.lease()));
        Ok(())
    }

    /// Gives back what was not sent, waits a little for what was, and settles it.
    pub fn finish<S: Store>(mut self, store: &mut S, now: impl Fn() -> Time) {
        let mut deadline = Instant::now() + self.host.stop_grace();
        let mut has_given_up = false;
        self.thread.stop();
        loop {
            let mut failures = 0;
            for job in self.thread.jobs() {
                failures += usize::from(self.work(store, job, now()).is_err());
            }
            if self.thread.is_resting() {
                break;
            }
            if Instant::now() >= deadline || failures > 0 {
                if std::mem::replace(&mut has_given_up, true) {
                    self.host.log(&Line::Warning {
                        message: format!(
                            "{} could not settle its last mails; their claims will lapse",
                            self.who
                        ),
                        detail: String::new(),
                        hint: String::new(),
                    });
                    break;
                }
                self.thread.give_up();
                deadline = Instant::now() + SETTLING;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            self.host.wait(left, self.thread.bell());
        }
        self.publisher.withdraw(store, &self.claimant);
    }

    /// How old the lease of a held mail gets before it is extended: two thirds of it are left for that to succeed.
    fn extension_interval(&self) -> Duration {
        self.host.lease() / 3
    }
}

fn is_empty(loaded: &Result<Vec<Configured>, Error>) -> bool {
    matches!(loaded, Ok(none) if none.is_empty())
}
