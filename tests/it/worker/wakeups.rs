//! What wakes the worker, and what does not.

use std::time::Instant;

use super::{
    hear_on, insert_accounts, insert_unannounced, last_activity, settle, wait_for_outbox,
    wait_for_wake, with_mail_that_a_sender_heard_of,
};
use crate::cluster::{Cluster, eventually, number};

#[test]
fn any_notify_on_the_channel_wakes_it() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_limit = 1",
        "mailroom.poll_interval = '1h'",
        "mailroom.channel = 'Wake up'",
    ]);
    cluster.worker("app");
    insert_unannounced(&mut client);
    client.batch_execute("NOTIFY \"Wake up\"").unwrap();
    wait_for_outbox(&mut client, 1);
}

#[test]
fn a_prepared_transaction_wakes_the_worker_when_it_is_finished() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_limit = 1",
        "mailroom.poll_interval = '1h'",
        "max_prepared_transactions = 2",
    ]);
    cluster.worker("app");
    client.batch_execute("BEGIN").unwrap();
    insert_accounts(&mut client, "a", 1);
    client.batch_execute("PREPARE TRANSACTION 'p'").unwrap();
    client.batch_execute("COMMIT PREPARED 'p'").unwrap();
    wait_for_outbox(&mut client, 1);

    // A prepared transaction that took tokens returns them when it is rolled back.
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    insert_accounts(&mut client, "b", 1);
    client
        .batch_execute("BEGIN; SELECT FROM mailroom_dequeue(1); PREPARE TRANSACTION 'p'")
        .unwrap();
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    wait_for_wake(&mut client, |next| !next.contains("resume"));
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 1);
    client.batch_execute("ROLLBACK PREPARED 'p'").unwrap();
    wait_for_outbox(&mut client, 2);
}

#[test]
fn a_reload_changes_the_channel_and_the_rule() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = '1h'",
        "mailroom.poll_interval = '1h'",
    ]);
    cluster.worker("app");
    insert_accounts(&mut client, "a", 1);
    cluster.append(
        "postgresql.auto.conf",
        "mailroom.batch_timeout = 0\nmailroom.channel = 'other'\n",
    );
    cluster.reload();
    wait_for_outbox(&mut client, 1);
    eventually("the reload to reach this session", || {
        let channel: String = client
            .query_one("SHOW mailroom.channel", &[])
            .unwrap()
            .get(0);
        (channel == "other").then_some(())
    });
    // Only a notification on the new channel can announce this token.
    insert_unannounced(&mut client);
    client.batch_execute("NOTIFY other").unwrap();
    wait_for_outbox(&mut client, 2);
}

#[test]
fn a_consumer_that_rolls_back_wakes_the_worker_for_what_it_gives_back() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.batch_limit = 1", "mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    insert_accounts(&mut client, "a", 2);
    let mut consumer = cluster.connect("app");
    consumer
        .batch_execute(
            "BEGIN; SELECT FROM mailroom_dequeue(1); SAVEPOINT s; SELECT FROM mailroom_dequeue(1)",
        )
        .unwrap();
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    wait_for_wake(&mut client, |next| !next.contains("resume"));
    assert_eq!(number(&mut client, "SELECT count(*) FROM outbox"), 0);
    consumer.batch_execute("ROLLBACK TO s").unwrap();
    wait_for_outbox(&mut client, 1);
    consumer.batch_execute("ROLLBACK").unwrap();
    wait_for_outbox(&mut client, 2);
}

/// Transactions in the database so far; the worker reports its own when it is idle.
fn transactions(cluster: &Cluster, database: &str) -> i64 {
    number(
        &mut cluster.connect("postgres"),
        &format!(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{database}'"
        ),
    )
}

/// Scans of the queue so far, by all sessions.
fn looks(cluster: &Cluster) -> i64 {
    number(
        &mut cluster.connect("app"),
        "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'pending_pkey'",
    )
}

/// I9: neither notifications on other channels nor rolled-back transactions make the worker scan the queue.
#[test]
fn what_others_notify_and_roll_back_does_not_drive_it() {
    const TIMES: i64 = 300;
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.poll_interval = '1h'", "autovacuum = off"]);
    cluster.worker("app");
    let mut listener = cluster.connect("app");
    settle(&mut client, &mut listener);
    let mut noisy = cluster.connect("app");
    let before = (looks(&cluster), transactions(&cluster, "app"));
    let begin = Instant::now();
    for _ in 0..TIMES {
        noisy.batch_execute("NOTIFY something_else").unwrap();
        noisy
            .batch_execute("BEGIN; SELECT mailroom_send('a@example.com', 'S', 'T'); NOTIFY token_insert; ROLLBACK")
            .unwrap();
    }
    drop(noisy);
    eventually("the statistics of the session that notified", || {
        (transactions(&cluster, "app") >= before.1 + 2 * TIMES).then_some(())
    });
    settle(&mut client, &mut listener);
    // The worker cannot see the channel of a notification. It scans at the first one, and a second after those that
    // follow: once a second, with one scan or two.
    let looked = looks(&cluster) - before.0;
    let seconds = i64::try_from(begin.elapsed().as_secs()).unwrap();
    let allowed = 2 * (seconds + 3);
    assert!(
        looked <= allowed && allowed < TIMES / 2,
        "{looked} scans of the queue in {seconds} s"
    );

    // A notification on its own channel must wake it, which shows that its scans are counted.
    for _ in 0..3 {
        let before = looks(&cluster);
        listener.batch_execute("NOTIFY token_insert").unwrap();
        eventually("the worker to look", || {
            (looks(&cluster) > before).then_some(())
        });
    }
}

#[test]
fn a_consumer_that_keeps_failing_does_not_hurry_it() {
    let (cluster, mut client) =
        Cluster::start_with_app(&["mailroom.batch_limit = 1", "mailroom.poll_interval = '1h'"]);
    cluster.worker("app");
    client
        .batch_execute(
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ \
             BEGIN RAISE insufficient_resources; END $$; \
             CREATE TRIGGER no BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION no()",
        )
        .unwrap();
    insert_accounts(&mut client, "a", 1);
    eventually("a failure", || {
        (number(&mut client, "SELECT count(*) FROM job_runs") > 0).then_some(())
    });
    // A call skips the token while the worker holds it, finds nothing and returns 0.
    let failed = (0..300)
        .filter(|_| client.batch_execute("SELECT mailroom_collect()").is_err())
        .count();
    assert!(failed >= 200, "{failed} of 300 calls failed");
    let failures = number(&mut client, "SELECT count(*) FROM job_runs");
    assert!(failures < 20, "{failures} failures");
    client.batch_execute("DROP TRIGGER no ON outbox").unwrap();
    wait_for_outbox(&mut client, 1);
}

#[test]
fn a_deletion_that_is_rolled_back_gives_its_tokens_back() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = '300ms'",
        "mailroom.poll_interval = '1h'",
        "mailroom.notify = 'off'",
    ]);
    cluster.worker("app");
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    insert_accounts(&mut client, "a", 1);
    let mut other = cluster.connect("app");
    other.batch_execute("BEGIN; DELETE FROM accounts").unwrap();
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    wait_for_wake(&mut client, |next| next == "poll");
    other.batch_execute("ROLLBACK").unwrap();
    wait_for_outbox(&mut client, 1);
}

#[test]
fn tokens_given_back_are_seen_at_once_each_time() {
    let (cluster, mut client) = Cluster::start_with_app(&[
        "mailroom.batch_timeout = 0",
        "mailroom.poll_interval = '1h'",
        "mailroom.notify = 'off'",
    ]);
    cluster.worker("app");
    for round in 1..=25 {
        client.batch_execute("BEGIN").unwrap();
        insert_accounts(&mut client, &format!("a{round}-"), 1);
        client.batch_execute("COMMIT").unwrap();
        // The consumer or the worker takes the token first; if it was the consumer, the worker must see it again.
        client
            .batch_execute("BEGIN; SELECT FROM mailroom_dequeue(1); ROLLBACK")
            .unwrap();
        wait_for_outbox(&mut client, round);
    }
}

#[test]
fn a_pause_is_in_force_from_its_commit_on_whatever_waits() {
    // One token per batch, so that there is always a next batch.
    let (cluster, mut client) = Cluster::start_with_app(&["mailroom.batch_limit = 1"]);
    let worker = cluster.worker("app");
    client
        .batch_execute("INSERT INTO accounts (id, email, login, status) VALUES (1000, 'z@example.com', 'z', 'active')")
        .unwrap();
    // The worker is in the middle of the first of fifty batches when the pause is committed.
    let mut other = cluster.connect("app");
    other
        .batch_execute("BEGIN; LOCK TABLE outbox IN SHARE ROW EXCLUSIVE MODE")
        .unwrap();
    insert_accounts(&mut client, "a", 50);
    let blocked = format!("SELECT count(*) FROM pg_locks WHERE pid = {worker} AND NOT granted");
    eventually("the worker to be at it", || {
        (number(&mut client, &blocked) == 1).then_some(())
    });
    client.batch_execute("SELECT mailroom_pause()").unwrap();
    let paused_at: std::time::SystemTime = client
        .query_one("SELECT clock_timestamp()", &[])
        .unwrap()
        .get(0);
    // Not even an urgent token is collected.
    client
        .batch_execute("INSERT INTO tokens (account, action) VALUES (1000, 'password_recovery')")
        .unwrap();
    other.batch_execute("COMMIT").unwrap();
    wait_for_wake(&mut client, |reason| reason.starts_with("paused"));
    let later: i64 = client
        .query_one(
            "SELECT count(*) FROM job_runs WHERE started_at > $1",
            &[&paused_at],
        )
        .unwrap()
        .get(0);
    assert_eq!(later, 0, "batches were begun after the pause");
    let waiting = "SELECT count(*) FROM pending";
    assert!(number(&mut client, waiting) >= 50);
    client.batch_execute("SELECT mailroom_resume()").unwrap();
    eventually("the rest", || {
        (number(&mut client, waiting) == 0).then_some(())
    });
}

#[test]
fn only_what_was_claimed_within_a_savepoint_comes_back_with_it() {
    let (cluster, mut client, mut listener) = with_mail_that_a_sender_heard_of();

    // The claim ends with its savepoint, and listeners are notified before the transaction ends.
    let mut other = cluster.connect("app");
    other
        .batch_execute(
            "BEGIN; SAVEPOINT s; SELECT FROM mailroom_claim(1, '1 h', 'one'); ROLLBACK TO s",
        )
        .unwrap();
    hear_on(&mut listener, "outbox_due");
    other.batch_execute("COMMIT").unwrap();
    settle(&mut client, &mut listener);

    // A claim that was made before the savepoint stays, and the worker is not woken.
    let before = last_activity(&mut client);
    other
        .batch_execute("BEGIN; SELECT FROM mailroom_claim(1, '1 h', 'one'); SAVEPOINT s; SELECT 1; ROLLBACK TO s")
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(last_activity(&mut client), before, "it was woken");
    other.batch_execute("COMMIT").unwrap();
    let claimed = "SELECT count(*) FROM outbox WHERE state = 'claimed'";
    assert_eq!(number(&mut client, claimed), 1);
}
