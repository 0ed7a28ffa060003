//! One POST and its answer: names, addresses, TLS, timeouts, and how far it came.
//!
//! The name is looked up here, each address goes past the guard, and the very address that was checked is
//! dialled; the name stays in SNI and in `host`. No proxy, no redirect, no cookie, and no more of an answer than was asked
//! for. Knows nothing of PostgreSQL.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{HeaderMap, HeaderValue, USER_AGENT};
use hyper::http::response::Parts;
use hyper::{Method, Uri};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;

use super::network_policy::AllowedNetworks;
use super::providers::Request;
use super::resolver::Resolver;

mod unwritten;

/// How much of the head of an answer is read.
const HEAD_LIMIT: usize = 256 * 1024;
/// How long an unused connection is kept: shorter than most servers do, which would close it under our hands.
const IDLE: Duration = Duration::from_secs(20);
/// How often an HTTP/2 connection is asked whether it is still there, and how long it may take to say so.
const PING: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(5));
/// How long a request waits that a server gave back; doubled each time.
const FIRST_RETURN: Duration = Duration::from_millis(10);
const AGENT: &str = concat!("mailroom/", env!("CARGO_PKG_VERSION"));

/// What a client is to be like.
pub struct ClientOptions {
    /// May be dialled although they are private.
    pub networks: AllowedNetworks,
    /// Who vouches for an endpoint, and how TLS is spoken.
    pub tls: rustls::ClientConfig,
    /// For the whole exchange.
    pub timeout: Duration,
    /// For looking up, connecting and agreeing on TLS.
    pub connect_timeout: Duration,
}

#[cfg(test)]
impl ClientOptions {
    /// For a server on this machine, in clear, which may take this long.
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

/// An answer. Of its body as much as was asked for, or as came before it broke off or took too long.
pub struct HttpResponse {
    /// As in its first line.
    pub status: u16,
    /// Of the answer.
    pub headers: HeaderMap,
    /// At most as much as was asked for.
    pub body: Vec<u8>,
}

/// Why there is no answer. Reasons are short and hold nothing of the request.
#[derive(Debug, PartialEq, Eq)]
pub enum HttpError {
    /// The request was never written.
    NotSent(String),
    /// It was not, because the endpoint is nowhere that may be dialled.
    Denied(String),
    /// It may have been.
    Ambiguous(String),
}

/// Keeps connections to the endpoint and sends requests over them.
pub struct Client {
    inner: legacy::Client<Timed, Full<Bytes>>,
    timeout: Duration,
}

impl Client {
    /// A client; within a tokio runtime.
    pub fn new(options: ClientOptions) -> Self {
        let dialer = Dialer {
            networks: Arc::new(options.networks),
            names: Arc::new(Resolver::default()),
        };
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(options.tls)
            // Whether http will do is decided by the dialer, which knows the address.
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

    /// Sends one request and waits for its answer, as long as that may take.
    ///
    /// A server of HTTP/2 that closes a connection, as each does now and then, tells which requests it never
    /// looked at: those are sent again, over another connection.
    ///
    /// # Errors
    /// How far it came. Once there is a status there is an answer.
    pub async fn post(
        &self,
        request: Request,
        body_limit: usize,
    ) -> Result<HttpResponse, HttpError> {
        let deadline = Instant::now() + self.timeout;
        let mut delay = FIRST_RETURN;
        loop {
            let mut outgoing = hyper::Request::new(Full::new(request.body.clone()));
            *outgoing.method_mut() = Method::POST;
            *outgoing.uri_mut() = request.uri.clone();
            *outgoing.headers_mut() = request.headers.clone();
            outgoing
                .headers_mut()
                .insert(USER_AGENT, HeaderValue::from_static(AGENT));
            let connection = capture_connection(&mut outgoing);
            let exchange = self.exchange(outgoing);
            return match tokio::time::timeout_at(deadline, exchange).await {
                Ok(Err(DeliveryError::Returned)) if Instant::now() + delay < deadline => {
                    tokio::time::sleep(delay).await;
                    delay = delay.saturating_mul(2);
                    continue;
                }
                Ok(Err(DeliveryError::Returned)) => Err(HttpError::NotSent(
                    "the server closes its connections without looking at requests".to_owned(),
                )),
                Ok(Err(DeliveryError::Final(trouble))) => Err(trouble),
                Ok(Ok((head, body))) => Ok(HttpResponse {
                    status: head.status.as_u16(),
                    headers: head.headers,
                    body: read(body, body_limit, deadline).await,
                }),
                Err(_) if connection.connection_metadata().is_none() => Err(HttpError::NotSent(
                    "timeout before a connection was there".to_owned(),
                )),
                Err(_) => Err(HttpError::Ambiguous(
                    "timeout after the request was written".to_owned(),
                )),
            };
        }
    }

    async fn exchange(
        &self,
        outgoing: hyper::Request<Full<Bytes>>,
    ) -> Result<(Parts, Incoming), DeliveryError> {
        let answer = self.inner.request(outgoing).await.map_err(|error| {
            if is_returned(&error) {
                DeliveryError::Returned
            } else {
                DeliveryError::Final(trouble(&error))
            }
        })?;
        Ok(answer.into_parts())
    }
}

/// What there is of a body, up to a limit and a moment.
async fn read(mut body: Incoming, limit: usize, deadline: Instant) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < limit && !body.is_end_stream() {
        let Ok(Some(Ok(frame))) = tokio::time::timeout_at(deadline, body.frame()).await else {
            break;
        };
        if let Ok(data) = frame.into_data() {
            let room = limit - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
    read
}

/// Why an exchange failed.
enum DeliveryError {
    /// The server says that it never looked at the request.
    Returned,
    Final(HttpError),
}

/// Whether the server says that it never looked at the request (RFC 9113, section 8.7): its stream is above the
/// last one that GOAWAY names, or was refused.
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

/// How far a request came that failed with this.
fn trouble(error: &legacy::Error) -> HttpError {
    let mut cause: &(dyn Error + 'static) = error;
    let mut denied = None;
    while let Some(next) = cause.source() {
        cause = next;
        denied = denied.or_else(|| cause.downcast_ref::<Denied>());
        // Errors of input and output hide what they carry from `source`.
        if let Some(carried) = cause
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref)
        {
            cause = carried;
        }
    }
    if let Some(denied) = denied.or_else(|| cause.downcast_ref::<Denied>()) {
        return HttpError::Denied(denied.to_string());
    }
    let reason = presentable(&cause.to_string());
    if error.is_connect() {
        HttpError::NotSent(format!("no connection: {reason}"))
    } else if unwritten::is_unwritten(error) {
        HttpError::NotSent(format!(
            "the connection ended before the request was written: {reason}"
        ))
    } else {
        HttpError::Ambiguous(format!("no answer: {reason}"))
    }
}

/// A foreign error's text as far as it may go into a row: one line, and not for ever.
pub(super) fn presentable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect()
}

/// An address that must not be dialled.
#[derive(Debug)]
enum Denied {
    Address(IpAddr),
    Clear,
}

impl fmt::Display for Denied {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(
                out,
                "address {address} of the endpoint is not public; see allowed_networks of the transport"
            ),
            Self::Clear => write!(
                out,
                "http is for loopback addresses in allowed_networks of the transport only; use https"
            ),
        }
    }
}

impl Error for Denied {}

type BoxError = Box<dyn Error + Send + Sync>;
type Dialling<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Looks a name up, has its addresses checked and dials the first that answers.
#[derive(Clone)]
struct Dialer {
    networks: Arc<AllowedNetworks>,
    names: Arc<Resolver>,
}

impl Dialer {
    async fn dial(self, uri: Uri) -> Result<TokioIo<TcpStream>, BoxError> {
        let in_clear = uri.scheme_str() == Some("http");
        let port = uri.port_u16().unwrap_or(if in_clear { 80 } else { 443 });
        let host = uri.host().ok_or("the endpoint names no host")?;
        let addresses = self.names.look_up(host).await?;
        let mut failure: Option<BoxError> = None;
        for address in addresses {
            // The check and the connection are of one and the same address: a second look-up could give another.
            if !self.networks.permit(address) {
                failure.get_or_insert_with(|| Denied::Address(address).into());
                continue;
            }
            if in_clear && !self.networks.permit_in_clear(address) {
                failure.get_or_insert_with(|| Denied::Clear.into());
                continue;
            }
            match TcpStream::connect(SocketAddr::new(address, port)).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(TokioIo::new(stream));
                }
                Err(error) => failure = Some(error.into()),
            }
        }
        Err(failure.unwrap_or_else(|| "the name has no address".into()))
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

/// Bounds how long all of connecting takes.
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
