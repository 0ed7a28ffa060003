//! Leases: extended for as long as mail is held, and at once when the clock has jumped.
//!
//! They end by the wall clock. When that jumps forward, all seem to have ended, and the worker itself would take back
//! and claim again what it holds. So it compares the clocks before it looks for what has lapsed. Should the jump come
//! just after that, the mail comes back from a claim while its first sending has no answer, or none that could be
//! settled: it is not sent a second time, but settled as that one turns out.

use std::time::{Duration, Instant};

use pgrx::prelude::*;

use super::{Courier, Held, Time};
use crate::delivery::engine::Letter;
use crate::delivery::settlements::{Claim, Settlements};
use crate::server;
use crate::settings;
use crate::worker::session::{Failure, Session};

/// The wall clock is adjusted all the time; more than this is a jump, at once or by and by.
const JUMP: Duration = Duration::from_secs(1);
/// More answers than this are not remembered for mail that was lost.
const ANSWERS: usize = 10_000;

/// How old the lease of a held mail gets before it is extended: two thirds of it are left for that to succeed.
pub(super) fn extension_interval() -> Duration {
    settings::lease() / 3
}

/// What the wall clock was, compared with the one that never jumps.
pub(super) struct Clock {
    origin: Instant,
    /// By how many microseconds the wall clock was ahead.
    ahead: i64,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            origin: Instant::now(),
            ahead: server::now(),
        }
    }

    /// By how many microseconds the wall clock has jumped.
    fn jump(&self) -> Option<i64> {
        let before = micros(self.origin.elapsed());
        let wall = server::now();
        let after = micros(self.origin.elapsed());
        jump(
            wall.saturating_sub(after).saturating_sub(self.ahead),
            wall.saturating_sub(before).saturating_sub(self.ahead),
        )
    }

    fn note(&mut self, jump: i64) {
        self.ahead = self.ahead.saturating_add(jump);
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// How far the clock has jumped, if it has: at least and at most that far, for the process may have been halted
/// between its looks at the two clocks.
fn jump(least: i64, most: i64) -> Option<i64> {
    let limit = micros(JUMP);
    if least > limit {
        Some(least)
    } else if most < -limit {
        Some(most)
    } else {
        None
    }
}

impl Courier {
    /// Extends all leases if the wall clock has jumped; to be called before anything looks for lapsed ones.
    pub fn mind_clock(&mut self, session: &Session, now: Time) -> Result<(), Failure> {
        let Some(jump) = self.clock.jump() else {
            return Ok(());
        };
        // Should this fail, it is not in the way of settling.
        self.clock.note(jump);
        if !self.held.is_empty() {
            log!(
                "mailroom worker: the clock has jumped by {} s; the leases of {} mails under way are extended",
                jump / 1_000_000,
                self.held.len()
            );
            self.extend_held_for(session, now, Duration::ZERO)?;
        }
        Ok(())
    }

    /// Extends the leases of what is held for long.
    pub(super) fn extend(&mut self, session: &Session, now: Time) -> Result<(), Failure> {
        let interval = extension_interval();
        if now.saturating_sub(self.extended_at) < interval {
            return Ok(());
        }
        self.extended_at = now;
        self.extend_held_for(session, now, interval)
    }

    fn extend_held_for(
        &mut self,
        session: &Session,
        now: Time,
        least: Duration,
    ) -> Result<(), Failure> {
        let old: Vec<Claim> = self
            .held
            .iter()
            .filter(|(_, held)| now.saturating_sub(held.since) >= least)
            .map(|(&id, held)| Claim {
                id,
                attempts: held.attempts,
            })
            .collect();
        if old.is_empty() {
            return Ok(());
        }
        let lost = session.extend(&self.claimant, &old)?;
        if !lost.is_empty() {
            self.give_away(&lost);
        }
        Ok(())
    }

    /// What has not been handed over yet and is not ours any more is not sent.
    fn give_away(&mut self, lost: &[i64]) {
        // Some of these go into the bag.
        self.part_if(|parcel| {
            parcel
                .letters
                .iter()
                .any(|letter| lost.contains(&letter.message.id))
        });
        for letter in self.bag.take_all() {
            if lost.contains(&letter.message.id) {
                self.drop_held(letter.message.id);
            } else {
                self.bag.put(letter);
            }
        }
        self.look();
    }

    /// Takes a claimed mail in, and returns it if it is to be sent.
    pub(super) fn take_in(&mut self, now: Time, letter: Letter) -> Option<Letter> {
        let Claim { id, attempts } = Claim::of(&letter);
        if let Some(held) = self.held.get_mut(&id) {
            // Its lease was lost meanwhile. What becomes of it is told for the new one.
            held.attempts = attempts;
            held.since = now;
            if self.bag.take(|waiting| waiting.message.id == id).is_some() {
                self.bag.put(letter);
            }
            return None;
        }
        self.held_bytes += letter.size;
        self.held.insert(
            id,
            Held {
                attempts,
                ambiguous: letter.ambiguous_attempts,
                size: letter.size,
                since: now,
                away: false,
            },
        );
        if let Some(answer) = self.answers.remove(&id) {
            self.settlements.extend(answer);
            self.settle_at.get_or_insert(now);
            return None;
        }
        Some(letter)
    }

    /// Has what is to be settled tell of the claims that are in force.
    pub(super) fn renumber(&mut self) {
        let held = &self.held;
        self.settlements
            .renumber(|id| held.get(&id).map(|held| held.attempts));
    }

    /// These were told; of those that were lost it is remembered how they ended, should they be claimed again.
    pub(super) fn told(&mut self, settled: Settlements, lost: &[i64]) {
        for &id in settled.ids() {
            self.drop_held(id);
        }
        if lost.is_empty() {
            return;
        }
        for one in settled.singly() {
            if one.is_final() && one.ids().any(|id| lost.contains(id)) {
                self.remember(one);
            }
        }
    }

    /// How a mail ended whose claim is lost before that could be told.
    pub(super) fn remember(&mut self, one: Settlements) {
        if self.answers.len() >= ANSWERS {
            self.answers.clear();
        }
        let id = one.ids().next().copied();
        if let Some(id) = id {
            self.answers.insert(id, one);
        }
    }

    /// This one is not ours any more.
    pub(super) fn drop_held(&mut self, id: i64) {
        if let Some(held) = self.held.remove(&id) {
            self.held_bytes = self.held_bytes.saturating_sub(held.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::jump;

    #[test]
    fn a_jump_is_more_than_an_adjustment_and_no_halt() {
        assert_eq!(jump(0, 3), None);
        assert_eq!(jump(-900_000, -890_000), None);
        assert_eq!(jump(7_200_000_000, 7_200_000_005), Some(7_200_000_000));
        assert_eq!(jump(-7_200_000_005, -7_200_000_000), Some(-7_200_000_000));
        // Halted for ten seconds between two looks: nothing can be said.
        assert_eq!(jump(-10_000_000, 0), None);
    }
}
