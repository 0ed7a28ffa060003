//! What the sending thread does: starts requests while there are slots, and judges what comes back.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::engine::{Command, Outcome, Parcel, Report, Setup, Shared};
use super::http::{Client, Trouble};
use super::message::Message;
use super::providers::{Answer, Provider, Verdict};
use super::slots::{Slots, Time};

/// The engine as its thread has it.
pub struct Dispatcher {
    shared: Arc<Shared>,
    client: Arc<Client>,
    provider: Arc<dyn Provider>,
    slots: Slots,
    slow_limit: usize,
    queue: VecDeque<Parcel>,
    /// Where requests tell that they have ended.
    commands: UnboundedSender<Command>,
    next: u64,
    origin: Instant,
}

impl Dispatcher {
    /// Within a tokio runtime.
    pub fn new(setup: Setup, shared: Arc<Shared>, commands: UnboundedSender<Command>) -> Self {
        let (limit, slow_limit) = setup.slots;
        Self {
            shared,
            client: Arc::new(Client::new(setup.conduct)),
            provider: setup.provider,
            slots: Slots::new(limit, slow_limit),
            slow_limit,
            queue: VecDeque::new(),
            commands,
            next: 0,
            origin: Instant::now(),
        }
    }

    /// Until told to stop; then what waits comes back unsent, and what is under way is given up with the runtime.
    pub async fn run(mut self, commands: &mut UnboundedReceiver<Command>) {
        loop {
            let wake = self.slots.age(self.now());
            self.shared.set_slow(self.slots.slow());
            while self.slots.has_room()
                && let Some(parcel) = self.queue.pop_front()
            {
                self.dispatch(parcel);
            }
            let wake = wake.or_else(|| self.slots.age(self.now()));
            let mut next = match wake {
                Some(wake) => {
                    let at = (self.origin + wake).into();
                    tokio::time::timeout_at(at, commands.recv())
                        .await
                        .ok()
                        .flatten()
                }
                None => commands.recv().await,
            };
            // All that came meanwhile at once.
            while let Some(command) = next {
                if matches!(command, Command::Stop) {
                    return;
                }
                self.obey(command);
                next = commands.try_recv().ok();
            }
        }
    }

    fn now(&self) -> Time {
        self.origin.elapsed()
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Send(parcel) => self.queue.push_back(parcel),
            Command::Landed(request, mood) => {
                self.slots.finish(request);
                // Whether the others are to be sent all the same is for the worker to say, which takes a
                // moment to hear of it.
                if mood == Mood::Unwilling {
                    self.recall();
                }
            }
            Command::Recall => self.recall(),
            Command::Stop => {}
            Command::Window(window) => self.slots.resize(window, self.slow_limit),
            Command::Setup(setup) => {
                self.client = Arc::new(Client::new(setup.conduct));
                self.provider = setup.provider;
                self.slow_limit = setup.slots.1;
                self.slots.resize(setup.slots.0, setup.slots.1);
            }
        }
    }

    fn recall(&mut self) {
        for parcel in self.queue.drain(..) {
            self.shared.report(Report::unsent(parcel));
        }
    }

    /// Starts a request, or says why there is none.
    fn dispatch(&mut self, mut parcel: Parcel) {
        let now = SystemTime::now();
        // It may have waited for its slot. What is of no use any more is not sent.
        let (late, timely) = std::mem::take(&mut parcel.letters)
            .into_iter()
            .partition(|letter| letter.expires_at.is_some_and(|end| end <= now));
        if !Vec::is_empty(&late) {
            self.shared.report(Report::unsent(Parcel {
                letters: late,
                ..parcel
            }));
        }
        parcel.letters = timely;
        if parcel.letters.is_empty() {
            return;
        }
        let messages: Vec<&Message> = parcel.letters.iter().map(|l| &l.message).collect();
        // What a provider stumbles over in one mail is no fault of the others (I8).
        let request = AssertUnwindSafe(|| self.provider.request(&messages, now));
        let request = catch_unwind(request)
            .unwrap_or_else(|_| Err("the request could not be made: a bug in mailroom".to_owned()));
        let request = match request {
            Ok(request) => request,
            Err(reason) => return self.refuse(parcel, reason),
        };
        let number = self.next;
        self.next += 1;
        self.slots.start(self.now(), number);
        let flight = Flight {
            parcel: Some(parcel),
            shared: Arc::clone(&self.shared),
            number,
            mood: Mood::Willing,
            commands: self.commands.clone(),
        };
        let client = Arc::clone(&self.client);
        let provider = Arc::clone(&self.provider);
        tokio::spawn(async move {
            let count = flight.parcel.as_ref().map_or(0, |p| p.letters.len());
            let (outcome, status) = match client.post(request).await {
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
                Err(Trouble::Refused(reason)) => (Outcome::Refused(reason), None),
                Err(Trouble::Unclear(reason)) => {
                    let verdict = Verdict::Unknown { reason };
                    (Outcome::Answered(vec![verdict; count]), None)
                }
            };
            flight.land(outcome, status);
        });
    }

    /// Letters that cannot be in one request are tried each in its own; one that cannot be in any never will.
    fn refuse(&mut self, parcel: Parcel, reason: String) {
        if parcel.letters.len() == 1 {
            return self.shared.report(Report {
                parcel,
                outcome: Outcome::Answered(vec![Verdict::Permanent { reason }]),
                status: None,
            });
        }
        let Parcel { letters, turn, .. } = parcel;
        for letter in letters.into_iter().rev() {
            self.queue.push_front(Parcel {
                letters: vec![letter],
                turn,
                tries: 0,
            });
        }
    }
}

/// However the thread ends, what still waits in it was not sent.
impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.recall();
    }
}

/// How the provider is disposed, by an outcome.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Willing,
    /// It is away, wants less, or wants nothing.
    Unwilling,
}

impl Mood {
    fn after(outcome: &Outcome) -> Self {
        let unwilling = match outcome {
            Outcome::Answered(verdicts) => verdicts.iter().any(|verdict| {
                matches!(verdict, Verdict::Throttled { .. } | Verdict::Broken { .. })
            }),
            Outcome::Unreached(_) | Outcome::Refused(_) => true,
            Outcome::Unsent => false,
        };
        if unwilling {
            Self::Unwilling
        } else {
            Self::Willing
        }
    }
}

/// A parcel in a request. Reports it as given up unless somebody said what became of it, so that a panic or
/// an end in the middle loses nothing.
struct Flight {
    parcel: Option<Parcel>,
    shared: Arc<Shared>,
    number: u64,
    mood: Mood,
    commands: UnboundedSender<Command>,
}

impl Flight {
    fn land(mut self, outcome: Outcome, status: Option<u16>) {
        self.mood = Mood::after(&outcome);
        if let Some(parcel) = self.parcel.take() {
            self.shared.report(Report {
                parcel,
                outcome,
                status,
            });
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(parcel) = self.parcel.take() {
            let verdict = Verdict::Unknown {
                reason: "given up before there was an answer".to_owned(),
            };
            let outcome = Outcome::Answered(vec![verdict; parcel.letters.len()]);
            self.shared.report(Report {
                parcel,
                outcome,
                status: None,
            });
        }
        // The slot is free.
        let _ = self.commands.send(Command::Landed(self.number, self.mood));
    }
}
