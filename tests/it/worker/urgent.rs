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
