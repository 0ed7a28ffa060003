//! Delivery as the worker does it: claim (commit), hand over to the engine, settle what comes back (commit).
//!
//! No transaction is open while anything is sent (I5): the engine has a thread of its own, and each round of
//! the worker asks it what came back. A mail is *held* from its claim until its settle is committed: in the bag,
//! with the engine, or waiting to be settled. What is held is bounded by number and by bytes, and its leases are
//! extended for as long as it is.

mod answers;
mod bag;
mod ended;
mod leases;
mod pace;
mod rounds;
mod singly;
mod together;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgrx::prelude::*;

use self::bag::Bag;
use self::ended::Ended;
use self::leases::Clock;
use self::pace::Tempo;
use super::session::{Failure, Session};
use crate::delivery::channel::{Channel, News};
use crate::delivery::engine::{Engine, Parcel};
use crate::delivery::providers::Provider;
use crate::delivery::report::{self, Report};
use crate::delivery::route;
use crate::delivery::settlements::{Arrival, Claim, Fault, Settlements};
use crate::delivery::sharing::Sharing;
use crate::failures::Failures;
use crate::registry::SlotIndex;
use crate::server;
use crate::settings::sending::{self, Sender};

/// Time since the worker started.
type Time = Duration;

/// How long what is under way has after a stop.
const GRACE: Duration = Duration::from_secs(2);

/// Urgent mail has a paused channel tried no more often.
const PULL_SPACING: Duration = Duration::from_secs(5);

/// Sender, endpoint, and the address that mail is from.
type Address = (Sender, Option<String>, Option<String>);

/// A mail between its claim and its settle.
struct Held {
    attempts: i32,
    /// How often it may have been sent before.
    ambiguous: i32,
    size: usize,
    /// When its lease began.
    since: Time,
    /// Whether the engine has it.
    away: bool,
}

/// A mail that was refused: whether it or the channel is at fault is not known yet.
struct Doubt {
    claim: Claim,
    fault: Fault,
}

/// The worker's deliverer.
pub struct Courier {
    claimant: String,
    sender: Sender,
    provider: Option<Arc<dyn Provider>>,
    /// Whom it is sent to, and what is handed over from the turn after this one.
    address: Address,
    moved_at: u64,
    engine: Option<Engine>,
    channel: Channel,
    sharing: Sharing,
    concurrency: usize,
    tempo: Tempo,
    bag: Bag,
    /// What may have arrived and is sent again as it was, and what goes alone because of its company; and when.
    together: Vec<(Time, Parcel)>,
    held: HashMap<i64, Held>,
    held_bytes: usize,
    /// Letters that the engine has, and parcels, by their turns and letters.
    away: usize,
    away_parcels: HashMap<u64, usize>,
    settlements: Settlements,
    /// How mails ended whose claim was lost before that could be told.
    answers: HashMap<i64, Settlements>,
    /// When they are to be told at the latest.
    settle_at: Option<Time>,
    doubts: Vec<Doubt>,
    /// There may be something to claim.
    look: bool,
    /// When to look again, since a budget is spent.
    look_at: Option<Time>,
    /// Whether there may be a budget.
    budgeted: bool,
    /// Mail waits for the rate until then.
    paced_until: Option<Time>,
    /// The engine was told to give back what it has not sent.
    recalled: bool,
    /// The latest exchange failed: settle alone first.
    careful: bool,
    turn: u64,
    unknown: u64,
    ended: Ended,
    /// When urgent mail last had a paused channel tried.
    pulled_at: Option<Time>,
    extended_at: Time,
    clock: Clock,
    reported: Option<Report>,
    failures: Failures,
}

impl Courier {
    /// One for the settings as they are, unless clients deliver.
    pub fn hire(session: &Session, now: Time) -> Option<Self> {
        let sender = sending::sender();
        if sender == Sender::Outbox {
            return None;
        }
        let claimant = format!("mailroom worker/{}", server::session_id());
        let concurrency = sending::http_concurrency();
        let mut courier = Self {
            claimant,
            sender,
            provider: None,
            address: (sender, None, None),
            moved_at: 0,
            engine: None,
            channel: Channel::new(concurrency),
            sharing: Sharing::default(),
            concurrency,
            tempo: Tempo::default(),
            bag: Bag::default(),
            together: Vec::new(),
            held: HashMap::new(),
            held_bytes: 0,
            away: 0,
            away_parcels: HashMap::new(),
            settlements: Settlements::default(),
            answers: HashMap::new(),
            settle_at: None,
            doubts: Vec::new(),
            look: true,
            look_at: None,
            budgeted: true,
            paced_until: None,
            recalled: false,
            careful: false,
            turn: 0,
            unknown: 0,
            ended: Ended::default(),
            pulled_at: None,
            extended_at: now,
            clock: Clock::start(),
            reported: None,
            failures: Failures::default(),
        };
        if let Err(failure) = session.take_over() {
            failure.warn("mailroom worker could not take over the claims of an earlier one");
        }
        courier.set_up(now);
        Some(courier)
    }

    /// There may be mail.
    pub fn look(&mut self) {
        self.look = true;
    }

    /// Settings may have changed, or what they name. False when clients deliver from now on.
    #[must_use]
    pub fn reload(&mut self, now: Time) -> bool {
        self.sender = sending::sender();
        if self.sender == Sender::Outbox {
            return false;
        }
        if self.set_up(now) {
            self.channel.reset(now, self.concurrency);
            self.forgive();
            self.sharing.reset();
        }
        true
    }

    /// There is urgent mail: a paused channel is tried, unless it just was.
    pub fn look_urgently(&mut self, now: Time) {
        self.look();
        if self
            .pulled_at
            .is_none_or(|at| now.saturating_sub(at) >= PULL_SPACING)
        {
            self.pulled_at = Some(now);
            self.channel.pull(now);
        }
    }

    /// Somebody wants everything to be looked at.
    pub fn hurry(&mut self, now: Time) {
        self.channel.hurry(now);
        self.budgeted = true;
        self.look();
    }

    /// Readable when the engine has something to tell.
    pub fn bell(&self) -> Option<std::os::fd::RawFd> {
        self.engine.as_ref().map(Engine::bell)
    }

    /// Reads settings and files anew; false, with the channel paused, when they are no good.
    fn set_up(&mut self, now: Time) -> bool {
        let problem = match route::plan() {
            Ok(route) => {
                self.concurrency = route.concurrency;
                self.move_to((self.sender, sending::endpoint(), sending::from()));
                self.provider = Some(route.provider);
                match &self.engine {
                    Some(engine) => {
                        engine.set_up(route.setup);
                        return true;
                    }
                    None => {
                        let spawn = |body| server::spawn_without_signals("mailroom sender", body);
                        match Engine::start(route.setup, spawn) {
                            Ok(engine) => {
                                self.engine = Some(engine);
                                log!("mailroom worker delivers by {}", self.sender.as_str());
                                return true;
                            }
                            Err(error) => {
                                format!("the sending thread could not be started: {error}")
                            }
                        }
                    }
                }
            }
            Err(problem) => problem,
        };
        self.channel.pause(now, &problem);
        false
    }

    /// Whoever it goes to from now on knows nothing of what was sent before.
    fn move_to(&mut self, address: Address) {
        if self.address == address {
            return;
        }
        self.address = address;
        self.moved_at = self.turn;
        self.recall();
        self.part_if(|parcel| parcel.repeat.is_some());
    }

    /// Starts anew after the engine came to a violent end.
    ///
    /// With a pause: should it fail again and again, then ever more slowly, with one mail at a time, and with one line
    /// in the log.
    fn mend(&mut self, now: Time) {
        if !self.engine.as_ref().is_some_and(Engine::has_failed) {
            return;
        }
        // First, for what comes back of it tells nothing of the provider.
        let reason = "the sending thread failed and was started anew";
        self.channel.pause(now, reason);
        self.give_up(now);
        self.engine = None;
        self.set_up(now);
    }

    /// Ends the engine; what it had is settled as far as anything is known of it.
    fn give_up(&mut self, now: Time) {
        if let Some(engine) = &mut self.engine {
            engine.stop();
        }
        self.receive(now);
        let lost: Vec<Claim> = self
            .held
            .iter()
            .filter(|(_, held)| held.away)
            .map(|(&id, held)| Claim {
                id,
                attempts: held.attempts,
            })
            .collect();
        for claim in lost {
            let reason = "given up before there was an answer";
            self.unknown(claim, Arrival::Alone, reason, None, false);
        }
        self.away = 0;
        self.away_parcels.clear();
    }

    /// Gives back what was not sent, waits a little for what was, and settles it. With no `grace` left it is
    /// given up.
    pub fn finish(&mut self, session: &Session, now: impl Fn() -> Time) {
        let deadline = Instant::now() + GRACE;
        if let Some(engine) = &self.engine {
            // Nobody waits for company any more.
            engine.ring_at(1);
            engine.recall();
        }
        loop {
            self.receive(now());
            self.empty_bag();
            let left = deadline.saturating_duration_since(Instant::now());
            if self.away == 0 || left.is_zero() {
                break;
            }
            // What has an answer is settled at once, should the rest take its time.
            if !self.settlements.is_empty() && self.settle_only(session).is_err() {
                self.careful = true;
            }
            server::wait_for(left, self.bell());
        }
        self.give_up(now());
        self.part_if(|_| true);
        self.empty_bag();
        for doubt in std::mem::take(&mut self.doubts) {
            self.settlements.released(doubt.claim);
        }
        // A second try, in case that the stop cancelled the first; a third, should one of them be in the way.
        if self.settle_only(session).is_err()
            && let Err(failure) = self.settle_only(session)
            && !failure.is_extension_gone()
            && let Err(failure) = self.settle_singly(session)
        {
            failure
                .warn("mailroom worker could not settle its last mails; their claims will lapse");
        }
        self.engine = None;
    }

    /// Tells the log and mailroom_status() of what has changed.
    fn announce(&mut self, index: SlotIndex, now: Time) {
        for news in self.channel.take_news() {
            match news {
                News::Paused(reason) => warning!(
                    "mailroom worker paused sending by {}: {reason}; mail waits, and one is tried now and then",
                    self.sender.as_str()
                ),
                News::Resumed(after) => log!(
                    "mailroom worker sends again by {}, after {} s",
                    self.sender.as_str(),
                    after.as_secs()
                ),
            }
        }
        if let Some((count, reason)) = self.ended.take(now) {
            warning!(
                "mailroom worker ended {count} mails as error; the latest: {reason}; see outbox_attempts"
            );
        }
        let (channel, reason, next_try) = self.channel.tell();
        // Told to a tenth of a second: times that are computed anew in each round would differ each time.
        let next_try = next_try.map(|at| {
            let wait = i64::try_from(at.saturating_sub(now).as_micros()).unwrap_or(i64::MAX);
            server::now().saturating_add(wait) / 100_000 * 100_000
        });
        let report = Report {
            sender: self.sender.as_str(),
            channel,
            reason: reason.to_owned(),
            next_try,
            in_flight: self.away,
            unknown: self.unknown,
        };
        if self.reported.as_ref() != Some(&report) {
            report::write(index, &report);
            self.reported = Some(report);
        }
    }

    /// Claiming or settling failed; returns when to try again.
    pub fn failed(&mut self, now: Time, failure: &Failure) -> Time {
        let verdict = self.failures.record(now);
        if verdict.tell {
            failure.warn(&format!(
                "mailroom worker could not claim or settle mail (attempt {}, next in {} s)",
                self.failures.count(),
                verdict.delay.as_secs()
            ));
        }
        self.failures.retry_at()
    }
}
