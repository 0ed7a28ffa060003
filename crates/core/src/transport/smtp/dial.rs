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
use crate::transport::network_policy::Denial;
use crate::transport::providers::MessageOutcome;

/// Connects to the server; with implicit TLS the handshake is included.
///
/// # Errors
/// Why there is no connection.
pub(super) async fn dial(
    peer: &Peer,
    deadline: Instant,
) -> Result<Box<dyn Stream>, MessageOutcome> {
    let limit = deadline.min(Instant::now() + peer.connect_timeout);
    let dialling = async {
        let stream = open(peer, limit).await?;
        match peer.tls {
            Tls::Implicit => encrypt(peer, Box::new(stream)).await,
            Tls::Starttls | Tls::None => Ok(Box::new(stream) as Box<dyn Stream>),
        }
    };
    tokio::time::timeout_at(limit, dialling)
        .await
        .unwrap_or_else(|_| Err(unreached("timeout while connecting")))
}

fn unreached(reason: &str) -> MessageOutcome {
    let reason = format!("no connection: {}", presentable(reason));
    MessageOutcome::NoConnection { reason }
}

async fn open(peer: &Peer, limit: Instant) -> Result<TcpStream, MessageOutcome> {
    let addresses = peer.names.look_up(&peer.host).await;
    let addresses = addresses.map_err(|error| unreached(&error.to_string()))?;
    let permitted = peer.networks.select(addresses, peer.tls == Tls::None);
    let permitted = permitted.map_err(|denial| {
        let reason = match denial {
            Denial::NotPublic(address) => {
                format!("address {address} of the relay is not public; see allowed_networks")
            }
            Denial::InClear => "smtp without TLS is for loopback addresses only".to_owned(),
        };
        MessageOutcome::EndpointDenied { reason }
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
        Err(error) => Err(unreached(&error.to_string())),
    }
}
