//! Start and end of a worker.

use pgrx::bgworkers::{BackgroundWorker, SignalWakeFlags};
use pgrx::prelude::*;

use super::session::Session;
use super::state::Worker;
use crate::pg::signals::{self, stop_requested};
use crate::pg::{notify, process};
use crate::settings;
use crate::shared_memory::announce;
use crate::shared_memory::registry::{self, SlotIndex, StartToken};
use crate::shared_memory::wakeup::{self, WorkerEnd};
use mailroom_core::backoff::Failures;
use mailroom_core::batching::Time;

/// The main function of a worker, which the launcher starts.
pub fn main(argument: pg_sys::Datum) {
    announce::become_worker();
    notify::keep();
    // While the worker connects, SIGTERM may end it at once: it has no work to lose, and it may wait for locks.
    signals::die_on_sigterm();
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    let token = StartToken::from_datum(argument);
    let index = token.index();
    let Some(database) = registry::register(token) else {
        return;
    };
    process::before_exit(move || leave(index));
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database), None);
    signals::install_handlers_of_worker();
    if !registry::check_blocked(index) {
        return;
    }
    match attach(index) {
        Attached::Yes(session) => {
            registry::note_stop_grace(index);
            registry::mark_serving(index);
            // Shared memory exists: without it, no launcher would have started this worker.
            let Some(wakeup) = WorkerEnd::open(index, settings::batch_rule().limit) else {
                return;
            };
            log!(
                "mailroom worker started in database \"{}\"",
                session.database()
            );
            Worker::new(session, index, wakeup).run();
            log!("mailroom worker stopped");
        }
        Attached::Absent => registry::report_absent(index),
        Attached::Stopped => {}
    }
}

enum Attached {
    Yes(Session),
    /// The database does not have the extension.
    Absent,
    /// The process was asked to stop.
    Stopped,
}

/// Attaches to the database. After a failure, retries with back-off until the process is asked to stop.
fn attach(index: SlotIndex) -> Attached {
    let mut failures = Failures::default();
    let mut logged: Option<String> = None;
    while !stop_requested() {
        match Session::attach() {
            // A stop cancels the running statement, which then fails.
            _ if stop_requested() => break,
            Ok(Some(session)) => return Attached::Yes(session),
            Ok(None) => return Attached::Absent,
            Err(failure) => {
                if failures.count() == 0 {
                    registry::mark_serving(index);
                }
                let delay = failures.record(Time::ZERO).delay;
                // A cause persists until an administrator acts, so it is logged once.
                if logged.as_deref() != Some(failure.sqlstate()) {
                    logged = Some(failure.sqlstate().to_owned());
                    failure.warn("mailroom worker cannot start its work");
                }
                process::wait(delay);
            }
        }
    }
    Attached::Stopped
}

fn leave(index: SlotIndex) {
    if registry::slot(index).worker == process::pid() {
        wakeup::close(index);
        registry::unregister(index);
    }
}
