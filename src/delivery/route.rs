//! The settings of delivery and the files they name, made into a way to send.

use std::sync::Arc;

use mailroom_core::deliver::events::Limits;
use mailroom_core::transport::credentials::Credentials;
use mailroom_core::transport::http::Conduct;
use mailroom_core::transport::providers::{self, Provider};
use mailroom_core::transport::tls;

use crate::server;
use crate::settings::{pace, sending};

/// Files that the server itself may want to have open in this process.
const SERVER_FILES: usize = 512;

/// Reads settings and files as they are now.
///
/// # Errors
/// What is missing or wrong, without anything secret.
pub fn plan() -> Result<(Limits, Conduct), String> {
    let endpoint = sending::endpoint().unwrap_or_default();
    let from = sending::from().unwrap_or_default();
    let credentials = match sending::credentials_file() {
        Some(path) => {
            Credentials::load(&path)
                .map_err(|error| format!("{error} ({})", error.hint()))?
                .0
        }
        None => return Err("mailroom.credentials_file is not set".to_owned()),
    };
    let sender = sending::sender();
    let provider: Arc<dyn Provider> =
        providers::choose(sender.as_str(), &endpoint, &from, &credentials)?.into();
    let wanted = sending::http_concurrency();
    let files = server::allow_files(SERVER_FILES + wanted);
    let limits = Limits {
        provider,
        concurrency: wanted.min(files.saturating_sub(SERVER_FILES)).max(1),
        rate: pace::rate(),
        max_ambiguous: sending::max_ambiguous(),
        address: [sender.as_str(), &endpoint, &from].join("\n"),
    };
    let conduct = Conduct {
        networks: sending::allowed_networks(),
        tls: tls::config(sending::ca_file().as_deref(), endpoint.starts_with("http:"))?,
        timeout: sending::http_timeout(sender),
        connect_timeout: sending::connect_timeout(),
    };
    Ok((limits, conduct))
}
