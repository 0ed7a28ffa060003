//! Databases that are dropped, renamed and copied.

use std::time::Duration;

use super::{AT_ONCE, expect_mail, served, wait_for_workers};
use crate::cluster::{Cluster, Stop, eventually, find_worker, number};
use postgres::Client;

/// Ends the pause that the worker begins in a copy with waiting mail.
fn resume_copy(client: &mut Client) {
    eventually("the worker to pause", || {
        (number(client, "SELECT count(*) FROM pauses") == 1).then_some(())
    });
    client.batch_execute("SELECT mailroom_resume()").unwrap();
}

#[test]
fn drop_database_succeeds_at_the_first_try() {
    let cluster = Cluster::start(AT_ONCE);
    let mut other = cluster.connect("postgres");
    for round in 0..5 {
        let mut client = cluster.create_database("app");
        expect_mail(&mut client, &format!("a{round}"));
        drop(client);
        other.batch_execute("DROP DATABASE app").unwrap();
        wait_for_workers(&mut other, &[]);
    }
    // Also right after CREATE EXTENSION, while the worker is starting.
    for _ in 0..20 {
        drop(cluster.create_database("app"));
        other.batch_execute("DROP DATABASE app").unwrap();
    }
    wait_for_workers(&mut other, &[]);
    assert!(
        !cluster.log().contains("FATAL:  database"),
        "a worker was sent into a dropped database"
    );
}

#[test]
fn a_drop_database_that_fails_leaves_the_worker_at_work() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.create_database("app");
    expect_mail(&mut client, "a");
    // Another client is connected, so DROP DATABASE fails after the server has waited for 5 s.
    assert!(
        cluster
            .connect("postgres")
            .batch_execute("DROP DATABASE app")
            .is_err()
    );
    wait_for_workers(&mut client, &["app"]);
    expect_mail(&mut client, "b");
}

#[test]
fn only_the_owner_can_send_a_worker_away() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.create_database("app");
    expect_mail(&mut client, "a");
    let worker = find_worker(&mut client).unwrap();
    client
        .batch_execute("CREATE ROLE mallory LOGIN CREATEDB")
        .unwrap();
    let mut mallory = cluster.connect_as("postgres", "mallory");
    for statement in [
        "DROP DATABASE app",
        "ALTER DATABASE app RENAME TO mine",
        "CREATE DATABASE mine TEMPLATE app",
    ] {
        let error = mallory.batch_execute(statement).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "42501", "{statement}");
    }
    expect_mail(&mut client, "b");
    assert_eq!(find_worker(&mut client), Some(worker));
}

#[test]
fn a_database_that_is_not_there_is_told_as_without_the_library() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.connect("postgres");
    client
        .batch_execute("CREATE ROLE mallory LOGIN CREATEDB")
        .unwrap();
    let mut mallory = cluster.connect_as("postgres", "mallory");
    mallory
        .batch_execute("DROP DATABASE IF EXISTS nosuch")
        .unwrap();
    for statement in [
        "DROP DATABASE nosuch",
        "ALTER DATABASE nosuch RENAME TO mine",
        "CREATE DATABASE mine TEMPLATE nosuch",
    ] {
        let error = mallory.batch_execute(statement).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "3D000", "{statement}");
        assert!(error.message().contains("nosuch"), "{}", error.message());
    }
}

#[test]
fn rename_and_template_succeed_and_the_worker_comes_back() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.create_database("app");
    expect_mail(&mut client, "a");
    drop(client);
    let mut other = cluster.connect("postgres");
    other
        .batch_execute("ALTER DATABASE app RENAME TO \"The App\"")
        .unwrap();
    wait_for_workers(&mut other, &["The App"]);
    other
        .batch_execute("CREATE DATABASE copy TEMPLATE \"The App\"")
        .unwrap();
    wait_for_workers(&mut other, &["The App", "copy"]);
    let mut copy = cluster.connect("copy");
    assert_eq!(number(&mut copy, "SELECT count(*) FROM outbox"), 1);
    resume_copy(&mut copy);
    expect_mail(&mut copy, "b");
    expect_mail(&mut cluster.connect("The App"), "c");
}

#[test]
fn a_template_is_copied_by_whoever_may_copy_it() {
    let cluster = Cluster::start(AT_ONCE);
    let mut client = cluster.create_database("pattern");
    expect_mail(&mut client, "a");
    client
        .batch_execute("ALTER DATABASE pattern IS_TEMPLATE true; CREATE ROLE maker LOGIN CREATEDB")
        .unwrap();
    drop(client);
    cluster
        .connect_as("postgres", "maker")
        .batch_execute("CREATE DATABASE copy TEMPLATE pattern")
        .unwrap();
    let mut other = cluster.connect("postgres");
    wait_for_workers(&mut other, &["copy", "pattern"]);
    let mut copy = cluster.connect("copy");
    resume_copy(&mut copy);
    expect_mail(&mut copy, "b");
}

#[test]
fn a_template_has_a_worker_after_a_restart_too() {
    let cluster = Cluster::start(AT_ONCE);
    drop(cluster.create_database("pattern"));
    cluster
        .connect("postgres")
        .batch_execute("ALTER DATABASE pattern IS_TEMPLATE true")
        .unwrap();
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    let mut client = cluster.connect("postgres");
    wait_for_workers(&mut client, &["pattern"]);
    client
        .batch_execute("CREATE DATABASE copy TEMPLATE pattern")
        .unwrap();
    wait_for_workers(&mut client, &["copy", "pattern"]);
}

#[test]
fn a_copy_that_fails_leaves_the_worker_away_from_another_one() {
    let cluster = Cluster::start(AT_ONCE);
    // While this client is connected, CREATE DATABASE waits for 5 s and then fails.
    let mut client = cluster.create_database("pattern");
    wait_for_workers(&mut client, &["pattern"]);
    let mut first = cluster.connect("postgres");
    let copy =
        std::thread::spawn(move || first.batch_execute("CREATE DATABASE one TEMPLATE pattern"));
    let mut second = cluster.connect("postgres");
    let locks = "SELECT count(*) FROM pg_locks WHERE classid = 'pg_database'::regclass \
         AND objid = (SELECT oid FROM pg_database WHERE datname = 'pattern') AND granted =";
    eventually("the copy to have locked its template", || {
        (number(&mut second, &format!("{locks} true")) > 0).then_some(())
    });
    let error = second
        .batch_execute("CREATE DATABASE postgres TEMPLATE pattern")
        .unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42P04");
    for _ in 0..20 {
        assert_eq!(
            number(&mut second, &format!("{locks} false")),
            0,
            "a worker waits for the copy"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(copy.join().unwrap().is_err());
    wait_for_workers(&mut client, &["pattern"]);
}

#[test]
fn template1_is_copied_whoever_works_there() {
    let cluster = Cluster::start(AT_ONCE);
    cluster
        .connect("template1")
        .batch_execute("CREATE EXTENSION mailroom")
        .unwrap();
    let mut client = cluster.connect("postgres");
    wait_for_workers(&mut client, &["template1"]);
    client.batch_execute("CREATE DATABASE one").unwrap();
    wait_for_workers(&mut client, &["one", "template1"]);
    client
        .batch_execute("CREATE DATABASE two TEMPLATE DEFAULT")
        .unwrap();
    wait_for_workers(&mut client, &["one", "template1", "two"]);
    expect_mail(&mut cluster.connect("two"), "a");
}

#[test]
fn a_database_whose_drop_broke_off_is_left_alone() {
    let cluster = Cluster::start(AT_ONCE);
    drop(cluster.create_database("gone"));
    let mut client = cluster.connect("postgres");
    wait_for_workers(&mut client, &["gone"]);
    // DROP DATABASE writes this before it deletes files.
    for statement in [
        "UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'gone'",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'gone'",
    ] {
        client.batch_execute(statement).unwrap();
    }
    wait_for_workers(&mut client, &[]);
    drop(cluster.create_database("app"));
    wait_for_workers(&mut client, &["app"]);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!served(&mut client).contains("gone"));
    let log = cluster.log();
    assert!(!log.contains("invalid database"), "{log}");
}
