//! The event loop of the delivery thread: hands events to the deliverers, and executes their actions.
//!
//! There is one deliverer for each transport. They share nothing but the thread, so a slow transport does not delay another.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;

use super::client::TransportClient;
use super::protocol::{Command, Exchange, Job, Shared, lock};
use super::request::RequestHandle;
use crate::deliver::Time;
use crate::deliver::clock::Clock;
use crate::deliver::events::{Action, Event, TransportStatus};
use crate::deliver::machine::Deliverer;
use crate::deliver::mail::Mail;
use crate::transport::config::{SectionState, TransportConfig};

/// How often the other transports check for mail that may fall back on them while a transport is paused.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(5);

/// One transport.
struct Transport {
    name: Arc<str>,
    /// Identifies the transport in results of requests. A later transport of the same name has another number.
    number: u64,
    deliverer: Deliverer,
    client: TransportClient,
    /// What the client was created from.
    section: SectionState,
    /// Whether it was removed from the transports file.
    is_removed: bool,
}

impl Transport {
    /// Whether a reload for the probe of another transport does not close the connections of this one.
    fn keeps_client(&self, section: &SectionState) -> bool {
        self.deliverer.paused_since().is_none() && self.section == *section
    }
}

/// The event loop.
pub(super) struct EventLoop {
    /// In the order of the file, followed by those that were removed from it.
    transports: Vec<Transport>,
    /// [`Transport::number`] of the latest one.
    latest_number: u64,
    /// The requests in flight.
    requests: JoinSet<()>,
    /// Whether a deliverer is handling an event, so that a panic is its own.
    is_handling: bool,
    is_sending_allowed: bool,
    is_stopping: bool,
    /// Whether the job runner was asked for the configuration.
    config_is_loading: bool,
    /// Number of transports that were paused at the latest turn of the loop.
    paused: usize,
    /// When the others check again.
    fallback_at: Option<Time>,
    clock: Clock,
    shared: Arc<Shared>,
    commands: UnboundedSender<Command>,
    origin: Instant,
}

impl EventLoop {
    pub(super) fn new(
        shared: Arc<Shared>,
        commands: UnboundedSender<Command>,
        origin: Instant,
    ) -> Self {
        Self {
            transports: Vec::new(),
            latest_number: 0,
            requests: JoinSet::new(),
            is_handling: false,
            is_sending_allowed: true,
            is_stopping: false,
            config_is_loading: false,
            paused: 0,
            fallback_at: None,
            clock: Clock::start(),
            shared,
            commands,
            origin,
        }
    }

    /// Abandons the requests in flight after a panic. Returns false if a deliverer panicked, so that its state is not
    /// reliable.
    pub(super) fn recover(&mut self) -> bool {
        if self.is_handling {
            return false;
        }
        self.requests = JoinSet::new();
        let reason = "the sending thread failed and was started again";
        self.handle_all(|| Event::ThreadRestarted(reason.to_owned()));
        self.publish_statuses();
        true
    }

    /// Runs until [`Command::End`].
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
            if self.clock.take_jump().is_some() {
                self.handle_all(|| Event::ClockJumped);
            }
            // Handles all commands that have arrived before it publishes the states.
            while let Some(command) = next {
                if let Command::End = command {
                    return;
                }
                self.execute(command);
                next = commands.try_recv().ok();
            }
            while self.requests.try_join_next().is_some() {}
            self.announce_fallback();
            self.drop_removed();
            self.publish_statuses();
        }
    }

    fn wake_at(&self) -> Option<Time> {
        let deliverers = self.transports.iter();
        deliverers
            .filter_map(|transport| transport.deliverer.wake_at())
            .chain(self.fallback_at)
            .min()
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Configure(transports) => self.configure(transports),
            Command::KeepConfig => {
                self.config_is_loading = false;
                self.handle_all(|| Event::ReloadFailed);
            }
            Command::All(event) => self.handle_all(|| event.clone()),
            Command::AllowSending(allowed) => {
                self.is_sending_allowed = allowed;
                self.allow_sending();
            }
            Command::Stop => {
                self.is_stopping = true;
                self.allow_sending();
            }
            Command::Exchange(name, event) => {
                let mut names = self.transports.iter().map(|transport| &transport.name);
                if let Some(index) = names.position(|known| *known == name) {
                    self.handle(index, event);
                }
            }
            Command::Request(number, event) => {
                let mut numbers = self.transports.iter().map(|transport| transport.number);
                if let Some(index) = numbers.position(|known| known == number) {
                    self.handle(index, event);
                }
            }
            Command::AbandonRequests => self.requests.abort_all(),
            Command::Tick => {
                let now = self.origin.elapsed();
                for index in 0..self.transports.len() {
                    let wake_at = self.transports[index].deliverer.wake_at();
                    if wake_at.is_some_and(|at| at <= now) {
                        self.handle(index, Event::Tick);
                    }
                }
            }
            Command::End => {}
        }
    }

    /// Sets the transports; see [`super::DeliveryThread::configure`].
    fn configure(&mut self, transports: Vec<TransportConfig>) {
        let is_for_probe = std::mem::take(&mut self.config_is_loading);
        if self.is_stopping {
            return;
        }
        // Creates the clients first, so that a panic here changes nothing.
        let configured: Vec<_> = transports
            .into_iter()
            .map(|transport| {
                let client = TransportClient::new(transport.method);
                (transport.name, transport.delivery, client, transport.state)
            })
            .collect();
        let mut old = std::mem::take(&mut self.transports);
        let mut events = Vec::new();
        for (name, config, client, section) in configured {
            let known = old.iter().position(|known| known.name == name);
            let mut transport = match known.map(|index| old.remove(index)) {
                Some(known) if is_for_probe && known.keeps_client(&section) => known,
                Some(known) => Transport {
                    client,
                    section,
                    ..known
                },
                None => {
                    self.latest_number += 1;
                    Transport {
                        name,
                        number: self.latest_number,
                        deliverer: Deliverer::default(),
                        client,
                        section,
                        is_removed: true,
                    }
                }
            };
            let index = self.transports.len();
            if std::mem::take(&mut transport.is_removed) {
                events.push((index, Event::SendingAllowed(self.is_sending_allowed)));
            }
            let config = Box::new(config);
            let event = if is_for_probe {
                Event::ReloadedForProbe(config)
            } else {
                Event::Configured(config)
            };
            events.push((index, event));
            self.transports.push(transport);
        }
        for mut removed in old {
            removed.is_removed = true;
            events.push((self.transports.len(), Event::SendingAllowed(false)));
            self.transports.push(removed);
        }
        for (index, event) in events {
            self.handle(index, event);
        }
    }

    /// Tells the transports whether they may send. Those that were removed may not.
    fn allow_sending(&mut self) {
        let is_allowed = self.is_sending_allowed && !self.is_stopping;
        for index in 0..self.transports.len() {
            let is_allowed = is_allowed && !self.transports[index].is_removed;
            self.handle(index, Event::SendingAllowed(is_allowed));
        }
    }

    /// Drops the removed transports that are idle.
    fn drop_removed(&mut self) {
        self.transports
            .retain(|transport| !(transport.is_removed && transport.deliverer.is_idle()));
        let mut transports = self.transports.iter();
        let has_stopped = self.is_stopping && transports.all(|known| known.deliverer.is_idle());
        if has_stopped && !self.shared.has_stopped.swap(true, Ordering::AcqRel) {
            self.shared.wake();
        }
    }

    /// Has the transports that are not paused check for mail that may fall back on them: when another one has been paused,
    /// and at intervals while one is.
    fn announce_fallback(&mut self) {
        let now = self.origin.elapsed();
        let (mut paused, mut others) = self.paused_and_others();
        for known in [&mut paused, &mut others] {
            known.retain(|index| !self.transports[*index].is_removed);
        }
        let is_new = paused.len() > std::mem::replace(&mut self.paused, paused.len());
        let is_active = self.is_sending_allowed && !self.is_stopping;
        if paused.is_empty() || others.is_empty() || !is_active {
            self.fallback_at = None;
        } else if is_new || self.fallback_at.is_none_or(|at| at <= now) {
            self.fallback_at = Some(now + FALLBACK_INTERVAL);
            for index in others {
                self.handle(index, Event::MailDue { urgent: false });
            }
        }
    }

    fn paused_and_others(&self) -> (Vec<usize>, Vec<usize>) {
        (0..self.transports.len()).partition(|index| self.paused_since(*index).is_some())
    }

    fn paused_since(&self, index: usize) -> Option<Time> {
        self.transports[index].deliverer.paused_since()
    }

    /// The other paused transports, and for how long they have been paused; none for a transport that is paused itself. One
    /// that is about to claim the mail of a probe is left out: without mail, it would never be found to work again.
    fn others_paused(&self, index: usize) -> Vec<(Arc<str>, Duration)> {
        if self.paused_since(index).is_some() {
            return Vec::new();
        }
        let now = self.origin.elapsed();
        let others = self.transports.iter().filter(|other| !other.is_removed);
        others
            .filter(|other| !other.deliverer.wants_probe(now))
            .filter_map(|other| {
                let since = other.deliverer.paused_since()?;
                Some((Arc::clone(&other.name), now.saturating_sub(since)))
            })
            .collect()
    }

    /// Publishes the states of the transports to the job runner, and wakes it if a state or its reason changed.
    fn publish_statuses(&self) {
        let transports = self.transports.iter();
        let statuses: Vec<(Arc<str>, TransportStatus)> = transports
            .map(|transport| (Arc::clone(&transport.name), transport.deliverer.status()))
            .collect();
        let mut published = lock(&self.shared.statuses);
        if *published != statuses {
            let is_same = |((old_name, old), (name, new)): (&Named, &Named)| {
                old_name == name && old.state == new.state && old.reason == new.reason
            };
            let is_changed =
                published.len() != statuses.len() || !published.iter().zip(&statuses).all(is_same);
            *published = statuses;
            drop(published);
            if is_changed {
                self.shared.wake();
            }
        }
    }

    /// Paused transports come first, since what falls back on the others may be their mail for a probe.
    fn handle_all(&mut self, event: impl Fn() -> Event) {
        let (paused, others) = self.paused_and_others();
        for index in paused.into_iter().chain(others) {
            self.handle(index, event());
        }
    }

    /// Hands an event to a deliverer and executes its actions.
    fn handle(&mut self, index: usize, event: Event) {
        let now = self.origin.elapsed();
        self.is_handling = true;
        let actions = self.transports[index].deliverer.handle(now, event);
        self.is_handling = false;
        let mut requests = Vec::new();
        for action in actions {
            match action {
                Action::Send { request, mails } => requests.push((request, mails)),
                other => self.pass_on(index, other),
            }
        }
        // Last, so that no other action is lost if building a request panics.
        for (request, mails) in requests {
            self.send(index, request, &mails);
        }
    }

    /// Executes any action but [`Action::Send`]; most become jobs.
    fn pass_on(&mut self, index: usize, action: Action) {
        let name = Arc::clone(&self.transports[index].name);
        match action {
            Action::ReloadConfig => {
                if !std::mem::replace(&mut self.config_is_loading, true) {
                    self.shared.push(Job::ReloadConfig);
                }
            }
            Action::Exchange { settlements, claim } => self.shared.push(Job::Exchange(Exchange {
                transport: name,
                settlements,
                claim,
                paused: claim.map_or_else(Vec::new, |_| self.others_paused(index)),
            })),
            Action::Log(event) => self.shared.push(Job::Log(name, event)),
            Action::Send { .. } => {}
        }
    }

    /// Starts a request.
    fn send(&mut self, index: usize, request: u64, mails: &Arc<Vec<Mail>>) {
        let transport = &self.transports[index];
        let handle = RequestHandle {
            transport: transport.number,
            name: Arc::clone(&transport.name),
            request,
            shared: Arc::clone(&self.shared),
            commands: self.commands.clone(),
        };
        if let Some(future) = transport.client.clone().prepare(handle, mails) {
            self.requests.spawn(future);
        }
    }
}

type Named = (Arc<str>, TransportStatus);
