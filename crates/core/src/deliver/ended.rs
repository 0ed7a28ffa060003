//! What is said in the log of mail that ends as an error. Pure.

use std::time::Duration;

use super::Time;

/// One line at most in this time.
const SPACING: Duration = Duration::from_secs(60);

/// Mails that ended and were not told of yet.
#[derive(Default)]
pub(super) struct Ended {
    count: u64,
    reason: String,
    told_at: Option<Time>,
}

impl Ended {
    /// One ended for this reason.
    pub(super) fn note(&mut self, reason: &str) {
        self.count += 1;
        reason.clone_into(&mut self.reason);
    }

    /// When there is something to say.
    pub(super) fn next(&self) -> Option<Time> {
        let told_at = self.told_at.filter(|_| self.count > 0)?;
        Some(told_at.saturating_add(SPACING))
    }

    /// How many, and why the latest did, if it is time to say so.
    pub(super) fn take(&mut self, now: Time) -> Option<(u64, String)> {
        let is_due = self
            .told_at
            .is_none_or(|at| now.saturating_sub(at) >= SPACING);
        if self.count == 0 || !is_due {
            return None;
        }
        self.told_at = Some(now);
        Some((
            std::mem::take(&mut self.count),
            std::mem::take(&mut self.reason),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_minute() {
        let at = Duration::from_secs;
        let mut ended = Ended::default();
        assert_eq!(ended.take(at(0)), None);
        ended.note("http 400");
        assert_eq!(ended.take(at(0)), Some((1, "http 400".to_owned())));
        ended.note("http 400");
        ended.note("http 422");
        assert_eq!(ended.take(at(59)), None);
        assert_eq!(ended.next(), Some(at(60)));
        assert_eq!(ended.take(at(60)), Some((2, "http 422".to_owned())));
        assert_eq!(ended.take(at(600)), None);
    }
}
