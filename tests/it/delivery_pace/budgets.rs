//! Budgets.

use std::time::Duration;

use super::{spent, within_a_month};
use crate::cluster::{Cluster, Stop, eventually, number};
use crate::post::Post;
use crate::receiver::{Receiver, status};

#[test]
fn what_is_beyond_a_budget_waits_with_the_reason_and_survives_a_crash() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &[]);
    within_a_month(&mut post.client);
    post.client
        .batch_execute("INSERT INTO budgets (period, amount) VALUES ('month', 3)")
        .unwrap();
    post.send(10);
    post.wait_for("state = 'sent'", 3);
    post.wait_for_status("budget", "the budget of 3 per month is spent");
    let waits = "SELECT count(*) FROM outbox_waits WHERE reason LIKE 'the budget of 3 per month is spent until %'";
    eventually("the rest to wait", || {
        (number(&mut post.client, waits) == 7).then_some(())
    });
    assert_eq!(spent(&mut post.client), 3);
    // Waiting for the budget counts no attempt.
    assert_eq!(post.count("failed_attempts > 0"), 0);
    post.cluster.stop_server(Stop::Immediate);
    post.cluster.start_server();
    post.client = post.cluster.connect("app");
    post.cluster.worker("app");
    assert_eq!(spent(&mut post.client), 3, "the crash gave some back");
    // The changed budget makes the new worker claim. That it sent no more than this budget allows is checked below.
    post.client
        .batch_execute("UPDATE budgets SET amount = 5")
        .unwrap();
    post.wait_for("state = 'sent'", 5);
    post.wait_for_status("budget", "the budget of 5 per month is spent");
    assert_eq!(receiver.count(), 5);
    post.client.batch_execute("DELETE FROM budgets").unwrap();
    post.wait_for("state = 'sent'", 10);
    assert_eq!(receiver.count(), 10, "none went twice");
}

#[test]
fn what_does_not_fit_goes_in_the_next_period_and_nothing_overtakes_it() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &[]);
    // Begins in the seconds 2 to 45 of a minute, so that the first mails go in one minute, and a refund counts for that
    // minute.
    let early = "SELECT (extract(second FROM clock_timestamp()) BETWEEN 2 AND 45)::integer::bigint";
    while number(&mut post.client, early) == 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
    post.client
        .batch_execute(
            "INSERT INTO budgets (period, amount) VALUES ('minute', 3); \
             SELECT mailroom_send('small@example.com', 'Hello', 'Text')",
        )
        .unwrap();
    post.wait_for("state = 'sent'", 1);
    let send = "SELECT mailroom_send('large@example.com', 'Hello', 'Text', \
         cc => 'b@example.com, c@example.com', bcc => 'd@example.com, e@example.com')";
    post.client.batch_execute(send).unwrap();
    let waits = "SELECT count(*) FROM outbox_waits WHERE reason LIKE '%has no room for 5 recipients until %'";
    eventually("the large one to wait", || {
        (number(&mut post.client, waits) == 1).then_some(())
    });
    for name in ["f", "g"] {
        let send = format!("SELECT mailroom_send('{name}@example.com', 'Hello', 'Text')");
        post.client.batch_execute(&send).unwrap();
    }
    // The worker wakes up for the next minute by itself.
    post.wait_for("state = 'sent'", 2);
    let of_large = "state = 'sent' AND recipients = '{large@example.com}'";
    assert_eq!(post.count(of_large), 1, "a small one overtook it");
    assert_eq!(spent(&mut post.client), 5);
    post.wait_for_status("budget", "the budget of 3 per minute is spent");
    assert_eq!(post.count("state = 'scheduled'"), 2);
    post.wait_for("state = 'sent'", 4);
    assert_eq!(receiver.count(), 4);
    assert_eq!(post.count("failed_attempts > 0"), 0);
}

#[test]
fn urgent_mail_has_its_reserve() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &[]);
    within_a_month(&mut post.client);
    post.client
        .batch_execute(
            "INSERT INTO budgets (period, amount, reserved_share) VALUES ('month', 4, 0.5)",
        )
        .unwrap();
    post.send(10);
    post.wait_for("state = 'sent'", 2);
    post.wait_for_status("budget", "the budget of 4 per month is spent");
    post.client
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('a@example.com', 'ann'); \
             UPDATE accounts SET status = 'active' WHERE login = 'ann'; \
             SELECT mailroom_request_recovery('a@example.com')",
        )
        .unwrap();
    post.wait_for("state = 'sent' AND kind = 'password_recovery'", 1);
    assert_eq!(post.count("state = 'sent'"), 3);
    // In the end the budget counts as much as was sent.
    eventually("the shares to be right", || {
        (spent(&mut post.client) == 3).then_some(())
    });
}

#[test]
fn what_is_given_back_has_cost_no_share() {
    let receiver = Receiver::start(|_| status(410));
    let mut post = Post::start(&receiver, &[]);
    within_a_month(&mut post.client);
    post.client
        .batch_execute("INSERT INTO budgets (period, amount) VALUES ('month', 20)")
        .unwrap();
    post.send(20);
    post.wait_for_status("transport_state", "paused");
    let wake = "SELECT mailroom_wake_worker()";
    eventually("some probes", || {
        post.client.batch_execute(wake).unwrap();
        (receiver.requests() > 8).then_some(())
    });
    receiver.react(|_| status(200));
    eventually("all of it to be sent", || {
        post.client.batch_execute(wake).unwrap();
        (post.count("state = 'sent'") == 20).then_some(())
    });
    assert_eq!(post.count("failed_attempts > 0"), 0);
    assert_eq!(spent(&mut post.client), 20);
}

#[test]
fn many_claimants_together_take_what_there_is_and_no_more() {
    let (cluster, mut client) = Cluster::start_with_app(&[]);
    within_a_month(&mut client);
    client
        .batch_execute("INSERT INTO budgets (period, amount) VALUES ('month', 1000)")
        .unwrap();
    let taken: i64 = std::thread::scope(|scope| {
        let claimants: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = cluster.connect("app");
                    let mut taken = 0;
                    while spent(&mut client) < 1000 {
                        taken += number(
                            &mut client,
                            "SELECT _consume_budget(array_fill(1, ARRAY[7]), false)::bigint",
                        );
                    }
                    taken
                })
            })
            .collect();
        claimants
            .into_iter()
            .map(|claimant| claimant.join().unwrap())
            .sum()
    });
    assert_eq!(taken, 1000);
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(number(&mut client, locks), 0);
}

#[test]
fn a_statement_that_is_cancelled_while_it_counts_keeps_nobody_from_counting() {
    let (cluster, mut client) = Cluster::start_with_app(&[]);
    within_a_month(&mut client);
    client
        .batch_execute(
            "INSERT INTO budgets (period, amount) VALUES ('month', 1000); SELECT mailroom_send('a@example.com', 'S', 'T')",
        )
        .unwrap();
    let mut counting = cluster.connect("app");
    let pid = number(&mut counting, "SELECT pg_backend_pid()::bigint");
    // The statement holds the lock on the budgets, and waits for the sequence that counts.
    let mut other = cluster.connect("app");
    other
        .batch_execute("BEGIN; ALTER SEQUENCE _spent_month CACHE 1")
        .unwrap();
    let ours = format!(
        "SELECT count(*) FROM pg_locks WHERE pid = {pid} AND locktype = 'advisory' AND objsubid = 5 AND granted \
         AND (SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = {pid})"
    );
    let cancelled = std::thread::scope(|scope| {
        let counting = scope.spawn(move || {
            let outcome =
                counting.query_one("SELECT count(*) FROM mailroom_claim(10, NULL, 'me')", &[]);
            (counting, outcome.map(|_| ()))
        });
        eventually("it to be counting", || {
            (number(&mut client, &ours) == 1).then_some(())
        });
        client
            .batch_execute(&format!("SELECT pg_cancel_backend({pid})"))
            .unwrap();
        counting.join().unwrap()
    });
    // The session continues, as one of a pool would.
    let (mut counting, outcome) = cancelled;
    let error = outcome.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "57014", "{error}");
    other.batch_execute("COMMIT").unwrap();
    let take = "SELECT _consume_budget(array_fill(1, ARRAY[7]), false)::bigint";
    assert_eq!(number(&mut client, take), 7, "the lock was left behind");
    assert_eq!(number(&mut counting, take), 7);
    // An open transaction does not hold the lock either, and ROLLBACK does not undo what it took.
    counting.batch_execute("BEGIN").unwrap();
    assert_eq!(number(&mut counting, take), 7);
    assert_eq!(
        number(&mut client, take),
        7,
        "the lock is held until COMMIT"
    );
    counting.batch_execute("ROLLBACK").unwrap();
    assert_eq!(spent(&mut client), 28);
}
