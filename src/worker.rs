//! The worker of one database: waits, looks, and takes a batch when the rule says so.
//!
//! Every step is a SQL function that any member of mailroom_collector may call, in a transaction of its own
//! and with the rights of mailroom_collector. A failure ends that transaction, is logged once, and delays the
//! next try; it never ends the worker, and never loses what the transaction had taken.

mod clock;
mod deliverer;
mod session;

use std::time::{Duration, Instant};

use pgrx::bgworkers::{BackgroundWorker, SignalWakeFlags};
use pgrx::prelude::*;

use self::deliverer::Deliverer;
use self::session::{Failure, Outside, Session, Tell, Tended, Waiting};
use crate::registry::{self, SlotIndex, Ticket};
use crate::settings::{self, Notify};
use crate::wake::{self, Next, Post};
use crate::{notify, server};
use mailroom_core::backoff::Failures;
use mailroom_core::batching::{Backlog, Batcher, Decision, Look, Rule, Time, Trigger};

/// How long senders are left alone between two notifications that mail is due: those who come meanwhile are
/// told together, and a flood of mail costs a hundred small transactions a second at most.
const DUE_SPACING: Duration = Duration::from_millis(10);
/// How long listeners are left alone between two notifications of tokens that are left to them: as above.
const TELL_SPACING: Duration = Duration::from_millis(10);
/// The pause between two polls while there are more lapsed claims than one takes back.
const POLL_PAUSE: Duration = Duration::from_millis(100);
/// The pause between two batches of a purge, so that it leaves the server to others, and after one that failed.
const PURGE_PAUSE: Duration = Duration::from_millis(100);
const PURGE_RETRY: Duration = Duration::from_secs(60);
/// How long tokens are collected without answering requests, after that has failed.
const ANSWER_RETRY: Duration = Duration::from_secs(30);
/// How soon to look after a notification that is no news, as far as one can tell.
const ECHO: Duration = Duration::from_secs(1);
/// How often to see whether a restore has ended, should nobody say so.
const STAND_BY: Duration = Duration::from_secs(1);
/// How long the server holds statistics back that are not asked for.
const STATISTICS_INTERVAL: Duration = Duration::from_secs(1);

/// Entry point, called by the postmaster at the launcher's request.
#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn mailroom_worker_main(argument: pg_sys::Datum) {
    wake::become_worker();
    // While it connects nothing is at stake, and it may come upon locks.
    server::die_on_sigterm();
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    let ticket = Ticket::from_datum(argument);
    let index = ticket.index();
    let Some(database) = registry::arrive(ticket) else {
        return;
    };
    // SAFETY: a guarded function of the expected shape; the argument is a plain number.
    unsafe { pg_sys::before_shmem_exit(Some(leave_at_exit), argument) };
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database), None);
    session::install_signal_handlers();
    if !registry::look_around(index) {
        return;
    }
    match attach(index) {
        Attached::Yes(session) => {
            registry::serve(index);
            // Shared memory is there: without it there is no launcher to start us.
            let Some(post) = Post::take(index, settings::batch_rule().limit) else {
                return;
            };
            log!(
                "mailroom worker started in database \"{}\"",
                session.database()
            );
            Worker::new(session, index, post).run();
            log!("mailroom worker stopped");
        }
        Attached::Absent => registry::report_absent(index),
        Attached::Stopped => {}
    }
}

enum Attached {
    Yes(Session),
    /// The database does not have the extension.
    Absent,
    /// The process was told to stop meanwhile.
    Stopped,
}

/// Attaches to the database, for as long as it takes: what is in the way is said once.
fn attach(index: SlotIndex) -> Attached {
    let mut failures = Failures::default();
    while !session::stop_requested() {
        match Session::attach() {
            // A cancelled statement is how the stop made itself heard.
            _ if session::stop_requested() => break,
            Ok(Some(session)) => return Attached::Yes(session),
            Ok(None) => return Attached::Absent,
            Err(failure) => {
                let first = failures.count() == 0;
                let delay = failures.record(Time::ZERO).delay;
                // What is in the way stays as it is until somebody acts: once is enough.
                if first {
                    registry::serve(index);
                    failure.warn("mailroom worker cannot start its work");
                }
                server::wait(delay);
            }
        }
    }
    Attached::Stopped
}

#[pg_guard]
unsafe extern "C-unwind" fn leave_at_exit(_code: i32, argument: pg_sys::Datum) {
    let index = Ticket::from_datum(argument).index();
    // SAFETY: a plain variable of this process.
    if registry::slot(index).worker == unsafe { pg_sys::MyProcPid } {
        wake::leave_post(index);
        registry::leave(index);
    }
}

/// What to wait for.
struct Wait {
    until: Time,
    /// How to look when the time has come.
    then: Cause,
    /// Nothing waits, so that any announcement is a reason to look.
    idle: bool,
    /// For people.
    next: Next,
}

/// Why the worker looks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Commits rang the bell: what they announced is known without a query.
    Rung,
    /// The oldest of a partial batch has waited long enough.
    Deadline,
    /// A notification or a reload: something may be there that nobody announced.
    Notified,
    /// Somebody said that something besides the queue changed.
    Rechecked,
    /// Mail was announced that is due.
    DueNow,
    /// A message that was scheduled for later has become due, or a claim has lapsed.
    Due,
    /// The poll floor, or the next try after a failure.
    Polled,
    /// The first look: what became due while nobody was here is told to those who wait for it.
    Started,
}

/// What a round of delivery came to.
enum Delivery {
    /// The next one is due then, or when the engine has something to tell.
    Next(Option<Time>),
    /// The extension is not there any more.
    Gone,
}

struct Worker {
    session: Session,
    index: SlotIndex,
    post: Post,
    /// Delivers the outbox, unless clients do.
    deliverer: Option<Deliverer>,
    /// Told by mailroom_pause() to leave the queue alone, or standing by.
    paused: bool,
    /// Somebody restores a dump.
    standing_by: bool,
    /// There may be requests, which become tokens when they are answered.
    asked: bool,
    /// The latest look did not see the end of the queue: more may wait than was announced.
    beyond: bool,
    /// When everything was last looked at.
    polled_at: Time,
    /// How long after that everything is to be looked at again.
    poll_pause: Duration,
    /// When the outbox wants attention, in microseconds since 2000-01-01.
    next_due: Option<i64>,
    /// Mail is due of which senders have not been told.
    due_now: bool,
    /// When it last got some, or they were told.
    tended_at: Time,
    /// When to purge next, and when the log was last told that it failed.
    purge_at: Time,
    purge_failed_at: Option<Time>,
    /// When to answer requests next, after that has failed.
    answer_at: Time,
    /// Something was announced of which outside listeners have not heard yet.
    owes_outside: bool,
    /// When they were last told of tokens that are left to them.
    told_at: Time,
    /// The worker told outside listeners, and will hear that itself.
    echo: bool,
    /// When a notification was last a reason to look.
    heard_at: Option<Time>,
    /// When to look because of a notification that may have been more than that echo.
    look_by: Option<Time>,
    batcher: Batcher,
    /// Why the batch in hand, or the latest one, went.
    trigger: Trigger,
    origin: Instant,
    failures: Failures,
}

impl Worker {
    fn new(session: Session, index: SlotIndex, post: Post) -> Self {
        Self {
            deliverer: start_deliverer(&session, Time::ZERO),
            session,
            index,
            post,
            paused: false,
            standing_by: false,
            asked: false,
            beyond: true,
            polled_at: Time::ZERO,
            poll_pause: POLL_PAUSE,
            next_due: None,
            due_now: false,
            tended_at: Time::ZERO,
            purge_at: Time::ZERO,
            purge_failed_at: None,
            answer_at: Time::ZERO,
            owes_outside: false,
            told_at: Time::ZERO,
            echo: false,
            heard_at: None,
            look_by: None,
            batcher: Batcher::default(),
            trigger: Trigger::Poll,
            origin: Instant::now(),
            failures: Failures::default(),
        }
    }

    fn now(&self) -> Time {
        self.origin.elapsed()
    }

    fn run(&mut self) {
        let mut cause = Cause::Started;
        loop {
            let wait = match self.work(cause) {
                Ok(wait) => wait,
                // A cancelled statement is how the stop made itself heard.
                Err(_) if session::stop_requested() => break,
                Err(Failure::Restoring) => self.stand_by(),
                Err(failure) if failure.is_extension_gone() || self.session.is_gone() => {
                    registry::report_absent(self.index);
                    return;
                }
                Err(failure) => {
                    self.session.follow_schema();
                    self.back_off(&failure)
                }
            };
            match self.wait(&wait) {
                Some(next) => cause = next,
                None => break,
            }
        }
        self.dismiss_deliverer();
        // From here on commits notify by themselves; this is for those that left it to us.
        wake::leave_post(self.index);
        if self.outside() == Outside::Owed {
            // Whoever comes next tells of what waits.
            let _ = self.tell_outside();
        }
    }

    /// While somebody restores a dump: leaves everything alone, as in a pause. Whoever restored it has us look.
    fn stand_by(&mut self) -> Wait {
        if !std::mem::replace(&mut self.standing_by, true) {
            log!(
                "mailroom worker stands by in database \"{}\" while a dump is being restored",
                self.session.database()
            );
        }
        self.paused = true;
        self.next_due = None;
        Wait {
            until: self.now().saturating_add(STAND_BY),
            then: Cause::Started,
            idle: true,
            next: Next::Restored,
        }
    }

    /// Looks, and takes batches for as long as the rule says so.
    fn work(&mut self, cause: Cause) -> Result<Wait, Failure> {
        let rule = settings::batch_rule();
        let (mut look, mut backlog) = match cause {
            Cause::Rung | Cause::Deadline => (Look::Woken, self.announced()),
            Cause::Notified => (Look::Woken, self.look(rule)?),
            Cause::Rechecked => {
                self.session.tell_of_recheck()?;
                (Look::Woken, self.poll(rule, Tell::Nobody)?)
            }
            Cause::Polled => (Look::Polled, self.poll(rule, Tell::Nobody)?),
            Cause::Started => (Look::Polled, self.poll(rule, Tell::Senders)?),
            Cause::DueNow => {
                self.tell_of_due()?;
                (Look::Woken, self.announced())
            }
            Cause::Due => {
                self.tend(Tell::Senders)?;
                (Look::Woken, self.announced())
            }
        };
        // What was announced to nobody, while no worker was here or by a transaction that was prepared, and what was
        // there before a pause.
        self.owes_outside |= matches!(cause, Cause::Started | Cause::Rechecked)
            && backlog.count > 0
            && self.leaves_tokens();
        loop {
            if self.leaves_tokens() {
                return self.serve_clients();
            }
            let outside = self.outside();
            match self.batcher.decide(rule, self.now(), backlog, look) {
                Decision::Go(trigger) => {
                    backlog = self.take_batch(rule, trigger, backlog, outside)?;
                    look = Look::AfterBatch;
                }
                Decision::LingerUntil(until) => {
                    if outside == Outside::Owed {
                        self.tell_outside()?;
                    }
                    return Ok(Wait {
                        until,
                        then: Cause::Deadline,
                        idle: false,
                        next: Next::Timeout,
                    });
                }
                Decision::Idle => return Ok(self.idle(Next::Poll)),
            }
            // The mail of one batch is on its way while the next one is taken.
            self.deliver();
            if session::stop_requested() {
                return Ok(Wait {
                    until: self.now(),
                    then: cause,
                    idle: true,
                    next: Next::Poll,
                });
            }
        }
    }

    /// Nothing is left to do until the poll floor.
    fn idle(&mut self, next: Next) -> Wait {
        self.recovered();
        Wait {
            until: self.poll_at(),
            then: Cause::Polled,
            idle: true,
            next,
        }
    }

    /// Whether tokens are left to clients.
    fn leaves_tokens(&self) -> bool {
        self.paused || !settings::collect()
    }

    /// Answers requests, which become tokens, and tells clients of those that are left to them.
    fn serve_clients(&mut self) -> Result<Wait, Failure> {
        self.batcher = Batcher::default();
        self.asked |= self.post.acknowledge_urgent();
        let answered = if self.asked && !self.paused {
            self.trigger = Trigger::Urgent;
            self.session.answer_requests()
        } else {
            Ok(())
        };
        // Before outside listeners are told: who announces later finds that nothing waits, and wakes us again.
        let announced = self.post.announced();
        self.post.account_for(announced.count);
        if self.outside() == Outside::Owed {
            self.tell_outside()?;
            self.told_at = self.now();
        }
        if self.standing_by {
            return Ok(self.stand_by());
        }
        if self.paused {
            return Ok(self.idle(Next::Resume));
        }
        answered?;
        self.asked = false;
        Ok(self.idle(Next::Left))
    }

    /// When clients are to be told of tokens that commits announced, or requests to be answered.
    fn serve_clients_at(&self, now: Time) -> Option<Time> {
        let announced = self.post.announced();
        if announced.urgent && !self.paused {
            return Some(now);
        }
        let is_owed = announced.count > 0 && settings::notify() == Notify::Auto;
        is_owed.then(|| self.told_at.saturating_add(TELL_SPACING))
    }

    fn tell_outside(&mut self) -> Result<(), Failure> {
        self.session.tell_outside()?;
        self.owes_outside = false;
        self.echo = true;
        Ok(())
    }

    /// Takes one batch, and returns what is known to wait after it.
    fn take_batch(
        &mut self,
        rule: Rule,
        trigger: Trigger,
        backlog: Backlog,
        outside: Outside,
    ) -> Result<Backlog, Failure> {
        self.trigger = trigger;
        // Asking for just as many as are known to wait spares the search for more, which has to step over
        // all that was taken while an old snapshot is held.
        let size = backlog.count.clamp(1, rule.limit);
        let urgent = self.post.acknowledge_urgent();
        if (urgent || self.asked) && self.now() >= self.answer_at {
            self.answer_requests();
        }
        // Read before the queue is: what is announced later may or may not be in the batch, and stays.
        let announced = self.announced();
        let batch = self.session.run_batch(size, trigger, outside)?;
        self.owes_outside &= outside == Outside::Told;
        let told = batch.collected > 0 && settings::notify() != Notify::Off;
        self.echo |= told || outside == Outside::Owed;
        let moved = batch.moved();
        if let Some(deliverer) = self.deliverer.as_ref().filter(|_| urgent)
            && batch.collected > 0
        {
            deliverer.look(true);
        }
        debug1!(
            "mailroom worker: collected {} tokens, skipped {} (trigger: {})",
            batch.collected,
            batch.skipped,
            trigger.as_str()
        );
        self.batcher.taken(moved);
        self.post.report_batch();
        self.recovered();
        if moved < size {
            // Nothing is left of all that was announced by then.
            self.post.account_for(announced.count);
            self.beyond = false;
            return Ok(self.announced());
        }
        self.post.account_for(moved);
        let announced = self.announced();
        self.hear_of_due();
        let now = self.now();
        if self.tend_at(now).is_some_and(|at| at <= now) {
            self.tend(Tell::Senders)?;
        } else if self.tell_at().is_some_and(|at| at <= now) {
            self.tell_of_due()?;
        }
        if self.is_poll_due() {
            self.poll(rule, Tell::Nobody)
        } else if urgent || (announced.count < rule.limit && self.beyond) {
            // Of two urgent ones the batch may have had room for one.
            self.look(rule)
        } else {
            Ok(announced)
        }
    }

    /// Answers requests, which become tokens. Those that are there already do not wait for it: it may fail.
    fn answer_requests(&mut self) {
        match self.session.answer_requests() {
            Ok(()) => self.asked = false,
            // What comes next meets the same.
            Err(Failure::Restoring | Failure::ExtensionGone) => {}
            Err(_) if session::stop_requested() => {}
            Err(failure) => {
                self.asked = true;
                self.answer_at = self.now().saturating_add(ANSWER_RETRY);
                failure.warn(
                    "mailroom worker could not answer requests, and tries again in half a minute",
                );
            }
        }
    }

    /// Whether outside listeners have to hear of what was announced, which the writers left to us.
    fn outside(&mut self) -> Outside {
        self.owes_outside |= self.post.take_untold();
        if self.owes_outside && settings::notify() == Notify::Auto {
            Outside::Owed
        } else {
            Outside::Told
        }
    }

    fn is_poll_due(&self) -> bool {
        self.now() >= self.poll_at()
    }

    /// What commits announced.
    fn announced(&self) -> Backlog {
        let announced = self.post.announced();
        Backlog {
            count: announced.count,
            urgent: announced.urgent,
        }
    }

    /// Looks at the queue itself, and sets the bell by what is there.
    fn look(&mut self, rule: Rule) -> Result<Backlog, Failure> {
        self.look_with(rule, |session| session.waiting(rule.limit))
    }

    /// Looks at the queue and after the outbox, in one statement.
    fn poll(&mut self, rule: Rule, tell: Tell) -> Result<Backlog, Failure> {
        // What has become due by now is not among what will.
        let due = self.due_now || self.next_due.is_some_and(|due| due <= server::now());
        self.due_now = false;
        let tell = self.whom_to_tell(if due { Tell::Senders } else { tell });
        self.mind_clock()?;
        self.polled_at = self.now();
        self.tended_at = self.polled_at;
        let mut tended = None;
        let backlog = self.look_with(rule, |session| {
            let (waiting, rest) = session.poll(rule.limit, tell)?;
            tended = Some(rest);
            Ok(waiting)
        })?;
        if let Some(tended) = tended {
            self.note_tended(&tended);
        }
        self.echo |= tell == Tell::Senders && settings::notify() != Notify::Off;
        Ok(backlog)
    }

    fn look_with(
        &mut self,
        rule: Rule,
        waiting: impl FnOnce(&Session) -> Result<Waiting, Failure>,
    ) -> Result<Backlog, Failure> {
        self.post.set_limit(rule.limit);
        let announced = self.post.announced();
        self.post.acknowledge_urgent();
        let waiting = waiting(&self.session)?;
        self.standing_by = false;
        self.look_by = None;
        self.beyond = waiting.count >= rule.limit;
        self.paused = waiting.paused;
        self.asked = waiting.urgent;
        // What is left to clients they were told of.
        let known = if self.leaves_tokens() {
            0
        } else {
            waiting.count
        };
        self.post.replace(announced.count, known);
        Ok(Backlog {
            count: waiting.count,
            urgent: waiting.urgent,
        })
    }

    /// Tells senders of mail that was announced.
    fn tell_of_due(&mut self) -> Result<(), Failure> {
        self.due_now = false;
        self.tended_at = self.now();
        if self.whom_to_tell(Tell::Senders) == Tell::Senders {
            self.session.tell_of_due()?;
            self.echo |= settings::notify() != Notify::Off;
        }
        Ok(())
    }

    /// Takes lapsed claims back, tells senders of what is due, and learns when that is to be done again.
    fn tend(&mut self, tell: Tell) -> Result<(), Failure> {
        self.due_now = false;
        self.mind_clock()?;
        self.tended_at = self.now();
        let tell = self.whom_to_tell(tell);
        let tended = self.session.tend(tell)?;
        self.note_tended(&tended);
        self.echo |= tell == Tell::Senders && settings::notify() != Notify::Off;
        Ok(())
    }

    /// What is under way must not be taken back because the clock has jumped.
    fn mind_clock(&mut self) -> Result<(), Failure> {
        let now = self.now();
        match &mut self.deliverer {
            Some(deliverer) => deliverer.mind_clock(&mut self.session, now),
            None => Ok(()),
        }
    }

    /// The deliverer is to look; others are told if they deliver, too.
    fn whom_to_tell(&mut self, tell: Tell) -> Tell {
        if let Some(deliverer) = &self.deliverer {
            deliverer.look(false);
        }
        if wake::others_deliver() {
            tell
        } else {
            Tell::Nobody
        }
    }

    /// One round of delivery; returns when the next one is due.
    fn deliver(&mut self) -> Delivery {
        let now = self.now();
        let Some(deliverer) = &mut self.deliverer else {
            return Delivery::Next(None);
        };
        match deliverer.round(&mut self.session, now, !self.paused) {
            Ok(next) => Delivery::Next(next),
            // A stop cancels statements, too.
            Err(_) if session::stop_requested() => Delivery::Next(None),
            Err(Failure::Restoring) => Delivery::Next(Some(now.saturating_add(STAND_BY))),
            Err(failure) if failure.is_extension_gone() || self.session.is_gone() => Delivery::Gone,
            Err(failure) => {
                failure.warn("mailroom worker could not extend its claims");
                Delivery::Next(None)
            }
        }
    }

    fn dismiss_deliverer(&mut self) {
        if let Some(deliverer) = self.deliverer.take() {
            let origin = self.origin;
            deliverer.finish(&mut self.session, move || origin.elapsed());
        }
    }

    /// Takes note of what commits said of the outbox.
    fn hear_of_due(&mut self) {
        self.due_now |= self.post.take_due_now();
        if let Some(due) = self.post.take_due() {
            self.next_due = Some(self.next_due.map_or(due, |known| known.min(due)));
        }
    }

    fn note_tended(&mut self, tended: &Tended) {
        self.next_due = tended.next_due;
        wake::set_others(tended.others);
        self.poll_pause = if tended.more {
            POLL_PAUSE
        } else {
            settings::poll_interval()
        };
    }

    /// When everything is to be looked at next.
    fn poll_at(&self) -> Time {
        // The setting may have become smaller since.
        let pause = self.poll_pause.min(settings::poll_interval());
        self.polled_at.saturating_add(pause)
    }

    /// When the outbox wants attention next.
    ///
    /// The wall clock is asked anew in every round, for it may jump; the poll floor bounds what a jump costs.
    fn tend_at(&self, now: Time) -> Option<Time> {
        let micros = self.next_due?.saturating_sub(server::now()).max(0);
        let at = now.saturating_add(Duration::from_micros(micros.unsigned_abs()));
        Some(at.max(self.tended_at.saturating_add(DUE_SPACING)))
    }

    /// When senders are to be told of mail that is due.
    fn tell_at(&self) -> Option<Time> {
        self.due_now
            .then(|| self.tended_at.saturating_add(DUE_SPACING))
    }

    /// Deletes a batch of what nobody needs any more, when it is time. Nothing waits for it, so it may fail.
    fn purge(&mut self) {
        let now = self.now();
        if now < self.purge_at || self.standing_by {
            return;
        }
        let pause = match self.session.purge() {
            Ok(true) => PURGE_PAUSE,
            // With the next poll, which wakes this process anyway.
            Ok(false) => self.poll_at().saturating_sub(self.now()),
            Err(failure) => {
                let spaced = |told: Time| now >= told.saturating_add(PURGE_RETRY);
                let tells = !session::stop_requested() && !matches!(failure, Failure::Restoring);
                if tells && self.purge_failed_at.is_none_or(spaced) {
                    self.purge_failed_at = Some(now);
                    failure.warn("mailroom worker could not purge, and tries again in a minute");
                }
                PURGE_RETRY
            }
        };
        self.purge_at = self.now().saturating_add(pause);
    }

    /// Waits until it is time, or until something else is a reason to look; `None` for a stop.
    fn wait(&mut self, wait: &Wait) -> Option<Cause> {
        loop {
            if session::stop_requested() {
                return None;
            }
            let Delivery::Next(deliver_at) = self.deliver() else {
                // The next statement says so.
                return Some(Cause::Polled);
            };
            let now = self.now();
            let notified = self.take_notified(now);
            if now >= wait.until {
                return Some(wait.then);
            }
            self.hear_of_due();
            if self.post.take_recheck() {
                self.purge_at = now;
                if let Some(deliverer) = &mut self.deliverer {
                    deliverer.hurry();
                }
                return Some(Cause::Rechecked);
            }
            // While failing, a wake-up is no reason to hurry: the next try sees all there is.
            let mut next = wait.until;
            let mut reason = wait.next;
            if now >= self.failures.retry_at() {
                if notified || self.post.take_given_back() {
                    return Some(Cause::Notified);
                }
                let tend_at = self.tend_at(now);
                if tend_at.is_some_and(|at| at <= now) {
                    return Some(Cause::Due);
                }
                let tell_at = self.tell_at();
                if tell_at.is_some_and(|at| at <= now) {
                    return Some(Cause::DueNow);
                }
                let tend_at = [tend_at, tell_at].into_iter().flatten().min();
                let rung_at = self.rung_at(now, wait.idle);
                if rung_at.is_some_and(|at| at <= now) {
                    return Some(Cause::Rung);
                }
                if self.is_poll_due() {
                    return Some(Cause::Polled);
                }
                self.purge();
                next = next.min(self.poll_at()).min(self.purge_at);
                next = rung_at.map_or(next, |at| next.min(at));
                if let Some(at) = tend_at.filter(|&at| at < next) {
                    reason = Next::Due;
                    next = at;
                }
            }
            self.post
                .report_wait(reason, next.saturating_sub(now), self.failures.count());
            let look_by = self.look_by.filter(|_| now >= self.failures.retry_at());
            let next = [look_by, deliver_at]
                .into_iter()
                .flatten()
                .fold(next, Time::min);
            // Waking a little late is no harm, waking a little early would spin.
            let pause = match next.saturating_sub(now) {
                Duration::ZERO => Duration::ZERO,
                pause => pause.saturating_add(Duration::from_micros(999)),
            };
            if pause >= STATISTICS_INTERVAL {
                // There is always more to come, it thinks.
                server::report_statistics();
            }
            server::wait_for(pause, self.deliverer.as_ref().map(Deliverer::bell));
            if BackgroundWorker::sighup_received() {
                self.reload();
                // The rule may have changed, and what made it fail may have been mended.
                return Some(Cause::Notified);
            }
        }
    }

    /// When what commits announced is a reason to act.
    fn rung_at(&self, now: Time, idle: bool) -> Option<Time> {
        if self.leaves_tokens() {
            return self.serve_clients_at(now);
        }
        let announced = self.announced();
        let full = announced.count >= settings::batch_rule().limit;
        (announced.urgent || full || (idle && announced.count > 0)).then_some(now)
    }

    /// Takes delivery of notifications; whether one is a reason to look now.
    ///
    /// The server tells neither who sent one nor on which channel. Right after the worker's own it is most
    /// likely that one; and whoever NOTIFYs others all the time must not have the worker look each time. Such
    /// a notification is looked for a little later, once for all that came.
    fn take_notified(&mut self, now: Time) -> bool {
        let came = notify::drain();
        if self.leaves_tokens() {
            // What they tell of is not for the worker.
            self.look_by = None;
            return false;
        }
        if came {
            let echo = std::mem::take(&mut self.echo);
            let spaced = self
                .heard_at
                .is_none_or(|heard| now >= heard.saturating_add(ECHO));
            if !echo && spaced {
                self.heard_at = Some(now);
                return true;
            }
            self.look_by.get_or_insert(now.saturating_add(ECHO));
        }
        self.look_by.is_some_and(|by| now >= by)
    }

    fn reload(&mut self) {
        // SAFETY: outside a transaction, on the main thread.
        unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
        if let Err(failure) = self.session.follow_settings() {
            failure.warn("mailroom worker could not take up the settings of its database");
        }
        if let Err(failure) = self.session.listen() {
            failure.warn("mailroom worker could not change its channel");
        }
        match self.deliverer.as_mut().map(Deliverer::reload) {
            Some(true) => {}
            Some(false) => self.dismiss_deliverer(),
            None => self.deliverer = start_deliverer(&self.session, self.now()),
        }
    }

    /// Plans the next try after a failure. The log is told of the first of a row, and once a minute from
    /// then on; job_runs has them all.
    fn back_off(&mut self, failure: &Failure) -> Wait {
        if self.outside() == Outside::Owed {
            // They may take what the worker cannot. It tries again if this fails, too.
            let _ = self.tell_outside();
        }
        let recorded = self.session.record_failure(failure, self.trigger);
        let verdict = self.failures.record(self.now());
        if verdict.log {
            failure.warn(&format!(
                "mailroom worker could not take a batch (attempt {}, next in {} s)",
                self.failures.count(),
                verdict.delay.as_secs()
            ));
            if let Err(second) = recorded {
                second.warn("mailroom worker could not record a failure");
            }
        }
        Wait {
            until: self.failures.retry_at(),
            then: Cause::Polled,
            idle: true,
            next: Next::Retry,
        }
    }

    fn recovered(&mut self) {
        let failures = self.failures.end();
        if failures > 0 {
            log!("mailroom worker works again after {failures} failures");
        }
    }
}

/// The deliverer that the settings want, if any.
fn start_deliverer(session: &Session, now: Time) -> Option<Deliverer> {
    Deliverer::start(session, now).unwrap_or_else(|error| {
        warning!("mailroom worker: the sending thread could not be started: {error}");
        None
    })
}
