//! Connects to a transport as delivery does: name resolution, network policy, connection, TLS, and a relay's
//! authentication. Sends nothing.

use std::sync::Arc;
use std::time::SystemTime;

use mailroom_core::transport::config::{Method, TransportConfig};
use mailroom_core::transport::http::{self, ClientOptions};
use mailroom_core::transport::providers::Provider;
use mailroom_core::transport::single::Single;
use mailroom_core::transport::smtp::Tls;

use super::trial;

/// Connects to the server of a transport.
///
/// # Errors
/// The step that failed, and why.
pub async fn reach(transport: &TransportConfig) -> Result<String, String> {
    match &transport.method {
        Method::Http { provider, options } => {
            reach_endpoint(&**provider, (**options).clone()).await
        }
        Method::Single(single) => reach_single(single).await,
    }
}

async fn reach_endpoint(provider: &dyn Provider, options: ClientOptions) -> Result<String, String> {
    // Only the URL of the request is used.
    let message = trial::message(0, "postmaster@example.com");
    let uri = provider.request(&[&message], SystemTime::now())?.uri;
    let host = uri.host().unwrap_or_default().to_owned();
    let reached = http::reach(options, uri).await?;
    let how = protection(reached.has_tls);
    Ok(format!("ok; {host} at {} answers, {how}", reached.address))
}

async fn reach_single(single: &Arc<Single>) -> Result<String, String> {
    match &**single {
        Single::Smtp(relay) => {
            let how = protection(relay.reach().await? != Tls::None);
            Ok(format!("ok; the relay takes the connection, {how}"))
        }
        // Writing a message would be the only test.
        Single::File(_) | Single::Log => Ok("ok; it needs no connection".to_owned()),
    }
}

fn protection(has_tls: bool) -> &'static str {
    if has_tls { "by TLS" } else { "without TLS" }
}
