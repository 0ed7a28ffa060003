//! Messages that were refused or throttled while it is not known whether the message or the transport is at fault.

use std::collections::HashMap;

/// The maximum number of messages in each of the collections.
const MAX_SUSPECTS: usize = 10_000;

/// The suspects by `outbox.id`.
#[derive(Clone, Default)]
pub(super) struct Suspects {
    /// How often each message was refused or throttled, with others accepted in between, and the number of the latest
    /// request at the last of these times.
    refused: HashMap<i64, (u32, u64)>,
    /// The number of the latest request when each message was first refused for its contents or addresses, and whether the
    /// transport was paused, or that refusal helped to pause it.
    rejected: HashMap<i64, (u64, bool)>,
    /// The number of the latest request with each message in this pause that was a probe, or failed.
    pub(super) probed: HashMap<i64, u64>,
    /// The number of the latest request of which a message was accepted.
    pub(super) accepted: u64,
}

impl Suspects {
    /// Whether it was a probe, or failed, in this pause, or was refused or throttled: since it was last accepted if `ever`,
    /// otherwise since another message was accepted that was sent later.
    pub(super) fn contains(&self, id: i64, ever: bool) -> bool {
        let refused = self.refused.get(&id);
        let is_refused = refused.is_some_and(|(_, latest)| ever || self.accepted <= *latest);
        is_refused || self.probed.contains_key(&id)
    }

    /// This message is the probe of a paused transport, or failed while it was paused.
    pub(super) fn add_probed(&mut self, id: i64, request: u64) {
        if self.probed.len() >= MAX_SUSPECTS {
            self.probed.clear();
        }
        self.probed.insert(id, request);
    }

    /// This message was accepted.
    pub(super) fn remove(&mut self, id: i64) {
        self.refused.remove(&id);
        self.rejected.remove(&id);
    }

    /// Whether this message was refused or throttled at least `limit` times, and another one was accepted after each, so that
    /// it is at fault.
    pub(super) fn is_at_fault(&self, id: i64, limit: u32) -> bool {
        let refused = self.refused.get(&id);
        refused.is_some_and(|(count, latest)| *count >= limit && self.accepted > *latest)
    }

    /// Records that a message was refused or throttled. `request` is the number of the latest request.
    pub(super) fn add(&mut self, id: i64, request: u64) {
        if self.refused.len() >= MAX_SUSPECTS {
            self.refused.clear();
        }
        let (count, latest) = self.refused.entry(id).or_insert((0, request));
        if *count == 0 || self.accepted > *latest {
            *count += 1;
            *latest = request;
        }
    }

    /// As [`Self::add`], for its contents or addresses. Returns what the earlier refusals of this message show.
    pub(super) fn add_rejected(&mut self, id: i64, request: u64, is_paused: bool) -> Earlier {
        self.add(id, request);
        if self.rejected.len() >= MAX_SUSPECTS {
            self.rejected.clear();
        }
        let (first, is_doubtful) = *self.rejected.entry(id).or_insert((request, is_paused));
        match self.accepted > first {
            false => Earlier::Nothing,
            true if is_doubtful => Earlier::Doubt,
            true => Earlier::Fault,
        }
    }

    /// The transport is paused because of the refusals since a message was last accepted.
    pub(super) fn doubt_rejections(&mut self) {
        for (first, is_doubtful) in self.rejected.values_mut() {
            *is_doubtful |= *first >= self.accepted;
        }
    }
}

/// What earlier refusals of a message that is refused for its contents or addresses show.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Earlier {
    /// It was not refused before another message was accepted.
    Nothing,
    /// It was, when the transport refused all messages.
    Doubt,
    /// It was, among messages that were accepted.
    Fault,
}
