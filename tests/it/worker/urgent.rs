//! Urgent messages of applications while a transport is paused.

use std::time::{Duration, Instant};

use crate::cluster::eventually;
use crate::post::Post;
use crate::receiver::{Receiver, status};

#[test]
fn an_urgent_message_has_a_paused_transport_tried_at_once() {
    let receiver = Receiver::start(|_| status(503));
    let mut post = Post::start(&receiver, &[]);
    post.load(20);
    post.wait_for_status("transport_state", "paused");
    // Waits for a pause that is long enough for the messages below.
    let wait = "SELECT extract(epoch FROM next_probe_at - clock_timestamp())::float8 FROM mailroom_status()";
    eventually("a long pause", || {
        let wait: Option<f64> = post.client.query_one(wait, &[]).unwrap().get(0);
        wait.filter(|wait| *wait > 12.0)
    });
    receiver.react(|_| status(200));
    let began = Instant::now();
    post.client
        .batch_execute("SELECT mailroom_send('a@example.com', 'Ordinary', 'Text')")
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(post.count("state = 'sent'"), 0);
    post.client
        .batch_execute("SELECT mailroom_send('a@example.com', 'Urgent', 'Text', priority => -10)")
        .unwrap();
    post.wait_for("subject = 'Urgent' AND state = 'sent'", 1);
    // Before the next probe, which is due later.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(11), "after {took:?}");
}

/// Tokens cannot be collected because a session has locked `accounts`, and the worker backs off. Mail without a token goes out
/// meanwhile.
#[test]
fn mail_does_not_wait_until_the_worker_collects_again() {
    let receiver = Receiver::start(|_| status(200));
    // Long enough to lock the table before the token is collected.
    let mut post = Post::start(&receiver, &["mailroom.batch_timeout = '3s'"]);
    let mut other = post.cluster.connect("app");
    post.client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('b@example.com', 'b')")
        .unwrap();
    other
        .batch_execute("BEGIN; LOCK TABLE accounts IN ACCESS EXCLUSIVE MODE")
        .unwrap();
    let wait = "SELECT CASE WHEN next_wake_for LIKE '%failure%' THEN extract(epoch FROM next_wake_at - clock_timestamp())::float8 END \
                FROM mailroom_status()";
    let left = eventually("a long back-off", || {
        let left: Option<f64> = post.client.query_one(wait, &[]).unwrap().get(0);
        left.filter(|left| *left > 12.0)
    });
    let began = Instant::now();
    post.client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'Now', 'Text'); \
             SELECT mailroom_send('a@example.com', 'Soon', 'Text', send_at => clock_timestamp() + interval '1 s')",
        )
        .unwrap();
    post.wait_for("state = 'sent'", 2);
    let took = began.elapsed().as_secs_f64();
    assert!(
        took < left / 2.0,
        "after {took} s, before an attempt in {left} s"
    );
    other.batch_execute("ROLLBACK").unwrap();
}
