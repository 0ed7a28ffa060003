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
pub(super) enum Operation {
    Schedule {
        count: u8,
        priority: i16,
        group: Option<u8>,
        expires: bool,
        bad: bool,
    },
    Provider(usize),
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

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        3 => (1_u8..40, -10_i16..10, proptest::option::weighted(0.3, 0_u8..4), any::<bool>(), proptest::bool::weighted(0.1))
            .prop_map(|(count, priority, group, expires, bad)| Operation::Schedule { count, priority, group, expires, bad }),
        3 => (0..PROVIDER_STATES.len()).prop_map(Operation::Provider),
        6 => (1_u16..400, proptest::bool::weighted(0.1))
            .prop_map(|(steps, database_fails)| Operation::Run { steps, database_fails }),
        1 => any::<bool>().prop_map(Operation::Allowed),
        1 => Just(Operation::Lose),
        1 => (1_u16..1_000).prop_map(Operation::Suspend),
        1 => Just(Operation::Hurry),
        1 => Just(Operation::Reload),
        1 => Just(Operation::Reread),
        1 => (1_u16..300).prop_map(Operation::Pass),
    ];
    proptest::collection::vec(operation, 1..40)
}

pub(super) fn run(shape: Shape, seed: u64, operations: Vec<Operation>) -> u64 {
    let mut world = World::new(shape, seed);
    // They take many exchanges.
    world.large_every = seed.is_multiple_of(8).then_some(5);
    for operation in operations {
        match operation {
            Operation::Schedule {
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
            Operation::Provider(state) => world.provider = PROVIDER_STATES[state],
            Operation::Run {
                steps,
                database_fails,
            } => {
                for _ in 0..steps {
                    world.step(database_fails);
                }
            }
            Operation::Allowed(allowed) => world.say(Event::SendingAllowed(allowed)),
            Operation::Lose => world.lose_claims(),
            Operation::Suspend(seconds) => world.suspend(Duration::from_secs(seconds.into())),
            Operation::Hurry => world.say(Event::RetryNow),
            Operation::Reload => {
                let limits = world.limits();
                world.say(Event::Configured(Box::new(limits)));
            }
            Operation::Reread => {
                let limits = world.limits();
                world.say(Event::ReloadedForProbe(Box::new(limits)));
            }
            Operation::Pass(seconds) => {
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
        shape in shapes(), seed in any::<u64>(), operations in operations()
    ) {
        run(shape, seed, operations);
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
        let operations = PROVIDER_STATES.iter().enumerate().flat_map(|(state, _)| {
            let run = Operation::Run {
                steps: 400,
                database_fails: state == 3,
            };
            [
                Operation::Provider(state),
                many(20),
                run,
                Operation::Provider(0),
                many(20),
                Operation::Pass(60),
            ]
        });
        steps += run(shape, seed, operations.collect());
        seed += 1;
    }
}

fn many(count: u8) -> Operation {
    Operation::Schedule {
        count,
        priority: 0,
        group: None,
        expires: false,
        bad: false,
    }
}
