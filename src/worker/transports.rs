//! The transports of this database: what `mailroom.transports_file` says, as the deliverer wants it.

use mailroom_core::transport::config::{self, ConfigError, TransportConfig};

use crate::pg::process;
use crate::settings;

/// Files that the server itself may want to have open in this process.
const SERVER_FILES: usize = 512;

/// Reads the file as it is now; none without the setting. Concurrency is lowered to what the system lets this process
/// have open.
///
/// # Errors
/// What is missing or wrong in the file, without anything secret.
pub fn load(database: &str) -> Result<Vec<TransportConfig>, ConfigError> {
    let Some(path) = settings::transports_file() else {
        return Ok(Vec::new());
    };
    let mut transports = config::load(&path)?;
    transports.retain(|transport| transport.serves(database));
    fit(&mut transports);
    Ok(transports)
}

/// Shares what may be open among the transports, each by its concurrency.
fn fit(transports: &mut [TransportConfig]) {
    let wanted: usize = transports.iter().map(|one| one.delivery.concurrency).sum();
    let files = process::allow_files(SERVER_FILES + wanted).saturating_sub(SERVER_FILES);
    for transport in transports {
        let share = transport.delivery.concurrency * files / wanted.max(1);
        transport.delivery.concurrency = transport.delivery.concurrency.min(share).max(1);
    }
}
