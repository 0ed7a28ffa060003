//! What a deliverer makes of answers: each mail is settled, or goes back to the queue.

use std::sync::Arc;
use std::time::Duration;

use super::breaker::{Disposal, Sign};
use super::events::Outcome;
use super::machine::Deliverer;
use super::mail::Mail;
use super::settlements::{Arrival, Fault};
use super::{Now, batch};
use crate::transport::delivered::Refused;
use crate::transport::providers::Verdict;

/// A request without an answer.
pub(super) struct Flight {
    pub(super) mails: Arc<Vec<Mail>>,
    /// These very mails were sent together before.
    pub(super) repeat: bool,
    /// Recipients of the only mail that do not get it.
    pub(super) refused: Vec<Refused>,
}

/// The request that a mail was in, as evidence.
struct Sent {
    request: u64,
    /// The first mail in it stands for all.
    witness: i64,
    /// It is the only one.
    alone: bool,
    /// These very mails were sent together before.
    repeat: bool,
    /// What the provider knows it by, if it is to be sent again as it was.
    batch: Option<String>,
    status: Option<u16>,
    /// Recipients of the only mail that do not get it.
    refused: Vec<Refused>,
}

impl Deliverer {
    pub(super) fn note_unsendable(&mut self, request: u64, id: i64, reason: String) {
        let Some(flight) = self.flights.get_mut(&request) else {
            return;
        };
        let mails = Arc::make_mut(&mut flight.mails);
        let Some(place) = mails.iter().position(|mail| mail.message.id == id) else {
            return;
        };
        let mail = mails.remove(place);
        self.in_flight -= 1;
        if self.is_held(&mail) {
            self.end(mail, reason, None);
        } else {
            self.queue.finish(&mail);
        }
    }

    pub(super) fn note_answer(
        &mut self,
        now: Now,
        request: u64,
        outcome: Outcome,
        status: Option<u16>,
    ) {
        let Some(flight) = self.flights.remove(&request) else {
            return;
        };
        let sent_mails = Arc::unwrap_or_clone(flight.mails);
        let count = sent_mails.len();
        self.in_flight -= count;
        self.tempo.note(now.at, count);
        let (mails, outcome) = self.without_forgotten(sent_mails, outcome);
        let is_whole = mails.len() == count;
        let Some(first) = mails.first() else {
            // None could be put into it: another one is to tell of the transport.
            return self.breaker.note_unsent(now.at, request);
        };
        let mut sent = Sent {
            request,
            witness: first.message.id,
            alone: count == 1,
            repeat: flight.repeat && is_whole,
            batch: None,
            status,
            refused: flight.refused,
        };
        let is_forgotten = |mail: &Mail| self.is_forgotten(mail, now.wall);
        if !sent.alone
            && is_whole
            && self.is_known_again(request)
            && is_open(&outcome, flight.repeat)
            && !mails.iter().any(is_forgotten)
        {
            let address = self.limits.as_ref().map(|limits| limits.address.as_str());
            sent.batch = address.map(|address| batch::id(address, mails.iter()));
        }
        match outcome {
            Outcome::GivenUp => {
                for mail in mails {
                    let reason = "given up before there was an answer";
                    self.ambiguous(now, mail, &sent, reason);
                }
            }
            Outcome::Denied(reason) => {
                self.judge_all(now, &sent, mails, |_| Sign::Denied(reason.clone()));
            }
            Outcome::Unreached(reason) => {
                self.judge_all(now, &sent, mails, |_| Sign::Unreached(reason.clone()));
            }
            Outcome::Answered(verdicts) => self.note_verdicts(now, sent, mails, verdicts),
        }
        // If it was a probe that told nothing, another one is to tell of the transport.
        self.breaker.note_unsent(now.at, request);
        if !self.settlements.is_empty() {
            self.settle_at.get_or_insert(now.at + self.company());
        }
    }

    /// Without those mails, and their verdicts, in whose place another one is held now: see [`Self::is_held`].
    fn without_forgotten(&mut self, mails: Vec<Mail>, outcome: Outcome) -> (Vec<Mail>, Outcome) {
        if mails.iter().all(|mail| self.is_held(mail)) {
            return (mails, outcome);
        }
        let is_kept: Vec<bool> = mails.iter().map(|mail| self.is_held(mail)).collect();
        for (mail, _) in mails.iter().zip(&is_kept).filter(|(_, kept)| !**kept) {
            self.queue.finish(mail);
        }
        let outcome = match outcome {
            Outcome::Answered(verdicts) => Outcome::Answered(only(verdicts, &is_kept)),
            other => other,
        };
        (only(mails, &is_kept), outcome)
    }

    /// No mail was sent.
    fn judge_all(&mut self, now: Now, sent: &Sent, mails: Vec<Mail>, sign: impl Fn(&Mail) -> Sign) {
        let mut spared = Vec::new();
        for mail in mails {
            let sign = sign(&mail);
            let reason = match &sign {
                Sign::Unreached(reason) | Sign::Denied(reason) => reason.clone(),
                _ => String::new(),
            };
            match self.judge(now, &mail, sent, sign) {
                Disposal::Release => spared.push(mail),
                _ => self.fail(mail, sent, fault(reason)),
            }
        }
        self.spare(spared, sent.repeat);
    }

    /// Takes back what costs no attempt; what goes together stays together.
    fn spare(&mut self, mails: Vec<Mail>, repeat: bool) {
        if repeat && mails.len() > 1 {
            self.again.push(mails);
        } else {
            for mail in mails {
                self.queue.put_back(mail);
            }
        }
    }

    fn note_verdicts(&mut self, now: Now, sent: Sent, mails: Vec<Mail>, verdicts: Vec<Verdict>) {
        let is_refused_as_a_whole = !sent.alone
            && !sent.repeat
            && !self.breaker.is_paused()
            && sent
                .status
                .is_some_and(|status| !(200..300).contains(&status))
            && verdicts
                .iter()
                .all(|verdict| matches!(verdict, Verdict::Broken { .. }));
        if is_refused_as_a_whole {
            // Each by itself shows whom the refusal concerns: everybody, one of them, or the call with several.
            for mail in mails {
                self.set_apart(mail);
            }
            return;
        }
        let mut spared = Vec::new();
        for (mail, verdict) in mails.into_iter().zip(verdicts) {
            match verdict {
                Verdict::Apart { .. } if !sent.alone => self.set_apart(mail),
                verdict => spared.extend(self.treat(now, mail, &sent, verdict)),
            }
        }
        self.spare(spared, sent.repeat);
    }

    /// One with others was refused, perhaps because of another of them: it goes alone.
    fn set_apart(&mut self, mut mail: Mail) {
        mail.alone = true;
        self.queue.put_back(mail);
    }

    /// Returns the mail if it costs it no attempt.
    fn treat(&mut self, now: Now, mail: Mail, sent: &Sent, verdict: Verdict) -> Option<Mail> {
        let Some(sign) = sign(&verdict) else {
            let reason = verdict.reason().to_owned();
            match verdict {
                Verdict::RecipientDeferred { .. } => self.fail(mail, sent, fault(reason)),
                _ => self.end(mail, reason, sent.status),
            }
            return None;
        };
        match self.judge(now, &mail, sent, sign) {
            Disposal::Release => return Some(mail),
            Disposal::End => self.end(mail, verdict.reason().to_owned(), sent.status),
            Disposal::Settle | Disposal::Charge => match verdict {
                Verdict::Sent { provider_id } => {
                    self.settlements
                        .sent(mail.claim(), provider_id, &sent.refused);
                    self.queue.finish(&mail);
                }
                Verdict::Unknown { reason } => self.ambiguous(now, mail, sent, &reason),
                Verdict::Retry { reason, after } | Verdict::Throttled { reason, after } => {
                    let fault = Fault {
                        after,
                        ..fault(reason)
                    };
                    self.fail(mail, sent, fault);
                }
                Verdict::Refused { reason }
                | Verdict::RecipientRefused { reason }
                | Verdict::RecipientDeferred { reason }
                | Verdict::Apart { reason }
                | Verdict::Broken { reason } => self.fail(mail, sent, fault(reason)),
            },
        }
        None
    }

    fn judge(&mut self, now: Now, mail: &Mail, sent: &Sent, sign: Sign) -> Disposal {
        self.breaker
            .judge_shared(now.at, mail.message.id, sent.witness, sent.request, sign)
    }

    /// Whether the provider knows this request again.
    fn is_known_again(&self, request: u64) -> bool {
        request > self.moved_at && self.is_idempotent()
    }

    /// It may have been sent, or not.
    fn ambiguous(&mut self, now: Now, mail: Mail, sent: &Sent, reason: &str) {
        self.ambiguous += 1;
        let is_known_again = sent.batch.is_some()
            || sent.alone
                && self.is_known_again(sent.request)
                && !self.is_forgotten(&mail, now.wall);
        let is_last = !is_known_again && mail.ambiguous_attempts >= self.max_ambiguous();
        // A provider does not recognise a mail by itself that was in a request with several.
        let (arrival, company) = if sent.alone {
            (Arrival::Alone, "")
        } else {
            (Arrival::WithOthers, "with others: ")
        };
        let fault = Fault {
            permanent: is_last,
            arrival,
            ..fault(format!("may have been sent: {company}{reason}"))
        };
        if is_last {
            self.ended.note(&fault.reason);
        }
        self.fail(mail, sent, fault);
    }

    /// It ends, for it may have been sent, and cannot be sent again safely.
    pub(super) fn end_ambiguous(&mut self, mail: Mail, reason: &str) {
        self.ended.note(reason);
        let fault = Fault {
            permanent: true,
            arrival: Arrival::WithOthers,
            ..fault(reason.to_owned())
        };
        self.settlements.failed(mail.claim(), fault);
    }

    /// It ends as an error.
    fn end(&mut self, mail: Mail, reason: String, status: Option<u16>) {
        self.ended.note(&reason);
        let fault = Fault {
            permanent: true,
            status,
            ..fault(reason)
        };
        self.settlements.failed(mail.claim(), fault);
        self.queue.finish(&mail);
    }

    fn fail(&mut self, mail: Mail, sent: &Sent, fault: Fault) {
        let fault = Fault {
            status: sent.status,
            batch: sent.batch.clone().filter(|_| !fault.permanent),
            ..fault
        };
        self.settlements.failed(mail.claim(), fault);
        self.queue.finish(&mail);
    }
}

/// Those that are kept.
fn only<T>(all: Vec<T>, is_kept: &[bool]) -> Vec<T> {
    let kept = all.into_iter().zip(is_kept).filter(|(_, kept)| **kept);
    kept.map(|(one, _)| one).collect()
}

/// Whether a request with several mails is to be sent again as it was: the provider may have taken it, and has said
/// nothing definite of any of them.
fn is_open(outcome: &Outcome, repeat: bool) -> bool {
    match outcome {
        Outcome::GivenUp => true,
        Outcome::Unreached(_) | Outcome::Denied(_) => repeat,
        Outcome::Answered(verdicts) => verdicts.iter().all(|verdict| match verdict {
            Verdict::Unknown { .. } | Verdict::Retry { .. } => true,
            Verdict::Throttled { .. } | Verdict::Broken { .. } => repeat,
            Verdict::Sent { .. }
            | Verdict::Refused { .. }
            | Verdict::RecipientRefused { .. }
            | Verdict::RecipientDeferred { .. }
            | Verdict::Apart { .. } => false,
        }),
    }
}

/// What it tells of the transport, if anything.
fn sign(verdict: &Verdict) -> Option<Sign> {
    Some(match verdict {
        Verdict::Sent { .. } => Sign::Works,
        Verdict::RecipientRefused { .. } | Verdict::RecipientDeferred { .. } => return None,
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
        after: None::<Duration>,
        permanent: false,
        status: None,
        arrival: Arrival::No,
        batch: None,
    }
}
