//! Look-up, connection and TLS handshake.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::wire::Stream;
use super::{Peer, Tls};
use crate::transport::connect::connect;
use crate::transport::http::presentable;
use crate::transport::network_policy::Server;
use crate::transport::providers::MessageOutcome;
use crate::transport::tls::failure;

/// The reason when a server accepts the connection and says nothing.
const NO_HANDSHAKE: &str = "timeout during the TLS handshake; if TLS does not begin at once on this port, write tls = \"starttls\"";

/// Connects to the server; with implicit TLS the handshake is included.
///
/// # Errors
/// Why there is no connection.
pub(super) async fn dial(
    peer: &Peer,
    deadline: Instant,
) -> Result<Box<dyn Stream>, MessageOutcome> {
    let limit = deadline.min(Instant::now() + peer.connect_timeout);
    let stream = tokio::time::timeout_at(limit, open(peer, limit)).await;
    let stream = stream.unwrap_or_else(|_| Err(unreached("timeout while connecting")))?;
    match peer.tls {
        Tls::Implicit => {
            let encrypting = encrypt(peer, Box::new(stream));
            tokio::time::timeout_at(limit, encrypting)
                .await
                .unwrap_or_else(|_| Err(unreached(NO_HANDSHAKE)))
        }
        Tls::Starttls | Tls::None => Ok(Box::new(stream)),
    }
}

fn unreached(reason: &str) -> MessageOutcome {
    let reason = format!("no connection: {}", presentable(reason));
    MessageOutcome::NoConnection { reason }
}

async fn open(peer: &Peer, limit: Instant) -> Result<TcpStream, MessageOutcome> {
    let addresses = peer.names.look_up(&peer.host).await;
    let addresses = addresses.map_err(|error| unreached(&error.to_string()))?;
    let permitted = peer.networks.select(addresses, peer.exposed());
    let permitted = permitted.map_err(|denial| MessageOutcome::EndpointDenied {
        reason: denial.reason(Server::Relay),
    })?;
    connect(&permitted, peer.port, limit)
        .await
        .map_err(|error| unreached(&error.to_string()))
}

/// The host as a certificate names it; `None` if it is neither a name nor an address.
pub(super) fn server_name(host: &str) -> Option<ServerName<'static>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(bare.to_owned()).ok()
}

/// Performs the TLS handshake; the certificate must be valid for the host.
///
/// # Errors
/// Why the handshake failed.
pub(super) async fn encrypt(
    peer: &Peer,
    stream: Box<dyn Stream>,
) -> Result<Box<dyn Stream>, MessageOutcome> {
    let name = server_name(&peer.host)
        .ok_or_else(|| unreached("the host is not a name that a certificate can have"))?;
    let connector = TlsConnector::from(Arc::clone(&peer.config));
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(MessageOutcome::NoConnection {
            reason: format!("no connection: {}", failure(&error, Server::Relay)),
        }),
    }
}
