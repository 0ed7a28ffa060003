//! Reads the transports of this database from `mailroom.transports_file`, for the deliverer.

use mailroom_core::transport::config::{self, ConfigError, TransportConfig};

use crate::pg::process;
use crate::settings;

/// Number of files that the server itself may need to open in this process.
const SERVER_FILES: usize = 512;

/// Reads the transports file, and returns the transports of this database; none if the setting is empty. Lowers their
/// concurrency to the number of files that the system lets this process open.
///
/// # Errors
/// If the file cannot be read or is wrong; the error contains no secret.
pub fn load(database: &str) -> Result<Vec<TransportConfig>, ConfigError> {
    let Some(path) = settings::transports_file() else {
        return Ok(Vec::new());
    };
    let mut transports = config::load(&path)?;
    transports.retain(|transport| transport.serves(database));
    fit(&mut transports);
    Ok(transports)
}

/// Distributes the files that may be open among the transports, in proportion to their concurrency.
fn fit(transports: &mut [TransportConfig]) {
    let wanted: usize = transports.iter().map(|one| one.delivery.concurrency).sum();
    let files = process::allow_files(SERVER_FILES + wanted).saturating_sub(SERVER_FILES);
    for transport in transports {
        let share = transport.delivery.concurrency * files / wanted.max(1);
        transport.delivery.concurrency = transport.delivery.concurrency.min(share).max(1);
    }
}
