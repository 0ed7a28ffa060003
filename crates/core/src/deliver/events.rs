//! Input and output of the state machine: events, actions, and the types that they carry.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::Time;
use super::exchange::{ClaimLimit, ExchangeResult};
use super::mail::Mail;
use super::settlements::Settlements;
use crate::transport::capabilities::DeliveryConfig;
use crate::transport::delivered::Refused;
use crate::transport::providers::MessageOutcome;

/// The result of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestResult {
    /// One outcome for each mail of the request, in order. A mail without one is [`MessageOutcome::Abandoned`].
    pub outcomes: Vec<MessageOutcome>,
    /// Status code of the response, if there was one.
    pub status: Option<u16>,
    /// Refused recipients of the only mail, if it was sent: it went to the others.
    pub refused: Vec<Refused>,
}

/// Input of the state machine.
#[derive(Clone)]
pub enum Event {
    /// The transports file was read because it may have changed.
    Configured(Box<DeliveryConfig>),
    /// The transports file was read again for a probe of this transport or of another one.
    ReloadedForProbe(Box<DeliveryConfig>),
    /// The transports file could not be read. The previous configuration stays in force.
    ReloadFailed,
    /// Whether mail may be claimed and sent.
    SendingAllowed(bool),
    /// The leases of all held mails end at this time, unless a later event extends them.
    LeasesEndAt(Time),
    /// Mail may be due.
    MailDue {
        /// Whether it includes urgent mail, for which a person waits.
        urgent: bool,
    },
    /// An operator asks for an immediate retry of everything.
    RetryNow,
    /// [`Action::Exchange`] committed or failed.
    Exchanged(Box<ExchangeResult>),
    /// The wall clock has jumped, perhaps because the machine was suspended: it is not known how much time has passed since
    /// the held mails were claimed.
    ClockJumped,
    /// `outbox.id` of all mails whose claims are still valid. The claims of the others that are held were lost.
    ClaimsInForce(Arc<HashSet<i64>>),
    /// A mail that cannot be expressed as a request, and was left out of it.
    Unsendable {
        /// Number of the request.
        request: u64,
        /// `outbox.id`.
        id: i64,
        /// Why.
        reason: String,
    },
    /// A request has ended.
    RequestDone {
        /// Number of the request.
        request: u64,
        /// For the mails that were in it.
        result: RequestResult,
    },
    /// The delivery thread failed for this reason and was started again. No response will arrive for earlier requests.
    ThreadRestarted(String),
    /// The time that [`super::machine::Deliverer::wake_at`] returned has come.
    Tick,
}

/// Output of the state machine.
pub enum Action {
    /// Read the transports file, then send [`Event::ReloadedForProbe`] or [`Event::ReloadFailed`].
    ReloadConfig,
    /// Send one request with these mails.
    Send {
        /// Number of the request. Numbers increase.
        request: u64,
        /// At least one mail.
        mails: Arc<Vec<Mail>>,
    },
    /// Settle and claim in one transaction.
    Exchange {
        /// The mails to settle.
        settlements: Box<Settlements>,
        /// How much to claim, if anything.
        claim: Option<ClaimLimit>,
    },
    /// Write to the log.
    Log(LogEvent),
}

/// A fact for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// The circuit breaker paused for this reason; the first probe follows after this time.
    Paused(String, Duration),
    /// The provider throttles for this reason; the next request follows after this time.
    Throttled(String, Duration),
    /// Sending resumed after a pause, or a throttle in the log, of this length.
    Resumed(Duration),
    /// Number of mails that ended as `error` since the last such event, and the reason of the latest.
    Failed(u64, String),
    /// A mail was sent to some of its recipients only.
    RecipientsRefused {
        /// `outbox.id`.
        id: i64,
        /// Number of refused recipients.
        count: usize,
        /// The reason for the first one, without its address.
        reason: String,
    },
    /// A mail as one line, from a transport that writes mail to the log instead of sending it.
    Logged(String),
}

/// The state of a transport, as published in the table `transports`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransportStatus {
    /// `healthy`, `slowed`, `throttled` or `paused`.
    pub state: &'static str,
    /// Why the state is not `healthy`; may be empty.
    pub reason: String,
    /// The time of the next attempt, if the transport waits.
    pub next_try: Option<Time>,
    /// Number of ambiguous attempts since the deliverer started.
    pub ambiguous: u64,
}
