//! The mails that the database has refused to settle. Pure.

use std::collections::HashMap;

use crate::deliver::settlements::Settlements;

struct Refusal {
    /// How often it was refused while the database worked.
    count: u32,
    /// The latest round, or the one after which it came, and whether it was tried in it.
    latest: (u64, bool),
    /// The number of the latest wait for its lock, among all, or of the one after which it came.
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
        self.mails.entry(id).or_insert(Refusal {
            count: 0,
            latest: (self.rounds, false),
            waited_for: self.waits,
            settled: self.settled,
        })
    }

    /// Begins a round, which may not come to the end of the settlements. Returns them one by one: the mails whose locks
    /// were not waited for for longest, `waits` of them, and then those that were not tried for longest. So many locked
    /// mails, of one kind or of several, keep none from being tried, and each is waited for in turn.
    pub(super) fn begin_round(
        &mut self,
        settlements: Settlements,
        waits: usize,
    ) -> Vec<Settlements> {
        self.suspect(&settlements);
        let mut all = settlements.split();
        let refusal = |one: &Settlements| one.ids().find_map(|id| self.mails.get(id));
        all.sort_by_key(|one| refusal(one).map(|known| known.latest));
        for place in 0..waits.min(all.len()) {
            let waited_for = |at: &usize| refusal(&all[*at]).map(|known| known.waited_for);
            let next = (place..all.len()).min_by_key(waited_for);
            all[place..=next.unwrap_or(place)].rotate_right(1);
        }
        self.rounds += 1;
        all
    }

    /// A mail was refused alone, perhaps after waiting for a lock. Returns whether others were settled since its latest
    /// try.
    pub(super) fn refuse(&mut self, id: i64, waited: bool) -> bool {
        self.waits += u64::from(waited);
        let (settled, round, wait) = (self.settled, self.rounds, self.waits);
        let refusal = self.refusal(id);
        refusal.latest = (round, true);
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
