//! The mails to settle in the outbox: parallel arrays, one call for each of the three kinds. Pure.

use std::time::Duration;

use serde_json::json;

use super::mail::Claim;
use crate::transport::delivered::Refused;

/// Whether a failed attempt may have sent the mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ambiguity {
    /// It has not.
    None,
    /// It may have, in a request with this mail only.
    Alone,
    /// It may have, in a request with other mails.
    InBatch,
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// Why it failed: one line for people, without secrets.
    pub reason: String,
    /// The minimum wait before the next attempt, if the provider names one.
    pub retry_after: Option<Duration>,
    /// Whether the mail ends as an error.
    pub permanent: bool,
    /// Status code of the response, if there was one.
    pub status: Option<u16>,
    /// Whether it may have sent the mail.
    pub ambiguity: Ambiguity,
    /// The key of the batch to repeat, if it is to be repeated with the same mails.
    pub batch: Option<String>,
}

impl FailedAttempt {
    /// An attempt that has not sent the mail, and after which it is retried.
    pub fn new(reason: String) -> Self {
        Self {
            reason,
            retry_after: None,
            permanent: false,
            status: None,
            ambiguity: Ambiguity::None,
            batch: None,
        }
    }

    /// The attempt of a mail whose contents cannot be put into a request, now or later; `column` names them.
    pub fn not_text(column: &str) -> Self {
        Self {
            permanent: true,
            ..Self::new(format!(
                "{column} holds bytes that are no characters in the database's encoding"
            ))
        }
    }
}

/// Mails that were sent, as arrays for `mailroom_mark_sent`.
#[derive(Default)]
pub struct Sent {
    /// `outbox.id` of each.
    pub ids: Vec<i64>,
    /// The ids that the provider gave them.
    pub provider_ids: Vec<Option<String>>,
    /// `failed_attempts` of their claims.
    pub attempts: Vec<i32>,
    /// Refused recipients as JSON, in the form of `outbox_attempts.refused_recipients`; `None` if there are none.
    pub refused: Vec<Option<String>>,
}

/// Mails whose attempt failed, as arrays for `mailroom_mark_error`.
#[derive(Default)]
pub struct Failed {
    /// `outbox.id` of each.
    pub ids: Vec<i64>,
    /// The reasons.
    pub errors: Vec<String>,
    /// Minimum waits before the next attempts, in seconds.
    pub retry_after: Vec<Option<f64>>,
    /// Whether each mail ends as an error.
    pub permanent: Vec<bool>,
    /// Status codes of the responses.
    pub statuses: Vec<Option<i32>>,
    /// `failed_attempts` of their claims.
    pub attempts: Vec<i32>,
    /// Whether each attempt may have sent the mail.
    pub ambiguous: Vec<bool>,
    /// Whether each mail was alone in its request.
    pub alone: Vec<bool>,
    /// The key of the batch that each is to be repeated in.
    pub batches: Vec<Option<String>>,
}

/// Claims of mails that were not attempted.
#[derive(Default)]
pub struct Released {
    /// `outbox.id` of each.
    pub ids: Vec<i64>,
    /// `failed_attempts` of their claims.
    pub attempts: Vec<i32>,
}

/// The settlements of one transaction. Each mail occurs once.
#[derive(Default)]
pub struct Settlements {
    /// Mails that were sent.
    pub sent: Sent,
    /// Mails whose attempt failed.
    pub failed: Failed,
    /// Claims to release.
    pub released: Released,
}

impl Settlements {
    /// Number of mails.
    pub fn len(&self) -> usize {
        self.sent.ids.len() + self.failed.ids.len() + self.released.ids.len()
    }

    /// Whether there is nothing to settle.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How long a transaction that settles these waits for a lock; `None` if there are none. Only its holder changes a claimed row, so that a lock on
    /// one is rare, and must not keep the other mails from being settled.
    pub fn lock_timeout(&self) -> Option<Duration> {
        match self.len() {
            0 => None,
            1 => Some(Duration::from_millis(200)),
            _ => Some(Duration::from_secs(1)),
        }
    }

    /// Whether any mail was attempted.
    pub fn has_attempts(&self) -> bool {
        !(self.sent.ids.is_empty() && self.failed.ids.is_empty())
    }

    /// `outbox.id` of all mails.
    pub fn ids(&self) -> impl Iterator<Item = &i64> {
        self.sent
            .ids
            .iter()
            .chain(&self.failed.ids)
            .chain(&self.released.ids)
    }

    /// Adds a mail that was sent to all recipients but the refused ones.
    pub fn sent(&mut self, claim: Claim, provider_id: Option<String>, refused: &[Refused]) {
        self.sent.ids.push(claim.id);
        self.sent.attempts.push(claim.attempts);
        self.sent.provider_ids.push(provider_id);
        let refused = (!refused.is_empty()).then(|| json!(refused).to_string());
        self.sent.refused.push(refused);
    }

    /// Adds a mail whose attempt failed.
    pub fn failed(&mut self, claim: Claim, attempt: FailedAttempt) {
        self.failed.ids.push(claim.id);
        self.failed.attempts.push(claim.attempts);
        self.failed.errors.push(attempt.reason);
        self.failed
            .retry_after
            .push(attempt.retry_after.map(|after| after.as_secs_f64()));
        self.failed.permanent.push(attempt.permanent);
        self.failed.statuses.push(attempt.status.map(i32::from));
        self.failed
            .ambiguous
            .push(attempt.ambiguity != Ambiguity::None);
        self.failed
            .alone
            .push(attempt.ambiguity != Ambiguity::InBatch);
        self.failed.batches.push(attempt.batch);
    }

    /// Adds a claim to release.
    pub fn released(&mut self, claim: Claim) {
        self.released.ids.push(claim.id);
        self.released.attempts.push(claim.attempts);
    }

    /// Replaces `attempts` of each mail by what the function returns: the mail may have been claimed again since.
    pub fn update_attempts(&mut self, attempts: impl Fn(i64) -> Option<i32>) {
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

    /// Whether no mail is to be sent again.
    pub fn is_final(&self) -> bool {
        self.released.ids.is_empty() && self.failed.permanent.iter().all(|&permanent| permanent)
    }

    /// Splits into settlements of one mail each.
    pub fn split(self) -> Vec<Self> {
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
            one.failed.retry_after.push(failed.retry_after[item]);
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

    /// Removes a mail.
    pub fn remove(&mut self, id: i64) {
        if self.ids().any(|&known| known == id) {
            for one in std::mem::take(self).split() {
                if one.ids().all(|&known| known != id) {
                    self.extend(one);
                }
            }
        }
    }

    /// Adds other settlements.
    pub fn extend(&mut self, others: Self) {
        self.sent.ids.extend(others.sent.ids);
        self.sent.provider_ids.extend(others.sent.provider_ids);
        self.sent.attempts.extend(others.sent.attempts);
        self.sent.refused.extend(others.sent.refused);
        self.failed.ids.extend(others.failed.ids);
        self.failed.errors.extend(others.failed.errors);
        self.failed.retry_after.extend(others.failed.retry_after);
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
    fn split_settlements_extend_to_the_same_again() {
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
            FailedAttempt {
                reason: "http 500".to_owned(),
                retry_after: Some(Duration::from_millis(1500)),
                permanent: true,
                status: Some(500),
                ambiguity: Ambiguity::InBatch,
                batch: Some("b".to_owned()),
            },
        );
        all.released(claim(4));
        assert_eq!(all.len(), 4);
        let mut again = Settlements::default();
        for one in all.split() {
            assert_eq!(one.len(), 1);
            again.extend(one);
        }
        assert_eq!(again.ids().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(again.sent.provider_ids, [Some("a".to_owned()), None]);
        let refused =
            r#"[{"error":"smtp 550 5.1.1","recipient":"a@example.com","response_code":550}]"#;
        assert_eq!(again.sent.refused, [None, Some(refused.to_owned())]);
        assert_eq!(again.failed.retry_after, [Some(1.5)]);
        assert_eq!(again.failed.statuses, [Some(500)]);
        assert_eq!(again.failed.permanent, [true]);
        assert_eq!(again.failed.ambiguous, [true]);
        assert_eq!(again.failed.alone, [false]);
        assert_eq!(again.failed.batches, [Some("b".to_owned())]);
        assert_eq!(again.released.attempts, [3]);
        again.update_attempts(|id| (id > 2).then_some(4));
        assert_eq!(again.sent.attempts, [3, 3]);
        assert_eq!(again.failed.attempts, [4]);
        assert_eq!(again.released.attempts, [4]);
        let ended: Vec<bool> = again.split().iter().map(Settlements::is_final).collect();
        assert_eq!(ended, [true, true, true, false]);
    }
}
