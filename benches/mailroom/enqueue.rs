//! What a writer pays: single-row INSERT INTO accounts, a commit each.
//!
//! A is the extension as it is installed, with its worker at work: it takes the tokens meanwhile, on the same cores. B
//! is what an application writes without it, two bare tables and a trigger in PL/pgSQL; where no process
//! is notified of a token and none consumes it, and where the trigger notifies, though no session listens.

use crate::cluster::{Cluster, number};
use crate::ground;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};
use crate::turns::in_turn;

const SUBJECT: &str = "extension";

/// A database without the extension.
struct Partner {
    database: &'static str,
    name: &'static str,
    schema: &'static [&'static str],
    /// For the ratio with eight clients.
    target: f64,
}

const PARTNERS: [Partner; 2] = [
    Partner {
        database: "bare",
        name: "two bare tables",
        schema: &[include_str!("bare.sql")],
        target: 0.7,
    },
    Partner {
        database: "notifying",
        name: "two bare tables, NOTIFY in every commit",
        schema: &[include_str!("bare.sql"), include_str!("bare_notify.sql")],
        target: 2.0,
    },
];

/// The rows of enqueue: each number of clients against each partner.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::with_workers();
    ground::create_database(&cluster, SUBJECT, &[]);
    cluster.worker(SUBJECT);
    for partner in &PARTNERS {
        ground::create_plain_database(&cluster, partner.database, partner.schema);
    }
    let clients: &[u32] = effort.of(&[1, 8, 32], &[8]);
    clients
        .iter()
        .flat_map(|clients| compare(&cluster, effort, *clients))
        .collect()
}

fn compare(cluster: &Cluster, effort: Effort, clients: u32) -> [Row; 2] {
    let plural = if clients == 1 { "" } else { "s" };
    let mut rows = PARTNERS.map(|partner| {
        let name = format!(
            "enqueue, {clients} client{plural}: {SUBJECT} / {}",
            partner.name
        );
        let target = (clients == 8).then_some(Target::RatioAtLeast(partner.target));
        Row::new(name, Unit::PerSecond).aiming_at(target)
    });
    let databases = [SUBJECT, PARTNERS[0].database, PARTNERS[1].database];
    // A round is some short turns each, so that a disk that is slow for some seconds is slow for all.
    let turns = effort.of(2, 1);
    for _ in 0..effort.of(9, 1) {
        let mut total = [0.0; 3];
        for turn in 0..turns {
            let rates = in_turn::<_, 3>(turn, |which| {
                insert(cluster, effort, clients, databases[which])
            });
            for (total, rate) in total.iter_mut().zip(rates) {
                *total += rate / turns as f64;
            }
        }
        let [subject, partners @ ..] = total;
        for (row, partner) in rows.iter_mut().zip(partners) {
            row.add(subject, partner);
        }
    }
    rows
}

/// Inserts per second; returns when the worker has taken all of them, so that the next one has the cores.
fn insert(cluster: &Cluster, effort: Effort, clients: u32, database: &str) -> f64 {
    let load = Load {
        script: include_str!("enqueue.pgbench"),
        clients,
        seconds: effort.of(2, 1),
        rate: None,
    };
    let rate = load.run(cluster, database);
    if database == SUBJECT {
        let mut client = cluster.connect(database);
        let left = number(&mut client, "SELECT count(*) FROM pending");
        eprintln!("   {left} tokens left when the inserts ended");
        ground::wait_until_drained(&mut client);
    }
    rate
}
