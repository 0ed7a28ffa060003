//! The interfaces of a job runner to the database and to its process.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use super::exchange::{ClaimLimit, Claimed};
use super::settlements::Settlements;
use crate::transport::config::{ConfigError, TransportConfig};

/// The default of `mailroom.stop_grace`.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// A claim for one transport.
pub struct ClaimRequest<'a> {
    /// The name of the transport.
    pub transport: &'a str,
    /// How much to claim.
    pub limit: ClaimLimit,
    /// The duration of the claims' leases.
    pub lease: Duration,
    /// The paused transports, and for how long they have been paused. Before the claim, their mail may fall back on this
    /// transport.
    pub paused: &'a [(Arc<str>, Duration)],
}

/// The outbox of one database. Each call is one transaction.
pub trait Store {
    /// The error of a transaction that changed nothing.
    type Error: StoreError;

    /// Settles mails, then claims others. Returns `outbox.id` of the mails whose claims had been lost, and the claimed
    /// mails.
    ///
    /// # Errors
    /// The transaction was rolled back, or its outcome is not known because the connection was lost.
    fn exchange(
        &mut self,
        claimant: &str,
        settlements: &Settlements,
        claim: Option<ClaimRequest<'_>>,
    ) -> Result<(Vec<i64>, Option<Claimed>), Self::Error>;

    /// Has the leases of these mails end so long from now. Returns `outbox.id` of the mails whose claims are still valid.
    ///
    /// # Errors
    /// No lease was extended.
    fn extend(
        &mut self,
        claimant: &str,
        ids: &[i64],
        lease: Duration,
    ) -> Result<Vec<i64>, Self::Error>;

    /// Publishes the states of a deliverer's transports, as the JSON array of `_publish_transports`, and the error in its
    /// transports file.
    ///
    /// # Errors
    /// Nothing was published.
    fn publish(
        &mut self,
        deliverer: &str,
        transports: String,
        file_error: Option<String>,
    ) -> Result<(), Self::Error>;
}

/// SQLSTATE of [`ErrorKind::Locked`]: a lock was not granted within lock_timeout, or at once.
pub const LOCK_NOT_AVAILABLE: &str = "55P03";

/// The kind of an error, which determines when the transaction is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The extension or the database no longer exists.
    Gone,
    /// A restore is running; no row may be changed before it ends.
    Restoring,
    /// The contents of a row may have caused the error.
    Row,
    /// Another session holds a lock for longer than [`Settlements::lock_timeout`]; a repetition succeeds later.
    ///
    /// [`Settlements::lock_timeout`]: crate::deliver::settlements::Settlements::lock_timeout
    Locked,
    /// Any other error; a repetition may succeed.
    Other,
}

/// An error of the store.
pub trait StoreError {
    /// Its kind.
    fn kind(&self) -> ErrorKind;
    /// Writes a warning to the log: `message`, and this error as the reason.
    fn warn(&self, message: &str);
}

/// The process that a job runner runs in.
pub trait Host {
    /// Reads the transports file.
    ///
    /// # Errors
    /// If it cannot be read, or a section is wrong.
    fn load(&self) -> Result<Vec<TransportConfig>, ConfigError>;

    /// Writes a line to the log.
    fn log(&self, line: &LogLine);

    /// Whether the process was asked to stop.
    fn stop_requested(&self) -> bool;

    /// The duration of a lease.
    fn lease(&self) -> Duration;

    /// How long to wait for requests in flight after a stop.
    fn stop_grace(&self) -> Duration {
        STOP_GRACE
    }

    /// Waits until the file descriptor is readable, but no longer than `limit`.
    fn wait(&self, limit: Duration, jobs_fd: RawFd);
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogLine {
    /// Level LOG.
    Log(String),
    /// Level WARNING.
    Warning {
        /// The primary message.
        message: String,
        /// DETAIL; may be empty.
        detail: String,
        /// HINT; may be empty.
        hint: String,
    },
}
