//! The delivery thread, which runs the deliverers of all transports of a database, as its job runner sees it.
//!
//! It is a single thread with an event loop, besides the thread of the job runner. It calls no function of the server and
//! runs with all signals blocked. What a deliverer needs from the database or the log becomes a [`Job`]; a byte on a socket
//! announces it, on which the job runner waits together with its other sources of events.
//!
//! If building or sending a request panics, the requests in flight are abandoned and the event loop is started again, after
//! a pause. If a deliverer itself panics, its state is not reliable: [`DeliveryThread::has_failed`] tells the job runner to
//! end the process.
//!
//! | module | owns |
//! |---|---|
//! | `protocol` | jobs, commands and the shared state |
//! | `request` | one request: its number, and where its result goes |
//! | `http` | requests over HTTP |
//! | `single` | requests of transports that take one message at a time |
//! | `client` | chooses between the two |
//! | `event_loop` | hands events to the deliverers, and executes their actions |
//! | `panics` | logs the place of a panic |

use std::collections::HashSet;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::event_loop::EventLoop;
use self::protocol::{Command, Shared, lock};
use super::Time;
use super::events::{Event, TransportStatus};
use super::exchange::ExchangeResult;
use crate::transport::config::TransportConfig;

mod client;
mod event_loop;
mod http;
mod panics;
mod protocol;
mod request;
mod single;

pub use self::protocol::{Exchange, Job};

/// The delivery thread. Dropping it ends the thread and abandons the requests in flight.
pub struct DeliveryThread {
    commands: UnboundedSender<Command>,
    shared: Arc<Shared>,
    wakeup: UnixStream,
    thread: Option<JoinHandle<()>>,
    origin: Instant,
}

impl DeliveryThread {
    /// Starts the thread. `spawn` creates it with all signals blocked.
    ///
    /// # Errors
    /// If the system refuses a thread or a socket.
    pub fn start(
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> std::io::Result<JoinHandle<()>>,
    ) -> std::io::Result<Self> {
        let (wakeup, other_end) = UnixStream::pair()?;
        wakeup.set_nonblocking(true)?;
        other_end.set_nonblocking(true)?;
        let runtime = new_runtime()?;
        let shared = Arc::new(Shared::new(other_end));
        let (commands, mut receiver) = unbounded_channel();
        let origin = Instant::now();
        let mut event_loop = EventLoop::new(Arc::clone(&shared), commands.clone(), origin);
        let thread_shared = Arc::clone(&shared);
        panics::install_hook();
        let thread = spawn(Box::new(move || {
            panics::mark_thread();
            let mut runtime = Ok(runtime);
            while let Ok(current) = runtime {
                let run = AssertUnwindSafe(|| current.block_on(event_loop.run(&mut receiver)));
                if catch_unwind(run).is_ok() {
                    return;
                }
                if !event_loop.recover() {
                    break;
                }
                drop(current);
                runtime = new_runtime();
            }
            thread_shared.fail();
        }))?;
        Ok(Self {
            commands,
            shared,
            wakeup,
            thread: Some(thread),
            origin,
        })
    }

    /// Time since the thread started, which all its times refer to.
    pub fn now(&self) -> Time {
        self.origin.elapsed()
    }

    /// A file descriptor that is readable when there are jobs.
    pub fn jobs_fd(&self) -> RawFd {
        self.wakeup.as_raw_fd()
    }

    /// Takes the jobs.
    pub fn take_jobs(&mut self) -> Vec<Job> {
        let mut bytes = [0; 64];
        while matches!(self.wakeup.read(&mut bytes), Ok(read) if read == bytes.len()) {}
        self.shared.take_jobs()
    }

    /// The states of the transports, in the order of the file. Transports that were removed from it and still hold mail come
    /// last.
    pub fn statuses(&self) -> Vec<(Arc<str>, TransportStatus)> {
        lock(&self.shared.statuses).clone()
    }

    /// Whether a deliverer has panicked, after which the process has to end.
    pub fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Acquire)
    }

    /// After [`Self::stop`]: whether nothing is in flight and everything is settled, for all transports.
    pub fn has_stopped(&self) -> bool {
        self.shared.has_stopped.load(Ordering::Acquire) || self.has_failed()
    }

    /// Sets the transports, in this order. Requests in flight continue as they were sent. A transport whose name is known
    /// keeps its state. A transport that is missing sends nothing more, and is removed once all its mail is settled. After
    /// [`Job::ReloadConfig`], a transport that did not ask for it keeps its pause.
    pub fn configure(&self, transports: Vec<TransportConfig>) {
        self.command(Command::Configure(transports));
    }

    /// Keeps the transports, because the file could not be read.
    pub fn keep_config(&self) {
        self.command(Command::KeepConfig);
    }

    /// Sets whether mail may be claimed and sent.
    pub fn allow_sending(&self, allowed: bool) {
        self.command(Command::AllowSending(allowed));
    }

    /// Sets the time at which the leases of all held mails end. Nothing is sent after it until a later call extends it.
    pub fn set_leases_end(&self, at: Time) {
        self.command(Command::All(Event::LeasesEndAt(at)));
    }

    /// Mail of any transport may be due. `urgent`: a person waits for it.
    pub fn mail_due(&self, urgent: bool) {
        self.command(Command::All(Event::MailDue { urgent }));
    }

    /// Retries everything at once.
    pub fn retry_now(&self) {
        self.command(Command::All(Event::RetryNow));
    }

    /// An exchange of this transport committed or failed.
    pub fn exchanged(&self, transport: &Arc<str>, result: ExchangeResult) {
        let event = Event::Exchanged(Box::new(result));
        self.command(Command::Exchange(Arc::clone(transport), event));
    }

    /// Drops the waiting mails that are not among these: their claims are no longer valid. The ids are those of all
    /// transports.
    pub fn keep_claims(&self, ids: HashSet<i64>) {
        self.command(Command::All(Event::ClaimsInForce(Arc::new(ids))));
    }

    /// Sends nothing more. Requests in flight continue.
    pub fn stop(&self) {
        self.command(Command::Stop);
    }

    /// Abandons the requests in flight.
    pub fn abandon_requests(&self) {
        self.command(Command::AbandonRequests);
    }

    fn command(&self, command: Command) {
        // After a failure there is no receiver, and `has_failed` returns true.
        let _ = self.commands.send(command);
    }
}

impl Drop for DeliveryThread {
    fn drop(&mut self) {
        self.command(Command::End);
        if let Some(thread) = self.thread.take() {
            // The thread catches its panics.
            let _ = thread.join();
        }
    }
}

fn new_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

#[cfg(test)]
mod tests;
