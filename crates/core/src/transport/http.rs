//! The HTTP client: one POST and its response, and, after an error, whether the request was written; or a GET of a
//! document.
//!
//! The client resolves the host name itself, checks each address against the network policy, and connects to the
//! address that it checked; the name is used for SNI and for the `host` header. There are no proxies, redirects and
//! cookies, and the size of a response is limited.

use std::error::Error;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderMap, HeaderValue, USER_AGENT};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use super::causes::causes;
use super::network_policy::{AllowedNetworks, Exposed, Server};
use super::providers::{MessageOutcome, Request};
use super::time_limit::TimeLimit;
use super::tls;
use crate::line;

mod connector;
mod document;
mod outgoing;
#[cfg(test)]
mod tests;

use connector::{Connector, Denied};
pub use connector::{Reached, reach};
pub use document::Document;
use outgoing::Outgoing;
pub use outgoing::Taken;

/// Maximum size of the head of a response in bytes.
const HEAD_LIMIT: usize = 256 * 1024;
/// How long an unused connection is kept: shorter than most servers keep one, so that a request rarely meets a closed
/// connection.
const IDLE: Duration = Duration::from_secs(20);
/// The interval of HTTP/2 pings, and how long a response to one may take. All requests of a connection without a response
/// may have been processed, so that a disturbance of some seconds must not end it.
const PING: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(20));
/// The wait before a request that the server returned unprocessed is sent again; it doubles each time.
const FIRST_RETURN: Duration = Duration::from_millis(10);
const AGENT: &str = concat!("mailroom/", env!("CARGO_PKG_VERSION"));

/// The options of a client.
#[derive(Clone)]
pub struct ClientOptions {
    /// Networks that may be connected to although they are not public.
    pub networks: AllowedNetworks,
    /// What a request exposes if the endpoint has no TLS.
    pub exposed: Exposed,
    /// Trusted certificates and other options of TLS.
    pub tls: rustls::ClientConfig,
    /// For a whole request; a large one has more.
    pub timeout: Duration,
    /// For name resolution, connecting and the TLS handshake.
    pub connect_timeout: Duration,
}

#[cfg(test)]
impl ClientOptions {
    /// For a plain-text server on this machine.
    pub fn on_loopback(timeout: Duration) -> Self {
        let ring = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        Self {
            networks: AllowedNetworks::parse("127.0.0.1").unwrap(),
            exposed: Exposed::Credentials,
            tls,
            timeout,
            connect_timeout: timeout,
        }
    }
}

/// A response of which the head was received.
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    /// Whether the body ended before its end; see [`HttpResponse::is_broken_off`].
    is_broken_off: bool,
    /// When the time for the whole request is up.
    deadline: Instant,
}

impl HttpResponse {
    /// Reads the body, up to this number of bytes and for this time at most. It ends also where the connection ends, and
    /// when the time for the whole request is up.
    pub async fn read(&mut self, limit: usize, time: Duration) -> Vec<u8> {
        let end = Instant::now().checked_add(time);
        let deadline = end.map_or(self.deadline, |end| end.min(self.deadline));
        let mut read = Vec::new();
        while read.len() < limit && !self.body.is_end_stream() {
            let frame = tokio::time::timeout_at(deadline, self.body.frame());
            let frame = match frame.await {
                Ok(Some(Ok(frame))) => frame,
                Ok(None) => break,
                Ok(Some(Err(_))) | Err(_) => {
                    self.is_broken_off = true;
                    break;
                }
            };
            if let Ok(data) = frame.into_data() {
                let room = limit - read.len();
                read.extend_from_slice(&data[..data.len().min(room)]);
            }
        }
        read
    }

    /// Whether the connection or the time ended before the body that was read.
    pub fn is_broken_off(&self) -> bool {
        self.is_broken_off
    }
}

/// Keeps connections to an endpoint and sends requests over them.
pub struct Client {
    inner: legacy::Client<Connector, Outgoing>,
    limit: TimeLimit,
}

impl Client {
    /// Must be called within a tokio runtime.
    pub fn new(options: ClientOptions) -> Self {
        let limit = TimeLimit::new(options.timeout);
        let connector = Connector::new(options);
        let inner = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http1_max_buf_size(HEAD_LIMIT)
            .http2_adaptive_window(true)
            .http2_keep_alive_interval(PING.0)
            .http2_keep_alive_timeout(PING.1)
            .build(connector);
        Self { inner, limit }
    }

    /// Sends one request and waits for the head of its response.
    ///
    /// When an HTTP/2 server closes a connection, it tells which requests it has not processed. These are sent again
    /// over another connection. `before` is called each time before the request is sent: if the returned future is dropped
    /// later, [`Taken`] tells whether the request may have been written.
    ///
    /// # Errors
    /// There is no status code; the outcome of all messages of the request tells whether it was written.
    pub async fn post(
        &self,
        request: Request,
        before: &mut (dyn FnMut(&Taken) + Send),
    ) -> Result<HttpResponse, MessageOutcome> {
        let deadline = Instant::now() + self.limit.of(request.body.len());
        let mut delay = FIRST_RETURN;
        loop {
            let (body, taken) = Outgoing::new(request.body.clone());
            before(&taken);
            let mut outgoing = hyper::Request::new(body);
            *outgoing.method_mut() = Method::POST;
            *outgoing.uri_mut() = request.uri.clone();
            *outgoing.headers_mut() = request.headers.clone();
            outgoing
                .headers_mut()
                .insert(USER_AGENT, HeaderValue::from_static(AGENT));
            let connection = capture_connection(&mut outgoing);
            let exchange = self.inner.request(outgoing);
            // From then on the body cannot be taken.
            let is_unwritten = || taken.take();
            return match tokio::time::timeout_at(deadline, exchange).await {
                Ok(Err(error)) if is_returned(&error) && Instant::now() + delay < deadline => {
                    tokio::time::sleep(delay).await;
                    delay = delay.saturating_mul(2);
                    continue;
                }
                Ok(Err(error)) if is_returned(&error) => Err(MessageOutcome::NotSent {
                    reason: "the server closes its connections without looking at requests"
                        .to_owned(),
                }),
                Ok(Err(error)) => Err(trouble(&error, is_unwritten())),
                Ok(Ok(response)) => {
                    let (head, body) = response.into_parts();
                    Ok(HttpResponse {
                        status: head.status.as_u16(),
                        headers: head.headers,
                        body,
                        is_broken_off: false,
                        deadline,
                    })
                }
                Err(_) if connection.connection_metadata().is_none() => {
                    Err(MessageOutcome::NoConnection {
                        reason: "timeout before a connection was there".to_owned(),
                    })
                }
                Err(_) if is_unwritten() => Err(MessageOutcome::NotSent {
                    reason: "timeout before the request was written".to_owned(),
                }),
                Err(_) => Err(MessageOutcome::Ambiguous {
                    reason: "timeout after the request was written".to_owned(),
                }),
            };
        }
    }
}

/// Whether the server has not processed the request (RFC 9113, section 8.7): its stream is above the last one that
/// GOAWAY names, or was refused.
fn is_returned(error: &legacy::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let reason = error.reason();
            return error.is_remote()
                && (error.is_go_away() && reason == Some(h2::Reason::NO_ERROR)
                    || error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM));
        }
        cause = error.source();
    }
    false
}

/// Why the network policy denied the server's addresses, if it did.
fn denied(error: &legacy::Error) -> Option<String> {
    let mut causes = causes(error);
    let denied = causes.find_map(|cause| cause.downcast_ref::<Denied>());
    denied.map(ToString::to_string)
}

/// The outcome of a request without a response.
fn trouble(error: &legacy::Error, is_unwritten: bool) -> MessageOutcome {
    if let Some(reason) = denied(error) {
        return MessageOutcome::EndpointDenied { reason };
    }
    let cause = tls::failure(error, Server::Endpoint);
    if error.is_connect() {
        let reason = format!("no connection: {cause}");
        MessageOutcome::NoConnection { reason }
    } else if is_unwritten {
        let reason = format!("the connection ended before the request was written: {cause}");
        MessageOutcome::NotSent { reason }
    } else {
        let reason = format!("no response: {cause}");
        MessageOutcome::Ambiguous { reason }
    }
}

/// The text of a foreign error: one line, with a maximum length.
pub(super) fn presentable(text: &str) -> String {
    text.chars()
        .map(|c| if line::is_control(c) { ' ' } else { c })
        .take(200)
        .collect()
}
