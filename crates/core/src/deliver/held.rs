//! The mails that a deliverer holds: from the claim until the settle is committed.

use std::collections::{HashMap, HashSet};

use super::mail::Mail;
use super::settlements::Settlements;

/// The maximum number of outcomes that are kept for mails whose claims were lost.
const MAX_LATE: usize = 10_000;

struct Held {
    /// Another database, or this one after a restore, may have another mail with the same id.
    message_id: String,
    /// `outbox.failed_attempts` of the latest claim.
    attempts: i32,
    size: usize,
    /// Whether the claim was lost: another deliverer may have claimed the mail.
    is_lost: bool,
}

/// The held mails by `outbox.id`, and the outcomes that could not be settled because a claim was lost.
#[derive(Default)]
pub(super) struct HeldMails {
    mails: HashMap<i64, Held>,
    /// Total size of the held mails in bytes.
    pub(super) bytes: usize,
    /// Outcomes of mails that are no longer held, by `outbox.id` and `message_id`.
    late: HashMap<(i64, String), Settlements>,
}

impl HeldMails {
    pub(super) fn len(&self) -> usize {
        self.mails.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.mails.is_empty()
    }

    /// Whether this message is held, and not another one with the same id.
    pub(super) fn contains(&self, mail: &Mail) -> bool {
        let held = self.mails.get(&mail.message.id);
        held.is_some_and(|held| held.message_id == mail.message.message_id)
    }

    /// Records that only the claims of these mails are still valid.
    pub(super) fn lose_others(&mut self, in_force: &HashSet<i64>) {
        for (id, held) in &mut self.mails {
            held.is_lost |= !in_force.contains(id);
        }
    }

    /// Whether this message is held, and its claim was not lost.
    pub(super) fn is_in_force(&self, mail: &Mail) -> bool {
        let held = self.mails.get(&mail.message.id);
        held.is_some_and(|held| held.message_id == mail.message.message_id && !held.is_lost)
    }

    /// `failed_attempts` of the claim of this mail, with which it has to be settled.
    pub(super) fn attempts(&self, id: i64) -> Option<i32> {
        self.mails.get(&id).map(|held| held.attempts)
    }

    /// Adds a mail whose id is not held, or records a later claim of a mail that is.
    pub(super) fn insert(&mut self, mail: &Mail) {
        let held = Held {
            message_id: mail.message.message_id.clone(),
            attempts: mail.message.attempts,
            size: mail.size,
            is_lost: false,
        };
        self.bytes += held.size;
        if let Some(earlier) = self.mails.insert(mail.message.id, held) {
            self.bytes -= earlier.size;
        }
    }

    /// Removes a mail and returns its `message_id`.
    pub(super) fn remove(&mut self, id: i64) -> Option<String> {
        let held = self.mails.remove(&id)?;
        self.bytes = self.bytes.saturating_sub(held.size);
        Some(held.message_id)
    }

    /// Removes the mail of this outcome, which could not be settled, and keeps the outcome for a later claim of it.
    pub(super) fn drop_late(&mut self, outcome: Settlements) {
        if self.late.len() >= MAX_LATE {
            self.late.clear();
        }
        let id = outcome.ids().next().copied();
        if let Some(id) = id
            && let Some(message_id) = self.remove(id)
        {
            self.late.insert((id, message_id), outcome);
        }
    }

    /// Takes the outcome of an earlier claim of this message.
    pub(super) fn take_late(&mut self, mail: &Mail) -> Option<Settlements> {
        let key = (mail.message.id, mail.message.message_id.clone());
        self.late.remove(&key)
    }
}
