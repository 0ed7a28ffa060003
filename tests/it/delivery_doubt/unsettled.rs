//! Mail that was sent but cannot be settled.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{ambiguous, arrived, send, told};
use crate::cluster::{eventually, number};
use crate::post::Post;
use crate::receiver::{Receiver, status};

/// Adds a trigger that raises check_violation when a mail with this subject becomes `sent`.
fn refuse(post: &mut Post, subject: &str) {
    refuse_as(post, subject, "check_violation");
}

/// As [`refuse`], with an error of this name.
fn refuse_as(post: &mut Post, subject: &str, error: &str) {
    post.client
        .batch_execute(&format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE {error} USING MESSAGE = 'not this one'; END $$; \
             CREATE TRIGGER refuse AFTER UPDATE OF state ON outbox FOR EACH ROW \
             WHEN (NEW.state = 'sent' AND NEW.subject = '{subject}') EXECUTE FUNCTION refuse()"
        ))
        .unwrap();
}

/// Returns a gate, and a receiver that answers no request while the gate is locked.
fn gated() -> (Arc<Mutex<()>>, Receiver) {
    let gate = Arc::new(Mutex::new(()));
    let theirs = Arc::clone(&gate);
    let receiver = Receiver::start(move |_| {
        drop(theirs.lock());
        status(200)
    });
    (gate, receiver)
}

#[test]
fn a_mail_that_cannot_be_settled_is_sent_once_and_ends_one_day() {
    let (receiver, arrivals) = ambiguous();
    let mut post = Post::start(
        &receiver,
        &["mailroom.lease = '3s'", "mailroom.max_attempts = 3"],
    );
    refuse(&mut post, "fine");
    send(&mut post, &["fine", "another"]);
    post.wait_for("state = 'error' AND subject = 'fine'", 1);
    assert_eq!(
        told(&mut post, "fine"),
        ("error".to_owned(), 3, "lease expired".to_owned())
    );
    let lapsed = "SELECT count(*) FROM outbox_attempts a JOIN outbox o ON o.id = a.outbox_id \
                  WHERE a.outcome = 'lease_expired' AND o.subject = 'fine'";
    assert_eq!(number(&mut post.client, lapsed), 3);
    post.wait_for("state = 'sent' AND subject = 'another'", 1);
    assert_eq!(arrived(&arrivals, "fine"), 1, "it went out again");
    // The worker remembers that the mail was sent: after the trigger is gone, it settles the mail without sending it
    // again.
    post.client
        .batch_execute("DROP TRIGGER refuse ON outbox; SELECT mailroom_retry(id) FROM outbox WHERE subject = 'fine'")
        .unwrap();
    post.wait_for("state = 'sent' AND subject = 'fine'", 1);
    assert_eq!(arrived(&arrivals, "fine"), 1, "it went out again");
}

/// Triggers that read a dropped table or connect to another server raise these errors, which say nothing about the
/// database.
#[test]
fn what_a_trigger_raises_is_no_trouble_of_the_database() {
    for error in [
        "undefined_table",
        "sqlclient_unable_to_establish_sqlconnection",
    ] {
        let (receiver, arrivals) = ambiguous();
        let settings = ["mailroom.lease = '3s'", "mailroom.max_attempts = 1"];
        let mut post = Post::start(&receiver, &settings);
        refuse_as(&mut post, "fine", error);
        send(&mut post, &["fine"]);
        post.wait_for("state = 'claimed'", 1);
        send(&mut post, &["another", "yet another"]);
        post.wait_for("state = 'sent'", 2);
        post.wait_for("state = 'error' AND subject = 'fine'", 1);
        assert_eq!(arrived(&arrivals, "fine"), 1, "it went out again");
    }
}

/// If a row cannot be changed at all, only settling others shows that the database is not at fault.
#[test]
fn a_row_that_cannot_be_changed_is_given_up_once_others_are_settled() {
    let (receiver, arrivals) = ambiguous();
    let mut post = Post::start(&receiver, &["mailroom.lease = '1h'"]);
    post.client
        .batch_execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE undefined_table USING MESSAGE = 'not this one'; END $$; \
             CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW \
             WHEN (OLD.state = 'claimed' AND OLD.subject = 'fine') EXECUTE FUNCTION refuse()",
        )
        .unwrap();
    send(&mut post, &["fine"]);
    eventually("the failure", || {
        let log = post.log();
        log.contains("could not claim or settle mail").then_some(())
    });
    let mut others = 0;
    while !post.log().contains("could not settle 1 mails") {
        assert!(others < 100, "it is tried for ever");
        send(&mut post, &["another"]);
        others += 1;
        post.wait_for("state = 'sent'", others);
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_eq!(arrived(&arrivals, "fine"), 1, "it went out again");
    let again = post.log().matches("claims and settles mail again").count();
    assert!(again <= 1, "{again} series of failures have ended");
}

/// The worker retries a row that another session has locked until it is free, and waits for the lock only briefly each
/// time.
#[test]
fn a_row_that_is_locked_holds_up_no_other_and_is_settled_once_it_is_free() {
    let (gate, receiver) = gated();
    let closed = gate.lock().unwrap();
    let settings = ["transport.timeout = '10min'", "mailroom.lease = '1h'"];
    let mut post = Post::start(&receiver, &settings);
    post.send(10);
    eventually("all to be under way", || {
        (receiver.open() == 10).then_some(())
    });
    let mut other = post.cluster.connect("app");
    other
        .batch_execute("BEGIN; SELECT FROM outbox WHERE subject = 'Hello 3' FOR UPDATE")
        .unwrap();
    drop(closed);
    post.wait_for("state = 'sent'", 9);
    post.send(20);
    post.wait_for("state = 'sent'", 29);
    let waited = format!(
        "SELECT count(*) FROM pg_locks WHERE pid = {} AND NOT granted",
        post.backend()
    );
    // More often than the five tries of a mail that is refused for another reason.
    let (mut tries, mut is_waiting) = (0, false);
    eventually("it to be tried ten times more", || {
        let waits = number(&mut post.client, &waited) > 0;
        tries += u32::from(waits && !is_waiting);
        is_waiting = waits;
        (tries >= 10).then_some(())
    });
    assert_eq!(
        post.log().matches("could not claim or settle mail").count(),
        1
    );
    assert!(!post.log().contains("whose claims will lapse"));
    let waits = (0..100)
        .filter(|_| {
            std::thread::sleep(Duration::from_millis(20));
            number(&mut post.client, &waited) > 0
        })
        .count();
    assert!(
        waits < 50,
        "it waits most of the time: {waits} of 100 looks"
    );
    other.batch_execute("COMMIT").unwrap();
    post.wait_for("state = 'sent'", 30);
    assert_eq!(receiver.count(), 30, "something went out again");
}

#[test]
fn at_the_end_of_the_worker_it_spoils_no_other() {
    let (gate, receiver) = gated();
    let closed = gate.lock().unwrap();
    let settings = ["transport.timeout = '10min'", "mailroom.lease = '1h'"];
    let mut post = Post::start(&receiver, &settings);
    refuse(&mut post, "Hello 3");
    post.send(10);
    eventually("all to be under way", || {
        (receiver.open() == 10).then_some(())
    });
    // The worker is told to stop when it has the responses and cannot settle any mail.
    let worker = post.worker();
    let mut other = post.cluster.connect("app");
    other
        .batch_execute("BEGIN; LOCK TABLE outbox IN SHARE ROW EXCLUSIVE MODE")
        .unwrap();
    drop(closed);
    let backend = post.backend();
    let waits = format!("SELECT count(*) FROM pg_locks WHERE pid = {backend} AND NOT granted");
    eventually("the worker to have all answers and to wait", || {
        (receiver.count() == 10 && number(&mut post.client, &waits) == 1).then_some(())
    });
    crate::cluster::signal("TERM", worker);
    other.batch_execute("COMMIT").unwrap();
    post.another_worker(worker);
    // The claims of settled mails do not expire. A response that came too late is settled as a failed attempt.
    post.wait_for("state = 'sent'", 9);
    let lapsed = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'lease_expired'";
    let lapsed = number(&mut post.client, lapsed);
    assert!(lapsed <= 1, "{lapsed} claims lapsed");
}
