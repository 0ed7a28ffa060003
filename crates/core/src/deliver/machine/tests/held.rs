//! What could hold mail for too long: pauses whose probe is always the same message, rates of before a reload, and batches
//! that are not complete.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::identity::{Harness, repeated};
use super::policy::{MINUTE, shape};
use super::*;

/// A world where the provider refuses everything so until the returned value is set; then only message 1 is refused.
fn first_is_bad(shape: Shape, refusal: MessageOutcome) -> (World, Rc<Cell<bool>>) {
    let mut world = World::new(shape, 3);
    let works = Rc::new(Cell::new(false));
    let does_work = Rc::clone(&works);
    world.respond = Some(Box::new(move |_, mails| {
        let outcome_of = |mail: &Mail| {
            if does_work.get() && mail.message.id != 1 {
                MessageOutcome::Sent { provider_id: None }
            } else {
                refusal.clone()
            }
        };
        (Some(200), mails.iter().map(outcome_of).collect())
    }));
    world.schedule(Row {
        priority: -1,
        ..Row::default()
    });
    (world, works)
}

/// More messages were refused together than a probe claims to choose from.
#[test]
fn a_pause_ends_although_the_first_of_many_refused_messages_is_bad() {
    let reason = || "http 400".to_owned();
    for (batch, concurrency, refusal) in [
        (500, 64, MessageOutcome::AccountRefused { reason: reason() }),
        (500, 64, MessageOutcome::Refused { reason: reason() }),
        (1, 1_000, MessageOutcome::Refused { reason: reason() }),
    ] {
        let shape = Shape {
            batch,
            concurrency,
            ..shape()
        };
        let (mut world, works) = first_is_bad(shape, refusal);
        world.schedule_many(4_999);
        let end = world.now + 10 * MINUTE;
        world.run_until(end);
        assert_eq!(world.deliverer.status().state, "paused");
        assert!(world.rows.values().all(|row| row.ended.is_none()));
        works.set(true);
        let end = world.now + 10 * MINUTE;
        world.run_until(end);
        assert_eq!(world.count("sent"), 4_999, "batches of {batch}");
    }
}

#[test]
fn each_probe_is_another_message() {
    let reason = "http 503".to_owned();
    let (mut world, works) = first_is_bad(
        shape(),
        MessageOutcome::Retry {
            reason,
            after: None,
        },
    );
    let probes: Rc<RefCell<Vec<i64>>> = Rc::default();
    let seen = Rc::clone(&probes);
    let mut respond = world.respond.take().unwrap();
    world.respond = Some(Box::new(move |now, mails| {
        if now > Duration::from_secs(20) {
            seen.borrow_mut().push(mails[0].message.id);
        }
        respond(now, mails)
    }));
    world.schedule_many(2_000);
    let end = world.now + 60 * MINUTE;
    world.run_until(end);
    let different: HashSet<i64> = probes.borrow().iter().copied().collect();
    assert!(different.len() > 100);
    assert_eq!(different.len(), probes.borrow().len());
    works.set(true);
    let end = world.now + Duration::from_secs(32);
    world.run_until(end);
    assert!(world.count("sent") > 0, "{:?}", world.stuck());
}

/// What was refused once is refused again after one message was taken: fewer than ten end before the transport is paused.
#[test]
fn a_configuration_that_is_wrong_for_a_second_time_ends_fewer_than_ten() {
    for (batch, seed) in (1..7).flat_map(|seed| [(1, seed), (100, seed)]) {
        let shape = Shape {
            batch,
            concurrency: 64,
            ..shape()
        };
        let mut world = World::new(shape, seed);
        let left = Rc::new(Cell::new(0_usize));
        let count = Rc::clone(&left);
        world.respond = Some(Box::new(move |_, mails| {
            let outcome = if count.get() > 0 {
                count.set(count.get() - 1);
                MessageOutcome::Sent { provider_id: None }
            } else {
                let reason = "http 400".to_owned();
                MessageOutcome::Refused { reason }
            };
            (Some(200), vec![outcome; mails.len()])
        }));
        world.schedule_many(10_000);
        let end = world.now + 2 * MINUTE;
        world.run_until(end);
        assert_eq!(world.count("refused"), 0);
        left.set(1);
        let end = world.now + 10 * MINUTE;
        world.run_until(end);
        assert_eq!(left.get(), 0);
        assert!(
            world.count("refused") < 10,
            "batches of {batch}, seed {seed}"
        );
        assert_eq!(world.deliverer.status().state, "paused");
    }
}

/// A world with batches that the provider has taken, and whose response was lost.
fn taken_before(shape: Shape, size: i64, batches: i64) -> World {
    let mut world = World::new(shape, 7);
    for batch in 0..batches {
        let mails = repeated(batch * size + 1..=(batch + 1) * size);
        let ids = mails.iter().map(|mail| mail.message.id);
        world.known.insert(ids.collect());
        for mail in mails {
            let row = Row {
                attempts: 1,
                ambiguous: mail.ambiguous_attempts,
                copies: 1,
                batch: mail.batch,
                ..Row::default()
            };
            world.rows.insert(mail.message.id, row);
        }
    }
    world
}

/// As many mails as possible are held, and the provider takes longer for each batch than one waits for the rest of its mails.
#[test]
fn batches_that_are_known_again_stay_together_at_a_slow_provider() {
    for (concurrency, size, batches) in [(64, 100, 40), (1, 60, 6), (4, 70, 30)] {
        let shape = Shape {
            batch: 100,
            idempotent: true,
            concurrency,
            ..shape()
        };
        let mut world = taken_before(shape, size, batches);
        world.slow = Duration::from_secs(12);
        world.say(Event::MailDue { urgent: false });
        let end = world.now + 60 * MINUTE;
        world.run_until(end);
        assert_eq!(world.count("sent"), world.rows.len());
        let most = world.rows.values().map(|row| row.copies).max();
        assert_eq!(most, Some(1), "{concurrency} batches at a time");
    }
}

/// One mail of each batch has ended meanwhile, or the rate is too low now to hold a whole batch: what is held can never be
/// repeated as it was, and nothing else is claimed beside it.
#[test]
fn batches_that_will_never_be_complete_hold_up_no_other_mail() {
    for (rate, is_cut) in [(None, true), (Some("10 messages/s"), false)] {
        let shape = Shape {
            batch: 100,
            idempotent: true,
            concurrency: 1,
            rate,
            ..shape()
        };
        let mut world = taken_before(shape, 100, 3);
        for id in [1, 101, 201].into_iter().filter(|_| is_cut) {
            world.rows.get_mut(&id).unwrap().ended = Some("cancelled");
        }
        world.schedule_many(100);
        let end = world.now + 30 * MINUTE;
        world.run_until(end);
        let waiting = world.rows.values().filter(|row| row.ended.is_none());
        assert_eq!(waiting.count(), 0, "{rate:?}: {:?}", world.stuck());
    }
}

#[test]
fn a_higher_rate_is_in_force_at_once() {
    for (old, new) in [
        ("1 messages/h", Some("100 messages/s")),
        ("10 messages/h", None),
    ] {
        let shape = Shape {
            rate: Some(old),
            ..shape()
        };
        let mut world = World::new(shape, 1);
        world.schedule_many(30);
        let end = world.now + Duration::from_secs(5);
        world.run_until(end);
        world.shape.rate = new;
        let config = world.limits();
        world.say(Event::Configured(Box::new(config)));
        let end = world.now + Duration::from_secs(5);
        world.run_until(end);
        assert_eq!(world.count("sent"), 30, "{old}, then {new:?}");
    }
}

#[test]
fn an_urgent_batch_is_the_probe_that_it_asked_for() {
    for (priority, requests) in [(-10, 1), (0, 0)] {
        let mut harness = Harness::idle(Fake {
            batch: 100,
            idempotent: true,
            has_sign: false,
        });
        for _ in 0..6 {
            harness.deliverer.breaker.pause(harness.at, "http 503");
        }
        harness.at += Duration::from_secs(2);
        harness.say(Event::MailDue { urgent: true });
        harness.say(Event::ReloadFailed);
        let of_priority = |mail| Mail { priority, ..mail };
        let mails = repeated(11..=14).into_iter().map(of_priority);
        harness.end_exchange(&[], mails.collect());
        assert_eq!(harness.sent.len(), requests, "priority {priority}");
    }
}

#[test]
fn the_log_names_the_next_probe_after_a_throttle() {
    let mut world = World::new(shape(), 1);
    world.respond = Some(Box::new(|_, mails| {
        let throttled = MessageOutcome::Throttled {
            reason: "http 429".to_owned(),
            after: Some(Duration::from_secs(50)),
        };
        (Some(429), vec![throttled; mails.len()])
    }));
    world.schedule_many(20);
    let paused = |event: &LogEvent| matches!(event, LogEvent::Paused(..));
    while world.logged(paused) == 0 {
        world.step(false);
    }
    let wait = Duration::from_secs(50);
    assert!(
        world
            .log
            .contains(&LogEvent::Paused("http 429".to_owned(), wait))
    );
}

/// From when a probe is due until it has its mail, no other transport may take all of it.
#[test]
fn a_paused_transport_wants_the_mail_of_its_probe() {
    let mut harness = Harness::idle(Fake {
        batch: 1,
        idempotent: false,
        has_sign: false,
    });
    assert!(!harness.deliverer.wants_probe(harness.at));
    harness.deliverer.breaker.pause(harness.at, "http 503");
    harness.say(Event::MailDue { urgent: false });
    assert!(
        !harness.deliverer.wants_probe(harness.at),
        "it is not due yet"
    );
    harness.wait();
    assert!(harness.deliverer.wants_probe(harness.at));
    harness.say(Event::ReloadFailed);
    assert!(harness.deliverer.wants_probe(harness.at));
    harness.end_exchange(&[], vec![mail(1)]);
    assert_eq!(harness.sent.len(), 1);
    assert!(!harness.deliverer.wants_probe(harness.at));
}
