//! Whether mails may share requests just now. Pure.
//!
//! A provider that refuses a request with several mails as a whole may refuse everybody, or one of these mails, or
//! the batch call alone, say because a proxy knows the other one only. So its mails are tried alone, and none shares
//! a request meanwhile. When all of them went through, it is the call: mails go alone for an hour, or until the next
//! reload. The module reads no clock.

use std::collections::HashSet;
use std::time::Duration;

use super::channel::Time;

/// How long the call is not tried again.
const ALONE: Duration = Duration::from_secs(3600);
/// The longest that a trial lasts: not all of its mails need come back with an answer.
const TRIAL: Duration = Duration::from_secs(300);

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The provider took it.
    Taken,
    /// It refused it.
    Refused,
    /// Neither is known.
    Open,
}

/// Those of a refused batch that have not been answered alone yet.
struct Trial {
    reason: String,
    mails: HashSet<i64>,
    /// One of them went through.
    taken: bool,
    until: Time,
}

/// Whether mails may share requests.
#[derive(Default)]
pub struct Sharing {
    trial: Option<Trial>,
    alone_until: Option<Time>,
    /// The log has heard of it.
    told: bool,
}

impl Sharing {
    /// Whether each goes alone, as of the latest [`Self::look`].
    pub fn is_off(&self) -> bool {
        self.trial.is_some() || self.alone_until.is_some()
    }

    /// Forgets what is too long ago.
    pub fn look(&mut self, now: Time) {
        self.alone_until = self.alone_until.filter(|&until| now < until);
        if self.trial.as_ref().is_some_and(|trial| trial.until <= now) {
            self.trial = None;
        }
    }

    /// Settings may have changed: everything is tried anew.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Nothing is sent any more: everybody is refused, and not the call.
    pub fn give_up(&mut self) {
        self.trial = None;
    }

    /// A request with these mails was refused as a whole; they go alone now.
    pub fn refused(&mut self, now: Time, mails: impl IntoIterator<Item = i64>, reason: &str) {
        let trial = self.trial.get_or_insert_with(|| Trial {
            reason: reason.to_owned(),
            mails: HashSet::new(),
            taken: false,
            until: now.saturating_add(TRIAL),
        });
        trial.mails.extend(mails);
    }

    /// A request with several mails went through.
    pub fn taken(&mut self) {
        self.trial = None;
        self.alone_until = None;
    }

    /// This mail has an answer of its own. Returns what the provider said of the batch, if that is news.
    #[must_use]
    pub fn answered(&mut self, now: Time, mail: i64, fate: Fate) -> Option<String> {
        let trial = self.trial.as_mut()?;
        if !trial.mails.remove(&mail) {
            return None;
        }
        trial.taken |= fate == Fate::Taken;
        if fate == Fate::Refused {
            // That was why.
            self.trial = None;
            return None;
        }
        if !trial.mails.is_empty() {
            return None;
        }
        let trial = self.trial.take().filter(|trial| trial.taken)?;
        self.alone_until = Some(now.saturating_add(ALONE));
        (!std::mem::replace(&mut self.told, true)).then_some(trial.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Duration::from_secs(7);

    fn refused() -> Sharing {
        let mut sharing = Sharing::default();
        assert!(!sharing.is_off());
        sharing.refused(NOW, [1, 2, 3], "http 404");
        assert!(sharing.is_off());
        sharing
    }

    #[test]
    fn when_all_go_through_alone_it_is_the_call() {
        let mut sharing = refused();
        // Another batch was under way.
        sharing.refused(NOW, [4], "http 404");
        assert_eq!(sharing.answered(NOW, 1, Fate::Taken), None);
        assert_eq!(sharing.answered(NOW, 9, Fate::Refused), None);
        assert_eq!(sharing.answered(NOW, 2, Fate::Open), None);
        assert_eq!(sharing.answered(NOW, 3, Fate::Taken), None);
        let told = sharing.answered(NOW, 4, Fate::Taken);
        assert_eq!(told.as_deref(), Some("http 404"));
        sharing.look(NOW + ALONE - Duration::from_secs(1));
        assert!(sharing.is_off());
        sharing.look(NOW + ALONE);
        assert!(!sharing.is_off());
        // The log hears of it once.
        sharing.refused(NOW, [5], "http 404");
        assert_eq!(sharing.answered(NOW, 5, Fate::Taken), None);
        assert!(sharing.is_off());
        sharing.reset();
        assert!(!sharing.is_off());
    }

    #[test]
    fn one_that_is_refused_alone_was_why() {
        let mut sharing = refused();
        assert_eq!(sharing.answered(NOW, 1, Fate::Taken), None);
        assert_eq!(sharing.answered(NOW, 2, Fate::Refused), None);
        assert!(!sharing.is_off());
        assert_eq!(sharing.answered(NOW, 3, Fate::Taken), None);
        assert!(!sharing.is_off());
    }

    #[test]
    fn without_any_that_went_through_nothing_is_known() {
        let mut sharing = refused();
        for mail in 1..=3 {
            assert_eq!(sharing.answered(NOW, mail, Fate::Open), None);
        }
        assert!(!sharing.is_off());
    }

    #[test]
    fn a_trial_ends_when_the_channel_pauses_a_batch_goes_through_or_it_takes_too_long() {
        let mut sharing = refused();
        sharing.give_up();
        assert!(!sharing.is_off());
        let mut sharing = refused();
        sharing.taken();
        assert!(!sharing.is_off());
        let mut sharing = refused();
        sharing.look(NOW + TRIAL);
        assert!(!sharing.is_off());
    }
}
