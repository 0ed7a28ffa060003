//! The launcher: keeps one worker in each database that has the extension.
//!
//! It is connected to no database, so it never blocks DROP DATABASE. Only a database itself records whether it has the
//! extension, so after its start the launcher starts a worker in each database, one after the other; a worker that does
//! not find the extension reports that and exits. Later, CREATE EXTENSION requests a worker.
//!
//! The launcher must never run a query. It starts one worker at a time, so that a server with many databases does not
//! run out of worker processes at boot; a few slow starts do not delay the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BackgroundWorkerStatus, BgWorkerStartTime,
    DynamicBackgroundWorker, SignalWakeFlags,
};
use pgrx::prelude::*;

use crate::pg::catalog::{Database, databases};
use crate::pg::shared_memory::{Slot, Stage};
use crate::pg::{log, options, process, signals};
use crate::settings;
use crate::shared_memory::registry::{self, SlotIndex};
use mailroom_core::backoff::Failures;

/// How long after an unexpected end of the launcher the postmaster restarts it.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// How long a start may delay the next one: the worker may wait for locked catalogs in its database.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Number of slower starts at a time that do not delay further ones.
const LONG_STARTS: usize = 2;
/// How long the launcher waits before it tries again if there was no free worker process.
const RETRY_DELAY: Duration = Duration::from_secs(30);
/// How often the launcher checks the slots if nothing wakes it, and which databases accept connections again.
const LOOK_AROUND: Duration = Duration::from_secs(60);

/// Registers the launcher with the postmaster. Called from `_PG_init` while libraries are being preloaded.
pub fn register() {
    BackgroundWorkerBuilder::new("mailroom launcher")
        .set_library("mailroom")
        .set_function("mailroom_launcher_main")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(RESTART_DELAY))
        .load();
}

struct Launcher {
    /// Databases in which a worker still has to check for the extension.
    unknown: VecDeque<pg_sys::Oid>,
    /// Slots of the databases in which a worker must be started.
    queue: VecDeque<SlotIndex>,
    /// The start in progress.
    starting: Option<Start>,
    /// Slots whose start is delayed, because the worker ended unexpectedly or could not be started, with the time to
    /// try again.
    delayed: Vec<(SlotIndex, Instant)>,
    /// By database OID: the workers that ended since one last reached [`Stage::Serving`].
    failures: BTreeMap<u32, Failures>,
    /// Whether the lack of a free worker process has been logged.
    complained: bool,
    /// By OID: the databases that did not accept connections when the launcher last looked. ALTER DATABASE requests a
    /// worker when it opens one, an UPDATE of pg_database does not.
    closed: BTreeSet<u32>,
    /// When the launcher last looked which databases accept connections.
    looked_at: Instant,
}

struct Start {
    index: SlotIndex,
    handle: DynamicBackgroundWorker,
    /// When the next start no longer waits for this one.
    until: Instant,
}

/// The main function of the launcher, which runs as long as the server.
pub fn main() {
    // The launcher runs no statement that a user could cancel.
    signals::ignore_cancel();
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    // No database: only the shared catalogs are accessible.
    BackgroundWorker::connect_worker_to_spi(None, None);
    registry::register_launcher();
    log!("mailroom launcher started");
    let mut launcher = Launcher {
        unknown: VecDeque::new(),
        queue: VecDeque::new(),
        starting: None,
        delayed: Vec::new(),
        failures: BTreeMap::new(),
        complained: false,
        closed: BTreeSet::new(),
        looked_at: Instant::now(),
    };
    launcher.look_at_all();
    loop {
        launcher.step();
        if !BackgroundWorker::wait_latch(Some(launcher.next_look())) {
            break;
        }
        if BackgroundWorker::sighup_received() {
            options::reload();
            launcher.look_for_reopened();
        }
    }
    // With status 1, the postmaster restarts the launcher unless the server is shutting down.
    process::exit(1);
}

impl Launcher {
    /// Has a worker look into each database that accepts connections.
    fn look_at_all(&mut self) {
        let (open, closed) = databases_by_openness();
        self.unknown = open.into_iter().map(pg_sys::Oid::from).collect();
        self.closed = closed;
        self.looked_at = Instant::now();
    }

    /// Has a worker look into each database that accepts connections again.
    fn look_for_reopened(&mut self) {
        let (open, closed) = databases_by_openness();
        let reopened = self.closed.intersection(&open).copied();
        self.unknown.extend(reopened.map(pg_sys::Oid::from));
        self.closed = closed;
        self.looked_at = Instant::now();
    }

    /// Moves the next unknown database into the queue, if there is one.
    fn look_into_next(&mut self) {
        let Some(database) = self.unknown.pop_front() else {
            return;
        };
        match registry::slot_for(database) {
            // A worker that outlived the previous launcher continues.
            Some(index) if registry::slot(index).worker != 0 => {}
            Some(index) => self.enqueue(index),
            None => {
                self.unknown.clear();
                let message = format!(
                    "mailroom looks after {} databases at most; the others were not checked",
                    settings::max_databases()
                );
                log::warn_as(
                    PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
                    &message,
                    "Some of the others may have the extension, and have no worker then.",
                    "Raise mailroom.max_databases, or call mailroom_collect() in those.",
                );
            }
        }
    }

    fn enqueue(&mut self, index: SlotIndex) {
        if !self.queue.contains(&index) {
            self.queue.push_back(index);
        }
    }

    /// Checks all slots, and starts the next worker if no start is in progress.
    fn step(&mut self) {
        self.settle_start();
        let now = Instant::now();
        if now.duration_since(self.looked_at) >= LOOK_AROUND {
            self.look_for_reopened();
        }
        self.delayed.retain(|(index, _)| {
            let slot = registry::slot(*index);
            slot.database != 0 && slot.worker == 0
        });
        let slots = registry::slots();
        self.failures
            .retain(|&database, _| slots.iter().any(|(_, slot)| slot.database == database));
        for (index, slot) in slots {
            let known = self.queue.contains(&index)
                || self
                    .starting
                    .as_ref()
                    .is_some_and(|start| start.index == index);
            if slot.requested
                && slot.worker != 0
                && !accepts_connections(pg_sys::Oid::from(slot.database))
            {
                // ALTER DATABASE has closed it, and asked the launcher to look.
                process::terminate(slot.worker);
            }
            // A blocked database is checked again when it is unblocked.
            if known || slot.worker != 0 || registry::is_blocked(&slot) {
                continue;
            }
            if slot.requested {
                self.delayed.retain(|(delayed, _)| *delayed != index);
                self.enqueue(index);
            } else if slot.absent {
                registry::free_if_absent(index);
            } else if let Some(at) = self
                .delayed
                .iter()
                .position(|(delayed, _)| *delayed == index)
            {
                if self.delayed[at].1 <= now {
                    self.delayed.swap_remove(at);
                    self.enqueue(index);
                }
            } else {
                let delay = self.note_end(&slot);
                self.delay(index, delay);
            }
        }
        while self.starting.is_none() {
            if self.queue.is_empty() && self.unknown.is_empty() {
                if !registry::take_slot_available() {
                    break;
                }
                self.look_at_all();
            }
            if self.queue.is_empty() {
                self.look_into_next();
            }
            self.start_next();
        }
    }

    /// Ends the wait for the start in progress if the worker serves, has exited, or takes too long.
    fn settle_start(&mut self) {
        let Some(start) = &self.starting else {
            return;
        };
        let stopped = matches!(
            start.handle.pid(),
            Err(BackgroundWorkerStatus::Stopped | BackgroundWorkerStatus::PostmasterDied)
        );
        let slot = registry::slot(start.index);
        let serves = slot.worker != 0 && slot.stage == Stage::Serving;
        if serves {
            self.failures.remove(&slot.database);
        }
        // A worker that has not registered yet is waited for: it could register while the next start is in progress.
        let is_long = slot.worker != 0 && Instant::now() >= start.until && {
            let slots = registry::slots();
            let on_the_way = |slot: &Slot| slot.worker != 0 && slot.stage != Stage::Serving;
            slots.iter().filter(|(_, slot)| on_the_way(slot)).count() <= LONG_STARTS
        };
        if stopped || serves || is_long {
            self.starting = None;
        }
    }

    /// Records the unexpected end of a worker. Returns the delay before the next start, which grows with each worker
    /// that ended before it served.
    fn note_end(&mut self, slot: &Slot) -> Duration {
        let failures = self.failures.entry(slot.database).or_default();
        if slot.stage == Stage::Serving {
            failures.end();
        }
        failures.record(Duration::ZERO).delay
    }

    fn start_next(&mut self) {
        let Some(index) = self.queue.pop_front() else {
            return;
        };
        let slot = registry::slot(index);
        if registry::is_blocked(&slot) {
            return;
        }
        let found = databases()
            .into_iter()
            .find(|found| found.oid.to_u32() == slot.database);
        if !found.as_ref().is_some_and(|found| found.is_open) {
            if let Some(closed) = found {
                log!(
                    "mailroom has no worker in database \"{}\" until the database accepts connections again",
                    closed.name
                );
                self.closed.insert(slot.database);
            }
            registry::forget(index);
            return;
        }
        let Some(token) = registry::starting(index) else {
            return;
        };
        let started = BackgroundWorkerBuilder::new("mailroom worker")
            .set_library("mailroom")
            .set_function("mailroom_worker_main")
            .set_argument(Some(token.to_datum()))
            .enable_spi_access()
            .set_notify_pid(process::pid())
            .load_dynamic();
        match started {
            Ok(handle) => {
                self.complained = false;
                self.starting = Some(Start {
                    index,
                    handle,
                    until: Instant::now() + START_PATIENCE,
                });
            }
            Err(_) => {
                registry::note_starved(index);
                if !self.complained {
                    self.complained = true;
                    log::warn_as(
                        PgSqlErrorCode::ERRCODE_INSUFFICIENT_RESOURCES,
                        "mailroom cannot start a worker: no free worker process",
                        "The launcher tries again every 30 s.",
                        "Raise max_worker_processes.",
                    );
                }
                self.delay(index, RETRY_DELAY);
            }
        }
    }

    /// Delays the next start in this slot.
    fn delay(&mut self, index: SlotIndex, by: Duration) {
        self.delayed.retain(|(delayed, _)| *delayed != index);
        self.delayed.push((index, Instant::now() + by));
    }

    fn next_look(&self) -> Duration {
        let now = Instant::now();
        // If the start is still in progress then, the next worker that serves or exits wakes the launcher.
        let start = self.starting.as_ref().map(|start| start.until);
        let start = start.filter(|&until| until > now);
        // The session that blocks a database wakes the launcher when it unblocks it.
        self.delayed
            .iter()
            .filter(|(index, _)| !registry::is_blocked(&registry::slot(*index)))
            .map(|&(_, at)| at)
            .chain(start)
            .map(|at| at.saturating_duration_since(now))
            .min()
            .unwrap_or(LOOK_AROUND)
            .clamp(Duration::from_millis(10), LOOK_AROUND)
    }
}

/// Whether a database exists and accepts connections.
fn accepts_connections(database: pg_sys::Oid) -> bool {
    databases()
        .iter()
        .any(|found| found.oid == database && found.is_open)
}

/// The OIDs of the databases that accept connections, and of the others.
fn databases_by_openness() -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (open, closed): (Vec<_>, Vec<_>) = databases().into_iter().partition(|found| found.is_open);
    let oids = |found: Vec<Database>| found.into_iter().map(|one| one.oid.to_u32()).collect();
    (oids(open), oids(closed))
}
