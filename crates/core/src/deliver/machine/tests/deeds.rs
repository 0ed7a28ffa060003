//! Anything that may happen, in any order.

use super::*;

fn shapes() -> impl Strategy<Value = Shape> {
    (
        prop_oneof![Just(1_usize), Just(3), Just(50)],
        any::<bool>(),
        any::<bool>(),
        1_usize..10,
        0_i32..3,
        prop_oneof![
            Just(None),
            Just(Some("20 messages/s")),
            Just(Some("500 recipients/s")),
            Just(Some("5 requests/s")),
            Just(Some("10 recipients/s"))
        ],
    )
        .prop_map(
            |(batch, idempotent, has_sign, concurrency, max_ambiguous, rate)| Shape {
                batch,
                idempotent,
                has_sign,
                concurrency,
                max_ambiguous,
                rate,
            },
        )
}

#[derive(Clone, Debug)]
pub(super) enum Deed {
    Schedule {
        count: u8,
        priority: i16,
        group: Option<u8>,
        expires: bool,
        bad: bool,
    },
    Mood(usize),
    Run {
        steps: u16,
        database_fails: bool,
    },
    Allowed(bool),
    Lose,
    Suspend(u16),
    Hurry,
    Reload,
    Reread,
    Pass(u16),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        3 => (1_u8..40, -10_i16..10, proptest::option::weighted(0.3, 0_u8..4), any::<bool>(), proptest::bool::weighted(0.1))
            .prop_map(|(count, priority, group, expires, bad)| Deed::Schedule { count, priority, group, expires, bad }),
        3 => (0..MOODS.len()).prop_map(Deed::Mood),
        6 => (1_u16..400, proptest::bool::weighted(0.1))
            .prop_map(|(steps, database_fails)| Deed::Run { steps, database_fails }),
        1 => any::<bool>().prop_map(Deed::Allowed),
        1 => Just(Deed::Lose),
        1 => (1_u16..1_000).prop_map(Deed::Suspend),
        1 => Just(Deed::Hurry),
        1 => Just(Deed::Reload),
        1 => Just(Deed::Reread),
        1 => (1_u16..300).prop_map(Deed::Pass),
    ];
    proptest::collection::vec(deed, 1..40)
}

pub(super) fn run(shape: Shape, seed: u64, deeds: Vec<Deed>) -> u64 {
    let mut world = World::new(shape, seed);
    for deed in deeds {
        match deed {
            Deed::Schedule {
                count,
                priority,
                group,
                expires,
                bad,
            } => {
                for _ in 0..count {
                    world.schedule(Row {
                        priority,
                        group: group.map(|group| group.to_string()),
                        expires_at: expires.then_some(Duration::from_secs(900)),
                        bad,
                        ..Row::default()
                    });
                }
            }
            Deed::Mood(mood) => world.mood = MOODS[mood],
            Deed::Run {
                steps,
                database_fails,
            } => {
                for _ in 0..steps {
                    world.step(database_fails);
                }
            }
            Deed::Allowed(allowed) => world.say(Event::SendingAllowed(allowed)),
            Deed::Lose => world.lose_claims(),
            Deed::Suspend(seconds) => world.suspend(Duration::from_secs(seconds.into())),
            Deed::Hurry => world.say(Event::RetryNow),
            Deed::Reload => {
                let limits = world.limits();
                world.say(Event::Configured(Box::new(limits)));
            }
            Deed::Reread => {
                let limits = world.limits();
                world.say(Event::ReloadedForProbe(Box::new(limits)));
            }
            Deed::Pass(seconds) => {
                let until = world.now + Duration::from_secs(seconds.into());
                let mut steps = 0;
                while world.now < until && steps < 2_000 {
                    world.step(false);
                    steps += 1;
                }
            }
        }
    }
    world.settle_down();
    world.check_the_end();
    world.steps
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_events_loses_mail_or_sends_it_too_often(
        shape in shapes(), seed in any::<u64>(), deeds in deeds()
    ) {
        run(shape, seed, deeds);
    }
}

#[test]
fn millions_of_steps() {
    let mut steps = 0;
    let mut seed = 1_u64;
    while steps < 1_000_000 {
        let batch = [1, 3, 50][seed as usize % 3];
        let idempotent = seed.is_multiple_of(2);
        let shape = Shape {
            batch,
            idempotent,
            has_sign: seed % 4 < 2,
            concurrency: 8,
            max_ambiguous: 1,
            rate: None,
        };
        let deeds = MOODS.iter().enumerate().flat_map(|(mood, _)| {
            let run = Deed::Run {
                steps: 400,
                database_fails: mood == 3,
            };
            [
                Deed::Mood(mood),
                many(20),
                run,
                Deed::Mood(0),
                many(20),
                Deed::Pass(60),
            ]
        });
        steps += run(shape, seed, deeds.collect());
        seed += 1;
    }
}

fn many(count: u8) -> Deed {
    Deed::Schedule {
        count,
        priority: 0,
        group: None,
        expires: false,
        bad: false,
    }
}
