//! The notifications of mail that senders get.

use super::{drain, hear_on, insert_accounts, settle, with_mail_that_a_sender_heard_of};
use crate::cluster::{Cluster, Stop, eventually, number};
use postgres::Client;

#[test]
fn senders_hear_of_mail_when_it_becomes_due() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    settle(&mut client, &mut listener);

    let send = "SELECT mailroom_send('a@example.com', 'S', 'T', send_at => clock_timestamp() + $1::text::interval)";
    client.query_one(send, &[&"0"]).unwrap();
    hear_on(&mut listener, "outbox_due");
    settle(&mut client, &mut listener);

    client.query_one(send, &[&"1 h"]).unwrap();
    client.query_one(send, &[&"500 ms"]).unwrap();
    let due = "SELECT count(*) FROM outbox WHERE send_at <= clock_timestamp()";
    hear_on(&mut listener, "outbox_due");
    assert_eq!(number(&mut client, due), 2);

    // Mail of a rolled-back transaction is not announced; the next notification is for the mail that is rescheduled.
    settle(&mut client, &mut listener);
    client.batch_execute("BEGIN").unwrap();
    client.query_one(send, &[&"0"]).unwrap();
    client.batch_execute("ROLLBACK").unwrap();
    client
        .batch_execute("SELECT mailroom_reschedule(max(id), clock_timestamp()) FROM outbox WHERE send_at > now()")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    assert_eq!(number(&mut client, due), 3);
}

/// Mail that a role inserts into the outbox is announced like that of mailroom_send.
#[test]
fn senders_hear_of_mail_that_somebody_inserts() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    settle(&mut client, &mut listener);
    for due in ["now()", "clock_timestamp() + interval '500 ms'"] {
        client
            .batch_execute(&format!(
                "INSERT INTO outbox (kind, recipients, subject, body_text, send_at) \
                 VALUES ('own', '{{a@example.com}}', 'S', 'T', {due})"
            ))
            .unwrap();
        hear_on(&mut listener, "outbox_due");
        let waits = "SELECT count(*) FROM outbox WHERE send_at > clock_timestamp()";
        assert_eq!(number(&mut client, waits), 0);
        settle(&mut client, &mut listener);
    }
}

#[test]
fn senders_hear_of_claims_that_lapse() {
    let (_cluster, mut client, mut listener) = with_mail_that_a_sender_heard_of();
    client
        .batch_execute("SELECT FROM mailroom_claim(1, '700 ms', 'gone')")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    let row = client
        .query_one(
            "SELECT state::text, failed_attempts, last_error FROM outbox",
            &[],
        )
        .unwrap();
    let (state, attempts, error): (String, i32, String) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(
        (state.as_str(), attempts, error.as_str()),
        ("scheduled", 1, "lease expired")
    );
}

#[test]
fn senders_hear_of_claims_that_are_rolled_back_and_of_groups_that_are_free_again() {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'S', 'T', group_key => 'g') FROM generate_series(1, 2)",
        )
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    settle(&mut client, &mut listener);

    client
        .batch_execute("BEGIN; SELECT FROM mailroom_claim(2, '1 h', 'one'); ROLLBACK")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    settle(&mut client, &mut listener);

    client
        .batch_execute("SELECT FROM mailroom_claim(1, '1 h', 'one')")
        .unwrap();
    let free = "SELECT count(*) FROM mailroom_claim(1, '1 h', 'two')";
    assert_eq!(number(&mut client, free), 0);
    client
        .batch_execute(
            "SELECT mailroom_mark_sent(id, claimant => 'one') FROM outbox WHERE claimed_by = 'one'",
        )
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    assert_eq!(number(&mut client, free), 1);
}

/// The mail of a prepared transaction cannot be announced at its commit. A search finds it; senders keep what they know
/// of their transports.
#[test]
fn senders_hear_of_mail_of_a_prepared_transaction_and_need_not_recheck() {
    use postgres::fallible_iterator::FallibleIterator;
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.poll_interval = '1h'",
        "max_prepared_transactions = 2",
    ]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    settle(&mut client, &mut listener);
    client
        .batch_execute(
            "BEGIN; SELECT mailroom_send('a@example.com', 'S', 'T'); PREPARE TRANSACTION 'p'",
        )
        .unwrap();
    client.batch_execute("COMMIT PREPARED 'p'").unwrap();
    let mut notifications = listener.notifications();
    let first = notifications
        .timeout_iter(crate::cluster::PATIENCE)
        .next()
        .unwrap()
        .expect("a notification");
    assert_eq!((first.channel(), first.payload()), ("outbox_due", ""));
}

/// Waits until the worker has failed this often in a row.
fn wait_for_failures(client: &mut Client, count: i64) {
    eventually("failures of the worker", || {
        (number(
            client,
            "SELECT coalesce(errors_in_a_row, 0) FROM mailroom_status()",
        ) >= count)
            .then_some(())
    });
}

/// Schedules mail for this time while the worker fails; senders must be notified when it recovers.
fn expect_notification_after_failures(send_at: &str) {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.batch_limit = 1", "mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    client
        .batch_execute("REVOKE SELECT ON pending FROM mailroom_collector")
        .unwrap();
    insert_accounts(&mut client, "a", 1);
    wait_for_failures(&mut client, 1);
    client
        .batch_execute(&format!(
            "SELECT mailroom_send('a@example.com', 'S', 'T', send_at => {send_at})"
        ))
        .unwrap();
    // More failures, after the mail was announced or has become due.
    wait_for_failures(&mut client, 3);
    drain(&mut listener);
    // Without the queue, only the outbox has something to announce.
    client
        .batch_execute("DELETE FROM pending; GRANT SELECT ON pending TO mailroom_collector")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
}

#[test]
fn mail_that_becomes_due_while_the_worker_fails_is_told_when_it_recovers() {
    expect_notification_after_failures("now() + interval '200 ms'");
}

#[test]
fn mail_that_is_due_at_once_while_the_worker_fails_is_told_when_it_recovers() {
    expect_notification_after_failures("now()");
}

/// What waits from before a start is announced by the first check, even if that is not the first attempt.
#[test]
fn what_waits_is_told_after_a_start_whose_first_check_fails() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.collect = off", "mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    client
        .batch_execute("REVOKE SELECT ON pending FROM mailroom_collector")
        .unwrap();
    insert_accounts(&mut client, "a", 1);
    client
        .batch_execute("SELECT mailroom_send('a@example.com', 'S', 'T')")
        .unwrap();
    drop(client);
    cluster.stop_server(Stop::Fast);
    cluster.start_server();
    let mut client = cluster.connect("app");
    let mut listeners = ["outbox_due", "token_insert"].map(|channel| {
        let mut listener = cluster.connect("app");
        listener
            .batch_execute(&format!("LISTEN {channel}"))
            .unwrap();
        (listener, channel)
    });
    wait_for_failures(&mut client, 2);
    for (listener, _) in &mut listeners {
        drain(listener);
    }
    client
        .batch_execute("GRANT SELECT ON pending TO mailroom_collector")
        .unwrap();
    for (listener, channel) in &mut listeners {
        hear_on(listener, channel);
    }
}
