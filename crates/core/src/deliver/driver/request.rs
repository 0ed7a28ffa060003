//! The requests of a transport, and what their answers mean.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::mpsc::UnboundedSender;

use super::single;
use crate::deliver::events::{Event, News, Outcome};
use crate::deliver::mail::Mail;
use crate::deliver::thread::{Command, Job, Shared};
use crate::message::Message;
use crate::transport::config::Method;
use crate::transport::http::{Client, Reply, Trouble};
use crate::transport::providers::{Answer, Provider, Request, Verdict};
use crate::transport::single::Single;

/// How a transport's requests are made and sent.
#[derive(Clone)]
pub(super) enum Setup {
    Http(Http),
    Single(Arc<Single>),
}

/// To a provider.
#[derive(Clone)]
pub(super) struct Http {
    provider: Arc<dyn Provider>,
    client: Arc<Client>,
}

/// A request under way.
pub(super) type Sending = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Whose request it is, and where its answer goes.
pub(super) struct Sender {
    /// Which transport, by its number.
    pub(super) transport: u64,
    /// The same by its name, for the log.
    pub(super) name: Arc<str>,
    /// The request's number.
    pub(super) request: u64,
    pub(super) shared: Arc<Shared>,
    pub(super) commands: UnboundedSender<Command>,
}

impl Sender {
    pub(super) fn tell(&self, news: News) {
        self.shared.push(Job::Tell(Arc::clone(&self.name), news));
    }

    pub(super) fn say(&self, event: Event) {
        // Without a receiver, the thread ends.
        let _ = self.commands.send(Command::Answered(self.transport, event));
    }
}

impl Setup {
    /// Within a tokio runtime.
    pub(super) fn new(method: Method) -> Self {
        match method {
            Method::Http { provider, conduct } => Self::Http(Http {
                provider,
                client: Arc::new(Client::new(*conduct)),
            }),
            Method::Single(single) => Self::Single(single),
        }
    }

    /// The request of as many of these mails as can be put into one, to be awaited; and what is known of the others.
    pub(super) fn prepare(
        self,
        sender: Sender,
        mails: &Arc<Vec<Mail>>,
    ) -> (Option<Sending>, Vec<Event>) {
        match self {
            Self::Http(http) => http.prepare(sender, mails),
            Self::Single(single) => single::prepare(single, sender, mails),
        }
    }
}

impl Http {
    fn prepare(self, sender: Sender, mails: &[Mail]) -> (Option<Sending>, Vec<Event>) {
        let mut events = Vec::new();
        let number = sender.request;
        let unsendable = |mail: &Mail, reason| Event::Unsendable {
            request: number,
            id: mail.message.id,
            reason,
        };
        let now = SystemTime::now();
        let mut sendable: Vec<&Mail> = mails.iter().collect();
        let mut made = request(&*self.provider, &sendable, now);
        if made.is_err() {
            // What cannot be put into a request is no fault of the others (I8).
            sendable.retain(|mail| match request(&*self.provider, &[mail], now) {
                Ok(_) => true,
                Err(reason) => {
                    events.push(unsendable(mail, reason));
                    false
                }
            });
            made = request(&*self.provider, &sendable, now);
        }
        match made {
            Ok(request) if !sendable.is_empty() => {
                let landing = Landing::new(sender);
                let sending = post(self, request, sendable.len(), landing);
                return (Some(Box::pin(sending)), events);
            }
            Ok(_) => {}
            Err(reason) => {
                events.extend(sendable.iter().map(|mail| unsendable(mail, reason.clone())));
            }
        }
        events.push(Event::Answered {
            request: number,
            outcome: Outcome::GivenUp,
            status: None,
        });
        (None, events)
    }
}

/// One request.
async fn post(http: Http, request: Request, count: usize, landing: Landing) {
    let answer = http.client.post(request, body_limit(count)).await;
    let (outcome, status) = judge(&*http.provider, count, answer);
    landing.land(outcome, status);
}

/// How a request ends: given up unless it is said what became of it, so that a panic or an end in the middle loses
/// nothing.
pub(super) struct Landing {
    pub(super) sender: Sender,
    /// How it ends if nothing is said; none once something was.
    otherwise: Option<Outcome>,
}

impl Landing {
    pub(super) fn new(sender: Sender) -> Self {
        Self {
            sender,
            otherwise: Some(Outcome::GivenUp),
        }
    }

    /// For a request that waits before anything of it is written.
    pub(super) fn waiting(sender: Sender, reason: &str) -> Self {
        Self {
            sender,
            otherwise: Some(Outcome::Unreached(reason.to_owned())),
        }
    }

    /// From now on it may have been written.
    pub(super) fn begin(&mut self) {
        self.otherwise = Some(Outcome::GivenUp);
    }

    pub(super) fn land(mut self, outcome: Outcome, status: Option<u16>) {
        self.otherwise = None;
        self.say(outcome, status);
    }

    fn say(&self, outcome: Outcome, status: Option<u16>) {
        self.sender.say(Event::Answered {
            request: self.sender.request,
            outcome,
            status,
        });
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if let Some(outcome) = self.otherwise.take() {
            self.say(outcome, None);
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
