//! One request: which transport it belongs to, and how its result reaches the deliverer.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::protocol::{Command, Job, Shared};
use crate::deliver::events::{Event, LogEvent, RequestOutcome};

/// A request that is awaited on the event loop.
pub(super) type RequestFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Identifies a request, and reports its results.
pub(super) struct RequestHandle {
    /// The number of the transport.
    pub(super) transport: u64,
    /// The name of the transport, for the log.
    pub(super) name: Arc<str>,
    /// The number of the request.
    pub(super) request: u64,
    pub(super) shared: Arc<Shared>,
    pub(super) commands: UnboundedSender<Command>,
}

impl RequestHandle {
    pub(super) fn log(&self, event: LogEvent) {
        self.shared.push(Job::Log(Arc::clone(&self.name), event));
    }

    pub(super) fn send(&self, event: Event) {
        // Without a receiver, the thread ends.
        let _ = self.commands.send(Command::Request(self.transport, event));
    }
}

/// Reports the outcome of a request when it is dropped, so that a panic or an abort loses nothing.
pub(super) struct Completion {
    pub(super) handle: RequestHandle,
    /// The outcome if the request does not complete; `None` after it has.
    on_drop: Option<RequestOutcome>,
}

impl Completion {
    /// For a request that may have been written from the start.
    pub(super) fn new(handle: RequestHandle) -> Self {
        Self {
            handle,
            on_drop: Some(RequestOutcome::Abandoned),
        }
    }

    /// For a request of which nothing is written before [`Self::begin`].
    pub(super) fn unwritten(handle: RequestHandle, reason: &str) -> Self {
        Self {
            handle,
            on_drop: Some(RequestOutcome::NotSent(reason.to_owned())),
        }
    }

    /// From now on, the request may have been written.
    pub(super) fn begin(&mut self) {
        self.on_drop = Some(RequestOutcome::Abandoned);
    }

    pub(super) fn complete(mut self, outcome: RequestOutcome, status: Option<u16>) {
        self.on_drop = None;
        self.report(outcome, status);
    }

    fn report(&self, outcome: RequestOutcome, status: Option<u16>) {
        self.handle.send(Event::RequestDone {
            request: self.handle.request,
            outcome,
            status,
        });
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(outcome) = self.on_drop.take() {
            self.report(outcome, None);
        }
    }
}
