//! Connects to a transport: name resolution, network policy, connection, TLS, and a relay's authentication. Sends
//! nothing.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use mailroom_core::transport::config::{Method, TransportConfig};
use mailroom_core::transport::connect;
use mailroom_core::transport::http::ClientOptions;
use mailroom_core::transport::network_policy::Denial;
use mailroom_core::transport::providers::Provider;
use mailroom_core::transport::single::Single;
use rustls::pki_types::ServerName;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::trial;

/// Connects to the endpoint of a transport.
///
/// # Errors
/// The step that failed, and why.
pub async fn reach(transport: &TransportConfig) -> Result<String, String> {
    match &transport.method {
        Method::Http { provider, options } => reach_provider(&**provider, options).await,
        Method::Single(single) => match &**single {
            Single::Smtp(relay) => relay
                .reach()
                .await
                .map(|()| "ok; the relay takes the connection".to_owned()),
            // Writing a message would be the only test.
            Single::File(_) | Single::Log => Ok("ok; it needs no connection".to_owned()),
        },
    }
}

async fn reach_provider(
    provider: &dyn Provider,
    options: &ClientOptions,
) -> Result<String, String> {
    // Only the URL of the request is used.
    let message = trial::message(0, "postmaster@example.com");
    let request = provider.request(&[&message], SystemTime::now())?;
    let host = request.uri.host().ok_or("the endpoint names no host")?;
    let is_clear = request.uri.scheme_str() == Some("http");
    let port = request.uri.port_u16();
    let port = port.unwrap_or(if is_clear { 80 } else { 443 });
    let limit = options.connect_timeout;
    let reached = tokio::time::timeout(limit, reach_host(options, host, port, is_clear));
    reached.await.unwrap_or_else(|_| {
        Err(format!(
            "no connection to {host} within {} s",
            limit.as_secs_f32()
        ))
    })
}

async fn reach_host(
    options: &ClientOptions,
    host: &str,
    port: u16,
    is_clear: bool,
) -> Result<String, String> {
    let deadline = Instant::now() + options.connect_timeout;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let addresses = tokio::net::lookup_host((bare, port))
        .await
        .map_err(|error| format!("looking up {host}: {error}"))?;
    let addresses = addresses.map(|address| address.ip()).collect();
    let permitted = options.networks.select(addresses, is_clear);
    let permitted = permitted.map_err(|denial| match denial {
        Denial::NotPublic(address) => {
            format!("address {address} is not public, and not in allowed_networks")
        }
        Denial::InClear => "http is for loopback addresses in allowed_networks only".to_owned(),
    })?;
    let unconnected = |error: io::Error| format!("connecting to {host}: {error}");
    let stream = connect::connect(&permitted, port, deadline)
        .await
        .map_err(unconnected)?;
    let address = stream.peer_addr().map_err(unconnected)?;
    if is_clear {
        return Ok(format!("ok; {address} answers, in clear"));
    }
    let name = ServerName::try_from(bare.to_owned())
        .map_err(|_| format!("{host} is no name that a certificate can be for"))?;
    let connector = TlsConnector::from(Arc::new(options.tls.clone()));
    match connector.connect(name, stream).await {
        Ok(_) => Ok(format!("ok; {host} at {address} answers, by TLS")),
        Err(error) => Err(format!("TLS with {host} at {address}: {error}")),
    }
}
