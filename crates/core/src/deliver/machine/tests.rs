//! The deliverer against a world of its own, on a virtual clock: an outbox, a provider with faults, and a network.
//!
//! Every step checks what must hold at any time; in the end, when the provider works again, every mail must have ended.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;

use super::*;
use crate::deliver::fixture::mail;
use crate::deliver::intake::{Appetite, Claimed, Exchanged};
use crate::deliver::rate::Rate;
use crate::message::Message;
use crate::transport::providers::{Answer, Provider, Request, Verdict};

/// A provider whose answers the world makes.
struct Fake {
    batch: usize,
    idempotent: bool,
}

impl Provider for Fake {
    fn batch_limit(&self) -> usize {
        self.batch
    }

    fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    fn request(&self, _: &[&Message], _: SystemTime) -> Result<Request, String> {
        Err("nobody asks".to_owned())
    }

    fn verdicts(&self, _: usize, _: &Answer<'_>) -> Vec<Verdict> {
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
    /// It is refused whatever comes.
    bad: bool,
    /// The provider knows its address as one that it does not send to.
    invented: bool,
    /// How many requests had been taken when it was refused, first and last.
    refused: Option<(usize, usize)>,
}

/// What the provider does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Fine,
    /// Takes mail, and the answer is lost.
    Mute,
    /// Does not take it, and the answer is lost.
    Deaf,
    /// 400 to everything.
    Picky,
    /// 401 to everything.
    Locked,
    Busy,
    Busier,
    Broken,
    Away,
    /// Connections are refused here.
    Denied,
}

const MOODS: [Mood; 10] = [
    Mood::Fine,
    Mood::Mute,
    Mood::Deaf,
    Mood::Picky,
    Mood::Locked,
    Mood::Busy,
    Mood::Busier,
    Mood::Broken,
    Mood::Away,
    Mood::Denied,
];

struct Sent {
    at: Time,
    mails: Arc<Vec<Mail>>,
    mood: Mood,
}

#[derive(Clone, Debug)]
struct Shape {
    batch: usize,
    idempotent: bool,
    concurrency: usize,
    max_ambiguous: i32,
    rate: Option<&'static str>,
}

struct World {
    shape: Shape,
    now: Time,
    deliverer: Deliverer,
    rows: BTreeMap<i64, Row>,
    flights: HashMap<u64, Sent>,
    /// Requests that the provider has taken, by their members.
    known: HashSet<Vec<i64>>,
    exchange: Option<(Box<Settlements>, Option<Appetite>)>,
    configure: bool,
    mood: Mood,
    /// Requests that were answered by 2xx.
    taken: usize,
    steps: u64,
    random: u64,
    rested: bool,
    stopped: bool,
    news: Vec<News>,
}

impl World {
    fn new(shape: Shape, seed: u64) -> Self {
        let mut world = Self {
            shape,
            now: Duration::from_secs(1),
            deliverer: Deliverer::new(),
            rows: BTreeMap::new(),
            flights: HashMap::new(),
            known: HashSet::new(),
            exchange: None,
            configure: false,
            mood: Mood::Fine,
            taken: 0,
            steps: 0,
            random: seed | 1,
            rested: false,
            stopped: false,
            news: Vec::new(),
        };
        let limits = world.limits();
        world.say(Event::Configured(Box::new(limits)));
        world
    }

    fn limits(&self) -> Limits {
        Limits {
            provider: Arc::new(Fake {
                batch: self.shape.batch,
                idempotent: self.shape.idempotent,
            }),
            concurrency: self.shape.concurrency,
            rate: self.shape.rate.and_then(Rate::parse),
            max_ambiguous: self.shape.max_ambiguous,
            address: "fake".to_owned(),
        }
    }

    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + self.now
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
        let now = Now {
            at: self.now,
            wall: self.wall(),
        };
        for action in self.deliverer.handle(now, event) {
            match action {
                Action::Configure => self.configure = true,
                Action::Send { request, mails } => self.start(request, mails),
                Action::Exchange {
                    settlements,
                    appetite,
                } => {
                    assert!(self.exchange.is_none(), "one exchange at a time");
                    assert!(appetite.is_some() || !settlements.is_empty());
                    self.exchange = Some((settlements, appetite));
                }
                Action::Tell(news) => self.news.push(news),
                Action::Rest => self.rested = true,
            }
        }
        assert!(self.flights.len() <= self.shape.concurrency, "a hard limit");
    }

    fn start(&mut self, request: u64, mails: Arc<Vec<Mail>>) {
        assert!(!self.stopped, "nothing is sent after a stop");
        assert!((1..=self.shape.batch).contains(&mails.len()));
        let flying: HashSet<i64> = self
            .flights
            .values()
            .flat_map(|sent| sent.mails.iter().map(|mail| mail.message.id))
            .collect();
        for mail in mails.iter() {
            let id = mail.message.id;
            assert!(!flying.contains(&id), "{id} is under way twice");
            let row = &self.rows[&id];
            assert!(row.claimed && row.ended.is_none(), "{id} is not claimed");
            let is_late = row.expires_at.is_some_and(|end| end <= self.now);
            assert!(!is_late || row.batch.is_some(), "{id} has expired");
            if let Some(group) = &row.group {
                let busy = flying
                    .iter()
                    .chain(mails.iter().map(|m| &m.message.id))
                    .filter(|&&other| other != id)
                    .any(|other| self.rows[other].group.as_ref() == Some(group));
                assert!(!busy, "two of a group at a time");
            }
        }
        let delay = Duration::from_millis(1 + self.random(300));
        let sent = Sent {
            at: self.now + delay,
            mails,
            mood: self.mood,
        };
        self.flights.insert(request, sent);
    }

    /// The provider takes these, unless it knows the request.
    fn take(&mut self, mails: &[Mail]) {
        if mails.is_empty() {
            return;
        }
        let mut ids: Vec<i64> = mails.iter().map(|mail| mail.message.id).collect();
        ids.sort_unstable();
        if ids.iter().any(|id| self.rows[id].bad) {
            // Refused, which nobody hears.
            return;
        }
        if self.shape.idempotent && !self.known.insert(ids.clone()) {
            return;
        }
        for id in ids {
            let row = self.rows.get_mut(&id).unwrap();
            row.copies += 1;
        }
    }

    fn land(&mut self, request: u64) {
        let sent = self.flights.remove(&request).unwrap();
        let count = sent.mails.len();
        let mut status = None;
        let outcome = match sent.mood {
            Mood::Fine => {
                let rows = &self.rows;
                let is_bad = |mail: &Mail| rows[&mail.message.id].bad;
                let invented: HashSet<i64> = sent
                    .mails
                    .iter()
                    .map(|mail| mail.message.id)
                    .filter(|id| self.rows[id].invented)
                    .collect();
                let is_invented = |mail: &Mail| invented.contains(&mail.message.id);
                if count > 1 && sent.mails.iter().any(is_bad) {
                    status = Some(422);
                    let reason = "http 422".to_owned();
                    Outcome::Answered(vec![Verdict::Apart { reason }; count])
                } else if sent.mails.iter().any(is_invented) {
                    let good: Vec<Mail> = sent
                        .mails
                        .iter()
                        .filter(|mail| !is_invented(mail))
                        .cloned()
                        .collect();
                    self.take(&good);
                    self.taken += usize::from(!good.is_empty());
                    status = Some(if good.is_empty() { 422 } else { 200 });
                    let verdict = |mail: &Mail| {
                        if is_invented(mail) {
                            let reason = "http 422 406".to_owned();
                            Verdict::RecipientRefused { reason }
                        } else {
                            Verdict::Sent { provider_id: None }
                        }
                    };
                    Outcome::Answered(sent.mails.iter().map(verdict).collect())
                } else if is_bad(&sent.mails[0]) {
                    status = Some(422);
                    let reason = "http 422".to_owned();
                    Outcome::Answered(vec![Verdict::Refused { reason }])
                } else {
                    self.take(&sent.mails);
                    self.taken += 1;
                    status = Some(200);
                    Outcome::Answered(vec![Verdict::Sent { provider_id: None }; count])
                }
            }
            Mood::Mute | Mood::Deaf => {
                if sent.mood == Mood::Mute {
                    self.take(&sent.mails);
                }
                let reason = "timeout".to_owned();
                Outcome::Answered(vec![Verdict::Unknown { reason }; count])
            }
            Mood::Picky => {
                status = Some(400);
                let reason = "http 400".to_owned();
                let verdict = if count > 1 {
                    Verdict::Apart { reason }
                } else {
                    Verdict::Refused { reason }
                };
                Outcome::Answered(vec![verdict; count])
            }
            Mood::Locked => {
                status = Some(401);
                let reason = "http 401".to_owned();
                Outcome::Answered(vec![Verdict::Broken { reason }; count])
            }
            Mood::Busy | Mood::Busier => {
                status = Some(429);
                let verdict = Verdict::Throttled {
                    reason: "http 429".to_owned(),
                    after: (sent.mood == Mood::Busier).then_some(Duration::from_secs(3_600)),
                };
                Outcome::Answered(vec![verdict; count])
            }
            Mood::Broken => {
                status = Some(503);
                let verdict = Verdict::Retry {
                    reason: "http 503".to_owned(),
                    after: None,
                };
                Outcome::Answered(vec![verdict; count])
            }
            Mood::Away => Outcome::Unreached("no connection".to_owned()),
            Mood::Denied => Outcome::Denied("not public".to_owned()),
        };
        if let Outcome::Answered(verdicts) = &outcome
            && let [Verdict::Refused { .. }] = verdicts[..]
        {
            let row = self.rows.get_mut(&sent.mails[0].message.id).unwrap();
            let (first, _) = row.refused.unwrap_or((self.taken, 0));
            row.refused = Some((first, self.taken));
        }
        self.say(Event::Answered {
            request,
            outcome,
            status,
        });
    }

    /// The database does its part, or fails.
    fn exchange(&mut self, fails: bool) {
        let Some((settlements, appetite)) = self.exchange.take() else {
            return;
        };
        if fails {
            let retry_at = self.now + Duration::from_secs(1);
            return self.say(Event::ExchangeFailed {
                settlements,
                retry_at,
            });
        }
        self.settle(&settlements);
        let claimed = appetite.map(|appetite| {
            let mails = self.claim(appetite.mails as usize);
            let claimed = Claimed {
                mails,
                surplus: 0,
                budget: None,
            };
            (appetite, claimed)
        });
        self.say(Event::Exchanged(Box::new(Exchanged {
            settled: *settlements,
            claimed,
            ..Exchanged::default()
        })));
    }

    fn settle(&mut self, settlements: &Settlements) {
        let now = self.now;
        let mut seen = BTreeSet::new();
        for id in settlements.ids() {
            assert!(seen.insert(*id), "{id} is settled twice");
            let row = self.rows.get_mut(id).unwrap();
            assert!(row.claimed, "{id} is not claimed");
            row.claimed = false;
        }
        for id in &settlements.sent.ids {
            let row = self.rows.get_mut(id).unwrap();
            row.ended = Some("sent");
        }
        let failed = &settlements.failed;
        for (place, id) in failed.ids.iter().enumerate() {
            let row = self.rows.get_mut(id).unwrap();
            row.attempts += 1;
            row.ambiguous += i32::from(failed.ambiguous[place]);
            row.batch.clone_from(&failed.batches[place]);
            if failed.permanent[place] {
                row.ended = Some(if failed.ambiguous[place] {
                    "ambiguous"
                } else {
                    "refused"
                });
                row.batch = None;
            } else {
                let wait = Duration::from_secs(1 << row.attempts.min(6));
                row.due = now + wait;
                if let Some(end) = row.expires_at {
                    row.due = row
                        .due
                        .min(end.saturating_sub(Duration::from_secs(5)).max(now));
                }
            }
        }
        // What goes together is due together.
        let mut due: HashMap<String, Time> = HashMap::new();
        for id in &failed.ids {
            let row = &self.rows[id];
            if let Some(batch) = &row.batch {
                let at = due.entry(batch.clone()).or_insert(row.due);
                *at = (*at).min(row.due);
            }
        }
        for id in &failed.ids {
            let row = self.rows.get_mut(id).unwrap();
            if let Some(at) = row.batch.as_ref().and_then(|batch| due.get(batch)) {
                row.due = *at;
            }
        }
    }

    fn claim(&mut self, limit: usize) -> Vec<Mail> {
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
                    expires_at: row.expires_at.map(|end| UNIX_EPOCH + end),
                    ambiguous_attempts: row.ambiguous,
                    ambiguous_alone: row.ambiguous > 0 && row.batch.is_none(),
                    batch: row.batch.clone(),
                    ..mail(id)
                };
                mail.message.attempts = row.attempts;
                mail
            })
            .collect()
    }

    /// Whether anything is to happen by itself, and when.
    fn next(&self) -> Option<Time> {
        let landing = self.flights.values().map(|sent| sent.at).min();
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
            return self.say(Event::Configured(Box::new(limits)));
        }
        if self.exchange.is_some() {
            return self.exchange(database_fails);
        }
        let landing = self
            .flights
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
            return self.say(Event::Look { urgent: false });
        }
        self.say(Event::Tick);
    }

    fn schedule(&mut self, row: Row) {
        let id = self.rows.len() as i64 + 1;
        let row = Row {
            due: self.now,
            expires_at: row.expires_at.map(|after| self.now + after),
            ..row
        };
        let urgent = row.priority < 0;
        self.rows.insert(id, row);
        self.say(Event::Look { urgent });
    }

    fn is_over(&self) -> bool {
        self.rows.values().all(|row| row.ended.is_some())
    }

    /// For a test that fails.
    fn stuck(&self) -> (Status, Permit, Option<Time>, Vec<(&i64, &Row)>) {
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
        self.mood = Mood::Fine;
        self.say(Event::Allowed(true));
        let mut steps = 0;
        while !self.is_over() {
            steps += 1;
            if steps % 1_000 == 0 {
                // What is refused for what it is ends once another one passes.
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
            let most = self.shape.max_ambiguous + 1 + i32::from(self.shape.idempotent);
            assert!(
                row.copies <= most,
                "{id} has {} copies: {row:?}",
                row.copies
            );
        }
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    (
        prop_oneof![Just(1_usize), Just(3), Just(50)],
        any::<bool>(),
        1_usize..10,
        0_i32..3,
        prop_oneof![
            Just(None),
            Just(Some("20 messages/s")),
            Just(Some("500 recipients/s")),
            Just(Some("5 requests/s")),
            Just(Some("10 recipients/s"))
        ],
    )
        .prop_map(
            |(batch, idempotent, concurrency, max_ambiguous, rate)| Shape {
                batch,
                idempotent,
                concurrency,
                max_ambiguous,
                rate,
            },
        )
}

#[derive(Clone, Debug)]
enum Deed {
    Schedule {
        count: u8,
        priority: i16,
        group: Option<u8>,
        expires: bool,
        bad: bool,
    },
    Mood(usize),
    Run {
        steps: u16,
        database_fails: bool,
    },
    Allowed(bool),
    Hurry,
    Reload,
    Pass(u16),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        3 => (1_u8..40, -10_i16..10, proptest::option::weighted(0.3, 0_u8..4), any::<bool>(), proptest::bool::weighted(0.1))
            .prop_map(|(count, priority, group, expires, bad)| Deed::Schedule { count, priority, group, expires, bad }),
        3 => (0..MOODS.len()).prop_map(Deed::Mood),
        6 => (1_u16..400, proptest::bool::weighted(0.1))
            .prop_map(|(steps, database_fails)| Deed::Run { steps, database_fails }),
        1 => any::<bool>().prop_map(Deed::Allowed),
        1 => Just(Deed::Hurry),
        1 => Just(Deed::Reload),
        1 => (1_u16..300).prop_map(Deed::Pass),
    ];
    proptest::collection::vec(deed, 1..40)
}

fn run(shape: Shape, seed: u64, deeds: Vec<Deed>) -> u64 {
    let mut world = World::new(shape, seed);
    for deed in deeds {
        match deed {
            Deed::Schedule {
                count,
                priority,
                group,
                expires,
                bad,
            } => {
                for _ in 0..count {
                    world.schedule(Row {
                        priority,
                        group: group.map(|group| group.to_string()),
                        expires_at: expires.then_some(Duration::from_secs(900)),
                        bad,
                        ..Row::default()
                    });
                }
            }
            Deed::Mood(mood) => world.mood = MOODS[mood],
            Deed::Run {
                steps,
                database_fails,
            } => {
                for _ in 0..steps {
                    world.step(database_fails);
                }
            }
            Deed::Allowed(allowed) => world.say(Event::Allowed(allowed)),
            Deed::Hurry => world.say(Event::Hurry),
            Deed::Reload => {
                let limits = world.limits();
                world.say(Event::Configured(Box::new(limits)));
            }
            Deed::Pass(seconds) => {
                let until = world.now + Duration::from_secs(seconds.into());
                let mut steps = 0;
                while world.now < until && steps < 2_000 {
                    world.step(false);
                    steps += 1;
                }
            }
        }
    }
    world.settle_down();
    world.check_the_end();
    world.steps
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nothing_is_lost_and_little_is_sent_twice(
        shape in shapes(), seed in any::<u64>(), deeds in deeds()
    ) {
        run(shape, seed, deeds);
    }
}

mod policy;
