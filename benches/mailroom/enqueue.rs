//! What a writer pays: single-row INSERT INTO accounts, a commit each.
//!
//! A is the extension as it is installed, with its worker at work. What it is compared with answers three
//! questions. Against the same schema without the wake-up, where a worker polls and so does the same work:
//! what does the wake-up take? Against one where nobody is woken and nobody collects: what does all of
//! mailroom take from the writers, the worker's share of the same cores included? And against NOTIFY in
//! every commit, which the wake-up is to beat.

use crate::cluster::{Cluster, number};
use crate::ground;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};

const INSERT: &str = include_str!("enqueue.pgbench");

/// A database, and what its writers are compared to.
struct Variant {
    database: &'static str,
    name: &'static str,
    settings: &'static [&'static str],
    /// Replaces the trigger that queues tokens.
    trigger: Option<&'static str>,
    collects: Collects,
    /// For the ratio of the subject to this one, and from how many clients on.
    target: Option<Target>,
    target_from: u32,
}

#[derive(PartialEq, Eq)]
enum Collects {
    Yes,
    No,
}

const SUBJECT: Variant = Variant {
    database: "subject",
    name: "extension",
    settings: &[],
    trigger: None,
    collects: Collects::Yes,
    target: None,
    target_from: 0,
};

const PARTNERS: [Variant; 3] = [
    Variant {
        database: "silent",
        name: "no wake-up, nobody collects",
        settings: &[],
        trigger: Some(include_str!("queue_only.sql")),
        collects: Collects::No,
        target: None,
        target_from: 0,
    },
    Variant {
        database: "polled",
        name: "no wake-up, worker polls",
        // Short enough that the work is done within the measurement, not after it.
        settings: &[
            "mailroom.poll_interval = '100ms'",
            "mailroom.batch_timeout = '100ms'",
        ],
        trigger: Some(include_str!("queue_only.sql")),
        collects: Collects::Yes,
        target: Some(Target::RatioAtLeast(0.9)),
        target_from: 8,
    },
    Variant {
        database: "notified",
        name: "NOTIFY in every commit",
        settings: &[],
        trigger: Some(include_str!("queue_and_notify.sql")),
        collects: Collects::Yes,
        target: Some(Target::RatioAtLeast(2.0)),
        target_from: 8,
    },
];

/// The rows of enqueue: each client count against each partner.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::with_workers();
    for variant in std::iter::once(&SUBJECT).chain(&PARTNERS) {
        let mut client = ground::create_database(&cluster, variant.database, variant.settings);
        client.batch_execute(variant.trigger.unwrap_or("")).unwrap();
        if variant.collects == Collects::No {
            client.batch_execute("SELECT mailroom_pause()").unwrap();
        }
        cluster.worker(variant.database);
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

/// Inserts per second; returns when the worker is done with them, so that the next variant has the cores.
fn insert(cluster: &Cluster, effort: Effort, clients: u32, variant: &Variant) -> f64 {
    let load = Load {
        script: INSERT,
        clients,
        seconds: effort.of(2, 1),
        rate: None,
    };
    let rate = load.run(cluster, variant.database);
    if variant.collects == Collects::Yes {
        let mut client = cluster.connect(variant.database);
        let left = number(&mut client, "SELECT count(*) FROM pending");
        eprintln!(
            "   {}: {rate:.0}/s, {left} tokens not collected at the end",
            variant.name
        );
        ground::wait_until_drained(&mut client);
    }
    rate
}
