//! Claims that are lost while a request is in flight: their leases ended, and another deliverer may have the mail.

use super::identity::{Harness, of};
use super::*;
use crate::deliver::settlements::{Settlements, column};

/// What ends a request without an attempt that counts.
fn uncounted(count: usize) -> [Vec<MessageOutcome>; 3] {
    let throttled = MessageOutcome::Throttled {
        reason: "http 429".to_owned(),
        after: None,
    };
    let alone = MessageOutcome::SendAlone {
        reason: "http 422".to_owned(),
    };
    let denied = MessageOutcome::EndpointDenied {
        reason: "not public".to_owned(),
    };
    [denied, throttled, alone].map(|outcome| vec![outcome; count])
}

impl Harness {
    fn keep(&mut self, ids: &[i64]) {
        let ids = ids.iter().copied().collect();
        self.say(Event::ClaimsInForce(Arc::new(ids)));
    }

    /// Time passes, in which nothing is claimed.
    fn pass(&mut self) {
        for _ in 0..90 {
            self.wait();
            if self.exchange.is_some() {
                self.end_exchange(&[], Vec::new());
            }
        }
    }
}

fn released(settled: &Settlements) -> Vec<i64> {
    column(&settled.released, |claim| claim.id)
}

#[test]
fn it_is_not_sent_again() {
    for outcome in uncounted(2) {
        let mut harness = Harness::new(2);
        harness.claim(vec![of("a", 1), of("a", 2)]);
        harness.keep(&[]);
        assert_eq!(harness.end_request(outcome.clone()), ["a-1", "a-2"]);
        harness.pass();
        assert!(harness.sent.is_empty(), "{outcome:?}");
        assert!(harness.deliverer.held.is_empty(), "{outcome:?}");
    }
}

#[test]
fn the_others_of_its_request_are_not_repeated_as_a_batch() {
    let mut harness = Harness::of(Fake {
        batch: 2,
        idempotent: true,
        has_sign: false,
    });
    harness.claim(vec![of("a", 1), of("a", 2)]);
    harness.keep(&[1]);
    let ambiguous = MessageOutcome::Ambiguous {
        reason: "timeout".to_owned(),
    };
    harness.end_request(vec![ambiguous; 2]);
    harness.wait();
    let (settled, _) = harness.exchange.as_ref().unwrap();
    let failed = column(&settled.failed, |one| one.claim.id);
    assert_eq!(failed, [1, 2], "the second is told as late");
    assert!(settled.failed.iter().all(|one| one.attempt.batch.is_none()));
}

#[test]
fn it_is_sent_again_once_it_was_claimed_again() {
    let mut harness = Harness::new(1);
    harness.claim(vec![of("a", 1)]);
    harness.keep(&[]);
    harness.claim(vec![of("a", 1)]);
    assert_eq!(harness.sent.len(), 1, "it is in flight");
    harness.end_request(uncounted(1)[1].clone());
    harness.pass();
    assert_eq!(harness.answer(), ["a-1"]);
    harness.wait();
    assert_eq!(harness.end_exchange(&[], Vec::new()), [1]);
}

#[test]
fn what_waits_when_the_clock_jumps_is_released() {
    let mut harness = Harness::new(1);
    harness.claim((1..=10).map(|id| of("a", id)).collect());
    assert_eq!(harness.sent.len(), 8, "as many as the limit");
    harness.say(Event::ClockJumped);
    let (settled, _) = harness.exchange.as_ref().unwrap();
    assert_eq!(released(settled), [9, 10]);
}

#[test]
fn what_is_in_flight_when_the_clock_jumps_is_claimed_again_before_it_is_sent_again() {
    for outcome in uncounted(2) {
        let mut harness = Harness::new(2);
        harness.claim(vec![of("a", 1), of("a", 2)]);
        harness.at += Duration::from_secs(1);
        harness.say(Event::ClockJumped);
        harness.end_request(outcome.clone());
        harness.wait();
        assert!(harness.sent.is_empty(), "{outcome:?}");
        let (settled, _) = harness.exchange.as_ref().unwrap();
        assert_eq!(released(settled), [1, 2], "{outcome:?}");
    }
}

#[test]
fn what_an_exchange_claims_during_which_the_clock_jumps_is_claimed_again() {
    let mut harness = Harness::new(1);
    harness.say(Event::MailDue { urgent: false });
    harness.at += Duration::from_secs(1);
    harness.say(Event::ClockJumped);
    harness.end_exchange(&[], vec![of("a", 1)]);
    assert!(harness.sent.is_empty());
    let (settled, claim) = harness.exchange.as_ref().unwrap();
    assert_eq!((released(settled), claim.is_some()), (vec![1], true));
    harness.end_exchange(&[], vec![of("a", 1)]);
    assert_eq!(harness.answer(), ["a-1"]);
}

#[test]
fn mail_expires_after_the_time_that_the_database_told() {
    let mut harness = Harness::new(1);
    let expires = |id| Mail {
        expires_in: Some(Duration::from_secs(2)),
        ..of("a", id)
    };
    harness.claim((1..=9).map(expires).collect());
    assert_eq!(harness.sent.len(), 8);
    harness.at += Duration::from_millis(2_000);
    harness.answer();
    assert_eq!(harness.sent.len(), 7, "it has expired");
    harness.wait();
    let (settled, _) = harness.exchange.as_ref().unwrap();
    assert_eq!(released(settled), [9]);
}
