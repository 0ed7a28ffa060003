//! The database of the world.

use super::*;
use crate::deliver::mail::Claim;
use crate::deliver::settlements::FailedMail;

impl World {
    /// The database does its part, or fails.
    pub(super) fn exchange(&mut self, fails: bool) {
        let Some((settlements, claim)) = self.exchange.take() else {
            return;
        };
        if fails {
            return self.say(Event::Exchanged(Box::new(ExchangeResult {
                repeated: *settlements,
                retry_after: Duration::from_secs(1),
                ..ExchangeResult::default()
            })));
        }
        let (settlements, repeated) = self.refuse_some(*settlements);
        let lost = self.settle(&settlements);
        let claimed = claim.map(|claim| {
            let mails = self.claim(claim.mails as usize);
            let claimed = Claimed {
                mails,
                surplus: 0,
                budget: None,
            };
            (claim, claimed)
        });
        self.say(Event::Exchanged(Box::new(ExchangeResult {
            settled: settlements,
            lost,
            repeated,
            repeat_after: Duration::from_secs(1),
            claimed,
            ..ExchangeResult::default()
        })));
    }

    /// Now and then, some mails cannot be settled at the moment. Returns what is settled, and what is not.
    fn refuse_some(&mut self, all: Settlements) -> (Settlements, Settlements) {
        let (mut settled, mut refused) = (Settlements::default(), Settlements::default());
        if self.random(10) > 0 {
            return (all, refused);
        }
        for one in all.split() {
            let is_refused = self.random(4) == 0;
            if is_refused {
                &mut refused
            } else {
                &mut settled
            }
            .extend(one);
        }
        (settled, refused)
    }

    /// The leases of some mails end, and the deliverer learns of it.
    pub(super) fn lose_claims(&mut self) {
        let mut in_force = HashSet::new();
        for id in 1..=self.rows.len() as i64 {
            let is_lost = self.random(3) == 0;
            let row = self.rows.get_mut(&id).unwrap();
            if !row.claimed {
                continue;
            }
            if is_lost {
                row.claimed = false;
                row.attempts += 1;
                row.ambiguous += 1;
                row.lost += 1;
                row.batch = None;
            } else {
                in_force.insert(id);
            }
        }
        self.say(Event::ClaimsInForce(Arc::new(in_force)));
    }

    /// The clock of the deliverer stands still for so long, that of the database does not.
    pub(super) fn suspend(&mut self, time: Duration) {
        for row in self.rows.values_mut() {
            row.due = row.due.saturating_sub(time);
            row.expires_at = row.expires_at.map(|end| end.saturating_sub(time));
        }
        self.now += Duration::from_micros(1);
        self.say(Event::ClockJumped);
    }

    /// Settles what is held by these claims, and returns the others.
    pub(super) fn settle(&mut self, settlements: &Settlements) -> Vec<i64> {
        let now = self.now;
        let mut seen = BTreeSet::new();
        let mut lost = Vec::new();
        let Settlements {
            sent,
            failed,
            released,
            is_hurried: _,
        } = settlements;
        for Claim { id, attempts } in settlements.claims() {
            assert!(seen.insert(*id), "{id} is settled twice");
            let row = self.rows.get_mut(id).unwrap();
            if row.claimed && row.attempts == *attempts {
                row.claimed = false;
            } else {
                assert!(row.lost > 0, "{id} is not claimed");
                lost.push(*id);
            }
        }
        for one in sent.iter().filter(|one| !lost.contains(&one.claim.id)) {
            let row = self.rows.get_mut(&one.claim.id).unwrap();
            row.ended = Some("sent");
        }
        let failed: Vec<_> = failed
            .iter()
            .filter(|one| !lost.contains(&one.claim.id))
            .collect();
        for FailedMail { claim, attempt } in &failed {
            let row = self.rows.get_mut(&claim.id).unwrap();
            row.attempts += 1;
            row.ambiguous += i32::from(attempt.is_ambiguous());
            row.batch.clone_from(&attempt.batch);
            if attempt.permanent {
                row.ended = Some(if attempt.is_ambiguous() {
                    "ambiguous"
                } else {
                    "refused"
                });
                row.batch = None;
            } else {
                let wait = Duration::from_secs(1 << row.attempts.min(6));
                let wait = wait.max(attempt.retry_after.unwrap_or_default());
                row.due = now + wait;
                if let Some(end) = row.expires_at {
                    row.due = row
                        .due
                        .min(end.saturating_sub(Duration::from_secs(5)).max(now));
                }
            }
        }
        // The mails of a batch are due at the same time.
        let mut due: HashMap<String, Time> = HashMap::new();
        for one in &failed {
            let row = &self.rows[&one.claim.id];
            if let Some(batch) = &row.batch {
                let at = due.entry(batch.clone()).or_insert(row.due);
                *at = (*at).min(row.due);
            }
        }
        for one in &failed {
            let row = self.rows.get_mut(&one.claim.id).unwrap();
            if let Some(at) = row.batch.as_ref().and_then(|batch| due.get(batch)) {
                row.due = *at;
            }
        }
        lost.retain(|id| !released.iter().any(|claim| claim.id == *id));
        lost
    }

    pub(super) fn claim(&mut self, limit: usize) -> Vec<Mail> {
        let now = self.now;
        for row in self.rows.values_mut() {
            let is_late = row.expires_at.is_some_and(|end| end <= now);
            if is_late && !row.claimed && row.ended.is_none() {
                row.ended = Some("expired");
            }
        }
        let held: HashSet<String> = self
            .rows
            .values()
            .filter(|row| row.claimed)
            .filter_map(|row| row.group.clone())
            .collect();
        let mut due: Vec<(i16, Time, i64)> = self
            .rows
            .iter()
            .filter(|(_, row)| row.ended.is_none() && !row.claimed && row.due <= now)
            .filter(|(_, row)| row.group.as_ref().is_none_or(|group| !held.contains(group)))
            .map(|(id, row)| (row.priority, row.due, *id))
            .collect();
        due.sort_unstable();
        due.truncate(limit);
        due.into_iter()
            .map(|(priority, at, id)| {
                let row = self.rows.get_mut(&id).unwrap();
                row.claimed = true;
                let mut mail = Mail {
                    priority,
                    send_at: i64::try_from(at.as_micros()).unwrap(),
                    group_key: row.group.clone(),
                    expires_in: row.expires_at.map(|end| end.saturating_sub(now)),
                    ambiguous_attempts: row.ambiguous,
                    ambiguous_alone: row.ambiguous > 0 && row.batch.is_none(),
                    batch: row.batch.clone(),
                    ..mail(id)
                };
                mail.message.attempts = row.attempts;
                if self.large_every.is_some_and(|every| id % every == 0) {
                    mail.size = [1, 12, 100][id as usize % 3] << 20;
                }
                let count = match id {
                    id if id % 50 == 0 => 30,
                    id if id % 7 == 0 => 3,
                    _ => 1,
                };
                mail.message.recipients = vec!["r@example.com".to_owned(); count];
                mail
            })
            .collect()
    }
}
