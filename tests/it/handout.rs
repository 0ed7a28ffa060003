//! Many consumers at once, some of which die: every token is handed out once or is in the queue again.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::cluster::{Cluster, StopAtEnd, eventually, number, signal};
use postgres::Client;
use postgres::error::SqlState;

const TOKENS: u32 = 20_000;
const CONSUMERS: usize = 8;

/// A consumer records what it was handed in the same transaction, so that the record counts if that commits.
const TAKE: &str = "INSERT INTO handed SELECT secret FROM mailroom_dequeue($1)";

fn prepare(cluster: &Cluster) -> Client {
    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE app")
        .unwrap();
    let mut client = cluster.connect("app");
    client
        .batch_execute(&format!(
            "SET client_min_messages = error; CREATE EXTENSION mailroom; CREATE TABLE handed (secret text); \
             INSERT INTO accounts (email, login, status) \
             SELECT i || '@example.com', i, CASE WHEN i % 5 = 0 THEN 'active' ELSE 'provisioned' END::account_status \
             FROM generate_series(1, {TOKENS}) i; \
             INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts WHERE status = 'active'"
        ))
        .unwrap();
    assert_eq!(
        number(&mut client, "SELECT count(*) FROM pending"),
        i64::from(TOKENS)
    );
    client
}

/// How a consumer ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    QueueEmpty,
    CutOff,
}

/// Takes batches of varying size and rolls some of them back, until its session is terminated, or until the queue is
/// empty after the termination of another one.
fn consume(client: &mut Client, seed: usize, is_cut: &AtomicBool) -> End {
    try_consume(client, seed, is_cut).unwrap_or(End::CutOff)
}

fn try_consume(
    client: &mut Client,
    seed: usize,
    is_cut: &AtomicBool,
) -> Result<End, postgres::Error> {
    let mut round = seed;
    loop {
        let mut transaction = client.transaction()?;
        let limit = i32::try_from(1 + round * 37 % 200).unwrap();
        let taken = transaction.execute(TAKE, &[&limit])?;
        if round.is_multiple_of(7) {
            transaction.rollback()?;
        } else {
            transaction.commit()?;
            if taken == 0 && is_cut.load(Ordering::Relaxed) {
                return Ok(End::QueueEmpty);
            }
        }
        round += 1;
    }
}

/// Fails unless the tokens that were handed out and those that still wait are all tokens, each once.
fn audit(client: &mut Client) {
    let handed = number(client, "SELECT count(*) FROM handed");
    let distinct = number(client, "SELECT count(DISTINCT secret) FROM handed");
    assert_eq!(handed, distinct, "a token was handed out twice");
    let waiting = number(client, "SELECT count(*) FROM pending");
    assert_eq!(handed + waiting, i64::from(TOKENS), "a token was lost");
    while number(
        client,
        "WITH taken AS (SELECT * FROM mailroom_dequeue(1000)) SELECT count(*) FROM taken",
    ) > 0
    {}
    assert_eq!(
        number(client, "SELECT count(*) FROM outbox"),
        0,
        "a token was given up"
    );
    // Concurrent consumers may have left last_seq too low; the next consumer that is alone corrects it.
    assert!(number(client, "SELECT last_seq FROM jobs") <= i64::from(TOKENS));
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('last@example.com', 'last')")
        .unwrap();
    assert_eq!(client.execute(TAKE, &[&10]).unwrap(), 1);
    assert_eq!(
        number(
            client,
            "SELECT last_seq - max(id) FROM jobs, tokens GROUP BY last_seq"
        ),
        0
    );
}

/// Changes of the tables, with a lock that a batch waits for and without: sessions read the tables' descriptions again.
const CHANGES: [&str; 11] = [
    "ALTER TABLE outbox SET (fillfactor = 51)",
    "VACUUM ANALYZE outbox",
    "VACUUM pending",
    "CREATE INDEX CONCURRENTLY mine ON outbox (account_id)",
    "ALTER TABLE outbox ADD CONSTRAINT mine CHECK (kind <> 'none') NOT VALID",
    "ALTER TABLE outbox VALIDATE CONSTRAINT mine",
    "REINDEX INDEX CONCURRENTLY outbox_due",
    "ALTER TABLE outbox DROP CONSTRAINT mine",
    "ALTER TABLE outbox ADD extra integer DEFAULT 7",
    "DROP INDEX CONCURRENTLY mine",
    "ALTER TABLE outbox DROP extra",
];

#[test]
fn batches_are_taken_while_the_tables_change() {
    const ROUNDS: usize = 20;
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    let is_over = AtomicBool::new(false);
    let number_of_accounts = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    // A new session has not read the tables' descriptions yet.
                    let mut client = cluster.connect("app");
                    for _ in 0..3 {
                        let name = number_of_accounts.fetch_add(1, Ordering::Relaxed);
                        let name = format!("a{name}");
                        client
                            .execute(
                                "INSERT INTO accounts (email, login) VALUES ($1 || '@example.com', $1)",
                                &[&name],
                            )
                            .unwrap();
                        client.query_one("SELECT mailroom_collect(2)", &[]).unwrap();
                    }
                }
            });
        }
        let _stop_at_end = StopAtEnd(&is_over);
        for _ in 0..ROUNDS {
            for change in CHANGES {
                client.batch_execute(change).unwrap();
            }
        }
    });
    client
        .query_one("SELECT mailroom_collect(NULL)", &[])
        .unwrap();
    client
        .batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        .unwrap();
    let accounts = i64::try_from(number_of_accounts.into_inner()).unwrap();
    assert!(accounts > 0);
    // Each count from the second on reads one index only.
    for count in [
        "SELECT count(DISTINCT token_id) FROM outbox",
        "SELECT count(*) FROM (SELECT FROM outbox WHERE id > 0 ORDER BY id) o",
        "SELECT count(*) FROM (SELECT FROM outbox WHERE state = 'scheduled' ORDER BY priority, send_at, id) o",
        "SELECT count(*) FROM (SELECT FROM outbox WHERE token_id > 0 AND state IN ('scheduled', 'claimed') ORDER BY token_id) o",
    ] {
        assert_eq!(number(&mut client, count), accounts, "{count}");
    }
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 0);
    cluster.verify();
}

/// An error deep in the server: a sequence is locked while tables and indexes are open.
#[test]
fn a_batch_that_gets_no_id_fails_and_nothing_else() {
    let (cluster, mut client) = Cluster::start_with_app(&["shared_preload_libraries = ''"]);
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'); SET lock_timeout = '50ms'",
        )
        .unwrap();
    let session = number(&mut client, "SELECT pg_backend_pid()::bigint");
    for sequence in ["outbox_id_seq", "job_runs_id_seq"] {
        let mut other = cluster.connect("app");
        let mut open = other.transaction().unwrap();
        open.batch_execute(&format!("ALTER SEQUENCE {sequence} INCREMENT 1"))
            .unwrap();
        let failure = client
            .query_one("SELECT collected FROM _run_batch(10, 'poll')", &[])
            .unwrap_err();
        assert_eq!(
            failure.code(),
            Some(&SqlState::LOCK_NOT_AVAILABLE),
            "{sequence}: {failure}"
        );
        assert_eq!(
            number(&mut client, "SELECT pg_backend_pid()::bigint"),
            session
        );
        assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 1);
        assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 0);
    }
    assert_eq!(
        number(
            &mut client,
            "SELECT collected::bigint FROM _run_batch(10, 'poll')"
        ),
        1
    );
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'scheduled'"
        ),
        1
    );
    cluster.verify();
}

/// I1, I2: no token is lost with a consumer, and none is handed out twice.
#[test]
fn eight_consumers_one_of_them_terminated() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = prepare(&cluster);
    let is_cut = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The consumers end even if the test fails.
        let _stop_at_end = StopAtEnd(&is_cut);
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|seed| {
                let mut client = cluster.connect("app");
                let is_cut = &is_cut;
                scope.spawn(move || consume(&mut client, seed, is_cut))
            })
            .collect();
        let mut killer = cluster.connect("app");
        eventually("a consumer in mid-batch to terminate", || {
            let row = killer
                .query_opt(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE query LIKE 'INSERT INTO handed%' AND state = 'active' \
                     AND EXISTS (SELECT FROM handed) LIMIT 1",
                    &[],
                )
                .unwrap();
            row.filter(|row| row.get(0)).map(|_| ())
        });
        is_cut.store(true, Ordering::Relaxed);
        let ends: Vec<End> = consumers
            .into_iter()
            .map(|consumer| consumer.join().unwrap())
            .collect();
        assert!(ends.contains(&End::CutOff), "no consumer was terminated");
        assert!(ends.contains(&End::QueueEmpty), "no consumer was left");
    });
    audit(&mut client);
    cluster.verify();
}

/// I1, I2: the same, with a crash of the whole server.
#[test]
fn eight_consumers_one_of_them_killed() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = prepare(&cluster);
    let start = Barrier::new(CONSUMERS + 1);
    let is_cut = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop_at_end = StopAtEnd(&is_cut);
        for seed in 0..CONSUMERS {
            let mut client = cluster.connect("app");
            let (start, is_cut) = (&start, &is_cut);
            scope.spawn(move || {
                start.wait();
                consume(&mut client, seed, is_cut);
            });
        }
        start.wait();
        let victim: i32 = eventually("a consumer in mid-batch", || {
            let row = client
                .query_opt(
                    "SELECT pid FROM pg_stat_activity \
                     WHERE query LIKE 'INSERT INTO handed%' AND state = 'active' AND EXISTS (SELECT FROM handed) LIMIT 1",
                    &[],
                )
                .unwrap();
            row.map(|row| row.get(0))
        });
        signal("KILL", victim);
    });
    let mut client = eventually("the server to recover", || {
        let mut client = cluster.try_connect("app", "postgres").ok()?;
        client.simple_query("SELECT 1").ok().map(|_| client)
    });
    audit(&mut client);
    cluster.verify();
}

/// I3: consumers never wait for each other.
#[test]
fn a_consumer_in_an_open_transaction_delays_nobody() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut client = prepare(&cluster);
    let mut sitter = cluster.connect("app");
    let mut open = sitter.transaction().unwrap();
    assert_eq!(open.execute(TAKE, &[&5_000]).unwrap(), 5_000);
    // A session that has to wait for the sitter runs into this timeout.
    client.batch_execute("SET lock_timeout = '1s'").unwrap();
    assert_eq!(client.execute(TAKE, &[&100_000]).unwrap(), 15_000);
    client
        .batch_execute(
            "DELETE FROM accounts WHERE id <= 100; \
             UPDATE accounts SET status = 'suspended' WHERE id BETWEEN 101 AND 200; \
             UPDATE tokens SET consumed_at = 1 WHERE account BETWEEN 201 AND 300",
        )
        .unwrap();
    open.rollback().unwrap();
    // The tokens that it held are in the queue again, those of deleted accounts included.
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 5_000);
    let gone = number(
        &mut client,
        "SELECT count(*) FROM pending p WHERE NOT EXISTS (SELECT FROM tokens t WHERE t.id = p.token_id)",
    );
    let again = i64::try_from(client.execute(TAKE, &[&100_000]).unwrap()).unwrap();
    let skipped = number(
        &mut client,
        "SELECT count(*) FROM outbox WHERE state IN ('cancelled', 'expired', 'error')",
    );
    assert!(gone > 0 && skipped > 0);
    assert_eq!(again + skipped + gone, 5_000);
    assert_eq!(number(&mut client, "SELECT count(*) FROM pending"), 0);
    cluster.verify();
}
