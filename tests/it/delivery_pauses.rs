//! Pauses, throttling and settings: responses that concern all mail, and commands of the operator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::cluster::{eventually, number};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, status};

#[test]
fn a_broken_transport_keeps_mail_and_attempts_and_recovers() {
    let receiver = Receiver::start(|_| status(410));
    // Few at a time, so that few requests are in flight when the transport is paused.
    let mut post = Post::start(&receiver, &["transport.concurrency = 4"]);
    post.send(100);
    post.wait_for_status("transport_state", "paused");
    post.wait_for_status("transport_reason", "http 410");
    post.wait_for("state = 'scheduled' AND failed_attempts = 0", 100);
    let probed = receiver.requests();
    assert!(
        probed < 100,
        "{probed} requests to a transport that is broken"
    );
    assert!(!post.status("next_probe_at").is_empty());
    receiver.react(|_| status(200));
    post.wait_until_ended(100);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 100);
    post.wait_for_status("transport_state", "healthy");
    let log = post.log();
    assert_eq!(
        log.matches("transport \"main\" paused: http 410").count(),
        1,
        "{log}"
    );
    assert_eq!(
        log.matches("transport \"main\" resumed after").count(),
        1,
        "{log}"
    );
}

/// The file is read before each probe, perhaps while it is being written.
#[test]
fn a_file_before_a_probe_removes_no_transport() {
    let receiver = Receiver::start(|_| status(410));
    let mut post = Post::start(&receiver, &["transport.concurrency = 4"]);
    post.send(10);
    post.wait_for_status("transport_state", "paused");
    let file = post.cluster.data().join(crate::cluster::transports::FILE);
    let before = std::fs::read(&file).unwrap();
    for beginning in ["", "[transports.log]\nprovider = \"log\"\n"] {
        std::fs::write(&file, beginning).unwrap();
        let probed = receiver.requests();
        eventually("another probe", || {
            (receiver.requests() > probed + 1).then_some(())
        });
    }
    receiver.react(|_| status(200));
    post.wait_until_ended(10);
    std::fs::write(&file, before).unwrap();
    assert_eq!(post.count("state = 'sent'"), 10);
}

#[test]
fn a_broken_transport_is_known_when_no_more_mail_may_be_claimed() {
    let receiver = Receiver::start(|_| status(410));
    // At this rate the worker holds two mails at most, and both are refused.
    let mut post = Post::start(&receiver, &["transport.rate = 2 messages/s"]);
    post.send(2);
    post.wait_for_status("transport_reason", "http 410");
    receiver.react(|_| status(200));
    post.wait_until_ended(2);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 2);
}

#[test]
fn one_mail_that_is_refused_pauses_no_transport_that_has_more_to_send() {
    let receiver =
        Receiver::start(|request| status(if request.says("poison") { 410 } else { 200 }));
    let settings = ["transport.rate = 2 messages/s", "mailroom.max_attempts = 1"];
    let mut post = Post::start(&receiver, &settings);
    post.client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', subject, 'Text', priority => place::integer) \
             FROM unnest('{poison, one, two, three}'::text[]) WITH ORDINALITY subjects(subject, place)",
        )
        .unwrap();
    post.wait_until_ended(4);
    assert_eq!(post.count("state = 'sent'"), 3);
    assert_eq!(post.count("subject = 'poison' AND failed_attempts = 1"), 1);
    let log = post.log();
    assert!(!log.contains("\" paused: "), "{log}");
}

#[test]
fn a_pause_gives_back_what_is_in_doubt() {
    let receiver = Receiver::start(|request| {
        if request.says("refused") {
            status(410)
        } else {
            Reaction::Hang
        }
    });
    let mut post = Post::start(&receiver, &[]);
    post.client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', subject, 'Text') FROM unnest('{refused, silent}'::text[]) subject",
        )
        .unwrap();
    eventually("both requests", || (receiver.requests() == 2).then_some(()));
    // The request without a response may still succeed.
    assert_eq!(post.count("state = 'claimed'"), 2);
    post.client
        .batch_execute("SELECT mailroom_pause()")
        .unwrap();
    post.wait_for(
        "subject = 'refused' AND state = 'scheduled' AND failed_attempts = 0",
        1,
    );
    assert_eq!(post.count("subject = 'silent' AND state = 'claimed'"), 1);
}

#[test]
fn one_mail_that_is_refused_does_not_stop_the_others() {
    let receiver =
        Receiver::start(|request| status(if request.says("poison") { 410 } else { 200 }));
    let mut post = Post::start(&receiver, &[]);
    // This mail goes first, and is refused before there is any other.
    post.client
        .batch_execute("SELECT mailroom_send('p@example.com', 'poison', 'Text', priority => -5)")
        .unwrap();
    post.wait_for_status("transport_state", "paused");
    post.send(50);
    post.wait_for("state = 'sent'", 50);
    // Since others were accepted, the refused mail is known to be at fault.
    post.wait_for("state = 'scheduled' AND failed_attempts > 0", 1);
    post.send(50);
    post.wait_for("state = 'sent'", 100);
}

#[test]
fn an_endpoint_that_is_away_costs_few_attempts() {
    let receiver = Receiver::start(|_| status(200));
    let endpoint = receiver.endpoint();
    let address = receiver.address;
    drop(receiver);
    // The listener ends with the next connection, which `drop` made.
    eventually("the port to be closed", || {
        std::net::TcpStream::connect(address).err().map(drop)
    });
    let mut post = Post::start_at(&endpoint, &[]);
    post.send(200);
    post.wait_for_status("transport_reason", "no connection");
    // Mails that failed before the pause have one attempt each.
    post.wait_for("state = 'scheduled'", 200);
    assert!(post.count("failed_attempts > 0") < 100);
    assert_eq!(post.count("failed_attempts > 1"), 0);
}

#[test]
fn throttling_slows_the_transport_and_costs_no_attempt() {
    let begin = Arc::new(std::sync::Mutex::new(None));
    let first = Arc::clone(&begin);
    let receiver = Receiver::start(move |_| {
        let mut first = first.lock().unwrap();
        let since = first.get_or_insert_with(Instant::now).elapsed();
        if since < Duration::from_millis(1500) {
            Reaction::Answer(429, "retry-after: 2\r\n".to_owned(), String::new())
        } else {
            status(200)
        }
    });
    let mut post = Post::start(&receiver, &["transport.concurrency = 8"]);
    post.send(300);
    post.wait_until_ended(300);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 300);
    // Some requests were in flight when the first was throttled. No other was sent before the time that the response
    // named.
    assert!(
        receiver.requests() < 300 + 100,
        "{} requests",
        receiver.requests()
    );
    assert!(begin.lock().unwrap().unwrap().elapsed() >= Duration::from_secs(2));
}

/// Most prepared transactions have nothing to do with mail.
#[test]
fn a_prepared_transaction_does_not_end_throttling() {
    let receiver = Receiver::start(|_| {
        Reaction::Answer(429, "retry-after: 3600\r\n".to_owned(), String::new())
    });
    let settings = ["max_prepared_transactions = 2", "mailroom.batch_limit = 1"];
    let mut post = Post::start(&receiver, &settings);
    post.send(1);
    post.wait_for_status("transport_state", "throttled");
    post.wait_for("state = 'scheduled'", 1);
    let requests = receiver.requests();
    post.client
        .batch_execute("BEGIN; INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'); PREPARE TRANSACTION 'p'")
        .unwrap();
    post.client.batch_execute("COMMIT PREPARED 'p'").unwrap();
    post.wait_for("kind = 'activation'", 1);
    // There is no condition to wait for: the test asserts that nothing is sent.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(receiver.requests(), requests, "it was tried again");
    assert_eq!(post.status("transport_state"), "throttled");
}

#[test]
fn what_is_not_public_is_not_dialled_unless_it_is_listed() {
    let receiver = Receiver::start(|_| status(200));
    let port = receiver.address.port();
    let endpoint = format!("https://localhost:{port}/");
    let mut post = Post::start_at(&endpoint, &["transport.allowed_networks = "]);
    post.send(2);
    post.wait_for_status("transport_reason", "is not public");
    assert_eq!(receiver.connections(), 0);
    post.wait_for("state = 'scheduled' AND failed_attempts = 0", 2);
    // Plain HTTP is possible only to a loopback address that is listed.
    post.set("transport.endpoint", &format!("http://127.0.0.1:{port}/"));
    post.wait_for_status("transport_reason", "is not public");
    post.set("transport.allowed_networks", "10.0.0.0/8");
    post.wait_for_status("transport_reason", "is not public");
    post.set("transport.allowed_networks", "127.0.0.1");
    post.wait_until_ended(2);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 2);
    // A file with an invalid network is refused, and changes nothing.
    post.set("transport.allowed_networks", "localhost");
    post.wait_for_status("transports_error", "allowed_networks");
    post.send(1);
    post.wait_until_ended(3);
}

#[test]
fn settings_take_effect_without_a_restart_and_lose_nothing() {
    // The first receiver answers only after the endpoint was changed. The second gets the mail that is not in flight by
    // then.
    let gate = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&gate);
    let first = Receiver::start(move |_| {
        while !open.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
        status(200)
    });
    let second = Receiver::start(|_| status(200));
    let settings = ["transport.concurrency = 2", "transport.timeout = '60s'"];
    let mut post = Post::start(&first, &settings);
    let worker = post.worker();
    post.send(200);
    eventually("mail under way", || (first.open() >= 2).then_some(()));
    post.set("transport.endpoint", &second.endpoint());
    gate.store(true, Ordering::Release);
    eventually("mail at the second", || (second.count() > 0).then_some(()));
    post.wait_until_ended(200);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 200);
    let mut all = first.accepted();
    all.extend(second.accepted());
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 200);
    assert_eq!(first.count() + second.count(), 200, "nothing twice");
    // An invalid file changes nothing. Without a transport, clients can claim the mail.
    post.set("transport.secret", "nonsense");
    post.wait_for_status("transports_error", "secret");
    assert!(!post.log().contains("nonsense"));
    post.send(1);
    post.wait_until_ended(201);
    post.transports.put_lines(crate::post::SECRET);
    post.set("transport.concurrency", "3");
    crate::cluster::eventually("the error to go", || {
        post.status("transports_error").is_empty().then_some(())
    });
    post.set("mailroom.transport", "");
    post.set("mailroom.transports_file", "");
    crate::cluster::eventually("no transport", || {
        let told = "SELECT count(*) FROM mailroom_transports";
        (number(&mut post.client, told) == 0).then_some(())
    });
    post.send(1);
    let claimed = number(&mut post.client, "SELECT count(*) FROM mailroom_claim()");
    assert_eq!(claimed, 1);
    assert_eq!(post.worker(), worker);
}

#[test]
fn a_pause_stops_claims_and_settles_what_is_under_way() {
    let gate = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&gate);
    let receiver = Receiver::start(move |_| {
        while !open.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
        status(200)
    });
    let mut post = Post::start(
        &receiver,
        &["transport.concurrency = 5", "transport.timeout = '60s'"],
    );
    post.send(400);
    eventually("five under way", || (receiver.open() >= 5).then_some(()));
    post.client
        .batch_execute("SELECT mailroom_pause()")
        .unwrap();
    // Requests in flight keep their claims. All other mail is released, without an attempt.
    eventually("the rest to go back", || {
        let held = post.count("state = 'claimed'");
        (held < 400 && held == receiver.open() as i64).then_some(())
    });
    gate.store(true, Ordering::Release);
    post.wait_for("state = 'scheduled' OR state = 'sent'", 400);
    let sent = post.count("state = 'sent'");
    assert!((5..400).contains(&sent), "{sent} were sent");
    assert_eq!(post.count("failed_attempts > 0"), 0);
    post.client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    post.wait_until_ended(400);
    assert_eq!(receiver.count(), 400);
}

#[test]
fn what_may_have_been_sent_is_counted_and_tried_again() {
    let receiver = Receiver::start(|request| {
        if request.attempt == 1 {
            Reaction::Close
        } else {
            status(200)
        }
    });
    let mut post = Post::start(&receiver, &["transport.max_ambiguous = 0"]);
    // A receiver of webhooks recognizes a repeated message, so it is retried in spite of max_ambiguous = 0.
    post.send(3);
    post.hurry_until_ended(3);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 1"), 3);
    post.wait_for_status("ambiguous", "3");
    let told = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'ambiguous'";
    assert_eq!(number(&mut post.client, told), 3);
}

// needs: worker
#[test]
fn a_pause_keeps_mail_in_from_its_commit_on() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &["mailroom.batch_limit = 1"]);
    let worker = post.worker();
    // The worker is held up in a batch, after which it delivers before it reads the queue again.
    let mut other = post.cluster.connect("app");
    other
        .batch_execute("BEGIN; LOCK TABLE job_runs IN SHARE ROW EXCLUSIVE MODE")
        .unwrap();
    post.client
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('a@example.com', 'a'), ('b@example.com', 'b')",
        )
        .unwrap();
    let blocked = format!("SELECT count(*) FROM pg_locks WHERE pid = {worker} AND NOT granted");
    eventually("the worker to be at it", || {
        (number(&mut post.client, &blocked) == 1).then_some(())
    });
    post.client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'Hello ' || i, 'Text') FROM generate_series(1, 3) i; \
             SELECT mailroom_pause()",
        )
        .unwrap();
    other.batch_execute("COMMIT").unwrap();
    post.wait_for_status("next_wake_for", "paused");
    assert_eq!(receiver.requests(), 0, "mail went out after the pause");
    assert_eq!(
        post.count("state <> 'scheduled' OR claimed_at IS NOT NULL"),
        0
    );
    post.client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    post.wait_for("state = 'sent'", 5);
}
