//! Crashes under load: each acknowledged account has its mail in the outbox exactly once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Stop, eventually, find_worker, number, signal};
use postgres::Client;

/// Accounts per second.
const RATE: u32 = 2_000;
/// Recovery compares each page to which it applies a record with the page in the WAL, and ends if they differ.
const CHECKED: &str = "wal_consistency_checking = all";

/// Registers accounts, one per transaction, and reconnects after each crash, until `stop` is set. Returns the logins
/// whose commit was acknowledged.
fn register(cluster: &Cluster, stop: &AtomicBool) -> Vec<String> {
    let begin = Instant::now();
    let mut acknowledged = Vec::new();
    let mut offered = 0;
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut client) = cluster.try_connect("app", "postgres") else {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        };
        // After an outage it continues at the rate and does not catch up.
        let resumed = (Instant::now(), offered);
        while !stop.load(Ordering::Relaxed) {
            let due = (offered - resumed.1) * 1_000_000 / RATE;
            let ahead = Duration::from_micros(due.into()).saturating_sub(resumed.0.elapsed());
            if ahead > Duration::from_millis(1) {
                std::thread::sleep(ahead);
            }
            offered += 1;
            let login = format!("p{offered}");
            let insert = "INSERT INTO accounts (email, login) VALUES ($1 || '@example.com', $1)";
            match client.execute(insert, &[&login]) {
                Ok(_) => acknowledged.push(login),
                Err(_) => break,
            }
        }
    }
    assert!(
        acknowledged.len() > 100,
        "hardly anything was offered in {:?}",
        begin.elapsed()
    );
    acknowledged
}

/// Checks that each acknowledged account has mail, and that each token has exactly one mail.
fn audit(client: &mut Client, acknowledged: &[String]) {
    eventually("the queue to empty", || {
        (number(client, "SELECT count(*) FROM pending") == 0).then_some(())
    });
    let missing: i64 = client
        .query_one(
            "SELECT count(*) FROM unnest($1::text[]) AS said (login) WHERE NOT EXISTS \
             (SELECT FROM outbox o JOIN accounts a ON a.id = o.account_id WHERE a.login = said.login)",
            &[&acknowledged],
        )
        .unwrap()
        .get(0);
    assert_eq!(missing, 0, "an acknowledged account has no mail");
    let doubled = "SELECT count(*) - count(DISTINCT token_id) FROM outbox";
    assert_eq!(number(client, doubled), 0, "a token was mailed twice");
    assert_eq!(
        number(
            client,
            "SELECT (SELECT count(*) FROM tokens) - count(*) FROM outbox"
        ),
        0
    );
}

/// Waits until the server has recovered. Returns a connection to it and the process id of its worker.
fn recovered(cluster: &Cluster) -> (Client, i32) {
    eventually("the server and its worker", || {
        let mut client = cluster.try_connect("app", "postgres").ok()?;
        client.simple_query("SELECT 1").ok()?;
        let worker = find_worker(&mut client)?;
        Some((client, worker))
    })
}

/// I1, I2 hold when the worker is killed.
#[test]
fn fifty_times_the_worker_is_killed() {
    let (cluster, _) = Cluster::start_with_app(&["mailroom.batch_limit = 20", CHECKED]);
    let stop = AtomicBool::new(false);
    let acknowledged = std::thread::scope(|scope| {
        let writer = scope.spawn(|| register(&cluster, &stop));
        for _ in 0..50 {
            let (mut client, worker) = recovered(&cluster);
            let before = number(&mut client, "SELECT count(*) FROM outbox");
            eventually("the worker to be at it", || {
                (number(&mut client, "SELECT count(*) FROM outbox") > before).then_some(())
            });
            signal("KILL", worker);
            eventually("the server to notice", || {
                client.simple_query("SELECT 1").err()
            });
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    let (mut client, _) = recovered(&cluster);
    audit(&mut client, &acknowledged);
    // PostgreSQL restarts its processes after each kill, and nothing else makes it do so.
    let restarts = cluster
        .log()
        .matches("all server processes terminated; reinitializing")
        .count();
    assert_eq!(restarts, 50);
    cluster.verify();
}

/// I1, I2 hold when the server is stopped without a checkpoint.
#[test]
fn twenty_times_the_server_is_stopped_immediately() {
    let (cluster, _) =
        Cluster::start_with_app(&["mailroom.batch_limit = 20", "fsync = on", CHECKED]);
    let stop = AtomicBool::new(false);
    let acknowledged = std::thread::scope(|scope| {
        let writer = scope.spawn(|| register(&cluster, &stop));
        for _ in 0..20 {
            let (mut client, _) = recovered(&cluster);
            let before = number(&mut client, "SELECT count(*) FROM outbox");
            eventually("the worker to be at it", || {
                (number(&mut client, "SELECT count(*) FROM outbox") > before).then_some(())
            });
            cluster.stop_server(Stop::Immediate);
            cluster.start_server();
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    let (mut client, _) = recovered(&cluster);
    audit(&mut client, &acknowledged);
    cluster.verify();
}

/// I2: a claim survives a crash, so the mail is not claimed a second time.
#[test]
fn what_was_claimed_is_on_disk_even_for_those_who_do_not_wait_for_it() {
    // The worker commits its batch asynchronously, and so does the claiming session; nothing else is written.
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_limit = 1",
        "wal_writer_delay = '10s'",
        "autovacuum = off",
        "fsync = on",
        CHECKED,
    ]);
    cluster.worker("app");
    client.batch_execute("CHECKPOINT").unwrap();
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')")
        .unwrap();
    let mut sender = cluster.connect("app");
    sender
        .batch_execute("SET synchronous_commit = off")
        .unwrap();
    let claimed: (i64, String) = eventually("the mail", || {
        sender
            .query_opt(
                "SELECT id, message_id::text FROM mailroom_claim(1, '1 h', 'me')",
                &[],
            )
            .unwrap()
            .map(|row| (row.get(0), row.get(1)))
    });
    drop((client, sender));
    cluster.stop_server(Stop::Immediate);
    cluster.start_server();
    let mut client = cluster.connect("app");
    let rows = client
        .query(
            "SELECT id, message_id::text, state::text, claimed_by FROM outbox",
            &[],
        )
        .unwrap();
    assert_eq!(rows.len(), 1);
    let row: (i64, String) = (rows[0].get(0), rows[0].get(1));
    assert_eq!(row, claimed);
    assert_eq!(rows[0].get::<_, &str>(2), "claimed");
    assert_eq!(rows[0].get::<_, &str>(3), "me");
    cluster.verify();
}

/// The checks at the end of these tests find an index that lacks a row.
#[test]
fn an_index_that_lacks_a_row_is_found() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.connect("postgres");
    client
        .batch_execute(
            "CREATE FUNCTION key(bigint) RETURNS bigint IMMUTABLE LANGUAGE SQL AS 'SELECT $1'; \
             CREATE TABLE things AS SELECT generate_series(1, 100) AS thing; \
             CREATE INDEX ON things (key(thing))",
        )
        .unwrap();
    if !cluster.has_contrib("amcheck") {
        return;
    }
    assert_eq!(cluster.damage(), None);
    // From now on the function returns other keys than the index has.
    client
        .batch_execute("CREATE OR REPLACE FUNCTION key(bigint) RETURNS bigint IMMUTABLE LANGUAGE SQL AS 'SELECT -$1'")
        .unwrap();
    let damage = cluster.damage().unwrap_or_default();
    assert!(damage.contains("lacks matching index tuple"), "{damage}");
}
