//! Two mails with one `outbox.id`: of two databases, or of one before and after it was restored from a dump.

use super::*;
use crate::deliver::retry_batches::batch_key;
use crate::deliver::settlements::{Settlements, column};

/// A deliverer whose exchanges and responses a test makes.
pub(super) struct Harness {
    pub(super) deliverer: Deliverer,
    pub(super) at: Time,
    /// The requests in flight, with the `message_id` of each mail.
    pub(super) sent: Vec<(u64, Vec<String>)>,
    /// The settlements and the limit of the running exchange.
    pub(super) exchange: Option<(Settlements, Option<ClaimLimit>)>,
}

impl Harness {
    pub(super) fn new(batch: usize) -> Self {
        Self::of(Fake {
            batch,
            idempotent: false,
            has_sign: false,
        })
    }

    pub(super) fn of(provider: Fake) -> Self {
        let mut harness = Self {
            deliverer: Deliverer::default(),
            at: Time::ZERO,
            sent: Vec::new(),
            exchange: None,
        };
        harness.say(Event::Configured(Box::new(DeliveryConfig {
            capabilities: Arc::new(provider),
            concurrency: 8,
            rate: None,
            max_ambiguous: 1,
            has_events: false,
            allow_from: Vec::new(),
            account: "fake".to_owned(),
        })));
        harness
    }

    /// One whose first claim found nothing.
    pub(super) fn idle(provider: Fake) -> Self {
        let mut harness = Self::of(provider);
        harness.say(Event::SendingAllowed(true));
        if harness.exchange.is_some() {
            harness.end_exchange(&[], Vec::new());
        }
        harness
    }

    pub(super) fn say(&mut self, event: Event) {
        for action in self.deliverer.handle(self.at, event) {
            match action {
                Action::Send { request, mails } => {
                    let ids = mails.iter().map(|mail| mail.message.message_id.clone());
                    self.sent.push((request, ids.collect()));
                }
                Action::Exchange { settlements, claim } => {
                    self.exchange = Some((*settlements, claim))
                }
                _ => {}
            }
        }
    }

    /// A second passes.
    pub(super) fn wait(&mut self) {
        self.at += Duration::from_secs(1);
        self.say(Event::Tick);
    }

    /// Ends the running exchange; returns the mails that it settled as sent.
    pub(super) fn end_exchange(&mut self, lost: &[i64], mails: Vec<Mail>) -> Vec<i64> {
        let (settled, claim) = self.exchange.take().unwrap();
        let told = column(&settled.sent, |one| one.claim.id);
        let claimed = Claimed {
            mails,
            ..Claimed::default()
        };
        self.say(Event::Exchanged(Box::new(ExchangeResult {
            settled,
            lost: lost.to_vec(),
            claimed: claim.map(|claim| (claim, claimed)),
            ..ExchangeResult::default()
        })));
        told
    }

    /// Claims these, in an exchange of its own.
    pub(super) fn claim(&mut self, mails: Vec<Mail>) -> Vec<i64> {
        self.say(Event::MailDue { urgent: false });
        self.end_exchange(&[], mails)
    }

    /// The first request that waits has been taken by the provider; returns its mails.
    pub(super) fn answer(&mut self) -> Vec<String> {
        let count = self.sent[0].1.len();
        let outcomes = vec![MessageOutcome::Sent { provider_id: None }; count];
        self.end_request(outcomes)
    }

    /// The first request ends so; returns its mails.
    pub(super) fn end_request(&mut self, outcomes: Vec<MessageOutcome>) -> Vec<String> {
        let (request, mails) = self.sent.remove(0);
        self.say(Event::RequestDone {
            request,
            result: RequestResult {
                outcomes,
                ..RequestResult::default()
            },
        });
        mails
    }
}

/// The mails of a request that may have been sent, and is to be repeated.
pub(super) fn repeated(ids: std::ops::RangeInclusive<i64>) -> Vec<Mail> {
    let mails: Vec<Mail> = ids.map(mail).collect();
    let key = batch_key("fake", mails.iter());
    let in_batch = |mail| Mail {
        ambiguous_attempts: 1,
        ambiguous_alone: false,
        batch: Some(key.clone()),
        ..mail
    };
    mails.into_iter().map(in_batch).collect()
}

/// Of the database `of`, the mail with this id.
pub(super) fn of(of: &str, id: i64) -> Mail {
    let mut mail = mail(id);
    mail.message.message_id = format!("{of}-{id}");
    mail
}

/// Sends a mail of the first database, whose claim is lost before it is settled.
fn with_an_answer_in_hand() -> Harness {
    let mut harness = Harness::new(1);
    assert!(harness.claim(vec![of("a", 1)]).is_empty());
    assert_eq!(harness.answer(), ["a-1"]);
    harness.wait();
    assert_eq!(harness.end_exchange(&[1], Vec::new()), [1]);
    harness
}

#[test]
fn an_answer_is_remembered_for_the_very_mail() {
    let mut harness = with_an_answer_in_hand();
    harness.claim(vec![of("a", 1)]);
    assert!(harness.sent.is_empty(), "it was sent before");
    harness.wait();
    assert_eq!(harness.end_exchange(&[], Vec::new()), [1]);
}

#[test]
fn an_answer_is_not_taken_for_that_of_another_mail_with_the_same_id() {
    let mut harness = with_an_answer_in_hand();
    harness.claim(vec![of("b", 1)]);
    assert_eq!(harness.answer(), ["b-1"]);
    harness.wait();
    assert_eq!(harness.end_exchange(&[], Vec::new()), [1]);
}

#[test]
fn what_is_in_flight_settles_no_other_mail() {
    for batch in [1, 2] {
        let mut harness = Harness::new(batch);
        harness.claim(vec![of("a", 1), of("a", 2)]);
        // The database is another one, and has a mail 1 of its own.
        harness.claim(vec![of("b", 1)]);
        while !harness.sent.iter().all(|(_, mails)| mails == &["b-1"]) {
            assert!(harness.answer()[0].starts_with("a-"));
        }
        harness.wait();
        assert_eq!(harness.end_exchange(&[], Vec::new()), [2], "batch {batch}");
        assert_eq!(harness.answer(), ["b-1"]);
        harness.wait();
        assert_eq!(harness.end_exchange(&[], Vec::new()), [1]);
        assert!(harness.deliverer.held.is_empty());
    }
}

#[test]
fn what_waits_to_be_told_settles_no_other_mail() {
    let mut harness = Harness::new(1);
    harness.claim(vec![of("a", 1)]);
    harness.say(Event::MailDue { urgent: false });
    // During the exchange that claims the other one.
    assert_eq!(harness.answer(), ["a-1"]);
    harness.end_exchange(&[], vec![of("b", 1)]);
    assert_eq!(harness.sent.len(), 1);
    harness.wait();
    assert!(harness.exchange.is_none(), "there is nothing to be told");
    assert_eq!(harness.answer(), ["b-1"]);
    harness.wait();
    assert_eq!(harness.end_exchange(&[], Vec::new()), [1]);
}

#[test]
fn a_sender_that_the_transport_does_not_allow_ends_its_mail_without_a_request() {
    let mut harness = Harness::idle(Fake {
        batch: 8,
        idempotent: false,
        has_sign: false,
    });
    let from = |id, from: &str| {
        let mut mail = mail(id);
        mail.message.from_address = Some(from.to_owned());
        mail
    };
    let mut config = harness.deliverer.config.clone().unwrap();
    config.allow_from = vec!["*@example.com".to_owned()];
    harness.say(Event::Configured(Box::new(config)));
    harness.claim(vec![
        from(1, "Ann <ann@Example.com>"),
        from(2, "Ann <ann@example.org>"),
        mail(3),
        from(4, "no address"),
    ]);
    let sent: Vec<&String> = harness.sent.iter().flat_map(|(_, ids)| ids).collect();
    assert_eq!(
        sent,
        [&mail(1).message.message_id, &mail(3).message.message_id]
    );
    harness.wait();
    let (settled, _) = harness.exchange.as_ref().unwrap();
    let ended: Vec<_> = settled
        .failed
        .iter()
        .map(|one| (one.claim.id, one.attempt.permanent))
        .collect();
    assert_eq!(ended, [(2, true), (4, true)]);
    let reason = "from_address is not in allow_from of the transport";
    assert!(
        settled
            .failed
            .iter()
            .all(|one| one.attempt.reason == reason)
    );
}
