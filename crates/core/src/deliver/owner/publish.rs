//! How the transports are, for people and for scheduling: published in the table `transports` when it changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::deliver::Time;
use crate::deliver::store::{Failure, Store};
use crate::deliver::thread::Thread;
use crate::transport::config::Configured;

/// How long after one publication the next may come: a transport may change its mind many times a second.
const SPACING: Duration = Duration::from_millis(500);

/// What does not change with a transport's state.
struct Known {
    provider: &'static str,
    allow_from: Vec<String>,
}

/// What changes.
#[derive(PartialEq)]
struct Shown {
    name: Arc<str>,
    state: &'static str,
    reason: String,
    /// Time since the deliverer started.
    next_try: Option<Time>,
    ambiguous: u64,
}

/// Publishes what has changed.
#[derive(Default)]
pub(super) struct Publisher {
    known: HashMap<Arc<str>, Known>,
    /// What is wrong with the file.
    problem: Option<String>,
    published: Option<(Vec<Shown>, Option<String>)>,
    /// There may be something to take back, whether it is to be published again or not.
    is_public: bool,
    /// When the next may go.
    free_at: Time,
    /// The latest failed, which the log was told of.
    failing: bool,
}

impl Publisher {
    /// Publishes all of it again.
    pub(super) fn forget(&mut self) {
        self.published = None;
    }

    /// Whether the file was no good from the start.
    pub(super) fn is_without_transports(&self) -> bool {
        self.problem.is_some() && self.known.is_empty()
    }

    /// The file was read. Whether that is news: other transports, or the first good file after one that was none.
    pub(super) fn configure(&mut self, transports: &[Configured]) -> bool {
        self.forget();
        let had_problem = self.problem.take().is_some();
        let is_news = had_problem
            || transports.len() != self.known.len()
            || transports.iter().any(|one| {
                self.known
                    .get(&one.name)
                    .is_none_or(|known| known.provider != one.provider_name)
            });
        self.known = transports
            .iter()
            .map(|one| {
                let known = Known {
                    provider: one.provider_name,
                    allow_from: one.allow_from.clone(),
                };
                (Arc::clone(&one.name), known)
            })
            .collect();
        is_news
    }

    /// The file is no good. Whether that is news.
    pub(super) fn note_problem(&mut self, problem: String) -> bool {
        let is_news = self.problem.as_ref() != Some(&problem);
        self.problem = Some(problem);
        is_news
    }

    /// Publishes what has changed, if it is time; returns when it will be.
    pub(super) fn publish<S: Store>(
        &mut self,
        store: &mut S,
        deliverer: &str,
        thread: &Thread,
        now: Time,
    ) -> Option<Time> {
        let current = (self.current(thread), self.problem.clone());
        if self.published.as_ref() == Some(&current) {
            return None;
        }
        if now < self.free_at {
            return Some(self.free_at);
        }
        self.free_at = now.saturating_add(SPACING);
        self.is_public = true;
        let rows = self.as_json(&current.0, thread.now());
        match store.publish(deliverer, rows, current.1.clone()) {
            Ok(()) => {
                self.published = Some(current);
                self.failing = false;
                None
            }
            Err(failure) => {
                if !std::mem::replace(&mut self.failing, true) {
                    failure.warn("mailroom could not publish how its transports are");
                }
                // With the next change or poll.
                self.free_at = now.saturating_add(Duration::from_secs(10));
                Some(self.free_at)
            }
        }
    }

    /// Takes back all that was published. Should that fail, the next worker does it.
    pub(super) fn withdraw<S: Store>(&mut self, store: &mut S, deliverer: &str) {
        if std::mem::take(&mut self.is_public) {
            let _ = store.publish(deliverer, "[]".to_owned(), None);
        }
    }

    fn current(&self, thread: &Thread) -> Vec<Shown> {
        let statuses = thread.statuses().into_iter();
        statuses
            .filter(|(name, _)| self.known.contains_key(name))
            .map(|(name, status)| Shown {
                name,
                state: status.state,
                reason: status.reason,
                next_try: status.next_try,
                ambiguous: status.ambiguous,
            })
            .collect()
    }

    /// As `_publish_transports` takes it.
    fn as_json(&self, shown: &[Shown], elapsed: Time) -> String {
        let rows = shown.iter().filter_map(|one| {
            let known = self.known.get(&one.name)?;
            let next_probe_at = one.next_try.map(|at| {
                let at = SystemTime::now() + at.saturating_sub(elapsed);
                let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
                since.as_secs_f64()
            });
            Some(json!({
                "name": &*one.name,
                "provider": known.provider,
                "allow_from": known.allow_from,
                "state": one.state,
                "reason": one.reason,
                "next_probe_at": next_probe_at,
                "ambiguous": one.ambiguous,
            }))
        });
        Value::from_iter(rows).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::intake::Claimed;
    use crate::deliver::settlements::Settlements;
    use crate::deliver::store::{Claim, Kind};

    /// Takes note of what is published.
    #[derive(Default)]
    struct Table(Vec<String>);

    struct Never;

    impl Failure for Never {
        fn kind(&self) -> Kind {
            Kind::Other
        }

        fn warn(&self, _: &str) {}
    }

    impl Store for Table {
        type Failure = Never;

        fn exchange(
            &mut self,
            _: &str,
            _: &Settlements,
            _: Option<Claim<'_>>,
        ) -> Result<(Vec<i64>, Option<Claimed>), Never> {
            Err(Never)
        }

        fn extend(&mut self, _: &str, _: &[i64]) -> Result<Vec<i64>, Never> {
            Err(Never)
        }

        fn publish(&mut self, _: &str, rows: String, _: Option<String>) -> Result<(), Never> {
            self.0.push(rows);
            Ok(())
        }
    }

    #[test]
    fn what_was_published_is_taken_back_though_it_was_to_be_published_again() {
        let thread =
            Thread::start(|body| std::thread::Builder::new().spawn(body)).expect("a thread");
        let (mut table, mut publisher) = (Table::default(), Publisher::default());
        publisher.withdraw(&mut table, "me");
        assert_eq!(table.0.len(), 0, "nothing was published");
        publisher.note_problem("unreadable".to_owned());
        publisher.publish(&mut table, "me", &thread, Time::ZERO);
        // The file was read again, and then once more, before it was time to publish that.
        publisher.forget();
        publisher.publish(&mut table, "me", &thread, Time::ZERO);
        publisher.withdraw(&mut table, "me");
        assert_eq!(table.0, ["[]", "[]"], "published, and taken back");
        publisher.withdraw(&mut table, "me");
        assert_eq!(table.0.len(), 2, "once");
    }
}
