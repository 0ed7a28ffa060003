//! What runs on a deliverer's thread: hands it its events, and makes its requests.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;

use super::Now;
use super::events::{Action, Event, Outcome};
use super::machine::Deliverer;
use super::mail::Mail;
use super::thread::{Command, Job, Shared, lock};
use crate::message::Message;
use crate::transport::http::{Client, Reply, Trouble};
use crate::transport::providers::{Answer, Provider, Request, Verdict};

/// What runs on the thread.
pub(super) struct Driver {
    deliverer: Deliverer,
    setup: Option<Setup>,
    tasks: JoinSet<()>,
    /// The deliverer is at work: a panic is its own.
    is_deciding: bool,
    shared: Arc<Shared>,
    commands: UnboundedSender<Command>,
    origin: Instant,
}

#[derive(Clone)]
struct Setup {
    provider: Arc<dyn Provider>,
    client: Arc<Client>,
}

impl Driver {
    pub(super) fn new(
        shared: Arc<Shared>,
        commands: UnboundedSender<Command>,
        origin: Instant,
    ) -> Self {
        Self {
            deliverer: Deliverer::new(),
            setup: None,
            tasks: JoinSet::new(),
            is_deciding: false,
            shared,
            commands,
            origin,
        }
    }

    /// After a panic: gives up what was in flight. False when the deliverer itself is not to be relied on any more.
    pub(super) fn begin_anew(&mut self) -> bool {
        if self.is_deciding {
            return false;
        }
        self.tasks = JoinSet::new();
        let reason = "the sending thread failed and was started anew";
        self.handle(Event::Failed(reason.to_owned()));
        self.show();
        true
    }

    pub(super) async fn run(&mut self, commands: &mut UnboundedReceiver<Command>) {
        loop {
            let mut next = match self.deliverer.wake_at() {
                Some(at) => {
                    let at = (self.origin + at).into();
                    match tokio::time::timeout_at(at, commands.recv()).await {
                        Ok(command) => command,
                        Err(_) => Some(Command::Event(Event::Tick)),
                    }
                }
                None => commands.recv().await,
            };
            if next.is_none() {
                return;
            }
            // All that came meanwhile at once.
            while let Some(command) = next {
                match command {
                    Command::Event(event) => self.handle(event),
                    Command::Setup(setup) => {
                        let (limits, conduct) = *setup;
                        self.setup = Some(Setup {
                            provider: Arc::clone(&limits.provider),
                            client: Arc::new(Client::new(conduct)),
                        });
                        self.handle(Event::Configured(Box::new(limits)));
                    }
                    Command::GiveUp => self.tasks.abort_all(),
                    Command::End => return,
                }
                next = commands.try_recv().ok();
            }
            while self.tasks.try_join_next().is_some() {}
            self.show();
        }
    }

    /// Has people see how it is.
    fn show(&self) {
        let status = self.deliverer.status();
        let mut shown = lock(&self.shared.status);
        if *shown != status {
            let is_news = shown.state != status.state || shown.reason != status.reason;
            *shown = status;
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

    fn handle(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            self.is_deciding = true;
            let actions = self.deliverer.handle(self.now(), event);
            self.is_deciding = false;
            for action in actions {
                match action {
                    Action::Send { request, mails } => events.extend(self.send(request, &mails)),
                    Action::Configure => self.shared.push(Job::Configure),
                    Action::Exchange {
                        settlements,
                        appetite,
                    } => self.shared.push(Job::Exchange {
                        settlements,
                        appetite,
                    }),
                    Action::Tell(news) => self.shared.push(Job::Tell(news)),
                    Action::Rest => {
                        self.shared.resting.store(true, Ordering::Release);
                        self.shared.ring();
                    }
                }
            }
        }
    }

    /// Starts a request; returns what is known of its mails at once.
    fn send(&mut self, number: u64, mails: &[Mail]) -> Vec<Event> {
        let mut events = Vec::new();
        let given_up = |events: &mut Vec<Event>| {
            events.push(Event::Answered {
                request: number,
                outcome: Outcome::GivenUp,
                status: None,
            });
        };
        let Some(setup) = self.setup.clone() else {
            given_up(&mut events);
            return events;
        };
        let now = SystemTime::now();
        let mut sendable: Vec<&Mail> = mails.iter().collect();
        let mut made = request(&*setup.provider, &sendable, now);
        if made.is_err() {
            // What cannot be put into a request is no fault of the others (I8).
            sendable.retain(|mail| match request(&*setup.provider, &[mail], now) {
                Ok(_) => true,
                Err(reason) => {
                    events.push(Event::Unsendable {
                        request: number,
                        id: mail.message.id,
                        reason,
                    });
                    false
                }
            });
            made = request(&*setup.provider, &sendable, now);
        }
        match made {
            Ok(request) if !sendable.is_empty() => {
                let landing = Landing {
                    request: number,
                    commands: self.commands.clone(),
                    is_done: false,
                };
                self.tasks
                    .spawn(post(setup, request, sendable.len(), landing));
            }
            Ok(_) => given_up(&mut events),
            Err(reason) => {
                events.extend(sendable.iter().map(|mail| Event::Unsendable {
                    request: number,
                    id: mail.message.id,
                    reason: reason.clone(),
                }));
                given_up(&mut events);
            }
        }
        events
    }
}

/// One request.
async fn post(setup: Setup, request: Request, count: usize, landing: Landing) {
    let answer = setup.client.post(request, body_limit(count)).await;
    let (outcome, status) = judge(&*setup.provider, count, answer);
    landing.land(outcome, status);
}

/// How a request ends: given up unless somebody says what became of it, so that a panic or an end in the middle loses
/// nothing.
struct Landing {
    request: u64,
    commands: UnboundedSender<Command>,
    is_done: bool,
}

impl Landing {
    fn land(mut self, outcome: Outcome, status: Option<u16>) {
        self.is_done = true;
        self.say(outcome, status);
    }

    fn say(&self, outcome: Outcome, status: Option<u16>) {
        let _ = self.commands.send(Command::Event(Event::Answered {
            request: self.request,
            outcome,
            status,
        }));
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if !self.is_done {
            self.say(Outcome::GivenUp, None);
        }
    }
}

/// The request that carries these.
fn request(provider: &dyn Provider, mails: &[&Mail], now: SystemTime) -> Result<Request, String> {
    let messages: Vec<&Message> = mails.iter().map(|mail| &mail.message).collect();
    let request = AssertUnwindSafe(|| provider.request(&messages, now));
    catch_unwind(request)
        .unwrap_or_else(|_| Err("the request could not be made: a bug in mailroom".to_owned()))
}

/// How much of an answer is read that tells of so many mails.
fn body_limit(count: usize) -> usize {
    (64 << 10).max(count * (4 << 10))
}

/// What an answer, or none, means.
fn judge(
    provider: &dyn Provider,
    count: usize,
    answer: Result<Reply, Trouble>,
) -> (Outcome, Option<u16>) {
    match answer {
        Ok(reply) => {
            let answer = Answer {
                status: reply.status,
                headers: &reply.headers,
                body: &reply.body,
                now: SystemTime::now(),
            };
            let mut verdicts = provider.verdicts(count, &answer);
            if verdicts.len() != count {
                let reason = format!("the answer tells of {} messages", verdicts.len());
                verdicts = vec![Verdict::Unknown { reason }; count];
            }
            (Outcome::Answered(verdicts), Some(reply.status))
        }
        Err(Trouble::Unreached(reason)) => (Outcome::Unreached(reason), None),
        Err(Trouble::Refused(reason)) => (Outcome::Denied(reason), None),
        Err(Trouble::Unclear(reason)) => {
            let verdict = Verdict::Unknown { reason };
            (Outcome::Answered(vec![verdict; count]), None)
        }
    }
}
