//! A job runner with an outbox in memory that refuses to settle one mail.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::path::Path;
use std::rc::Rc;

use super::*;
use crate::deliver::exchange::Claimed;
use crate::deliver::fixture::mail;
use crate::deliver::mail::{Claim, Mail};
use crate::deliver::settlements::{FailedAttempt, FailedMail};
use crate::deliver::store::LogLine;
use crate::transport::config::{self, ConfigError, TransportConfig};

/// The mail whose row cannot be changed.
const BAD: i64 = 1;

/// The lines of the log.
type Log = Rc<RefCell<Vec<String>>>;

struct TestHost {
    log: Log,
    lease: Rc<Cell<Duration>>,
}

impl Host for TestHost {
    fn load(&self) -> Result<Vec<TransportConfig>, ConfigError> {
        config::parse("[transports.a]\nprovider = \"log\"\n", Path::new(""))
    }

    fn log(&self, line: &LogLine) {
        let (LogLine::Log(text) | LogLine::Warning { message: text, .. }) = line;
        self.log.borrow_mut().push(text.clone());
    }

    fn stop_requested(&self) -> bool {
        false
    }

    fn lease(&self) -> Duration {
        self.lease.get()
    }

    fn wait(&self, _: Duration, _: RawFd) {}
}

struct Refused(Log, ErrorKind);

impl StoreError for Refused {
    fn kind(&self) -> ErrorKind {
        self.1
    }

    fn warn(&self, message: &str) {
        self.0.borrow_mut().push(message.to_owned());
    }
}

struct Outbox {
    log: Log,
    waiting: VecDeque<Mail>,
    settled: Vec<i64>,
    /// How often it was asked to settle the bad mail.
    tries: usize,
    /// These are locked.
    locked: RangeInclusive<i64>,
    waits: usize,
    /// The locked ones that it waited for.
    waited_for: Vec<i64>,
    extended: Vec<i64>,
    /// The leases of claims and of extensions.
    leases: Vec<u64>,
}

impl Store for Outbox {
    type Error = Refused;

    fn exchange(
        &mut self,
        _: &str,
        settlements: &Settlements,
        claim: Option<ClaimRequest<'_>>,
    ) -> Result<(Vec<i64>, Option<Claimed>), Refused> {
        if settlements.ids().any(|id| *id == BAD) {
            self.tries += 1;
            return Err(Refused(Rc::clone(&self.log), ErrorKind::Other));
        }
        if settlements.ids().any(|id| self.locked.contains(id)) {
            self.waits += 1;
            if !settlements.is_hurried {
                self.waited_for.extend(settlements.ids());
            }
            return Err(Refused(Rc::clone(&self.log), ErrorKind::Locked));
        }
        self.settled.extend(settlements.ids());
        let claimed = claim.map(|claim| {
            self.leases.push(claim.lease.as_secs());
            let count = self.waiting.len().min(claim.limit.mails as usize);
            Claimed {
                mails: self.waiting.drain(..count).collect(),
                ..Claimed::default()
            }
        });
        Ok((Vec::new(), claimed))
    }

    fn extend(&mut self, _: &str, ids: &[i64], lease: Duration) -> Result<Vec<i64>, Refused> {
        self.leases.push(lease.as_secs());
        if ids.contains(&BAD) {
            return Err(Refused(Rc::clone(&self.log), ErrorKind::Other));
        }
        self.extended.extend(ids);
        Ok(ids.to_vec())
    }

    fn publish(&mut self, _: &str, _: String, _: Option<String>) -> Result<(), Refused> {
        Ok(())
    }
}

struct World {
    runner: JobRunner<TestHost>,
    outbox: Outbox,
    log: Log,
    lease: Rc<Cell<Duration>>,
    began: Instant,
}

impl World {
    /// The bad mail waits.
    fn start() -> Self {
        let log = Log::default();
        let spawn = |body: Box<dyn FnOnce() + Send>| std::thread::Builder::new().spawn(body);
        let lease = Rc::new(Cell::new(Duration::from_secs(3600)));
        let host = TestHost {
            log: Rc::clone(&log),
            lease: Rc::clone(&lease),
        };
        let runner = JobRunner::start(host, "test", "me".to_owned(), spawn, Time::ZERO);
        Self {
            runner: runner.unwrap().unwrap(),
            outbox: Outbox {
                log: Rc::clone(&log),
                waiting: VecDeque::from([mail(BAD)]),
                settled: Vec::new(),
                tries: 0,
                locked: 0..=0,
                waits: 0,
                waited_for: Vec::new(),
                extended: Vec::new(),
                leases: Vec::new(),
            },
            log,
            lease,
            began: Instant::now(),
        }
    }

    fn schedule(&mut self, id: i64) {
        self.outbox.waiting.push_back(mail(id));
        self.runner.mail_due(false);
    }

    /// Runs until this holds, or this time has passed since the start.
    fn run(&mut self, limit: u64, ends: impl Fn(&Self) -> bool) {
        while !ends(self) && self.began.elapsed() < Duration::from_secs(limit) {
            let now = self.began.elapsed();
            assert!(self.runner.run_jobs(&mut self.outbox, now, true).is_ok());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Settles these one by one.
    fn settle_each(
        &mut self,
        sent: impl IntoIterator<Item = i64>,
        failed: impl IntoIterator<Item = i64>,
    ) -> Result<(), Refused> {
        let mut settlements = Settlements::default();
        for id in sent {
            settlements.sent(Claim { id, attempts: 0 }, None, &[]);
        }
        for id in failed {
            settlements.failed.push(FailedMail {
                claim: Claim { id, attempts: 0 },
                attempt: FailedAttempt::new("busy".to_owned()),
            });
        }
        let transport = "a".into();
        self.runner
            .settle_each(&mut self.outbox, &transport, settlements, Time::ZERO)
    }

    fn logged(&self, text: &str) -> usize {
        let log = self.log.borrow();
        log.iter().filter(|line| line.contains(text)).count()
    }
}

#[test]
fn settling_one_refused_mail_is_retried_at_growing_intervals() {
    let mut world = World::start();
    world.run(2, |_| false);
    world.schedule(2);
    world.run(3, |world| world.outbox.settled.contains(&2));
    assert_eq!(world.outbox.settled, [2], "it waits for no other mail");
    let mut world = World::start();
    world.run(6, |_| false);
    // After 0, 1 and 3 s.
    assert_eq!(world.outbox.tries, 3);
    assert_eq!(world.logged("could not claim or settle mail"), 1);
    assert_eq!(world.logged("claims and settles mail again"), 0);
}

#[test]
fn it_is_given_up_if_others_are_settled_between_its_tries() {
    let mut world = World::start();
    let given_up = |world: &World| world.logged("could not settle 1 mails") > 0;
    world.run(20, |world| world.outbox.tries > 0);
    for id in 2..200 {
        if !given_up(&world) {
            world.schedule(id);
            world.run(20, |world| world.outbox.settled.contains(&id));
            let until = world.began.elapsed() + Duration::from_millis(100);
            world.run(20, |world| world.began.elapsed() > until);
        }
    }
    assert!(given_up(&world));
    // Twice before another was settled, then five times.
    assert_eq!(world.outbox.tries, 7);
    assert!(world.logged("claims and settles mail again") <= 1);
    assert!(world.runner.held.is_empty() && world.runner.refusals.is_empty());
}

#[test]
fn locked_mails_are_left_for_later_passes_in_which_others_come_first() {
    let mut world = World::start();
    world.outbox.locked = 3..=300;
    assert!(world.settle_each(2..=1000, []).is_ok());
    assert_eq!((world.outbox.settled.len(), world.outbox.waits), (1, 50));
    // The others come back a second later, those that were not tried first.
    let all = |world: &World| world.outbox.settled.len() == 701;
    world.run(60, all);
    assert!(all(&world));
    // Two of each pass come again, to be waited for.
    assert!(world.outbox.waits <= 50 * 9, "{}", world.outbox.waits);
}

#[test]
fn many_locked_mails_of_one_kind_keep_none_of_another_from_being_settled() {
    let mut world = World::start();
    world.outbox.waiting.clear();
    world.outbox.locked = 3..=62;
    assert!(world.settle_each(2..=62, 100..=120).is_ok());
    world.run(10, |world| world.outbox.settled.len() > 21);
    world.outbox.settled.sort_unstable();
    assert_eq!(world.outbox.settled[1..], Vec::from_iter(100..=120));
}

#[test]
fn each_of_the_locked_mails_is_waited_for_in_turn() {
    // In one pass, and in two.
    for count in [5, 60, 100] {
        let mut world = World::start();
        world.outbox.locked = 1000..=count + 999;
        for _ in 0..count {
            // An error if all are locked.
            drop(world.settle_each(1000..count + 999, [count + 999]));
        }
        world.outbox.waited_for.sort_unstable();
        let twice: Vec<i64> = (1000..count + 1000).flat_map(|id| [id, id]).collect();
        assert_eq!(world.outbox.waited_for, twice);
    }
}

#[test]
fn a_mail_that_was_locked_for_long_is_settled_soon_after_although_others_are_locked() {
    let mut world = World::start();
    world.outbox.locked = 3..=3;
    for _ in 0..40 {
        assert!(world.settle_each([3], []).is_ok());
    }
    world.outbox.locked = 100..=159;
    for _ in 0..2 {
        drop(world.settle_each((100..=159).chain([3]), []));
    }
    assert_eq!(world.outbox.settled, [3]);
}

#[test]
fn a_lease_that_cannot_be_extended_costs_no_other_mail_its_own() {
    let mut world = World::start();
    world.runner.held = (BAD..=100).collect();
    assert!(world.runner.extend(&mut world.outbox, Time::ZERO).is_ok());
    world.outbox.extended.sort_unstable();
    assert_eq!(world.outbox.extended, Vec::from_iter(2..=100));
    assert_eq!(
        world.logged("could not extend the claims of 1 mails, which will lapse, among them 1"),
        1
    );
    // Where none can be extended, it is not that mail.
    world.runner.held = [BAD].into();
    assert!(world.runner.extend(&mut world.outbox, Time::ZERO).is_err());
}

#[test]
fn leases_are_as_long_as_the_database_was_told_until_it_is_told_otherwise() {
    let mut world = World::start();
    world.outbox.waiting.clear();
    world.runner.held = [2].into();
    world.lease.set(Duration::from_secs(60));
    assert!(world.runner.extend(&mut world.outbox, Time::ZERO).is_ok());
    assert_eq!(world.runner.extend_at(), Duration::from_secs(20));
    // They do not become longer or shorter by themselves when the setting changes, so they are set at once.
    for (lease, extend_at) in [(1800, 600), (10, 3)] {
        let now = world.began.elapsed();
        world.lease.set(Duration::from_secs(lease));
        assert!(world.runner.run_jobs(&mut world.outbox, now, true).is_ok());
        assert_eq!(world.outbox.leases.last(), Some(&lease));
        let next = world.runner.extend_at().saturating_sub(now);
        assert_eq!(next.as_secs(), extend_at);
    }
}
