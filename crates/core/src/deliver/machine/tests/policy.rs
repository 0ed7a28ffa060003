//! The policy, row by row, on a virtual clock.

use super::fairness::urgent_behind;
use super::*;

pub(super) fn shape() -> Shape {
    Shape {
        batch: 1,
        idempotent: false,
        has_sign: false,
        concurrency: 8,
        max_ambiguous: 1,
        rate: None,
    }
}

pub(super) const MINUTE: Duration = Duration::from_secs(60);

impl World {
    pub(super) fn schedule_many(&mut self, count: usize) {
        for _ in 0..count {
            self.schedule(Row::default());
        }
    }

    /// Until then.
    pub(super) fn run_until(&mut self, end: Time) {
        while self.next().is_some_and(|at| at <= end) {
            self.step(false);
        }
        self.now = self.now.max(end);
    }

    pub(super) fn count(&self, ended: &str) -> usize {
        self.rows
            .values()
            .filter(|row| row.ended == Some(ended))
            .count()
    }

    pub(super) fn logged(&self, is_wanted: impl Fn(&LogEvent) -> bool) -> usize {
        self.log.iter().filter(|event| is_wanted(event)).count()
    }
}

#[test]
fn refused_while_nothing_passes_pauses_and_holds_everything() {
    for batch in [1, 50] {
        let mut world = World::new(Shape { batch, ..shape() }, 1);
        world.provider = ProviderState::RefusesMessages;
        world.schedule_many(10_000);
        let end = world.now + 10 * MINUTE;
        world.run_until(end);
        let ended = world
            .rows
            .values()
            .filter(|row| row.ended.is_some())
            .count();
        assert_eq!(ended, 0);
        world.settle_down();
        assert_eq!(world.count("sent"), world.rows.len());
        assert_eq!(world.logged(|news| matches!(news, LogEvent::Paused(..))), 1);
        assert_eq!(world.logged(|news| matches!(news, LogEvent::Resumed(_))), 1);
        assert_eq!(world.logged(|news| matches!(news, LogEvent::Failed(..))), 0);
    }
}

#[test]
fn refused_addresses_do_not_stop_other_mail() {
    for batch in [1, 50] {
        let mut world = World::new(Shape { batch, ..shape() }, 2);
        for id in 1..=1_050 {
            let invented = id % 21 == 0;
            world.schedule(Row {
                invented,
                ..Row::default()
            });
        }
        world.settle_down();
        assert_eq!(world.count("refused"), 50);
        assert!(world.count("sent") >= 1_000);
        assert_eq!(world.logged(|news| matches!(news, LogEvent::Paused(..))), 0);
    }
}

#[test]
fn what_is_taken_and_not_answered_is_sent_twice_at_most() {
    for (batch, idempotent) in [(1, false), (50, false), (1, true), (50, true)] {
        let shape = Shape {
            batch,
            idempotent,
            ..shape()
        };
        let mut world = World::new(shape, 3);
        world.provider = ProviderState::ResponseLost;
        world.schedule_many(200);
        let end = world.now + 60 * MINUTE;
        world.run_until(end);
        world.settle_down();
        let most = world.rows.values().map(|row| row.copies).max();
        let expected = if idempotent { 1 } else { 2 };
        assert!(
            most <= Some(expected),
            "{most:?} copies, batch {batch}, {idempotent}"
        );
    }
}

#[test]
fn after_an_outage_of_nine_minutes_mail_goes_within_half_a_minute() {
    for state in [
        ProviderState::Unreachable,
        ProviderState::Fails,
        ProviderState::RequestLost,
    ] {
        let mut world = World::new(shape(), 4);
        world.schedule_many(1);
        world.settle_down();
        world.provider = state;
        let end = world.now + 9 * MINUTE;
        while world.now < end {
            world.schedule_many(1);
            let next = world.now + Duration::from_secs(1);
            world.run_until(next);
        }
        world.provider = ProviderState::Up;
        let before = world.taken;
        while world.taken == before {
            world.step(false);
            assert!(
                world.now <= end + Duration::from_secs(32),
                "{state:?}: {:?}",
                world.now - end
            );
        }
    }
}

#[test]
fn urgent_mail_overtakes_what_waits_for_the_rate() {
    let (mut world, urgent) = urgent_behind(5_000, 5);
    let limit = world.now + Duration::from_secs(2);
    while world.rows[&urgent].copies == 0 {
        world.step(false);
        assert!(world.now <= limit, "it still waits");
    }
}

#[test]
fn urgent_mail_has_a_paused_transport_tried_at_once() {
    let mut world = World::new(shape(), 6);
    world.provider = ProviderState::Unreachable;
    world.schedule_many(100);
    let later = world.now + 20 * MINUTE;
    world.run_until(later);
    assert_eq!(world.deliverer.status().state, "paused");
    world.provider = ProviderState::Up;
    world.schedule(Row {
        priority: -10,
        ..Row::default()
    });
    let limit = world.now + Duration::from_secs(1);
    while world.taken == 0 {
        world.step(false);
        assert!(world.now <= limit, "it still waits");
    }
}

#[test]
fn one_long_wait_stops_no_other_mail_and_two_are_probed_each_minute() {
    let mut world = World::new(shape(), 7);
    world.provider = ProviderState::ThrottlesForAnHour;
    world.schedule_many(100);
    let later = world.now + 30 * MINUTE;
    world.run_until(later);
    assert_eq!(world.logged(|news| matches!(news, LogEvent::Paused(..))), 1);
    assert_eq!(world.rows.values().map(|row| row.attempts).max(), Some(0));
    let back = world.now;
    world.settle_down();
    assert!(world.now <= back + 2 * MINUTE, "{:?}", world.now - back);
}

#[test]
fn a_mail_is_tried_shortly_before_it_expires_and_expires_only_then() {
    let mut world = World::new(shape(), 8);
    world.schedule_many(1);
    world.settle_down();
    world.provider = ProviderState::Fails;
    let after = Some(15 * MINUTE);
    world.schedule(Row {
        expires_at: after,
        ..Row::default()
    });
    let id = world.rows.len() as i64;
    let end = world.rows[&id].expires_at.unwrap();
    world.run_until(end.saturating_sub(Duration::from_secs(8)));
    assert_eq!(world.rows[&id].ended, None);
    world.provider = ProviderState::Up;
    world.run_until(end);
    world.settle_down();
    assert_eq!(world.rows[&id].ended, Some("sent"));
}

#[test]
fn after_a_stop_nothing_is_sent_and_all_that_was_is_settled() {
    let mut world = World::new(shape(), 9);
    world.schedule_many(1_000);
    let soon = world.now + Duration::from_secs(2);
    world.run_until(soon);
    assert!(!world.requests.is_empty());
    world.say(Event::SendingAllowed(false));
    world.stopped = true;
    while !world.deliverer.is_idle() {
        world.step(false);
    }
    assert!(world.rows.values().all(|row| !row.claimed));
    let copies: i32 = world.rows.values().map(|row| row.copies).sum();
    assert_eq!(usize::try_from(copies), Ok(world.count("sent")));
}

#[test]
fn only_mail_in_flight_of_a_failing_transport_is_charged_an_attempt() {
    let mut world = World::new(shape(), 10);
    world.provider = ProviderState::RequestLost;
    world.schedule_many(100);
    while world.requests.is_empty() {
        world.step(false);
    }
    let flying = world.requests.len();
    world.requests.clear();
    world.say(Event::ThreadRestarted("it broke".to_owned()));
    assert_eq!(world.deliverer.status().state, "paused");
    world.settle_down();
    let ambiguous = world.rows.values().filter(|row| row.ambiguous > 0).count();
    assert_eq!(ambiguous, flying);
    assert_eq!(world.count("sent"), 100);
}

#[test]
fn a_rate_does_not_make_batches_smaller_than_it_must() {
    for (rate, largest, seconds) in [
        ("5 requests/s", 50, 40 / 5),
        ("100 messages/s", 50, 2_000 / 100),
        ("20 messages/s", 20, 2_000 / 20),
    ] {
        let shape = Shape {
            batch: 50,
            rate: Some(rate),
            ..shape()
        };
        let mut world = World::new(shape, 11);
        world.schedule_many(2_000);
        let began = world.now;
        world.settle_down();
        let requests = world.sizes.len();
        assert_eq!(world.sizes.iter().max(), Some(&largest), "{rate}");
        assert!(requests <= 2_000 / largest + 10, "{rate}: {requests}");
        let took = (world.now - began).as_secs();
        assert!(
            (seconds - 1..=seconds + 5).contains(&took),
            "{rate}: {took} s"
        );
    }
}

#[test]
fn more_recipients_than_the_burst_are_not_stuck() {
    let shape = Shape {
        batch: 50,
        rate: Some("10 recipients/s"),
        ..shape()
    };
    let mut world = World::new(shape, 12);
    world.schedule_many(100);
    world.settle_down();
    assert_eq!(world.count("sent"), 100);
}

#[test]
fn what_was_read_for_another_ones_probe_changes_limits_only() {
    let mut world = World::new(shape(), 13);
    world.provider = ProviderState::ThrottlesForAnHour;
    world.schedule_many(1);
    while world.deliverer.status().state != "throttled" {
        world.step(false);
    }
    let next = world.deliverer.status().next_try;
    world.shape.concurrency = 3;
    let limits = world.limits();
    world.say(Event::ReloadedForProbe(Box::new(limits)));
    world.say(Event::ReloadFailed);
    let status = world.deliverer.status();
    assert_eq!((status.state, status.next_try), ("throttled", next));
    // Another account may not be throttled.
    let limits = DeliveryConfig {
        account: "other".to_owned(),
        ..world.limits()
    };
    world.say(Event::ReloadedForProbe(Box::new(limits)));
    assert_eq!(world.deliverer.status().state, "healthy");
}

#[test]
fn a_probe_goes_with_the_old_settings_when_there_are_no_new_ones() {
    let mut world = World::new(shape(), 14);
    world.provider = ProviderState::RefusesAccount;
    world.schedule_many(10);
    while !world.configure {
        world.step(false);
    }
    assert!(world.deliverer.paused_since().is_some());
    world.provider = ProviderState::Up;
    world.configure = false;
    world.say(Event::ReloadFailed);
    world.settle_down();
    assert_eq!(world.count("sent"), world.rows.len());
    assert_eq!(world.deliverer.paused_since(), None);
}

#[test]
fn after_a_stop_and_a_start_mail_is_sent_again() {
    let mut world = World::new(shape(), 15);
    world.schedule_many(1_000);
    let soon = world.now + Duration::from_secs(2);
    world.run_until(soon);
    world.say(Event::SendingAllowed(false));
    world.stopped = true;
    for _ in 0..3 {
        world.step(false);
    }
    world.stopped = false;
    world.say(Event::SendingAllowed(true));
    world.settle_down();
    assert_eq!(world.count("sent"), world.rows.len());
}

/// The database cannot be reached for longer than a lease: another deliverer may have what is held.
#[test]
fn nothing_that_is_held_is_sent_after_its_lease_has_ended() {
    let mut world = World::new(
        Shape {
            concurrency: 1,
            ..shape()
        },
        7,
    );
    world.schedule_many(20);
    world.say(Event::LeasesEndAt(world.now));
    let end = world.now + 10 * MINUTE;
    world.run_until(end);
    assert_eq!(world.count("sent"), 0);
    assert!(world.deliverer.requests.is_empty());
    world.say(Event::LeasesEndAt(world.now + 60 * MINUTE));
    world.settle_down();
    assert_eq!(world.count("sent"), 20);
}

/// The only probe there is, a batch that is to be repeated, is refused because of one of its mails.
#[test]
fn the_mails_of_a_probe_that_is_refused_as_a_batch_are_probed_alone() {
    for bad in 1..=3 {
        let shape = Shape {
            batch: 3,
            idempotent: true,
            ..shape()
        };
        let mut world = World::new(shape, 16);
        world.provider = ProviderState::RequestLost;
        for id in 1..=3 {
            world.schedule(Row {
                bad: id == bad,
                ..Row::default()
            });
        }
        while world.rows[&1].batch.is_none() {
            world.step(false);
        }
        world.provider = ProviderState::EndpointDenied;
        while world.deliverer.paused_since().is_none() {
            world.step(false);
        }
        world.provider = ProviderState::Up;
        let end = world.now + 2 * MINUTE;
        world.run_until(end);
        assert_eq!(world.count("sent"), 2, "{bad}");
    }
}
