//! One database: a thread of its own, with its connection, its deliverer and its back-off.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use mailroom_core::batching::Look;
use mailroom_core::deliver::Time;
use mailroom_core::deliver::owner::Owner;
use tokio::runtime::Runtime;

use super::collector::Collector;
use super::host::Process;
use super::once::{Once, State};
use super::outage::{Outage, jitter};
use super::plan::{Ending, Plan};
use super::watch::Watch;
use crate::bell::Bell;
use crate::failure::Failure;
use crate::session::Session;
use crate::session::outbox::{Ledger, Outbox};

/// How often it is asked whether mail is left with `--once`.
const ONCE_POLL: Duration = Duration::from_millis(200);
/// How long a connection has to last for the next one to be made at once.
const STABLE: Duration = Duration::from_secs(10);
/// Begins each line of the log.
const WHO: &str = "mailroom send";

/// The database of a thread.
pub struct Database {
    plan: Plan,
    runtime: Rc<Runtime>,
    origin: Instant,
    claimant: String,
    owner: Option<Owner<Process>>,
    ledger: Ledger,
    lease: Rc<Cell<Duration>>,
    outage: Outage,
    /// Of the orders that were followed.
    reloads: u64,
    paused: bool,
}

impl Database {
    /// One that is not connected yet.
    ///
    /// # Errors
    /// When the system has nothing to spare for it.
    pub fn new(plan: Plan) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Self {
            runtime: Rc::new(runtime),
            origin: Instant::now(),
            claimant: super::new_claimant(),
            owner: None,
            ledger: Ledger::default(),
            lease: Rc::new(Cell::new(Duration::from_secs(60))),
            outage: Outage::default(),
            reloads: plan.control.orders().reloads,
            paused: false,
            plan,
        })
    }

    fn now(&self) -> Time {
        self.origin.elapsed()
    }

    fn stop_requested(&self) -> bool {
        self.plan.control.orders().stop
    }

    /// Delivers until it is told to stop, over one connection after the other.
    pub fn run(mut self) -> Ending {
        loop {
            let began = self.now();
            let plan = self.plan.clone();
            let attached = Session::attach(&self.runtime, &plan.target, &plan.control, &plan.log);
            let failure = match attached {
                Ok(mut session) => match self.serve(&mut session) {
                    Ok(ending) => {
                        self.dismiss(&mut session);
                        session.close();
                        plan.log.log("mailroom send stopped");
                        return ending;
                    }
                    Err(failure) => failure,
                },
                Err(failure) => failure,
            };
            if self.stop_requested() || plan.once {
                self.abandon();
                if self.stop_requested() {
                    return Ending::Done;
                }
                plan.log.warn(
                    &format!("cannot use the database: {failure}"),
                    "",
                    failure.hint(),
                );
                return Ending::Unreached;
            }
            if self.now().saturating_sub(began) >= STABLE {
                self.outage.forget();
            }
            let delay = self.outage.begin(&plan, &failure, self.now());
            let mut control = plan.control;
            self.runtime.block_on(async {
                let _ = tokio::time::timeout(jitter(delay), control.stopped()).await;
            });
            if self.stop_requested() {
                self.abandon();
                self.plan.log.log("mailroom send stopped");
                return Ending::Done;
            }
        }
    }

    /// Delivers over this connection until it is told to stop.
    fn serve(&mut self, session: &mut Session) -> Result<Ending, Failure> {
        let plan = self.plan.clone();
        if let Some(owner) = &mut self.owner {
            owner.note_new_store();
        }
        let poll = if plan.once {
            ONCE_POLL.min(plan.poll)
        } else {
            plan.poll
        };
        let mut watch = Watch::new(poll, self.now());
        let mut collector = session.is_collector().then(Collector::new);
        let mut look = Some(Look::Polled);
        let mut bell: Option<Bell> = None;
        let mut once = Once::default();
        let mut is_first = true;
        loop {
            if self.stop_requested() {
                return Ok(Ending::Done);
            }
            let mut is_left = None;
            if watch.is_to_ask(self.now()) {
                // What is held is not due now, and may be given back before that is looked at.
                let holds = self.owner.as_ref().is_some_and(|owner| owner.held() > 0);
                let answer = self.poll(session, &mut watch)?;
                look = look.or(answer.map(|_| Look::Polled));
                is_left = answer.filter(|_| !holds);
            }
            let is_new = self.follow_orders(session, &mut bell);
            if self.owner.is_none() && (is_new || std::mem::take(&mut is_first)) {
                bell = None;
                self.start_owner(session);
            }
            if let Some(collector) = &mut collector {
                let linger = if plan.once {
                    Duration::ZERO
                } else {
                    Duration::MAX
                };
                let origin = self.origin;
                let now = move || origin.elapsed();
                let done = collector.work(session, &plan.log, &now, look.take(), linger)?;
                if done.any {
                    self.look(done.urgent);
                    watch.notify();
                }
            }
            if watch.take_due(self.now()) {
                self.look(false);
            }
            let next = self.deliver(session)?;
            if plan.once
                && let Some(is_left) = is_left
            {
                let collected = collector.as_ref().is_none_or(Collector::is_done);
                if let Some(ending) = self.is_over(&mut once, is_left, collected) {
                    return Ok(ending);
                }
            }
            let collect_at = collector.as_ref().map(Collector::next_at);
            let until = [next, collect_at].into_iter().flatten();
            let until = until.fold(watch.next_at(), Time::min);
            self.wait(session, until, &mut bell);
            let heard = session.heard()?;
            if heard.outbox {
                watch.notify();
                self.look(false);
            }
            if let Some(owner) = self.owner.as_mut().filter(|_| heard.recheck) {
                owner.hurry();
            }
            if heard.tokens {
                look = Some(Look::Woken);
            }
        }
    }

    /// Asks the database when mail is due; returns whether some is, unless it could not be asked.
    fn poll(&mut self, session: &mut Session, watch: &mut Watch) -> Result<Option<bool>, Failure> {
        let transports = self.owner.iter().flat_map(Owner::transports);
        let names: Vec<String> = transports.map(|name| name.to_string()).collect();
        let polled = match session.poll(&names) {
            Ok(polled) => polled,
            Err(failure) if failure.is_gone() => return Err(failure),
            Err(failure) => {
                let delay = self.outage.begin(&self.plan, &failure, self.now());
                watch.put_off(self.now(), delay);
                return Ok(None);
            }
        };
        self.lease.set(session.settings().lease);
        self.paused = polled.paused;
        if let Some(owner) = &mut self.owner {
            owner.note_redirect(session.settings().redirect_to.as_deref());
        }
        if polled.is_deaf && std::mem::take(&mut self.plan.listen) {
            self.plan.log.log(
                "notifications do not reach this connection, as behind a pooler in transaction mode: it polls",
            );
        }
        if self.plan.listen && !self.plan.once {
            session.listen()?;
        }
        Outbox::new(session, &mut self.ledger)
            .release_orphans(&self.claimant)
            .or_else(|failure| {
                if failure.is_gone() {
                    Err(failure)
                } else {
                    Ok(())
                }
            })?;
        self.outage.end(&self.plan, session, self.now());
        if watch.answer(self.now(), polled.due_in) {
            self.look(false);
        }
        Ok(Some(polled.due_in.is_some_and(|seconds| seconds <= 0.0)))
    }

    /// With `--once`: how it ends, if it does.
    fn is_over(&self, once: &mut Once, is_left: bool, collected: bool) -> Option<Ending> {
        let state = State {
            tried: self.ledger.tried(),
            holds: self.owner.as_ref().is_some_and(|owner| owner.held() > 0),
            is_left: is_left || !collected,
            is_paused: self.paused,
        };
        let ending = once.end(self.now(), &state)?;
        if ending == Ending::Left {
            self.plan.log.warn(
                "mail is due that cannot be sent now",
                "It is left for later.",
                "Look at mailroom_transports, mailroom_budgets and pauses.",
            );
        }
        Some(ending)
    }

    fn look(&self, urgent: bool) {
        if let Some(owner) = &self.owner {
            owner.look(urgent);
        }
    }

    /// Reads the transports file again, if that is wanted; returns whether it was.
    fn follow_orders(&mut self, session: &mut Session, bell: &mut Option<Bell>) -> bool {
        let reloads = self.plan.control.orders().reloads;
        if std::mem::replace(&mut self.reloads, reloads) == reloads {
            return false;
        }
        if self.owner.as_mut().is_some_and(|owner| !owner.reload()) {
            *bell = None;
            self.dismiss(session);
            // Which says that there is none.
            return true;
        }
        self.owner.is_none()
    }

    /// Starts the deliverer, unless the file names no transport for this database.
    fn start_owner(&mut self, session: &Session) {
        let host = Process {
            runtime: Rc::clone(&self.runtime),
            control: self.plan.control.clone(),
            log: self.plan.log.clone(),
            path: self.plan.transports.clone(),
            database: session.database().to_owned(),
            lease: Rc::clone(&self.lease),
            files: self.plan.files,
        };
        let spawn = |body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new()
                .name("deliverer".to_owned())
                .spawn(body)
        };
        match Owner::start(host, WHO, self.claimant.clone(), spawn, self.now()) {
            Ok(Some(mut owner)) => {
                owner.note_redirect(session.settings().redirect_to.as_deref());
                self.owner = Some(owner);
                self.look(false);
            }
            Ok(None) => {
                let what = "the transports file names no transport for this database";
                self.plan.log.log(what);
            }
            Err(error) => {
                let what = format!("mailroom send cannot start a thread: {error}");
                self.plan.log.warn(&what, "", "");
            }
        }
    }

    /// One round of delivery; returns when the next one is due.
    fn deliver(&mut self, session: &mut Session) -> Result<Option<Time>, Failure> {
        let now = self.now();
        if self.owner.as_ref().is_some_and(Owner::has_failed) {
            // What it had claimed is taken back when the leases end.
            self.owner = None;
            self.claimant = super::new_claimant();
            self.ledger = Ledger::default();
            return Err(Failure::lost("the deliverer has failed"));
        }
        let Some(owner) = &mut self.owner else {
            return Ok(None);
        };
        let mut outbox = Outbox::new(session, &mut self.ledger);
        match owner.round(&mut outbox, now, !self.paused) {
            Ok(next) => Ok(next),
            Err(failure) if failure.is_gone() => Err(failure),
            Err(failure) => {
                let what = format!("mailroom send could not extend its claims: {failure}");
                self.plan.log.warn(&what, "", failure.hint());
                Ok(None)
            }
        }
    }

    /// Waits until it is time, or something happens.
    fn wait(&mut self, session: &mut Session, until: Time, bell: &mut Option<Bell>) {
        let runtime = Rc::clone(&self.runtime);
        let left = until.saturating_sub(self.now());
        if bell.is_none()
            && let Some(owner) = &self.owner
        {
            let _guard = runtime.enter();
            *bell = Bell::new(owner.bell()).ok();
        }
        let mut control = self.plan.control.clone();
        let seen = self.reloads;
        runtime.block_on(async {
            tokio::select! {
                () = session.arrival() => {}
                () = Bell::rung_if_any(bell.as_ref()) => {}
                () = tokio::time::sleep(left) => {}
                () = async {
                    while !control.orders().stop && control.orders().reloads == seen {
                        control.changed().await;
                    }
                } => {}
            }
        });
    }

    /// Gives back what was not sent, waits a little for what was, and settles it.
    fn dismiss(&mut self, session: &mut Session) {
        if let Some(owner) = self.owner.take() {
            let origin = self.origin;
            let mut outbox = Outbox::new(session, &mut self.ledger);
            owner.finish(&mut outbox, move || origin.elapsed());
        }
    }

    /// Ends without a connection.
    fn abandon(&mut self) {
        if let Some(owner) = self.owner.take()
            && owner.held() > 0
        {
            let what = format!(
                "mailroom send could not settle its last {} mails; their claims will lapse",
                owner.held()
            );
            self.plan.log.warn(&what, "There is no connection.", "");
        }
    }
}
