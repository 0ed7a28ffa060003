//! Whether the provider is to be asked at all just now. Pure.
//!
//! A message that fails is a matter of that message; a provider that refuses everybody is a matter of the
//! channel, and must not cost the messages their attempts. Which of the two it is, different messages decide:
//! one of them alone never holds up the others, and never passes for all. A transport that is paused keeps
//! everything and sends one message now and then, a probe. One answer to a request with several messages says no
//! more of the transport than an answer to one. A provider that asks for less gets a pause and then
//! half as many requests at a time; one that wants to be left alone for long is believed when it tells two messages so, and
//! asked again each minute. A message that is refused for what it is may be refused for how we are set up, as long as no
//! other one is taken. The module reads no clock.

use std::collections::HashSet;
use std::time::Duration;

use super::Time;
use super::suspects::Suspects;

mod judge;
mod signs;

pub use signs::{Disposal, News, Permit, Sign};

/// So many requests of different messages in a row, refused or without an answer, are enough.
const REFUSED: usize = 5;
const UNANSWERED: usize = 16;
/// So many different messages in a row, each refused for what it is said to be and none taken, are no matter of the messages.
const REJECTED: usize = 10;
/// The pause after the first probe that failed; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Links live a quarter of an hour, and a probe is one request.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The same for a provider that refuses.
const LONGEST_REFUSAL: Duration = Duration::from_secs(60);
/// The longest while fewer than [`REFUSED`] messages say so, that others may not have to wait for long.
const LONGEST_DOUBT: Duration = Duration::from_secs(10);
/// The same for a provider that asks for less without saying when to come again.
const FIRST_BREATH: Duration = Duration::from_millis(250);
const LONGEST_BREATH: Duration = Duration::from_secs(60);
/// A message that is throttled this often while others go through is itself what is wrong.
const PATIENCE: u32 = 4;
/// So many pauses make the next one as long as any.
const LONG: u32 = 16;

/// How the transport is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Everything waits until then.
    Throttled {
        until: Time,
        reason: String,
    },
    /// Everything waits, but for a probe at that time.
    Paused {
        since: Time,
        probe_at: Time,
        probing: bool,
        reason: String,
    },
}

/// The transport.
#[derive(Clone)]
pub struct Breaker {
    state: State,
    /// What is sent from this request on tells something of the transport as it is now.
    fresh_from: u64,
    /// The latest request.
    latest: u64,
    /// Messages that were refused, or got no answer, since one last went through.
    refused: HashSet<i64>,
    unanswered: HashSet<i64>,
    /// Those that were refused for what they are, since one was last taken.
    rejected: HashSet<i64>,
    /// Those of which the provider said that it wants to be left alone for long.
    silenced: HashSet<i64>,
    refusal: String,
    /// From this request on a message that goes through clears the transport of those refusals.
    doubted: u64,
    suspects: Suspects,
    pauses: u32,
    breaths: u32,
    /// Requests at a time, at most and just now; and successes until there may be one more.
    full: usize,
    window: usize,
    credit: usize,
    /// The log has it that less is sent.
    is_throttle_told: bool,
    news: Vec<News>,
}

impl Breaker {
    /// Open, for so many requests at a time.
    pub fn new(full: usize) -> Self {
        Self {
            state: State::Open,
            fresh_from: 0,
            latest: 0,
            refused: HashSet::new(),
            unanswered: HashSet::new(),
            rejected: HashSet::new(),
            silenced: HashSet::new(),
            refusal: String::new(),
            doubted: 0,
            suspects: Suspects::default(),
            pauses: 0,
            breaths: 0,
            full,
            window: full,
            credit: 0,
            is_throttle_told: false,
            news: Vec::new(),
        }
    }

    /// Changes how many requests there may be at a time.
    pub fn resize(&mut self, full: usize) {
        if self.full != full {
            self.full = full;
            self.window = full;
        }
    }

    /// Changes how many requests there may be at a time, and has a transport that is paused or throttled try at once:
    /// what was wrong may have been mended. Refusals of what was sent before tell nothing any more.
    pub fn reset(&mut self, now: Time, full: usize) {
        self.full = full;
        self.window = full;
        if !self.is_paused() {
            self.state = State::Open;
            self.fresh_from = self.latest.saturating_add(1);
            self.refused.clear();
            self.unanswered.clear();
            self.rejected.clear();
            self.silenced.clear();
        }
        self.hurry(now);
    }

    /// Has a transport that is paused or throttled try at once.
    pub fn hurry(&mut self, now: Time) {
        self.pull(now);
        if self.is_paused() {
            self.pauses = 0;
        }
    }

    /// Has a transport that is paused or throttled try at once, and be as patient after that as it was.
    pub fn pull(&mut self, now: Time) {
        match &mut self.state {
            State::Open => {}
            State::Throttled { until, .. } => *until = now,
            State::Paused { probe_at, .. } => *probe_at = (*probe_at).min(now),
        }
    }

    /// Whether a probe is under way.
    pub fn is_probing(&self) -> bool {
        matches!(self.state, State::Paused { probing: true, .. })
    }

    /// Whether nothing is sent but probes.
    pub fn is_paused(&self) -> bool {
        matches!(self.state, State::Paused { .. })
    }

    /// When it was paused, if it is.
    pub fn paused_since(&self) -> Option<Time> {
        match self.state {
            State::Paused { since, .. } => Some(since),
            State::Open | State::Throttled { .. } => None,
        }
    }

    /// What may be sent now.
    pub fn permit(&mut self, now: Time) -> Permit {
        match &self.state {
            State::Open => Permit::Requests(self.window),
            State::Throttled { until, .. } if now < *until => Permit::Nothing(*until),
            State::Throttled { .. } => {
                self.state = State::Open;
                Permit::Requests(self.window)
            }
            State::Paused { probing: true, .. } => Permit::Probing,
            State::Paused { probe_at, .. } if now < *probe_at => Permit::Nothing(*probe_at),
            State::Paused { .. } => Permit::Probe,
        }
    }

    /// A request is sent; each has a higher number than the one before.
    pub fn note_request(&mut self, request: u64) {
        self.latest = request;
    }

    /// So was a probe.
    pub fn note_probe(&mut self, request: u64) {
        self.note_request(request);
        if let State::Paused { probing, .. } = &mut self.state {
            *probing = true;
            self.fresh_from = request;
        }
    }

    /// What was to be in this request was not sent: if it was the probe, there will be another one.
    pub fn note_unsent(&mut self, now: Time, request: u64) {
        if let State::Paused {
            probing, probe_at, ..
        } = &mut self.state
            && request >= self.fresh_from
        {
            *probing = false;
            *probe_at = now.saturating_add(FIRST_PAUSE);
        }
    }

    /// Whether this message was refused before and nothing has gone through since: a probe had better be
    /// another one.
    pub fn is_suspect(&self, id: i64) -> bool {
        self.suspects.has(id)
    }

    /// Takes note of what a message tells, which was in this request.
    #[cfg(test)]
    pub fn judge(&mut self, now: Time, id: i64, request: u64, sign: Sign) -> Disposal {
        self.judge_shared(now, id, id, request, sign)
    }

    /// Takes note of what a message tells, which was in this request. `witness`: the first message of the
    /// request it was in, which stands for all of them, for they had one answer.
    pub fn judge_shared(
        &mut self,
        now: Time,
        id: i64,
        witness: i64,
        request: u64,
        sign: Sign,
    ) -> Disposal {
        if request < self.fresh_from && !self.is_paused() {
            // It tells of the time before a pause or a change of settings, of other credentials, say.
            match sign {
                Sign::Fails(_) | Sign::Unreached(_) => return Disposal::Settle,
                Sign::Throttles(..) | Sign::Refuses(_) | Sign::Rejects(_) => {
                    return Disposal::Release;
                }
                Sign::Works | Sign::Denied(_) => {}
            }
        }
        match sign {
            Sign::Works => self.works(now, id, witness, request),
            Sign::Fails(reason) => self.fails(now, witness, request, &reason, Disposal::Settle),
            Sign::Unreached(reason) => {
                self.fails(now, witness, request, &reason, Disposal::Release)
            }
            Sign::Throttles(reason, after) => self.throttles(now, id, request, reason, after),
            Sign::Refuses(reason) => self.refuses(now, id, witness, request, reason),
            Sign::Rejects(reason) => self.rejects(now, id, request, &reason),
            Sign::Denied(reason) => {
                if request >= self.fresh_from {
                    self.pause_for(now, &reason, LONGEST_REFUSAL);
                }
                Disposal::Release
            }
        }
    }

    /// There is nothing that could tell whose fault it is that messages are refused, nothing in flight or at hand: it is
    /// taken to be the transport's.
    pub fn end_doubt(&mut self, now: Time) {
        if self.is_doubtful() && !self.is_paused() {
            let reason = std::mem::take(&mut self.refusal);
            self.pause_for(now, &reason, self.longest());
        }
    }

    /// Whether messages were refused of late, and it is not known whose fault it is.
    pub fn is_doubtful(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Whether any message is suspected.
    pub fn has_suspects(&self) -> bool {
        self.suspects.any()
    }

    /// How long a pause may be, by how many messages were refused.
    fn longest(&self) -> Duration {
        if self.refused.len() < REFUSED {
            LONGEST_DOUBT
        } else {
            LONGEST_REFUSAL
        }
    }

    /// Pauses, or goes on pausing: for a reason that concerns all messages.
    pub fn pause(&mut self, now: Time, why: &str) {
        self.pause_for(now, why, LONGEST_PAUSE);
    }

    /// For a provider that wants to be left alone.
    fn pause_long(&mut self, now: Time, why: &str, is_believed: bool) {
        if is_believed {
            self.pauses = LONG;
        }
        self.pause_for(now, why, LONGEST_REFUSAL);
    }

    fn pause_for(&mut self, now: Time, why: &str, longest: Duration) {
        let (since, known) = match &self.state {
            State::Paused { since, reason, .. } => (*since, reason == why),
            _ => (now, false),
        };
        self.pauses = self.pauses.saturating_add(1);
        let pause = doubled(FIRST_PAUSE, self.pauses, longest);
        let probe_at = now.saturating_add(pause);
        if !known {
            self.news.push(News::Paused(why.to_owned(), probe_at));
        }
        self.state = State::Paused {
            since,
            probe_at,
            probing: false,
            reason: why.to_owned(),
        };
        // Until a probe is handed over, nothing under way tells of the transport as it is now.
        self.fresh_from = u64::MAX;
        self.unanswered.clear();
        self.rejected.clear();
    }

    /// For the log, in order.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// For people: the state, why, and when something is tried next.
    pub fn tell(&self) -> (&'static str, &str, Option<Time>) {
        match &self.state {
            State::Open if self.window < self.full => ("slowed", "", None),
            State::Open => ("healthy", "", None),
            State::Throttled { until, reason } => ("throttled", reason, Some(*until)),
            State::Paused {
                probe_at, reason, ..
            } => ("paused", reason, Some(*probe_at)),
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
