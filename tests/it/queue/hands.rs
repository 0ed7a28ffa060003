//! Who holds what, as the senders know it.

use std::collections::HashMap;
use std::time::Instant;

/// Who holds what, as far as the senders know: until they settle it or, counted from before the claim, its
/// lease ends.
#[derive(Default)]
pub struct Hands {
    pub mails: HashMap<i64, (u64, Instant)>,
    pub groups: HashMap<String, (u64, Instant)>,
}

impl Hands {
    pub fn take(&mut self, who: u64, until: Instant, mail: &Held) {
        let now = Instant::now();
        if until <= now {
            // It heard of its claim too late; somebody else may have it by now.
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

    /// Changes until when these are held.
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

    /// Drops those that were lost; somebody else may have them by now.
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
