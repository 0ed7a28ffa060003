//! How long a commit takes to become a row in another table: from its acknowledgement until another connection sees the
//! row that the worker, or a task of graphile-worker, has stored.
//!
//! The row is looked for again and again from the moment the commit is acknowledged, so a figure includes one such look.
//! A is an urgent token, which is signed and becomes a mail in the outbox; the task of B stores its number.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

use postgres::{Client, Statement};

use crate::cluster::{Cluster, PATIENCE};
use crate::ground;
use crate::partners;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit, percentile};
use crate::turns::in_turn;

/// Samples before the clock starts.
const WARM_UP: u32 = 50;

/// The rows of latency.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::with_workers();
    ground::create_database(&cluster, "urgent", &[])
        .batch_execute(
            "INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active')",
        )
        .unwrap();
    cluster.worker("urgent");
    partners::create_graphile_database(&cluster, "graphile")
        .batch_execute("CREATE SEQUENCE numbers; CREATE TABLE stored (n bigint PRIMARY KEY)")
        .unwrap();
    let _graphile = partners::start_graphile(&cluster, "graphile", "");
    let mut paths = [
        Path::new(
            &cluster,
            "urgent",
            "INSERT INTO tokens (action, account) SELECT 'password_recovery', min(id) FROM accounts RETURNING id",
            "SELECT FROM outbox WHERE token_id = $1 AND state IN ('scheduled', 'claimed')",
        ),
        Path::new(
            &cluster,
            "graphile",
            "SELECT n FROM nextval('numbers') n, graphile_worker.add_job('store', json_build_object('n', n))",
            "SELECT FROM stored WHERE n = $1",
        ),
    ];
    let samples = effort.of(500, 50);
    let mut rows = [
        ("p50", Target::RatioAtMost(0.7)),
        ("p99", Target::RatioBelow(1.0)),
    ]
    .map(|(part, target)| {
        let name =
            format!("commit to row, urgent, {part} of {samples}: mailroom / graphile-worker");
        Row::new(name, Unit::Millis).aiming_at(Some(target))
    });
    for _ in 0..effort.of(9, 1) {
        let [a, b] = take_turns(&mut paths, samples);
        for (row, part) in rows.iter_mut().zip([0.5, 0.99]) {
            row.add(percentile(&a, part), percentile(&b, part));
        }
    }
    rows.into()
}

/// So many milliseconds from each of two, sorted. They take turns, so that what else the machine does hits both.
fn take_turns(paths: &mut [Path; 2], count: u32) -> [Vec<f64>; 2] {
    for path in paths.iter_mut() {
        // So that neither steps over what was handed out before.
        path.writer.batch_execute("VACUUM (ANALYZE)").unwrap();
    }
    let mut samples = [Vec::new(), Vec::new()];
    for turn in 0..WARM_UP + count {
        let took = in_turn::<_, 2>(turn as usize, |which| paths[which].sample());
        if turn >= WARM_UP {
            for (samples, took) in samples.iter_mut().zip(took) {
                samples.push(took.as_secs_f64() * 1_000.0);
            }
        }
    }
    for samples in &mut samples {
        samples.sort_by(f64::total_cmp);
    }
    samples
}

/// The path from a commit to a row.
struct Path {
    writer: Client,
    /// Returns a number.
    insert: Statement,
    reader: Client,
    /// Finds the row of a number.
    look: Statement,
}

impl Path {
    fn new(cluster: &Cluster, database: &str, insert: &str, look: &str) -> Self {
        let (mut writer, mut reader) = (cluster.connect(database), cluster.connect(database));
        // Keeps the plan the same, independent of the statistics of a small table.
        reader
            .batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
            .unwrap();
        Self {
            insert: writer.prepare(insert).unwrap(),
            look: reader.prepare(look).unwrap(),
            writer,
            reader,
        }
    }

    fn sample(&mut self) -> Duration {
        // Some idle milliseconds, not in step with anything.
        let random = RandomState::new().build_hasher().finish();
        std::thread::sleep(Duration::from_micros(5_000 + random % 15_000));

        let mut transaction = self.writer.transaction().unwrap();
        let number: i64 = transaction.query_one(&self.insert, &[]).unwrap().get(0);
        transaction.commit().unwrap();
        let acknowledged = Instant::now();
        while self
            .reader
            .query_opt(&self.look, &[&number])
            .unwrap()
            .is_none()
        {
            assert!(
                acknowledged.elapsed() < PATIENCE,
                "the row of {number} never came"
            );
        }
        acknowledged.elapsed()
    }
}
