//! Requests to an HTTP provider.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::request::{Completion, RequestFuture, RequestHandle};
use crate::deliver::events::{Event, RequestResult};
use crate::deliver::mail::Mail;
use crate::message::Message;
use crate::transport::http::{Client, ClientOptions, HttpResponse, Taken};
use crate::transport::providers::{MessageOutcome, Provider, Request, Response};

/// How long to wait for the body of the response to one accepted mail, which has its id.
const BODY_OF_ONE: Duration = Duration::from_secs(5);

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

    /// Builds a request with those of the mails that can be put into one. If there are none, the request has ended.
    pub(super) fn prepare(self, handle: RequestHandle, mails: &[Mail]) -> Option<RequestFuture> {
        let completion = Completion::unwritten(handle, mails.len());
        let end = |mail: &Mail, reason| {
            completion.handle.send(Event::Unsendable {
                request: completion.handle.request,
                id: mail.message.id,
                reason,
            });
        };
        let now = SystemTime::now();
        let mut sendable: Vec<&Mail> = mails.iter().collect();
        let mut built = build(&*self.provider, &sendable, now);
        if built.is_err() {
            // A mail that cannot be put into a request must not keep the others from being sent (I8).
            sendable.retain(|mail| match build(&*self.provider, &[mail], now) {
                Ok(_) => true,
                Err(reason) => {
                    end(mail, reason);
                    false
                }
            });
            built = build(&*self.provider, &sendable, now);
        }
        match built {
            Ok(request) if !sendable.is_empty() => {
                let future = send(self, request, sendable.len(), completion);
                return Some(Box::pin(future));
            }
            Ok(_) => {}
            Err(reason) => sendable.iter().for_each(|mail| end(mail, reason.clone())),
        }
        None
    }
}

async fn send(client: ProviderClient, request: Request, count: usize, mut completion: Completion) {
    let mut watch = |taken: &Taken| completion.watch(taken);
    let posted = client.client.post(request, &mut watch).await;
    let result = match posted {
        Ok(mut response) => {
            let mut time = Duration::MAX;
            if count == 1 && (200..300).contains(&response.status) {
                // The provider has accepted the only mail, even if the body never comes.
                completion.settle(classify(&*client.provider, count, &response, None));
                time = BODY_OF_ONE;
            }
            let body = response.read(body_limit(count), time).await;
            classify(&*client.provider, count, &response, Some(&body))
        }
        Err(outcome) => RequestResult {
            outcomes: vec![outcome; count],
            ..RequestResult::default()
        },
    };
    completion.complete(result);
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

/// The result of a request with this number of mails; without a body, as if that broke off at once.
fn classify(
    provider: &dyn Provider,
    count: usize,
    response: &HttpResponse,
    body: Option<&[u8]>,
) -> RequestResult {
    let mut outcomes = provider.outcomes(
        count,
        &Response {
            status: response.status,
            headers: &response.headers,
            body: body.unwrap_or_default(),
            is_broken_off: body.is_none() || response.is_broken_off(),
            now: SystemTime::now(),
        },
    );
    if outcomes.len() != count {
        let reason = format!("the response has results for {} messages", outcomes.len());
        outcomes = vec![MessageOutcome::Ambiguous { reason }; count];
    }
    RequestResult {
        outcomes,
        status: Some(response.status),
        refused: Vec::new(),
    }
}
