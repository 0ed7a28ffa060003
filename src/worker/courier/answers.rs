//! What became of what was handed over: each mail is settled, given back, kept in doubt, or sent again.

use std::time::{Duration, SystemTime};

use pgrx::prelude::*;

use super::{Courier, Doubt, Time};
use crate::delivery::channel::{Disposal, Permit, Sign};
use crate::delivery::engine::{Letter, Outcome, Parcel, Report};
use crate::delivery::providers::Verdict;
use crate::delivery::settlements::{Arrival, Claim, Fault};
use crate::delivery::sharing::Fate;
use crate::settings::sending;

/// What is sent again later than this is not waited for, to know whose fault a refusal is.
const SOON: Duration = Duration::from_secs(10);

/// The request that a mail was in, as evidence.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    /// When it was handed over.
    turn: u64,
    /// The first mail in it stands for all.
    witness: i64,
    /// It is the only one.
    alone: bool,
}

impl Sent {
    pub(super) fn of(parcel: &Parcel) -> Self {
        Self {
            turn: parcel.turn,
            witness: parcel.letters.first().map_or(0, |first| first.message.id),
            alone: parcel.letters.len() == 1,
        }
    }
}

impl Courier {
    /// Takes what the engine reports.
    pub(super) fn receive(&mut self, now: Time) {
        let Some(engine) = &mut self.engine else {
            return;
        };
        let reports = engine.reports();
        let letters = reports.iter().map(|r| r.parcel.letters.len()).sum();
        self.tempo.note(now, letters);
        for report in reports {
            self.note_back(&report.parcel);
            for letter in &report.parcel.letters {
                if let Some(held) = self.held.get_mut(&letter.message.id) {
                    held.away = false;
                }
            }
            self.take(now, report);
        }
        if !self.settlements.is_empty() {
            self.settle_at.get_or_insert(now + self.company());
        }
    }

    /// These are not with the engine any more; it may have sent the mails of a parcel by several requests.
    fn note_back(&mut self, parcel: &Parcel) {
        let letters = parcel.letters.len();
        if let Some(away) = self.away_parcels.get_mut(&parcel.turn) {
            *away = away.saturating_sub(letters);
            if *away == 0 {
                self.away_parcels.remove(&parcel.turn);
            }
        }
        self.away = self.away.saturating_sub(letters);
    }

    fn take(&mut self, now: Time, report: Report) {
        if report.outcome == Outcome::Unsent {
            return self.take_unsent(now, report.parcel);
        }
        let Some(report) = self.keep_together(now, report) else {
            return;
        };
        let Report {
            parcel,
            outcome,
            status,
        } = report;
        match outcome {
            Outcome::Unsent => {}
            Outcome::Refused(reason) => {
                let sent = Sent::of(&parcel);
                for letter in &parcel.letters {
                    let claim = Claim::of(letter);
                    let sign = Sign::Denied(reason.clone());
                    self.judge(now, claim.id, sent, sign);
                    self.settlements.released(claim);
                }
            }
            Outcome::Unreached(reason) => {
                let sent = Sent::of(&parcel);
                for letter in &parcel.letters {
                    let claim = Claim::of(letter);
                    let sign = Sign::Unreached(reason.clone());
                    match self.judge(now, claim.id, sent, sign) {
                        Disposal::Settle | Disposal::Charge | Disposal::Wait | Disposal::End => {
                            self.settlements.failed(claim, fault(reason.clone()));
                        }
                        Disposal::Release => self.settlements.released(claim),
                    }
                }
            }
            Outcome::Unsendable(reason) => {
                self.channel.note_unsent(now, parcel.turn);
                for letter in &parcel.letters {
                    self.end(Claim::of(letter), reason.clone(), None);
                }
            }
            Outcome::Answered(verdicts) => {
                let sent = Sent::of(&parcel);
                if self.is_refused_as_a_whole(&parcel, &verdicts, status) {
                    self.refused_as_a_whole(now, parcel, &verdicts);
                    return;
                }
                self.note_sharing(now, &parcel, &verdicts);
                for (letter, verdict) in parcel.letters.into_iter().zip(verdicts) {
                    match verdict {
                        Verdict::Apart { .. } if !sent.alone => {
                            self.set_apart(now, letter, sent.turn);
                        }
                        verdict => self.treat(now, Claim::of(&letter), sent, verdict, status),
                    }
                }
            }
        }
    }

    fn take_unsent(&mut self, now: Time, parcel: Parcel) {
        self.channel.note_unsent(now, parcel.turn);
        self.unsent(parcel.letters.len());
        if parcel.repeat.is_some() {
            return self.take_repeat_back(now, parcel);
        }
        let wall = SystemTime::now();
        for letter in parcel.letters {
            if letter.is_late(wall) {
                // The next claim ends it, with the reason.
                self.settlements.released(Claim::of(&letter));
            } else {
                self.bag.put(letter);
            }
        }
    }

    pub(super) fn judge(&mut self, now: Time, id: i64, sent: Sent, sign: Sign) -> Disposal {
        self.channel
            .judge_shared(now, id, sent.witness, sent.turn, sign)
    }

    /// Whether the provider wants nothing of what is in a request with several mails, and it may be because they
    /// are several.
    fn is_refused_as_a_whole(
        &self,
        parcel: &Parcel,
        verdicts: &[Verdict],
        status: Option<u16>,
    ) -> bool {
        parcel.letters.len() > 1
            && !self.channel.is_paused()
            && status.is_some_and(|status| !(200..300).contains(&status))
            && verdicts
                .iter()
                .all(|verdict| matches!(verdict, Verdict::Broken { .. }))
    }

    /// Each by itself shows whom the refusal concerns: everybody, one of them, or the call with several.
    fn refused_as_a_whole(&mut self, now: Time, parcel: Parcel, verdicts: &[Verdict]) {
        if let Some(Verdict::Broken { reason }) = verdicts.first() {
            let ids = parcel.letters.iter().map(|letter| letter.message.id);
            self.sharing.refused(now, ids, reason);
        }
        for letter in parcel.letters {
            self.set_apart(now, letter, parcel.turn);
        }
    }

    /// Takes note of what an answer tells of requests with several mails.
    fn note_sharing(&mut self, now: Time, parcel: &Parcel, verdicts: &[Verdict]) {
        let fate = |verdict: &Verdict| match verdict {
            Verdict::Sent { .. } => Fate::Taken,
            Verdict::Refused { .. }
            | Verdict::RecipientRefused { .. }
            | Verdict::Apart { .. }
            | Verdict::Broken { .. } => Fate::Refused,
            Verdict::Retry { .. } | Verdict::Throttled { .. } | Verdict::Unknown { .. } => {
                Fate::Open
            }
        };
        if parcel.letters.len() > 1 {
            if verdicts.iter().any(|verdict| fate(verdict) == Fate::Taken) {
                self.sharing.taken();
            }
            return;
        }
        for (letter, verdict) in parcel.letters.iter().zip(verdicts) {
            let news = self.sharing.answered(now, letter.message.id, fate(verdict));
            if let Some(reason) = news {
                warning!(
                    "mailroom worker: {} takes mails one by one only: a request with several was refused ({reason}); \
                     such are not sent for an hour, or until the next reload",
                    self.sender.as_str()
                );
            }
        }
    }

    /// Its batch was refused, perhaps because of another one: it goes alone.
    fn set_apart(&mut self, now: Time, letter: Letter, turn: u64) {
        let parcel = Parcel {
            letters: vec![letter],
            turn,
            repeat: None,
        };
        self.together.push((now, parcel));
    }

    fn treat(
        &mut self,
        now: Time,
        claim: Claim,
        sent: Sent,
        verdict: Verdict,
        status: Option<u16>,
    ) {
        let Some(sign) = sign(&verdict) else {
            // Another message is to tell of the channel.
            self.channel.note_unsent(now, sent.turn);
            return self.end(claim, verdict.reason().to_owned(), status);
        };
        let disposal = self.judge(now, claim.id, sent, sign);
        if disposal == Disposal::Release {
            self.settlements.released(claim);
            return;
        }
        if disposal == Disposal::End {
            return self.end(claim, verdict.reason().to_owned(), status);
        }
        match verdict {
            Verdict::Sent { provider_id } => self.settlements.sent(claim, provider_id),
            Verdict::Unknown { reason } => {
                let arrival = if sent.alone {
                    Arrival::Alone
                } else {
                    Arrival::WithOthers
                };
                let is_known_again = sent.alone && self.is_known_again(sent.turn);
                self.unknown(claim, arrival, &reason, status, is_known_again);
            }
            Verdict::Refused { reason }
            | Verdict::RecipientRefused { reason }
            | Verdict::Apart { reason } => {
                let fault = Fault {
                    status,
                    ..fault(reason)
                };
                self.settlements.failed(claim, fault);
            }
            Verdict::Retry { reason, after } | Verdict::Throttled { reason, after } => {
                let fault = Fault {
                    after,
                    status,
                    ..fault(reason)
                };
                self.settlements.failed(claim, fault);
            }
            Verdict::Broken { reason } => {
                let fault = Fault {
                    status,
                    ..fault(reason)
                };
                if disposal == Disposal::Wait {
                    self.doubts.push(Doubt { claim, fault });
                } else {
                    self.settlements.failed(claim, fault);
                }
            }
        }
    }

    /// It may have been sent, or not. `is_known_again`: to send it again is no risk.
    pub(super) fn unknown(
        &mut self,
        claim: Claim,
        arrival: Arrival,
        reason: &str,
        status: Option<u16>,
        is_known_again: bool,
    ) {
        self.unknown += 1;
        let before = self.held.get(&claim.id).map_or(0, |held| held.ambiguous);
        let is_last = !is_known_again && before >= sending::max_ambiguous();
        // A provider does not recognise a mail by itself that was in a request with several.
        let company = match arrival {
            Arrival::WithOthers => "with others: ",
            Arrival::Alone | Arrival::No => "",
        };
        let fault = Fault {
            permanent: is_last,
            status,
            arrival,
            ..fault(format!("may have been sent: {company}{reason}"))
        };
        if is_last {
            self.ended.note(&fault.reason);
        }
        self.settlements.failed(claim, fault);
    }

    /// It ends as an error.
    fn end(&mut self, claim: Claim, reason: String, status: Option<u16>) {
        self.ended.note(&reason);
        let fault = Fault {
            permanent: true,
            status,
            ..fault(reason)
        };
        self.settlements.failed(claim, fault);
    }

    /// Settles those in doubt once it is known whose fault it is.
    pub(super) fn decide(&mut self, now: Time) {
        if self.doubts.is_empty() && self.together.is_empty() {
            return;
        }
        let may_claim = self.look
            && match self.channel.permit(now) {
                Permit::Requests(window) => self.room(window).is_some(),
                Permit::Probe | Permit::Nothing(_) | Permit::Probing => true,
            };
        let alone = self.away == 0
            && self.bag.is_empty()
            && self.together.iter().all(|&(at, _)| at > now + SOON)
            && self.settlements.is_empty()
            && !may_claim;
        let Some(disposal) = self.channel.decide(now, alone) else {
            return;
        };
        for Doubt { claim, fault } in std::mem::take(&mut self.doubts) {
            if disposal == Disposal::Release {
                self.settlements.released(claim);
            } else {
                self.settlements.failed(claim, fault);
            }
        }
    }

    /// Gives those in doubt back: they were sent as nothing is any more.
    pub(super) fn forgive(&mut self) {
        for Doubt { claim, .. } in std::mem::take(&mut self.doubts) {
            self.settlements.released(claim);
        }
    }
}

/// What it tells of the channel, if anything.
pub(super) fn sign(verdict: &Verdict) -> Option<Sign> {
    Some(match verdict {
        Verdict::Sent { .. } => Sign::Works,
        Verdict::RecipientRefused { .. } => return None,
        Verdict::Refused { reason } | Verdict::Apart { reason } => Sign::Rejects(reason.clone()),
        Verdict::Retry { reason, .. } | Verdict::Unknown { reason } => Sign::Fails(reason.clone()),
        Verdict::Throttled { reason, after } => Sign::Throttles(reason.clone(), *after),
        Verdict::Broken { reason } => Sign::Refuses(reason.clone()),
    })
}

/// A failure like any other.
fn fault(reason: String) -> Fault {
    Fault {
        reason,
        after: None,
        permanent: false,
        status: None,
        arrival: Arrival::No,
    }
}
