//! Budgets and claims over a failover, and synchronous standbys.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{spent, within_a_month};
use crate::cluster::{Cluster, Stop, StopAtEnd, eventually, number};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, status};
use postgres::Client;

/// Waits until the standby has replayed everything that the primary has inserted into the WAL so far.
fn catch_up(primary: &mut Client, standby: &mut Client) {
    let lsn: String = primary
        .query_one("SELECT pg_current_wal_insert_lsn()::text", &[])
        .unwrap()
        .get(0);
    // The end of the WAL may not have been flushed; this commit flushes it.
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

/// I1, I2 hold across a failover.
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
    // Three mails are sent, two are in flight, the others wait for the next month.
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
    // The old primary may still be sending, so the new worker waits until its leases expire.
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
    // The budget allows four more attempts, whether or not they are of the two mails that were in flight.
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
    // Only the mails that had no response when the old primary died were sent twice.
    assert_eq!(receiver.requests(), 14);
    assert_eq!(receiver.count(), 12);
    standby.verify();
}

/// Waits until one process that meets the condition waits for a standby.
fn wait_for_sync(client: &mut Client, which: &str) {
    let waits =
        format!("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND {which}");
    eventually("a commit to wait for the standby", || {
        (number(client, &waits) == 1).then_some(())
    });
}

/// Waits until commits wait for a standby, which they do when the checkpointer knows of the setting.
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
    // The standby knows that the mail was sent and settled.
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
