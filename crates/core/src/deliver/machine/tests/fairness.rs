//! What a response to some mails changes for the others: nothing after another mail was accepted.

use super::identity::{Hand, of};
use super::policy::{MINUTE, shape};
use super::*;

impl World {
    fn run_until_throttled(&mut self) {
        self.mood = Mood::Busy;
        while self.deliverer.status().state != "throttled" {
            self.step(false);
        }
        self.mood = Mood::Fine;
    }
}

#[test]
fn a_throttle_does_not_take_batches_apart() {
    for (batch, count, concurrency) in [(100, 500, 8), (250, 1_000, 64)] {
        for idempotent in [false, true] {
            let mut world = World::new(
                Shape {
                    batch,
                    idempotent,
                    concurrency,
                    ..shape()
                },
                1,
            );
            world.schedule_many(count);
            world.run_until_throttled();
            let before = world.sizes.len();
            world.settle_down();
            let requests = world.sizes.len() - before;
            // Some mails are sent alone until one of them is accepted.
            let most = count / batch + concurrency + 2;
            assert!(requests <= most, "{requests} requests, {count} mails");
        }
    }
}

#[test]
fn urgent_mail_that_is_throttled_once_waits_for_one_other_mail_only() {
    let mut world = World::new(
        Shape {
            rate: Some("14 messages/s"),
            ..shape()
        },
        2,
    );
    world.schedule_many(500);
    let soon = world.now + Duration::from_secs(10);
    world.run_until(soon);
    world.schedule(Row {
        priority: -10,
        ..Row::default()
    });
    let urgent = world.rows.len() as i64;
    world.mood = Mood::Busy;
    let has_urgent = |sent: &Sent| sent.mails.iter().any(|mail| mail.message.id == urgent);
    while !world.requests.values().any(has_urgent) {
        world.step(false);
    }
    world.mood = Mood::Fine;
    let limit = world.now + Duration::from_secs(5);
    while world.rows[&urgent].ended.is_none() {
        world.step(false);
        assert!(world.now <= limit, "it still waits");
    }
}

#[test]
fn mail_that_met_a_wrong_configuration_keeps_its_place_after_the_correction() {
    for mood in [Mood::Picky, Mood::Locked, Mood::Broken, Mood::Denied] {
        let mut world = World::new(
            Shape {
                rate: Some("14 messages/s"),
                ..shape()
            },
            3,
        );
        world.mood = mood;
        for _ in 0..12 {
            world.schedule(Row {
                priority: -10,
                expires_at: Some(15 * MINUTE),
                ..Row::default()
            });
        }
        let corrected = world.now + 2 * MINUTE;
        world.run_until(corrected);
        world.mood = Mood::Fine;
        world.schedule_many(1_500);
        let end = world.now + MINUTE + MINUTE / 10;
        world.run_until(end);
        for id in 1..=12 {
            assert_eq!(world.rows[&id].ended, Some("sent"), "{mood:?}");
        }
    }
}

#[test]
fn one_mail_that_is_always_throttled_does_not_stop_the_others() {
    let mut world = World::new(shape(), 4);
    world.schedule(Row {
        priority: -10,
        unwelcome: true,
        ..Row::default()
    });
    world.schedule_many(200);
    let end = world.now + MINUTE;
    world.run_until(end);
    assert_eq!(world.count("sent"), 200);
    assert!(world.rows[&1].attempts > 0);
}

fn refused() -> MessageOutcome {
    MessageOutcome::Refused {
        reason: "http 200 ErrorCode 300".to_owned(),
    }
}

#[test]
fn refusals_beside_accepted_mails_are_no_sign_of_the_transport() {
    for (refusals, is_paused) in [(0..30, false), (70..100, false), (0..100, true)] {
        let mut hand = Hand::new(100);
        hand.claim((1..=100).map(|id| of("a", id)).collect());
        let outcome_of = |at| match refusals.contains(&at) {
            true => refused(),
            false => MessageOutcome::Sent { provider_id: None },
        };
        hand.end_request((0..100).map(outcome_of).collect());
        let state = hand.deliverer.status().state;
        assert_eq!(state == "paused", is_paused, "{refusals:?}: {state}");
    }
}

#[test]
fn a_long_wait_is_not_believed_from_one_response_to_a_batch() {
    let throttled = MessageOutcome::Throttled {
        reason: "http 429".to_owned(),
        after: Some(Duration::from_secs(3_600)),
    };
    let mut hand = Hand::new(100);
    hand.claim((1..=100).map(|id| of("a", id)).collect());
    hand.end_request(vec![throttled; 100]);
    assert_eq!(hand.deliverer.status().state, "throttled");
}
