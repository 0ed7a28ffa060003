//! The deliverer of one transport as a pure state machine: events in, actions out.
//!
//! A mail is *held* from its claim until its settle is committed: it waits in the queue, is in flight, or is to be settled.
//! What is held is bounded by number and by bytes. All decisions are taken where the answers arrive; the owner of the
//! database claims as much as it is told and settles what it is told, in one exchange at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::answers::Flight;
use super::breaker::{Breaker, News as BreakerNews, Permit};
use super::ended::Ended;
use super::events::{Action, Event, Limits, News, Outcome, Status};
use super::intake::Held;
use super::mail::Mail;
use super::queue::Queue;
use super::rate::Bucket;
use super::settlements::Settlements;
use super::tempo::{Tempo, Toll};
use super::{Now, Time};

/// A throttle of this length is sat out with mails at hand.
const SHORT: Duration = Duration::from_secs(5);
/// Urgent mail has a paused transport tried no more often.
const PULL_SPACING: Duration = Duration::from_secs(5);

/// The deliverer.
pub struct Deliverer {
    pub(super) limits: Option<Limits>,
    pub(super) breaker: Breaker,
    pub(super) bucket: Bucket,
    pub(super) queue: Queue,
    /// What goes out again as it was.
    pub(super) again: Vec<Vec<Mail>>,
    /// What is to, once all of its mails are here; and since when.
    pub(super) regrouping: HashMap<String, (Time, Vec<Mail>)>,
    pub(super) flights: HashMap<u64, Flight>,
    pub(super) in_flight: usize,
    next_request: u64,
    /// Requests up to this one went to another address.
    pub(super) moved_at: u64,
    pub(super) held: HashMap<i64, Held>,
    pub(super) held_bytes: usize,
    pub(super) settlements: Settlements,
    /// When they are to be told at the latest.
    pub(super) settle_at: Option<Time>,
    pub(super) exchanging: bool,
    pub(super) retry_at: Time,
    /// How mails ended of which that could not be told, each with its `message_id`.
    pub(super) remembered: HashMap<i64, (String, Settlements)>,
    /// There may be something to claim.
    pub(super) look: bool,
    /// And a person waits for it.
    pub(super) urgent: bool,
    /// When to look again, since a budget is spent.
    pub(super) look_at: Option<Time>,
    /// Whether there may be a budget.
    pub(super) budgeted: bool,
    /// Mail waits for the rate until then.
    pub(super) paced_until: Option<Time>,
    pub(super) tempo: Tempo,
    pub(super) toll: Toll,
    pub(super) ended: Ended,
    pub(super) ambiguous: u64,
    pulled_at: Option<Time>,
    allowed: bool,
    /// Nothing that is held is sent from then on: another deliverer may have claimed it.
    leases_until: Option<Time>,
    stopping: bool,
    resting: bool,
    /// Among so many times the usual number a probe is chosen.
    pub(super) candidates: usize,
    /// The settings are being read; they were, for the next probe.
    configuring: bool,
    configured: bool,
    wake_at: Option<Time>,
}

impl Default for Deliverer {
    fn default() -> Self {
        Self::new()
    }
}

impl Deliverer {
    /// One that waits for its settings.
    pub fn new() -> Self {
        Self {
            limits: None,
            breaker: Breaker::new(1),
            bucket: Bucket::default(),
            queue: Queue::default(),
            again: Vec::new(),
            regrouping: HashMap::new(),
            flights: HashMap::new(),
            in_flight: 0,
            next_request: 1,
            moved_at: 0,
            held: HashMap::new(),
            held_bytes: 0,
            settlements: Settlements::default(),
            settle_at: None,
            exchanging: false,
            retry_at: Time::ZERO,
            remembered: HashMap::new(),
            look: true,
            urgent: false,
            look_at: None,
            budgeted: true,
            paced_until: None,
            tempo: Tempo::default(),
            toll: Toll::default(),
            ended: Ended::default(),
            ambiguous: 0,
            pulled_at: None,
            allowed: true,
            leases_until: None,
            stopping: false,
            resting: false,
            candidates: 1,
            configuring: false,
            configured: false,
            wake_at: None,
        }
    }

    /// Takes note of an event, and says what is to be done.
    pub fn handle(&mut self, now: Now, event: Event) -> Vec<Action> {
        match event {
            Event::Configured(limits) => self.configure(now.at, *limits),
            Event::Reread(limits) => self.note_reread(now.at, *limits),
            Event::ConfigurationKept => self.configured |= std::mem::take(&mut self.configuring),
            Event::Allowed(allowed) => self.allowed = allowed,
            Event::LeasesUntil(at) => self.leases_until = Some(at),
            Event::Look { urgent } => self.note_look(now.at, urgent),
            Event::Hurry => {
                self.breaker.hurry(now.at);
                self.budgeted = true;
                self.look = true;
            }
            Event::Exchanged(exchanged) => self.note_exchanged(now.at, *exchanged),
            Event::ExchangeFailed {
                settlements,
                retry_at,
            } => {
                self.exchanging = false;
                self.retry_at = retry_at;
                let newer = std::mem::replace(&mut self.settlements, *settlements);
                self.settlements.extend(newer);
                // Nothing else may ever happen that would have it tried again.
                self.settle_at = Some(retry_at);
            }
            Event::InForce(ids) => self.drop_lost(&ids),
            Event::Unsendable {
                request,
                id,
                reason,
            } => self.note_unsendable(request, id, reason),
            Event::RecipientsRefused { request, refused } => {
                if let Some(flight) = self.flights.get_mut(&request) {
                    flight.refused = refused;
                }
            }
            Event::Answered {
                request,
                outcome,
                status,
            } => self.note_answer(now, request, outcome, status),
            Event::Failed(reason) => {
                // First, for what comes back of it tells nothing of the provider.
                self.breaker.pause(now.at, &reason);
                let requests: Vec<u64> = self.flights.keys().copied().collect();
                for request in requests {
                    self.note_answer(now, request, Outcome::GivenUp, None);
                }
            }
            Event::Tick => {}
            Event::Stop => self.stopping = true,
            Event::Start => {
                self.stopping = false;
                self.resting = false;
                self.look = true;
            }
        }
        self.advance(now)
    }

    /// When it wants to be told the time.
    pub fn wake_at(&self) -> Option<Time> {
        self.wake_at
    }

    /// How it is.
    pub fn status(&self) -> Status {
        let (state, reason, next_try) = self.breaker.tell();
        Status {
            state,
            reason: reason.to_owned(),
            next_try,
            paused_since: self.breaker.paused_since(),
            in_flight: self.in_flight,
            is_holding: !self.held.is_empty(),
            ambiguous: self.ambiguous,
        }
    }

    /// Whether mail goes to the same account as before by these.
    pub fn is_at(&self, limits: &Limits) -> bool {
        let known = self.limits.as_ref();
        known.is_some_and(|known| known.address == limits.address)
    }

    /// What another transport's probe has had read is no reason to try this one, unless it is somewhere else now.
    fn note_reread(&mut self, now: Time, limits: Limits) {
        if self.configuring || !self.is_at(&limits) {
            return self.configure(now, limits);
        }
        self.breaker.resize(limits.concurrency);
        self.limits = Some(limits);
    }

    fn configure(&mut self, now: Time, limits: Limits) {
        let is_moved = self.limits.is_some() && !self.is_at(&limits);
        let is_first = self.limits.is_none();
        let concurrency = limits.concurrency;
        self.limits = Some(limits);
        if is_moved {
            self.moved_at = self.next_request - 1;
            self.part_batches(|_| true);
        }
        if std::mem::take(&mut self.configuring) {
            // For a probe, which is to show whether what was wrong was mended.
            self.breaker.resize(concurrency);
            self.configured = true;
        } else {
            self.breaker.reset(now, concurrency);
            self.configured = self.breaker.is_paused();
        }
        if is_first {
            self.look = true;
        }
    }

    fn note_look(&mut self, now: Time, urgent: bool) {
        self.look = true;
        self.urgent |= urgent;
        let is_rested = self
            .pulled_at
            .is_none_or(|at| now.saturating_sub(at) >= PULL_SPACING);
        if urgent && is_rested {
            self.pulled_at = Some(now);
            self.breaker.pull(now);
        }
    }

    /// Does all that can be done now.
    fn advance(&mut self, now: Now) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.look_at.is_some_and(|at| at <= now.at) {
            self.look_at = None;
            self.look = true;
        }
        self.part_late_batches(now.at);
        if self.may_send() {
            if self.leases_until.is_none_or(|end| now.at < end) {
                self.send_what_may_go(now, &mut actions);
            }
        } else {
            self.release_waiting();
        }
        self.exchange(now.at, &mut actions);
        self.tell(now.at, &mut actions);
        // What an exchange under way claims is still to be released.
        let is_idle = self.flights.is_empty() && self.held.is_empty() && !self.exchanging;
        if self.stopping && is_idle && !self.resting {
            self.resting = true;
            actions.push(Action::Rest);
        }
        self.wake_at = self.next(now.at);
        actions
    }

    pub(super) fn may_send(&self) -> bool {
        self.allowed && !self.stopping
    }

    fn send_what_may_go(&mut self, now: Now, actions: &mut Vec<Action>) {
        match self.breaker.permit(now.at) {
            Permit::Requests(window) => {
                while self.flights.len() < window
                    && !self.is_paced(now.at)
                    && let Some((mails, repeat)) = self.next_mails(now)
                {
                    self.send(mails, repeat, false, actions);
                }
                if self.breaker.is_paused() {
                    self.release_waiting();
                }
            }
            Permit::Probe if self.is_paced(now.at) || !self.has_mail() => {}
            Permit::Probe if !self.configured => {
                if !self.configuring {
                    self.configuring = true;
                    actions.push(Action::Configure);
                }
            }
            Permit::Probe => {
                if let Some((mails, repeat)) = self.next_probe(now) {
                    self.configured = false;
                    self.send(mails, repeat, true, actions);
                }
            }
            Permit::Probing => {}
            Permit::Nothing(until) => {
                if self.breaker.is_paused() || until.saturating_sub(now.at) > SHORT {
                    self.release_waiting();
                }
            }
        }
    }

    /// Whether a paused transport is to be tried now, with settings that were just read.
    pub(super) fn is_to_be_probed(&self, now: Time) -> bool {
        self.configured && !self.is_paced(now)
    }

    /// Whether there is anything that a paused transport could be tried with.
    fn has_mail(&self) -> bool {
        self.look || !self.queue.is_empty() || !self.again.is_empty()
    }

    fn send(&mut self, mails: Vec<Mail>, repeat: bool, probe: bool, actions: &mut Vec<Action>) {
        let request = self.next_request;
        self.next_request += 1;
        if probe {
            self.breaker.note_probe(request);
        } else {
            self.breaker.note_request(request);
        }
        self.in_flight += mails.len();
        let mails = Arc::new(mails);
        let flight = Flight {
            mails: Arc::clone(&mails),
            repeat,
            refused: Vec::new(),
        };
        self.flights.insert(request, flight);
        actions.push(Action::Send { request, mails });
    }

    fn tell(&mut self, now: Time, actions: &mut Vec<Action>) {
        for news in self.breaker.take_news() {
            actions.push(Action::Tell(match news {
                BreakerNews::Paused(reason, next) => News::Paused(reason, next.saturating_sub(now)),
                BreakerNews::Throttled(reason, until) => {
                    News::Throttled(reason, until.saturating_sub(now))
                }
                BreakerNews::Resumed(after) => News::Resumed(after),
            }));
        }
        if let Some((count, reason)) = self.ended.take(now) {
            actions.push(Action::Tell(News::Ended(count, reason)));
        }
    }

    /// When there is something to do again, apart from what events will tell.
    fn next(&mut self, now: Time) -> Option<Time> {
        let mut next = self.ended.next();
        let mut sooner = |at: Time| next = Some(next.map_or(at, |known| known.min(at)));
        if !self.exchanging
            && let Some(at) = self.settle_at
        {
            sooner(at.max(self.retry_at));
        }
        for (since, _) in self.regrouping.values() {
            sooner(*since + super::batch::REGROUPING);
        }
        if self.may_send() {
            for at in [self.look_at, self.paced_until].into_iter().flatten() {
                if at > now {
                    sooner(at);
                }
            }
            if self.look && now < self.retry_at {
                sooner(self.retry_at);
            }
            if let Permit::Nothing(until) = self.breaker.permit(now)
                && self.has_mail()
            {
                sooner(until);
            }
        }
        next
    }
}

#[cfg(test)]
mod tests;
