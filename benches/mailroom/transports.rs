//! Two transports: what one that is down, with much mail waiting for it, costs the other.
//!
//! Two databases of one server deliver to the same receiver, in turn: A has 100,000 mails for a second transport, whose
//! provider answers 503; B has none. What was sent stays, as it does for `mailroom.retention`: in a table that is emptied
//! between the turns, rows lie in their order in B alone.

use std::time::Instant;

use postgres::Client;

use crate::cluster::transports::{FILE, write_secret};
use crate::cluster::{PATIENCE, eventually, number};
use crate::ground;
use crate::plan::Effort;
use crate::post;
use crate::receiver::{Receiver, status};
use crate::table::{Row, Target, Unit};
use crate::turns::in_turn;

/// The rows of several transports.
pub fn measure(effort: Effort) -> Vec<Row> {
    let mut row = Row::new(
        "webhook, beside a transport that is down with much waiting / alone",
        Unit::PerSecond,
    )
    .aiming_at(Some(Target::RatioAtLeast(0.95)));
    let (waiting, count) = effort.of((100_000, 20_000), (2_000, 500));
    let good = Receiver::start(|_| status(200));
    let down = Receiver::start(|_| status(503));
    let (cluster, transports) = post::start_cluster(&good.endpoint(), &ground::SETTINGS);
    let mut beside = cluster.create_database("beside");
    let mut alone = cluster.create_database("alone");
    let second = format!(
        "\n[transports.down]\nprovider = \"webhook\"\nendpoint = \"{}\"\nallowed_networks = [\"127.0.0.1\"]\n\
         secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\ndatabases = [\"beside\"]\n",
        down.endpoint()
    );
    write_secret(&cluster, FILE, &(transports.render() + &second));
    cluster.reload();
    load(&mut beside, "down", waiting);
    eventually("the pause of the one that is down", || {
        let paused =
            "SELECT count(*) FROM mailroom_transports WHERE name = 'down' AND state = 'paused'";
        (number(&mut beside, paused) == 1).then_some(())
    });
    for client in [&mut beside, &mut alone] {
        client.batch_execute("VACUUM (ANALYZE) outbox").unwrap();
        // Looking through the table for what is left would be the bench's own cost.
        client.batch_execute("SET enable_seqscan = off").unwrap();
        // Warms up.
        send(client, &good, count / 4);
    }
    for round in 0..effort.of(9, 1) {
        let [a, b] = in_turn::<_, 2>(round, |which| match which {
            0 => send(&mut beside, &good, count),
            _ => send(&mut alone, &good, count),
        });
        row.add(a, b);
    }
    vec![row]
}

/// Mails a second of the transport that is well, from the commit that brings them until all are settled.
fn send(client: &mut Client, receiver: &Receiver, count: i64) -> f64 {
    let before = receiver.count() as i64;
    let begin = Instant::now();
    load(client, "main", count);
    // The database is not asked before they are there: it has something better to do.
    let left = "SELECT count(*) FROM outbox WHERE transport = 'main' AND state IN ('scheduled', 'claimed')";
    while (receiver.count() as i64) < before + count || number(client, left) > 0 {
        assert!(begin.elapsed() < 10 * PATIENCE, "gave up on {count} mails");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let took = begin.elapsed().as_secs_f64();
    count as f64 / took
}

fn load(client: &mut Client, transport: &str, count: i64) {
    client
        .execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, transport) \
             SELECT 'own', '{a@example.com}', 'Hello ' || i, 'Text', $1::text FROM generate_series(1, $2::bigint) i",
            &[&transport, &count],
        )
        .unwrap();
    client
        .batch_execute("SELECT _mail_due(now(), false, false)")
        .unwrap();
}
