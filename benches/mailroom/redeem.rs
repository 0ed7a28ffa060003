//! How fast links are redeemed: single statements of eight clients, a durable commit each.
//!
//! A is `mailroom_redeem` of a recovery, with its code. B is what an application without it would write: an UPDATE that
//! marks the token with this secret as used and returns its account, in a table with an index on the secret and no
//! trigger; with no signature, no siblings and no mail to look after.

use crate::cluster::{Cluster, number};
use crate::ground;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::table::{Row, Unit};
use crate::turns::in_turn;

const CLIENTS: u32 = 8;
/// Links made for a turn: more than can be redeemed in it.
const LINKS_A_SECOND: u32 = 25_000;

/// A script, and the table whose tokens it consumes.
const WAYS: [(&str, &str); 2] = [
    (include_str!("redeem.pgbench"), "tokens"),
    (include_str!("consume.pgbench"), "plain_tokens"),
];

/// The row of redeem.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::without_workers();
    ground::create_database(&cluster, "redeem", &[]);
    let name = format!(
        "redeem, password_recovery, {CLIENTS} clients: mailroom_redeem / plain UPDATE RETURNING"
    );
    let mut row = Row::new(name, Unit::PerSecond);
    for round in 0..effort.of(5, 1) {
        let seconds = effort.of(4, 1);
        make_links(&cluster, seconds * LINKS_A_SECOND);
        let [a, b] = in_turn::<_, 2>(round, |which| run(&cluster, seconds, WAYS[which]));
        row.add(a, b);
    }
    vec![row]
}

fn make_links(cluster: &Cluster, count: u32) {
    let mut client = cluster.connect("redeem");
    let prepare = include_str!("links.sql").replace("$count", &count.to_string());
    for statement in prepare.split(";\n") {
        client.batch_execute(statement).unwrap();
    }
}

fn run(cluster: &Cluster, seconds: u32, (script, table): (&str, &str)) -> f64 {
    let load = Load {
        script,
        clients: CLIENTS,
        seconds,
        rate: None,
    };
    let rate = load.run(cluster, "redeem");
    // Every statement redeemed a link of its own, and there were enough.
    let redeemed = number(
        &mut cluster.connect("redeem"),
        &format!("SELECT count(*) FROM {table} WHERE consumed_at IS NOT NULL"),
    );
    let count = i64::from(seconds * LINKS_A_SECOND);
    assert!(redeemed < count / 4 * 3, "the links ran out");
    assert!(
        redeemed as f64 > 0.9 * rate * f64::from(seconds),
        "{redeemed} links in {seconds} s at {rate}/s"
    );
    rate
}
