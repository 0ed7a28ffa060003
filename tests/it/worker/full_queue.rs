//! The server's queue of notifications is full: no NOTIFY can be committed.

use std::fs;

use super::{insert_accounts, wait_for_outbox};
use crate::cluster::{Cluster, eventually, number};
use postgres::Client;

/// Sends notifications of this size until one fails.
fn fill(client: &mut Client, size: usize) {
    let payload = "x".repeat(size);
    let notify = format!("SELECT pg_notify('c', '{payload}')");
    (0..1000)
        .find(|_| client.batch_execute(&notify).is_err())
        .unwrap();
}

/// A queue of 8 GB takes too long to fill. So the server cannot write the pages that do not fit into its memory: then
/// NOTIFY fails in the same place, when the transaction commits.
#[test]
fn the_work_is_done_and_listeners_poll() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_timeout = 0"]);
    cluster.worker("app");
    // Another database's session keeps the queue from being truncated.
    let mut listener = cluster.connect("postgres");
    listener.batch_execute("LISTEN c; BEGIN; SELECT 1").unwrap();
    let (queue, away) = (
        cluster.data().join("pg_notify"),
        cluster.data().join("away"),
    );
    fs::rename(&queue, &away).unwrap();
    fs::write(&queue, "").unwrap();
    let mut filler = cluster.connect("postgres");
    fill(&mut filler, 7990);
    fill(&mut filler, 0);

    // The worker has no transports, so it notifies senders of all mail.
    insert_accounts(&mut client, "a", 3);
    wait_for_outbox(&mut client, 3);
    client
        .batch_execute("SELECT mailroom_request_activation('a1@example.com')")
        .unwrap();
    eventually("an answer to the request", || {
        (number(&mut client, "SELECT count(*) FROM link_requests") == 0).then_some(())
    });
    client
        .batch_execute("SELECT mailroom_claim(1, '1 s', 'me')")
        .unwrap();
    eventually("the end of the lease", || {
        (number(
            &mut client,
            "SELECT count(*) FROM outbox WHERE state = 'scheduled'",
        ) == 3)
            .then_some(())
    });
    client
        .batch_execute("SELECT mailroom_wake_worker()")
        .unwrap();
    eventually("the warning", || {
        cluster
            .log()
            .contains("mailroom worker could not notify the sessions that listen, which will poll")
            .then_some(())
    });
    let failures = "SELECT errors_in_a_row FROM mailroom_status()";
    assert_eq!(number(&mut client, failures), 0);
    assert_eq!(
        number(
            &mut client,
            "SELECT count(*) FROM job_runs WHERE error IS NOT NULL"
        ),
        0
    );
    assert_eq!(cluster.log().matches("WARNING:  mailroom").count(), 1);

    fs::remove_file(&queue).unwrap();
    fs::rename(&away, &queue).unwrap();
    drop(listener);
    insert_accounts(&mut client, "b", 1);
    wait_for_outbox(&mut client, 4);
}
