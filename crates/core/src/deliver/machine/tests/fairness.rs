//! What a response to some mails changes for the others: nothing after another mail was accepted.

use super::identity::{Harness, of};
use super::policy::{MINUTE, shape};
use super::*;

impl World {
    fn run_until_throttled(&mut self) {
        self.provider = ProviderState::Throttles;
        while self.deliverer.status().state != "throttled" {
            self.step(false);
        }
        self.provider = ProviderState::Up;
    }
}

/// A world in which so many mails wait for the rate, and the id of an urgent one after them.
pub(super) fn urgent_behind(count: usize, seed: u64) -> (World, i64) {
    let mut world = World::new(
        Shape {
            rate: Some("14 messages/s"),
            ..shape()
        },
        seed,
    );
    world.schedule_many(count);
    let soon = world.now + Duration::from_secs(10);
    world.run_until(soon);
    world.schedule(Row {
        priority: -10,
        ..Row::default()
    });
    let urgent = world.rows.len() as i64;
    (world, urgent)
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
            let most = count / batch + 2;
            assert!(requests <= most, "{requests} requests, {count} mails");
        }
    }
}

#[test]
fn urgent_mail_that_is_throttled_once_waits_for_one_other_mail_only() {
    let (mut world, urgent) = urgent_behind(500, 2);
    world.provider = ProviderState::Throttles;
    let has_urgent = |sent: &Sent| sent.mails.iter().any(|mail| mail.message.id == urgent);
    while !world.requests.values().any(has_urgent) {
        world.step(false);
    }
    world.provider = ProviderState::Up;
    let limit = world.now + Duration::from_secs(5);
    while world.rows[&urgent].ended.is_none() {
        world.step(false);
        assert!(world.now <= limit, "it still waits");
    }
}

#[test]
fn mail_that_met_a_wrong_configuration_keeps_its_place_after_the_correction() {
    for state in [
        ProviderState::RefusesMessages,
        ProviderState::RefusesAccount,
        ProviderState::Fails,
        ProviderState::EndpointDenied,
    ] {
        let mut world = World::new(
            Shape {
                rate: Some("14 messages/s"),
                ..shape()
            },
            3,
        );
        world.provider = state;
        for _ in 0..12 {
            world.schedule(Row {
                priority: -10,
                expires_at: Some(15 * MINUTE),
                ..Row::default()
            });
        }
        let corrected = world.now + 2 * MINUTE;
        world.run_until(corrected);
        world.provider = ProviderState::Up;
        world.schedule_many(1_500);
        let end = world.now + MINUTE + MINUTE / 10;
        world.run_until(end);
        for id in 1..=12 {
            assert_eq!(world.rows[&id].ended, Some("sent"), "{state:?}");
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
        let mut harness = Harness::new(100);
        harness.claim((1..=100).map(|id| of("a", id)).collect());
        let outcome_of = |at| match refusals.contains(&at) {
            true => refused(),
            false => sent(),
        };
        harness.end_request((0..100).map(outcome_of).collect());
        let state = harness.deliverer.status().state;
        assert_eq!(state == "paused", is_paused, "{refusals:?}: {state}");
    }
}

#[test]
fn a_long_wait_is_not_believed_from_one_response_to_a_batch() {
    let mut harness = Harness::new(100);
    harness.claim((1..=100).map(|id| of("a", id)).collect());
    harness.end_request(vec![throttled(Some(3_600)); 100]);
    assert_eq!(harness.deliverer.status().state, "throttled");
}

fn sent() -> MessageOutcome {
    MessageOutcome::Sent { provider_id: None }
}

fn throttled(after: Option<u64>) -> MessageOutcome {
    MessageOutcome::Throttled {
        reason: "http 429".to_owned(),
        after: after.map(Duration::from_secs),
    }
}

/// The same outcome for all mails of a request.
fn to_all(outcome: &MessageOutcome, mails: &[Mail]) -> (Option<u16>, Vec<MessageOutcome>) {
    let is_sent = matches!(outcome, MessageOutcome::Sent { .. });
    let status = if is_sent { 200 } else { 429 };
    (Some(status), vec![outcome.clone(); mails.len()])
}

/// A provider that accepts this number of requests in a second, and throttles the others.
fn limited(rate: f64) -> Respond {
    let (mut tokens, mut last) = (rate, Time::ZERO);
    Box::new(move |now, mails| {
        tokens = (tokens + (now - last).as_secs_f64() * rate).min(rate);
        last = now;
        if tokens < 1.0 {
            return to_all(&throttled(None), mails);
        }
        tokens -= 1.0;
        to_all(&sent(), mails)
    })
}

/// A provider that always throttles requests with mail 1.
fn without_the_first(after: Option<u64>) -> Respond {
    Box::new(move |_, mails| {
        if mails.iter().any(|mail| mail.message.id == 1) {
            to_all(&throttled(after), mails)
        } else {
            to_all(&sent(), mails)
        }
    })
}

impl World {
    fn attempts(&self) -> i32 {
        self.rows.values().map(|row| row.attempts).sum()
    }
}

#[test]
fn a_batch_that_is_throttled_is_sent_together_again() {
    let mut world = World::new(
        Shape {
            batch: 100,
            concurrency: 64,
            ..shape()
        },
        5,
    );
    let mut is_first = true;
    world.respond = Some(Box::new(move |_, mails| {
        if std::mem::take(&mut is_first) {
            to_all(&throttled(Some(1)), mails)
        } else {
            to_all(&sent(), mails)
        }
    }));
    world.schedule_many(100);
    world.settle_down();
    assert_eq!(world.sizes[1..], [100]);
}

/// One server of a provider that is being stopped, for example, names an hour.
#[test]
fn a_long_wait_of_one_failure_is_not_believed() {
    let mut world = World::new(shape(), 7);
    let mut is_first = true;
    world.respond = Some(Box::new(move |_, mails| {
        let fails = MessageOutcome::Retry {
            reason: "http 503".to_owned(),
            after: Some(Duration::from_secs(3_600)),
        };
        if std::mem::take(&mut is_first) {
            (Some(503), vec![fails; mails.len()])
        } else {
            to_all(&sent(), mails)
        }
    }));
    world.schedule_many(2);
    let end = world.now + 2 * MINUTE;
    world.run_until(end);
    assert_eq!(world.count("sent"), 2);
}

#[test]
fn mail_that_is_always_throttled_costs_its_neighbours_no_attempt_and_little_time() {
    for (batch, after, minutes) in [(50, None, 2), (1, Some(30), 2), (1, Some(60), 4)] {
        let mut world = World::new(Shape { batch, ..shape() }, 6);
        world.respond = Some(without_the_first(after));
        world.schedule(Row {
            priority: -10,
            ..Row::default()
        });
        world.schedule_many(300);
        let end = world.now + minutes * MINUTE;
        world.run_until(end);
        assert_eq!(world.count("sent"), 300, "{batch}, {after:?}");
        assert_eq!(world.attempts(), world.rows[&1].attempts, "of itself only");
        assert!(world.attempts() > 0);
    }
}

#[test]
fn a_provider_that_accepts_few_requests_a_second_costs_hardly_an_attempt() {
    for (concurrency, rate) in [(64, 14.0), (64, 2.0), (8, 2.0), (4, 1.0)] {
        let mut world = World::new(
            Shape {
                concurrency,
                ..shape()
            },
            7,
        );
        world.respond = Some(limited(rate));
        world.schedule_many(500);
        let end = world.now + 2 * MINUTE;
        world.run_until(end);
        let (sent, attempts) = (world.count("sent"), world.attempts());
        assert!(
            sent as f64 >= (0.7 * rate * 120.0).min(500.0),
            "{rate}: {sent}"
        );
        assert!(attempts <= 10, "{rate}: {attempts}");
    }
}

#[test]
fn urgent_mail_overtakes_a_repeated_batch_that_is_throttled() {
    let mut world = World::new(
        Shape {
            batch: 10,
            idempotent: true,
            concurrency: 2,
            ..shape()
        },
        7,
    );
    let mut is_first = true;
    world.respond = Some(Box::new(move |_, mails| {
        if std::mem::take(&mut is_first) {
            let reason = "timeout".to_owned();
            (
                None,
                vec![MessageOutcome::Ambiguous { reason }; mails.len()],
            )
        } else if mails.len() > 1 {
            to_all(&throttled(None), mails)
        } else {
            to_all(&sent(), mails)
        }
    }));
    world.schedule_many(10);
    let later = world.now + Duration::from_secs(20);
    world.run_until(later);
    world.schedule(Row {
        priority: -10,
        ..Row::default()
    });
    let end = world.now + MINUTE;
    world.run_until(end);
    assert_eq!(world.rows[&11].ended, Some("sent"));
}

#[test]
fn a_quota_that_is_freed_slowly_pauses_and_costs_few_attempts() {
    let mut world = World::new(shape(), 7);
    let (mut tokens, mut last) = (20.0, Time::ZERO);
    world.respond = Some(Box::new(move |now, mails| {
        tokens += (now - last).as_secs_f64() / 10.0;
        last = now;
        if tokens >= 1.0 {
            tokens -= 1.0;
            return to_all(&sent(), mails);
        }
        let reason = "http 429 quota".to_owned();
        to_all(&MessageOutcome::AccountRefused { reason }, mails)
    }));
    world.schedule_many(300);
    for _ in 0..20 {
        let end = world.now + MINUTE;
        world.run_until(end);
        world.say(Event::MailDue { urgent: false });
    }
    assert!(world.count("sent") >= 100);
    let most = world.rows.values().map(|row| row.attempts).max();
    assert!(most <= Some(4), "{most:?}");
}
