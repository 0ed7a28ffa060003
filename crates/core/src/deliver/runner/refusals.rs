//! The mails that the database has refused to settle. Pure.

use std::collections::HashMap;

use crate::deliver::settlements::Settlements;

struct Refusal {
    /// How often it was refused while the database worked.
    count: u32,
    /// How often it was found locked.
    locked: u32,
    /// [`Refusals::settled`] at the latest try.
    settled: u64,
}

/// The mails whose settlements failed, alone or together with others. Each is settled in a transaction of its own.
#[derive(Default)]
pub(super) struct Refusals {
    mails: HashMap<i64, Refusal>,
    /// Number of mails that were settled until now.
    settled: u64,
}

impl Refusals {
    pub(super) fn is_empty(&self) -> bool {
        self.mails.is_empty()
    }

    pub(super) fn contains(&self, id: i64) -> bool {
        self.mails.contains_key(&id)
    }

    /// Settlements failed together, and it is not known for which of them.
    pub(super) fn suspect(&mut self, settlements: &Settlements) {
        for &id in settlements.ids() {
            self.refusal(id);
        }
    }

    /// The refusals of a mail, of which there were none until now if there is no entry.
    fn refusal(&mut self, id: i64) -> &mut Refusal {
        let settled = self.settled;
        self.mails.entry(id).or_insert(Refusal {
            count: 0,
            locked: 0,
            settled,
        })
    }

    /// A mail was refused alone. Returns whether others were settled since its latest try.
    pub(super) fn refuse(&mut self, id: i64) -> bool {
        let settled = self.settled;
        std::mem::replace(&mut self.refusal(id).settled, settled) < settled
    }

    /// The refusal of a mail is its own fault. Returns how many were.
    pub(super) fn count(&mut self, id: i64) -> u32 {
        let refusal = self.refusal(id);
        refusal.count += 1;
        refusal.count
    }

    /// A mail was found locked.
    pub(super) fn note_locked(&mut self, id: i64) {
        self.refusal(id).locked += 1;
    }

    /// How often these were found locked.
    pub(super) fn locked(&self, settlements: &Settlements) -> u32 {
        let refusals = settlements.ids().filter_map(|id| self.mails.get(id));
        refusals.map(|refusal| refusal.locked).sum()
    }

    /// A mail was settled.
    pub(super) fn settle(&mut self, id: i64) {
        self.settled += 1;
        self.mails.remove(&id);
    }

    /// A mail is given up.
    pub(super) fn forget(&mut self, id: i64) {
        self.mails.remove(&id);
    }
}
