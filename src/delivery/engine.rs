//! The thread that sends: takes parcels, has so many requests under way, and reports what became of each.
//!
//! One thread beside the server's own, with an event loop on it. It never calls PostgreSQL. All signals are
//! blocked in it, so that the server's handlers run where they belong. Commands go in by a channel; reports
//! come out by a queue and a byte on a socket, on which the worker waits together with its latch. What the
//! engine was given comes back in a report, whatever happens: answered, not sent, or given up. That includes a panic
//! of the thread: what had not been sent by then comes back as that. What the panic says is told to nobody but for its
//! place, because the words may quote a mail.

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::dispatch::Dispatcher;
use super::http::Conduct;
use super::message::Message;
use super::providers::{Provider, Verdict};
use super::slots::Slow;

/// A claimed mail and what the engine has to know besides what it says.
#[derive(Debug)]
pub struct Letter {
    /// The mail.
    pub message: Message,
    /// Of no use from then on.
    pub expires_at: Option<SystemTime>,
    /// Bytes of its contents, about.
    pub size: usize,
    /// It was in a request of its own before that got no answer.
    pub may_have_arrived: bool,
    /// How often it may have been sent before.
    pub ambiguous_attempts: i32,
    /// Smaller is more urgent.
    pub priority: i16,
    /// `outbox.send_at`, in microseconds.
    pub send_at: i64,
}

impl Letter {
    /// Its place in the order of claims.
    pub fn place(&self) -> (i16, i64, i64) {
        (self.priority, self.send_at, self.message.id)
    }

    /// Whether it is of no use any more.
    pub fn is_late(&self, now: SystemTime) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// Letters that go out in one request.
#[derive(Debug)]
pub struct Parcel {
    /// At least one; more only if the provider takes them together.
    pub letters: Vec<Letter>,
    /// When it was handed over, as the worker counts.
    pub turn: u64,
    /// These very letters were sent together before.
    pub repeat: Option<Repeat>,
}

/// What the worker knows of letters that were sent together before.
#[derive(Debug)]
pub struct Repeat {
    /// How often that has failed again.
    pub tries: u32,
    /// They stay together until then, in the worker's time.
    pub until: Duration,
    /// Why the provider may have taken them, if it may.
    pub doubt: Option<String>,
}

/// What became of a parcel.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider said something, of each letter.
    Answered(Vec<Verdict>),
    /// It cannot be put into a request.
    Unsendable(String),
    /// Nothing was written.
    Unreached(String),
    /// The endpoint is nowhere that may be dialled.
    Refused(String),
    /// It was not sent: it was called back, or it has expired.
    Unsent,
}

/// A parcel on its way back.
#[derive(Debug)]
pub struct Report {
    /// As it was handed over.
    pub parcel: Parcel,
    /// What became of it.
    pub outcome: Outcome,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
}

impl Report {
    /// It comes back as it went.
    pub fn unsent(parcel: Parcel) -> Self {
        Self {
            parcel,
            outcome: Outcome::Unsent,
            status: None,
        }
    }
}

/// How to send from now on.
pub struct Setup {
    /// Whom to speak to.
    pub provider: Arc<dyn Provider>,
    /// And how.
    pub conduct: Conduct,
    /// Requests under way, and slow ones beside them.
    pub slots: (usize, usize),
}

/// What the thread is told.
pub(super) enum Command {
    Setup(Box<Setup>),
    Window(usize),
    Send(Parcel),
    /// The worker knows of so many more reports that put on the brake.
    Heard(usize),
    /// A carrier has ended that should not have.
    Look,
    Recall,
    Stop,
}

/// The engine as its owner has it. Dropping it ends the thread; what was under way is given up.
pub struct Engine {
    commands: UnboundedSender<Command>,
    shared: Arc<Shared>,
    bell: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the thread by `spawn`, which is to see to the signals.
    ///
    /// # Errors
    /// When the system has no thread or socket to spare.
    pub fn start(
        setup: Setup,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>>,
    ) -> std::io::Result<Self> {
        let (bell, ring) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ring.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared {
            reports: Mutex::default(),
            patience: AtomicUsize::new(1),
            brakes: AtomicUsize::new(0),
            ring,
            slow_requests: AtomicUsize::new(0),
            slow_letters: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        });
        let (commands, mut receiver) = unbounded_channel();
        let theirs = Arc::clone(&shared);
        let landings = commands.clone();
        mind_panics();
        let thread = spawn(Box::new(move || {
            IS_ENGINE.set(true);
            let run = AssertUnwindSafe(|| {
                let shared = Arc::clone(&theirs);
                runtime.block_on(async {
                    let dispatcher = Dispatcher::new(setup, shared, landings);
                    dispatcher.run(&mut receiver).await
                });
                drop(runtime);
            });
            if std::panic::catch_unwind(run).is_err() {
                theirs.failed.store(true, Ordering::Release);
            }
            // What is sent to a closed channel comes back at once; this is what came before.
            receiver.close();
            while let Ok(command) = receiver.try_recv() {
                if let Command::Send(parcel) = command {
                    theirs.report(Report::unsent(parcel));
                }
            }
            theirs.ring();
        }))?;
        Ok(Self {
            commands,
            shared,
            bell,
            thread: Some(thread),
        })
    }

    /// Becomes readable when there are reports.
    pub fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Takes what was reported since the last call.
    pub fn reports(&mut self) -> Vec<Report> {
        let mut bytes = [0; 64];
        while matches!(self.bell.read(&mut bytes), Ok(read) if read == bytes.len()) {}
        let (reports, brakes) = self.shared.take();
        if brakes > 0 {
            // Behind all that was handed over without knowing of them.
            self.command(Command::Heard(brakes));
        }
        reports
    }

    /// Has the bell ring once there are so many reports; trouble is told at once.
    pub fn ring_at(&self, reports: usize) {
        self.shared.ring_at(reports.max(1));
    }

    /// Requests that have waited for long, which hold nobody up, and the letters in them.
    pub fn slow(&self) -> Slow {
        Slow {
            requests: self.shared.slow_requests.load(Ordering::Relaxed),
            letters: self.shared.slow_letters.load(Ordering::Relaxed),
        }
    }

    /// Whether the thread has come to a violent end.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    /// Hands a parcel over.
    pub fn send(&self, parcel: Parcel) {
        self.command(Command::Send(parcel));
    }

    /// Has everything that was not sent yet come back.
    pub fn recall(&self) {
        self.command(Command::Recall);
    }

    /// Changes how many requests may be under way.
    pub fn set_window(&self, window: usize) {
        self.command(Command::Window(window));
    }

    /// Sends in another way from now on; what is under way goes on in the old one.
    pub fn set_up(&self, setup: Setup) {
        self.command(Command::Setup(Box::new(setup)));
    }

    /// Ends the thread. What was under way comes back with the next [`Self::reports`], its outcome unknown.
    pub fn stop(&mut self) {
        self.command(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic was caught in it.
            let _ = thread.join();
        }
    }

    fn command(&self, command: Command) {
        // Nobody listens any more: a parcel goes back to where it came from.
        if let Err(refused) = self.commands.send(command)
            && let Command::Send(parcel) = refused.0
        {
            self.shared.report(Report::unsent(parcel));
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

thread_local! {
    /// Whether this thread is an engine's.
    static IS_ENGINE: Cell<bool> = const { Cell::new(false) };
}

/// Has a panic of an engine's thread tell its place alone, in the server's log. Once in a process.
fn mind_panics() {
    static MINDED: Once = Once::new();
    MINDED.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_ENGINE.try_with(Cell::get).unwrap_or(false) {
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

/// What both threads see.
pub(super) struct Shared {
    reports: Mutex<Vec<Report>>,
    /// So many reports make the bell ring.
    patience: AtomicUsize,
    /// So many of the reports have to be heard of before anything else is sent.
    brakes: AtomicUsize,
    ring: UnixStream,
    slow_requests: AtomicUsize,
    slow_letters: AtomicUsize,
    failed: AtomicBool,
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Report>> {
        // What it guards is whole at any time.
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reports, and how many of them put on the brake.
    fn take(&self) -> (Vec<Report>, usize) {
        let mut reports = self.lock();
        let brakes = self.brakes.swap(0, Ordering::Relaxed);
        (std::mem::take(&mut *reports), brakes)
    }

    /// Reports something before which nothing else is sent.
    pub(super) fn brake(&self, report: Report) {
        {
            let mut reports = self.lock();
            reports.push(report);
            self.brakes.fetch_add(1, Ordering::Relaxed);
        }
        self.ring();
    }

    pub(super) fn report(&self, report: Report) {
        let loud = {
            let mut reports = self.lock();
            reports.push(report);
            reports.len() == self.patience.load(Ordering::Relaxed)
        };
        if loud {
            self.ring();
        }
    }

    fn ring_at(&self, reports: usize) {
        // Under the lock, so that none is missed that comes meanwhile.
        let waiting = self.lock();
        self.patience.store(reports, Ordering::Relaxed);
        if waiting.len() >= reports {
            self.ring();
        }
    }

    pub(super) fn set_slow(&self, slow: Slow) {
        self.slow_requests.store(slow.requests, Ordering::Relaxed);
        self.slow_letters.store(slow.letters, Ordering::Relaxed);
    }

    pub(super) fn ring(&self) {
        // A full socket is as loud as one can get.
        let _ = (&self.ring).write(&[1]);
    }
}

#[cfg(test)]
mod tests;
