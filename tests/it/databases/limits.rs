//! More databases than the launcher can start workers for.

use std::collections::BTreeSet;

use super::{served, wait_for_workers};
use crate::cluster::{Cluster, Stop, eventually, find_worker, number};
use postgres::Client;

/// Why the client's database has no worker.
fn problem(client: &mut Client) -> Option<String> {
    let row = client
        .query_one("SELECT worker_problem FROM mailroom_status()", &[])
        .unwrap();
    row.get(0)
}

#[test]
fn beyond_max_databases_there_is_one_warning_and_the_rest_works() {
    let cluster = Cluster::start(&[
        "mailroom.batch_limit = 1",
        "mailroom.max_databases = 2",
        "max_worker_processes = 12",
    ]);
    for name in ["one", "two", "three"] {
        drop(cluster.create_database(name));
    }
    let mut client = cluster.connect("postgres");
    wait_for_workers(&mut client, &["one", "two"]);
    drop(client);
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    let mut client = cluster.connect("postgres");
    eventually("two workers", || {
        (served(&mut client).len() == 2).then_some(())
    });
    eventually("the warning", || {
        cluster
            .log()
            .contains("mailroom looks after 2 databases at most; the others were not checked")
            .then_some(())
    });
    assert_eq!(cluster.log().matches("were not checked").count(), 1);
    let served_now = served(&mut client);
    for name in ["one", "two", "three"] {
        let told = problem(&mut cluster.connect(name));
        let expected =
            "mailroom looks after 2 databases at most; raise mailroom.max_databases".to_owned();
        assert_eq!(
            told,
            (!served_now.contains(name)).then_some(expected),
            "{name}"
        );
    }
    // The third database gets a worker as soon as another one is dropped.
    let mut all = BTreeSet::from(["one", "two", "three"].map(str::to_owned));
    let first = served(&mut client).into_iter().next().unwrap();
    client
        .batch_execute(&format!("DROP DATABASE {first}"))
        .unwrap();
    all.remove(&first);
    eventually("a worker in the one that had none", || {
        (served(&mut client) == all).then_some(())
    });
}

/// The launcher cannot know whether a database has the extension before a worker has looked into it.
#[test]
fn of_a_database_that_was_not_checked_the_log_does_not_say_that_it_lacks_a_worker() {
    let cluster = Cluster::start(&["mailroom.max_databases = 1", "max_worker_processes = 12"]);
    drop(cluster.create_database("one"));
    let mut client = cluster.connect("postgres");
    client.batch_execute("CREATE DATABASE plain").unwrap();
    wait_for_workers(&mut client, &["one"]);
    drop(client);
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    wait_for_workers(&mut cluster.connect("postgres"), &["one"]);
    eventually("the warning", || {
        cluster
            .log()
            .contains("mailroom looks after 1 databases at most")
            .then_some(())
    });
    assert!(!cluster.log().contains("some have no worker"));
}

#[test]
fn who_creates_the_extension_beyond_max_databases_is_told() {
    let cluster = Cluster::start(&["mailroom.max_databases = 1", "max_worker_processes = 12"]);
    drop(cluster.create_database("one"));
    let mut client = cluster.connect("postgres");
    wait_for_workers(&mut client, &["one"]);
    client.batch_execute("CREATE DATABASE two").unwrap();
    let told = cluster.psql("two", "CREATE EXTENSION mailroom");
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(
        told.contains("mailroom looks after 1 databases at most, and this one is beyond that"),
        "{told}"
    );
    cluster
        .connect("one")
        .batch_execute("DROP EXTENSION mailroom")
        .unwrap();
    wait_for_workers(&mut client, &["two"]);
}

#[test]
fn without_a_free_worker_process_there_is_one_warning() {
    // The launcher and the server's logical replication launcher use both.
    let cluster = Cluster::start(&["max_worker_processes = 2"]);
    let mut client = cluster.create_database("app");
    eventually("the warning", || {
        cluster
            .log()
            .contains("mailroom cannot start a worker: no free worker process")
            .then_some(())
    });
    assert_eq!(find_worker(&mut client), None);
    assert_eq!(
        problem(&mut client).as_deref(),
        Some("there is no free worker process; raise max_worker_processes")
    );
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')")
        .unwrap();
    assert_eq!(number(&mut client, "SELECT mailroom_collect()"), 1);
}
