//! Batch requests: several mails in one request, which is repeated with exactly these mails, because the provider
//! recognizes a repeated request only then. Here, as in `outbox.batch`, a batch is that of a request.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use sha2::{Digest, Sha256};
use uuid::Builder;

use super::Time;
use super::mail::Mail;

/// How long a batch waits until all its mails have been claimed again.
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(10);

/// The key of a batch: a UUID (RFC 9562, version 8) made from the provider account and from the idempotency keys of the
/// mails, in any order.
pub fn batch_key<'m>(account: &str, mails: impl Iterator<Item = &'m Mail>) -> String {
    let mut keys: Vec<String> = mails.map(|mail| mail.message.idempotency_key()).collect();
    keys.sort_unstable();
    let mut hash = Sha256::new();
    hash.update(account.as_bytes());
    for key in keys {
        hash.update([0]);
        hash.update(key.as_bytes());
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    Builder::from_custom_bytes(bytes).into_uuid().to_string()
}

/// Whether exactly these mails were in one request before: only mails in a batch that is repeated have its key.
pub(super) fn is_repeated(mails: &[Mail]) -> bool {
    mails.iter().all(|mail| mail.batch.is_some())
}

/// The batches that are to be repeated.
#[derive(Default)]
pub(super) struct RetryBatches {
    /// Batches that can be repeated: their mails have all been claimed again.
    pub(super) complete: Vec<Vec<Mail>>,
    /// Other batches by their keys, each with the time at which its first mail was claimed again.
    incomplete: HashMap<String, (Time, Vec<Mail>)>,
    /// The keys of those that were released because the rest of their mails could not be claimed.
    released: HashSet<String>,
}

/// The maximum number of keys in [`RetryBatches::released`].
const MAX_RELEASED: usize = 1_000;

impl RetryBatches {
    /// Adds a claimed mail to its batch.
    pub(super) fn collect(&mut self, now: Time, key: String, account: Option<&str>, mail: Mail) {
        let batch = self.incomplete.entry(key.clone());
        let (_, mails) = batch.or_insert_with(|| (now, Vec::new()));
        mails.push(mail);
        let is_complete = account.is_some_and(|account| batch_key(account, mails.iter()) == key);
        if is_complete && let Some((_, mails)) = self.incomplete.remove(&key) {
            self.released.remove(&key);
            self.complete.push(mails);
        }
    }

    /// Takes the most urgent complete batch for which the predicate is true; of several, the one that has been complete for
    /// longest.
    pub(super) fn take_next(&mut self, is_taken: impl Fn(&[Mail]) -> bool) -> Option<Vec<Mail>> {
        let batches = self.complete.iter().enumerate();
        let candidates = batches.filter(|(_, mails)| is_taken(mails));
        let (index, _) = candidates.min_by_key(|(_, mails)| mails[0].priority)?;
        Some(self.complete.remove(index))
    }

    /// Takes the mails of the batches that have waited for the rest of their mails for too long: those to split, and those to
    /// release, to be claimed together later. A batch is released once if the rest could not be claimed; the next time it is
    /// split, because the rest may have ended.
    pub(super) fn take_expired(&mut self, now: Time, may_claim: bool) -> (Vec<Mail>, Vec<Mail>) {
        let (mut to_split, mut to_release) = (Vec::new(), Vec::new());
        let is_expired = |_: &String, (since, _): &mut (Time, Vec<Mail>)| {
            now.saturating_sub(*since) >= COMPLETE_TIMEOUT
        };
        for (key, (_, mails)) in self.incomplete.extract_if(is_expired) {
            if self.released.remove(&key) || may_claim {
                to_split.extend(mails);
            } else {
                if self.released.len() >= MAX_RELEASED {
                    self.released.clear();
                }
                self.released.insert(key);
                to_release.extend(mails);
            }
        }
        (to_split, to_release)
    }

    /// Takes the mails of the batches that are not complete and for which the predicate is true.
    pub(super) fn take_incomplete(&mut self, is_taken: impl Fn(&[Mail]) -> bool) -> Vec<Mail> {
        let taken = self.incomplete.extract_if(|_, (_, mails)| is_taken(mails));
        taken.flat_map(|(_, (_, mails))| mails).collect()
    }

    /// Takes the mails of all batches for which the predicate is true.
    pub(super) fn take_where(&mut self, is_taken: impl Fn(&[Mail]) -> bool) -> Vec<Mail> {
        let complete = self.complete.extract_if(.., |mails| is_taken(mails));
        let mut taken: Vec<Mail> = complete.flatten().collect();
        taken.extend(self.take_incomplete(is_taken));
        taken
    }

    /// When [`Self::take_expired`] has something to return next.
    pub(super) fn expires_at(&self) -> Option<Time> {
        let batches = self.incomplete.values();
        let oldest = batches.map(|(since, _)| *since).min()?;
        Some(oldest + COMPLETE_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::fixture::mail;

    #[test]
    fn the_most_urgent_batch_is_next_then_the_oldest() {
        let of = |id, priority| Mail {
            priority,
            ..mail(id)
        };
        let mut batches = RetryBatches {
            complete: vec![vec![of(1, 0)], vec![of(2, -10)], vec![of(3, -10)]],
            ..RetryBatches::default()
        };
        let mut order = Vec::new();
        while let Some(mails) = batches.take_next(|mails| mails[0].message.id != 3) {
            order.push(mails[0].message.id);
        }
        assert_eq!(order, [2, 1]);
        assert_eq!(batches.complete.len(), 1);
    }

    #[test]
    fn the_key_depends_on_the_mails_and_on_the_account() {
        let mails: Vec<Mail> = (1..=3).map(mail).collect();
        let id = batch_key("resend", mails.iter());
        assert_eq!(id, batch_key("resend", mails.iter().rev()));
        assert_ne!(id, batch_key("resend", mails[1..].iter()));
        assert_ne!(id, batch_key("webhook", mails.iter()));
        assert_eq!((id.len(), &id[14..15]), (36, "8"));
        assert!("89ab".contains(&id[19..20]), "{id}");
    }
}
