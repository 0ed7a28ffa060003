//! Events while the worker is busy: it handles them right after that, and not with the next poll.

use std::time::{Duration, Instant};

use super::{insert_accounts, wait_for_lock, wait_for_outbox, wait_for_wake};
use crate::cluster::{Cluster, eventually, number};

#[test]
fn a_reload_is_taken_up_while_batches_follow_each_other() {
    const ALL: i64 = 20_000;
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 1"]);
    cluster.worker("app");
    insert_accounts(&mut client, "a", ALL.try_into().unwrap());
    eventually("the worker to be at it", || {
        (number(&mut client, "SELECT count(*) FROM outbox") > 0).then_some(())
    });
    cluster.append("postgresql.auto.conf", "mailroom.collect = off\n");
    cluster.reload();
    wait_for_wake(&mut client, |next| next.starts_with("tokens are left"));
    let collected = number(&mut client, "SELECT count(*) FROM outbox");
    assert!(collected < ALL, "all were collected before");
}

#[test]
fn what_is_committed_during_a_purge_is_collected_right_after_it() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = 0",
        "mailroom.poll_interval = '1h'",
        "deadlock_timeout = '1min'",
    ]);
    let worker = cluster.worker("app");
    let mut holder = cluster.connect("app");
    let mut took = Vec::new();
    // A machine may be slow once. The timer that ends a purge happens to wake the worker, after two seconds.
    for round in 1..=5 {
        // A purge locks rows of job_runs, and nothing else that the worker does now uses it.
        holder
            .batch_execute("BEGIN; LOCK TABLE job_runs IN EXCLUSIVE MODE")
            .unwrap();
        client
            .batch_execute("SELECT mailroom_wake_worker()")
            .unwrap();
        wait_for_lock(&mut client, worker);
        insert_accounts(&mut client, &format!("a{round}-"), 1);
        holder.batch_execute("COMMIT").unwrap();
        let begin = Instant::now();
        wait_for_outbox(&mut client, round);
        took.push(begin.elapsed());
        if begin.elapsed() < Duration::from_secs(1) {
            return;
        }
    }
    panic!("it took {took:?}");
}

/// Requests for many addresses make no other request wait for the poll.
#[test]
fn more_requests_than_one_round_takes_are_answered_at_once() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.poll_interval = '1h'",
        "mailroom.notify = off",
        "mailroom.batch_limit = 100",
    ]);
    cluster.worker("app");
    client
        .batch_execute(
            "INSERT INTO accounts (email, login, status) \
             SELECT 'user' || i || '@example.com', 'user' || i, 'active' FROM generate_series(1, 300) i; \
             SELECT mailroom_request_recovery('nobody' || i || '@example.com') FROM generate_series(1, 2500) i; \
             SELECT mailroom_request_recovery(email) FROM accounts",
        )
        .unwrap();
    wait_for_outbox(&mut client, 300);
    assert_eq!(number(&mut client, "SELECT count(*) FROM link_requests"), 0);
}

#[test]
fn a_worker_that_leaves_tokens_to_clients_answers_every_kind_of_request_at_once() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.poll_interval = '1h'",
        "mailroom.notify = off",
        "mailroom.collect = off",
    ]);
    cluster.worker("app");
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'); \
             SELECT mailroom_revoke(id) FROM accounts",
        )
        .unwrap();
    for kind in ["activation", "recovery"] {
        client
            .batch_execute(&format!("SELECT mailroom_request_{kind}('a@example.com')"))
            .unwrap();
        eventually("the request to be answered", || {
            (number(&mut client, "SELECT count(*) FROM link_requests") == 0).then_some(())
        });
    }
}

/// Rows that a foreign key of the application keeps do not keep the other rows.
#[test]
fn the_worker_purges_what_no_foreign_key_keeps() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '200ms'"]);
    cluster.worker("app");
    client
        .batch_execute(
            "BEGIN; \
             CREATE TABLE orders (mail bigint REFERENCES outbox); \
             INSERT INTO outbox (kind, recipients, state, created_at, ended_at) \
             SELECT 'own', '{a@example.com}', 'sent', '2000-01-01', '2000-01-01' FROM generate_series(1, 20); \
             INSERT INTO orders VALUES (3), (17); \
             COMMIT",
        )
        .unwrap();
    eventually("the rest to be purged", || {
        (number(&mut client, "SELECT count(*) FROM outbox") == 2).then_some(())
    });
    let kept = "SELECT count(*) FROM outbox JOIN orders ON mail = id";
    assert_eq!(number(&mut client, kept), 2);
    assert!(!cluster.log().contains("could not purge"));
}
