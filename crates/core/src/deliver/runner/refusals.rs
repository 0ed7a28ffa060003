//! The mails that the database has refused to settle. Pure.

use std::collections::HashMap;

use crate::deliver::settlements::Settlements;

struct Refusal {
    /// How often it was refused while the database worked.
    count: u32,
    /// The pass in which it was last tried and `true`, or the pass before its first refusal and `false`.
    latest: (u64, bool),
    /// Value of [`Refusals::waits`] after its last lock wait, or when it was first refused.
    waited_at: u64,
    /// Value of [`Refusals::settled`] at the latest try.
    settled: u64,
}

/// The mails whose settlements failed, alone or together with others. Each is settled in a transaction of its own.
#[derive(Default)]
pub(super) struct Refusals {
    mails: HashMap<i64, Refusal>,
    /// Number of passes over them. A pass tries each of them at most once.
    passes: u64,
    /// Number of lock waits so far.
    waits: u64,
    /// Number of mails that were settled so far.
    settled: u64,
}

impl Refusals {
    pub(super) fn is_empty(&self) -> bool {
        self.mails.is_empty()
    }

    pub(super) fn contains(&self, id: i64) -> bool {
        self.mails.contains_key(&id)
    }

    /// Records settlements that failed together. Which of them caused the failure is not known.
    pub(super) fn suspect(&mut self, settlements: &Settlements) {
        for &id in settlements.ids() {
            self.refusal(id);
        }
    }

    /// The refusals of a mail. Adds an entry without refusals if there is none.
    fn refusal(&mut self, id: i64) -> &mut Refusal {
        self.mails.entry(id).or_insert(Refusal {
            count: 0,
            latest: (self.passes, false),
            waited_at: self.waits,
            settled: self.settled,
        })
    }

    /// Begins a pass, which may end before the last settlement. Returns one settlement for each mail: first the `waits`
    /// mails that have gone longest without a lock wait, then the rest, least recently tried first. So locked mails keep
    /// no other mail from being tried, however many there are, and each of them gets its lock wait in turn.
    pub(super) fn begin_pass(
        &mut self,
        settlements: Settlements,
        waits: usize,
    ) -> Vec<Settlements> {
        self.suspect(&settlements);
        let mut all = settlements.split();
        let refusal = |one: &Settlements| one.ids().find_map(|id| self.mails.get(id));
        all.sort_by_key(|one| refusal(one).map(|known| known.latest));
        for place in 0..waits.min(all.len()) {
            let waited_at = |at: &usize| refusal(&all[*at]).map(|known| known.waited_at);
            let next = (place..all.len()).min_by_key(waited_at);
            all[place..=next.unwrap_or(place)].rotate_right(1);
        }
        self.passes += 1;
        all
    }

    /// Records that a mail was refused alone, and whether its settlement waited for a lock. Returns whether other mails
    /// were settled since its latest try.
    pub(super) fn refuse(&mut self, id: i64, waited: bool) -> bool {
        self.waits += u64::from(waited);
        let (settled, pass, waits) = (self.settled, self.passes, self.waits);
        let refusal = self.refusal(id);
        refusal.latest = (pass, true);
        if waited {
            refusal.waited_at = waits;
        }
        std::mem::replace(&mut refusal.settled, settled) < settled
    }

    /// Counts a refusal that the mail itself caused. Returns how many there were.
    pub(super) fn count(&mut self, id: i64) -> u32 {
        let refusal = self.refusal(id);
        refusal.count += 1;
        refusal.count
    }

    /// Records that a mail was settled.
    pub(super) fn settle(&mut self, id: i64) {
        self.settled += 1;
        self.mails.remove(&id);
    }

    /// Forgets a mail that is given up.
    pub(super) fn forget(&mut self, id: i64) {
        self.mails.remove(&id);
    }
}
