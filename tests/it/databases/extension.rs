//! CREATE and DROP EXTENSION.

use super::{AT_ONCE, expect_mail, wait_for_workers};
use crate::cluster::{Cluster, Stop, eventually, find_worker};

#[test]
fn drop_extension_sends_the_worker_away_at_once() {
    // Only the drop itself can notify the worker: the next poll is an hour away.
    let cluster = Cluster::start(&["mailroom.poll_interval = '1h'"]);
    let mut client = cluster.create_database("app");
    wait_for_workers(&mut client, &["app"]);
    client.batch_execute("DROP EXTENSION mailroom").unwrap();
    wait_for_workers(&mut client, &[]);
    client
        .batch_execute(
            "CREATE EXTENSION mailroom; DROP EXTENSION mailroom; CREATE EXTENSION mailroom",
        )
        .unwrap();
    wait_for_workers(&mut client, &["app"]);
    client
        .batch_execute("BEGIN; DROP EXTENSION mailroom; CREATE EXTENSION mailroom; COMMIT")
        .unwrap();
    wait_for_workers(&mut client, &["app"]);
    cluster.append("postgresql.auto.conf", "mailroom.batch_limit = 1\n");
    cluster.reload();
    expect_mail(&mut client, "a");
}

#[test]
fn drop_extension_and_a_busy_worker_never_wait_for_each_other_in_a_circle() {
    let cluster = Cluster::start(&[
        "mailroom.poll_interval = '100ms'",
        "deadlock_timeout = '100ms'",
    ]);
    let mut client = cluster.create_database("app");
    for _ in 0..20 {
        wait_for_workers(&mut client, &["app"]);
        // Gives the worker something to do at this moment.
        client
            .batch_execute(
                "INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'); \
                 SELECT mailroom_request_activation('a@example.com')",
            )
            .unwrap();
        client
            .batch_execute("BEGIN; DROP EXTENSION mailroom; CREATE EXTENSION mailroom; COMMIT")
            .unwrap();
    }
}

#[test]
fn a_rolled_back_drop_extension_changes_nothing() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.create_database("app");
    wait_for_workers(&mut client, &["app"]);
    let worker = find_worker(&mut client).unwrap();
    client
        .batch_execute("BEGIN; DROP EXTENSION mailroom; ROLLBACK")
        .unwrap();
    expect_mail(&mut client, "a");
    assert_eq!(find_worker(&mut client), Some(worker));
}

#[test]
fn an_extension_made_or_dropped_by_a_prepared_transaction_is_noticed() {
    let cluster = Cluster::start(&[
        "mailroom.batch_limit = 1",
        "mailroom.poll_interval = '1h'",
        "max_prepared_transactions = 2",
    ]);
    let mut other = cluster.connect("postgres");
    other.batch_execute("CREATE DATABASE app").unwrap();
    let mut client = cluster.connect("app");
    client
        .batch_execute("BEGIN; CREATE EXTENSION mailroom; PREPARE TRANSACTION 'p'")
        .unwrap();
    // The launcher may be starting a worker here to see whether the database has the extension.
    wait_for_workers(&mut other, &[]);
    client.batch_execute("COMMIT PREPARED 'p'").unwrap();
    wait_for_workers(&mut other, &["app"]);
    expect_mail(&mut client, "a");
    client
        .batch_execute("BEGIN; DROP EXTENSION mailroom; PREPARE TRANSACTION 'p'")
        .unwrap();
    client.batch_execute("COMMIT PREPARED 'p'").unwrap();
    wait_for_workers(&mut other, &[]);
}

#[test]
fn a_worker_that_cannot_start_its_work_goes_with_the_extension() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.create_database("app");
    wait_for_workers(&mut client, &["app"]);
    client
        .batch_execute("UPDATE pg_extension SET extversion = '0.0.9' WHERE extname = 'mailroom'")
        .unwrap();
    drop(client);
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    eventually("its complaint", || {
        cluster
            .log()
            .contains("mailroom worker cannot start its work")
            .then_some(())
    });
    let mut client = cluster.connect("app");
    wait_for_workers(&mut client, &["app"]);
    let worker = find_worker(&mut client).unwrap();
    client.batch_execute("DROP EXTENSION mailroom").unwrap();
    eventually("the process to end", || {
        (!std::path::Path::new(&format!("/proc/{worker}")).exists()).then_some(())
    });
    wait_for_workers(&mut client, &[]);
}

#[test]
fn an_error_in_a_utility_statement_reaches_its_session_unchanged() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.connect("postgres");
    let error = client
        .batch_execute("CREATE TABLE t (a int, a int)")
        .unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "42701");
    assert_eq!(error.detail(), None);
    assert!(
        error.file().is_some_and(|file| file.ends_with(".c")),
        "{:?}",
        error.file()
    );
    client
        .batch_execute(
            "CREATE TABLE u (a int PRIMARY KEY, b int CONSTRAINT positive CHECK (b > 0))",
        )
        .unwrap();
    client.batch_execute("INSERT INTO u VALUES (1, 1)").unwrap();
    let error = client
        .batch_execute("ALTER TABLE u ADD CONSTRAINT large CHECK (b > 10)")
        .unwrap_err();
    assert_eq!(error.as_db_error().unwrap().constraint(), Some("large"));
}
