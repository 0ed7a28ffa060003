//! The thread on which the deliverers run, one a transport.
//!
//! One thread beside its owner's, with an event loop on it. It calls no function of the owner and is started without its
//! signals. What a deliverer wants done in the database or said in the log comes out as [`Job`]s, announced by a byte on a
//! socket, on which the owner waits together with its other sources of events. If making or sending a request panics, what
//! was in flight is given up and the event loop is started again, after a pause. Of the panic only its place is logged,
//! because its words may quote a mail. A deliverer that panics itself is not to be relied on: the owner is told to end.

use std::cell::Cell;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::Time;
use super::driver::Driver;
use super::events::{Event, News, Status};
use super::intake::{Appetite, Exchanged};
use super::settlements::Settlements;
use crate::transport::config::Configured;

/// Something for the owner of the database.
pub enum Job {
    /// Read the file again, and call [`Thread::configure`] or [`Thread::keep_configuration`].
    Configure,
    /// Settle, and claim, in one transaction; then call [`Thread::exchanged`] or [`Thread::exchange_failed`].
    Exchange {
        /// Whose mail it is.
        transport: Arc<str>,
        /// What is to be told.
        settlements: Box<Settlements>,
        /// How much to claim.
        appetite: Option<Appetite>,
        /// Transports that have been paused, and for how long: their mail may fall back on this one.
        paused: Vec<(Arc<str>, Duration)>,
    },
    /// Something for the log, of this transport.
    Tell(Arc<str>, News),
}

/// What the thread is told.
pub(super) enum Command {
    Configure(Vec<Configured>),
    KeepConfiguration,
    Look {
        urgent: bool,
    },
    Hurry,
    Allow(bool),
    LeasesUntil(Time),
    InForce(HashSet<i64>),
    Stop,
    /// What came of an exchange of this transport.
    Exchange(Arc<str>, Event),
    /// What became of a request of the transport with this number.
    Answered(u64, Event),
    Tick,
    GiveUp,
    End,
}

/// The deliverers as their owner has them. Dropping it ends the thread; what was in flight is given up.
pub struct Thread {
    commands: UnboundedSender<Command>,
    shared: Arc<Shared>,
    bell: UnixStream,
    thread: Option<JoinHandle<()>>,
    origin: Instant,
}

impl Thread {
    /// Starts the thread by `spawn`, which is to see to the signals.
    ///
    /// # Errors
    /// When the system has no thread or socket to spare.
    pub fn start(
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>>,
    ) -> std::io::Result<Self> {
        let (bell, ring) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ring.set_nonblocking(true)?;
        let runtime = new_runtime()?;
        let shared = Arc::new(Shared {
            jobs: Mutex::default(),
            statuses: Mutex::default(),
            ring,
            resting: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        });
        let (commands, mut receiver) = unbounded_channel();
        let origin = Instant::now();
        let mut driver = Driver::new(Arc::clone(&shared), commands.clone(), origin);
        let theirs = Arc::clone(&shared);
        mind_panics();
        let thread = spawn(Box::new(move || {
            IS_DELIVERER.set(true);
            let mut runtime = Ok(runtime);
            while let Ok(current) = runtime {
                let run = AssertUnwindSafe(|| current.block_on(driver.run(&mut receiver)));
                if catch_unwind(run).is_ok() {
                    return;
                }
                if !driver.recover() {
                    break;
                }
                drop(current);
                runtime = new_runtime();
            }
            theirs.failed.store(true, Ordering::Release);
            theirs.ring();
        }))?;
        Ok(Self {
            commands,
            shared,
            bell,
            thread: Some(thread),
            origin,
        })
    }

    /// The deliverers' time.
    pub fn now(&self) -> Time {
        self.origin.elapsed()
    }

    /// Becomes readable when there are jobs.
    pub fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Takes the jobs there are.
    pub fn jobs(&mut self) -> Vec<Job> {
        let mut bytes = [0; 64];
        while matches!(self.bell.read(&mut bytes), Ok(read) if read == bytes.len()) {}
        std::mem::take(&mut *lock(&self.shared.jobs))
    }

    /// How each transport is, in the file's order; those that have left it while they are still in use come last.
    pub fn statuses(&self) -> Vec<(Arc<str>, Status)> {
        lock(&self.shared.statuses).clone()
    }

    /// Whether the thread has come to a violent end, and the process is to.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    /// After [`Self::stop`]: whether nothing is in flight or to be settled any more, of any transport.
    pub fn is_resting(&self) -> bool {
        self.shared.resting.load(Ordering::Acquire) || self.has_failed()
    }

    /// These are all transports from now on, in this order; what is in flight goes on as it was sent. One that is known
    /// by its name keeps its state; one that is missing sends no more, and is gone once all of its mail is settled. As
    /// the answer to [`Job::Configure`] it changes nothing of the state of transports that did not ask for it.
    pub fn configure(&self, transports: Vec<Configured>) {
        self.command(Command::Configure(transports));
    }

    /// The file could not be read: what was read before holds.
    pub fn keep_configuration(&self) {
        self.command(Command::KeepConfiguration);
    }

    /// Mail may be claimed and sent, or not.
    pub fn allow(&self, allowed: bool) {
        self.command(Command::Allow(allowed));
    }

    /// The claims of what is held are in force until then: nothing of it is sent later, unless this is said again.
    pub fn leases_until(&self, at: Time) {
        self.command(Command::LeasesUntil(at));
    }

    /// There may be due mail, of any transport; `urgent`: a person waits for it.
    pub fn look(&self, urgent: bool) {
        self.command(Command::Look { urgent });
    }

    /// Everything is to be tried, at once.
    pub fn hurry(&self) {
        self.command(Command::Hurry);
    }

    /// An exchange of this transport is over.
    pub fn exchanged(&self, transport: &Arc<str>, exchanged: Exchanged) {
        self.exchange(transport, Event::Exchanged(Box::new(exchanged)));
    }

    /// It failed, and nothing of it happened; no other of this transport before that time.
    pub fn exchange_failed(
        &self,
        transport: &Arc<str>,
        settlements: Box<Settlements>,
        retry_at: Time,
    ) {
        let event = Event::ExchangeFailed {
            settlements,
            retry_at,
        };
        self.exchange(transport, event);
    }

    /// These claims are in force, of all that were held before, whichever transport holds them.
    pub fn in_force(&self, ids: HashSet<i64>) {
        self.command(Command::InForce(ids));
    }

    /// Nothing more is sent; what is in flight goes on.
    pub fn stop(&self) {
        self.command(Command::Stop);
    }

    /// What is in flight is waited for no longer.
    pub fn give_up(&self) {
        self.command(Command::GiveUp);
    }

    fn exchange(&self, transport: &Arc<str>, event: Event) {
        self.command(Command::Exchange(Arc::clone(transport), event));
    }

    fn command(&self, command: Command) {
        // After a failure there is no receiver; `has_failed` tells the owner.
        let _ = self.commands.send(command);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.command(Command::End);
        if let Some(thread) = self.thread.take() {
            // A panic was caught in it.
            let _ = thread.join();
        }
    }
}

thread_local! {
    /// Whether this thread is a deliverer's.
    static IS_DELIVERER: Cell<bool> = const { Cell::new(false) };
}

/// Has a panic of a deliverer's thread tell its place alone, in the server's log. Once in a process.
fn mind_panics() {
    static MINDED: Once = Once::new();
    MINDED.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_DELIVERER.try_with(Cell::get).unwrap_or(false) {
                return others(info);
            }
            let place = info.location().map(ToString::to_string);
            // This is no thread to call the server on; what it writes here is in its log if anybody keeps one.
            let _ = writeln!(
                std::io::stderr(),
                "mailroom worker: a panic in the sending thread at {}",
                place.unwrap_or_default()
            );
        }));
    });
}

fn new_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// What both threads see.
pub(super) struct Shared {
    jobs: Mutex<Vec<Job>>,
    pub(super) statuses: Mutex<Vec<(Arc<str>, Status)>>,
    ring: UnixStream,
    pub(super) resting: AtomicBool,
    failed: AtomicBool,
}

/// What it guards is whole at any time.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn push(&self, job: Job) {
        lock(&self.jobs).push(job);
        self.ring();
    }

    pub(super) fn ring(&self) {
        // A full socket is as loud as one can get.
        let _ = (&self.ring).write(&[1]);
    }
}

#[cfg(test)]
mod tests;
