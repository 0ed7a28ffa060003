//! A batch that may have been accepted is repeated with exactly the same mails.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::by;
use crate::cluster::eventually;
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, Request, status};

/// Accepts a request with the response that Resend would send.
fn accept_as_resend(request: &Request) -> Reaction {
    let body = if request.path.ends_with("/batch") {
        let mails = request.body.matches("\"subject\"").count();
        serde_json::json!({"data": vec![serde_json::json!({"id": "1"}); mails]})
    } else {
        serde_json::json!({"id": "1"})
    };
    Reaction::Answer(200, String::new(), body.to_string())
}

fn send_many(post: &mut Post, subject: &str, count: i64, size: i32, priority: i32) {
    post.client
        .execute(
            "SELECT count(mailroom_send('a@example.com', $1 || i, repeat('x', $3), priority => $4)) \
             FROM generate_series(1, $2::bigint) i",
            &[&subject, &count, &size, &priority],
        )
        .unwrap();
}

/// Sends one mail, and when it was accepted, fifty mails in one request, the second that the receiver gets.
fn send_together(post: &mut Post, receiver: &Receiver) {
    send_many(post, "hello ", 1, 1, 0);
    eventually("the transport to be open", || {
        (receiver.count() == 1).then_some(())
    });
    send_many(post, "first ", 50, 1, 0);
    eventually("the first mails to arrive", || {
        (receiver.requests() >= 2).then_some(())
    });
}

/// The idempotency keys of the requests that contain the first of the fifty mails.
#[derive(Clone, Default)]
struct Keys(Arc<Mutex<Vec<String>>>);

impl Keys {
    /// Records a request with that mail and returns its number, from 1; `None` for any other request.
    fn note(&self, request: &Request) -> Option<usize> {
        let mut keys = self.0.lock().unwrap();
        if !request.says("\"first 1\"") {
            return None;
        }
        keys.push(request.headers["idempotency-key"].clone());
        Some(keys.len())
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn are_one(&self) -> bool {
        self.0
            .lock()
            .unwrap()
            .windows(2)
            .all(|two| two[0] == two[1])
    }
}

#[test]
fn mails_that_may_have_arrived_together_stay_together_whatever_the_answers_are() {
    let keys = Keys::default();
    let seen = keys.clone();
    let receiver = Receiver::start(move |request| match seen.note(request) {
        Some(1) => Reaction::Close,
        Some(2) => Reaction::Answer(429, "retry-after: 1\r\n".to_owned(), String::new()),
        Some(3) => status(401),
        Some(4) => status(503),
        _ => accept_as_resend(request),
    });
    let mut post = by("resend", &receiver, &[]);
    send_together(&mut post, &receiver);
    post.wait_until_ended(51);
    // A connection that closes after the request, and 503, count as attempts; 429 and 401 do not.
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 2"), 50);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 1);
    assert_eq!((keys.count(), keys.are_one()), (5, true));
}

#[test]
fn a_probe_repeats_an_ambiguous_batch_when_the_queue_is_empty() {
    let keys = Keys::default();
    let seen = keys.clone();
    let receiver = Receiver::start(move |request| match seen.note(request) {
        Some(_) => status(500),
        None => accept_as_resend(request),
    });
    let mut post = by("resend", &receiver, &[]);
    send_together(&mut post, &receiver);
    // The endpoint's network is no longer allowed, so nothing is sent.
    post.set("transport.allowed_networks", "10.0.0.0/8");
    post.wait_for_status("transport_state", "paused");
    let seen = keys.clone();
    receiver.react(move |request| {
        seen.note(request);
        accept_as_resend(request)
    });
    post.set("transport.allowed_networks", "127.0.0.1");
    post.wait_until_ended(51);
    assert_eq!(post.count("state = 'sent'"), 51);
    assert!(keys.are_one());
}

#[test]
fn a_mail_that_may_have_arrived_alone_goes_alone_again() {
    let keys = Keys::default();
    let seen = keys.clone();
    let receiver = Receiver::start(move |request| match seen.note(request) {
        Some(1) => Reaction::Close,
        Some(2) => status(503),
        _ => accept_as_resend(request),
    });
    let mut post = by("resend", &receiver, &[]);
    send_many(&mut post, "hello ", 1, 1, 0);
    post.wait_until_ended(1);
    send_many(&mut post, "first ", 1, 1, 0);
    post.wait_for("subject = 'first 1' AND failed_attempts >= 1", 1);
    post.client
        .batch_execute(
            "UPDATE outbox SET send_at = now() WHERE state = 'scheduled'; SELECT mailroom_wake_worker()",
        )
        .unwrap();
    post.wait_for("subject = 'first 1' AND failed_attempts >= 2", 1);
    // The mail is claimed together with others.
    post.client
        .batch_execute(
            "BEGIN; UPDATE outbox SET send_at = now() WHERE subject = 'first 1' AND ended_at IS NULL; \
             SELECT mailroom_send('a@example.com', 'other ' || i, 'Text') FROM generate_series(1, 20) i; COMMIT",
        )
        .unwrap();
    post.wait_until_ended(22);
    assert_eq!(post.count("state = 'sent'"), 22);
    assert_eq!((keys.count(), keys.are_one()), (3, true));
}

/// Sends a mail that was scheduled three days ago to Resend, which may have accepted it in each attempt, but never answers.
fn send_scheduled_long_ago(keys: &Keys, before: &str) -> (Receiver, Post) {
    let seen = keys.clone();
    let receiver = Receiver::start(move |request| match seen.note(request) {
        Some(_) => Reaction::Close,
        None => accept_as_resend(request),
    });
    let mut post = by("resend", &receiver, &[]);
    post.client.batch_execute(before).unwrap();
    post.client
        .batch_execute(
            "BEGIN; SELECT mailroom_send('a@example.com', 'first 1', 'Text'); \
             UPDATE outbox SET created_at = now() - interval '3 days'; COMMIT",
        )
        .unwrap();
    (receiver, post)
}

fn wait_for_attempt(post: &mut Post, attempt: i32) {
    post.wait_for(&format!("failed_attempts >= {attempt}"), 1);
    post.client
        .batch_execute(
            "UPDATE outbox SET send_at = now() WHERE state = 'scheduled'; SELECT mailroom_wake_worker()",
        )
        .unwrap();
}

#[test]
fn the_day_for_which_resend_knows_a_request_begins_with_its_first_attempt() {
    let keys = Keys::default();
    let (receiver, mut post) = send_scheduled_long_ago(&keys, "");
    for attempt in 1..=4 {
        wait_for_attempt(&mut post, attempt);
    }
    receiver.react(accept_as_resend);
    post.wait_until_ended(1);
    assert_eq!(post.count("state = 'sent' AND ambiguous_attempts >= 4"), 1);
    assert!(keys.are_one());
}

#[test]
fn what_resend_may_have_forgotten_is_not_repeated_more_often_than_with_others() {
    // A day ago, or so long ago that the attempt was purged.
    for body in [
        "NEW.started_at := NEW.started_at - interval '25 h'; RETURN NEW",
        "RETURN NULL",
    ] {
        forget_first_attempt(body);
    }
}

fn forget_first_attempt(body: &str) {
    let keys = Keys::default();
    let trigger = format!(
        "CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body}; END$$; \
         CREATE TRIGGER change BEFORE INSERT ON outbox_attempts FOR EACH ROW EXECUTE FUNCTION change()"
    );
    let (_receiver, mut post) = send_scheduled_long_ago(&keys, &trigger);
    wait_for_attempt(&mut post, 1);
    post.wait_until_ended(1);
    assert_eq!(post.count("state = 'error' AND ambiguous_attempts = 2"), 1);
    assert_eq!(keys.count(), 2);
}

#[test]
fn what_may_have_arrived_at_one_provider_is_not_sent_again_by_another() {
    let keys = Keys::default();
    let seen = keys.clone();
    let receiver = Receiver::start(move |request| match seen.note(request) {
        Some(_) => Reaction::Close,
        None => accept_as_resend(request),
    });
    let mut post = by("resend", &receiver, &["transport.max_ambiguous = 0"]);
    send_together(&mut post, &receiver);
    receiver.react(|_| status(200));
    for key in ["api_key", "from"] {
        post.transports.remove(key);
    }
    post.transports.put_lines(crate::post::SECRET);
    post.set("transport.provider", "webhook");
    crate::cluster::eventually("the worker to have read it", || {
        let told = "SELECT count(*) FROM mailroom_transports WHERE provider = 'webhook'";
        (crate::cluster::number(&mut post.client, told) == 1).then_some(())
    });
    send_many(&mut post, "other ", 1, 1, 0);
    post.wait_until_ended(52);
    // The number of attempts at the first provider, at least two, depends on when the worker takes up the second.
    let parked = "subject LIKE 'first %' AND state = 'error' AND ambiguous_attempts >= 2 AND NOT ambiguous_alone";
    assert_eq!(post.count(parked), 50);
    assert_eq!(post.count("state = 'sent'"), 2);
}

/// Resend recognizes a repeated batch only if it contains exactly the same mails.
#[test]
fn an_ambiguous_batch_stays_together_when_the_provider_throttles() {
    let keys = Keys::default();
    let seen = keys.clone();
    let receiver = Receiver::start(move |request| match seen.note(request) {
        Some(1) => status(500),
        Some(2) => Reaction::Answer(429, "retry-after: 6\r\n".to_owned(), String::new()),
        _ => accept_as_resend(request),
    });
    let mut post = by("resend", &receiver, &[]);
    send_together(&mut post, &receiver);
    post.wait_for_status("transport_state", "throttled");
    // Due mail that may not be sent does not keep the worker busy. There is no condition to wait for: the test asserts
    // that the worker does little.
    let spent = post.transactions_within(Duration::from_secs(3));
    assert!(spent <= 15, "{spent} transactions in 3 s of waiting");
    post.wait_until_ended(51);
    assert_eq!(post.count("state = 'sent'"), 51);
    assert_eq!((keys.count(), keys.are_one()), (3, true));
}
