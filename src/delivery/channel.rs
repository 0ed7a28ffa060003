//! Whether the provider is to be asked at all just now. Pure.
//!
//! A message that fails is a matter of that message; a provider that refuses everybody is a matter of the
//! channel, and must not cost the messages their attempts. Which of the two it is, different messages decide:
//! one of them alone never holds up the others, and never passes for all. A channel that is paused keeps
//! everything and sends one message now and then, a probe. One answer to a request with several messages says no
//! more of the channel than an answer to one. A provider that asks for less gets a pause and then
//! half as many requests at a time; one that wants to be left alone for long is believed when it tells two messages so, and
//! asked again each minute. A message that is refused for what it is may be refused for how we are set up, as long as no
//! other one is taken. The module reads no clock.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Time since the worker started.
pub type Time = Duration;

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
/// More suspects than this are not remembered.
const SUSPECTS: usize = 10_000;

/// What one message tells of the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// The provider took a message.
    Works,
    /// It refused one for what it is.
    Rejects(String),
    /// It could not now.
    Fails(String),
    /// It could not be reached.
    Unreached(String),
    /// It wants less of everything.
    Throttles(String, Option<Duration>),
    /// It wants nothing any more.
    Refuses(String),
    /// It is nowhere that may be dialled.
    Denied(String),
}

/// What becomes of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposal {
    /// As the answer says: sent, or a failed attempt.
    Settle,
    /// It goes back without an attempt.
    Release,
    /// It counts as an attempt: others go through.
    Charge,
    /// It ends.
    End,
    /// That is not known yet; see [`Channel::decide`].
    Wait,
}

/// How the channel is.
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

/// What the log is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing is sent any more.
    Paused(String),
    /// It is again, after so long.
    Resumed(Duration),
}

/// What may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// So many requests at a time.
    Requests(usize),
    /// One message.
    Probe,
    /// Nothing before then.
    Nothing(Time),
    /// Nothing before the probe under way has an answer.
    Probing,
}

/// The channel.
pub struct Channel {
    state: State,
    /// What is handed over from this turn on tells something of the channel as it is now.
    turn: u64,
    /// The latest turn there was.
    latest: u64,
    /// Messages that were refused, or got no answer, since one last went through.
    refused: HashSet<i64>,
    unanswered: HashSet<i64>,
    /// Those that were refused for what they are, since one was last taken.
    rejected: HashSet<i64>,
    /// Those of which the provider said that it wants to be left alone for long.
    silenced: HashSet<i64>,
    refusal: String,
    /// From this turn on a message that goes through clears the channel of those refusals.
    doubted: u64,
    /// When a message was last refused or throttled, and how often.
    suspects: HashMap<i64, (u32, u32)>,
    /// Counts the times that a message went through after another one was suspected.
    epoch: u32,
    pauses: u32,
    breaths: u32,
    /// Requests at a time, at most and just now; and successes until there may be one more.
    full: usize,
    window: usize,
    credit: usize,
    news: Vec<News>,
}

impl Channel {
    /// Open, for so many requests at a time.
    pub fn new(full: usize) -> Self {
        Self {
            state: State::Open,
            turn: 0,
            latest: 0,
            refused: HashSet::new(),
            unanswered: HashSet::new(),
            rejected: HashSet::new(),
            silenced: HashSet::new(),
            refusal: String::new(),
            doubted: 0,
            suspects: HashMap::new(),
            epoch: 0,
            pauses: 0,
            breaths: 0,
            full,
            window: full,
            credit: 0,
            news: Vec::new(),
        }
    }

    /// Changes how many requests there may be at a time, and has a channel that is paused or throttled try at once:
    /// what was wrong may have been mended. Refusals of what was handed over before tell nothing any more; those that
    /// wait for [`Self::decide`] are to be given back.
    pub fn reset(&mut self, now: Time, full: usize) {
        self.full = full;
        self.window = full;
        if !self.is_paused() {
            self.state = State::Open;
            self.turn = self.latest.saturating_add(1);
            self.refused.clear();
            self.unanswered.clear();
            self.rejected.clear();
            self.silenced.clear();
        }
        self.hurry(now);
    }

    /// Has a channel that is paused or throttled try at once.
    pub fn hurry(&mut self, now: Time) {
        self.pull(now);
        if self.is_paused() {
            self.pauses = 0;
        }
    }

    /// Has a channel that is paused or throttled try at once, and be as patient after that as it was.
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

    /// Messages were handed over, in this turn; each turn has a higher number than the one before.
    pub fn note_turn(&mut self, turn: u64) {
        self.latest = turn;
    }

    /// So was a probe.
    pub fn note_probe(&mut self, turn: u64) {
        self.note_turn(turn);
        if let State::Paused { probing, .. } = &mut self.state {
            *probing = true;
            self.turn = turn;
        }
    }

    /// What was handed over in this turn came back unsent: if it was the probe, there will be another one.
    pub fn note_unsent(&mut self, now: Time, turn: u64) {
        if let State::Paused {
            probing, probe_at, ..
        } = &mut self.state
            && turn >= self.turn
        {
            *probing = false;
            *probe_at = now.saturating_add(FIRST_PAUSE);
        }
    }

    /// Whether this message was refused before and nothing has gone through since: a probe had better be
    /// another one.
    pub fn is_suspect(&self, id: i64) -> bool {
        self.suspects.contains_key(&id)
    }

    /// Takes note of what a message tells, which was handed over in this turn.
    #[cfg(test)]
    pub fn judge(&mut self, now: Time, id: i64, turn: u64, sign: Sign) -> Disposal {
        self.judge_shared(now, id, id, turn, sign)
    }

    /// Takes note of what a message tells, which was handed over in this turn. `witness`: the first message of the
    /// request it was in, which stands for all of them, for they had one answer.
    pub fn judge_shared(
        &mut self,
        now: Time,
        id: i64,
        witness: i64,
        turn: u64,
        sign: Sign,
    ) -> Disposal {
        if turn < self.turn && !self.is_paused() {
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
            Sign::Works => self.works(now, id, witness, turn),
            Sign::Fails(reason) => self.fails(now, witness, turn, &reason, Disposal::Settle),
            Sign::Unreached(reason) => self.fails(now, witness, turn, &reason, Disposal::Release),
            Sign::Throttles(reason, after) => self.throttles(now, id, turn, reason, after),
            Sign::Refuses(reason) => self.refuses(now, id, witness, turn, reason),
            Sign::Rejects(reason) => self.rejects(now, id, turn, &reason),
            Sign::Denied(reason) => {
                if turn >= self.turn {
                    self.pause_for(now, &reason, LONGEST_REFUSAL);
                }
                Disposal::Release
            }
        }
    }

    fn works(&mut self, now: Time, id: i64, witness: i64, turn: u64) -> Disposal {
        self.suspects.remove(&id);
        self.unanswered.clear();
        self.rejected.clear();
        self.silenced.clear();
        if turn >= self.doubted {
            self.epoch = self.epoch.wrapping_add(1);
            self.refused.clear();
        }
        if let State::Paused { since, .. } = self.state {
            // What was handed over before the pause tells of the time before.
            if turn < self.turn {
                return Disposal::Settle;
            }
            self.state = State::Open;
            self.refused.clear();
            self.news.push(News::Resumed(now.saturating_sub(since)));
        }
        self.pauses = 0;
        self.breaths = 0;
        // The window is one of requests.
        if self.window < self.full && id == witness {
            self.credit += 1;
            if self.credit >= self.window {
                self.credit = 0;
                self.window += 1;
            }
        }
        Disposal::Settle
    }

    /// `spared`: what becomes of it while the channel is paused.
    fn fails(
        &mut self,
        now: Time,
        witness: i64,
        turn: u64,
        reason: &str,
        spared: Disposal,
    ) -> Disposal {
        if self.is_paused() {
            if turn >= self.turn {
                self.pause(now, reason);
            }
            return spared;
        }
        self.unanswered.insert(witness);
        if self.unanswered.len() >= UNANSWERED {
            self.pause(now, reason);
            return spared;
        }
        Disposal::Settle
    }

    fn throttles(
        &mut self,
        now: Time,
        id: i64,
        turn: u64,
        reason: String,
        after: Option<Duration>,
    ) -> Disposal {
        let charged = self.accuse(id, PATIENCE);
        let is_long = after.is_some_and(|after| after > LONGEST_BREATH);
        if is_long {
            self.silenced.insert(id);
        }
        let is_believed = is_long && self.silenced.len() > 1;
        if self.is_paused() {
            if turn >= self.turn {
                self.pause_long(now, &reason, is_believed);
            }
            return Disposal::Release;
        }
        if charged {
            return Disposal::Charge;
        }
        if is_believed {
            self.pause_long(now, &reason, true);
            return Disposal::Release;
        }
        let fresh = matches!(self.state, State::Open);
        if fresh {
            // Once for all that were under way together.
            self.window = (self.window / 2).max(1);
            self.credit = 0;
            self.breaths = self.breaths.saturating_add(1);
        }
        let own = doubled(FIRST_BREATH, self.breaths, LONGEST_BREATH);
        let wait = after
            .filter(|_| !is_long)
            .unwrap_or(own)
            .max(own.min(FIRST_BREATH));
        let until = now.saturating_add(wait);
        match &mut self.state {
            State::Throttled { until: known, .. } => *known = (*known).max(until),
            state => *state = State::Throttled { until, reason },
        }
        Disposal::Release
    }

    fn refuses(&mut self, now: Time, id: i64, witness: i64, turn: u64, reason: String) -> Disposal {
        let charged = self.accuse(id, 1);
        if self.is_paused() {
            if turn >= self.turn {
                self.refused.insert(witness);
                self.pause_for(now, &reason, self.longest());
            }
            return Disposal::Release;
        }
        if charged {
            return Disposal::Charge;
        }
        if self.refused.is_empty() {
            // What was under way by then may tell of the time before.
            self.doubted = self.latest.saturating_add(1);
        }
        self.refused.insert(witness);
        self.refusal = reason;
        Disposal::Wait
    }

    fn rejects(&mut self, now: Time, id: i64, turn: u64, reason: &str) -> Disposal {
        let was_rejected = self.accuse(id, 1);
        if self.is_paused() {
            if turn >= self.turn {
                self.pause_for(now, reason, LONGEST_REFUSAL);
            }
            return Disposal::Release;
        }
        if was_rejected {
            return Disposal::End;
        }
        self.rejected.insert(id);
        if self.rejected.len() >= REJECTED {
            self.pause_for(now, reason, LONGEST_REFUSAL);
            return Disposal::Release;
        }
        Disposal::Charge
    }

    /// What becomes of those that wait; `None` when that is still open. `alone`: nothing else is under way or
    /// at hand that could tell.
    pub fn decide(&mut self, now: Time, alone: bool) -> Option<Disposal> {
        if self.is_paused() {
            return Some(Disposal::Release);
        }
        let different = self.refused.len();
        if different == 0 {
            return Some(Disposal::Charge);
        }
        if different < REFUSED && !alone {
            return None;
        }
        let reason = std::mem::take(&mut self.refusal);
        self.pause_for(now, &reason, self.longest());
        Some(Disposal::Release)
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
        if !known {
            self.news.push(News::Paused(why.to_owned()));
        }
        self.pauses = self.pauses.saturating_add(1);
        let pause = doubled(FIRST_PAUSE, self.pauses, longest);
        self.state = State::Paused {
            since,
            probe_at: now.saturating_add(pause),
            probing: false,
            reason: why.to_owned(),
        };
        // Until a probe is handed over, nothing under way tells of the channel as it is now.
        self.turn = u64::MAX;
        self.unanswered.clear();
        self.rejected.clear();
    }

    /// Whether this message was accused so often, and others went through in between.
    fn accuse(&mut self, id: i64, patience: u32) -> bool {
        if self.suspects.len() >= SUSPECTS {
            self.suspects.clear();
        }
        let epoch = self.epoch;
        let (count, last) = self.suspects.entry(id).or_insert((0, epoch));
        let charged = *count >= patience && *last != epoch;
        if *last != epoch || *count == 0 {
            *count += 1;
            *last = epoch;
        }
        charged
    }

    /// For the log, in order.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// For people: the state, why, and when something is tried next.
    pub fn tell(&self) -> (&'static str, &str, Option<Time>) {
        match &self.state {
            State::Open if self.window < self.full => ("slowed", "", None),
            State::Open => ("open", "", None),
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
