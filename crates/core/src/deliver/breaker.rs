//! The circuit breaker of a transport: whether to send requests now. Pure; the time comes from the caller.
//!
//! A failure concerns either one message or the transport. Different messages decide which: while others are accepted, a
//! single message does not pause the transport. One response to a batch counts as one piece of evidence, except that each
//! message that it refuses for its contents or addresses counts: the provider has judged each of them.
//!
//! | state | requests | entered when |
//! |---|---|---|
//! | `healthy` | as many at a time as configured | at the start, and after a probe that was accepted |
//! | `slowed` | fewer at a time, one more whenever as many requests as that were accepted | a throttle has ended |
//! | `throttled` | none until a given time; then half as many at a time | the provider asks for fewer requests |
//! | `paused` | a *probe*, one request, with another message each time unless something else than the provider answers; it counts as an attempt only if it, or its batch before, may have been sent | see the limits below |
//!
//! A long wait that the provider asks for, with a throttle or a failure, is believed when two responses say so; the
//! transport is then probed once a minute. Throttles in a row, of different messages, pause it as well. A message that
//! is throttled may have met a rate limit: its attempts count only if it was throttled in the first request after a
//! wait, again and again, and others were accepted in between. A message that is refused for its contents or addresses
//! may be refused because of our configuration as long as no other message is accepted.
//!
//! A transport whose provider has a sign of success is *unproven* until a message is accepted, and again after a status of
//! success without that sign: one request with one message at a time. If it has no sign either, the message may have been
//! accepted by something else, so each probe is this very message, and no other one can have copies.

use std::collections::HashSet;
use std::time::Duration;

use self::suspects::Suspects;
use super::Time;
use super::events::LogEvent;

mod record;
mod signals;
mod suspects;

pub use signals::{Disposition, Origin, SendPermit};

/// Refused requests in a row, with different messages, that pause the transport.
const MAX_REFUSED: usize = 5;
/// Failed requests in a row, with different messages, that pause the transport. Fewer messages do when they have failed
/// this often together.
const MAX_FAILED: usize = 16;
/// Requests in a row that did not reach the provider, with the same message or with others, that pause the transport.
const MAX_UNREACHABLE: usize = 3;
/// The same while the transport is unproven: one request at a time takes longer to show it.
const MAX_FAILED_UNPROVEN: usize = 3;
/// Refusals of messages in a row, for their contents or addresses, that pause the transport: of ten messages, or of fewer
/// that were refused this often together.
const MAX_REJECTED: usize = 10;
/// Recipients in a row whose mailbox was refused that count against them: a server that refuses each one is at fault.
const MAX_MAILBOXES: usize = 5;
/// The time until the first probe, and after a probe that has shown nothing. It doubles with each probe that fails.
pub const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest time between probes after failures: links are valid for a quarter of an hour, and a probe is one request.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest time between probes after refusals.
const LONGEST_REFUSAL_PAUSE: Duration = Duration::from_secs(60);
/// The same while fewer than [`MAX_REFUSED`] messages were refused, so that other messages do not wait for long.
const LONGEST_UNCERTAIN_PAUSE: Duration = Duration::from_secs(10);
/// The wait after a throttle for which the provider names no time. It doubles with each further throttle.
const FIRST_THROTTLE: Duration = Duration::from_millis(250);
/// A longer wait that a provider asks for is believed only when two responses say so.
pub const LONGEST_THROTTLE: Duration = Duration::from_secs(60);
/// The wait is doubled up to here, which is [`LONGEST_PAUSE`].
const MAX_THROTTLE_DOUBLINGS: u32 = 8;
/// The minimum time between two lines of the log about throttles.
const THROTTLE_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Throttles in a row, each after a wait and with none accepted in between, that pause the transport: the last wait was 16 s.
const MAX_FRUITLESS_WAITS: u32 = 8;
/// Number of times that a message may be throttled in the first request after a wait, while others are accepted in
/// between, before its attempts count.
const MAX_THROTTLED: u32 = 1;
/// Number of pauses after which the next one has the maximum length.
const LONGEST_AFTER: u32 = 16;

#[derive(Clone)]
struct Pause {
    since: Time,
    probe_at: Time,
    /// When the probe would be due if urgent mail had not made it due.
    pulled_from: Option<Time>,
    is_probing: bool,
    reason: String,
    /// Whether an operator has changed something since: another reason is worth another line of the log.
    is_retried: bool,
}

/// The circuit breaker of one transport.
#[derive(Clone, Default)]
pub struct CircuitBreaker {
    /// Until when the transport is throttled, and why; `None` if it is not.
    throttle: Option<(Time, String)>,
    /// `None` if the transport is not paused; otherwise it is not throttled.
    pause: Option<Pause>,
    /// Results of requests before this one show nothing about the transport as it is now.
    evidence_from: u64,
    /// The number of the latest request.
    latest: u64,
    /// First messages of the requests that were refused, failed or were throttled since a message was last accepted.
    refused: HashSet<i64>,
    failed: HashSet<i64>,
    throttled: HashSet<i64>,
    /// Number of failed requests, of those that did not reach the provider, and of refusals of messages for their contents
    /// or addresses since a message was last accepted.
    failures: usize,
    unreachable: usize,
    rejections: usize,
    /// Number of recipients that were refused for their mailbox since a message was last accepted.
    mailboxes: usize,
    /// Number of throttles that began since a message was last accepted.
    fruitless_waits: u32,
    /// The first message of the latest request for which the provider asked for a long wait.
    throttled_for_long: Option<i64>,
    /// The first message of the latest request that was throttled.
    throttled_last: i64,
    /// The reason of the latest refusal.
    refusal: String,
    /// An accepted message of this request or a later one shows that the refused messages were at fault.
    clears_refusals_from: u64,
    /// The number of the first request after the latest throttle.
    first_after_throttle: u64,
    suspects: Suspects,
    /// `None` if a message was accepted; otherwise the transport is unproven in requests after this one.
    unproven_since: Option<u64>,
    /// The message with which an unproven transport is probed: the latest probe was this one and was not answered by the
    /// provider.
    same_probe: Option<i64>,
    /// Pauses and throttles in a row, which determine the length of the next.
    pauses: u32,
    throttles: u32,
    /// Configured and current number of concurrent requests.
    max_concurrency: usize,
    concurrency: usize,
    /// Accepted requests since `concurrency` last changed.
    accepted: usize,
    throttle_logged_at: Option<Time>,
    /// When the throttle that was logged began, until a message is accepted.
    throttled_since: Option<Time>,
    changes: Vec<LogEvent>,
}

impl CircuitBreaker {
    /// Changes the number of concurrent requests.
    pub fn resize(&mut self, max_concurrency: usize) {
        if self.max_concurrency != max_concurrency {
            (self.max_concurrency, self.concurrency) = (max_concurrency, max_concurrency);
        }
    }

    /// Changes the number of concurrent requests, and retries at once: the configuration may have been corrected. Results of
    /// earlier requests count no more as evidence.
    pub fn reset(&mut self, now: Time, max_concurrency: usize) {
        (self.max_concurrency, self.concurrency) = (max_concurrency, max_concurrency);
        if !self.is_paused() {
            self.throttle = None;
            self.evidence_from = self.latest.saturating_add(1);
            self.refused.clear();
            self.forget_failures();
            self.throttled_for_long = None;
        }
        self.retry_now(now);
    }

    /// Any status of success of later requests accepts a message.
    pub fn trust(&mut self) {
        (self.unproven_since, self.same_probe) = (None, None);
    }

    /// What was accepted until now shows nothing about the provider of later requests.
    pub fn distrust(&mut self) {
        self.unproven_since = Some(self.latest);
        self.same_probe = None;
    }

    /// If the transport is unproven, the number of the latest request before it was.
    pub fn unproven_since(&self) -> Option<u64> {
        self.unproven_since
    }

    /// The message that each probe repeats, if there is one.
    pub fn same_probe(&self) -> Option<i64> {
        self.same_probe
    }

    /// Ends a throttle, or makes the next probe of a paused transport due, and starts the back-off from the beginning.
    pub fn retry_now(&mut self, now: Time) {
        self.throttle = None;
        if let Some(pause) = &mut self.pause {
            pause.probe_at = pause.probe_at.min(now);
            pause.pulled_from = None;
            pause.is_retried = true;
            self.pauses = 0;
        }
    }

    /// Makes the next probe of a paused transport due. The back-off continues after it. A throttle lasts: the provider named
    /// its end.
    pub fn pull_probe(&mut self, now: Time) {
        if let Some(pause) = &mut self.pause
            && pause.probe_at > now
        {
            pause.pulled_from = Some(std::mem::replace(&mut pause.probe_at, now));
        }
    }

    /// Whether the next probe is due because of [`Self::pull_probe`].
    pub fn is_probe_pulled(&self) -> bool {
        let pause = self.pause.as_ref();
        pause.is_some_and(|pause| pause.pulled_from.is_some())
    }

    /// Takes [`Self::pull_probe`] back.
    pub fn put_off_probe(&mut self) {
        if let Some(pause) = &mut self.pause
            && let Some(at) = pause.pulled_from.take()
        {
            pause.probe_at = at;
        }
    }

    /// A recipient of a message of this request was refused for its mailbox. Whether that counts against the recipient: not
    /// while nothing was accepted since the last pause or change of the configuration, since the server may refuse all.
    pub fn blames_mailbox(&mut self, request: u64) -> bool {
        self.mailboxes += 1;
        let has_accepted =
            self.suspects.accepted > 0 && self.suspects.accepted >= self.evidence_from;
        has_accepted
            && !self.is_paused()
            && request >= self.evidence_from
            && self.mailboxes <= MAX_MAILBOXES
    }

    /// Whether the state is `paused`.
    pub fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// When the transport was paused, if it is.
    pub fn paused_since(&self) -> Option<Time> {
        self.pause.as_ref().map(|pause| pause.since)
    }

    /// Whether the transport is paused, and a probe is due and not in flight.
    pub fn is_probe_due(&self, now: Time) -> bool {
        let pause = self.pause.as_ref();
        pause.is_some_and(|pause| !pause.is_probing && pause.probe_at <= now)
    }

    /// What may be sent now.
    pub fn permit(&mut self, now: Time) -> SendPermit {
        match (&self.pause, &self.throttle) {
            (Some(pause), _) if pause.is_probing => SendPermit::ProbeInFlight,
            (Some(pause), _) if now < pause.probe_at => SendPermit::WaitUntil(pause.probe_at),
            (Some(_), _) => SendPermit::Probe,
            (None, Some((until, _))) if now < *until => SendPermit::WaitUntil(*until),
            (None, _) => {
                if self.throttle.take().is_some() {
                    self.first_after_throttle = self.latest + 1;
                }
                SendPermit::Requests(self.concurrency)
            }
        }
    }

    /// A request is sent. The numbers of requests increase.
    pub fn note_request(&mut self, request: u64) {
        self.latest = request;
    }

    /// This is the first message of the probe that was sent: the next probe is another message, if there is one.
    pub fn remember_probe(&mut self, id: i64) {
        self.suspects.add_probed(id, self.latest);
    }

    /// A probe is sent.
    pub fn note_probe(&mut self, request: u64) {
        self.note_request(request);
        if let Some(pause) = &mut self.pause {
            pause.is_probing = true;
            pause.pulled_from = None;
            self.evidence_from = request;
        }
    }

    /// If this request is the probe in flight, it has shown nothing, and another one follows at this time.
    pub fn end_probe(&mut self, request: u64, next_at: Time) {
        if let Some(pause) = &mut self.pause
            && pause.is_probing
            && request >= self.evidence_from
        {
            pause.is_probing = false;
            pause.probe_at = next_at;
        }
    }

    /// Whether other messages are to be sent before this one, because it was refused or throttled, or was a probe in this
    /// pause. While the transport is healthy, that ends as soon as another message is accepted.
    pub fn is_suspect(&self, id: i64) -> bool {
        let is_doubtful = self.is_paused() || self.has_open_refusals();
        self.suspects.contains(id, is_doubtful)
    }

    /// The number of the latest request in which this message was a probe in this pause; 0 if it was none.
    pub fn last_probe(&self, id: i64) -> u64 {
        self.suspects.probed.get(&id).copied().unwrap_or_default()
    }

    /// Whether this is the first message of the latest request that was throttled. Another suspect goes before it.
    pub fn was_throttled_last(&self, id: i64) -> bool {
        self.throttled_last == id
    }

    /// Whether messages were refused, and it is not known yet whether they or the transport are at fault.
    pub fn has_open_refusals(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Pauses because of open refusals: no other message can show whether the refused messages are at fault.
    pub fn attribute_refusals(&mut self, now: Time) {
        let reason = std::mem::take(&mut self.refusal);
        self.pause_for(now, &reason, self.longest_refusal_pause(), None);
    }

    fn forget_failures(&mut self) {
        self.failed.clear();
        self.throttled.clear();
        (self.failures, self.unreachable, self.rejections) = (0, 0, 0);
        self.fruitless_waits = 0;
        self.mailboxes = 0;
    }

    fn longest_refusal_pause(&self) -> Duration {
        if self.refused.len() < MAX_REFUSED {
            LONGEST_UNCERTAIN_PAUSE
        } else {
            LONGEST_REFUSAL_PAUSE
        }
    }

    /// Pauses, or extends a pause, for a reason that concerns all messages.
    pub fn pause(&mut self, now: Time, why: &str) {
        self.pause_for(now, why, LONGEST_PAUSE, None);
    }

    /// The next probe is not sent before the time that the provider named, if it did.
    fn pause_for(&mut self, now: Time, why: &str, longest: Duration, named: Option<Duration>) {
        self.pauses = self.pauses.saturating_add(1);
        let wait = doubled(FIRST_PAUSE, self.pauses, longest).max(named.unwrap_or_default());
        let earlier = self.pause.take();
        let is_known = |pause: &Pause| !pause.is_retried || pause.reason == why;
        if !earlier.as_ref().is_some_and(is_known) {
            self.changes.push(LogEvent::Paused(why.to_owned(), wait));
        }
        self.throttle = None;
        self.pause = Some(Pause {
            since: earlier.map_or(now, |pause| pause.since),
            probe_at: now.saturating_add(wait),
            pulled_from: None,
            is_probing: false,
            reason: why.to_owned(),
            is_retried: false,
        });
        // Only the next probe shows something about the transport.
        self.evidence_from = u64::MAX;
        self.forget_failures();
    }

    /// Takes the changes for the log, in order.
    pub fn take_changes(&mut self) -> Vec<LogEvent> {
        std::mem::take(&mut self.changes)
    }

    /// The name of the state, its reason, and the time of the next attempt.
    pub fn status(&self) -> (&'static str, &str, Option<Time>) {
        match (&self.pause, &self.throttle) {
            (Some(pause), _) => ("paused", &pause.reason, Some(pause.probe_at)),
            (None, Some((until, reason))) => ("throttled", reason, Some(*until)),
            (None, None) if self.concurrency < self.max_concurrency => ("slowed", "", None),
            (None, None) => ("healthy", "", None),
        }
    }
}

fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first
        .saturating_mul(1 << times.saturating_sub(1).min(16))
        .min(longest)
}

#[cfg(test)]
mod tests;
