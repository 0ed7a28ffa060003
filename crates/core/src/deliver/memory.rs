//! How long a provider knows a request again.
//!
//! When a mail was first sent is not known: not before it was scheduled. From then on is counted, so a mail that was
//! scheduled long before it was due is taken for forgotten too early, never too late: it is sent again as often as with
//! a provider that knows nothing again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::machine::Deliverer;
use super::mail::Mail;

impl Deliverer {
    /// Whether the provider may have forgotten a request with this mail.
    pub(super) fn is_forgotten(&self, mail: &Mail, wall: SystemTime) -> bool {
        self.memory()
            .is_some_and(|memory| is_older(mail, memory, wall))
    }

    /// Whether it may have been sent as often as it may be, counted without those times that the provider knew again.
    pub(super) fn is_spent(&self, mail: &Mail, wall: SystemTime) -> bool {
        mail.ambiguous_attempts > self.max_ambiguous() && self.is_forgotten(mail, wall)
    }

    /// Ends a mail of which that is so.
    pub(super) fn end_spent(&mut self, mail: Mail) {
        self.queue.finish(&mail);
        let reason = "may have been sent: so long ago that the provider may not know it again";
        self.end_ambiguous(mail, reason);
    }

    /// Parts requests that would go again as they went, and would not be known again.
    pub(super) fn part_forgotten(&mut self, wall: SystemTime) {
        if let Some(memory) = self.memory().filter(|_| !self.again.is_empty()) {
            self.part_batches(|mails| mails.iter().any(|mail| is_older(mail, memory, wall)));
        }
    }

    /// How long the provider knows a request again, if not for ever.
    fn memory(&self) -> Option<Duration> {
        let provider = &self.limits.as_ref()?.capabilities;
        let memory = provider.remembers_for();
        (provider.is_idempotent() && memory < Duration::MAX).then_some(memory)
    }
}

/// Whether it was scheduled longer ago than that.
fn is_older(mail: &Mail, than: Duration, wall: SystemTime) -> bool {
    let created = Duration::from_secs(mail.message.created_at.try_into().unwrap_or(0));
    let now = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(created) >= than
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use super::*;
    use crate::deliver::events::{Action, Event, Limits, Outcome};
    use crate::deliver::fixture::mail;
    use crate::deliver::intake::{Claimed, Exchanged};
    use crate::deliver::{Now, batch};
    use crate::message::Message;
    use crate::transport::capabilities::Capabilities;
    use crate::transport::providers::{Answer, Provider, Request, Verdict};

    const ADDRESS: &str = "forgetful";
    const DAY: Duration = Duration::from_secs(24 * 3600);

    struct Forgetful;

    impl Capabilities for Forgetful {
        fn batch_limit(&self) -> usize {
            2
        }

        fn is_idempotent(&self) -> bool {
            true
        }

        fn remembers_for(&self) -> Duration {
            DAY
        }
    }

    impl Provider for Forgetful {
        fn request(&self, _: &[&Message], _: SystemTime) -> Result<Request, String> {
            Err("not asked".to_owned())
        }

        fn verdicts(&self, _: usize, _: &Answer<'_>) -> Vec<Verdict> {
            Vec::new()
        }
    }

    /// What a deliverer did.
    #[derive(Default)]
    struct Told {
        /// The requests, by the mails in each.
        sent: Vec<Vec<i64>>,
        /// The mails that failed, whether for good, and whether they go again as they went.
        failed: Vec<(i64, bool, bool)>,
    }

    /// Has it claim these, so long after they were scheduled, and no request have an answer.
    fn deliver(age: Duration, mails: Vec<Mail>) -> Told {
        let mut deliverer = Deliverer::new();
        let mut told = Told::default();
        let limits = Limits {
            capabilities: Arc::new(Forgetful),
            concurrency: 8,
            rate: None,
            max_ambiguous: 1,
            address: ADDRESS.to_owned(),
        };
        let mut events = VecDeque::from([Event::Configured(Box::new(limits))]);
        let mut mails = Some(mails);
        for step in 0..20 {
            let at = Duration::from_millis(100) * step;
            let wall = UNIX_EPOCH + age + at;
            let event = events.pop_front().unwrap_or(Event::Tick);
            for action in deliverer.handle(Now { at, wall }, event) {
                match action {
                    Action::Send { request, mails } => {
                        let ids = mails.iter().map(|mail| mail.message.id);
                        told.sent.push(ids.collect());
                        let reason = "timeout".to_owned();
                        let verdicts = vec![Verdict::Unknown { reason }; mails.len()];
                        events.push_back(Event::Answered {
                            request,
                            outcome: Outcome::Answered(verdicts),
                            status: None,
                        });
                    }
                    Action::Exchange {
                        settlements,
                        appetite,
                    } => {
                        let failed = &settlements.failed;
                        for (place, id) in failed.ids.iter().enumerate() {
                            let again = failed.batches[place].is_some();
                            told.failed.push((*id, failed.permanent[place], again));
                        }
                        let claimed = Claimed {
                            mails: mails.take().unwrap_or_default(),
                            ..Claimed::default()
                        };
                        events.push_back(Event::Exchanged(Box::new(Exchanged {
                            settled: *settlements,
                            claimed: appetite.map(|appetite| (appetite, claimed)),
                            ..Exchanged::default()
                        })));
                    }
                    _ => {}
                }
            }
        }
        told
    }

    fn ambiguous(id: i64, times: i32) -> Mail {
        Mail {
            ambiguous_attempts: times,
            ..mail(id)
        }
    }

    /// Mails that are to go again as they went.
    fn again(times: i32) -> Vec<Mail> {
        let mails = [ambiguous(1, times), ambiguous(2, times)];
        let key = batch::id(ADDRESS, mails.iter());
        let in_batch = |mail| Mail {
            ambiguous_alone: false,
            batch: Some(key.clone()),
            ..mail
        };
        mails.map(in_batch).into()
    }

    const SOON: Duration = Duration::from_secs(3600);

    #[test]
    fn what_is_known_again_is_sent_as_often_as_it_takes() {
        let told = deliver(SOON, vec![ambiguous(1, 5)]);
        assert_eq!(told.sent, [[1]]);
        assert_eq!(told.failed, [(1, false, false)]);
        let told = deliver(SOON, again(5));
        assert_eq!(told.sent, [[1, 2]]);
        assert_eq!(told.failed, [(1, false, true), (2, false, true)]);
    }

    #[test]
    fn what_may_be_forgotten_is_sent_as_often_as_is_allowed() {
        for age in [DAY, 3 * DAY] {
            let fresh = deliver(age, vec![ambiguous(1, 0)]);
            assert_eq!(fresh.sent, [[1]]);
            assert_eq!(fresh.failed, [(1, false, false)]);
            let once = deliver(age, vec![ambiguous(1, 1)]);
            assert_eq!(once.sent, [[1]]);
            assert_eq!(once.failed, [(1, true, false)]);
            let often = deliver(age, vec![ambiguous(1, 2)]);
            assert!(often.sent.is_empty());
            assert_eq!(often.failed, [(1, true, false)]);
        }
    }

    #[test]
    fn requests_that_may_be_forgotten_are_parted() {
        let told = deliver(DAY, again(1));
        assert_eq!(told.failed, [(1, true, false), (2, true, false)]);
        let told = deliver(DAY, again(2));
        assert!(told.sent.is_empty());
        assert_eq!(told.failed, [(1, true, false), (2, true, false)]);
        // Nor is a new one kept together.
        let told = deliver(DAY, vec![mail(1), mail(2)]);
        assert_eq!(told.sent, [[1, 2]]);
        assert_eq!(told.failed, [(1, false, false), (2, false, false)]);
    }
}
