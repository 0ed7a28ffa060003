//! Requests with several mails that a provider knows again by these very mails: sent again as they were.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::Time;
use super::machine::Deliverer;
use super::mail::Mail;

/// Mails that are to be sent again together are waited for this long.
pub(super) const REGROUPING: Duration = Duration::from_secs(10);

/// A UUID (RFC 9562, version 8) of the mails' `message_id`s, in any order, and of whom they were sent to.
pub fn id<'m>(address: &str, mails: impl Iterator<Item = &'m Mail>) -> String {
    let mut ids: Vec<&str> = mails.map(|mail| mail.message.message_id.as_str()).collect();
    ids.sort_unstable();
    let mut hash = Sha256::new();
    hash.update(address.as_bytes());
    for id in ids {
        hash.update([0]);
        hash.update(id.as_bytes());
    }
    let hash: [u8; 32] = hash.finalize().into();
    let mut text = String::with_capacity(36);
    for (place, byte) in hash[..16].iter().enumerate() {
        let byte = match place {
            6 => byte & 0x0f | 0x80,
            8 => byte & 0x3f | 0x80,
            _ => *byte,
        };
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for half in [byte >> 4, byte & 0x0f] {
            text.push(char::from_digit(half.into(), 16).unwrap_or('0'));
        }
    }
    text
}

impl Deliverer {
    /// Keeps a mail until all are there that were in one request with it.
    pub(super) fn regroup(&mut self, now: Time, key: String, mail: Mail) {
        let address = self.limits.as_ref().map(|limits| limits.address.clone());
        let (_, mails) = self
            .regrouping
            .entry(key.clone())
            .or_insert_with(|| (now, Vec::new()));
        mails.push(mail);
        let is_whole = address.is_some_and(|address| id(&address, mails.iter()) == key);
        if is_whole && let Some((_, mails)) = self.regrouping.remove(&key) {
            self.again.push(mails);
        }
    }

    /// Parts what has waited for the rest of its request for too long.
    pub(super) fn part_late_batches(&mut self, now: Time) {
        let late: Vec<String> = self
            .regrouping
            .iter()
            .filter(|(_, (since, _))| now.saturating_sub(*since) >= REGROUPING)
            .map(|(key, _)| key.clone())
            .collect();
        for key in late {
            if let Some((_, mails)) = self.regrouping.remove(&key) {
                self.part(mails);
            }
        }
    }

    /// Parts those of what is to be sent again together of which this is true.
    pub(super) fn part_batches(&mut self, is_over: impl Fn(&[Mail]) -> bool) {
        let again = std::mem::take(&mut self.again);
        let regrouping = std::mem::take(&mut self.regrouping);
        for mails in again {
            if is_over(&mails) {
                self.part(mails);
            } else {
                self.again.push(mails);
            }
        }
        for (key, (since, mails)) in regrouping {
            if is_over(&mails) {
                self.part(mails);
            } else {
                self.regrouping.insert(key, (since, mails));
            }
        }
    }

    /// From now on each mail is by itself, as one that may have been sent.
    pub(super) fn part(&mut self, mails: Vec<Mail>) {
        for mut mail in mails {
            mail.batch = None;
            mail.ambiguous_alone = false;
            if mail.ambiguous_attempts > self.max_ambiguous() {
                let reason = "may have been sent: with others, which cannot be sent again with it";
                self.end_ambiguous(mail, reason);
            } else {
                self.queue.put(mail);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::fixture::mail;

    #[test]
    fn it_is_that_of_the_mails_and_of_whom_they_go_to() {
        let mails: Vec<Mail> = (1..=3).map(mail).collect();
        let id = id("resend", mails.iter());
        assert_eq!(id, super::id("resend", mails.iter().rev()));
        assert_ne!(id, super::id("resend", mails[1..].iter()));
        assert_ne!(id, super::id("webhook", mails.iter()));
        assert_eq!((id.len(), &id[14..15]), (36, "8"));
        assert!("89ab".contains(&id[19..20]), "{id}");
    }
}
