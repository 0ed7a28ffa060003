//! The pace of delivery: one rate for all databases of the server, and budgets that survive what the server does
//! not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Halts, Stop, StopAtEnd, eventually, number};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, beyond, status};
use postgres::Client;

/// Waits until the month lasts for a while, and has lasted for a moment: what the tests count must be of one.
fn within_a_month(client: &mut Client) {
    let query = "SELECT (extract(epoch FROM date_trunc('month', clock_timestamp(), 'UTC') \
                 + interval '1 month' - clock_timestamp()) > 600 \
                 AND clock_timestamp() - date_trunc('month', clock_timestamp(), 'UTC') > interval '2 s')::integer::bigint";
    while number(client, query) == 0 {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn spent(client: &mut Client) -> i64 {
    number(client, "SELECT spent FROM mailroom_budgets")
}

#[test]
fn a_rate_is_kept_over_any_stretch_of_time() {
    const RATE: f64 = 100.0;
    // A second's worth.
    const BURST: f64 = 100.0;
    const EACH: i64 = 240;
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&arrivals);
    let receiver = Receiver::start(move |request| {
        log.lock().unwrap().push(request.at);
        status(200)
    });
    let mut post = Post::start(&receiver, &["transport.rate = 100 messages/s"]);
    let halts = Halts::watch();
    let start = Instant::now();
    let mut sent = 0;
    // The second load comes after a while without mail, in which nothing may be saved up beyond the burst.
    for _ in 0..2 {
        post.send(EACH);
        sent += EACH;
        post.wait_until_ended(sent);
        std::thread::sleep(Duration::from_secs(2));
    }
    let mut arrivals: Vec<f64> = arrivals
        .lock()
        .unwrap()
        .iter()
        .map(|at: &Instant| at.duration_since(start).as_secs_f64())
        .collect();
    arrivals.sort_by(f64::total_cmp);
    assert_eq!(arrivals.len() as i64, sent);
    // A request that the machine did not bring here at once arrives together with those after it.
    let late = halts.longest().as_secs_f64() + 0.1;
    let most = beyond(&arrivals, RATE);
    assert!(
        most <= BURST + RATE * late,
        "{most} more than the rate allows arrived in a stretch of time; some may have been {late} s late"
    );
}

#[test]
fn a_new_rate_is_in_force_without_a_restart() {
    let receiver = Receiver::start(|_| status(200));
    // So slow that nothing would ever go.
    let mut post = Post::start(&receiver, &["transport.rate = 1 messages/s"]);
    post.send(200);
    post.wait_for("state = 'sent'", 1);
    assert!(post.count("state = 'sent'") < 200);
    post.transports.remove("rate");
    post.transports.write(&post.cluster);
    post.cluster.reload();
    post.wait_for("state = 'sent'", 200);
}

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
    // What the worker claimed and gave back is nobody's failure.
    assert_eq!(post.count("failed_attempts > 0"), 0);
    post.cluster.stop_server(Stop::Immediate);
    post.cluster.start_server();
    post.client = post.cluster.connect("app");
    post.cluster.worker("app");
    assert_eq!(spent(&mut post.client), 3, "the crash gave some back");
    // The new worker looks as well; that it takes nothing is seen when it was asked to look and has.
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
    // So that the first mails go in one minute, and what comes back does not count as of the minute before.
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
    // The worker wakes for the next minute by itself.
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
    // In the end as much was taken out of the budget as was sent.
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
    // It has the lock on the budgets, and waits for the counter.
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
    // The session goes on, as a pool's would.
    let (mut counting, outcome) = cancelled;
    let error = outcome.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "57014", "{error}");
    other.batch_execute("COMMIT").unwrap();
    let take = "SELECT _consume_budget(array_fill(1, ARRAY[7]), false)::bigint";
    assert_eq!(number(&mut client, take), 7, "the lock was left behind");
    assert_eq!(number(&mut counting, take), 7);
    // Nor does a transaction that stays open, and what it took is taken.
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

/// Waits until the standby has all that the primary has by now.
fn catch_up(primary: &mut Client, standby: &mut Client) {
    let lsn: String = primary
        .query_one("SELECT pg_current_wal_insert_lsn()::text", &[])
        .unwrap()
        .get(0);
    // The last bit of it may wait for company.
    primary
        .batch_execute(
            "SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'mailroom', 'x')",
        )
        .unwrap();
    let caught_up = format!("SELECT (pg_last_wal_replay_lsn() >= '{lsn}')::integer::bigint");
    eventually("the standby to catch up", || {
        (number(standby, &caught_up) == 1).then_some(())
    });
}

/// I1, I2: across a failover.
#[test]
fn a_failover_gives_nothing_back_and_sends_nothing_twice_that_was_settled() {
    let receiver = Receiver::start(|request| {
        if request.says("Hello 4\"") || request.says("Hello 5\"") {
            Reaction::Hang
        } else {
            status(200)
        }
    });
    let mut post = Post::start(
        &receiver,
        &[
            "wal_level = replica",
            "wal_consistency_checking = all",
            "transport.timeout = '10min'",
            "mailroom.lease = '15s'",
        ],
    );
    let standby = Cluster::follow(&post.cluster);
    let mut replica = standby.connect("app");
    within_a_month(&mut post.client);
    post.client
        .batch_execute("INSERT INTO budgets (period, amount) VALUES ('month', 5)")
        .unwrap();
    // Three are sent, two are under way, the rest waits for the next month.
    post.send(12);
    post.wait_for("state = 'sent'", 3);
    eventually("mail under way", || (receiver.open() == 2).then_some(()));
    post.wait_for_status("budget", "the budget of 5 per month is spent");
    catch_up(&mut post.client, &mut replica);
    assert_eq!(spent(&mut replica), 5);

    post.cluster.stop_server(Stop::Immediate);
    replica.batch_execute("SELECT pg_promote()").unwrap();
    standby.worker("app");
    let count = |replica: &mut Client, which: &str| {
        number(
            replica,
            &format!("SELECT count(*) FROM outbox WHERE {which}"),
        )
    };
    // The old primary may still be sending: its leases are waited for.
    eventually("the new worker to deliver", || {
        let delivers = "SELECT count(*) FROM mailroom_status() WHERE transport_state = 'healthy'";
        (number(&mut replica, delivers) == 1).then_some(())
    });
    assert_eq!(count(&mut replica, "state = 'claimed'"), 2);
    eventually("the new worker to take back what was under way", || {
        (count(&mut replica, "failed_attempts = 1 AND state = 'scheduled'") == 2).then_some(())
    });
    assert_eq!(spent(&mut replica), 5, "the failover gave some back");
    assert_eq!(receiver.requests(), 5);
    // Four more: whether those that were under way are among them or not, each attempt counts.
    receiver.react(|_| status(200));
    replica
        .batch_execute("UPDATE budgets SET amount = 9")
        .unwrap();
    eventually("four more", || {
        (count(&mut replica, "state = 'sent'") == 7).then_some(())
    });
    eventually("the budget to be spent", || {
        (spent(&mut replica) == 9).then_some(())
    });
    assert_eq!(receiver.requests(), 9);
    replica.batch_execute("DELETE FROM budgets").unwrap();
    eventually("all of it", || {
        (count(&mut replica, "state = 'sent'") == 12).then_some(())
    });
    // Twice only what had no answer when the old primary died.
    assert_eq!(receiver.requests(), 14);
    assert_eq!(receiver.count(), 12);
    standby.verify();
}

/// Waits until one of these waits for a standby.
fn wait_for_sync(client: &mut Client, which: &str) {
    let waits =
        format!("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND {which}");
    eventually("somebody to wait for the standby", || {
        (number(client, &waits) == 1).then_some(())
    });
}

/// Waits until commits wait for a standby: they do as soon as the checkpointer knows of the setting.
fn wait_until_commits_wait(post: &mut Post) {
    let mut other = post.cluster.connect("app");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = other.batch_execute("CREATE TABLE probe (); DROP TABLE probe");
            }
        });
        let _stop_at_end = StopAtEnd(&is_over);
        wait_for_sync(&mut post.client, "backend_type = 'client backend'");
        is_over.store(true, Ordering::Relaxed);
        post.client
            .batch_execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
                 WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'",
            )
            .unwrap();
    });
}

#[test]
fn nothing_goes_out_that_a_synchronous_standby_does_not_know_of() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(
        &receiver,
        &["wal_level = replica", "wal_sender_timeout = 0"],
    );
    let worker = post.worker();
    let standby = Cluster::follow(&post.cluster);
    let mut replica = standby.connect("app");
    let receiving =
        "SELECT coalesce(max(pid), 0)::bigint FROM pg_stat_wal_receiver WHERE status = 'streaming'";
    let wal_receiver = eventually("the stream", || {
        Some(number(&mut replica, receiving)).filter(|&pid| pid != 0)
    });
    post.set("synchronous_standby_names", "*");
    eventually("the standby to be synchronous", || {
        let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        (number(&mut post.client, synchronous) == 1).then_some(())
    });
    crate::cluster::signal("STOP", wal_receiver as i32);
    post.client
        .batch_execute("SET synchronous_commit = local")
        .unwrap();
    wait_until_commits_wait(&mut post);
    post.send(1);
    wait_for_sync(&mut post.client, &format!("pid = {worker}"));
    assert_eq!(receiver.requests(), 0);
    crate::cluster::signal("CONT", wal_receiver as i32);
    post.wait_for("state = 'sent'", 1);
    // It went out by a claim, and is settled, as the standby knows.
    eventually("the standby to know", || {
        let sent = "SELECT count(*) FROM outbox WHERE state = 'sent' AND failed_attempts = 0";
        (number(&mut replica, sent) == 1).then_some(())
    });
}

#[test]
fn told_to_stop_while_it_waits_for_a_standby_it_sends_nothing() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &[]);
    let worker = post.worker();
    post.client
        .batch_execute("SET synchronous_commit = local")
        .unwrap();
    post.set("synchronous_standby_names", "nobody");
    wait_until_commits_wait(&mut post);
    post.send(3);
    wait_for_sync(&mut post.client, &format!("pid = {worker}"));
    post.stop_promptly(Duration::from_secs(20));
    assert_eq!(receiver.requests(), 0);
}
