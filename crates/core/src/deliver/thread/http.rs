//! Requests to an HTTP provider.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::SystemTime;

use super::request::{Completion, RequestFuture, RequestHandle};
use crate::deliver::events::{Event, RequestOutcome};
use crate::deliver::mail::Mail;
use crate::message::Message;
use crate::transport::http::{Client, ClientOptions, HttpError, HttpResponse};
use crate::transport::providers::{MessageOutcome, Provider, Request, Response};

/// A provider and the connections to it.
#[derive(Clone)]
pub(super) struct ProviderClient {
    provider: Arc<dyn Provider>,
    client: Arc<Client>,
}

impl ProviderClient {
    /// Must be called within a tokio runtime.
    pub(super) fn new(provider: Arc<dyn Provider>, options: ClientOptions) -> Self {
        Self {
            provider,
            client: Arc::new(Client::new(options)),
        }
    }

    pub(super) fn prepare(
        self,
        handle: RequestHandle,
        mails: &[Mail],
    ) -> (Option<RequestFuture>, Vec<Event>) {
        let mut events = Vec::new();
        let number = handle.request;
        let unsendable = |mail: &Mail, reason| Event::Unsendable {
            request: number,
            id: mail.message.id,
            reason,
        };
        let now = SystemTime::now();
        let mut sendable: Vec<&Mail> = mails.iter().collect();
        let mut built = build(&*self.provider, &sendable, now);
        if built.is_err() {
            // A mail that cannot be put into a request must not keep the others from being sent (I8).
            sendable.retain(|mail| match build(&*self.provider, &[mail], now) {
                Ok(_) => true,
                Err(reason) => {
                    events.push(unsendable(mail, reason));
                    false
                }
            });
            built = build(&*self.provider, &sendable, now);
        }
        match built {
            Ok(request) if !sendable.is_empty() => {
                let completion = Completion::new(handle);
                let future = send(self, request, sendable.len(), completion);
                return (Some(Box::pin(future)), events);
            }
            Ok(_) => {}
            Err(reason) => {
                events.extend(sendable.iter().map(|mail| unsendable(mail, reason.clone())));
            }
        }
        events.push(Event::RequestDone {
            request: number,
            outcome: RequestOutcome::Abandoned,
            status: None,
        });
        (None, events)
    }
}

async fn send(client: ProviderClient, request: Request, count: usize, completion: Completion) {
    let result = client.client.post(request, body_limit(count)).await;
    let (outcome, status) = classify(&*client.provider, count, result);
    completion.complete(outcome, status);
}

/// The request with these mails, or why there is none.
fn build(provider: &dyn Provider, mails: &[&Mail], now: SystemTime) -> Result<Request, String> {
    let messages: Vec<&Message> = mails.iter().map(|mail| &mail.message).collect();
    let request = AssertUnwindSafe(|| provider.request(&messages, now));
    catch_unwind(request)
        .unwrap_or_else(|_| Err("the request could not be made: a bug in mailroom".to_owned()))
}

/// The maximum size, in bytes, of a response about this number of mails.
fn body_limit(count: usize) -> usize {
    (64 << 10).max(count * (4 << 10))
}

/// The outcome of a request with this number of mails, and the status code of the response.
fn classify(
    provider: &dyn Provider,
    count: usize,
    result: Result<HttpResponse, HttpError>,
) -> (RequestOutcome, Option<u16>) {
    match result {
        Ok(response) => {
            let status = response.status;
            let response = Response {
                status,
                headers: &response.headers,
                body: &response.body,
                now: SystemTime::now(),
            };
            let mut outcomes = provider.outcomes(count, &response);
            if outcomes.len() != count {
                let reason = format!("the response has results for {} messages", outcomes.len());
                outcomes = vec![MessageOutcome::Ambiguous { reason }; count];
            }
            (RequestOutcome::Completed(outcomes), Some(status))
        }
        Err(HttpError::NoConnection(reason)) => (RequestOutcome::NoConnection(reason), None),
        Err(HttpError::NotSent(reason)) => (RequestOutcome::NotSent(reason), None),
        Err(HttpError::Denied(reason)) => (RequestOutcome::EndpointDenied(reason), None),
        Err(HttpError::Ambiguous(reason)) => {
            let outcome = MessageOutcome::Ambiguous { reason };
            (RequestOutcome::Completed(vec![outcome; count]), None)
        }
    }
}
