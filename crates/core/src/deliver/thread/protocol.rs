//! What the delivery thread and the thread of its job runner exchange.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::deliver::events::{Event, LogEvent, TransportStatus};
use crate::deliver::exchange::ClaimLimit;
use crate::deliver::settlements::Settlements;
use crate::transport::config::TransportConfig;

/// A task for the job runner.
pub enum Job {
    /// Read the transports file, then call [`configure`](super::DeliveryThread::configure) or
    /// [`keep_config`](super::DeliveryThread::keep_config).
    ReloadConfig,
    /// Settle and claim in one transaction, then call [`exchanged`](super::DeliveryThread::exchanged).
    Exchange(Exchange),
    /// Write to the log, for this transport.
    Log(Arc<str>, LogEvent),
}

/// One exchange of a transport.
pub struct Exchange {
    /// The name of the transport.
    pub transport: Arc<str>,
    /// The mails to settle.
    pub settlements: Box<Settlements>,
    /// How much to claim, if anything.
    pub claim: Option<ClaimLimit>,
    /// The other paused transports, and for how long they have been paused: their mail may fall back on this one.
    pub paused: Vec<(Arc<str>, Duration)>,
}

/// A message to the delivery thread.
pub(in crate::deliver) enum Command {
    Configure(Vec<TransportConfig>),
    KeepConfig,
    /// For each transport.
    All(Event),
    AllowSending(bool),
    Stop,
    /// The result of an exchange of the transport with this name.
    Exchange(Arc<str>, Event),
    /// A result of a request of the transport with this number.
    Request(u64, Event),
    Tick,
    AbandonRequests,
    End,
}

/// The state that both threads access.
pub(in crate::deliver) struct Shared {
    jobs: Mutex<Vec<Job>>,
    /// The transports in the order of the file, followed by those that were removed from it and still hold mail.
    pub(in crate::deliver) statuses: Mutex<Vec<(Arc<str>, TransportStatus)>>,
    /// A byte written here makes the job runner's end readable.
    wakeup: UnixStream,
    pub(in crate::deliver) has_stopped: AtomicBool,
    pub(in crate::deliver) has_failed: AtomicBool,
}

impl Shared {
    pub(in crate::deliver) fn new(wakeup: UnixStream) -> Self {
        Self {
            jobs: Mutex::default(),
            statuses: Mutex::default(),
            wakeup,
            has_stopped: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    pub(in crate::deliver) fn push(&self, job: Job) {
        lock(&self.jobs).push(job);
        self.wake();
    }

    pub(in crate::deliver) fn take_jobs(&self) -> Vec<Job> {
        std::mem::take(&mut *lock(&self.jobs))
    }

    /// Wakes the job runner.
    pub(in crate::deliver) fn wake(&self) {
        // A full socket is readable already.
        let _ = (&self.wakeup).write(&[1]);
    }

    /// The delivery thread cannot go on.
    pub(in crate::deliver) fn fail(&self) {
        self.has_failed.store(true, Ordering::Release);
        self.wake();
    }
}

/// Locks a mutex whose contents are consistent even after a panic.
pub(in crate::deliver) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
