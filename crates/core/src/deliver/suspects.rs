//! Messages that were refused or throttled, while it is not known whether it is a matter of theirs.

use std::collections::HashMap;

/// More than this are not remembered.
const MOST: usize = 10_000;

/// The suspects.
#[derive(Clone, Default)]
pub(super) struct Suspects {
    /// How often each was accused in different epochs, and in which last.
    accused: HashMap<i64, (u32, u32)>,
    /// In which epoch each was first refused for what it is.
    rejected: HashMap<i64, u32>,
    /// Counts the times that another message went through.
    epoch: u32,
}

impl Suspects {
    /// Whether there are any.
    pub(super) fn any(&self) -> bool {
        !self.accused.is_empty()
    }

    /// Whether this is one.
    pub(super) fn has(&self, id: i64) -> bool {
        self.accused.contains_key(&id)
    }

    /// This one went through.
    pub(super) fn clear(&mut self, id: i64) {
        self.accused.remove(&id);
        self.rejected.remove(&id);
    }

    /// A message went through after those that are suspected were.
    pub(super) fn note_passed(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Accuses a message; whether it was so often before, and others went through in between.
    pub(super) fn accuse(&mut self, id: i64, patience: u32) -> bool {
        if self.accused.len() >= MOST {
            self.accused.clear();
        }
        let epoch = self.epoch;
        let (count, last) = self.accused.entry(id).or_insert((0, epoch));
        let charged = *count >= patience && *last != epoch;
        if *last != epoch || *count == 0 {
            *count += 1;
            *last = epoch;
        }
        charged
    }

    /// A message was refused for what it is; whether it was before, and another one went through in between.
    pub(super) fn reject(&mut self, id: i64) -> bool {
        self.accuse(id, u32::MAX);
        if self.rejected.len() >= MOST {
            self.rejected.clear();
        }
        *self.rejected.entry(id).or_insert(self.epoch) != self.epoch
    }
}
