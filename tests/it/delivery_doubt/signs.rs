//! Answers of success that are not the provider's, and a known idempotency key.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::cluster::eventually;

/// Mailgun's answer to any path that it does not know.
const WRONG_PATH: &str = "Mailgun Magnificent API";
const ACCEPTED: &str = r#"{"id": "<1@example.com>", "message": "Queued. Thank you."}"#;

/// Answers with 200 and this body, and records the subject, one word, that the form of Mailgun contains.
fn as_mailgun(
    arrivals: &Arrivals,
    body: &'static str,
) -> impl Fn(&Request) -> Reaction + Send + Sync + 'static {
    let arrivals = Arc::clone(arrivals);
    move |request| {
        let subject = request.body.split("&subject=").nth(1).unwrap();
        let subject = subject.split('&').next().unwrap().to_owned();
        *arrivals.lock().unwrap().entry(subject).or_default() += 1;
        Reaction::Answer(200, String::new(), body.to_owned())
    }
}

fn subjects(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("mail{n}")).collect()
}

fn copied(arrivals: &Arrivals) -> usize {
    let arrivals = arrivals.lock().unwrap();
    arrivals.values().filter(|count| **count > 1).count()
}

#[test]
fn a_server_that_is_not_the_provider_takes_no_mail() {
    let arrivals = Arrivals::default();
    let receiver = Receiver::start(as_mailgun(&arrivals, WRONG_PATH));
    let mut post = by("mailgun", &receiver, &[]);
    let all = subjects(30);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    send(&mut post, &all);
    eventually("four probes", || (receiver.requests() >= 5).then_some(()));
    assert_eq!(post.count("state IN ('sent', 'error')"), 0);
    assert_eq!(post.count("failed_attempts > 0"), 0);
    assert_eq!(arrivals.lock().unwrap().len(), 1, "one mail is repeated");
    let query = "SELECT state::text, reason FROM mailroom_transports WHERE name = 'main'";
    let row = post.client.query_one(query, &[]).unwrap();
    let (state, reason): (String, String) = (row.get(0), row.get(1));
    assert_eq!(state, "paused");
    assert!(
        reason.contains("http 200") && reason.ends_with("the endpoint does not take mail"),
        "{reason}"
    );
    assert!(!post.log().contains(WRONG_PATH), "a body was logged");

    receiver.react(as_mailgun(&arrivals, ACCEPTED));
    post.hurry_until_ended(30);
    assert_eq!(
        post.count("state = 'sent' AND provider_id = '1@example.com'"),
        30
    );
    assert_eq!(post.count("failed_attempts > 0"), 0);
    assert_eq!(copied(&arrivals), 1);
}

#[test]
fn after_a_success_such_an_answer_leaves_its_mail_ambiguous() {
    let arrivals = Arrivals::default();
    let receiver = Receiver::start(as_mailgun(&arrivals, ACCEPTED));
    let settings = ["transport.max_ambiguous = 0", "transport.concurrency = 1"];
    let mut post = by("mailgun", &receiver, &settings);
    send(&mut post, &["first"]);
    post.wait_for("state = 'sent'", 1);
    receiver.react(as_mailgun(&arrivals, WRONG_PATH));
    send(&mut post, &["second", "third", "fourth"]);
    eventually("two probes", || (receiver.requests() >= 4).then_some(()));
    // One may have been sent, and may not be repeated; one of the others is that of the probes.
    assert_eq!(post.count("state = 'error' AND ambiguous_attempts = 1"), 1);
    assert_eq!(post.count("ended_at IS NULL AND failed_attempts = 0"), 2);
    receiver.react(as_mailgun(&arrivals, ACCEPTED));
    post.hurry_until_ended(4);
    assert_eq!(post.count("state = 'sent'"), 3);
    assert_eq!(copied(&arrivals), 1);
}

/// Resend's answer to a request whose key it knows from one with other contents.
fn used(_: &Request) -> Reaction {
    let body =
        r#"{"statusCode": 409, "name": "invalid_idempotent_request", "message": "Other payload"}"#;
    Reaction::Answer(409, String::new(), body.to_owned())
}

#[test]
fn a_known_key_is_of_this_mail_only_if_an_attempt_of_it_may_have_arrived() {
    let receiver = Receiver::start(used);
    let mut post = by("resend", &receiver, &[]);
    send(&mut post, &["foreign"]);
    post.wait_until_ended(1);
    let (state, attempts, error) = told(&mut post, "foreign");
    assert_eq!((state.as_str(), attempts), ("error", 1));
    let why =
        "http 409 invalid_idempotent_request: its idempotency key was used for another message";
    assert_eq!(error, why);

    // The worker is killed between the request and its answer.
    receiver.react(|_| Reaction::Hang);
    send(&mut post, &["killed"]);
    eventually("mail in flight", || (receiver.open() == 1).then_some(()));
    receiver.react(used);
    post.kill();
    post.hurry_until_ended(2);
    let (state, attempts, error) = told(&mut post, "killed");
    assert_eq!((state.as_str(), attempts), ("sent", 1), "{error}");

    // The answer was lost.
    let requests = AtomicUsize::new(0);
    receiver.react(
        move |request| match requests.fetch_add(1, Ordering::Relaxed) {
            0 => Reaction::Close,
            _ => used(request),
        },
    );
    send(&mut post, &["lost"]);
    post.hurry_until_ended(3);
    assert_eq!(told(&mut post, "lost").0, "sent");
}

/// Two databases with the same mail, as after a copy of test data.
// needs: worker
#[test]
fn the_key_differs_between_databases_and_not_between_attempts() {
    let keys = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&keys);
    let receiver = Receiver::start(move |request| {
        let mut keys = seen.lock().unwrap();
        keys.push(request.headers["idempotency-key"].clone());
        match keys.len() {
            1 => status(503),
            _ => Reaction::Answer(200, String::new(), r#"{"id": "1"}"#.to_owned()),
        }
    });
    let mut post = by("resend", &receiver, &[]);
    let insert = "INSERT INTO outbox (message_id, kind, recipients, subject, body_text) \
         VALUES ('6c84fb90-12c4-11e1-840d-7b25c5ee775a', 'own', '{a@example.com}', 'Hello', 'Text'); \
         SELECT _mail_due(now(), false, false)";
    post.client.batch_execute(insert).unwrap();
    post.hurry_until_ended(1);
    let created = "SELECT extract(epoch FROM created_at)::text FROM outbox";
    let created: String = post.client.query_one(created, &[]).unwrap().get(0);
    let mut other = post.cluster.create_database("other");
    other
        .batch_execute("ALTER DATABASE other SET mailroom.transport = 'main'")
        .unwrap();
    let mut other = post.cluster.connect("other");
    other.batch_execute(insert).unwrap();
    eventually("the mail of the other database", || {
        (keys.lock().unwrap().len() == 3).then_some(())
    });
    let keys = keys.lock().unwrap();
    assert_eq!(
        keys[0],
        format!("6c84fb90-12c4-11e1-840d-7b25c5ee775a-1-{created}")
    );
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0], keys[2]);
}
