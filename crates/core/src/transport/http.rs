//! The HTTP client: one POST and its response, and, after an error, whether the request was written.
//!
//! The client resolves the host name itself, checks each address against the network policy, and connects to the
//! address that it checked; the name is used for SNI and for the `host` header. There are no proxies, redirects and
//! cookies, and the size of a response is limited.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Uri};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;

use super::connect::connect;
use super::network_policy::{AllowedNetworks, Denial};
use super::providers::{MessageOutcome, Request};
use super::resolver::Resolver;
use crate::line;

mod outgoing;

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
pub struct ClientOptions {
    /// Networks that may be connected to although they are not public.
    pub networks: AllowedNetworks,
    /// Trusted certificates and other options of TLS.
    pub tls: rustls::ClientConfig,
    /// For a whole request.
    pub timeout: Duration,
    /// For name resolution, connecting and the TLS handshake.
    pub connect_timeout: Duration,
}

#[cfg(test)]
impl ClientOptions {
    /// For a plain-text server on this machine.
    pub fn on_loopback(timeout: Duration) -> Self {
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        Self {
            networks: AllowedNetworks::parse("127.0.0.1").unwrap(),
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
            let Ok(Some(Ok(frame))) = frame.await else {
                break;
            };
            if let Ok(data) = frame.into_data() {
                let room = limit - read.len();
                read.extend_from_slice(&data[..data.len().min(room)]);
            }
        }
        read
    }
}

/// Keeps connections to an endpoint and sends requests over them.
pub struct Client {
    inner: legacy::Client<Timed, Outgoing>,
    timeout: Duration,
}

impl Client {
    /// Must be called within a tokio runtime.
    pub fn new(options: ClientOptions) -> Self {
        let dialer = Dialer {
            networks: Arc::new(options.networks),
            names: Arc::new(Resolver::default()),
            limit: options.connect_timeout,
        };
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(options.tls)
            // The dialer decides whether plain http is allowed, because it knows the address.
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(dialer);
        let inner = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .http1_max_buf_size(HEAD_LIMIT)
            .http2_adaptive_window(true)
            .http2_keep_alive_interval(PING.0)
            .http2_keep_alive_timeout(PING.1)
            .build(Timed {
                connector,
                limit: options.connect_timeout,
            });
        Self {
            inner,
            timeout: options.timeout,
        }
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
        let deadline = Instant::now() + self.timeout;
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

/// The outcome of a request without a response.
fn trouble(error: &legacy::Error, is_unwritten: bool) -> MessageOutcome {
    let mut cause: &(dyn Error + 'static) = error;
    let mut denied = None;
    while let Some(next) = cause.source() {
        cause = next;
        denied = denied.or_else(|| cause.downcast_ref::<Denied>());
        // `source` of an I/O error skips the error that it wraps.
        if let Some(carried) = cause
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref)
        {
            cause = carried;
        }
    }
    if let Some(denied) = denied.or_else(|| cause.downcast_ref::<Denied>()) {
        return MessageOutcome::EndpointDenied {
            reason: denied.to_string(),
        };
    }
    let cause = presentable(&cause.to_string());
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

/// A denied address.
#[derive(Debug)]
struct Denied(Denial);

impl fmt::Display for Denied {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Denial::NotPublic(address) => write!(
                out,
                "address {address} of the endpoint is not public; see allowed_networks of the transport"
            ),
            Denial::InClear => write!(
                out,
                "http is for loopback addresses in allowed_networks of the transport only; use https"
            ),
        }
    }
}

impl Error for Denied {}

type BoxError = Box<dyn Error + Send + Sync>;
type Dialling<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Resolves a name, checks its addresses, and connects to one.
#[derive(Clone)]
struct Dialer {
    networks: Arc<AllowedNetworks>,
    names: Arc<Resolver>,
    limit: Duration,
}

impl Dialer {
    async fn dial(self, uri: Uri) -> Result<TokioIo<TcpStream>, BoxError> {
        let deadline = Instant::now() + self.limit;
        let in_clear = uri.scheme_str() == Some("http");
        let port = uri.port_u16().unwrap_or(if in_clear { 80 } else { 443 });
        let host = uri.host().ok_or("the endpoint names no host")?;
        let addresses = self.names.look_up(host).await?;
        let permitted = self.networks.select(addresses, in_clear).map_err(Denied)?;
        let stream = connect(&permitted, port, deadline).await?;
        Ok(TokioIo::new(stream))
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Dialling<Self::Response>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().dial(uri))
    }
}

/// Limits the time for connecting.
#[derive(Clone)]
struct Timed {
    connector: HttpsConnector<Dialer>,
    limit: Duration,
}

impl Service<Uri> for Timed {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Dialling<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = tokio::time::timeout(self.limit, self.connector.call(uri));
        Box::pin(async move {
            connecting
                .await
                .unwrap_or_else(|_| Err("timeout while connecting".into()))
        })
    }
}
