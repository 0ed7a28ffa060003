//! How long a provider recognizes a repeated request.
//!
//! The time of a mail's first request is not stored. The deliverer counts from the claim for its first attempt, which is not
//! later: a mail counts as no longer recognized a little too early, never too late. It is then repeated as often as with a
//! provider that recognizes nothing.

use std::time::Duration;

use super::state::Deliverer;
use crate::deliver::Time;
use crate::deliver::mail::Mail;

impl Deliverer {
    /// Whether the provider may no longer recognize a request with this mail.
    pub(super) fn may_be_forgotten(&self, mail: &Mail, now: Time) -> bool {
        self.idempotency_window()
            .is_some_and(|window| mail.is_older(window, now))
    }

    /// Whether the provider may no longer recognize this mail, and its ambiguous attempts are used up.
    pub(super) fn is_unrepeatable(&self, mail: &Mail, now: Time) -> bool {
        mail.ambiguous_attempts > self.max_ambiguous() && self.may_be_forgotten(mail, now)
    }

    /// Splits the batches that cannot be repeated with exactly their mails any more: the provider may no longer recognize
    /// them, or one of the mails has expired.
    pub(super) fn split_unrepeatable_batches(&mut self, now: Time) {
        if let Some(window) = self
            .idempotency_window()
            .filter(|_| !self.retry_batches.complete.is_empty())
        {
            let is_past = |mail: &Mail| mail.is_older(window, now) || mail.is_expired(now);
            self.split_batches(|mails| mails.iter().any(is_past));
        }
    }

    /// Whether the provider recognizes repeated requests.
    pub(super) fn is_idempotent(&self) -> bool {
        self.idempotency_window().is_some()
    }

    /// How long the provider recognizes a repeated request; `None` if it recognizes none.
    fn idempotency_window(&self) -> Option<Duration> {
        self.config.as_ref()?.capabilities.idempotency_window()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::deliver::events::{Action, Event, RequestResult};
    use crate::deliver::exchange::{Claimed, ExchangeResult};
    use crate::deliver::fixture::mail;
    use crate::deliver::retry_batches::batch_key;
    use crate::message::Message;
    use crate::transport::capabilities::{Capabilities, DeliveryConfig};
    use crate::transport::providers::{MessageOutcome, Provider, Request, Response};

    const ACCOUNT: &str = "forgetful";
    const DAY: Duration = Duration::from_secs(24 * 3600);

    struct Forgetful;

    impl Capabilities for Forgetful {
        fn batch_limit(&self) -> usize {
            2
        }

        fn idempotency_window(&self) -> Option<Duration> {
            Some(DAY)
        }
    }

    impl Provider for Forgetful {
        fn request(&self, _: &[&Message], _: SystemTime) -> Result<Request, String> {
            Err("not asked".to_owned())
        }

        fn outcomes(&self, _: usize, _: &Response<'_>) -> Vec<MessageOutcome> {
            Vec::new()
        }
    }

    /// The actions of a deliverer.
    #[derive(Default)]
    struct Settled {
        /// The requests, by the mails in each.
        sent: Vec<Vec<i64>>,
        /// The mails that failed, whether for good, and whether they go again as they went.
        failed: Vec<(i64, bool, bool)>,
    }

    /// A deliverer claims these mails at this age, and no request gets a response.
    fn deliver(age: Duration, mails: Vec<Mail>) -> Settled {
        let mut deliverer = Deliverer::default();
        let mut settled = Settled::default();
        let limits = DeliveryConfig {
            capabilities: Arc::new(Forgetful),
            concurrency: 8,
            rate: None,
            max_ambiguous: 1,
            has_events: false,
            allow_from: Vec::new(),
            account: ACCOUNT.to_owned(),
        };
        let mut events = VecDeque::from([Event::Configured(Box::new(limits))]);
        let of_age = |mail: Mail| Mail { age, ..mail };
        let mut mails = Some(mails.into_iter().map(of_age).collect());
        for step in 0..20 {
            let at = Duration::from_millis(100) * step;
            let event = events.pop_front().unwrap_or(Event::Tick);
            for action in deliverer.handle(at, event) {
                match action {
                    Action::Send { request, mails } => {
                        let ids = mails.iter().map(|mail| mail.message.id);
                        settled.sent.push(ids.collect());
                        let reason = "timeout".to_owned();
                        let outcomes = vec![MessageOutcome::Ambiguous { reason }; mails.len()];
                        events.push_back(Event::RequestDone {
                            request,
                            result: RequestResult {
                                outcomes,
                                ..RequestResult::default()
                            },
                        });
                    }
                    Action::Exchange { settlements, claim } => {
                        for failed in &settlements.failed {
                            let again = failed.attempt.batch.is_some();
                            settled
                                .failed
                                .push((failed.claim.id, failed.attempt.permanent, again));
                        }
                        let claimed = Claimed {
                            mails: mails.take().unwrap_or_default(),
                            ..Claimed::default()
                        };
                        events.push_back(Event::Exchanged(Box::new(ExchangeResult {
                            settled: *settlements,
                            claimed: claim.map(|claim| (claim, claimed)),
                            ..ExchangeResult::default()
                        })));
                    }
                    _ => {}
                }
            }
        }
        settled
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
        let key = batch_key(ACCOUNT, mails.iter());
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
        let settled = deliver(SOON, vec![ambiguous(1, 5)]);
        assert_eq!(settled.sent, [[1]]);
        assert_eq!(settled.failed, [(1, false, false)]);
        let settled = deliver(SOON, again(5));
        assert_eq!(settled.sent, [[1, 2]]);
        assert_eq!(settled.failed, [(1, false, true), (2, false, true)]);
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
    fn a_batch_with_a_mail_that_has_expired_is_parted() {
        let mut mails = again(1);
        mails[0].expires_in = Some(Duration::ZERO);
        let settled = deliver(SOON, mails);
        assert_eq!(settled.sent, [[2]]);
        assert_eq!(settled.failed, [(2, false, false)]);
    }

    #[test]
    fn requests_that_may_be_forgotten_are_parted() {
        let settled = deliver(DAY, again(1));
        assert_eq!(settled.failed, [(1, true, false), (2, true, false)]);
        let settled = deliver(DAY, again(2));
        assert!(settled.sent.is_empty());
        assert_eq!(settled.failed, [(1, true, false), (2, true, false)]);
        // Nor is a new one kept together.
        let settled = deliver(DAY, vec![mail(1), mail(2)]);
        assert_eq!(settled.sent, [[1, 2]]);
        assert_eq!(settled.failed, [(1, false, false), (2, false, false)]);
    }
}
