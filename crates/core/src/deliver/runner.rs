//! The job runner of a database: executes the jobs of the delivery thread, one after the other.
//!
//! No transaction is open while a request is in flight (I5): the delivery thread sends mail and takes all decisions. The job
//! runner settles and claims as told, each exchange in one transaction; it reads the transports file, publishes the states of
//! the transports, and extends the leases of held mails. The worker of a database is one job runner, `mailroom send` another;
//! they differ in their [`Store`] and [`Host`].
//!
//! | module | owns |
//! |---|---|
//! | `state` | the fields of a job runner |
//! | `exchange` | settling, claiming and extending leases |
//! | `log_lines` | the text of log events |
//! | `publish` | the states of the transports in the table `transports` |
//! | `refusals` | which mails could not be settled, and how often |

mod exchange;
mod log_lines;
mod publish;
mod refusals;
mod state;

use std::collections::HashSet;
use std::os::fd::RawFd;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use self::state::JobRunner;

use self::log_lines::LogPrefix;
use self::publish::Publisher;
use self::refusals::Refusals;
use super::Time;
use super::clock::Clock;
use super::store::{Host, LogLine, Store};
use super::thread::{DeliveryThread, Job};
use crate::backoff::Failures;
use crate::transport::config::{ConfigError, TransportConfig};

/// How long the last settlements may take at the end, after the requests in flight were abandoned.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which [`JobRunner::run_jobs`] is called again if claims could not be extended.
pub const EXTEND_RETRY: Duration = Duration::from_secs(5);
/// How often an unreadable transports file is read again while there is no transport.
const RELOAD_INTERVAL: Duration = Duration::from_secs(30);

impl<H: Host> JobRunner<H> {
    /// Starts a job runner and its delivery thread, or returns `None` if the transports file names no transport for this
    /// database. `name` starts each line of the log; `spawn` creates a thread with all signals blocked.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(
        host: H,
        name: &'static str,
        claimant: String,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>>,
        now: Time,
    ) -> Result<Option<Self>, std::io::Error> {
        let loaded = host.load();
        if is_empty(&loaded) {
            return Ok(None);
        }
        let mut runner = Self {
            host,
            log: LogPrefix(name),
            claimant,
            thread: DeliveryThread::start(spawn)?,
            publisher: Publisher::default(),
            redirect_to: None,
            held: HashSet::new(),
            extended_at: now,
            leases_began_at: Time::ZERO,
            lease: Duration::ZERO,
            clock: Clock::start(),
            refusals: Refusals::default(),
            is_sending_allowed: true,
            reload_at: now.saturating_add(RELOAD_INTERVAL),
            failures: Failures::default(),
            failing: HashSet::new(),
        };
        runner.configure(loaded);
        Ok(Some(runner))
    }

    /// Mail may be due. `urgent`: a person waits for it.
    pub fn mail_due(&self, urgent: bool) {
        self.thread.mail_due(urgent);
    }

    /// Retries everything at once.
    pub fn retry_now(&mut self) {
        self.reload_at = Time::ZERO;
        self.thread.retry_now();
    }

    /// The store has another connection, or another database, and may not have what was published.
    pub fn note_new_store(&mut self) {
        self.publisher.publish_again();
    }

    /// Reads the transports file again if it has been unreadable from the start. Returns when to do so next.
    fn reload_unreadable(&mut self, now: Time) -> Option<Time> {
        if !self.publisher.has_no_transports() {
            return None;
        }
        if now >= self.reload_at {
            self.reload_at = now.saturating_add(RELOAD_INTERVAL);
            let loaded = self.host.load();
            if !is_empty(&loaded) {
                self.configure(loaded);
            }
        }
        Some(self.reload_at)
    }

    /// Reads the transports file, and the files that it names. Returns false if it names no transport for this database.
    #[must_use]
    pub fn reload(&mut self) -> bool {
        let loaded = self.host.load();
        if is_empty(&loaded) {
            return false;
        }
        self.configure(loaded);
        true
    }

    /// A file descriptor that is readable when there are jobs.
    pub fn jobs_fd(&self) -> RawFd {
        self.thread.jobs_fd()
    }

    /// Number of mails whose claims are not settled yet.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether a deliverer has panicked. The claims then expire, or a successor takes them over.
    pub fn has_failed(&self) -> bool {
        self.thread.has_failed()
    }

    /// The names of the transports in the file.
    pub fn transports(&self) -> Vec<String> {
        self.publisher.names()
    }

    /// `mailroom.redirect_to` has this value. A change is logged.
    pub fn set_redirect(&mut self, address: Option<&str>) {
        if self.redirect_to.as_deref() != address {
            self.host.log(&self.log.redirect(address));
            self.redirect_to = address.map(str::to_owned);
        }
    }

    /// Applies the result of reading the transports file. After an error, the previous transports stay in force.
    fn configure(&mut self, loaded: Result<Vec<TransportConfig>, ConfigError>) {
        match loaded {
            Ok(transports) => {
                if self.publisher.configure(&transports) {
                    self.failing.clear();
                    self.host.log(&self.log.transports(&transports));
                }
                self.thread.configure(transports);
            }
            Err(error) => {
                if self.publisher.note_file_error(error.to_string()) {
                    self.host.log(&self.log.file_error(&error));
                }
                self.thread.keep_config();
            }
        }
    }

    /// Executes the jobs, and returns when to call this again if [`Self::jobs_fd`] does not become readable before.
    ///
    /// `is_sending_allowed`: if false, requests in flight are settled and other mail is released.
    ///
    /// # Errors
    /// If the store no longer exists, or leases cannot be extended.
    pub fn run_jobs<S: Store>(
        &mut self,
        store: &mut S,
        now: Time,
        is_sending_allowed: bool,
    ) -> Result<Option<Time>, S::Error> {
        if self.is_sending_allowed != is_sending_allowed {
            self.is_sending_allowed = is_sending_allowed;
            self.thread.allow_sending(is_sending_allowed);
        }
        self.check_clock(store, now)?;
        let mut result = Ok(());
        for job in self.thread.take_jobs() {
            if let Err(error) = self.run_job(store, job, now) {
                result = Err(error);
            }
        }
        result?;
        if now >= self.extend_at() || self.lease != self.host.lease() {
            self.extend(store, now)?;
        }
        let reload_at = self.reload_unreadable(now);
        let publish_at = self
            .publisher
            .publish(store, &self.claimant, &self.thread, now);
        let extend_at = (!self.held.is_empty()).then(|| self.extend_at());
        Ok([publish_at, extend_at, reload_at]
            .into_iter()
            .flatten()
            .min())
    }

    fn run_job<S: Store>(&mut self, store: &mut S, job: Job, now: Time) -> Result<(), S::Error> {
        match job {
            Job::ReloadConfig => {
                let loaded = self.host.load();
                if self.publisher.loses_any(&loaded) {
                    // Perhaps the file is being written. Only a reload removes a transport.
                    self.thread.keep_config();
                } else {
                    self.configure(loaded);
                }
                Ok(())
            }
            Job::Log(transport, event) => {
                self.host.log(&self.log.event(&transport, &event));
                Ok(())
            }
            Job::Exchange(exchange) => self.exchange(store, exchange, now),
        }
    }

    /// Stops: releases mail that was not sent, waits for requests in flight, and settles them.
    pub fn shut_down<S: Store>(mut self, store: &mut S, now: impl Fn() -> Time) {
        let mut deadline = Instant::now() + self.host.stop_grace();
        let mut has_abandoned = false;
        self.thread.stop();
        loop {
            let mut failures = 0;
            for job in self.thread.take_jobs() {
                failures += usize::from(self.run_job(store, job, now()).is_err());
            }
            if self.thread.has_stopped() {
                break;
            }
            if Instant::now() >= deadline || failures > 0 {
                if std::mem::replace(&mut has_abandoned, true) {
                    self.host.log(&LogLine::Warning {
                        message: format!(
                            "{} could not settle its last mails; their claims will lapse",
                            self.log.0
                        ),
                        detail: String::new(),
                        hint: String::new(),
                    });
                    break;
                }
                self.thread.abandon_requests();
                deadline = Instant::now() + SETTLE_TIMEOUT;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            self.host.wait(left, self.thread.jobs_fd());
        }
        self.publisher.withdraw(store, &self.claimant);
    }
}

fn is_empty(loaded: &Result<Vec<TransportConfig>, ConfigError>) -> bool {
    matches!(loaded, Ok(none) if none.is_empty())
}
