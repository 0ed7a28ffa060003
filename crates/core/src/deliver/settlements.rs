//! The mails to settle in the outbox, of three kinds. Pure.

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
    /// Whether each recipient was refused for its mailbox, which suppresses it.
    pub recipient_refused: bool,
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
            recipient_refused: false,
        }
    }

    /// An attempt after which the mail ends as an error.
    pub fn permanent(reason: String) -> Self {
        Self {
            permanent: true,
            ..Self::new(reason)
        }
    }

    /// Whether it may have sent the mail.
    pub fn is_ambiguous(&self) -> bool {
        self.ambiguity != Ambiguity::None
    }

    /// Whether the mail was alone in the request that may have sent it; true if there is none.
    pub fn is_alone(&self) -> bool {
        self.ambiguity != Ambiguity::InBatch
    }

    /// The attempt of a mail whose contents cannot be put into a request, now or later; `column` names them.
    pub fn not_text(column: &str) -> Self {
        Self::permanent(format!(
            "{column} holds bytes that are no characters in the database's encoding"
        ))
    }
}

/// A mail that was sent.
#[derive(Clone)]
pub struct SentMail {
    /// Its claim.
    pub claim: Claim,
    /// The id that the provider gave it.
    pub provider_id: Option<String>,
    /// Refused recipients as JSON, in the form of `outbox_attempts.refused_recipients`; `None` if there are none.
    pub refused: Option<String>,
}

/// A mail whose attempt failed.
#[derive(Clone)]
pub struct FailedMail {
    /// Its claim.
    pub claim: Claim,
    /// The attempt.
    pub attempt: FailedAttempt,
}

/// The settlements of one transaction. Each mail occurs once.
#[derive(Clone, Default)]
pub struct Settlements {
    /// Mails that were sent.
    pub sent: Vec<SentMail>,
    /// Mails whose attempt failed.
    pub failed: Vec<FailedMail>,
    /// Claims of mails that were not attempted.
    pub released: Vec<Claim>,
    /// Whether they are tried without waiting for locks.
    pub is_hurried: bool,
}

/// An array of one value of each mail, as the statements that settle take them.
pub fn column<'m, M, T>(mails: &'m [M], value: impl Fn(&'m M) -> T) -> Vec<T> {
    mails.iter().map(value).collect()
}

impl Settlements {
    /// Number of mails.
    pub fn len(&self) -> usize {
        self.sent.len() + self.failed.len() + self.released.len()
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
            _ if self.is_hurried => Some(Duration::from_millis(5)),
            _ => Some(Duration::from_millis(200)),
        }
    }

    /// Whether any mail was attempted.
    pub fn has_attempts(&self) -> bool {
        !(self.sent.is_empty() && self.failed.is_empty())
    }

    /// The claims of all mails.
    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        let sent = self.sent.iter().map(|one| &one.claim);
        let failed = self.failed.iter().map(|one| &one.claim);
        sent.chain(failed).chain(&self.released)
    }

    /// `outbox.id` of all mails.
    pub fn ids(&self) -> impl Iterator<Item = &i64> {
        self.claims().map(|claim| &claim.id)
    }

    /// Adds a mail that was sent to all recipients but the refused ones.
    pub fn sent(&mut self, claim: Claim, provider_id: Option<String>, refused: &[Refused]) {
        self.sent.push(SentMail {
            claim,
            provider_id,
            refused: (!refused.is_empty()).then(|| json!(refused).to_string()),
        });
    }

    /// Replaces `attempts` of each mail by what the function returns: the mail may have been claimed again since.
    pub fn update_attempts(&mut self, attempts: impl Fn(i64) -> Option<i32>) {
        let sent = self.sent.iter_mut().map(|one| &mut one.claim);
        let failed = self.failed.iter_mut().map(|one| &mut one.claim);
        for claim in sent.chain(failed).chain(&mut self.released) {
            claim.attempts = attempts(claim.id).unwrap_or(claim.attempts);
        }
    }

    /// Whether no mail is to be sent again.
    pub fn is_final(&self) -> bool {
        self.released.is_empty() && self.failed.iter().all(|one| one.attempt.permanent)
    }

    /// Splits into settlements of one mail each.
    pub fn split(self) -> Vec<Self> {
        let sent = self.sent.into_iter().map(|one| Self {
            sent: vec![one],
            ..Self::default()
        });
        let failed = self.failed.into_iter().map(|one| Self {
            failed: vec![one],
            ..Self::default()
        });
        let released = self.released.into_iter().map(|one| Self {
            released: vec![one],
            ..Self::default()
        });
        sent.chain(failed).chain(released).collect()
    }

    /// Removes a mail.
    pub fn remove(&mut self, id: i64) {
        self.sent.retain(|one| one.claim.id != id);
        self.failed.retain(|one| one.claim.id != id);
        self.released.retain(|claim| claim.id != id);
    }

    /// Adds other settlements.
    pub fn extend(&mut self, others: Self) {
        self.sent.extend(others.sent);
        self.failed.extend(others.failed);
        self.released.extend(others.released);
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
            is_permanent: true,
        };
        all.sent(claim(2), None, &[refused]);
        all.failed.push(FailedMail {
            claim: claim(3),
            attempt: FailedAttempt {
                reason: "http 500".to_owned(),
                retry_after: Some(Duration::from_millis(1500)),
                permanent: true,
                status: Some(500),
                ambiguity: Ambiguity::InBatch,
                batch: Some("b".to_owned()),
                recipient_refused: true,
            },
        });
        all.released.push(claim(4));
        assert_eq!(all.len(), 4);
        let mut again = Settlements::default();
        for one in all.split() {
            assert_eq!(one.len(), 1);
            again.extend(one);
        }
        assert_eq!(again.ids().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(again.sent[0].provider_id.as_deref(), Some("a"));
        let refused = r#"[{"error":"smtp 550 5.1.1","is_permanent":true,"recipient":"a@example.com","response_code":550}]"#;
        let refusals = column(&again.sent, |one| one.refused.as_deref());
        assert_eq!(refusals, [None, Some(refused)]);
        let attempt = &again.failed[0].attempt;
        assert!(attempt.is_ambiguous() && !attempt.is_alone());
        again.update_attempts(|id| (id > 2).then_some(4));
        let attempts: Vec<i32> = again.claims().map(|claim| claim.attempts).collect();
        assert_eq!(attempts, [3, 3, 4, 4]);
        again.remove(2);
        assert_eq!(again.ids().copied().collect::<Vec<_>>(), [1, 3, 4]);
        let ended: Vec<bool> = again.split().iter().map(Settlements::is_final).collect();
        assert_eq!(ended, [true, true, false]);
    }
}
