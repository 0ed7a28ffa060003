//! Whether a long transaction elsewhere costs: a steady stream of accounts while a session holds a snapshot.
//!
//! Rows that were handed out cannot be vacuumed while the snapshot lives, so each scan of the queue reads
//! more of them with every second. Each run has a cluster of its own, a warm-up, and the same stream; the
//! worker runs as installed.

use crate::cluster::Cluster;
use crate::ground;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};
use crate::watch::{Watch, Window};

/// Accounts offered a second.
const OFFERED: u32 = 5_000;
/// Accounts a transaction: one each cannot reach the rate reliably with two cores and durable commits.
const TOGETHER: u32 = 10;
const CLIENTS: u32 = 4;

/// Whether another session holds a snapshot.
#[derive(Clone, Copy)]
enum Snapshot {
    Held,
    None,
}

/// One run.
struct Outcome {
    first: Window,
    last: Window,
    /// The largest backlog, in seconds of input.
    backlog: f64,
    /// Accounts a second that got in.
    reached: f64,
}

/// A row to be: what it compares, and how to read A and B off a run with the snapshot and one without.
struct Comparison {
    what: &'static str,
    unit: Unit,
    target: Option<Target>,
    read: fn(&Outcome, &Outcome) -> (f64, f64),
}

const COMPARISONS: [Comparison; 8] = [
    Comparison {
        what: "cost of 100 tokens, held: last / first",
        unit: Unit::Millis,
        target: Some(Target::RatioAtMost(1.5)),
        read: |held, _| (held.last.cost, held.first.cost),
    },
    Comparison {
        what: "median batch, held: last / first",
        unit: Unit::Millis,
        target: None,
        read: |held, _| (held.last.median, held.first.median),
    },
    Comparison {
        what: "worker's CPU for 100 tokens, held: last / first",
        unit: Unit::Millis,
        target: None,
        read: |held, _| (held.last.processor, held.first.processor),
    },
    Comparison {
        what: "cost of 100 tokens, none held: last / first",
        unit: Unit::Millis,
        target: None,
        read: |_, none| (none.last.cost, none.first.cost),
    },
    Comparison {
        what: "cost of 100 tokens, last: held / none held",
        unit: Unit::Millis,
        target: None,
        read: |held, none| (held.last.cost, none.last.cost),
    },
    Comparison {
        what: "longest batch, last: held / none held",
        unit: Unit::Millis,
        target: None,
        read: |held, none| (held.last.longest, none.last.longest),
    },
    Comparison {
        what: "largest backlog, in input: held / none held",
        unit: Unit::Seconds,
        target: Some(Target::NeverAbove(1.0)),
        read: |held, none| (held.backlog, none.backlog),
    },
    Comparison {
        what: "accounts that got in: held / none held",
        unit: Unit::PerSecond,
        target: None,
        read: |held, none| (held.reached, none.reached),
    },
];

/// The rows of snapshot.
pub fn measure(effort: Effort) -> Vec<Row> {
    let (length, window) = lengths(effort);
    eprintln!("   for {length} s each; first and last: {window} s");
    let mut rows = COMPARISONS.map(|comparison| {
        let name = format!(
            "snapshot, {OFFERED}/s ({TOGETHER} a commit): {}",
            comparison.what
        );
        Row::new(name, comparison.unit).aiming_at(comparison.target)
    });
    for _ in 0..effort.of(3, 1) {
        let held = run(effort, Snapshot::Held);
        let none = run(effort, Snapshot::None);
        for (row, comparison) in rows.iter_mut().zip(&COMPARISONS) {
            let (a, b) = (comparison.read)(&held, &none);
            row.add(a, b);
        }
    }
    rows.into()
}

/// Seconds of the stream, and of each of its two ends that are compared.
fn lengths(effort: Effort) -> (u32, u32) {
    effort.of((60, 10), (3, 1))
}

fn stream(seconds: u32) -> Load<'static> {
    let script = include_str!("snapshot.pgbench");
    Load {
        script,
        clients: CLIENTS,
        seconds,
        rate: Some(OFFERED / TOGETHER),
    }
}

fn run(effort: Effort, snapshot: Snapshot) -> Outcome {
    let (length, window) = lengths(effort);
    let cluster = ground::with_workers();
    warm_up(&cluster, effort);
    let mut other = cluster.connect("stream");
    if let Snapshot::Held = snapshot {
        other
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs")
            .unwrap();
    }

    let mut watch = Watch::start(cluster.connect("stream"), cluster.worker("stream"));
    let mut pgbench = stream(length).start(&cluster, "stream");
    let marks = [0, window, length - window, length].map(|second| watch.until(second));
    assert!(pgbench.wait().unwrap().success());
    drop(other);

    Outcome {
        first: watch.window(&marks[0], &marks[1]),
        last: watch.window(&marks[2], &marks[3]),
        backlog: watch.largest() as f64 / f64::from(OFFERED),
        reached: watch.made() as f64 / f64::from(length),
    }
}

fn warm_up(cluster: &Cluster, effort: Effort) {
    let mut client = ground::create_database(cluster, "stream", &[]);
    cluster.worker("stream");
    stream(effort.of(10, 1)).run(cluster, "stream");
    ground::wait_until_drained(&mut client);
}
