//! Limits the log lines about mail that ends as an error. Pure.

use std::time::Duration;

use super::Time;
use super::events::LogEvent;

/// The minimum time between two log lines.
const INTERVAL: Duration = Duration::from_secs(60);

/// The mails that ended since the last log line.
#[derive(Default)]
pub(super) struct FailureLog {
    count: u64,
    reason: String,
    logged_at: Option<Time>,
}

impl FailureLog {
    /// Counts a mail that ended for this reason.
    pub(super) fn add(&mut self, reason: &str) {
        self.count += 1;
        reason.clone_into(&mut self.reason);
    }

    /// When the next line is due, if it is not the first.
    pub(super) fn next(&self) -> Option<Time> {
        let logged_at = self.logged_at.filter(|_| self.count > 0)?;
        Some(logged_at.saturating_add(INTERVAL))
    }

    /// The event for the log, if a line is due now.
    pub(super) fn take(&mut self, now: Time) -> Option<LogEvent> {
        if self.count == 0 || self.next().is_some_and(|at| now < at) {
            return None;
        }
        self.logged_at = Some(now);
        let count = std::mem::take(&mut self.count);
        Some(LogEvent::Failed(count, std::mem::take(&mut self.reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute() {
        let at = Duration::from_secs;
        let mut log = FailureLog::default();
        assert_eq!(log.take(at(0)), None);
        log.add("http 400");
        assert_eq!(
            log.take(at(0)),
            Some(LogEvent::Failed(1, "http 400".to_owned()))
        );
        log.add("http 400");
        log.add("http 422");
        assert_eq!(log.take(at(59)), None);
        assert_eq!(log.next(), Some(at(60)));
        assert_eq!(
            log.take(at(60)),
            Some(LogEvent::Failed(2, "http 422".to_owned()))
        );
        assert_eq!(log.take(at(600)), None);
    }
}
