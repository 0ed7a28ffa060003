//! The worker's deliverer: its store is the worker's session, its host is the worker's process.

use std::os::fd::RawFd;
use std::time::Duration;

use pgrx::prelude::*;

use mailroom_core::deliver::runner::JobRunner;
use mailroom_core::deliver::store::{Host, LogLine};
use mailroom_core::transport::config::{ConfigError, TransportConfig};

use super::session::{Failure, Session};
use super::transports;
use crate::pg::signals::stop_requested;
use crate::pg::{log, process};
use crate::settings;
use crate::shared_memory::senders;

/// Time since the worker started.
type Time = Duration;

/// The worker's deliverer.
pub struct Deliverer {
    runner: JobRunner<Process>,
}

/// The worker's process.
struct Process {
    database: String,
}

impl Host for Process {
    fn load(&self) -> Result<Vec<TransportConfig>, ConfigError> {
        transports::load(&self.database)
    }

    fn log(&self, line: &LogLine) {
        match line {
            LogLine::Log(message) => log!("{message}"),
            LogLine::Warning {
                message,
                detail,
                hint,
            } => log::warn(message, detail, hint),
        }
    }

    fn stop_requested(&self) -> bool {
        stop_requested()
    }

    fn lease(&self) -> Duration {
        settings::lease()
    }

    fn stop_grace(&self) -> Duration {
        settings::stop_grace()
    }

    fn wait(&self, limit: Duration, jobs_fd: RawFd) {
        process::wait_for(limit, Some(jobs_fd));
    }
}

impl Deliverer {
    /// Starts a deliverer for the transports of this database. Returns `None` if the transports file names none. If the
    /// file cannot be read, the deliverer starts, and reads it again later.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(session: &Session, now: Time) -> Result<Option<Self>, std::io::Error> {
        let host = Process {
            database: session.database().to_owned(),
        };
        let timeline = process::timeline();
        let claimant = format!("mailroom worker/{timeline}/{}", process::session_id());
        let spawn = |body| process::spawn_without_signals("mailroom sender", body);
        let Some(mut runner) = JobRunner::start(host, "mailroom worker", claimant, spawn, now)?
        else {
            return Ok(None);
        };
        runner.set_redirect(settings::redirect_to().as_deref());
        senders::set_delivers(true);
        Ok(Some(Self { runner }))
    }

    /// The names of the transports.
    pub fn transports(&self) -> Vec<String> {
        self.runner.transports()
    }

    /// Mail may be due. `urgent`: a person waits for it.
    pub fn mail_due(&self, urgent: bool) {
        self.runner.mail_due(urgent);
    }

    /// Retries everything at once.
    pub fn retry_now(&mut self) {
        self.runner.retry_now();
    }

    /// The transports file, or a file that it names, may have changed. Returns false if this database no longer has a
    /// transport.
    #[must_use]
    pub fn reload(&mut self) -> bool {
        self.runner.set_redirect(settings::redirect_to().as_deref());
        self.runner.reload()
    }

    /// A file descriptor that is readable when there are jobs.
    pub fn jobs_fd(&self) -> RawFd {
        self.runner.jobs_fd()
    }

    /// Executes the deliverer's jobs. Returns when to call this again if [`Self::jobs_fd`] does not become readable
    /// before. If not `allowed`, requests in flight are settled and other mail is released.
    ///
    /// # Errors
    /// If the extension is gone, or leases cannot be extended.
    pub fn run_jobs(
        &mut self,
        session: &mut Session,
        now: Time,
        allowed: bool,
    ) -> Result<Option<Time>, Failure> {
        if self.runner.has_failed() {
            // This ends the worker; the next one takes over the claims.
            error!("mailroom worker: the deliverer has failed");
        }
        self.runner.run_jobs(session, now, allowed)
    }

    /// Extends all leases if the wall clock has jumped. Must be called before expired leases are searched for.
    ///
    /// # Errors
    /// If the leases cannot be extended.
    pub fn check_clock_jump(&mut self, session: &mut Session, now: Time) -> Result<(), Failure> {
        self.runner.check_clock(session, now)
    }

    /// Releases mail that was not sent, waits up to `mailroom.stop_grace` for requests in flight, and settles them.
    pub fn finish(self, session: &mut Session, now: impl Fn() -> Time) {
        senders::set_delivers(false);
        self.runner.shut_down(session, now);
    }
}
