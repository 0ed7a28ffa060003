//! `mailroom send` (in MAILROOM_SEND): the deliverer over a connection, mostly with servers that run no worker.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::cluster::transports::{FILE, write_secret};
use crate::cluster::{eventually, number};
use crate::receiver::{Reaction, Receiver, status};
use crate::sender_scene::{Scene, Sender, write_transports};

#[test]
fn mail_goes_without_a_worker() {
    let mut scene = Scene::start(&[]);
    scene.load(10);
    let sender = scene.sender("sender", &["--poll", "600"]);
    scene.wait_for("state = 'sent'", 10);
    // A notification announces the first one, after which the program asks when the next one is due.
    scene
        .client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'Now', 'Text'); \
             SELECT mailroom_send('a@example.com', 'Later', 'Text', send_at => now() + interval '2s')",
        )
        .unwrap();
    scene.wait_for("state = 'sent'", 12);
    let late = "SELECT max(extract(epoch FROM ended_at - send_at) * 1000)::bigint FROM outbox WHERE subject = 'Later'";
    let late = number(&mut scene.client, late);
    assert!((0..60_000).contains(&late), "{late} ms");
    assert_eq!(scene.receiver.count(), 12);
    assert_eq!(
        number(
            &mut scene.client,
            "SELECT count(DISTINCT claimed_by) FROM outbox"
        ),
        1
    );
    let shown =
        "SELECT count(*) FROM mailroom_transports WHERE name = 'main' AND state = 'healthy'";
    eventually("its transport to be published", || {
        (number(&mut scene.client, shown) == 1).then_some(())
    });
    assert!(!sender.log().contains("hunter2"));
    let (status, took) = sender.stop();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(number(&mut scene.client, shown), 0, "it is withdrawn");
}

#[test]
fn a_collector_makes_sign_ups_arrive() {
    let mut scene = Scene::start(&["mailroom.link_base_url = 'https://example.com/'"]);
    let url = scene.url("collector", "app");
    let sender = Sender::start("collector", &scene, &["--database", &url, "--poll", "600"]);
    sender.wait_for("started", 1);
    scene
        .client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('ada@example.com', 'ada')")
        .unwrap();
    scene.wait_for("state = 'sent' AND kind = 'activation'", 1);
    scene
        .client
        .batch_execute(
            "UPDATE tokens SET consumed_at = extract(epoch FROM now()); \
             SELECT mailroom_request_recovery('ada@example.com')",
        )
        .unwrap();
    scene.wait_for("state = 'sent' AND kind = 'password_recovery'", 1);
    let runs = number(
        &mut scene.client,
        "SELECT count(*) FROM job_runs WHERE error IS NULL",
    );
    assert!(runs >= 2, "{runs} batches");
    drop(sender);
    // With mailroom.collect off, tokens stay pending, and requests are answered.
    scene
        .client
        .batch_execute("ALTER DATABASE app SET mailroom.collect = off")
        .unwrap();
    let sender = Sender::start("left", &scene, &["--database", &url, "--poll", "600"]);
    sender.wait_for("started", 1);
    scene
        .client
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('eve@example.com', 'eve'); \
             SELECT mailroom_request_recovery('ada@example.com')",
        )
        .unwrap();
    eventually("the request to be answered", || {
        (number(&mut scene.client, "SELECT count(*) FROM link_requests") == 0).then_some(())
    });
    scene.load(1);
    scene.wait_for("state = 'sent' AND kind = 'own'", 1);
    let left = "SELECT count(*) FROM pending";
    assert!(number(&mut scene.client, left) >= 1);
}

#[test]
fn the_mail_of_a_batch_goes_before_the_next_is_collected() {
    const ACCOUNTS: i64 = 100;
    let mut scene = Scene::start(&[
        "mailroom.link_base_url = 'https://example.com/'",
        "mailroom.batch_limit = 1",
    ]);
    scene
        .client
        .batch_execute(&format!(
            "INSERT INTO accounts (email, login) \
             SELECT i || '@example.com', 'a' || i FROM generate_series(1, {ACCOUNTS}) i"
        ))
        .unwrap();
    let url = scene.url("collector", "app");
    let _sender = Sender::start("collector", &scene, &["--database", &url]);
    scene.wait_for("state = 'sent'", ACCOUNTS);
    let overlap =
        "SELECT count(*) FROM outbox WHERE created_at > (SELECT min(ended_at) FROM outbox)";
    let overlap = number(&mut scene.client, overlap);
    assert!(overlap > ACCOUNTS / 2, "{overlap} were collected later");
}

#[test]
fn killing_it_loses_nothing() {
    const MAILS: i64 = 400;
    let receiver = Receiver::start(|_| Reaction::Late(Duration::from_millis(50), 200));
    let mut scene = Scene::start_with(receiver, &["mailroom.lease = '2s'"]);
    scene.load(MAILS);
    for round in 0..3 {
        let sender = scene.sender(&format!("killed-{round}"), &[]);
        let before = scene.receiver.count();
        eventually("some mails to arrive", || {
            (scene.receiver.count() > before + 40).then_some(())
        });
        sender.kill();
    }
    let _sender = scene.sender("last", &[]);
    scene.wait_for("state = 'sent'", MAILS);
    let arrived: HashSet<String> = scene.receiver.accepted().into_iter().collect();
    assert_eq!(arrived.len() as i64, MAILS);
    // No more copies than mails in flight at a kill, whose expired leases are counted.
    let lapsed = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'lease_expired'";
    let lapsed = number(&mut scene.client, lapsed);
    let copies = scene.copies();
    assert!(copies.len() as i64 <= lapsed, "{copies:?}, {lapsed} lapsed");
    scene.cluster.verify();
}

#[test]
fn two_at_once_send_nothing_twice() {
    const MAILS: i64 = 3_000;
    let receiver = Receiver::start(|_| Reaction::Late(Duration::from_millis(5), 200));
    let mut scene = Scene::start_with(receiver, &[]);
    let _senders = [scene.sender("one", &[]), scene.sender("two", &[])];
    for _ in 0..10 {
        scene.load(MAILS / 10);
    }
    scene.wait_for("state = 'sent'", MAILS);
    assert_eq!(scene.receiver.count() as i64, MAILS);
    assert_eq!(scene.copies(), Vec::<usize>::new());
    let claimants = "SELECT count(DISTINCT claimed_by) FROM outbox";
    assert_eq!(number(&mut scene.client, claimants), 2, "both are at work");
    let attempts = "SELECT count(*) FROM outbox_attempts";
    assert_eq!(number(&mut scene.client, attempts), 0);
}

#[test]
fn one_that_is_frozen_beyond_its_lease_is_counted() {
    let receiver = Receiver::start(|_| Reaction::Late(Duration::from_secs(1), 200));
    let mut scene = Scene::start_with(receiver, &["mailroom.lease = '3s'"]);
    scene.load(20);
    let frozen = scene.sender("frozen", &[]);
    eventually("all to be in flight", || {
        (scene.receiver.open() == 20).then_some(())
    });
    frozen.signal("-STOP");
    let other = scene.sender("other", &["--poll", "1"]);
    scene.wait_for("state = 'sent'", 20);
    frozen.signal("-CONT");
    // It has responses to settle whose claims were lost, and reports that.
    eventually("the late settles", || {
        let late = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'late'";
        (number(&mut scene.client, late) == 20).then_some(())
    });
    let lapsed = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'lease_expired'";
    assert_eq!(number(&mut scene.client, lapsed), 20);
    assert_eq!(scene.receiver.count(), 40, "each once more, and no more");
    assert_eq!(scene.count("state = 'sent'"), 20);
    drop(other);
    // It continues to work.
    scene.receiver.react(|_| status(200));
    scene.load(5);
    scene.wait_for("state = 'sent'", 25);
}

#[test]
fn a_signal_has_the_file_read_again() {
    let mut scene = Scene::start(&[]);
    write_transports(&scene.transports, &scene.receiver, "another");
    let sender = scene.sender("sender", &["--poll", "1", "--log-format", "json"]);
    sender.wait_for("delivers through another", 1);
    scene.load(3);
    // An invalid file changes nothing.
    let good = std::fs::read(&scene.transports).unwrap();
    std::fs::write(
        &scene.transports,
        "[transports.main]\nprovider = \"hunter2\"\n",
    )
    .unwrap();
    sender.signal("-HUP");
    sender.wait_for("stay in force", 1);
    sender.signal("-USR1");
    std::fs::write(&scene.transports, good).unwrap();
    write_transports(&scene.transports, &scene.receiver, "main");
    sender.signal("-HUP");
    sender.wait_for("delivers through main", 1);
    scene.wait_for("state = 'sent'", 3);
    for line in sender.log().lines() {
        assert!(line.starts_with('{') && line.ends_with('}'), "{line}");
        assert!(!line.contains("hunter2"), "{line}");
    }
    assert_eq!(sender.stop().0.code(), Some(0));
}

#[test]
fn a_paused_transport_is_tried_when_that_is_asked_for() {
    let wait = || Reaction::Answer(429, "retry-after: 3600\r\n".to_owned(), String::new());
    let mut scene = Scene::start_with(Receiver::start(move |_| wait()), &[]);
    let _sender = scene.sender("sender", &["--poll", "600"]);
    scene.load(5);
    eventually("a pause until the next minute", || {
        let next = "SELECT count(*) FROM mailroom_transports WHERE state = 'paused' AND next_probe_at > now() + interval '50 s'";
        (number(&mut scene.client, next) == 1).then_some(())
    });
    scene.receiver.react(|_| status(200));
    let begin = Instant::now();
    scene
        .client
        .batch_execute("SELECT mailroom_wake_worker()")
        .unwrap();
    scene.wait_for("state = 'sent'", 5);
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(40), "it waited for {took:?}");
}

const MESSAGE: &str = "SELECT mailroom_send('a@example.com', 'Urgent', 'Text', priority => -10)";

/// Urgent mail has a paused transport probed; the probe sends the mail that meets the condition `which`.
fn urgent_mail_is_tried(settings: &[&str], urgent: &str, which: &str) {
    let mut scene = Scene::start_with(Receiver::start(|_| status(503)), settings);
    let _sender = scene.sender("sender", &["--poll", "600"]);
    scene.load(20);
    eventually("a long pause", || {
        let next = "SELECT count(*) FROM mailroom_transports WHERE state = 'paused' AND next_probe_at > now() + interval '12 s'";
        (number(&mut scene.client, next) == 1).then_some(())
    });
    scene.receiver.react(|_| status(200));
    let begin = Instant::now();
    scene.client.batch_execute(urgent).unwrap();
    scene.wait_for(&format!("{which} AND state = 'sent'"), 1);
    // Before the next probe, which is due later.
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(11), "after {took:?}");
}

#[test]
fn urgent_mail_is_tried_through_a_paused_transport() {
    urgent_mail_is_tried(&[], MESSAGE, "subject = 'Urgent'");
}

#[test]
fn a_worker_tells_of_urgent_mail_that_is_tried_through_a_paused_transport() {
    let settings = ["shared_preload_libraries = 'mailroom'"];
    urgent_mail_is_tried(&settings, MESSAGE, "subject = 'Urgent'");
}

#[test]
fn a_worker_tells_of_recoveries_that_it_collects() {
    let settings = ["shared_preload_libraries = 'mailroom'"];
    let request = "INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active'); \
        SELECT mailroom_request_recovery('a@example.com')";
    urgent_mail_is_tried(&settings, request, "kind = 'password_recovery'");
}

/// A worker that has transports of its own announces mail that it does not claim.
#[test]
fn beside_a_worker_it_hears_of_the_mail_that_is_its_own() {
    let settings = [
        "shared_preload_libraries = 'mailroom'",
        "mailroom.transports_file = 'transports.toml'",
        // The worker learns at a poll that others deliver too.
        "mailroom.poll_interval = '1s'",
    ];
    let mut scene = Scene::start(&settings);
    let of_worker = std::fs::read_to_string(&scene.transports).unwrap();
    write_secret(&scene.cluster, FILE, &of_worker);
    scene.cluster.reload();
    write_transports(&scene.transports, &scene.receiver, "other");
    let _sender = scene.sender("sender", &["--poll", "600"]);
    let published = "SELECT count(*) FROM mailroom_transports";
    eventually("both transports", || {
        (number(&mut scene.client, published) == 2).then_some(())
    });
    let send = |scene: &mut Scene| {
        scene
            .client
            .batch_execute("SELECT mailroom_send('a@example.com', 'Hello', 'Text', transport => name) FROM mailroom_transports")
            .unwrap();
    };
    let mut sent = 0;
    eventually("the worker to know of the other", || {
        send(&mut scene);
        sent += 1;
        (scene.count("state = 'sent' AND transport = 'other'") > 0).then_some(())
    });
    for _ in 0..3 {
        send(&mut scene);
        sent += 1;
        // Long before the program polls.
        scene.wait_for("state = 'sent'", 2 * sent);
    }
    let kept = "claimed_by LIKE 'mailroom worker/%' = (transport = 'main')";
    assert_eq!(scene.count(kept), 2 * sent, "each has sent its own");
}
