//! `mailroom send` against the worker: webhooks to a server in Node.js, on the same cores, as in deliver.rs.
//!
//! Both deliver from databases of one server, in turn, through transports with the same settings. In the second row each
//! octet takes 5 ms from the program to the server, and 5 ms back.

use std::time::{Duration, Instant};

use postgres::Client;

use crate::cluster::transports::{FILE, write_secret};
use crate::cluster::{Cluster, PATIENCE, eventually, number};
use crate::ground;
use crate::partners::Provider;
use crate::plan::Effort;
use crate::post;
use crate::proxy::Proxy;
use crate::sender_scene::{ROLES, Sender, load, write_webhook};
use crate::table::{Row, Target, Unit};
use crate::turns::in_turn;

/// From the program to the server, and as long back.
const DELAY: Duration = Duration::from_millis(5);
const KEYS: &str = "timeout = \"10 s\"\nconnect_timeout = \"30 s\"";

/// The rows of sender.
pub fn measure(effort: Effort) -> Vec<Row> {
    let provider = Provider::start_plain();
    let (cluster, _) = post::start_cluster(&provider.endpoint(), &ground::SETTINGS);
    let own = cluster.scratch().join("transports.toml");
    write_webhook(&own, &provider.endpoint(), "main", KEYS);
    // The same for the worker, which has it for its database alone.
    let of_worker = std::fs::read_to_string(&own).unwrap() + "databases = [\"worker\"]\n";
    write_secret(&cluster, FILE, &of_worker);
    cluster.reload();
    let mut clients = ["worker", "near", "far"].map(|name| cluster.create_database(name));
    clients[0].batch_execute(ROLES).unwrap();
    let proxy = Proxy::start(&cluster, DELAY);
    let _senders = [("near", cluster.socket()), ("far", proxy.socket())].map(|(name, socket)| {
        let url = format!("host={} user=sender dbname={name}", socket.display());
        Sender::start_with(cluster.scratch().join(name), &own, &["--database", &url])
    });
    for client in &mut clients {
        eventually("each to be at work", || {
            let published = "SELECT count(*) FROM mailroom_transports";
            (number(client, published) == 1).then_some(())
        });
        client.batch_execute("SELECT mailroom_pause()").unwrap();
    }
    let mut rows = [
        ("on the same machine", 0.8),
        ("5 ms from its database", 0.7),
    ]
    .map(|(place, least)| {
        Row::new(
            format!("webhook: mailroom send, {place} / worker"),
            Unit::PerSecond,
        )
        .aiming_at(Some(Target::RatioAtLeast(least)))
    });
    let count = effort.of(60_000, 2_000);
    for client in &mut clients {
        // Warms up.
        deliver(&cluster, client, &provider, count / 4);
    }
    for round in 0..effort.of(9, 1) {
        let [worker, near, far] = in_turn::<_, 3>(round, |which| {
            deliver(&cluster, &mut clients[which], &provider, count)
        });
        rows[0].add(near, worker);
        rows[1].add(far, worker);
    }
    rows.into()
}

/// Mails a second, from the moment that they may be sent until all are seen to be settled.
fn deliver(cluster: &Cluster, client: &mut Client, provider: &Provider, count: i64) -> f64 {
    let before = provider.taken();
    load(client, count);
    client.batch_execute("VACUUM (ANALYZE) outbox").unwrap();
    let begin = Instant::now();
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    while provider.taken() < before + count {
        assert!(
            begin.elapsed() < 10 * PATIENCE,
            "gave up on {count} mails\n{}",
            cluster.log()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    eventually("all to be settled", || {
        let left = "SELECT count(*) FROM outbox WHERE state IN ('scheduled', 'claimed')";
        (number(client, left) == 0).then_some(())
    });
    let took = begin.elapsed().as_secs_f64();
    assert_eq!(provider.taken(), before + count, "mails went twice");
    client
        .batch_execute("SELECT mailroom_pause(); TRUNCATE outbox CASCADE")
        .unwrap();
    count as f64 / took
}
