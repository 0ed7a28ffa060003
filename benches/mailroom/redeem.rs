//! How fast links are redeemed: single statements of eight clients, a durable commit each.
//!
//! A is `mailroom_redeem`. B is what an application without it would write: an UPDATE that marks the token
//! with this secret as used, with no signature, no code, no siblings and no mail to look after. Both activate
//! the account by the same trigger.

use crate::cluster::{Cluster, number};
use crate::ground;
use crate::pgbench::Load;
use crate::plan::Effort;
use crate::table::{Row, Target, Unit};

const CLIENTS: u32 = 8;
/// Links made for a turn: more than can be redeemed in it.
const LINKS_A_SECOND: u32 = 25_000;

/// The rows of redeem: an activation and a recovery.
pub fn measure(effort: Effort) -> Vec<Row> {
    let cluster = ground::without_workers();
    ground::create_database(&cluster, "redeem", &[]);
    ["activation", "password_recovery"]
        .map(|action| compare(&cluster, effort, action))
        .into()
}

fn compare(cluster: &Cluster, effort: Effort, action: &str) -> Row {
    let name = format!("redeem, {action}, {CLIENTS} clients: mailroom_redeem / plain UPDATE");
    let mut row = Row::new(name, Unit::PerSecond).aiming_at(Some(Target::AtLeast(3_000.0)));
    for _ in 0..effort.of(5, 1) {
        let [a, b] = [
            include_str!("redeem.pgbench"),
            include_str!("consume.pgbench"),
        ]
        .map(|script| run(cluster, effort, action, script));
        row.add(a, b);
    }
    row
}

fn run(cluster: &Cluster, effort: Effort, action: &str, script: &str) -> f64 {
    let seconds = effort.of(4, 1);
    let count = seconds * LINKS_A_SECOND;
    let mut client = cluster.connect("redeem");
    let prepare = include_str!("links.sql")
        .replace("$action", action)
        .replace("$count", &count.to_string());
    for statement in prepare.split(";\n") {
        client.batch_execute(statement).unwrap();
    }
    let load = Load {
        script,
        clients: CLIENTS,
        seconds,
        rate: None,
    };
    let rate = load.run(cluster, "redeem");
    // Every statement redeemed a link of its own, and there were enough.
    let redeemed = number(
        &mut client,
        "SELECT count(*) FROM tokens WHERE consumed_at IS NOT NULL",
    );
    assert!(redeemed < i64::from(count) / 4 * 3, "the links ran out");
    assert!(
        redeemed as f64 > 0.9 * rate * f64::from(seconds),
        "{redeemed} links in {seconds} s at {rate}/s"
    );
    rate
}
