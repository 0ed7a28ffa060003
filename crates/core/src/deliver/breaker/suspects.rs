//! Messages that were refused or throttled while it is not known whether the message or the transport is at fault.

use std::collections::{HashMap, HashSet};

/// The maximum number of messages in each of the collections.
const MAX_SUSPECTS: usize = 10_000;

/// The suspects by `outbox.id`.
#[derive(Clone, Default)]
pub(super) struct Suspects {
    /// In how many epochs each message was refused or throttled, and the latest of them.
    refused: HashMap<i64, (u32, u64)>,
    /// The epoch in which each message was first refused for its contents or addresses.
    rejected: HashMap<i64, u64>,
    /// The messages whose probe has failed in this pause.
    pub(super) probed: HashSet<i64>,
    /// Number of times that a message was accepted that was sent after the suspects.
    pub(super) epoch: u64,
}

impl Suspects {
    /// Whether it was a probe that failed, or was refused or throttled: since it was last accepted if `ever`, otherwise since
    /// another message was accepted that was sent later.
    pub(super) fn contains(&self, id: i64, ever: bool) -> bool {
        let refused = self.refused.get(&id);
        let is_refused = refused.is_some_and(|(_, latest)| ever || *latest == self.epoch);
        is_refused || self.probed.contains(&id)
    }

    /// The probe of a paused transport with this message failed.
    pub(super) fn add_probed(&mut self, id: i64) {
        if self.probed.len() < MAX_SUSPECTS {
            self.probed.insert(id);
        }
    }

    /// This message was accepted.
    pub(super) fn remove(&mut self, id: i64) {
        self.refused.remove(&id);
        self.rejected.remove(&id);
    }

    /// Records that a message was refused or throttled. Returns whether that happened in at least `limit` earlier epochs,
    /// so that the message is at fault.
    pub(super) fn add(&mut self, id: i64, limit: u32) -> bool {
        if self.refused.len() >= MAX_SUSPECTS {
            self.refused.clear();
        }
        let epoch = self.epoch;
        let (count, last) = self.refused.entry(id).or_insert((0, epoch));
        let is_at_fault = *count >= limit && *last != epoch;
        if *last != epoch || *count == 0 {
            *count += 1;
            *last = epoch;
        }
        is_at_fault
    }

    /// Records that a message was refused for its contents or addresses. Returns whether that happened in an earlier epoch.
    pub(super) fn add_rejected(&mut self, id: i64) -> bool {
        self.add(id, u32::MAX);
        if self.rejected.len() >= MAX_SUSPECTS {
            self.rejected.clear();
        }
        *self.rejected.entry(id).or_insert(self.epoch) != self.epoch
    }
}
