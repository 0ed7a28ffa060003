//! The policy where little mail waits, and where some mails always fail.

use super::policy::{MINUTE, shape};
use super::*;

const OUTAGE: Duration = Duration::from_secs(9 * 60);
/// The longest time between probes, and that of a request.
const PROBE: Duration = Duration::from_secs(32);

impl World {
    /// Until a mail is sent, which must be this soon.
    fn must_send_within(&mut self, limit: Duration) {
        let (before, until) = (self.taken, self.now + limit);
        while self.taken == before {
            self.step(false);
            assert!(self.now <= until, "nothing was sent: {:?}", self.stuck());
        }
    }

    fn most_attempts(&self) -> Option<i32> {
        self.rows.values().map(|row| row.attempts).max()
    }
}

#[test]
fn after_an_outage_the_few_mails_that_wait_go_within_half_a_minute() {
    for (state, count, most_attempts) in [
        (ProviderState::Unreachable, 1, 3),
        (ProviderState::Unreachable, 3, 2),
        (ProviderState::Fails, 3, 8),
    ] {
        let mut world = World::new(shape(), 20);
        world.provider = state;
        world.schedule_many(count);
        let end = world.now + OUTAGE;
        world.run_until(end);
        assert_eq!(world.deliverer.status().state, "paused");
        assert!(world.most_attempts() <= Some(most_attempts), "{state:?}");
        world.provider = ProviderState::Up;
        world.must_send_within(PROBE);
    }
}

#[test]
fn probes_that_always_fail_keep_no_other_mail() {
    for priority in [-50, 0] {
        let mut world = World::new(shape(), 21);
        for _ in 0..3 {
            world.schedule(Row {
                poison: true,
                priority,
                ..Row::default()
            });
        }
        world.provider = ProviderState::Fails;
        world.schedule_many(20);
        let end = world.now + OUTAGE;
        world.run_until(end);
        world.provider = ProviderState::Up;
        // It takes some probes to come to one that does not fail, with more candidates each time.
        let until = world.now + 5 * MINUTE;
        while world.count("sent") < 20 {
            world.step(false);
            assert!(world.now <= until, "{:?}", world.stuck());
        }
    }
}

#[test]
fn a_configuration_that_is_wrong_ends_not_even_a_few_mails() {
    for (count, most_attempts) in [(1, 9), (2, 5), (9, 2)] {
        let mut world = World::new(shape(), 22);
        world.provider = ProviderState::RefusesMessages;
        world.schedule_many(count);
        let end = world.now + 600 * MINUTE;
        world.run_until(end);
        assert_eq!(world.deliverer.status().state, "paused");
        assert!(world.most_attempts() <= Some(most_attempts));
        world.settle_down();
        assert_eq!(world.count("sent"), world.rows.len());
    }
}

/// A provider that knows a batch again is asked again for the whole of it, however small new batches are meanwhile.
#[test]
fn a_small_batch_limit_takes_no_batch_apart_that_is_repeated() {
    let mut world = World::new(
        Shape {
            batch: 50,
            idempotent: true,
            rate: Some("5 requests/s"),
            ..shape()
        },
        24,
    );
    world.provider = ProviderState::ResponseLost;
    world.schedule_many(50);
    let soon = world.now + Duration::from_secs(1);
    world.run_until(soon);
    world.schedule_many(2);
    let later = world.now + Duration::from_secs(2);
    world.run_until(later);
    world.provider = ProviderState::Up;
    world.settle_down();
    let most = world.rows.values().map(|row| row.copies).max();
    assert_eq!(most, Some(1), "{:?}", world.sizes);
}

#[test]
fn a_batch_that_may_have_been_sent_is_halved_and_batches_grow_again() {
    let mut world = World::new(
        Shape {
            batch: 64,
            concurrency: 1,
            ..shape()
        },
        23,
    );
    world.schedule_many(1_000);
    world.provider = ProviderState::RequestLost;
    while world.sizes.len() < 3 {
        world.step(false);
    }
    assert_eq!(world.sizes[..3], [64, 32, 16]);
    world.provider = ProviderState::Up;
    world.settle_down();
    assert_eq!(world.sizes[3..].iter().max(), Some(&64));
}
