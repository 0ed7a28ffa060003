//! The mails that the database has refused to settle. Pure.

use std::collections::HashMap;

use crate::deliver::settlements::Settlements;

struct Refusal {
    /// How often it was refused while the database worked.
    count: u32,
    /// The number of the round in which it was last tried.
    tried: u64,
    /// The number of the wait for its lock, among all.
    waited_for: u64,
    /// [`Refusals::settled`] at the latest try.
    settled: u64,
}

/// The mails whose settlements failed, alone or together with others. Each is settled in a transaction of its own.
#[derive(Default)]
pub(super) struct Refusals {
    mails: HashMap<i64, Refusal>,
    /// Number of rounds, in which each of them is tried once at most.
    rounds: u64,
    /// Number of waits for locks until now.
    waits: u64,
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
            tried: 0,
            waited_for: 0,
            settled,
        })
    }

    /// Begins a round. Returns the settlements one by one, those first that were not tried for longest, then those that
    /// were not waited for for longest. So many locked mails, of whatever kind, keep none from being tried, and each is
    /// waited for in turn.
    pub(super) fn begin_round(&mut self, settlements: Settlements) -> Vec<Settlements> {
        self.rounds += 1;
        let mut all = settlements.split();
        all.sort_by_key(|one| {
            let refusals = one.ids().filter_map(|id| self.mails.get(id));
            refusals
                .map(|refusal| (refusal.tried, refusal.waited_for))
                .max()
        });
        all
    }

    /// A mail was refused alone, perhaps after waiting for a lock. Returns whether others were settled since its latest
    /// try.
    pub(super) fn refuse(&mut self, id: i64, waited: bool) -> bool {
        self.waits += u64::from(waited);
        let (settled, round, wait) = (self.settled, self.rounds, self.waits);
        let refusal = self.refusal(id);
        refusal.tried = round;
        if waited {
            refusal.waited_for = wait;
        }
        std::mem::replace(&mut refusal.settled, settled) < settled
    }

    /// The refusal of a mail is its own fault. Returns how many were.
    pub(super) fn count(&mut self, id: i64) -> u32 {
        let refusal = self.refusal(id);
        refusal.count += 1;
        refusal.count
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
