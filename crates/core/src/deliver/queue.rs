//! Claimed mails that wait for a request, the most urgent first, and one of each group at a time.

use std::collections::{BTreeMap, HashMap};

use super::mail::{Mail, Position};

/// Mails by their positions, which they keep when they are put back.
#[derive(Default)]
pub(super) struct Queue {
    mails: BTreeMap<Position, Mail>,
    /// The later mails of each group that has a mail in `mails` or in flight.
    groups: HashMap<String, BTreeMap<Position, Mail>>,
}

impl Queue {
    /// Whether no mail can be taken.
    pub(super) fn is_empty(&self) -> bool {
        self.mails.is_empty()
    }

    /// Adds a claimed mail.
    pub(super) fn put(&mut self, mut mail: Mail) {
        mail.batch = None;
        if let Some(key) = &mail.group_key {
            if let Some(later) = self.groups.get_mut(key) {
                later.insert(mail.position(), mail);
                return;
            }
            self.groups.insert(key.clone(), BTreeMap::new());
        }
        self.mails.insert(mail.position(), mail);
    }

    /// Puts back a mail that was taken and not sent.
    pub(super) fn put_back(&mut self, mut mail: Mail) {
        mail.batch = None;
        self.mails.insert(mail.position(), mail);
    }

    /// A mail that was taken is settled, released or dropped: the next of its group may follow.
    pub(super) fn finish(&mut self, mail: &Mail) {
        if let Some(key) = &mail.group_key
            && let Some(later) = self.groups.get_mut(key)
        {
            if let Some((position, next)) = later.pop_first() {
                self.mails.insert(position, next);
            } else {
                self.groups.remove(key);
            }
        }
    }

    /// The next mail.
    pub(super) fn first(&self) -> Option<&Mail> {
        self.mails.values().next()
    }

    /// The first mail for which the predicate is true.
    pub(super) fn find(&self, is_wanted: impl Fn(&Mail) -> bool) -> Option<&Mail> {
        self.mails.values().find(|mail| is_wanted(mail))
    }

    /// Takes the mail with the smallest key; of several, the first.
    pub(super) fn take_first_by(&mut self, key: impl Fn(&Mail) -> u64) -> Option<Mail> {
        let mail = self.mails.values().min_by_key(|mail| key(mail))?;
        let position = mail.position();
        self.mails.remove(&position)
    }

    /// Takes the first mail for which the predicate is true.
    pub(super) fn take(&mut self, is_wanted: impl Fn(&Mail) -> bool) -> Option<Mail> {
        let mail = self.mails.values().find(|mail| is_wanted(mail))?;
        let position = mail.position();
        self.mails.remove(&position)
    }

    /// Takes a later mail of a group whose first one waits, for which the predicate is true. The first one follows it.
    pub(super) fn take_later(&mut self, is_wanted: impl Fn(&Mail) -> bool) -> Option<Mail> {
        let (head, place) = self.mails.iter().find_map(|(head, first)| {
            let later = self.groups.get(first.group_key.as_ref()?)?;
            let (place, _) = later.iter().find(|(_, mail)| is_wanted(mail))?;
            Some((*head, *place))
        })?;
        let first = self.mails.remove(&head)?;
        let later = self.groups.get_mut(first.group_key.as_ref()?)?;
        later.insert(head, first);
        later.remove(&place)
    }

    /// If this mail waits, replaces it by its later claim.
    pub(super) fn renew(&mut self, mut mail: Mail) {
        mail.batch = None;
        let position = mail.position();
        let mut all = std::iter::once(&mut self.mails).chain(self.groups.values_mut());
        if let Some(waiting) = all.find_map(|mails| mails.get_mut(&position)) {
            *waiting = mail;
        }
    }

    /// Takes all mails for which the predicate is false.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&Mail) -> bool) -> Vec<Mail> {
        let mut out = Vec::new();
        for later in self.groups.values_mut() {
            out.extend(take_others(later, &is_kept));
        }
        let first = take_others(&mut self.mails, &is_kept);
        for mail in &first {
            self.finish(mail);
        }
        out.extend(first);
        out
    }
}

/// Takes all mails for which the predicate is false.
fn take_others(mails: &mut BTreeMap<Position, Mail>, is_kept: impl Fn(&Mail) -> bool) -> Vec<Mail> {
    let (kept, out): (BTreeMap<Position, Mail>, _) = std::mem::take(mails)
        .into_iter()
        .partition(|(_, mail)| is_kept(mail));
    *mails = kept;
    out.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::fixture::mail;

    fn grouped(id: i64, priority: i16, group: &str) -> Mail {
        Mail {
            priority,
            group_key: Some(group.to_owned()),
            ..mail(id)
        }
    }

    fn pop(queue: &mut Queue) -> Option<Mail> {
        queue.take(|_| true)
    }

    fn ids(queue: &mut Queue) -> Vec<i64> {
        std::iter::from_fn(|| pop(queue).map(|mail| mail.message.id)).collect()
    }

    #[test]
    fn the_most_urgent_mail_is_first_and_a_mail_put_back_keeps_its_position() {
        let mut queue = Queue::default();
        for (id, priority) in [(1, 0), (2, 0), (3, -5), (4, 7)] {
            queue.put(Mail {
                priority,
                ..mail(id)
            });
        }
        let first = pop(&mut queue).unwrap();
        assert_eq!(first.message.id, 3);
        let second = pop(&mut queue).unwrap();
        queue.put_back(second);
        queue.put_back(first);
        assert_eq!(ids(&mut queue), [3, 1, 2, 4]);
    }

    #[test]
    fn one_mail_of_a_group_at_a_time() {
        let mut queue = Queue::default();
        for id in 1..=3 {
            queue.put(grouped(id, 0, "a"));
        }
        queue.put(grouped(9, 0, "b"));
        let first = pop(&mut queue).unwrap();
        assert_eq!(first.message.id, 1);
        assert_eq!(ids(&mut queue), [9]);
        queue.put_back(first.clone());
        assert_eq!(pop(&mut queue).unwrap().message.id, 1);
        queue.finish(&first);
        let second = pop(&mut queue).unwrap();
        assert_eq!((second.message.id, queue.is_empty()), (2, true));
        queue.finish(&second);
        queue.finish(&queue.mails.values().next().unwrap().clone());
        assert_eq!(ids(&mut queue), [3]);
        assert!(!queue.groups.contains_key("a"));
    }

    #[test]
    fn a_mail_that_is_not_kept_makes_room_in_its_group() {
        let mut queue = Queue::default();
        for id in 1..=4 {
            queue.put(grouped(id, 0, "a"));
        }
        queue.put(mail(9));
        let out = queue.retain(|mail| mail.message.id % 2 == 0);
        let mut out: Vec<i64> = out.iter().map(|mail| mail.message.id).collect();
        out.sort_unstable();
        assert_eq!(out, [1, 3, 9]);
        assert_eq!(ids(&mut queue), [2]);
        assert!(
            queue
                .retain(|_| false)
                .iter()
                .map(|mail| mail.message.id)
                .eq([4])
        );
        assert!(queue.retain(|_| false).is_empty());
    }
}
