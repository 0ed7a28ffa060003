//! The worker, end to end: batches, wake-ups, failures and crashes.

mod apply;
mod batches;
mod clients;
mod ends;
mod full_queue;
mod listeners;
mod meanwhile;
mod problems;
mod quoted;
mod senders;
mod urgent;
mod wakeups;

use crate::cluster::{Cluster, eventually, number};
use postgres::Client;

/// Inserts `count` accounts whose names begin with `prefix`.
fn insert_accounts(client: &mut Client, prefix: &str, count: u32) {
    client
        .execute(
            "INSERT INTO accounts (email, login) \
             SELECT $1 || i || '@example.com', $1 || i FROM generate_series(1, $2::bigint) i",
            &[&prefix, &i64::from(count)],
        )
        .unwrap();
}

/// Waits until the worker has examined its queues and sleeps, for a reason that `is_wanted` accepts.
fn wait_for_wake(client: &mut Client, is_wanted: impl Fn(&str) -> bool) {
    eventually("the worker to have looked", || {
        let next: String = client
            .query_one("SELECT next_wake_for FROM mailroom_status()", &[])
            .unwrap()
            .get(0);
        is_wanted(&next).then_some(())
    });
}

/// Waits until the outbox has `count` rows, and no more.
fn wait_for_outbox(client: &mut Client, count: i64) {
    eventually(&format!("{count} rows in the outbox"), || {
        (number(client, "SELECT count(*) FROM outbox") >= count).then_some(())
    });
    assert_eq!(number(client, "SELECT count(*) FROM outbox"), count);
}

/// Queues a token without announcing it.
fn insert_unannounced(client: &mut Client) {
    client
        .batch_execute(
            "BEGIN; ALTER TABLE tokens DISABLE TRIGGER tokens_enqueue; \
             INSERT INTO accounts (email, login) VALUES ('u@example.com', 'u'); \
             ALTER TABLE tokens ENABLE TRIGGER tokens_enqueue; \
             INSERT INTO pending (lane, token_id) SELECT 1, max(id) FROM tokens; COMMIT",
        )
        .unwrap();
}

/// Waits for the next notification of a session, which must be on `token_insert`.
fn hear(listener: &mut Client) {
    use postgres::fallible_iterator::FallibleIterator;
    let mut notifications = listener.notifications();
    let heard = notifications
        .timeout_iter(crate::cluster::PATIENCE)
        .next()
        .unwrap()
        .expect("a notification");
    assert_eq!(heard.channel(), "token_insert");
}

/// When the worker last began or ended a transaction.
fn last_activity(client: &mut Client) -> std::time::SystemTime {
    client
        .query_one(
            "SELECT state_change FROM pg_stat_activity WHERE backend_type = 'mailroom worker'",
            &[],
        )
        .unwrap()
        .get(0)
}

/// Waits for a notification on `channel`.
fn hear_on(listener: &mut Client, channel: &str) {
    use postgres::fallible_iterator::FallibleIterator;
    let mut notifications = listener.notifications();
    let mut heard = notifications.timeout_iter(crate::cluster::PATIENCE);
    while let Some(notification) = heard.next().unwrap() {
        if notification.channel() == channel {
            return;
        }
    }
    panic!("nothing was heard on {channel}");
}

/// Waits until the worker waits for a lock.
fn wait_for_lock(client: &mut Client, worker: i32) {
    eventually("the worker to wait for the lock", || {
        let waits = client
            .query_opt(
                "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'",
                &[&worker],
            )
            .unwrap();
        waits.map(|_| ())
    });
}

/// Discards the notifications so far.
fn drain(listener: &mut Client) {
    use postgres::fallible_iterator::FallibleIterator;
    // Receives what the server has sent.
    listener.batch_execute("SELECT 1").unwrap();
    let mut notifications = listener.notifications();
    while notifications.iter().next().unwrap().is_some() {}
}

/// Waits until the worker only polls, then discards the notifications so far.
fn settle(client: &mut Client, listener: &mut Client) {
    eventually("the worker to be idle for a while", || {
        client
            .query_opt(
                "SELECT FROM pg_stat_activity WHERE backend_type = 'mailroom worker' \
                 AND datname = current_database() AND state_change < now() - interval '4 s'",
                &[],
            )
            .unwrap()
    });
    drain(listener);
}

/// A database with a due mail, which was announced, and a session that listens for mail; the worker is idle.
fn with_mail_that_a_sender_heard_of() -> (Cluster, Client, Client) {
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    listener.batch_execute("LISTEN outbox_due").unwrap();
    client
        .batch_execute("SELECT mailroom_send('a@example.com', 'S', 'T')")
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    settle(&mut client, &mut listener);
    (cluster, client, listener)
}
