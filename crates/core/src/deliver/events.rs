//! What a deliverer is told, and what it wants done.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::Time;
use super::intake::{Appetite, Exchanged};
use super::mail::Mail;
use super::rate::Rate;
use super::settlements::Settlements;
use crate::transport::capabilities::Capabilities;
use crate::transport::delivered::Refused;
use crate::transport::providers::Verdict;

/// How to send.
#[derive(Clone)]
pub struct Limits {
    /// What a request may hold, and whether it may be repeated.
    pub capabilities: Arc<dyn Capabilities>,
    /// Requests at a time.
    pub concurrency: usize,
    /// How much a second, in what the provider counts.
    pub rate: Option<Rate>,
    /// How often a mail is sent again that may have been sent.
    pub max_ambiguous: i32,
    /// The account it goes to, which alone knows a request again: name, provider, endpoint, from, digest of the key.
    pub address: String,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider said something, of each mail.
    Answered(Vec<Verdict>),
    /// Nothing was written.
    Unreached(String),
    /// The endpoint is nowhere that may be dialled.
    Denied(String),
    /// The answer is not waited for any more.
    GivenUp,
}

/// What happens to a deliverer.
pub enum Event {
    /// Settings were read, and may have changed.
    Configured(Box<Limits>),
    /// They were read for a probe, of this transport or another one.
    Reread(Box<Limits>),
    /// They could not be read, and the old ones hold.
    ConfigurationKept,
    /// Mail may be claimed and sent, or not.
    Allowed(bool),
    /// The claims of what is held are in force until then, unless they are extended.
    LeasesUntil(Time),
    /// There may be due mail.
    Look {
        /// A person waits for it.
        urgent: bool,
    },
    /// Everything is to be tried, at once.
    Hurry,
    /// [`Action::Exchange`] is done.
    Exchanged(Box<Exchanged>),
    /// It failed, and nothing of it happened. No other before that.
    ExchangeFailed {
        /// As they were to be told.
        settlements: Box<Settlements>,
        /// When to try again.
        retry_at: Time,
    },
    /// The claims that are in force, of those that were held before.
    InForce(Arc<HashSet<i64>>),
    /// This mail cannot be put into its request, and was left out.
    Unsendable {
        /// The request.
        request: u64,
        /// `outbox.id`.
        id: i64,
        /// Why.
        reason: String,
    },
    /// These recipients of the only mail of a request were refused, and it is sent to the others.
    RecipientsRefused {
        /// The request.
        request: u64,
        /// At least one.
        refused: Vec<Refused>,
    },
    /// A request has ended.
    Answered {
        /// Which.
        request: u64,
        /// Of the mails that were in it, in their order.
        outcome: Outcome,
        /// Of the answer, if there was one.
        status: Option<u16>,
    },
    /// The thread has failed for this reason and was started again: no answer is waited for any more.
    Failed(String),
    /// Time has passed.
    Tick,
    /// Nothing more is sent; what is in flight goes on.
    Stop,
    /// After [`Event::Stop`]: mail is sent again.
    Start,
}

/// What it wants done.
pub enum Action {
    /// Read the settings, and say [`Event::Reread`] or [`Event::ConfigurationKept`].
    Configure,
    /// Make one request of these mails.
    Send {
        /// Its number.
        request: u64,
        /// At least one.
        mails: Arc<Vec<Mail>>,
    },
    /// Settle, and claim, in one transaction.
    Exchange {
        /// What is to be told.
        settlements: Box<Settlements>,
        /// How much to claim.
        appetite: Option<Appetite>,
    },
    /// Something for the log.
    Tell(News),
    /// After [`Event::Stop`]: nothing is in flight or to be settled any more.
    Rest,
}

/// What the log is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing is sent but a probe, the first after so long.
    Paused(String, Duration),
    /// Nothing is sent for so long, and then less.
    Throttled(String, Duration),
    /// Sending goes on after so long.
    Resumed(Duration),
    /// So many mails ended as errors, the latest for this reason.
    Ended(u64, String),
    /// A mail was sent, but not to all its recipients.
    RecipientsRefused {
        /// `outbox.id`.
        id: i64,
        /// How many recipients were refused.
        count: usize,
        /// Of the first, without its address.
        reason: String,
    },
    /// A mail as a line, from a transport that writes it to the log instead of sending it.
    Logged(String),
}

/// For people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// `healthy`, `slowed`, `throttled` or `paused`.
    pub state: &'static str,
    /// Why it is not healthy.
    pub reason: String,
    /// When something is tried next.
    pub next_try: Option<Time>,
    /// When it was paused, if it is.
    pub paused_since: Option<Time>,
    /// Mails in flight.
    pub in_flight: usize,
    /// Whether any claim is held.
    pub is_holding: bool,
    /// Mails that may have been sent, since the deliverer started.
    pub ambiguous: u64,
}
