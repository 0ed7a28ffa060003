//! Connects to an endpoint, for requests and for `mailroom check`: look-up, network policy, connection, TLS.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper::http::uri::Scheme;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower_service::Service;

use super::ClientOptions;
use crate::transport::connect::connect;
use crate::transport::network_policy::{AllowedNetworks, Denial, Exposed, Server};
use crate::transport::resolver::Resolver;
use crate::transport::tls;

/// A denied address.
#[derive(Debug)]
pub(super) struct Denied(Denial);

impl fmt::Display for Denied {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.reason(Server::Endpoint))
    }
}

impl Error for Denied {}

type BoxError = Box<dyn Error + Send + Sync>;
type Dialling<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Resolves a name, checks its addresses, and connects to one.
#[derive(Clone)]
struct Dialer {
    networks: Arc<AllowedNetworks>,
    /// What a connection without TLS exposes.
    exposed: Exposed,
    names: Arc<Resolver>,
    limit: Duration,
}

impl Dialer {
    async fn dial(self, uri: Uri) -> Result<TokioIo<TcpStream>, BoxError> {
        let deadline = Instant::now() + self.limit;
        let (exposed, usual_port) = if uri.scheme() == Some(&Scheme::HTTP) {
            (self.exposed, 80)
        } else {
            (Exposed::Nothing, 443)
        };
        let port = uri.port_u16().unwrap_or(usual_port);
        let host = uri.host().ok_or("the endpoint names no host")?;
        let addresses = self.names.look_up(host).await?;
        let permitted = self.networks.select(addresses, exposed).map_err(Denied)?;
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

/// Opens connections, each within the time for it.
#[derive(Clone)]
pub(super) struct Connector {
    https: HttpsConnector<Dialer>,
    limit: Duration,
}

impl Connector {
    pub(super) fn new(options: ClientOptions) -> Self {
        Self::with(options, Resolver::default())
    }

    fn with(options: ClientOptions, names: Resolver) -> Self {
        let dialer = Dialer {
            networks: Arc::new(options.networks),
            exposed: options.exposed,
            names: Arc::new(names),
            limit: options.connect_timeout,
        };
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(options.tls)
            // The dialer decides whether plain http is allowed, because it knows the address.
            .https_or_http()
            .enable_http1()
            .enable_http2()
            .wrap_connector(dialer);
        Self {
            https,
            limit: options.connect_timeout,
        }
    }

    async fn reach(mut self, uri: Uri) -> Result<Reached, String> {
        let host = uri.host().unwrap_or_default().to_owned();
        let failed = |error: &(dyn Error + 'static)| {
            format!("{host}: {}", tls::failure(error, Server::Endpoint))
        };
        let stream = self.call(uri).await.map_err(|error| failed(&*error))?;
        let (stream, has_tls) = match &stream {
            MaybeHttpsStream::Http(stream) => (stream.inner(), false),
            MaybeHttpsStream::Https(stream) => (stream.inner().get_ref().0.inner().inner(), true),
        };
        let address = stream.peer_addr().map_err(|error| failed(&error))?;
        Ok(Reached { address, has_tls })
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Dialling<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.https.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = tokio::time::timeout(self.limit, self.https.call(uri));
        Box::pin(async move {
            connecting
                .await
                .unwrap_or_else(|_| Err("timeout while connecting".into()))
        })
    }
}

/// A connection that [`reach`] opened and closed.
#[derive(Debug)]
pub struct Reached {
    /// The server's address.
    pub address: SocketAddr,
    /// Whether it has TLS.
    pub has_tls: bool,
}

/// Connects to the endpoint of these requests as [`super::Client`] does, and sends none.
///
/// # Errors
/// Why there is no connection, with the host.
pub async fn reach(options: ClientOptions, uri: Uri) -> Result<Reached, String> {
    Connector::new(options).reach(uri).await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connects to a host of this hosts file, which stands for a name server.
    fn reached(uri: &str, hosts: &str, exposed: Exposed) -> Result<Reached, String> {
        let mut options = ClientOptions::on_loopback(Duration::from_secs(2));
        options.exposed = exposed;
        options.networks = AllowedNetworks::parse("127.0.0.1, 172.16.0.0/12, 0.0.0.0/0").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let uri = uri.replace("PORT", &port.to_string()).parse().unwrap();
            let names = Resolver::of_hosts(hosts);
            Connector::with(options, names).reach(uri).await
        })
    }

    #[test]
    fn a_service_of_compose_is_reached_by_its_name() {
        for exposed in [Exposed::Mail, Exposed::Credentials] {
            let reached = reached("http://my_app:PORT/mail", "127.0.0.1 my_app", exposed).unwrap();
            assert!(reached.address.ip().is_loopback() && !reached.has_tls);
        }
    }

    #[test]
    fn what_a_name_stands_for_is_judged_by_what_the_connection_exposes() {
        for (address, exposed, problem) in [
            (
                "172.18.0.2",
                Exposed::Credentials,
                "app: address 172.18.0.2 of the endpoint is not loopback, so credentials are sent to it by TLS only: \
                 endpoint must begin with https://",
            ),
            (
                "8.8.8.8",
                Exposed::Mail,
                "app: address 8.8.8.8 of the endpoint is not private, so mail is sent to it by TLS only: \
                 endpoint must begin with https://",
            ),
        ] {
            let hosts = format!("{address} app");
            let error = reached("http://app:PORT/", &hosts, exposed).unwrap_err();
            assert_eq!(error, problem);
        }
    }
}
