//! When the leases of held mails began. Pure.

use std::time::Duration;

use crate::deliver::Time;

/// The latest extension of all leases, by two clocks.
pub(super) struct Leases {
    /// By the clock of the job runner.
    extended_at: Time,
    /// By the clock of the delivery thread.
    began_at: Time,
}

impl Leases {
    pub(super) fn new(now: Time) -> Self {
        Self {
            extended_at: now,
            began_at: Time::ZERO,
        }
    }

    /// The first mail was claimed.
    pub(super) fn begin(&mut self, now: Time, began_at: Time) {
        self.extended_at = now;
        self.began_at = began_at;
    }

    /// An extension is attempted.
    pub(super) fn note_attempt(&mut self, now: Time) {
        self.extended_at = now;
    }

    /// An extension succeeded.
    pub(super) fn note_extended(&mut self, began_at: Time) {
        self.began_at = began_at;
    }

    /// When to extend the leases, by the clock of the job runner.
    pub(super) fn extend_at(&self, interval: Duration) -> Time {
        self.extended_at.saturating_add(interval)
    }

    /// When leases of this duration end, by the clock of the delivery thread.
    pub(super) fn end(&self, lease: Duration) -> Time {
        self.began_at.saturating_add(lease)
    }
}
