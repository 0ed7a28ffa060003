//! What the sending thread does: starts requests while there are slots, and judges what comes back.
//!
//! Requests are made by carriers: tasks that take the next parcel as soon as there is an answer to the one before, so
//! that a mail costs neither a task nor a detour by the dispatcher, which sends them out and sees to what takes long.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::engine::{Command, Letter, Outcome, Parcel, Report, Setup, Shared};
use super::http::{Client, Reply, Trouble};
use super::message::Message;
use super::providers::{Answer, Provider, Request, Verdict};
use super::slots::{Slots, Time};

/// The engine as its thread has it.
pub struct Dispatcher {
    desk: Arc<Desk>,
    origin: Instant,
}

impl Dispatcher {
    /// Within a tokio runtime.
    pub fn new(setup: Setup, shared: Arc<Shared>, commands: UnboundedSender<Command>) -> Self {
        let (limit, slow_limit) = setup.slots;
        let origin = Instant::now();
        let papers = Papers {
            client: Arc::new(Client::new(setup.conduct)),
            provider: setup.provider,
            slots: Slots::new(limit, slow_limit),
            slow_limit,
            queue: VecDeque::new(),
            brakes: 0,
            next: 0,
        };
        Self {
            desk: Arc::new(Desk {
                shared,
                commands,
                origin,
                papers: Mutex::new(papers),
            }),
            origin,
        }
    }

    /// Until told to stop; then what waits comes back unsent, and what is under way is given up with the runtime.
    pub async fn run(self, commands: &mut UnboundedReceiver<Command>) {
        loop {
            let wake = self.send_out();
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

    /// Sends out as many carriers as there are slots and parcels for; returns when to look again.
    fn send_out(&self) -> Option<Time> {
        let mut papers = self.desk.papers();
        let before = papers.slots.slow();
        let wake = loop {
            // May make room.
            let wake = papers.slots.age(self.desk.now());
            let mut is_done = true;
            while let Some(flight) = self.desk.take_off(&mut papers) {
                is_done = false;
                tokio::spawn(Arc::clone(&self.desk).carry(flight));
            }
            if is_done {
                break wake;
            }
        };
        let slow = papers.slots.slow();
        self.desk.shared.set_slow(slow);
        if slow.requests > before.requests && papers.queue.is_empty() {
            // The worker may hand over more.
            self.desk.shared.ring();
        }
        wake
    }

    fn obey(&self, command: Command) {
        let mut papers = self.desk.papers();
        match command {
            // Handed over in ignorance of what the provider said last.
            Command::Send(parcel) if papers.brakes > 0 => {
                self.desk.shared.report(Report::unsent(parcel));
            }
            Command::Send(parcel) => papers.queue.push_back(parcel),
            Command::Recall => self.desk.recall(&mut papers),
            Command::Heard(brakes) => papers.brakes = papers.brakes.saturating_sub(brakes),
            Command::Look | Command::Stop => {}
            Command::Window(window) => {
                let slow_limit = papers.slow_limit;
                papers.slots.resize(window, slow_limit);
            }
            Command::Setup(setup) => {
                papers.client = Arc::new(Client::new(setup.conduct));
                papers.provider = setup.provider;
                papers.slow_limit = setup.slots.1;
                papers.slots.resize(setup.slots.0, setup.slots.1);
            }
        }
    }
}

/// What the carriers share. All of them are on one thread: nobody ever waits for the lock, which is not held while
/// anybody waits.
struct Desk {
    shared: Arc<Shared>,
    commands: UnboundedSender<Command>,
    origin: Instant,
    papers: Mutex<Papers>,
}

struct Papers {
    client: Arc<Client>,
    provider: Arc<dyn Provider>,
    slots: Slots,
    slow_limit: usize,
    queue: VecDeque<Parcel>,
    /// Reports of an unwilling provider that the worker has not heard of as far as we have heard of it.
    brakes: usize,
    next: u64,
}

impl Desk {
    fn papers(&self) -> MutexGuard<'_, Papers> {
        // Whole at any time.
        self.papers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        self.origin.elapsed()
    }

    fn recall(&self, papers: &mut Papers) {
        for parcel in papers.queue.drain(..) {
            self.shared.report(Report::unsent(parcel));
        }
    }

    /// One request after the other, as long as there is a slot and something to send.
    async fn carry(self: Arc<Self>, first: Flight) {
        let mut next = Some(first);
        while let Some(mut flight) = next {
            if let Some(request) = self.prepare(&mut flight) {
                let count = flight.parcel.as_ref().map_or(0, |p| p.letters.len());
                let answer = flight.client.post(request, body_limit(count)).await;
                flight.land(answer);
            }
            // Gives its slot back.
            drop(flight);
            next = self.take_off(&mut self.papers());
        }
    }

    /// The next parcel, if there is a slot for it.
    fn take_off(self: &Arc<Self>, papers: &mut Papers) -> Option<Flight> {
        if !papers.slots.has_room() {
            return None;
        }
        let parcel = papers.queue.pop_front()?;
        let number = papers.next;
        papers.next += 1;
        papers.slots.start(self.now(), number, parcel.letters.len());
        Some(Flight {
            parcel: Some(parcel),
            client: Arc::clone(&papers.client),
            provider: Arc::clone(&papers.provider),
            desk: Arc::clone(self),
            number,
        })
    }

    /// What is to be sent, if anything.
    fn prepare(&self, flight: &mut Flight) -> Option<Request> {
        let now = SystemTime::now();
        self.leave_out_late(&mut flight.parcel, now);
        let parcel = flight.parcel.as_mut()?;
        let mut request = request(&*flight.provider, &parcel.letters, now);
        if request.is_err() && parcel.letters.len() > 1 {
            // What cannot be put into a request is no fault of the others (I8).
            self.leave_out_unsendable(&*flight.provider, parcel, now);
            if parcel.letters.is_empty() {
                flight.parcel = None;
                return None;
            }
            request = self::request(&*flight.provider, &parcel.letters, now);
        }
        match request {
            Ok(request) => Some(request),
            Err(reason) => {
                if let Some(parcel) = flight.parcel.take() {
                    self.refuse(parcel, reason);
                }
                None
            }
        }
    }

    /// Reports those that cannot be put into a request of their own.
    fn leave_out_unsendable(&self, provider: &dyn Provider, parcel: &mut Parcel, now: SystemTime) {
        for letter in std::mem::take(&mut parcel.letters) {
            let letter = [letter];
            let refusal = request(provider, &letter, now).err();
            let letters = Vec::from(letter);
            match refusal {
                None => parcel.letters.extend(letters),
                Some(reason) => self.shared.report(Report {
                    parcel: Parcel {
                        letters,
                        turn: parcel.turn,
                        repeat: None,
                    },
                    outcome: Outcome::Unsendable(reason),
                    status: None,
                }),
            }
        }
    }

    /// It may have waited for its slot. What is of no use any more is not sent.
    fn leave_out_late(&self, place: &mut Option<Parcel>, now: SystemTime) {
        let is_late = |letter: &Letter| letter.is_late(now);
        let has_late = |parcel: &mut Parcel| parcel.letters.iter().any(is_late);
        if let Some(mut parcel) = place.take_if(has_late) {
            if parcel.repeat.is_some() {
                // The others may be known to the provider by its company.
                return self.shared.report(Report::unsent(parcel));
            }
            let (late, timely) = std::mem::take(&mut parcel.letters)
                .into_iter()
                .partition(is_late);
            self.shared.report(Report::unsent(Parcel {
                letters: late,
                turn: parcel.turn,
                repeat: None,
            }));
            parcel.letters = timely;
            *place = (!parcel.letters.is_empty()).then_some(parcel);
        }
    }

    /// Letters that cannot be in one request are tried each in its own; one that cannot be in any never will.
    fn refuse(&self, parcel: Parcel, reason: String) {
        if parcel.letters.len() == 1 {
            return self.shared.report(Report {
                parcel,
                outcome: Outcome::Unsendable(reason),
                status: None,
            });
        }
        let Parcel { letters, turn, .. } = parcel;
        let mut papers = self.papers();
        for letter in letters.into_iter().rev() {
            papers.queue.push_front(Parcel {
                letters: vec![letter],
                turn,
                repeat: None,
            });
        }
    }
}

/// The request that carries these.
fn request(
    provider: &dyn Provider,
    letters: &[Letter],
    now: SystemTime,
) -> Result<Request, String> {
    let messages: Vec<&Message> = letters.iter().map(|l| &l.message).collect();
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
        Err(Trouble::Refused(reason)) => (Outcome::Refused(reason), None),
        Err(Trouble::Unclear(reason)) => {
            let verdict = Verdict::Unknown { reason };
            (Outcome::Answered(vec![verdict; count]), None)
        }
    }
}

/// However the thread ends, what still waits in it was not sent.
impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.desk.recall(&mut self.desk.papers());
    }
}

/// Whether the provider is away, wants less, or wants nothing, by an outcome.
fn is_unwilling(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Answered(verdicts) => verdicts
            .iter()
            .any(|verdict| matches!(verdict, Verdict::Throttled { .. } | Verdict::Broken { .. })),
        Outcome::Unreached(_) | Outcome::Refused(_) => true,
        Outcome::Unsent | Outcome::Unsendable(_) => false,
    }
}

/// A parcel in its slot, and how it goes out. Reports it as given up unless somebody said what became of it, so that
/// a panic or an end in the middle loses nothing.
struct Flight {
    parcel: Option<Parcel>,
    client: Arc<Client>,
    provider: Arc<dyn Provider>,
    desk: Arc<Desk>,
    number: u64,
}

impl Flight {
    fn land(&mut self, answer: Result<Reply, Trouble>) {
        let count = self.parcel.as_ref().map_or(0, |p| p.letters.len());
        let (outcome, status) = judge(&*self.provider, count, answer);
        let Some(parcel) = self.parcel.take() else {
            return;
        };
        let unwilling = is_unwilling(&outcome);
        if status.is_some() && !unwilling {
            // How long it took tells how long answers take.
            let now = self.desk.now();
            self.desk.papers().slots.answered(now, self.number);
        }
        let shared = &self.desk.shared;
        let report = Report {
            parcel,
            outcome,
            status,
        };
        if unwilling {
            // Whether the others are to be sent all the same is for the worker to say, which takes a moment to
            // hear of it.
            shared.brake(report);
            let mut papers = self.desk.papers();
            papers.brakes += 1;
            self.desk.recall(&mut papers);
        } else {
            shared.report(report);
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
            self.desk.shared.report(Report {
                parcel,
                outcome,
                status: None,
            });
            // Its carrier has ended with it.
            let _ = self.desk.commands.send(Command::Look);
        }
        // The slot is free.
        let mut papers = self.desk.papers();
        papers.slots.finish(self.number);
        self.desk.shared.set_slow(papers.slots.slow());
    }
}
