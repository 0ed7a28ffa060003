//! The state of a deliverer, and questions about it that change nothing.

use std::collections::HashMap;
use std::sync::Arc;

use crate::deliver::Time;
use crate::deliver::breaker::CircuitBreaker;
use crate::deliver::events::TransportStatus;
use crate::deliver::failure_log::FailureLog;
use crate::deliver::held::HeldMails;
use crate::deliver::mail::Mail;
use crate::deliver::queue::Queue;
use crate::deliver::rate_limiter::RateLimiter;
use crate::deliver::retry_batches::RetryBatches;
use crate::deliver::settlements::Settlements;
use crate::deliver::throughput::{ExchangeTime, Throughput};
use crate::transport::capabilities::DeliveryConfig;
use crate::transport::rate::Rate;

/// The deliverer of one transport. It begins without a configuration, and does nothing until it has one.
///
/// Every held mail is in exactly one of `queue`, `retry_batches`, `requests`, `settlements` and `refused`.
#[derive(Default)]
pub struct Deliverer {
    /// `None` until the transports file was read.
    pub(super) config: Option<DeliveryConfig>,
    pub(super) breaker: CircuitBreaker,
    pub(super) rate_limiter: RateLimiter,

    pub(super) held: HeldMails,
    pub(super) queue: Queue,
    pub(super) retry_batches: RetryBatches,
    /// The mails of the requests in flight, by the numbers of the requests.
    pub(super) requests: HashMap<u64, Arc<Vec<Mail>>>,
    /// The maximum number of mails in a batch after one that may have been sent.
    pub(super) max_batch: Option<usize>,
    /// Number of the latest request.
    pub(super) latest_request: u64,
    /// Requests up to this number went to another account.
    pub(super) last_request_to_old_account: u64,

    pub(super) settlements: Settlements,
    /// When `settlements` are to be settled at the latest.
    pub(super) settle_at: Option<Time>,
    /// Settlements that the database refused, and when they are added to `settlements` again.
    pub(super) refused: Settlements,
    pub(super) repeat_at: Time,
    pub(super) exchange_is_running: bool,
    /// No exchange starts before this time.
    pub(super) exchange_retry_at: Time,

    /// Whether mail may be due.
    pub(super) claim_wanted: bool,
    /// The average size in bytes of the mails of the latest claim.
    pub(super) mail_size: Option<usize>,
    /// Whether it includes urgent mail.
    pub(super) claim_is_urgent: bool,
    /// When to claim again because a spent budget has room again.
    pub(super) claim_at: Option<Time>,
    /// Whether a budget may exist.
    pub(super) check_budgets: bool,
    /// How many times the number of mails that are claimed to choose a probe from was doubled.
    pub(super) probe_doublings: u32,
    /// When urgent mail last caused a probe.
    pub(super) urgent_probe_at: Option<Time>,
    /// Whether [`crate::deliver::events::Action::ReloadConfig`] waits for its event.
    pub(super) config_is_loading: bool,
    /// Whether the configuration was read for the next probe.
    pub(super) config_is_fresh: bool,

    pub(super) throughput: Throughput,
    pub(super) exchange_time: ExchangeTime,
    pub(super) failure_log: FailureLog,
    pub(super) ambiguous_count: u64,

    /// When the wall clock jumped: how much time has passed since an earlier claim is not known.
    pub(super) clock_jumped_at: Time,
    /// Whether sending is not allowed.
    pub(super) is_halted: bool,
    /// Nothing is sent from this time on: another deliverer may have claimed the held mails.
    pub(super) leases_end_at: Option<Time>,
    pub(super) wake_at: Option<Time>,
}

impl Deliverer {
    /// When [`crate::deliver::events::Event::Tick`] is due, if no other event comes first.
    pub fn wake_at(&self) -> Option<Time> {
        self.wake_at
    }

    /// The state of the transport.
    pub fn status(&self) -> TransportStatus {
        let (state, reason, next_try) = self.breaker.status();
        TransportStatus {
            state,
            reason: reason.to_owned(),
            next_try,
            ambiguous: self.ambiguous_count,
        }
    }

    /// Whether sending is not allowed, nothing is in flight, and everything is settled. A running exchange may claim mail
    /// that then has to be released.
    pub fn is_idle(&self) -> bool {
        let is_empty = self.requests.is_empty() && self.held.is_empty();
        self.is_halted && is_empty && !self.exchange_is_running
    }

    /// Since when the transport is paused, if it is.
    pub fn paused_since(&self) -> Option<Time> {
        self.breaker.paused_since()
    }

    /// Whether the transport is paused and has to claim the mail of its next probe: no other may take all of it.
    pub fn wants_probe(&self, now: Time) -> bool {
        !self.is_halted && self.has_mail() && self.breaker.is_probe_due(now)
    }

    /// Whether this configuration names the account that is in use.
    pub(super) fn uses_account_of(&self, config: &DeliveryConfig) -> bool {
        self.account() == Some(config.account.as_str())
    }

    pub(super) fn account(&self) -> Option<&str> {
        self.config.as_ref().map(|config| config.account.as_str())
    }

    pub(super) fn rate(&self) -> Option<Rate> {
        self.config.as_ref().and_then(|config| config.rate)
    }

    /// The maximum number of mails in a request at this provider.
    pub(super) fn batch_limit(&self) -> usize {
        let config = self.config.as_ref();
        config.map_or(1, |config| config.capabilities.batch_limit().max(1))
    }

    /// Whether the provider has a sign of success.
    pub(super) fn has_success_sign(&self) -> bool {
        let config = self.config.as_ref();
        config.is_some_and(|config| config.capabilities.has_success_sign())
    }

    /// Whether the transport is unproven, and the request that may prove it is in flight.
    pub(super) fn waits_for_proof(&self) -> bool {
        let since = self.breaker.unproven_since();
        since.is_some_and(|since| self.requests.keys().any(|request| *request > since))
    }

    pub(super) fn max_ambiguous(&self) -> i32 {
        let config = self.config.as_ref();
        config.map_or(0, |config| config.max_ambiguous)
    }

    pub(super) fn has_events(&self) -> bool {
        let config = self.config.as_ref();
        config.is_some_and(|config| config.has_events)
    }

    /// Whether it is not known how much time has passed since this mail was claimed. It must be claimed again.
    pub(super) fn has_unknown_age(&self, mail: &Mail) -> bool {
        mail.claimed_at < self.clock_jumped_at
    }

    /// Whether there is mail that a paused transport could be probed with.
    pub(super) fn has_mail(&self) -> bool {
        self.claim_wanted || !self.queue.is_empty() || !self.retry_batches.complete.is_empty()
    }
}
