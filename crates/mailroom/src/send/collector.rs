//! The tasks of the worker other than delivery, for a server without the worker: collects tokens, answers requests,
//! purges.
//!
//! `mailroom_core::batching` decides when to collect. Each step is a transaction of its own; a failed step is repeated,
//! and does not affect the others.

use std::time::Duration;

use mailroom_core::backoff::Failures;
use mailroom_core::batching::{Backlog, Batcher, Decision, Look, Rule, Time, Trigger};
use mailroom_core::purge::{self, Purges};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::database_error::DatabaseError;
use crate::log::Log;
use crate::session::{Parameter, STATEMENT_TIMEOUT, Session};

/// Maximum duration of answering a batch of requests, for which tokens wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long requests are not answered after that has failed; tokens are still collected.
const ANSWER_RETRY: Duration = Duration::from_secs(30);

/// The result of a call of [`Collector::work`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Whether tokens became mail.
    pub any: bool,
    /// Whether some of the mail is urgent: a person waits for it.
    pub urgent: bool,
}

/// Collects tokens of one database.
pub struct Collector {
    batcher: Batcher,
    /// When to check the tokens again without a notification, and why.
    look_at: Option<(Time, Look)>,
    /// Whether the latest check left nothing to do.
    is_done: bool,
    answer_at: Time,
    purges: Purges,
    failures: Failures,
}

impl Collector {
    /// A collector that has not checked yet.
    pub fn new() -> Self {
        Self {
            batcher: Batcher::default(),
            look_at: None,
            is_done: false,
            answer_at: Time::ZERO,
            purges: Purges::default(),
            failures: Failures::default(),
        }
    }

    /// When to call [`Self::work`] without a notification.
    pub fn next_at(&self) -> Time {
        self.look_at
            .map_or(self.purges.at(), |(at, _)| at.min(self.purges.at()))
    }

    /// Whether the latest check left nothing to do.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    /// Collects one batch at most, so that its mail, and urgent mail, goes before the next; answers and purges what is due.
    /// `announced` is the reason to check the tokens, if it is not the time.
    ///
    /// # Errors
    /// If the connection is useless.
    pub fn work(
        &mut self,
        session: &mut Session,
        log: &Log,
        now: &dyn Fn() -> Time,
        announced: Option<Look>,
        max_timeout: Duration,
    ) -> Result<Collected, DatabaseError> {
        let planned = self.look_at.filter(|(at, _)| *at <= now());
        let look = announced.or(planned.map(|(_, look)| look));
        let mut collected = Collected::default();
        if let Some(look) = look.filter(|_| now() >= self.failures.retry_at()) {
            match self.collect(session, log, now, look, max_timeout) {
                Ok(done) => {
                    collected = done;
                    if self.failures.end() > 0 {
                        log.log("mailroom send collects tokens again");
                    }
                }
                Err(failure) if failure.is_gone() => return Err(failure),
                Err(failure) => {
                    let retry = self.failures.record(now());
                    self.look_at = Some((now().saturating_add(retry.delay), Look::Woken));
                    if retry.log {
                        let what = format!("mailroom send could not collect tokens: {failure}");
                        log.warn(&what, "", failure.hint());
                    }
                }
            }
        }
        self.purge(session, log, now)?;
        Ok(collected)
    }

    fn collect(
        &mut self,
        session: &mut Session,
        log: &Log,
        now: &dyn Fn() -> Time,
        look: Look,
        max_timeout: Duration,
    ) -> Result<Collected, DatabaseError> {
        let settings = session.settings();
        let rule = Rule {
            limit: settings.batch_limit,
            timeout: max_timeout.min(settings.batch_timeout),
        };
        let is_left = !settings.collect;
        self.look_at = None;
        self.is_done = false;
        let mut collected = Collected::default();
        let (backlog, paused) = waiting(session, rule.limit)?;
        if is_left || paused {
            self.batcher = Batcher::default();
            if backlog.urgent && !paused {
                self.answer(session, log, now)?;
            }
            self.is_done = (is_left || backlog.count == 0) && !self.leaves_requests(now());
            return Ok(collected);
        }
        match self.batcher.decide(rule, now(), backlog, look) {
            Decision::Go(trigger) => {
                if backlog.urgent {
                    self.answer(session, log, now)?;
                }
                let size = backlog.count.clamp(1, rule.limit);
                let batch = match run_batch(session, size, trigger) {
                    Ok(batch) => batch,
                    Err(failure) => {
                        record_failure(session, &failure, trigger);
                        return Err(failure);
                    }
                };
                self.batcher.taken(batch.moved);
                collected.any = batch.collected > 0;
                collected.urgent = collected.any && backlog.urgent;
                let is_last = batch.moved < size;
                self.is_done = is_last && !self.leaves_requests(now());
                if is_last {
                    self.batcher = Batcher::default();
                } else {
                    self.look_at = Some((now(), Look::AfterBatch));
                }
            }
            Decision::WaitUntil(at) => self.look_at = Some((at, Look::Woken)),
            Decision::Idle => self.is_done = true,
        }
        Ok(collected)
    }

    /// Whether requests wait because answering them has failed.
    fn leaves_requests(&self, now: Time) -> bool {
        now < self.answer_at
    }

    /// Answers requests, which become tokens. A failure does not delay the tokens that exist.
    fn answer(
        &mut self,
        session: &mut Session,
        log: &Log,
        now: &dyn Fn() -> Time,
    ) -> Result<(), DatabaseError> {
        if self.leaves_requests(now()) {
            return Ok(());
        }
        let statement = include_str!("../../../../sql/queries/answer_requests.sql");
        match session.rows(ANSWER_TIMEOUT, statement, &[]) {
            Ok(_) => Ok(()),
            Err(failure) if failure.is_gone() => Err(failure),
            Err(failure) => {
                self.answer_at = now().saturating_add(ANSWER_RETRY);
                let what = format!("mailroom send could not answer requests: {failure}");
                log.warn(&what, "It tries again in half a minute.", failure.hint());
                Ok(())
            }
        }
    }

    fn purge(
        &mut self,
        session: &mut Session,
        log: &Log,
        now: &dyn Fn() -> Time,
    ) -> Result<(), DatabaseError> {
        let began = now();
        let Some(purge) = self.purges.due(began) else {
            return Ok(());
        };
        let statement = include_str!("../../../../sql/queries/purge.sql");
        let parameters: [Parameter<'_>; 2] =
            [(&purge.rows, Type::INT4), (&purge.starts_over, Type::BOOL)];
        match session.call(purge::TIMEOUT, statement, &parameters, |row| row.try_get(0)) {
            Ok(more) => {
                let idle_until = now().saturating_add(session.settings().poll_interval);
                self.purges.done(purge, began, now(), more, idle_until);
            }
            Err(failure) if failure.is_gone() => return Err(failure),
            Err(failure) => {
                self.purges.failed(now(), failure.sqlstate());
                let what = format!("mailroom send could not purge: {failure}");
                log.warn(&what, "It tries again in a minute.", failure.hint());
            }
        }
        Ok(())
    }
}

/// The waiting tokens, and whether collecting is paused.
fn waiting(session: &mut Session, limit: u32) -> Result<(Backlog, bool), DatabaseError> {
    let statement = include_str!("../../../../sql/queries/pending_summary.sql");
    let limit = integer(limit);
    let parameters: [Parameter<'_>; 1] = [(&limit, Type::INT4)];
    session.call(STATEMENT_TIMEOUT, statement, &parameters, |row| {
        let count: i32 = row.try_get(0)?;
        let backlog = Backlog {
            count: count.unsigned_abs(),
            urgent: row.try_get(1)?,
        };
        Ok((backlog, row.try_get(2)?))
    })
}

/// The result of one batch.
struct Batch {
    collected: u32,
    /// Number of tokens that left the queue.
    moved: u32,
}

fn run_batch(session: &mut Session, limit: u32, trigger: Trigger) -> Result<Batch, DatabaseError> {
    let statement = include_str!("../../../../sql/queries/run_batch.sql");
    let (limit, trigger) = (integer(limit), trigger.as_str());
    let parameters: [Parameter<'_>; 2] = [(&limit, Type::INT4), (&trigger, Type::TEXT)];
    session.call(STATEMENT_TIMEOUT, statement, &parameters, |row: &Row| {
        let (collected, skipped): (i32, i32) = (row.try_get(0)?, row.try_get(1)?);
        Ok(Batch {
            collected: collected.unsigned_abs(),
            moved: collected
                .unsigned_abs()
                .saturating_add(skipped.unsigned_abs()),
        })
    })
}

/// Records a failed batch in job_runs, if possible.
fn record_failure(session: &mut Session, failure: &DatabaseError, trigger: Trigger) {
    if failure.sqlstate().is_empty() || failure.is_gone() {
        return;
    }
    let statement = include_str!("../../../../sql/queries/record_failure.sql");
    let began = None::<std::time::SystemTime>;
    let (trigger, error) = (trigger.as_str(), failure.to_string());
    let parameters: [Parameter<'_>; 3] = [
        (&began, Type::TIMESTAMPTZ),
        (&trigger, Type::TEXT),
        (&error, Type::TEXT),
    ];
    let _ = session.rows(STATEMENT_TIMEOUT, statement, &parameters);
}

fn integer(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
