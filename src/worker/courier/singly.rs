//! Settling a mail at a time, after settling many together has failed.

use super::Courier;
use crate::delivery::settlements::Settlements;
use crate::worker::session::{Failure, Session};

/// So many mails of which none can be settled, and it is not the mails.
const PATIENCE: usize = 8;

impl Courier {
    /// Settles each mail by itself, so that one that cannot be settled, because of a trigger that somebody put on
    /// the outbox, say, keeps no other from it (I8). That one's claim lapses, which counts as an attempt, so that it
    /// ends one day. But if it was sent, it is not sent again: claimed anew, it is only to be settled.
    pub(super) fn settle_singly(&mut self, session: &Session) -> Result<(), Failure> {
        let mut settled = 0;
        let mut stuck = Settlements::default();
        let mut reason = None;
        self.renumber();
        let mut rest = std::mem::take(&mut self.settlements).singly().into_iter();
        for one in rest.by_ref() {
            match session.exchange(&self.claimant, &one, None) {
                Ok(told) => {
                    settled += 1;
                    self.told(one, &told.lost);
                }
                Err(failure) => {
                    stuck.extend(one);
                    let hopeless = settled == 0 && stuck.len() >= PATIENCE;
                    if hopeless || !failure.is_row_at_fault() {
                        rest.for_each(|one| stuck.extend(one));
                        self.settlements = stuck;
                        return Err(failure);
                    }
                    reason = Some(failure);
                }
            }
        }
        self.settle_at = None;
        self.careful = false;
        self.failures.end();
        if let Some(failure) = reason {
            let ids: Vec<String> = stuck.ids().take(5).map(i64::to_string).collect();
            failure.warn(&format!(
                "mailroom worker could not settle {} mails, whose claims will lapse, among them {}",
                stuck.len(),
                ids.join(", ")
            ));
            for one in stuck.singly() {
                for &id in one.ids() {
                    self.drop_held(id);
                }
                if !one.sent.ids.is_empty() {
                    self.remember(one);
                }
            }
        }
        Ok(())
    }
}
