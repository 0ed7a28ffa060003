//! The deliverer of one transport as a pure state machine: [`Event`]s in, [`Action`]s out.
//!
//! It has no clock, no thread and no I/O. A mail is *held* from its claim until its settle is committed: it waits in the
//! queue, is in flight, or waits for its settle. The number and the size of held mails are bounded. All decisions are taken
//! here, where the results of requests arrive; the job runner claims and settles as told, one exchange at a time.
//!
//! | module | owns |
//! |---|---|
//! | `state` | the fields of a deliverer |
//! | `settle` | ending, releasing and splitting without a response |
//! | `idempotency` | how long a provider recognizes a repeated request |
//! | `claims` | how much to claim, and the result of an exchange |
//! | `next_request` | which mails the next request contains |
//! | `outcomes` | the result of a request |

use std::sync::Arc;
use std::time::Duration;

use super::Time;
use super::breaker::SendPermit;
use super::events::{Action, Event, RequestResult};
use super::mail::{Mail, URGENT_PRIORITY};
use crate::transport::capabilities::DeliveryConfig;

mod claims;
mod idempotency;
mod next_request;
mod outcomes;
mod settle;
mod state;

pub use self::state::Deliverer;

/// While the transport waits no longer than this, held mail is not released.
const SHORT_WAIT: Duration = Duration::from_secs(5);
/// The minimum time between two probes that urgent mail causes.
const URGENT_PROBE_INTERVAL: Duration = Duration::from_secs(5);

impl Deliverer {
    /// Applies an event and returns what is to be done.
    pub fn handle(&mut self, now: Time, event: Event) -> Vec<Action> {
        match event {
            Event::Configured(config) => self.configure(now, *config),
            Event::ReloadedForProbe(config) => self.note_reloaded_for_probe(now, *config),
            Event::ReloadFailed => {
                self.config_is_fresh |= std::mem::take(&mut self.config_is_loading);
            }
            Event::SendingAllowed(allowed) => {
                self.is_halted = !allowed;
                self.claim_wanted |= allowed;
            }
            Event::LeasesEndAt(at) => self.leases_end_at = Some(at),
            Event::MailDue { urgent } => self.note_mail_due(now, urgent),
            Event::RetryNow => {
                self.breaker.retry_now(now);
                self.check_budgets = true;
                self.claim_wanted = true;
            }
            Event::Exchanged(result) => self.note_exchanged(now, *result),
            Event::ClockJumped => {
                self.clock_jumped_at = now;
                self.release_waiting(None);
            }
            Event::ClaimsInForce(ids) => self.drop_lost(&ids),
            Event::Unsendable {
                request,
                id,
                reason,
            } => self.end_unsendable(request, id, reason),
            Event::RequestDone { request, result } => self.note_request_done(now, request, result),
            Event::ThreadRestarted(reason) => {
                // Pauses first: the abandoned requests then show nothing about the provider.
                self.breaker.pause(now, &reason);
                let requests: Vec<u64> = self.requests.keys().copied().collect();
                for request in requests {
                    self.note_request_done(now, request, RequestResult::default());
                }
            }
            Event::Tick => {}
        }
        self.advance(now)
    }

    /// A reload that another transport asked for does not end a pause of this one, unless its account changed.
    fn note_reloaded_for_probe(&mut self, now: Time, config: DeliveryConfig) {
        if self.config_is_loading || !self.uses_account_of(&config) {
            return self.configure(now, config);
        }
        self.breaker.resize(config.concurrency);
        self.set_config(config);
    }

    /// What waits for the old rate does not wait for it any more.
    fn set_config(&mut self, config: DeliveryConfig) {
        if self.rate() != config.rate {
            self.rate_limiter.waits_until = None;
        }
        self.config = Some(config);
    }

    fn configure(&mut self, now: Time, config: DeliveryConfig) {
        let is_first = self.config.is_none();
        let has_new_account = !self.uses_account_of(&config);
        let concurrency = config.concurrency;
        self.set_config(config);
        if has_new_account {
            if self.has_success_sign() {
                self.breaker.distrust();
            } else {
                self.breaker.trust();
            }
            self.last_request_to_old_account = self.latest_request;
            self.split_batches(|_| true);
        }
        if std::mem::take(&mut self.config_is_loading) {
            // The probe that follows shows whether the new configuration works.
            self.breaker.resize(concurrency);
            self.config_is_fresh = true;
        } else {
            self.breaker.reset(now, concurrency);
            self.config_is_fresh = self.breaker.is_paused();
        }
        if is_first {
            self.claim_wanted = true;
            self.check_budgets = true;
        }
    }

    fn note_mail_due(&mut self, now: Time, urgent: bool) {
        self.claim_wanted = true;
        self.claim_is_urgent |= urgent;
        let may_probe = self
            .urgent_probe_at
            .is_none_or(|at| now.saturating_sub(at) >= URGENT_PROBE_INTERVAL);
        if urgent && may_probe {
            self.urgent_probe_at = Some(now);
            self.breaker.pull_probe(now);
        }
    }

    /// Whether the urgent mail that asked for this probe belongs to another transport: the mail claimed here is not urgent.
    fn has_no_urgent_mail(&self) -> bool {
        let is_claiming = self.claim_wanted || self.exchange_is_running;
        let batches = self.retry_batches.complete.iter();
        let waiting = self
            .queue
            .first()
            .into_iter()
            .chain(batches.map(|mails| &mails[0]));
        self.breaker.is_probe_pulled()
            && match waiting.map(|mail| mail.priority).min() {
                Some(priority) => priority > URGENT_PRIORITY,
                None => !is_claiming,
            }
    }

    /// Does everything that is possible now.
    fn advance(&mut self, now: Time) -> Vec<Action> {
        let mut actions = Vec::new();
        self.claim_wanted |= self.claim_at.take_if(|at| *at <= now).is_some();
        self.end_batch_waits(now);
        if self.is_halted {
            self.release_waiting(None);
        } else if self.leases_end_at.is_none_or(|end| now < end) {
            self.send_requests(now, &mut actions);
        }
        self.start_exchange(now, &mut actions);
        self.report(now, &mut actions);
        self.wake_at = self.next_wake(now);
        actions
    }

    fn send_requests(&mut self, now: Time, actions: &mut Vec<Action>) {
        match self.breaker.permit(now) {
            SendPermit::Requests(concurrency) => {
                self.probe_doublings = 0;
                while self.requests.len() < concurrency
                    && !self.waits_for_proof()
                    && !self.rate_limiter.is_waiting(now)
                    && let Some(mails) = self.next_request(now)
                {
                    self.send(mails, actions);
                }
                // The search for the next request may have paused the transport.
                if self.breaker.is_paused() {
                    self.release_waiting_in_pause();
                }
            }
            SendPermit::Probe if self.rate_limiter.is_waiting(now) || !self.has_mail() => {}
            SendPermit::Probe if !self.config_is_fresh => {
                if !self.config_is_loading {
                    self.config_is_loading = true;
                    actions.push(Action::ReloadConfig);
                }
            }
            SendPermit::Probe if self.has_no_urgent_mail() => {
                self.breaker.put_off_probe();
                self.release_waiting_in_pause();
            }
            SendPermit::Probe => {
                if let Some(mails) = self.next_probe(now) {
                    self.config_is_fresh = false;
                    let leader = mails[0].message.id;
                    self.send(mails, actions);
                    self.breaker.note_probe(self.latest_request);
                    self.breaker.remember_probe(leader);
                    // Nothing is claimed until the result is known, so these would wait for the others without effect.
                    let incomplete = self.retry_batches.take_incomplete(|_| true);
                    incomplete.iter().for_each(|mail| self.release(mail));
                }
            }
            SendPermit::ProbeInFlight => {}
            SendPermit::WaitUntil(until) => {
                if self.breaker.is_paused() || until.saturating_sub(now) > SHORT_WAIT {
                    self.release_waiting_in_pause();
                }
            }
        }
    }

    fn send(&mut self, mut mails: Vec<Mail>, actions: &mut Vec<Action>) {
        // A provider recognizes a repeated request only if it has the same bytes: its mails may be claimed in any order.
        mails.sort_unstable_by_key(|mail| mail.message.id);
        self.latest_request += 1;
        let request = self.latest_request;
        self.breaker.note_request(request);
        let mails = Arc::new(mails);
        self.requests.insert(request, Arc::clone(&mails));
        actions.push(Action::Send { request, mails });
    }

    fn report(&mut self, now: Time, actions: &mut Vec<Action>) {
        let mut events = self.breaker.take_changes();
        events.extend(self.failure_log.take(now));
        actions.extend(events.into_iter().map(Action::Log));
    }

    /// When there is something to do again without another event. Always later than `now`: the event loop would spin.
    fn next_wake(&mut self, now: Time) -> Option<Time> {
        let permitted_at = match self.breaker.permit(now) {
            SendPermit::WaitUntil(until) if self.has_mail() => Some(until),
            _ => None,
        };
        let claim_at = self.claim_wanted.then_some(self.exchange_retry_at);
        let rate_at = self.rate_limiter.waits_until;
        let send = [permitted_at, claim_at, self.claim_at, rate_at];
        let settle = [self.next_settle(), self.retry_batches.expires_at()];
        let send = send.into_iter().filter(|_| !self.is_halted);
        let times = send.chain(settle).chain([self.failure_log.next()]);
        times.flatten().filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests;
