//! Databases that accept no connections, and a database without the extension.

use std::time::{Duration, Instant};

use super::{AT_ONCE, expect_mail, served, wait_for_workers};
use crate::cluster::{Cluster, Stop, another_worker, eventually, find_worker, number};
use crate::post;
use crate::receiver::{Reaction, Receiver};

#[test]
fn a_database_that_lets_nobody_in_is_tried_ever_more_slowly() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.create_database("app");
    wait_for_workers(&mut client, &["app"]);
    let worker = find_worker(&mut client).unwrap();
    let oid = number(
        &mut client,
        "SELECT oid::bigint FROM pg_database WHERE datname = 'app'",
    );
    drop(client);
    let version = cluster.data().join(format!("base/{oid}/PG_VERSION"));
    let away = version.with_extension("away");
    std::fs::rename(&version, &away).unwrap();
    let mut other = cluster.connect("postgres");
    let ended = Instant::now();
    other
        .execute("SELECT pg_terminate_backend($1)", &[&worker])
        .unwrap();
    let refusals = || {
        cluster
            .log()
            .matches("mailroom worker FATAL:  \"base/")
            .count()
    };
    eventually("four starts that fail", || (refusals() == 4).then_some(()));
    // The delays are 1, 2, 4 and 8 s.
    let last = Instant::now();
    assert!(last - ended > Duration::from_secs(14));
    // The next start would follow after 16 s, but ALTER DATABASE asks for one at once.
    std::fs::rename(&away, &version).unwrap();
    other
        .batch_execute("ALTER DATABASE app ALLOW_CONNECTIONS true")
        .unwrap();
    wait_for_workers(&mut other, &["app"]);
    assert!(last.elapsed() < Duration::from_secs(16));
}

#[test]
fn a_worker_that_cannot_get_into_its_database_does_not_hold_up_the_others() {
    let cluster = Cluster::start(&[]);
    let mut holder = cluster.create_database("app");
    let mut client = cluster.create_database("other");
    wait_for_workers(&mut client, &["app", "other"]);
    let workers = ["app", "other"].map(|name| cluster.worker(name));
    holder
        .batch_execute("BEGIN; LOCK TABLE pg_class IN ACCESS EXCLUSIVE MODE")
        .unwrap();
    let mut terminate = |worker: i32| {
        client
            .execute("SELECT pg_terminate_backend($1)", &[&worker])
            .unwrap();
    };
    terminate(workers[0]);
    let mut waiting = || {
        eventually("a worker that waits for the lock", || {
            let rows = holder
                .query(
                    "SELECT pid FROM pg_locks WHERE NOT granted AND relation = 'pg_class'::regclass",
                    &[],
                )
                .unwrap();
            Some(rows.first()?.get::<_, i32>(0))
        })
    };
    let stuck = waiting();
    terminate(workers[1]);
    another_worker(&mut cluster.connect("other"), workers[1]);
    // The waiting worker ends when it is told to, and the launcher starts another.
    terminate(stuck);
    eventually("the next one", || (waiting() != stuck).then_some(()));
    holder.batch_execute("ROLLBACK").unwrap();
    wait_for_workers(&mut client, &["app", "other"]);
}

#[test]
fn a_schema_of_the_extensions_name_without_it_is_left_alone() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.connect("postgres");
    client.batch_execute("CREATE DATABASE decoy").unwrap();
    let mut decoy = cluster.connect("decoy");
    decoy
        .batch_execute("CREATE SCHEMA mailroom; CREATE TABLE pending (lane int, token int); CREATE TABLE accounts ()")
        .unwrap();
    drop(decoy);
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    let mut app = cluster.create_database("app");
    expect_mail(&mut app, "a");
    wait_for_workers(&mut app, &["app"]);
    let log = cluster.log();
    assert!(!log.contains("WARNING") && !log.contains("ERROR"), "{log}");
}

#[test]
fn a_database_that_was_closed_for_a_while_gets_its_worker_back() {
    let cluster = Cluster::start(AT_ONCE);
    drop(cluster.create_database("app"));
    let mut client = cluster.connect("postgres");
    wait_for_workers(&mut client, &["app"]);
    let mut guest = cluster.connect("app");
    // A worker ends when the database is closed; clients stay. What is rolled back closes nothing.
    let worker = find_worker(&mut guest);
    client
        .batch_execute("BEGIN; ALTER DATABASE app ALLOW_CONNECTIONS false; ROLLBACK")
        .unwrap();
    client
        .batch_execute("ALTER DATABASE app ALLOW_CONNECTIONS true")
        .unwrap();
    expect_mail(&mut guest, "a");
    assert_eq!(find_worker(&mut guest), worker);
    client
        .batch_execute("ALTER DATABASE app ALLOW_CONNECTIONS false")
        .unwrap();
    wait_for_workers(&mut client, &[]);
    guest
        .batch_execute("DELETE FROM outbox; DELETE FROM accounts")
        .unwrap();
    drop(guest);
    // The launcher checks the closed database a second later. It starts a worker when the database is opened, in the
    // second round after a restart.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!served(&mut client).contains("app"));
        client
            .batch_execute("ALTER DATABASE app ALLOW_CONNECTIONS true")
            .unwrap();
        wait_for_workers(&mut client, &["app"]);
        expect_mail(&mut cluster.connect("app"), "later");
        cluster
            .connect("app")
            .batch_execute("DELETE FROM outbox; DELETE FROM accounts")
            .unwrap();
        client
            .batch_execute("ALTER DATABASE app ALLOW_CONNECTIONS false")
            .unwrap();
        drop(client);
        cluster.stop_server(Stop::Fast);
        cluster.start_server();
        client = cluster.connect("postgres");
    }
    let log = cluster.log();
    assert!(
        !log.contains("not currently accepting connections"),
        "{log}"
    );
}

/// As in recipes that circulate for what ALTER DATABASE … ALLOW_CONNECTIONS does.
#[test]
fn a_database_that_was_closed_by_an_update_gets_its_worker_back() {
    let cluster = Cluster::start(AT_ONCE);
    drop(cluster.create_database("app"));
    let mut client = cluster.connect("postgres");
    let starts = || {
        let started = "mailroom worker started in database \"app\"";
        cluster.log().matches(started).count()
    };
    // It is served before it says so.
    eventually("the first start", || (starts() == 1).then_some(()));
    // Committed first: one string is one transaction, and the next worker would still get in.
    for statement in [
        "UPDATE pg_database SET datallowconn = false WHERE datname = 'app'",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'app'",
    ] {
        client.batch_execute(statement).unwrap();
    }
    eventually("the launcher to say so", || {
        cluster
            .log()
            .contains("mailroom has no worker in database \"app\" until the database accepts connections again")
            .then_some(())
    });
    client
        .batch_execute("UPDATE pg_database SET datallowconn = true WHERE datname = 'app'")
        .unwrap();
    // A reload has the launcher look at once. Without one it looks every minute.
    cluster.reload();
    wait_for_workers(&mut client, &["app"]);
    expect_mail(&mut cluster.connect("app"), "a");
    assert_eq!(starts(), 2);
}

#[test]
fn a_database_is_dropped_while_a_provider_does_not_answer() {
    let receiver = Receiver::start(|_| Reaction::Hang);
    let (cluster, _) = post::start_cluster(&receiver.endpoint(), &[]);
    let mut client = cluster.create_database("app");
    client
        .batch_execute("SELECT mailroom_send('a@example.com', 'S', 'T')")
        .unwrap();
    eventually("a request", || (receiver.open() == 1).then_some(()));
    drop(client);
    // The worker waits for the response for mailroom.stop_grace at most, and the server waits 5 s for other sessions.
    let mut other = cluster.connect("postgres");
    other.batch_execute("DROP DATABASE app").unwrap();
    wait_for_workers(&mut other, &[]);
}
