//! What runs on the deliverers' thread: hands each deliverer its events, and makes its requests.
//!
//! One deliverer a transport. They share the thread and nothing else: what one of them waits for holds up no other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;

use super::events::{Action, Event, Limits, Status};
use super::machine::Deliverer;
use super::mail::Mail;
use super::thread::{Command, Job, Shared, lock};
use super::{Now, Time};
use crate::transport::config::Configured;

mod fallback;
mod request;
mod single;

use request::{Sender, Setup};

/// One transport.
struct Transport {
    name: Arc<str>,
    /// Never given again: an answer is for this one, not for a later one of the same name.
    number: u64,
    deliverer: Deliverer,
    setup: Setup,
    /// It is no longer in the file.
    is_leaving: bool,
    /// After a stop: nothing is in flight or to be settled any more.
    is_resting: bool,
    is_known_as_paused: bool,
}

impl Transport {
    fn new(name: Arc<str>, number: u64, setup: Setup) -> Self {
        Self {
            name,
            number,
            deliverer: Deliverer::new(),
            setup,
            is_leaving: false,
            is_resting: false,
            is_known_as_paused: false,
        }
    }

    fn is_paused(&self) -> bool {
        self.deliverer.breaker.is_paused()
    }
}

/// What runs on the thread.
pub(super) struct Driver {
    /// In the file's order, then those that are leaving.
    transports: Vec<Transport>,
    next_number: u64,
    tasks: JoinSet<()>,
    /// A deliverer is at work: a panic is its own.
    is_deciding: bool,
    allowed: bool,
    stopping: bool,
    /// The owner has been asked for the settings.
    is_configuring: bool,
    /// When the others look again because a transport is paused.
    fallback_at: Option<Time>,
    shared: Arc<Shared>,
    commands: UnboundedSender<Command>,
    origin: Instant,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Shared>,
        commands: UnboundedSender<Command>,
        origin: Instant,
    ) -> Self {
        Self {
            transports: Vec::new(),
            next_number: 1,
            tasks: JoinSet::new(),
            is_deciding: false,
            allowed: true,
            stopping: false,
            is_configuring: false,
            fallback_at: None,
            shared,
            commands,
            origin,
        }
    }

    /// After a panic: gives up what was in flight. False when a deliverer itself is not to be relied on any more.
    pub(super) fn recover(&mut self) -> bool {
        if self.is_deciding {
            return false;
        }
        self.tasks = JoinSet::new();
        let reason = "the sending thread failed and was started again";
        self.handle_all(|| Event::Failed(reason.to_owned()));
        self.show();
        true
    }

    pub(super) async fn run(&mut self, commands: &mut UnboundedReceiver<Command>) {
        loop {
            let mut next = match self.wake_at() {
                Some(at) => {
                    let at = (self.origin + at).into();
                    match tokio::time::timeout_at(at, commands.recv()).await {
                        Ok(command) => command,
                        Err(_) => Some(Command::Tick),
                    }
                }
                None => commands.recv().await,
            };
            if next.is_none() {
                return;
            }
            // All that came meanwhile at once.
            while let Some(command) = next {
                if let Command::End = command {
                    return;
                }
                self.obey(command);
                next = commands.try_recv().ok();
            }
            while self.tasks.try_join_next().is_some() {}
            self.look_for_fallback();
            self.drop_those_that_left();
            self.show();
        }
    }

    fn wake_at(&self) -> Option<Time> {
        let deliverers = self.transports.iter();
        deliverers
            .filter_map(|transport| transport.deliverer.wake_at())
            .chain(self.fallback_at)
            .min()
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Configure(transports) => self.configure(transports),
            Command::KeepConfiguration => {
                self.is_configuring = false;
                self.handle_all(|| Event::ConfigurationKept);
            }
            Command::Look { urgent } => self.handle_all(|| Event::Look { urgent }),
            Command::Hurry => self.handle_all(|| Event::Hurry),
            Command::Allow(allowed) => {
                self.allowed = allowed;
                self.handle_all(|| Event::Allowed(allowed));
            }
            Command::LeasesUntil(at) => self.handle_all(|| Event::LeasesUntil(at)),
            Command::InForce(ids) => {
                let ids = Arc::new(ids);
                self.handle_all(|| Event::InForce(Arc::clone(&ids)));
            }
            Command::Stop => {
                self.stopping = true;
                self.handle_all(|| Event::Stop);
            }
            Command::Exchange(name, event) => {
                let mut names = self.transports.iter().map(|transport| &transport.name);
                if let Some(place) = names.position(|known| *known == name) {
                    self.handle(place, event);
                }
            }
            Command::Answered(number, event) => {
                let mut numbers = self.transports.iter().map(|transport| transport.number);
                if let Some(place) = numbers.position(|known| known == number) {
                    self.handle(place, event);
                }
            }
            Command::GiveUp => self.tasks.abort_all(),
            Command::Tick => {
                let now = self.origin.elapsed();
                for place in 0..self.transports.len() {
                    let wake_at = self.transports[place].deliverer.wake_at();
                    if wake_at.is_some_and(|at| at <= now) {
                        self.handle(place, Event::Tick);
                    }
                }
            }
            Command::End => {}
        }
    }

    /// These are the transports from now on. What is in flight goes on as it was sent.
    fn configure(&mut self, transports: Vec<Configured>) {
        let is_reread = std::mem::take(&mut self.is_configuring);
        if self.stopping {
            return;
        }
        // First, so that a panic here changes nothing.
        let with_setups: Vec<(Arc<str>, Limits, Setup)> = transports
            .into_iter()
            .map(|configured| {
                let setup = Setup::new(configured.method);
                (configured.name, configured.limits, setup)
            })
            .collect();
        let mut old = std::mem::take(&mut self.transports);
        let mut told = Vec::new();
        for (name, limits, setup) in with_setups {
            let mut events = Vec::new();
            match old.iter().position(|known| known.name == name) {
                Some(place) => {
                    let mut known = old.remove(place);
                    if std::mem::take(&mut known.is_leaving) {
                        known.is_resting = false;
                        events.push(Event::Start);
                    }
                    // What a probe of another transport has had read does not cost this one its connections.
                    if !is_reread || known.is_paused() || !known.deliverer.is_at(&limits) {
                        known.setup = setup;
                    }
                    self.transports.push(known);
                }
                None => {
                    events.push(Event::Allowed(self.allowed));
                    self.transports
                        .push(Transport::new(name, self.next_number, setup));
                    self.next_number += 1;
                }
            }
            let limits = Box::new(limits);
            events.push(if is_reread {
                Event::Reread(limits)
            } else {
                Event::Configured(limits)
            });
            told.push(events);
        }
        for mut gone in old {
            gone.is_leaving = true;
            told.push(vec![Event::Stop]);
            self.transports.push(gone);
        }
        for (place, events) in told.into_iter().enumerate() {
            for event in events {
                self.handle(place, event);
            }
        }
    }

    fn drop_those_that_left(&mut self) {
        self.transports
            .retain(|transport| !(transport.is_leaving && transport.is_resting));
        let is_resting = self.stopping && self.transports.iter().all(|known| known.is_resting);
        if is_resting && !self.shared.resting.swap(true, Ordering::AcqRel) {
            self.shared.ring();
        }
    }

    /// Makes known how each is.
    fn show(&self) {
        let transports = self.transports.iter();
        let statuses: Vec<(Arc<str>, Status)> = transports
            .map(|transport| (Arc::clone(&transport.name), transport.deliverer.status()))
            .collect();
        let mut shown = lock(&self.shared.statuses);
        if *shown != statuses {
            let is_as_it_was = |((name, was), (known, status)): (&Named, &Named)| {
                name == known && was.state == status.state && was.reason == status.reason
            };
            let is_news =
                shown.len() != statuses.len() || !shown.iter().zip(&statuses).all(is_as_it_was);
            *shown = statuses;
            drop(shown);
            if is_news {
                self.shared.ring();
            }
        }
    }

    fn now(&self) -> Now {
        Now {
            at: self.origin.elapsed(),
            wall: SystemTime::now(),
        }
    }

    fn handle_all(&mut self, event: impl Fn() -> Event) {
        for place in 0..self.transports.len() {
            self.handle(place, event());
        }
    }

    fn handle(&mut self, place: usize, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let now = self.now();
            self.is_deciding = true;
            let actions = self.transports[place].deliverer.handle(now, event);
            self.is_deciding = false;
            let mut requests = Vec::new();
            for action in actions {
                match action {
                    Action::Send { request, mails } => requests.push((request, mails)),
                    other => self.pass_on(place, other),
                }
            }
            // Last, so that nothing of the rest is lost if making a request panics.
            for (request, mails) in requests {
                events.extend(self.send(place, request, &mails));
            }
        }
    }

    /// What is for the owner, or about it.
    fn pass_on(&mut self, place: usize, action: Action) {
        let name = Arc::clone(&self.transports[place].name);
        match action {
            Action::Configure => {
                if !std::mem::replace(&mut self.is_configuring, true) {
                    self.shared.push(Job::Configure);
                }
            }
            Action::Exchange {
                settlements,
                appetite,
            } => self.shared.push(Job::Exchange {
                transport: name,
                settlements,
                appetite,
                paused: appetite.map_or_else(Vec::new, |_| self.others_paused(place)),
            }),
            Action::Tell(news) => self.shared.push(Job::Tell(name, news)),
            Action::Rest => self.transports[place].is_resting = true,
            Action::Send { .. } => {}
        }
    }

    /// Starts a request; returns what is known of its mails at once.
    fn send(&mut self, place: usize, request: u64, mails: &Arc<Vec<Mail>>) -> Vec<Event> {
        let transport = &self.transports[place];
        let sender = Sender {
            transport: transport.number,
            name: Arc::clone(&transport.name),
            request,
            shared: Arc::clone(&self.shared),
            commands: self.commands.clone(),
        };
        let (sending, events) = transport.setup.clone().prepare(sender, mails);
        if let Some(sending) = sending {
            self.tasks.spawn(sending);
        }
        events
    }
}

type Named = (Arc<str>, Status);
