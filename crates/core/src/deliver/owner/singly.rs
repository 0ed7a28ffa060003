//! Settling a mail at a time, after settling many together has failed.

use std::sync::Arc;

use super::Owner;
use crate::deliver::Time;
use crate::deliver::intake::Exchanged;
use crate::deliver::settlements::Settlements;
use crate::deliver::store::{Failure, Host, Kind, Store};

/// So many mails of which none can be settled, and it is not the mails.
const PATIENCE: usize = 8;

impl<H: Host> Owner<H> {
    /// Settles each mail by itself, so that one that cannot be settled, because of a trigger that was added to
    /// the outbox, say, keeps no other from it (I8). That one's claim lapses, which counts as an attempt, so that it
    /// ends one day.
    pub(super) fn settle_singly<S: Store>(
        &mut self,
        store: &mut S,
        transport: &Arc<str>,
        settlements: Box<Settlements>,
        now: Time,
    ) -> Result<(), S::Failure> {
        let mut done = Exchanged::default();
        let mut reason = None;
        let mut rest = settlements.singly().into_iter();
        for one in rest.by_ref() {
            match store.exchange(&self.claimant, &one, None) {
                Ok((lost, _)) => {
                    done.lost.extend(lost);
                    done.settled.extend(one);
                }
                Err(failure) => {
                    done.stuck.extend(one);
                    let hopeless = done.settled.is_empty() && done.stuck.len() >= PATIENCE;
                    if hopeless || failure.kind() != Kind::Row {
                        let mut untold = std::mem::take(&mut done.stuck);
                        rest.for_each(|one| untold.extend(one));
                        for id in done.settled.ids() {
                            self.held.remove(id);
                        }
                        self.thread.exchanged(transport, done);
                        return self.failed(transport, Box::new(untold), failure, now);
                    }
                    reason = Some(failure);
                }
            }
        }
        self.careful = false;
        self.failures.end();
        for id in done.settled.ids().chain(done.stuck.ids()) {
            self.held.remove(id);
        }
        if let Some(failure) = reason {
            let ids: Vec<String> = done.stuck.ids().take(5).map(i64::to_string).collect();
            failure.warn(&format!(
                "{} could not settle {} mails, whose claims will lapse, among them {}",
                self.who,
                done.stuck.len(),
                ids.join(", ")
            ));
        }
        self.thread.exchanged(transport, done);
        Ok(())
    }
}
