//! Changes that come from a logical replication worker.

use super::{hear_on, insert_accounts, settle, wait_for_outbox, wait_for_wake};
use crate::cluster::{Cluster, eventually, number};
use postgres::Client;

/// Publishes table `inbox` of database `publisher`, and has `app` apply the inserts to its own table, whose trigger
/// runs `body` in the apply worker: a background worker that is not ours.
fn apply_in(cluster: &Cluster, app: &mut Client, body: &str) -> Client {
    cluster
        .connect("postgres")
        .batch_execute("CREATE DATABASE publisher")
        .unwrap();
    let mut publisher = cluster.connect("publisher");
    publisher
        .batch_execute(
            "CREATE TABLE inbox (id integer PRIMARY KEY); CREATE PUBLICATION all_of_it FOR TABLE inbox",
        )
        .unwrap();
    // Created first: CREATE SUBSCRIPTION cannot create a slot of its own server while it is open.
    publisher
        .batch_execute("SELECT pg_create_logical_replication_slot('applied', 'pgoutput')")
        .unwrap();
    let host = cluster.socket().display();
    app.batch_execute(&format!(
        "CREATE TABLE inbox (id integer PRIMARY KEY); \
         CREATE FUNCTION on_arrival() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$ {body} $$; \
         CREATE TRIGGER on_arrival AFTER INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION on_arrival(); \
         ALTER TABLE inbox ENABLE ALWAYS TRIGGER on_arrival; \
         CREATE SUBSCRIPTION applied CONNECTION 'host={host} dbname=publisher user=postgres' \
         PUBLICATION all_of_it WITH (create_slot = false, copy_data = false)"
    ))
    .unwrap();
    publisher
}

#[test]
fn mail_that_an_apply_worker_schedules_is_told_when_it_becomes_due() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.poll_interval = '1h'", "wal_level = logical"]);
    cluster.worker("app");
    let mut publisher = apply_in(
        &cluster,
        &mut client,
        "BEGIN PERFORM mailroom_send('a@example.com', 'S', 'T', send_at => clock_timestamp() + interval '1 s'); RETURN NULL; END",
    );
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    settle(&mut client, &mut listener);
    publisher
        .batch_execute("INSERT INTO inbox VALUES (1)")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    let due = "SELECT count(*) FROM outbox WHERE send_at <= clock_timestamp()";
    assert_eq!(number(&mut client, due), 1);
}

#[test]
fn tokens_that_an_apply_worker_gives_back_are_seen_at_once() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = '300ms'",
        "mailroom.poll_interval = '1h'",
        "mailroom.notify = 'off'",
        "wal_level = logical",
    ]);
    cluster.worker("app");
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    insert_accounts(&mut client, "a", 1);
    let mut holder = cluster.connect("app");
    holder.batch_execute("SELECT pg_advisory_lock(42)").unwrap();
    let mut publisher = apply_in(
        &cluster,
        &mut client,
        "BEGIN \
             BEGIN \
                 PERFORM FROM mailroom_dequeue(1); \
                 PERFORM pg_advisory_xact_lock(42); \
                 RAISE EXCEPTION 'given back'; \
             EXCEPTION WHEN raise_exception THEN NULL; \
             END; \
             RETURN NULL; \
         END",
    );
    publisher
        .batch_execute("INSERT INTO inbox VALUES (1)")
        .unwrap();
    eventually("the apply worker to have the token", || {
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        (number(&mut client, waits) == 1).then_some(())
    });
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    wait_for_wake(&mut client, |next| next == "poll");
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 0);
    holder
        .batch_execute("SELECT pg_advisory_unlock(42)")
        .unwrap();
    wait_for_outbox(&mut client, 1);
}
