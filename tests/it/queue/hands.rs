//! Which sender holds what, as far as the senders know.

use std::collections::HashMap;
use std::time::Instant;

/// Which sender holds which mail and group, as far as the senders know: until it settles it, or until the lease ends,
/// counted from before the claim.
#[derive(Default)]
pub struct Hands {
    pub mails: HashMap<i64, (u64, Instant)>,
    pub groups: HashMap<String, (u64, Instant)>,
}

impl Hands {
    pub fn take(&mut self, who: u64, until: Instant, mail: &Held) {
        let now = Instant::now();
        if until <= now {
            // The sender learned of its claim too late; another one may hold the mail by now.
            return;
        }
        if let Some((other, end)) = self.mails.insert(mail.id, (who, until)) {
            assert!(
                end <= now,
                "mail {} was in the hands of {other} and {who}",
                mail.id
            );
        }
        if let Some(group) = &mail.group {
            let before = self.groups.insert(group.clone(), (who, until));
            if let Some((other, end)) = before {
                assert!(
                    end <= now || other == who,
                    "group {group}: {other} and {who}"
                );
            }
        }
    }

    /// Changes the time until which these are held.
    pub fn keep(&mut self, mails: &[Held], change: impl Fn(Instant) -> Instant) {
        for mail in mails {
            if let Some((_, end)) = self.mails.get_mut(&mail.id) {
                *end = change(*end);
            }
            let group = mail
                .group
                .as_ref()
                .and_then(|group| self.groups.get_mut(group));
            if let Some((_, end)) = group {
                *end = change(*end);
            }
        }
    }

    /// Drops those whose claims were lost; another sender may hold them by now.
    pub fn forget(&mut self, who: u64, mails: &[Held]) {
        for mail in mails {
            self.mails
                .retain(|id, (holder, _)| *id != mail.id || *holder != who);
        }
    }

    pub fn give(&mut self, mails: &[Held]) {
        for mail in mails {
            self.mails.remove(&mail.id);
            if let Some(group) = &mail.group {
                self.groups.remove(group);
            }
        }
    }
}

#[derive(Debug)]
pub struct Held {
    pub id: i64,
    pub group: Option<String>,
}
