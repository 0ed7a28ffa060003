//! What became of mails, as it is to be told to the outbox: parallel arrays, for one call each. Pure.

use std::time::Duration;

use serde_json::json;

use super::mail::Claim;
use crate::transport::delivered::Refused;

/// Whether a mail may have arrived although the attempt counts as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It did not.
    No,
    /// It may have, by a request of its own.
    Alone,
    /// It may have, by a request with others.
    WithOthers,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// One line, nothing secret; for people.
    pub reason: String,
    /// Not before that.
    pub after: Option<Duration>,
    /// Never again.
    pub permanent: bool,
    /// Of the answer, if there was one.
    pub status: Option<u16>,
    /// Whether it may have arrived.
    pub arrival: Arrival,
    /// The request to be sent again, if the provider knows it by all of its mails.
    pub batch: Option<String>,
}

/// Mails that were sent.
#[derive(Default)]
pub struct Sent {
    /// `outbox.id` of each.
    pub ids: Vec<i64>,
    /// What the provider calls each, if it said.
    pub provider_ids: Vec<Option<String>>,
    /// As their claims returned them.
    pub attempts: Vec<i32>,
    /// The recipients that were refused, as `outbox_attempts.refused_recipients` has them; `None` for a mail that went to
    /// all of them.
    pub refused: Vec<Option<String>>,
}

/// Mails that failed.
#[derive(Default)]
pub struct Failed {
    /// `outbox.id` of each.
    pub ids: Vec<i64>,
    /// For people.
    pub errors: Vec<String>,
    /// Seconds.
    pub after: Vec<Option<f64>>,
    /// Whether each ends.
    pub permanent: Vec<bool>,
    /// Of the answers.
    pub statuses: Vec<Option<i32>>,
    /// As their claims returned them.
    pub attempts: Vec<i32>,
    /// Whether they may have arrived.
    pub ambiguous: Vec<bool>,
    /// Whether each had its request to itself.
    pub alone: Vec<bool>,
    /// The request that each is to be sent in again, with the same others.
    pub batches: Vec<Option<String>>,
}

/// Mails that were not tried.
#[derive(Default)]
pub struct Released {
    /// `outbox.id` of each.
    pub ids: Vec<i64>,
    /// As their claims returned them.
    pub attempts: Vec<i32>,
}

/// All that is to be told.
#[derive(Default)]
pub struct Settlements {
    /// Those that were sent.
    pub sent: Sent,
    /// Those that failed.
    pub failed: Failed,
    /// Those that were not tried.
    pub released: Released,
}

impl Settlements {
    /// How many mails.
    pub fn len(&self) -> usize {
        self.sent.ids.len() + self.failed.ids.len() + self.released.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any of them was tried.
    pub fn tell_of_attempts(&self) -> bool {
        !(self.sent.ids.is_empty() && self.failed.ids.is_empty())
    }

    /// All of them.
    pub fn ids(&self) -> impl Iterator<Item = &i64> {
        self.sent
            .ids
            .iter()
            .chain(&self.failed.ids)
            .chain(&self.released.ids)
    }

    /// One was sent, but not to those who were refused.
    pub fn sent(&mut self, claim: Claim, provider_id: Option<String>, refused: &[Refused]) {
        self.sent.ids.push(claim.id);
        self.sent.attempts.push(claim.attempts);
        self.sent.provider_ids.push(provider_id);
        let refused = (!refused.is_empty()).then(|| json!(refused).to_string());
        self.sent.refused.push(refused);
    }

    /// One failed.
    pub fn failed(&mut self, claim: Claim, fault: Fault) {
        self.failed.ids.push(claim.id);
        self.failed.attempts.push(claim.attempts);
        self.failed.errors.push(fault.reason);
        self.failed
            .after
            .push(fault.after.map(|after| after.as_secs_f64()));
        self.failed.permanent.push(fault.permanent);
        self.failed.statuses.push(fault.status.map(i32::from));
        self.failed.ambiguous.push(fault.arrival != Arrival::No);
        self.failed.alone.push(fault.arrival != Arrival::WithOthers);
        self.failed.batches.push(fault.batch);
    }

    /// One was not tried.
    pub fn released(&mut self, claim: Claim) {
        self.released.ids.push(claim.id);
        self.released.attempts.push(claim.attempts);
    }

    /// Has all tell of the claims that are in force, as far as these are known.
    pub fn renumber(&mut self, attempts: impl Fn(i64) -> Option<i32>) {
        for (ids, known) in [
            (&self.sent.ids, &mut self.sent.attempts),
            (&self.failed.ids, &mut self.failed.attempts),
            (&self.released.ids, &mut self.released.attempts),
        ] {
            for (&id, known) in ids.iter().zip(known) {
                *known = attempts(id).unwrap_or(*known);
            }
        }
    }

    /// Whether all of them have ended, so that none is to be sent again.
    pub fn is_final(&self) -> bool {
        self.released.ids.is_empty() && self.failed.permanent.iter().all(|&permanent| permanent)
    }

    /// Each by itself.
    pub fn singly(self) -> Vec<Self> {
        let Self {
            sent,
            failed,
            released,
        } = self;
        let mut all = Vec::new();
        for item in 0..sent.ids.len() {
            let mut one = Self::default();
            one.sent.ids.push(sent.ids[item]);
            one.sent.provider_ids.push(sent.provider_ids[item].clone());
            one.sent.attempts.push(sent.attempts[item]);
            one.sent.refused.push(sent.refused[item].clone());
            all.push(one);
        }
        for item in 0..failed.ids.len() {
            let mut one = Self::default();
            one.failed.ids.push(failed.ids[item]);
            one.failed.errors.push(failed.errors[item].clone());
            one.failed.after.push(failed.after[item]);
            one.failed.permanent.push(failed.permanent[item]);
            one.failed.statuses.push(failed.statuses[item]);
            one.failed.attempts.push(failed.attempts[item]);
            one.failed.ambiguous.push(failed.ambiguous[item]);
            one.failed.alone.push(failed.alone[item]);
            one.failed.batches.push(failed.batches[item].clone());
            all.push(one);
        }
        for (id, attempts) in released.ids.into_iter().zip(released.attempts) {
            let mut one = Self::default();
            one.released(Claim { id, attempts });
            all.push(one);
        }
        all
    }

    /// Nothing is to be told of this one.
    pub fn remove(&mut self, id: i64) {
        if self.ids().any(|&known| known == id) {
            for one in std::mem::take(self).singly() {
                if one.ids().all(|&known| known != id) {
                    self.extend(one);
                }
            }
        }
    }

    /// These as well.
    pub fn extend(&mut self, others: Self) {
        self.sent.ids.extend(others.sent.ids);
        self.sent.provider_ids.extend(others.sent.provider_ids);
        self.sent.attempts.extend(others.sent.attempts);
        self.sent.refused.extend(others.sent.refused);
        self.failed.ids.extend(others.failed.ids);
        self.failed.errors.extend(others.failed.errors);
        self.failed.after.extend(others.failed.after);
        self.failed.permanent.extend(others.failed.permanent);
        self.failed.statuses.extend(others.failed.statuses);
        self.failed.attempts.extend(others.failed.attempts);
        self.failed.ambiguous.extend(others.failed.ambiguous);
        self.failed.alone.extend(others.failed.alone);
        self.failed.batches.extend(others.failed.batches);
        self.released.ids.extend(others.released.ids);
        self.released.attempts.extend(others.released.attempts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singly_and_together_again_is_the_same() {
        let claim = |id| Claim { id, attempts: 3 };
        let mut all = Settlements::default();
        all.sent(claim(1), Some("a".to_owned()), &[]);
        let refused = Refused {
            recipient: "a@example.com".to_owned(),
            code: 550,
            reason: "smtp 550 5.1.1".to_owned(),
        };
        all.sent(claim(2), None, &[refused]);
        all.failed(
            claim(3),
            Fault {
                reason: "http 500".to_owned(),
                after: Some(Duration::from_millis(1500)),
                permanent: true,
                status: Some(500),
                arrival: Arrival::WithOthers,
                batch: Some("b".to_owned()),
            },
        );
        all.released(claim(4));
        assert_eq!(all.len(), 4);
        let mut again = Settlements::default();
        for one in all.singly() {
            assert_eq!(one.len(), 1);
            again.extend(one);
        }
        assert_eq!(again.ids().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(again.sent.provider_ids, [Some("a".to_owned()), None]);
        let refused =
            r#"[{"error":"smtp 550 5.1.1","recipient":"a@example.com","response_code":550}]"#;
        assert_eq!(again.sent.refused, [None, Some(refused.to_owned())]);
        assert_eq!(again.failed.after, [Some(1.5)]);
        assert_eq!(again.failed.statuses, [Some(500)]);
        assert_eq!(again.failed.permanent, [true]);
        assert_eq!(again.failed.ambiguous, [true]);
        assert_eq!(again.failed.alone, [false]);
        assert_eq!(again.failed.batches, [Some("b".to_owned())]);
        assert_eq!(again.released.attempts, [3]);
        again.renumber(|id| (id > 2).then_some(4));
        assert_eq!(again.sent.attempts, [3, 3]);
        assert_eq!(again.failed.attempts, [4]);
        assert_eq!(again.released.attempts, [4]);
        let ended: Vec<bool> = again.singly().iter().map(Settlements::is_final).collect();
        assert_eq!(ended, [true, true, true, false]);
    }
}
