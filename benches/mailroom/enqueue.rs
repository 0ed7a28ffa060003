//! What a writer pays: single-row INSERT INTO accounts, a commit each.
//!
//! A is the extension as it is installed, with its worker at work. What it is compared with is the same schema and
//! library with another way to be told, and answers three questions. Against nobody being told, where a client polls
//! and so does the same work: what does the wake-up take? Against nobody being told and nobody collecting: what does
//! all of mailroom take from the writers, the worker's share of the same cores included? And against NOTIFY in every
//! commit, which the wake-up is to beat: once with the worker, woken as ever, and nobody who listens, so that nothing
//! but the commits differ; and once without a worker, where a client listens and takes what it is told of, and its
//! batches tell senders by NOTIFY as well.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, Statement};

use crate::cluster::{Cluster, StopAtEnd, number};
use crate::ground;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};

const INSERT: &str = include_str!("enqueue.pgbench");

/// How often a client that polls looks, and so does the work within the measurement, not after it; and one that
/// listens, whether it is still to go on.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Tokens to a batch, of the worker and of the clients.
const BATCH_LIMIT: i64 = 100;

/// Databases with a worker: those of [`Collector::Worker`], which are made first.
const WITH_WORKER: &str = "mailroom.max_databases = 2";

/// Nobody is told where there is no worker.
const TELL_NOBODY: &str = "mailroom.notify = 'off'";

/// A database, and what its writers are compared to.
struct Variant {
    database: &'static str,
    name: &'static str,
    settings: &'static [&'static str],
    collector: Collector,
    /// For the ratio of the subject to this one, and from how many clients on.
    target: Option<Target>,
    target_from: u32,
}

/// Who takes the tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Collector {
    Worker,
    /// A client that does what a worker would, by the clock.
    Poller,
    /// A client that does what a worker would, when it is told.
    Listener,
    Nobody,
}

const SUBJECT: Variant = Variant {
    database: "subject",
    name: "extension",
    settings: &[],
    collector: Collector::Worker,
    target: None,
    target_from: 0,
};

/// Those with a worker come first.
const PARTNERS: [Variant; 4] = [
    Variant {
        database: "notified",
        name: "NOTIFY in every commit",
        settings: &["mailroom.notify = 'commit'"],
        collector: Collector::Worker,
        target: Some(Target::RatioAtLeast(2.0)),
        target_from: 8,
    },
    Variant {
        database: "listened",
        name: "NOTIFY in every commit, a client listens",
        settings: &[],
        collector: Collector::Listener,
        target: Some(Target::RatioAtLeast(2.0)),
        target_from: 8,
    },
    Variant {
        database: "silent",
        name: "no wake-up, nobody collects",
        settings: &[TELL_NOBODY],
        collector: Collector::Nobody,
        target: None,
        target_from: 0,
    },
    Variant {
        database: "polled",
        name: "no wake-up, a client polls",
        settings: &[TELL_NOBODY],
        collector: Collector::Poller,
        target: Some(Target::RatioAtLeast(0.9)),
        target_from: 8,
    },
];

/// The rows of enqueue: each client count against each partner.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::with_workers_and(&[WITH_WORKER]);
    for variant in std::iter::once(&SUBJECT).chain(&PARTNERS) {
        ground::create_database(&cluster, variant.database, variant.settings);
        if variant.collector == Collector::Worker {
            cluster.worker(variant.database);
        }
    }
    let clients: &[u32] = effort.of(&[1, 8, 32], &[8]);
    clients
        .iter()
        .flat_map(|clients| compare(&cluster, effort, *clients))
        .collect()
}

fn compare(cluster: &Cluster, effort: Effort, clients: u32) -> Vec<Row> {
    let name = |partner: &Variant| {
        format!(
            "enqueue, {clients} client{}: {} / {}",
            if clients == 1 { "" } else { "s" },
            SUBJECT.name,
            partner.name
        )
    };
    let mut rows: Vec<Row> = PARTNERS
        .iter()
        .map(|partner| {
            let target = (clients >= partner.target_from).then_some(partner.target);
            Row::new(name(partner), Unit::PerSecond).aiming_at(target.flatten())
        })
        .collect();
    // A round is some short turns each, so that a disk that is slow for some seconds is slow for all.
    let turns = effort.of(5, 1);
    for _ in 0..effort.of(5, 1) {
        let mut subject = 0.0;
        let mut partners = [0.0; PARTNERS.len()];
        for _ in 0..turns {
            subject += insert(cluster, effort, clients, &SUBJECT);
            for (rate, partner) in partners.iter_mut().zip(&PARTNERS) {
                *rate += insert(cluster, effort, clients, partner);
            }
        }
        for (row, partner) in rows.iter_mut().zip(partners) {
            row.add(subject / f64::from(turns), partner / f64::from(turns));
        }
    }
    rows
}

/// Inserts per second; returns when all of them are collected, so that the next variant has the cores.
fn insert(cluster: &Cluster, effort: Effort, clients: u32, variant: &Variant) -> f64 {
    let load = Load {
        script: INSERT,
        clients,
        seconds: effort.of(2, 1),
        rate: None,
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop_at_end = StopAtEnd(&stop);
        match variant.collector {
            Collector::Worker | Collector::Nobody => {}
            Collector::Poller => {
                scope.spawn(|| poll(cluster, variant.database, &stop));
            }
            Collector::Listener => {
                scope.spawn(|| listen(cluster, variant.database, &stop));
            }
        }
        let rate = load.run(cluster, variant.database);
        if variant.collector != Collector::Nobody {
            let mut client = cluster.connect(variant.database);
            let left = number(&mut client, "SELECT count(*) FROM pending");
            eprintln!(
                "   {}: {rate:.0}/s, {left} tokens not collected at the end",
                variant.name
            );
            ground::wait_until_drained(&mut client);
        }
        rate
    })
}

/// Takes batches by the clock.
fn poll(cluster: &Cluster, database: &str, stop: &AtomicBool) {
    let mut taker = Taker::connect(cluster, database);
    while !stop.load(Ordering::Relaxed) {
        taker.take_all(stop);
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Takes batches when it is told of new tokens.
fn listen(cluster: &Cluster, database: &str, stop: &AtomicBool) {
    let mut taker = Taker::connect(cluster, database);
    taker.client.batch_execute("LISTEN token_insert").unwrap();
    while !stop.load(Ordering::Relaxed) {
        if taker.is_told() {
            taker.take_all(stop);
        }
    }
}

/// A client that takes batches as the worker does, with its statement and its settings.
struct Taker {
    client: Client,
    batch: Statement,
}

impl Taker {
    fn connect(cluster: &Cluster, database: &str) -> Self {
        let mut client = cluster.connect(database);
        client
            .batch_execute("SET synchronous_commit = off; SET jit = off")
            .unwrap();
        let batch = client
            .prepare("SELECT collected::bigint FROM _run_batch($1::bigint::integer, 'poll')")
            .unwrap();
        Self { client, batch }
    }

    /// Whether there are new tokens, after a while at the latest.
    fn is_told(&mut self) -> bool {
        let mut notifications = self.client.notifications();
        let told = notifications.timeout_iter(POLL_INTERVAL).next().unwrap();
        // What came in meanwhile is taken with the next batch.
        notifications.iter().for_each(|_| Ok(())).unwrap();
        told.is_some()
    }

    /// Until what is left does not fill a batch.
    fn take_all(&mut self, stop: &AtomicBool) {
        loop {
            let row = self.client.query_one(&self.batch, &[&BATCH_LIMIT]).unwrap();
            let collected: i64 = row.get(0);
            if collected < BATCH_LIMIT || stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}
