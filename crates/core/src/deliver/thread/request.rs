//! One request: which transport it belongs to, and how its result reaches the deliverer.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::protocol::{Command, Job, Shared};
use crate::deliver::events::{Event, LogEvent, RequestResult};
use crate::transport::providers::MessageOutcome;

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

/// Reports the result of a request when it is dropped, so that a panic or an abort loses nothing.
pub(super) struct Completion {
    pub(super) handle: RequestHandle,
    /// Until the request completes, the result if it does not.
    result: RequestResult,
}

impl Completion {
    /// For a request that may have been written from the start.
    pub(super) fn new(handle: RequestHandle) -> Self {
        let result = RequestResult::default();
        Self { handle, result }
    }

    /// For a request with one mail that is not sent before [`Self::settle`].
    pub(super) fn unwritten(handle: RequestHandle, reason: &str) -> Self {
        let reason = reason.to_owned();
        let result = RequestResult {
            outcomes: vec![MessageOutcome::NotSent { reason }],
            ..RequestResult::default()
        };
        Self { handle, result }
    }

    /// From now on, this is the result if the request does not complete. The default: the mail may have been sent.
    pub(super) fn settle(&mut self, result: RequestResult) {
        self.result = result;
    }

    pub(super) fn complete(mut self, result: RequestResult) {
        self.result = result;
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.handle.send(Event::RequestDone {
            request: self.handle.request,
            result: std::mem::take(&mut self.result),
        });
    }
}
