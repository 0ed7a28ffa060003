//! The state of a job runner.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::log_lines::LogPrefix;
use super::publish::Publisher;
use super::refusals::Refusals;
use crate::backoff::Failures;
use crate::deliver::Time;
use crate::deliver::clock::Clock;
use crate::deliver::store::Host;
use crate::deliver::thread::DeliveryThread;

/// The job runner of a database.
pub struct JobRunner<H> {
    pub(super) host: H,
    pub(super) log: LogPrefix,
    pub(super) claimant: String,
    pub(super) thread: DeliveryThread,
    pub(super) publisher: Publisher,
    /// `mailroom.redirect_to`.
    pub(super) redirect_to: Option<String>,
    /// `outbox.id` of the mails whose claims are not settled yet.
    pub(super) held: HashSet<i64>,
    /// When the leases of all held mails were last extended, or tried to be, by the clock of the job runner.
    pub(super) extended_at: Time,
    /// When these leases began, by the clock of the delivery thread.
    pub(super) leases_began_at: Time,
    /// The shortest lease of the held mails. `mailroom.lease` may have changed since.
    pub(super) lease: Duration,
    pub(super) clock: Clock,
    pub(super) refusals: Refusals,
    pub(super) is_sending_allowed: bool,
    /// When to read an unreadable transports file again.
    pub(super) reload_at: Time,
    pub(super) failures: Failures,
    /// The transports whose latest exchange failed.
    pub(super) failing: HashSet<Arc<str>>,
}

impl<H: Host> JobRunner<H> {
    /// The age of a lease at which it is extended: two thirds of it are left for that.
    pub(super) fn extension_interval(&self) -> Duration {
        self.lease / 3
    }

    /// When to extend the leases, by the clock of the job runner.
    pub(super) fn extend_at(&self) -> Time {
        self.extended_at.saturating_add(self.extension_interval())
    }
}
