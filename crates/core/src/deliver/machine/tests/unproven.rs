//! A status of success without the sign of the provider, and what that shows before and after a message was accepted.

use super::identity::{Harness, repeated};
use super::policy::{MINUTE, shape};
use super::*;

fn with_sign(batch: usize) -> Shape {
    Shape {
        batch,
        has_sign: true,
        ..shape()
    }
}

/// Accepts each message, and responds with 200 without a sign.
fn oddly() -> Option<Respond> {
    Some(Box::new(|_, mails| {
        let reason = "http 200 without a sign".to_owned();
        let outcome = MessageOutcome::NotProvider { reason };
        (Some(200), vec![outcome; mails.len()])
    }))
}

fn not_provider() -> MessageOutcome {
    MessageOutcome::NotProvider {
        reason: "http 200 without a sign".to_owned(),
    }
}

impl World {
    /// Number of messages that were accepted more often than once.
    fn copied(&self) -> usize {
        self.rows.values().filter(|row| row.copies > 1).count()
    }
}

#[test]
fn every_probe_is_the_same_mail_until_the_provider_answers() {
    for batch in [1, 50] {
        let mut world = World::new(with_sign(batch), 3);
        world.respond = oddly();
        world.schedule_many(100);
        for minute in 0..20 {
            let end = world.now + MINUTE;
            world.run_until(end);
            assert_eq!(world.deliverer.status().state, "paused");
            // It comes before the mail that is claimed to no effect, and asks for probes.
            for _ in 0..20 {
                world.schedule(Row {
                    priority: -10 - minute,
                    ..Row::default()
                });
            }
        }
        let tried = |row: &&Row| row.copies > 0;
        assert_eq!(world.rows.values().filter(tried).count(), 1);
        assert!(world.sizes.len() >= 15, "{:?}", world.sizes);
        assert!(world.rows.values().all(|row| row.attempts == 0));
        assert_eq!(
            world.logged(|event| matches!(event, LogEvent::Paused(..))),
            1
        );
        world.respond = None;
        world.settle_down();
        assert_eq!(world.count("sent"), world.rows.len());
        assert_eq!(world.copied(), 1);
    }
}

#[test]
fn until_a_message_is_accepted_one_goes_at_a_time() {
    let mut world = World::new(with_sign(50), 3);
    world.schedule_many(200);
    let mut most = 0;
    while world.taken == 0 {
        most = most.max(world.requests.len());
        world.step(false);
    }
    assert_eq!((most, world.sizes[0]), (1, 1));
    world.settle_down();
    assert!(world.sizes.len() < 20, "{:?}", world.sizes);
}

#[test]
fn without_a_sign_any_success_is_one() {
    let mut world = World::new(shape(), 3);
    world.schedule_many(200);
    let mut most = 0;
    while world.taken == 0 {
        world.step(false);
        most = most.max(world.requests.len());
    }
    assert!(most > 1);
}

#[test]
fn after_a_success_what_is_in_flight_is_ambiguous_and_no_mail_ends() {
    let mut world = World::new(with_sign(1), 3);
    world.schedule_many(40);
    while world.count("sent") < 20 {
        world.step(false);
    }
    world.respond = oddly();
    world.schedule_many(40);
    let end = world.now + 20 * MINUTE;
    world.run_until(end);
    assert_eq!(world.deliverer.status().state, "paused");
    let ambiguous = |row: &&Row| row.ambiguous > 0;
    let count = world.rows.values().filter(ambiguous).count();
    assert!((1..=world.shape.concurrency).contains(&count), "{count}");
    // The others were not tried, but for the one of the probes.
    let tried = |row: &&Row| row.ended.is_none() && row.ambiguous == 0 && row.copies > 0;
    assert!(world.rows.values().filter(tried).count() <= 1);
    world.respond = None;
    world.settle_down();
    assert_eq!(world.count("sent"), world.rows.len());
}

#[test]
fn a_batch_that_may_have_been_sent_stays_together() {
    let mut harness = Harness::idle(Fake {
        batch: 100,
        idempotent: true,
        has_sign: true,
    });
    harness.claim(repeated(1..=3));
    for _ in 0..3 {
        assert_eq!(harness.sent[0].1.len(), 3);
        harness.end_request(vec![not_provider(); 3]);
        assert_eq!(harness.deliverer.held.len(), 3);
        while harness.sent.is_empty() {
            harness.wait();
            harness.say(Event::ReloadFailed);
        }
    }
    harness.answer();
    assert_eq!(harness.deliverer.status().state, "healthy");
}

#[test]
fn a_probe_without_a_connection_keeps_its_mail_and_another_answer_ends_that() {
    let with = |second: MessageOutcome| {
        let mut harness = Harness::idle(Fake {
            batch: 1,
            idempotent: false,
            has_sign: true,
        });
        harness.claim((1..=4).map(mail).collect());
        assert_eq!(harness.sent.len(), 1);
        harness.end_request(vec![not_provider()]);
        for outcome in [second, not_provider()] {
            while harness.sent.is_empty() {
                harness.wait();
                harness.say(Event::ReloadFailed);
                if harness.exchange.is_some() {
                    harness.end_exchange(&[], (2..=4).map(mail).collect());
                }
            }
            harness.end_request(vec![outcome]);
        }
        harness.deliverer.breaker.same_probe()
    };
    let reason = "refused".to_owned();
    assert_eq!(with(MessageOutcome::NoConnection { reason }), Some(1));
    let reason = "http 401".to_owned();
    assert_ne!(with(MessageOutcome::AccountRefused { reason }), Some(1));
}

#[test]
fn the_mail_of_the_probes_is_released_when_sending_ends() {
    let mut harness = Harness::idle(Fake {
        batch: 1,
        idempotent: false,
        has_sign: true,
    });
    harness.claim((1..=4).map(mail).collect());
    harness.end_request(vec![not_provider()]);
    if harness.exchange.is_some() {
        harness.end_exchange(&[], Vec::new());
    }
    assert_eq!(harness.deliverer.held.len(), 1);
    harness.say(Event::SendingAllowed(false));
    harness.end_exchange(&[], Vec::new());
    assert!(harness.deliverer.is_idle());
}

#[test]
fn a_new_account_is_unproven_and_one_without_a_sign_is_not() {
    let mut world = World::new(with_sign(1), 3);
    world.schedule_many(20);
    world.settle_down();
    assert_eq!(world.deliverer.breaker.unproven_since(), None);
    for has_sign in [true, false] {
        world.shape.has_sign = has_sign;
        let account = format!("another, {has_sign}");
        let config = DeliveryConfig {
            account,
            ..world.limits()
        };
        world.say(Event::Configured(Box::new(config)));
        let unproven = world.deliverer.breaker.unproven_since().is_some();
        assert_eq!(unproven, has_sign);
    }
}

#[test]
fn failures_pause_a_transport_sooner_that_is_unproven() {
    let paused_after = |has_sign: bool| {
        let mut world = World::new(
            Shape {
                has_sign,
                ..shape()
            },
            3,
        );
        world.provider = ProviderState::Fails;
        world.schedule_many(100);
        while world.deliverer.status().state != "paused" {
            world.step(false);
        }
        world.sizes.len()
    };
    assert_eq!(paused_after(true), 3);
    assert!(paused_after(false) >= 16);
}

/// The provider knows the idempotency key, with other contents.
#[test]
fn a_known_key_is_that_of_the_mail_only_if_an_attempt_of_it_may_have_arrived() {
    for (may_have_arrived, batch) in [(true, 1), (false, 1), (true, 3), (false, 3)] {
        let mut harness = Harness::idle(Fake {
            batch,
            idempotent: true,
            has_sign: false,
        });
        let claimed = (1..=batch as i64).map(|id| Mail {
            may_have_arrived,
            ..mail(id)
        });
        harness.claim(claimed.collect());
        let reason = "http 409 used".to_owned();
        harness.end_request(vec![MessageOutcome::KeyUsed { reason }; batch]);
        harness.wait();
        let (settled, _) = harness.exchange.take().unwrap();
        let permanent = settled.failed.iter().filter(|one| one.attempt.permanent);
        let expected = if may_have_arrived {
            (batch, 0)
        } else {
            (0, batch)
        };
        assert_eq!((settled.sent.len(), permanent.count()), expected);
        assert_eq!(harness.deliverer.status().state, "healthy");
    }
}
