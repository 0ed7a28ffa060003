//! What a deliverer needs of the database, and of the process that it runs in.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use super::intake::{Appetite, Claimed};
use super::settlements::Settlements;
use crate::transport::config::{Configured, Error};

/// The default of `mailroom.stop_grace`.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// How much of which transport to claim.
pub struct Claim<'a> {
    /// Its name.
    pub transport: &'a str,
    /// How much.
    pub appetite: Appetite,
    /// Transports that have been paused, and for how long: their mail may fall back on this one first.
    pub paused: &'a [(Arc<str>, Duration)],
}

/// The outbox of one database, in which each call is a transaction.
pub trait Store {
    /// Why a transaction came to nothing.
    type Failure: Failure;

    /// Tells what became of mails, and claims more. Returns those of the mails whose claim had been lost, and what was
    /// claimed.
    ///
    /// # Errors
    /// Nothing of it has happened.
    fn exchange(
        &mut self,
        claimant: &str,
        settlements: &Settlements,
        claim: Option<Claim<'_>>,
    ) -> Result<(Vec<i64>, Option<Claimed>), Self::Failure>;

    /// Lets the leases of these mails end later; returns those whose claims are in force.
    ///
    /// # Errors
    /// No lease was extended.
    fn extend(&mut self, claimant: &str, ids: &[i64]) -> Result<Vec<i64>, Self::Failure>;

    /// Publishes how the transports of a deliverer are, a JSON array as `_publish_transports` takes it, and what is wrong
    /// with its file.
    ///
    /// # Errors
    /// Nothing was published.
    fn publish(
        &mut self,
        deliverer: &str,
        transports: String,
        problem: Option<String>,
    ) -> Result<(), Self::Failure>;
}

/// What a failure of the store means for the deliverer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The extension, or the database, is not there any more.
    Gone,
    /// A dump is being restored: nothing is to be touched before it is whole.
    Restoring,
    /// The row that was written may be at fault.
    Row,
    /// Anything else; it may work later.
    Other,
}

/// A failure of the store.
pub trait Failure {
    /// What it means.
    fn kind(&self) -> Kind;
    /// Writes one warning to the log: what could not be done, and why.
    fn warn(&self, what: &str);
}

/// The process that a deliverer runs in.
pub trait Host {
    /// Reads the transports file as it is now.
    ///
    /// # Errors
    /// What is wrong with it.
    fn load(&self) -> Result<Vec<Configured>, Error>;

    /// Writes a line to the log.
    fn log(&self, line: &Line);

    /// Whether it was told to stop.
    fn stop_requested(&self) -> bool;

    /// How long claims are in force.
    fn lease(&self) -> Duration;

    /// How long what is in flight has after a stop.
    fn stop_grace(&self) -> Duration {
        STOP_GRACE
    }

    /// Waits until the bell rings, or for so long.
    fn wait(&self, limit: Duration, bell: RawFd);
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// For the record.
    Log(String),
    /// To be looked at.
    Warning {
        /// What happened.
        message: String,
        /// More of it; may be empty.
        detail: String,
        /// The remedy; may be empty.
        hint: String,
    },
}
