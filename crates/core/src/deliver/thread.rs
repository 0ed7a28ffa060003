//! The thread on which a deliverer runs beside its transport.
//!
//! One thread beside its owner's, with an event loop on it. It calls nobody of the owner's, whose signals it is started
//! without. What the deliverer wants done in the database or said in the log comes out as [`Job`]s, announced by a byte on a
//! socket, on which the owner waits together with whatever else it waits for. Should what it does panic, what was in flight
//! is given up and it begins anew, after a pause; what the panic says is told to nobody but for its place, because the words
//! may quote a mail. A deliverer that panics itself is not to be relied on: the owner is told to end.

use std::cell::Cell;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::Time;
use super::driver::Driver;
use super::events::{Event, Limits, News, Status};
use super::intake::{Appetite, Exchanged};
use super::settlements::Settlements;
use crate::transport::http::Conduct;

/// Something for the owner of the database.
pub enum Job {
    /// Read the settings, and call [`Thread::configure`] or [`Thread::misconfigure`].
    Configure,
    /// Settle, and claim, in one transaction; then call [`Thread::exchanged`] or [`Thread::exchange_failed`].
    Exchange {
        /// What is to be told.
        settlements: Box<Settlements>,
        /// How much to claim.
        appetite: Option<Appetite>,
    },
    /// Something for the log.
    Tell(News),
}

/// What the thread is told.
pub(super) enum Command {
    Event(Event),
    Setup(Box<(Limits, Conduct)>),
    GiveUp,
    End,
}

/// A deliverer as its owner has it. Dropping it ends the thread; what was in flight is given up.
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
            status: Mutex::default(),
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
                if !driver.begin_anew() {
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

    /// The deliverer's time.
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

    /// How it is.
    pub fn status(&self) -> Status {
        lock(&self.shared.status).clone()
    }

    /// Whether the thread has come to a violent end, and the process is to.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    /// After [`Self::stop`]: whether nothing is in flight or to be settled any more.
    pub fn is_resting(&self) -> bool {
        self.shared.resting.load(Ordering::Acquire) || self.has_failed()
    }

    /// Sends in this way from now on; what is in flight goes on in the old one.
    pub fn configure(&self, limits: Limits, conduct: Conduct) {
        self.command(Command::Setup(Box::new((limits, conduct))));
    }

    /// The settings are no good, for this reason.
    pub fn misconfigure(&self, problem: String) {
        self.event(Event::Misconfigured(problem));
    }

    /// Mail may be claimed and sent, or not.
    pub fn allow(&self, allowed: bool) {
        self.event(Event::Allowed(allowed));
    }

    /// There may be due mail, for which perhaps somebody waits.
    pub fn look(&self, urgent: bool) {
        self.event(Event::Look { urgent });
    }

    /// Somebody wants everything to be tried.
    pub fn hurry(&self) {
        self.event(Event::Hurry);
    }

    /// An exchange is over.
    pub fn exchanged(&self, exchanged: Exchanged) {
        self.event(Event::Exchanged(Box::new(exchanged)));
    }

    /// It failed, and nothing of it happened; no other before that time.
    pub fn exchange_failed(&self, settlements: Box<Settlements>, retry_at: Time) {
        self.event(Event::ExchangeFailed {
            settlements,
            retry_at,
        });
    }

    /// These claims are in force, of those that were held before.
    pub fn in_force(&self, ids: HashSet<i64>) {
        self.event(Event::InForce(ids));
    }

    /// Nothing more is sent; what is in flight goes on.
    pub fn stop(&self) {
        self.event(Event::Stop);
    }

    /// What is in flight is waited for no longer.
    pub fn give_up(&self) {
        self.command(Command::GiveUp);
    }

    fn event(&self, event: Event) {
        self.command(Command::Event(event));
    }

    fn command(&self, command: Command) {
        // Nobody listens any more after a failure, which is noticed elsewhere.
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
    pub(super) status: Mutex<Status>,
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
