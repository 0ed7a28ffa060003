//! Requests with several mails that may have arrived: sent again as they were.
//!
//! A provider that knows a request again knows one with several mails by these very mails. So they stay together until
//! there is a clear answer to them, whatever comes between: a refusal, no connection, a recall, a pause of the channel.
//! Not for longer than [`LONGEST`], nor once a mail has expired, nor for another provider: from then on each is by
//! itself again, as one that may have been sent.

use std::time::{Duration, SystemTime};

use super::answers::{Sent, sign};
use super::{Courier, Time};
use crate::delivery::channel::{Disposal, Sign};
use crate::delivery::engine::{Letter, Outcome, Parcel, Repeat, Report};
use crate::delivery::providers::Verdict;
use crate::delivery::settlements::{Arrival, Claim};

/// How often a request may get no clear answer again before its mails go each their own way.
const TRIES: u32 = 5;
/// The pause before the first of these.
const FIRST_AGAIN: Duration = Duration::from_secs(1);
/// The longest from the first answer on: meanwhile nobody else can have the mails.
const LONGEST: Duration = Duration::from_secs(300);

impl Courier {
    /// Sees to the mails of a request that is to be sent again, or that never will be and may have arrived; returns
    /// the report if it is of neither.
    pub(super) fn keep_together(&mut self, now: Time, report: Report) -> Option<Report> {
        if self.is_to_be_repeated(now, &report.parcel, &report.outcome) {
            self.repeat(now, report);
            return None;
        }
        let doubt = report.parcel.repeat.as_ref().and_then(|r| r.doubt.clone());
        if let Some(doubt) = doubt
            && !is_clear(&report.outcome)
        {
            self.judge_all(now, &report);
            for letter in &report.parcel.letters {
                let claim = Claim::of(letter);
                self.unknown(claim, Arrival::WithOthers, &doubt, report.status, false);
            }
            return None;
        }
        Some(report)
    }

    /// How many mails wait to be sent again.
    pub(super) fn waiting_together(&self) -> usize {
        self.together.iter().map(|(_, p)| p.letters.len()).sum()
    }

    fn is_to_be_repeated(&self, now: Time, parcel: &Parcel, outcome: &Outcome) -> bool {
        let end = parcel.repeat.as_ref().map_or(now + LONGEST, |r| r.until);
        let may_have_arrived = parcel.repeat.is_some() || is_unclear(outcome);
        parcel.letters.len() > 1
            && may_have_arrived
            && !is_clear(outcome)
            && self.is_known_again(parcel.turn)
            && (!is_unclear(outcome) || parcel.repeat.as_ref().is_none_or(|r| r.tries < TRIES))
            && now.saturating_add(floor(outcome)) < end
            && !has_late(&parcel.letters)
    }

    /// Whether the provider knows a request again that was handed over in this turn.
    pub(super) fn is_known_again(&self, turn: u64) -> bool {
        turn > self.moved_at && self.provider.as_ref().is_some_and(|p| p.is_idempotent())
    }

    fn repeat(&mut self, now: Time, report: Report) {
        let spared = self.judge_all(now, &report);
        let Report {
            mut parcel,
            outcome,
            ..
        } = report;
        let mut repeat = parcel.repeat.take().unwrap_or_else(|| Repeat {
            tries: 0,
            until: now.saturating_add(LONGEST),
            doubt: None,
        });
        if let Outcome::Answered(verdicts) = &outcome {
            for verdict in verdicts {
                if let Verdict::Unknown { reason } = verdict {
                    self.unknown += 1;
                    repeat.doubt = Some(reason.clone());
                }
            }
        }
        let pause = if spared {
            Duration::ZERO
        } else {
            FIRST_AGAIN.saturating_mul(1 << repeat.tries.min(8))
        };
        repeat.tries += u32::from(!spared);
        parcel.repeat = Some(repeat);
        let at = now.saturating_add(pause.max(floor(&outcome)));
        self.together.push((at, parcel));
    }

    /// Has the channel judge what each mail tells; whether all of them are spared the attempt.
    fn judge_all(&mut self, now: Time, report: &Report) -> bool {
        let sent = Sent::of(&report.parcel);
        let letters = &report.parcel.letters;
        let signs: Vec<Option<Sign>> = match &report.outcome {
            Outcome::Answered(verdicts) => verdicts.iter().map(sign).collect(),
            Outcome::Unreached(reason) => {
                vec![Some(Sign::Unreached(reason.clone())); letters.len()]
            }
            Outcome::Refused(reason) => vec![Some(Sign::Denied(reason.clone())); letters.len()],
            Outcome::Unsent | Outcome::Unsendable(_) => Vec::new(),
        };
        let mut spared = true;
        for (letter, sign) in letters.iter().zip(signs) {
            let Some(sign) = sign else {
                continue;
            };
            spared &= self.judge(now, letter.message.id, sent, sign) == Disposal::Release;
        }
        spared
    }

    /// One that was sent before came back unsent.
    pub(super) fn take_repeat_back(&mut self, now: Time, parcel: Parcel) {
        if self.is_known_again(parcel.turn) && !has_late(&parcel.letters) {
            self.together.push((now, parcel));
        } else {
            self.part(parcel);
        }
    }

    /// Parts those that have been together for too long.
    pub(super) fn part_late(&mut self, now: Time) {
        self.part_if(|parcel| parcel.repeat.as_ref().is_some_and(|r| r.until <= now));
    }

    /// Parts those of which this is true.
    pub(super) fn part_if(&mut self, is_over: impl Fn(&Parcel) -> bool) {
        let (over, kept) = std::mem::take(&mut self.together)
            .into_iter()
            .partition(|(_, parcel)| is_over(parcel));
        self.together = kept;
        for (_, parcel) in over {
            self.part(parcel);
        }
    }

    /// From now on each mail is by itself.
    fn part(&mut self, parcel: Parcel) {
        let doubt = parcel.repeat.and_then(|repeat| repeat.doubt);
        for letter in parcel.letters {
            match &doubt {
                Some(doubt) => {
                    let claim = Claim::of(&letter);
                    self.unknown(claim, Arrival::WithOthers, doubt, None, false);
                }
                None => self.bag.put(letter),
            }
        }
    }

    /// Sends those that are due.
    pub(super) fn hand_over_again(&mut self, now: Time) {
        while let Some(parcel) = self.next_again(now) {
            self.turn += 1;
            self.channel.note_turn(self.turn);
            self.send(parcel.letters, parcel.repeat);
        }
    }

    /// The next one that is due and may go by the rate.
    pub(super) fn next_again(&mut self, now: Time) -> Option<Parcel> {
        while let Some(place) = self.together.iter().position(|&(at, _)| at <= now) {
            let (_, parcel) = self.together.swap_remove(place);
            match self.admit_whole(now, &parcel) {
                Ok(()) => return Some(parcel),
                Err(later) => self.together.push((later, parcel)),
            }
        }
        None
    }
}

/// Whether the provider has done something with the mails: there is nothing to send again as it was.
fn is_clear(outcome: &Outcome) -> bool {
    let is_clear = |verdict: &Verdict| {
        matches!(
            verdict,
            Verdict::Sent { .. }
                | Verdict::Refused { .. }
                | Verdict::RecipientRefused { .. }
                | Verdict::Apart { .. }
        )
    };
    matches!(outcome, Outcome::Answered(verdicts) if verdicts.iter().any(is_clear))
}

/// Whether it may or may not have.
fn is_unclear(outcome: &Outcome) -> bool {
    let is_unclear =
        |verdict: &Verdict| matches!(verdict, Verdict::Unknown { .. } | Verdict::Retry { .. });
    matches!(outcome, Outcome::Answered(verdicts) if verdicts.iter().all(is_unclear))
}

/// The pause that the provider wants. What it wants of all mail is the channel's matter.
fn floor(outcome: &Outcome) -> Duration {
    let Outcome::Answered(verdicts) = outcome else {
        return Duration::ZERO;
    };
    let floors = verdicts.iter().filter_map(|verdict| match verdict {
        Verdict::Retry { after, .. } => *after,
        _ => None,
    });
    floors.max().unwrap_or_default()
}

fn has_late(letters: &[Letter]) -> bool {
    let wall = SystemTime::now();
    letters.iter().any(|letter| letter.is_late(wall))
}
