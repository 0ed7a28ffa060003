//! Sends a test message through each transport, with a deliverer whose store contains only these messages.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mailroom_core::deliver::exchange::Claimed;
use mailroom_core::deliver::mail::Mail;
use mailroom_core::deliver::runner::JobRunner;
use mailroom_core::deliver::settlements::Settlements;
use mailroom_core::deliver::store::{ClaimRequest, Host, LogLine, Store};
use mailroom_core::message::Message;
use mailroom_core::transport::config::{self, ConfigError, TransportConfig};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::database_error::DatabaseError;
use crate::readable_fd::ReadableFd;

/// How long to wait for a result: longer than the timeout of a transport.
const RESULT_TIMEOUT: Duration = Duration::from_secs(65);
/// How long to wait for the reason after a message was released.
const REASON_TIMEOUT: Duration = Duration::from_secs(2);

/// The result of a test message.
pub type Outcome = Result<String, String>;

/// A message that says that it is a test.
pub fn message(id: i64, to: &str) -> Message {
    let random = |seed: u64| RandomState::new().hash_one(seed);
    let (high, low) = (random(1), random(2));
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Message {
        id,
        // Version 4, variant 1.
        message_id: format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            (low >> 48) & 0x3fff | 0x8000,
            low & 0xffff_ffff_ffff
        ),
        kind: "test".to_owned(),
        recipients: vec![to.to_owned()],
        subject: "Test message of mailroom".to_owned(),
        body_text: Some("This message was sent by mailroom check.\n".to_owned()),
        created_at: i64::try_from(now.as_secs()).unwrap_or_default(),
        created_at_text: format!("{}.{:06}", now.as_secs(), now.subsec_micros()),
        ..Message::default()
    }
}

/// Sends one message through each of these transports of the file.
///
/// # Errors
/// If the system refuses a thread or a socket.
pub fn send(
    runtime: &Rc<Runtime>,
    path: &Path,
    names: &[&str],
    to: &str,
) -> std::io::Result<BTreeMap<String, Outcome>> {
    let host = Process {
        runtime: Rc::clone(runtime),
        path: path.to_owned(),
    };
    let mut trial = Trial::new(names, to);
    let began = Instant::now();
    let spawn = |body: Box<dyn FnOnce() + Send>| std::thread::Builder::new().spawn(body);
    let claimant = "mailroom check".to_owned();
    let runner = JobRunner::start(host, "mailroom check", claimant, spawn, Duration::ZERO)?;
    if let Some(mut runner) = runner {
        runner.mail_due(false);
        while !trial.is_over() && began.elapsed() < RESULT_TIMEOUT {
            if runner.run_jobs(&mut trial, began.elapsed(), true).is_err() || runner.has_failed() {
                break;
            }
            runtime.block_on(async {
                let tick = Duration::from_millis(100);
                match ReadableFd::new(runner.jobs_fd()) {
                    Ok(fd) => drop(tokio::time::timeout(tick, fd.readable()).await),
                    Err(_) => tokio::time::sleep(tick).await,
                }
            });
        }
        runner.shut_down(&mut trial, move || began.elapsed());
    }
    Ok(trial.into_outcomes())
}

/// The process, for the job runner.
struct Process {
    runtime: Rc<Runtime>,
    path: PathBuf,
}

impl Host for Process {
    fn load(&self) -> Result<Vec<TransportConfig>, ConfigError> {
        config::load(&self.path)
    }

    /// The outcomes contain everything that would be logged.
    fn log(&self, _line: &LogLine) {}

    fn stop_requested(&self) -> bool {
        false
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn wait(&self, limit: Duration, jobs_fd: RawFd) {
        self.runtime.block_on(async {
            if let Ok(fd) = ReadableFd::new(jobs_fd) {
                let _ = tokio::time::timeout(limit, fd.readable()).await;
            }
        });
    }
}

/// One test message.
struct Test {
    transport: String,
    /// `None` after it was claimed.
    mail: Option<Mail>,
    outcome: Option<Outcome>,
    released_at: Option<Instant>,
}

/// A store with one message for each transport.
struct Trial {
    tests: Vec<Test>,
    /// The reason of each transport that is not healthy.
    reasons: BTreeMap<String, String>,
    /// The transports that are paused; each may hold its message for the next probe.
    paused: BTreeSet<String>,
}

impl Trial {
    fn new(names: &[&str], to: &str) -> Self {
        let test = |(number, name): (usize, &&str)| Test {
            transport: (*name).to_owned(),
            mail: Some(mail(i64::try_from(number).unwrap_or_default() + 1, to)),
            outcome: None,
            released_at: None,
        };
        Self {
            tests: names.iter().enumerate().map(test).collect(),
            reasons: BTreeMap::new(),
            paused: BTreeSet::new(),
        }
    }

    fn test(&mut self, id: i64) -> Option<&mut Test> {
        let place = usize::try_from(id - 1).ok()?;
        self.tests.get_mut(place)
    }

    fn is_over(&self) -> bool {
        self.tests.iter().all(|test| {
            let is_known = self.reasons.contains_key(&test.transport);
            test.outcome.is_some()
                || self.paused.contains(&test.transport)
                || test
                    .released_at
                    .is_some_and(|at| is_known || at.elapsed() >= REASON_TIMEOUT)
        })
    }

    fn into_outcomes(self) -> BTreeMap<String, Outcome> {
        let Self { tests, reasons, .. } = self;
        let outcome = |test: Test| {
            let outcome = test.outcome.unwrap_or_else(|| {
                let reason = reasons.get(&test.transport).cloned();
                Err(reason.unwrap_or_else(|| "no response".to_owned()))
            });
            (test.transport, outcome)
        };
        tests.into_iter().map(outcome).collect()
    }
}

fn mail(id: i64, to: &str) -> Mail {
    Mail {
        message: message(id, to),
        claimed_at: Duration::ZERO,
        expires_in: None,
        age: Duration::ZERO,
        size: 1_024,
        attachment_bytes: None,
        priority: 0,
        send_at: 0,
        group_key: None,
        ambiguous_attempts: 0,
        ambiguous_alone: true,
        may_have_arrived: false,
        batch: None,
        ends_as_error: false,
        fell_back: false,
        alone: false,
    }
}

impl Store for Trial {
    type Error = DatabaseError;

    fn exchange(
        &mut self,
        _claimant: &str,
        settlements: &Settlements,
        wanted: Option<ClaimRequest<'_>>,
    ) -> Result<(Vec<i64>, Option<Claimed>), DatabaseError> {
        let Settlements {
            sent,
            failed,
            released,
            is_hurried: _,
        } = settlements;
        for mail in sent {
            let text = match &mail.provider_id {
                Some(provider_id) => format!("accepted as {provider_id}"),
                None => "accepted".to_owned(),
            };
            if let Some(test) = self.test(mail.claim.id) {
                test.outcome.get_or_insert(Ok(text));
            }
        }
        for mail in failed {
            if let Some(test) = self.test(mail.claim.id) {
                let reason = mail.attempt.reason.clone();
                test.outcome.get_or_insert(Err(reason));
            }
        }
        for claim in released {
            if let Some(test) = self.test(claim.id) {
                test.released_at = Some(Instant::now());
            }
        }
        let claimed = wanted.map(|wanted| {
            let of_it = |test: &&mut Test| test.transport == wanted.transport;
            let test = self.tests.iter_mut().find(of_it);
            Claimed {
                mails: test.and_then(|test| test.mail.take()).into_iter().collect(),
                ..Claimed::default()
            }
        });
        Ok((Vec::new(), claimed))
    }

    fn extend(
        &mut self,
        _claimant: &str,
        ids: &[i64],
        _lease: Duration,
    ) -> Result<Vec<i64>, DatabaseError> {
        Ok(ids.to_vec())
    }

    fn publish(
        &mut self,
        _deliverer: &str,
        transports: String,
        _problem: Option<String>,
    ) -> Result<(), DatabaseError> {
        let rows: Vec<Value> = serde_json::from_str(&transports).unwrap_or_default();
        for row in &rows {
            let text = |name: &str| row.get(name).and_then(Value::as_str).unwrap_or_default();
            if !text("reason").is_empty() {
                let name = text("name").to_owned();
                self.reasons.insert(name.clone(), text("reason").to_owned());
                if text("state") == "paused" {
                    self.paused.insert(name);
                }
            }
        }
        Ok(())
    }
}
