//! The deliverer in a simulation with a virtual clock: an outbox, a provider with faults, and a network.
//!
//! Every step checks what must hold at any time; in the end, when the provider works again, every mail must have ended.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::*;
use crate::deliver::events::LogEvent;
use crate::deliver::events::TransportStatus;
use crate::deliver::exchange::{ClaimLimit, Claimed, ExchangeResult};
use crate::deliver::fixture::mail;
use crate::deliver::mail::Mail;
use crate::deliver::settlements::Settlements;
use crate::message::Message;
use crate::transport::capabilities::{Capabilities, DeliveryConfig};
use crate::transport::providers::{MessageOutcome, Provider, Request, Response};
use crate::transport::rate::{Rate, Unit};

/// A provider whose responses the simulation makes.
struct Fake {
    batch: usize,
    idempotent: bool,
    has_sign: bool,
}

impl Capabilities for Fake {
    fn batch_limit(&self) -> usize {
        self.batch
    }

    fn has_success_sign(&self) -> bool {
        self.has_sign
    }

    fn idempotency_window(&self) -> Option<Duration> {
        self.idempotent.then_some(Duration::MAX)
    }
}

impl Provider for Fake {
    fn request(&self, _: &[&Message], _: SystemTime) -> Result<Request, String> {
        Err("not asked".to_owned())
    }

    fn outcomes(&self, _: usize, _: &Response<'_>) -> Vec<MessageOutcome> {
        Vec::new()
    }
}

/// A row of the outbox.
#[derive(Clone, Debug, Default)]
struct Row {
    priority: i16,
    group: Option<String>,
    expires_at: Option<Time>,
    due: Time,
    attempts: i32,
    ambiguous: i32,
    batch: Option<String>,
    claimed: bool,
    ended: Option<&'static str>,
    /// How often the provider took it.
    copies: i32,
    /// It is always refused.
    bad: bool,
    /// The provider fails because of it, always.
    poison: bool,
    /// The provider asks for fewer requests because of it, always.
    unwelcome: bool,
    /// The provider knows its address as one that it does not send to.
    invented: bool,
    /// How often its claim was lost.
    lost: i32,
    /// How many requests had been taken when it was refused, first and last.
    refused: Option<(usize, usize)>,
}

/// The behaviour of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProviderState {
    Up,
    /// Accepts mail, and the response is lost.
    ResponseLost,
    /// Does not accept it, and the response is lost.
    RequestLost,
    /// 400 to everything.
    RefusesMessages,
    /// 401 to everything.
    RefusesAccount,
    Throttles,
    ThrottlesForAnHour,
    Fails,
    Unreachable,
    /// Connections are refused here.
    EndpointDenied,
    /// Something else responds with 200 to everything.
    NotProvider,
}

const PROVIDER_STATES: [ProviderState; 11] = [
    ProviderState::Up,
    ProviderState::ResponseLost,
    ProviderState::RequestLost,
    ProviderState::RefusesMessages,
    ProviderState::RefusesAccount,
    ProviderState::Throttles,
    ProviderState::ThrottlesForAnHour,
    ProviderState::Fails,
    ProviderState::Unreachable,
    ProviderState::EndpointDenied,
    ProviderState::NotProvider,
];

struct Sent {
    at: Time,
    mails: Arc<Vec<Mail>>,
    provider: ProviderState,
}

#[derive(Clone, Debug)]
struct Shape {
    batch: usize,
    idempotent: bool,
    /// Whether the provider has a sign of success.
    has_sign: bool,
    concurrency: usize,
    max_ambiguous: i32,
    rate: Option<&'static str>,
}

struct World {
    shape: Shape,
    now: Time,
    deliverer: Deliverer,
    rows: BTreeMap<i64, Row>,
    requests: HashMap<u64, Sent>,
    /// Requests that the provider has taken, by their mails in order.
    known: HashSet<Vec<i64>>,
    exchange: Option<(Box<Settlements>, Option<ClaimLimit>)>,
    configure: bool,
    provider: ProviderState,
    /// Number of requests with a 2xx response.
    taken: usize,
    steps: u64,
    random: u64,
    stopped: bool,
    log: Vec<LogEvent>,
    /// The tokens that the rate allows, and since when.
    allowance: (f64, Time),
    /// Mails of each request.
    sizes: Vec<usize>,
    /// What the provider responds to these mails, instead of what its state says.
    respond: Option<Respond>,
    /// Added to the time of each response.
    slow: Duration,
    /// Each mail whose id is a multiple of it is large.
    large_every: Option<i64>,
}

type Respond = Box<dyn FnMut(Time, &[Mail]) -> (Option<u16>, Vec<MessageOutcome>)>;

impl World {
    fn new(shape: Shape, seed: u64) -> Self {
        let mut world = Self {
            shape,
            now: Duration::from_secs(1),
            deliverer: Deliverer::default(),
            rows: BTreeMap::new(),
            requests: HashMap::new(),
            known: HashSet::new(),
            exchange: None,
            configure: false,
            provider: ProviderState::Up,
            taken: 0,
            steps: 0,
            random: seed | 1,
            stopped: false,
            log: Vec::new(),
            allowance: (0.0, Duration::from_secs(1)),
            sizes: Vec::new(),
            respond: None,
            slow: Duration::ZERO,
            large_every: None,
        };
        let limits = world.limits();
        world.say(Event::Configured(Box::new(limits)));
        world
    }

    fn limits(&self) -> DeliveryConfig {
        DeliveryConfig {
            capabilities: Arc::new(Fake {
                batch: self.shape.batch,
                idempotent: self.shape.idempotent,
                has_sign: self.shape.has_sign,
            }),
            concurrency: self.shape.concurrency,
            rate: self.shape.rate.and_then(Rate::parse),
            max_ambiguous: self.shape.max_ambiguous,
            has_events: false,
            allow_from: Vec::new(),
            account: "fake".to_owned(),
        }
    }

    /// xorshift64: the world is to be the same each time.
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    fn say(&mut self, event: Event) {
        self.steps += 1;
        for action in self.deliverer.handle(self.now, event) {
            match action {
                Action::ReloadConfig => self.configure = true,
                Action::Send { request, mails } => self.start(request, mails),
                Action::Exchange { settlements, claim } => {
                    assert!(self.exchange.is_none(), "one exchange at a time");
                    assert!(claim.is_some() || !settlements.is_empty());
                    self.exchange = Some((settlements, claim));
                }
                Action::Log(event) => self.log.push(event),
            }
        }
        assert!(
            self.requests.len() <= self.shape.concurrency,
            "a hard limit"
        );
        // Everything that is possible now was done: a Tick now would spin.
        let wake_at = self.deliverer.wake_at();
        assert!(wake_at.is_none_or(|at| at > self.now), "it spins");
    }

    /// Whether anything is to happen by itself, and when.
    fn next(&self) -> Option<Time> {
        let landing = self.requests.values().map(|sent| sent.at).min();
        let due = self
            .rows
            .values()
            .filter(|row| row.ended.is_none() && !row.claimed)
            .map(|row| row.due)
            .min();
        let busy = (self.exchange.is_some() || self.configure).then_some(self.now);
        [
            landing,
            due.filter(|at| *at > self.now),
            busy,
            self.deliverer.wake_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Lets the next thing happen.
    fn step(&mut self, database_fails: bool) {
        let Some(next) = self.next() else {
            return self.say(Event::Tick);
        };
        let was = self.now;
        self.now = self.now.max(next);
        if self.configure {
            self.configure = false;
            let limits = self.limits();
            return match self.random(2) {
                0 => self.say(Event::ReloadedForProbe(Box::new(limits))),
                _ => self.say(Event::ReloadFailed),
            };
        }
        if self.exchange.is_some() {
            return self.exchange(database_fails);
        }
        let landing = self
            .requests
            .iter()
            .filter(|(_, sent)| sent.at <= self.now)
            .map(|(request, _)| *request)
            .min();
        if let Some(request) = landing {
            return self.land(request);
        }
        let fell_due = self
            .rows
            .values()
            .any(|row| row.ended.is_none() && !row.claimed && row.due > was && row.due <= self.now);
        if fell_due {
            return self.say(Event::MailDue { urgent: false });
        }
        self.say(Event::Tick);
    }

    fn schedule(&mut self, row: Row) {
        let id = self.rows.len() as i64 + 1;
        // In another order than that of the ids.
        let early = Duration::from_micros(self.random(1_000));
        let row = Row {
            due: self.now.saturating_sub(early),
            expires_at: row.expires_at.map(|after| self.now + after),
            ..row
        };
        let urgent = row.priority < 0;
        self.rows.insert(id, row);
        self.say(Event::MailDue { urgent });
    }

    fn is_over(&self) -> bool {
        self.rows.values().all(|row| row.ended.is_some())
    }

    /// For a test that fails.
    fn stuck(&self) -> (TransportStatus, SendPermit, Option<Time>, Vec<(&i64, &Row)>) {
        let open = self.rows.iter().filter(|(_, row)| row.ended.is_none());
        let mut breaker = self.deliverer.breaker.clone();
        let permit = breaker.permit(self.now);
        let wake_at = self.deliverer.wake_at();
        (
            self.deliverer.status(),
            permit,
            wake_at,
            open.take(3).collect(),
        )
    }

    /// Until all has ended, in a world that works.
    fn settle_down(&mut self) {
        self.provider = ProviderState::Up;
        self.say(Event::SendingAllowed(true));
        let mut steps = 0;
        while !self.is_over() {
            steps += 1;
            if steps % 1_000 == 0 {
                // A refused mail ends once another one is accepted.
                self.schedule(Row::default());
            }
            assert!(steps < 200_000, "stuck: {:?}", self.stuck());
            self.step(false);
        }
        for _ in 0..10_000 {
            if self.deliverer.held.is_empty() && self.exchange.is_none() {
                break;
            }
            self.step(false);
        }
        assert!(self.deliverer.held.is_empty(), "something is still held");
    }

    fn check_the_end(&self) {
        for (id, row) in &self.rows {
            match row.ended.unwrap() {
                "sent" => assert!(row.copies >= 1, "{id} was not sent: {row:?}"),
                "refused" => {
                    // Twice at least, and another one passed in between.
                    if row.invented && row.copies == 0 {
                        continue;
                    }
                    let (first, last) = row.refused.unwrap();
                    assert!(
                        first < last && (row.copies == 0 || row.ambiguous > 0),
                        "{id}: {row:?}"
                    );
                }
                "expired" => assert!(row.expires_at.is_some(), "{id}"),
                _ => assert!(row.ambiguous > 0, "{id}"),
            }
            // A batch that falls apart at a provider that knows requests again is one more.
            let most = self.shape.max_ambiguous + 1 + i32::from(self.shape.idempotent) + row.lost;
            assert!(
                row.copies <= most,
                "{id} has {} copies: {row:?}",
                row.copies
            );
        }
    }
}

mod fairness;
mod few;
mod held;
mod identity;
mod in_flight;
mod lost;
mod network;
mod operations;
mod outbox;
mod policy;
mod probes;
mod unproven;
