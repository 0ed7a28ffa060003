//! Probes of a paused transport, and what urgent mail changes.

use super::identity::{Harness, repeated};
use super::policy::{MINUTE, shape};
use super::*;

/// An outage of two minutes; at its end, a group of this many mails whose first one always fails is before 40 others.
fn outage_before_a_group(size: usize, is_bad: bool) -> World {
    let mut world = World::new(shape(), 4);
    world.provider = ProviderState::Fails;
    world.schedule_many(40);
    let end = world.now + 2 * MINUTE;
    world.run_until(end);
    assert_eq!(world.deliverer.status().state, "paused");
    for id in (41..).take(size) {
        let is_first = id == 41;
        let row = Row {
            due: world.now,
            priority: -5,
            group: Some("g".to_owned()),
            bad: is_first && is_bad,
            poison: is_first && !is_bad,
            ..Row::default()
        };
        world.rows.insert(id, row);
    }
    world.provider = ProviderState::Up;
    world.say(Event::MailDue { urgent: false });
    world
}

#[test]
fn the_first_mail_of_a_group_does_not_keep_a_transport_paused() {
    for size in [31, 600] {
        for is_bad in [false, true] {
            let mut world = outage_before_a_group(size, is_bad);
            for _ in 0..20 {
                let next = world.now + MINUTE / 2;
                world.run_until(next);
                world.say(Event::MailDue { urgent: false });
            }
            assert_eq!(world.deliverer.status().state, "healthy");
            assert!(world.count("sent") >= (39 + size).min(300));
        }
    }
}

#[test]
fn urgent_mail_does_not_have_ever_more_claimed() {
    let mut world = World::new(
        Shape {
            rate: Some("14 messages/s"),
            concurrency: 4,
            ..shape()
        },
        1,
    );
    world.schedule_many(6000);
    for _ in 0..600 {
        let next = world.now + Duration::from_millis(100);
        world.run_until(next);
        world.say(Event::MailDue { urgent: true });
        // Twice the concurrency, and 16.
        assert!(world.deliverer.held.len() <= 24);
    }
}

/// The event is the same for all transports.
#[test]
fn urgent_mail_of_another_transport_causes_no_probe() {
    let probes = |with_urgent: bool| {
        let mut world = World::new(shape(), 2);
        world.provider = ProviderState::RefusesAccount;
        world.schedule_many(200);
        let begin = world.now + 5 * MINUTE;
        world.run_until(begin);
        let before = world.sizes.len();
        for _ in 0..600 {
            let next = world.now + Duration::from_secs(1);
            world.run_until(next);
            if with_urgent {
                world.say(Event::MailDue { urgent: true });
            }
        }
        world.sizes.len() - before
    };
    let (without, with) = (probes(false), probes(true));
    assert!((9..=11).contains(&without), "{without}");
    assert!(with.abs_diff(without) <= 1, "{without}, {with}");
}

#[test]
fn a_pause_is_one_line_of_the_log_though_its_reason_changes() {
    let mut world = World::new(shape(), 5);
    let mut requests = 0;
    world.respond = Some(Box::new(move |_, mails| {
        requests += 1;
        let reason = format!("http {}", 502 + requests % 2);
        let failed = MessageOutcome::Retry {
            reason,
            after: None,
        };
        (Some(503), vec![failed; mails.len()])
    }));
    world.schedule_many(300);
    let end = world.now + 9 * MINUTE;
    world.run_until(end);
    assert_eq!(
        world.logged(|event| matches!(event, LogEvent::Paused(..))),
        1
    );
    assert_eq!(world.deliverer.status().state, "paused");
}

#[test]
fn the_end_of_a_throttle_is_logged() {
    let mut world = World::new(shape(), 5);
    world.provider = ProviderState::Throttles;
    world.schedule_many(3);
    while world.deliverer.status().state != "throttled" {
        world.step(false);
    }
    world.provider = ProviderState::Up;
    let end = world.now + 2 * MINUTE;
    world.run_until(end);
    let [LogEvent::Throttled(..), LogEvent::Resumed(_)] = world.log.as_slice() else {
        panic!("{:?}", world.log);
    };
}

/// A throttle of one mail is never a pause.
#[test]
fn a_throttle_without_a_time_is_over_after_half_a_minute() {
    for offset in 0..20 {
        let mut world = World::new(shape(), 4);
        world.provider = ProviderState::Throttles;
        world.schedule_many(1);
        let end = world.now + 9 * MINUTE + Duration::from_secs(3 * offset);
        world.run_until(end);
        world.provider = ProviderState::Up;
        world.schedule(Row {
            priority: -10,
            ..Row::default()
        });
        let was = world.now;
        while world.rows[&2].ended.is_none() {
            world.step(false);
        }
        let waited = world.now - was;
        assert!(waited <= Duration::from_secs(31), "{waited:?}");
    }
}

/// A probe claims a few mails, perhaps some of a batch, and nothing is claimed until its result is known.
#[test]
fn a_batch_does_not_wait_for_its_other_mails_while_a_probe_is_in_flight() {
    for ambiguous_attempts in [1, 2] {
        let mut harness = Harness::idle(Fake {
            batch: 100,
            idempotent: true,
            has_sign: false,
        });
        harness.deliverer.breaker.pause(harness.at, "http 503");
        harness.at += Duration::from_secs(2);
        harness.say(Event::MailDue { urgent: false });
        harness.say(Event::ReloadFailed);
        let of_batch = |mail| Mail {
            ambiguous_attempts,
            ..mail
        };
        let whole: Vec<Mail> = repeated(11..=20).into_iter().map(of_batch).collect();
        let others = (1..=4).map(mail);
        harness.end_exchange(&[], others.chain(whole[..4].iter().cloned()).collect());
        assert_eq!(harness.sent.len(), 1);
        while harness.exchange.is_none() {
            harness.wait();
        }
        let (settled, _) = harness.exchange.clone().unwrap();
        assert_eq!(settled.failed.len(), 0);
        let released: Vec<i64> = settled.released.iter().map(|claim| claim.id).collect();
        assert_eq!(released, [11, 12, 13, 14]);
        harness.end_exchange(&[], Vec::new());
        harness.answer();
        // All of it is claimed now.
        while harness.exchange.is_none() {
            harness.wait();
        }
        harness.end_exchange(&[], whole);
        let sizes: Vec<usize> = harness.sent.iter().map(|(_, mails)| mails.len()).collect();
        assert!(sizes.contains(&10), "{sizes:?}");
    }
}
