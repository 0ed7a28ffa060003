//! One request: which transport it belongs to, and how its result reaches the deliverer.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedSender;

use super::protocol::{Command, Job, Shared};
use crate::deliver::events::{Event, LogEvent, RequestResult};
use crate::transport::http::Taken;
use crate::transport::providers::MessageOutcome;

/// Why mail was not sent whose request was dropped.
const GIVEN_UP: &str = "given up before it was sent";

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
    /// Whether the body of the request was taken; if so, its mails may have been sent.
    taken: Option<Taken>,
}

impl Completion {
    /// For a request with this number of mails, which is not sent before [`Self::settle`] or [`Self::watch`].
    pub(super) fn unwritten(handle: RequestHandle, count: usize) -> Self {
        let reason = GIVEN_UP.to_owned();
        let result = RequestResult {
            outcomes: vec![MessageOutcome::NotSent { reason }; count],
            ..RequestResult::default()
        };
        Self {
            handle,
            result,
            taken: None,
        }
    }

    /// From now on, if the request does not complete, its mails may have been sent if its body was taken.
    pub(super) fn watch(&mut self, taken: &Taken) {
        self.taken = Some(taken.clone());
    }

    /// From now on, this is the result if the request does not complete. The default: the mail may have been sent.
    pub(super) fn settle(&mut self, result: RequestResult) {
        (self.result, self.taken) = (result, None);
    }

    pub(super) fn complete(mut self, result: RequestResult) {
        self.settle(result);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        let may_be_sent = self.taken.take().is_some_and(|taken| !taken.take());
        let result = std::mem::take(&mut self.result);
        self.handle.send(Event::RequestDone {
            request: self.handle.request,
            result: if may_be_sent {
                RequestResult::default()
            } else {
                result
            },
        });
    }
}
