//! How fast tokens are handed out: `mailroom_collect` against one plain statement that does the same but sign.
//!
//! One client, a transaction a batch, the same queue for both. Both meet it vacuumed, so neither steps over
//! what the other left behind.

use std::time::{Duration, Instant};

use postgres::{Client, Statement};

use crate::ground;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};
use crate::turns::in_turn;

/// Batches before the clock starts: plans are made and caches filled.
const WARM_UP: u32 = 10;
/// How often each takes its turn in a round, so that what else the machine does hits both.
const TURNS: u32 = 10;

/// A batch size, how many batches a turn takes, and the ratio to reach.
struct Case {
    size: i32,
    batches: u32,
    target: Option<Target>,
}

const CASES: [Case; 3] = [
    Case {
        size: 10,
        batches: 100,
        target: None,
    },
    Case {
        size: 100,
        batches: 40,
        target: Some(Target::RatioAtLeast(0.75)),
    },
    Case {
        size: 1_000,
        batches: 10,
        target: Some(Target::RatioAtLeast(1.0)),
    },
];

/// The rows of hand-out: each batch size with durable commits, and again without the wait for the disk,
/// which covers up what the statements themselves cost.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::without_workers();
    let mut client = ground::create_database(&cluster, "handout", &[]);
    client
        .batch_execute(include_str!("plain_outbox.sql"))
        .unwrap();
    let mut rows: Vec<Row> = CASES
        .iter()
        .map(|case| compare(&mut client, effort, case, ""))
        .collect();
    client
        .batch_execute("SET synchronous_commit = off")
        .unwrap();
    rows.extend(
        CASES
            .iter()
            .map(|case| compare(&mut client, effort, case, ", synchronous_commit=off")),
    );
    rows
}

fn compare(client: &mut Client, effort: Effort, case: &Case, note: &str) -> Row {
    let variants = [
        Variant::collect(client, case.size),
        Variant::plain(client, case.size),
    ];
    let name = format!(
        "hand-out, batch {}{note}: mailroom_collect / plain SQL",
        case.size
    );
    let mut row = Row::new(name, Unit::PerSecond).aiming_at(case.target);
    let batches = effort.of(case.batches, case.batches / 10);
    for _ in 0..effort.of(9, 1) {
        let tokens = 2 * (WARM_UP + TURNS * batches) * case.size.unsigned_abs();
        ground::add_accounts(client, tokens.into());
        ground::vacuum(client);
        let [a, b] = take_turns(client, &variants, batches);
        row.add(a, b);
    }
    row
}

/// A statement that hands out a batch, and the column with the number of tokens.
struct Variant {
    statement: Statement,
    size: i32,
    run: fn(&mut Client, &Statement) -> i32,
}

impl Variant {
    fn collect(client: &mut Client, size: i32) -> Self {
        let text = format!("SELECT mailroom_collect({size})");
        let run = |client: &mut Client, statement: &Statement| {
            client.query_one(statement, &[]).unwrap().get(0)
        };
        Self {
            statement: client.prepare(&text).unwrap(),
            size,
            run,
        }
    }

    fn plain(client: &mut Client, size: i32) -> Self {
        let text = include_str!("plain_handout.sql").replace("$limit", &size.to_string());
        let run = |client: &mut Client, statement: &Statement| {
            client.execute(statement, &[]).unwrap().try_into().unwrap()
        };
        Self {
            statement: client.prepare(&text).unwrap(),
            size,
            run,
        }
    }

    /// Takes so many batches, which must all be full.
    fn take(&self, client: &mut Client, batches: u32) -> Duration {
        let begin = Instant::now();
        for _ in 0..batches {
            assert_eq!((self.run)(client, &self.statement), self.size);
        }
        begin.elapsed()
    }
}

/// Tokens per second of each variant; `batches` is the number of batches in a turn.
fn take_turns(client: &mut Client, variants: &[Variant; 2], batches: u32) -> [f64; 2] {
    for variant in variants.iter() {
        variant.take(client, WARM_UP);
    }
    let mut total = [Duration::ZERO; 2];
    for turn in 0..TURNS {
        let took = in_turn::<_, 2>(turn as usize, |which| {
            client
                .batch_execute("VACUUM (INDEX_CLEANUP ON) pending")
                .unwrap();
            variants[which].take(client, batches)
        });
        for (total, took) in total.iter_mut().zip(took) {
            *total += took;
        }
    }
    let tokens = f64::from(TURNS * batches) * f64::from(variants[0].size);
    total.map(|total| tokens / total.as_secs_f64())
}
