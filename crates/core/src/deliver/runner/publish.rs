//! Publishes the states of the transports in the table `transports`, for operators and for scheduling.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::deliver::Time;
use crate::deliver::events::TransportStatus;
use crate::deliver::store::{Store, StoreError};
use crate::deliver::thread::DeliveryThread;
use crate::transport::config::{ConfigError, TransportConfig};

/// The minimum time between two publications: a state may change many times a second.
const INTERVAL: Duration = Duration::from_millis(500);
/// When everything is published again without a change: the database deletes rows that were not refreshed for an hour,
/// because their deliverer has crashed.
const REFRESH: Duration = Duration::from_secs(600);
/// The wait after a publication that failed.
const RETRY: Duration = Duration::from_secs(10);

/// The columns of a transport that come from the file.
struct FileColumns {
    provider: &'static str,
    allow_from: Vec<String>,
    max_message_size: Option<u64>,
}

/// The states of transports by their names.
type Statuses = Vec<(Arc<str>, TransportStatus)>;

/// What was published, and what is to be published.
#[derive(Default)]
pub(super) struct Publisher {
    transports: HashMap<Arc<str>, FileColumns>,
    /// The error in the transports file.
    file_error: Option<String>,
    /// The latest publication; `None` if it is to be repeated.
    published: Option<(Statuses, Option<String>)>,
    /// When that was.
    published_at: Time,
    /// Whether the table may have rows of this deliverer.
    has_rows: bool,
    /// The earliest time of the next publication.
    next_at: Time,
    /// Whether the latest publication failed, which was logged.
    is_failing: bool,
}

impl Publisher {
    /// Makes the next call of [`Self::publish`] publish everything.
    pub(super) fn publish_again(&mut self) {
        self.published = None;
    }

    /// The names of the transports in the file.
    pub(super) fn names(&self) -> Vec<String> {
        self.transports.keys().map(ToString::to_string).collect()
    }

    /// Whether the file has been unreadable from the start.
    pub(super) fn has_no_transports(&self) -> bool {
        self.file_error.is_some() && self.transports.is_empty()
    }

    /// Whether the file was read and lacks a transport of before.
    pub(super) fn loses_any(&self, loaded: &Result<Vec<TransportConfig>, ConfigError>) -> bool {
        loaded.as_ref().is_ok_and(|transports| {
            let mut names = self.transports.keys();
            names.any(|known| transports.iter().all(|one| one.name != *known))
        })
    }

    /// The file was read. Returns whether to log it: its transports changed, or it was unreadable before.
    pub(super) fn configure(&mut self, transports: &[TransportConfig]) -> bool {
        self.publish_again();
        let had_error = self.file_error.take().is_some();
        let is_changed = had_error
            || transports.len() != self.transports.len()
            || transports.iter().any(|one| {
                self.transports
                    .get(&one.name)
                    .is_none_or(|known| known.provider != one.provider_name)
            });
        self.transports = transports
            .iter()
            .map(|one| {
                let columns = FileColumns {
                    provider: one.provider_name,
                    allow_from: one.delivery.allow_from.clone(),
                    max_message_size: one.delivery.capabilities.max_message_size(),
                };
                (Arc::clone(&one.name), columns)
            })
            .collect();
        is_changed
    }

    /// The file cannot be read. Returns whether to log it: the error is another one than before.
    pub(super) fn note_file_error(&mut self, error: String) -> bool {
        let is_changed = self.file_error.as_ref() != Some(&error);
        self.file_error = Some(error);
        is_changed
    }

    /// Publishes the states if they changed and the interval has passed, or if it is time to refresh them. Returns when to
    /// call this again.
    pub(super) fn publish<S: Store>(
        &mut self,
        store: &mut S,
        deliverer: &str,
        thread: &DeliveryThread,
        now: Time,
    ) -> Option<Time> {
        let current = (self.current(thread), self.file_error.clone());
        let refresh_at = self.published_at.saturating_add(REFRESH);
        if self.published.as_ref() == Some(&current) && now < refresh_at {
            return Some(refresh_at);
        }
        if now < self.next_at {
            return Some(self.next_at);
        }
        self.next_at = now.saturating_add(INTERVAL);
        self.has_rows = true;
        let rows = self.as_json(&current.0, thread.now());
        match store.publish(deliverer, rows, current.1.clone()) {
            Ok(()) => {
                self.published = Some(current);
                self.published_at = now;
                self.is_failing = false;
                Some(now.saturating_add(REFRESH))
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    error.warn("mailroom could not publish how its transports are");
                }
                self.next_at = now.saturating_add(RETRY);
                Some(self.next_at)
            }
        }
    }

    /// Deletes the published rows. If that fails, the next worker does it.
    pub(super) fn withdraw<S: Store>(&mut self, store: &mut S, deliverer: &str) {
        if std::mem::take(&mut self.has_rows) {
            let _ = store.publish(deliverer, "[]".to_owned(), None);
        }
    }

    fn current(&self, thread: &DeliveryThread) -> Statuses {
        let mut statuses = thread.statuses();
        statuses.retain(|(name, _)| self.transports.contains_key(name));
        statuses
    }

    /// The JSON array of `_publish_transports`. `now` is by the clock of the delivery thread.
    fn as_json(&self, statuses: &Statuses, now: Time) -> String {
        let rows = statuses.iter().filter_map(|(name, status)| {
            let file = self.transports.get(name)?;
            let next_probe_at = status.next_try.map(|at| {
                let at = SystemTime::now() + at.saturating_sub(now);
                let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
                since.as_secs_f64()
            });
            Some(json!({
                "name": &**name,
                "provider": file.provider,
                "allow_from": file.allow_from,
                "max_message_size": file.max_message_size,
                "state": status.state,
                "reason": status.reason,
                "next_probe_at": next_probe_at,
                "ambiguous": status.ambiguous,
            }))
        });
        Value::from_iter(rows).to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::deliver::exchange::Claimed;
    use crate::deliver::settlements::Settlements;
    use crate::deliver::store::{ClaimRequest, ErrorKind};
    use crate::transport::config;

    /// Records what is published.
    #[derive(Default)]
    struct Table(Vec<String>);

    struct Never;

    impl StoreError for Never {
        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }

        fn warn(&self, _: &str) {}
    }

    impl Store for Table {
        type Error = Never;

        fn exchange(
            &mut self,
            _: &str,
            _: &Settlements,
            _: Option<ClaimRequest<'_>>,
        ) -> Result<(Vec<i64>, Option<Claimed>), Never> {
            Err(Never)
        }

        fn extend(&mut self, _: &str, _: &[i64], _: Duration) -> Result<Vec<i64>, Never> {
            Err(Never)
        }

        fn publish(&mut self, _: &str, rows: String, _: Option<String>) -> Result<(), Never> {
            self.0.push(rows);
            Ok(())
        }
    }

    #[test]
    fn published_rows_are_withdrawn_even_if_they_were_to_be_published_again() {
        let thread = DeliveryThread::start(|body| std::thread::Builder::new().spawn(body))
            .expect("a thread");
        let (mut table, mut publisher) = (Table::default(), Publisher::default());
        publisher.withdraw(&mut table, "me");
        assert_eq!(table.0.len(), 0, "nothing was published");
        publisher.note_file_error("unreadable".to_owned());
        publisher.publish(&mut table, "me", &thread, Time::ZERO);
        // The file was read again before the interval had passed.
        publisher.publish_again();
        publisher.publish(&mut table, "me", &thread, Time::ZERO);
        publisher.withdraw(&mut table, "me");
        assert_eq!(table.0, ["[]", "[]"], "published and withdrawn");
        publisher.withdraw(&mut table, "me");
        assert_eq!(table.0.len(), 2, "once");
    }

    #[test]
    fn a_row_has_what_the_file_and_the_provider_say() {
        let file = "[transports.a]\nprovider = \"postmark\"\nfrom = \"a@example.com\"\napi_key = \"k\"\n\
            [transports.b]\nprovider = \"log\"\n";
        let transports = config::parse(file, Path::new("/")).unwrap();
        let mut publisher = Publisher::default();
        publisher.configure(&transports);
        let statuses = ["a", "b"].map(|name| (Arc::from(name), TransportStatus::default()));
        let rows = publisher.as_json(&statuses.to_vec(), Time::ZERO);
        let rows: Value = serde_json::from_str(&rows).unwrap();
        assert_eq!(rows[0]["provider"], "postmark");
        assert_eq!(rows[0]["allow_from"], json!(["a@example.com"]));
        assert_eq!(rows[0]["max_message_size"], 10_000_000);
        assert_eq!(rows[1].get("max_message_size"), Some(&Value::Null));
    }

    #[test]
    fn what_did_not_change_is_published_again_now_and_then() {
        let thread = DeliveryThread::start(|body| std::thread::Builder::new().spawn(body))
            .expect("a thread");
        let (mut table, mut publisher) = (Table::default(), Publisher::default());
        let mut now = Time::ZERO;
        for count in 1..=3 {
            let next = publisher.publish(&mut table, "me", &thread, now).unwrap();
            assert_eq!(table.0.len(), count);
            assert_eq!(next - now, REFRESH);
            let early = next - Duration::from_secs(1);
            assert_eq!(
                publisher.publish(&mut table, "me", &thread, early),
                Some(next)
            );
            assert_eq!(table.0.len(), count);
            now = next;
        }
    }
}
