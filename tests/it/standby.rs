//! Recovery, standbys, promotion, and a schema of another version than the library.

use crate::cluster::{Cluster, Stop, eventually, number};
use postgres::Client;

fn mailroom_processes(client: &mut Client) -> i64 {
    number(
        client,
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'mailroom%'",
    )
}

/// I1: nothing is lost in a failover. The standby compares each page that it replays with the primary's.
#[test]
fn a_standby_waits_and_delivers_what_the_old_primary_left_once_promoted() {
    let (primary, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = '1h'",
        "wal_level = replica",
        "wal_consistency_checking = all",
    ]);
    primary.worker("app");
    let standby = Cluster::follow(&primary);
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) \
             SELECT 'a' || i || '@example.com', 'a' || i FROM generate_series(1, 5) i",
        )
        .unwrap();
    let mut replica = standby.connect("app");
    eventually("the standby to have them", || {
        (number(&mut replica, "SELECT count(*) FROM pending") == 5).then_some(())
    });
    assert_eq!(
        mailroom_processes(&mut replica),
        0,
        "a standby runs no worker"
    );
    primary.stop_server(Stop::Immediate);
    // The key is not in the WAL: pg_basebackup has made the copy that the documentation asks for.
    let key = std::fs::read(primary.data().join("mailroom.key")).unwrap();
    assert_eq!(
        std::fs::read(standby.data().join("mailroom.key")).unwrap(),
        key
    );
    replica.batch_execute("SELECT pg_promote()").unwrap();
    eventually("the new primary to deliver", || {
        (number(&mut replica, "SELECT count(*) FROM outbox") == 5).then_some(())
    });
    assert_eq!(number(&mut replica, "SELECT count(*) FROM pending"), 0);
    let genuine = number(
        &mut replica,
        "SELECT count(*) FROM outbox WHERE mailroom_verify(secrets->>'token', 'activation')",
    );
    assert_eq!(genuine, 5);
    standby.verify();
}

#[test]
fn a_schema_of_another_version_makes_the_worker_idle_with_one_warning() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 1"]);
    cluster.worker("app");
    client
        .batch_execute("UPDATE pg_extension SET extversion = '0.0.9' WHERE extname = 'mailroom'")
        .unwrap();
    drop(client);
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    let complaint = "the extension is version 0.0.9, the library";
    eventually("the warning", || {
        cluster.log().contains(complaint).then_some(())
    });
    let mut client = cluster.connect("app");
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a')")
        .unwrap();
    // The worker tries again after 1, 2 and 4 seconds, but logs the warning once.
    client
        .batch_execute("UPDATE pg_extension SET extversion = '0.1.0' WHERE extname = 'mailroom'")
        .unwrap();
    eventually("the worker to go on by itself", || {
        (number(&mut client, "SELECT count(*) FROM outbox") == 1).then_some(())
    });
    assert_eq!(cluster.log().matches(complaint).count(), 1);
}

#[test]
fn binary_upgrade_mode_starts_nothing() {
    let (cluster, _) = Cluster::start_with_app(&[]);
    cluster.stop_server(Stop::Fast);
    let before = cluster.log().matches("mailroom launcher started").count();
    // As pg_upgrade starts it: with -b only superusers may connect.
    cluster.start_server_with("-b");
    let mut client = cluster.connect("app");
    assert_eq!(mailroom_processes(&mut client), 0);
    assert_eq!(
        cluster.log().matches("mailroom launcher started").count(),
        before
    );
}
