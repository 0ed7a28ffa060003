//! How long a mail is on its way: from the acknowledged commit until another connection sees its outbox row.
//!
//! The row is looked for by a second connection, again and again from the moment the commit is acknowledged,
//! so a figure includes one such look. It is compared to what any program can do without the extension: a
//! client that listens for a NOTIFY and runs the plain statement of hand-out.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, Statement};

use crate::cluster::{Cluster, PATIENCE, StopAtEnd};
use crate::ground;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit, percentile};

/// How often the listening client looks whether it is to stop.
const BREATH: Duration = Duration::from_millis(100);

/// What is committed, and how soon it is to be there.
struct Case {
    name: &'static str,
    database: &'static str,
    settings: &'static [&'static str],
    insert: &'static str,
    /// For the median and the 99th percentile.
    targets: [Option<Target>; 2],
}

const CASES: [Case; 2] = [
    Case {
        name: "urgent",
        database: "urgent",
        settings: &[],
        insert: "INSERT INTO tokens (action, account) SELECT 'password_recovery', min(id) FROM accounts",
        targets: [Some(Target::AtMost(0.8)), Some(Target::AtMost(3.0))],
    },
    Case {
        name: "batch_limit = 1",
        database: "single",
        settings: &["mailroom.batch_limit = 1"],
        insert: "INSERT INTO accounts (email, login) SELECT u || '@example.com', u FROM CAST(gen_random_uuid() AS text) u",
        targets: [None, None],
    },
];

/// The rows of latency: an urgent token, and a new account where no batch waits for company.
pub fn measure(effort: Effort) -> Vec<Row> {
    let workers = ground::with_workers();
    let bare = ground::without_workers();
    let mut client = ground::create_database(&bare, "plain", &[]);
    client
        .batch_execute(include_str!("plain_outbox.sql"))
        .unwrap();
    add_active_account(&mut client);

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop_at_end = StopAtEnd(&stop);
        let listener = bare.connect("plain");
        scope.spawn(|| listen(listener, &stop));
        CASES
            .iter()
            .flat_map(|case| compare(&workers, &bare, effort, case))
            .collect()
    })
}

/// An account that may recover its password, the first of its database.
fn add_active_account(client: &mut Client) {
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active')",
        )
        .unwrap();
}

fn compare(workers: &Cluster, bare: &Cluster, effort: Effort, case: &Case) -> Vec<Row> {
    let mut client = ground::create_database(workers, case.database, case.settings);
    add_active_account(&mut client);
    workers.worker(case.database);
    let mut worker = Path::new(workers, case.database, "outbox", case.insert);
    let mut listener = Path::new(bare, "plain", "plain_outbox", case.insert);

    let samples = effort.of(500, 50);
    let mut rows = [0, 1].map(|i| {
        let part = ["p50", "p99"][i];
        let name = format!(
            "latency, {}, {part} of {samples}: worker / LISTEN client",
            case.name
        );
        Row::new(name, Unit::Millis).aiming_at(case.targets[i])
    });
    for _ in 0..effort.of(3, 1) {
        let [a, b] = take_turns([&mut worker, &mut listener], samples);
        for (row, part) in rows.iter_mut().zip([0.5, 0.99]) {
            row.add(percentile(&a, part), percentile(&b, part));
        }
    }
    rows.into()
}

/// So many milliseconds from each of two, sorted. They take turns, so that what else the machine does hits
/// both.
fn take_turns(mut paths: [&mut Path; 2], count: u32) -> [Vec<f64>; 2] {
    for path in &mut paths {
        // So that neither steps over what was handed out before.
        ground::vacuum(&mut path.reader);
    }
    let mut samples = [Vec::new(), Vec::new()];
    for _ in 0..count {
        for (path, samples) in paths.iter_mut().zip(&mut samples) {
            samples.push(path.sample().as_secs_f64() * 1_000.0);
        }
    }
    for samples in &mut samples {
        samples.sort_by(f64::total_cmp);
    }
    samples
}

/// A way from a commit to an outbox.
struct Path {
    writer: Client,
    insert: Statement,
    token: Statement,
    reader: Client,
    look: Statement,
}

impl Path {
    fn new(cluster: &Cluster, database: &str, outbox: &str, insert: &str) -> Self {
        let (mut writer, mut reader) = (cluster.connect(database), cluster.connect(database));
        // Whatever the statistics of a small table say: the look is to be the same all the time.
        reader
            .batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
            .unwrap();
        let look =
            format!("SELECT FROM {outbox} WHERE token = $1 AND state IN ('scheduled', 'claimed')");
        Self {
            insert: writer.prepare(insert).unwrap(),
            token: writer.prepare("SELECT currval('tokens_id_seq')").unwrap(),
            look: reader.prepare(&look).unwrap(),
            writer,
            reader,
        }
    }

    fn sample(&mut self) -> Duration {
        // Some idle milliseconds, not in step with anything.
        let random = RandomState::new().build_hasher().finish();
        std::thread::sleep(Duration::from_micros(5_000 + random % 15_000));

        let mut transaction = self.writer.transaction().unwrap();
        transaction.execute(&self.insert, &[]).unwrap();
        let token: i64 = transaction.query_one(&self.token, &[]).unwrap().get(0);
        transaction.commit().unwrap();
        let acknowledged = Instant::now();
        while self
            .reader
            .query_opt(&self.look, &[&token])
            .unwrap()
            .is_none()
        {
            assert!(
                acknowledged.elapsed() < PATIENCE,
                "token {token} never came"
            );
        }
        acknowledged.elapsed()
    }
}

/// The client without the extension's worker: hands out whatever waits each time it is notified.
fn listen(mut client: Client, stop: &AtomicBool) {
    let statement = client
        .prepare(&include_str!("plain_handout.sql").replace("$limit", "100"))
        .unwrap();
    // A plan made while the tables are small must do when they have grown.
    client
        .batch_execute("SET enable_seqscan = off; LISTEN token_insert")
        .unwrap();
    while !stop.load(Ordering::Relaxed) {
        let notified = client
            .notifications()
            .timeout_iter(BREATH)
            .next()
            .unwrap()
            .is_some();
        if notified {
            client.execute(&statement, &[]).unwrap();
        }
    }
}
