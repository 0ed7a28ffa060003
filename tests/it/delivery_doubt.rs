//! Mail of which nobody knows whether it was sent, or of which it cannot be told: what becomes of it, and what a
//! person sees of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cluster::{eventually, number};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, Request, status};

/// A key as SendGrid and Resend have them.
const API_KEY: &str = "transport.api_key = SG.0123456789abcdef";
const FROM: &str = "transport.from = noreply@example.com";

/// How often each subject arrived.
type Arrivals = Arc<Mutex<HashMap<String, usize>>>;

/// A receiver that takes in every request, then breaks off, says nothing, or accepts, by the subject.
fn ambiguous() -> (Receiver, Arrivals) {
    let arrivals = Arrivals::default();
    let seen = Arc::clone(&arrivals);
    let receiver = Receiver::start(move |request| {
        let subject = subject(request);
        *seen.lock().unwrap().entry(subject.clone()).or_default() += 1;
        match subject.as_str() {
            "reset" => Reaction::Close,
            "silent" => Reaction::Hang,
            _ => status(202),
        }
    });
    (receiver, arrivals)
}

/// From then on all is well.
fn appease(receiver: &Receiver, arrivals: &Arrivals) {
    let seen = Arc::clone(arrivals);
    receiver.react(move |request| {
        *seen.lock().unwrap().entry(subject(request)).or_default() += 1;
        status(202)
    });
}

/// Of webhooks as of SendGrid, whose bodies both have it as a JSON string.
fn subject(request: &Request) -> String {
    let rest = request.body.split("\"subject\":\"").nth(1).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

fn arrived(arrivals: &Arrivals, subject: &str) -> usize {
    arrivals.lock().unwrap().get(subject).copied().unwrap_or(0)
}

/// A worker that delivers by SendGrid, which does not know a request again, to this receiver.
fn by_sendgrid(receiver: &Receiver, settings: &[&str]) -> Post {
    by("sendgrid", receiver, settings)
}

/// A worker that delivers by the API of this provider, with a key as SendGrid's and Resend's.
fn by(provider: &str, receiver: &Receiver, settings: &[&str]) -> Post {
    let provider = format!("transport.provider = {provider}");
    let mut all = vec![provider.as_str(), FROM, API_KEY];
    // Long enough for a quick answer on a busy machine.
    all.push("transport.timeout = 20 s");
    all.extend(settings);
    let endpoint = format!("http://{}", receiver.address);
    Post::start_at(&endpoint, &all)
}

fn send(post: &mut Post, subjects: &[&str]) {
    for subject in subjects {
        post.client
            .execute(
                "SELECT mailroom_send('a@example.com', $1, 'Text')",
                &[subject],
            )
            .unwrap();
    }
}

/// What is told of a mail: its state, attempts and error.
fn told(post: &mut Post, subject: &str) -> (String, i32, String) {
    let row = post
        .client
        .query_one(
            "SELECT state::text, failed_attempts, coalesce(last_error, '') FROM outbox WHERE subject = $1",
            &[&subject],
        )
        .unwrap();
    (row.get(0), row.get(1), row.get(2))
}

#[test]
fn what_may_have_been_sent_is_parked_until_somebody_frees_it() {
    let (receiver, arrivals) = ambiguous();
    let mut post = by_sendgrid(
        &receiver,
        &["transport.max_ambiguous = 0", "mailroom.batch_timeout = 0"],
    );
    send(&mut post, &["reset", "silent", "fine"]);
    post.wait_until_ended(3);
    assert_eq!(
        told(&mut post, "fine"),
        ("sent".to_owned(), 0, String::new())
    );
    for subject in ["reset", "silent"] {
        let (state, attempts, error) = told(&mut post, subject);
        assert_eq!((state.as_str(), attempts), ("error", 1), "{subject}");
        assert!(
            error.starts_with("may have been sent: "),
            "{subject}: {error}"
        );
    }
    assert!(told(&mut post, "silent").2.contains("timeout"));
    post.wait_for_status("ambiguous", "2");
    // One row tells of each, and it is the last.
    let history: Vec<(String, String)> = post
        .client
        .query(
            "SELECT h.outcome, h.error FROM outbox_history h JOIN outbox o ON o.id = h.outbox_id \
             WHERE o.subject <> 'fine'",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    assert_eq!(history.len(), 2, "{history:?}");
    for (outcome, error) in history {
        assert_eq!(outcome, "ambiguous");
        assert!(error.starts_with("may have been sent: "), "{error}");
    }
    // Nothing brings it back by itself: what is parked is in no index of what is due.
    post.client
        .batch_execute("SELECT mailroom_wake_worker()")
        .unwrap();
    send(&mut post, &["later"]);
    post.wait_for("subject = 'later' AND state = 'sent'", 1);
    assert_eq!(
        (arrived(&arrivals, "reset"), arrived(&arrivals, "silent")),
        (1, 1)
    );

    // Token mail is parked as well, without its link, which is signed anew when somebody who may sign has it tried again.
    receiver.react(|_| Reaction::Close);
    post.client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('ann@example.com', 'ann')")
        .unwrap();
    post.wait_for(
        "state = 'error' AND token_id IS NOT NULL AND secrets IS NULL",
        1,
    );
    appease(&receiver, &arrivals);
    post.client
        .batch_execute("SELECT mailroom_retry(id) FROM outbox WHERE token_id IS NOT NULL")
        .unwrap();
    post.wait_for("state = 'sent' AND token_id IS NOT NULL", 1);

    // One is freed by its id, the rest by what is told of it, and each goes under its old message_id.
    let ids = "SELECT string_agg(message_id::text, ',' ORDER BY id) FROM outbox";
    let before: String = post.client.query_one(ids, &[]).unwrap().get(0);
    let freed: bool = post
        .client
        .query_one(
            "SELECT mailroom_retry(id) FROM outbox WHERE subject = 'reset'",
            &[],
        )
        .unwrap()
        .get(0);
    assert!(freed);
    post.wait_for("subject = 'reset' AND state = 'sent'", 1);
    let rest = "SELECT mailroom_retry_failed(outcome => 'ambiguous')::bigint";
    assert_eq!(number(&mut post.client, rest), 1);
    post.wait_for("subject = 'silent' AND state = 'sent'", 1);
    let after: String = post.client.query_one(ids, &[]).unwrap().get(0);
    assert_eq!(before, after);
    assert_eq!(
        (arrived(&arrivals, "reset"), arrived(&arrivals, "silent")),
        (2, 2)
    );
}

#[test]
fn by_default_what_may_have_been_sent_is_tried_again() {
    let arrivals = Arrivals::default();
    let seen = Arc::clone(&arrivals);
    let receiver = Receiver::start(move |request| {
        let subject = subject(request);
        let mut seen = seen.lock().unwrap();
        let times = seen.entry(subject.clone()).or_default();
        *times += 1;
        match (subject.as_str(), *times) {
            ("reset", 1) => Reaction::Close,
            ("silent", 1) => Reaction::Hang,
            _ => status(202),
        }
    });
    let mut post = by_sendgrid(&receiver, &[]);
    send(&mut post, &["reset", "silent"]);
    post.hurry_until_ended(2);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 1"), 2);
    assert_eq!(
        (arrived(&arrivals, "reset"), arrived(&arrivals, "silent")),
        (2, 2)
    );
}

#[test]
fn a_provider_that_knows_a_request_again_is_asked_again_all_the_same() {
    let (receiver, arrivals) = ambiguous();
    let settings = ["transport.max_ambiguous = 0", "transport.timeout = '20s'"];
    let mut post = Post::start(&receiver, &settings);
    send(&mut post, &["reset", "silent"]);
    post.wait_for("failed_attempts > 0", 2);
    assert_eq!(post.count("state = 'error'"), 0);
    appease(&receiver, &arrivals);
    post.hurry_until_ended(2);
    assert_eq!(post.count("state = 'sent'"), 2);
}

/// Accepts what Resend would, as Resend does.
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

/// Fifty mails in one request, the second that the receiver gets: as long as none has gone through, one is sent at a
/// time.
fn send_together(post: &mut Post, receiver: &Receiver) {
    send_many(post, "hello ", 1, 1, 0);
    eventually("the channel to be open", || {
        (receiver.count() == 1).then_some(())
    });
    send_many(post, "first ", 50, 1, 0);
    eventually("the first mails to arrive", || {
        (receiver.requests() >= 2).then_some(())
    });
}

/// The keys of requests with the first of the fifty mails, and how many of these there were.
#[derive(Clone, Default)]
struct Keys(Arc<Mutex<Vec<String>>>);

impl Keys {
    /// Takes note of a request; the how-manieth of these it is, if it is one.
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
    // No connection after the request and 503 are attempts; 429 and 401 are none.
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 2"), 50);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 1);
    assert_eq!((keys.count(), keys.are_one()), (5, true));
}

#[test]
fn mails_that_may_have_arrived_together_are_what_a_paused_channel_is_tried_with_if_there_is_nothing_else()
 {
    let keys = Keys::default();
    let seen = keys.clone();
    let receiver = Receiver::start(move |request| match seen.note(request) {
        Some(_) => status(500),
        None => accept_as_resend(request),
    });
    let mut post = by("resend", &receiver, &[]);
    send_together(&mut post, &receiver);
    // Its network is not allowed any more: nothing is sent.
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
    post.wait_for("subject = 'first 1' AND failed_attempts = 1", 1);
    post.client
        .batch_execute(
            "UPDATE outbox SET send_at = now() WHERE failed_attempts = 1; SELECT mailroom_wake_worker()",
        )
        .unwrap();
    post.wait_for("subject = 'first 1' AND failed_attempts = 2", 1);
    // Claimed together with others.
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
    let parked = "subject LIKE 'first %' AND state = 'error' AND ambiguous_attempts = 2 AND NOT ambiguous_alone";
    assert_eq!(post.count(parked), 50);
    assert_eq!(post.count("state = 'sent'"), 2);
}

/// Resend knows a request with several mails again if it has the very same mails in it.
#[test]
fn mails_that_may_have_arrived_together_stay_together_when_the_provider_wants_a_pause() {
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
    // What is due and may not be sent does not keep the worker busy. There is no condition to wait for: the claim is
    // that it does little.
    let spent = post.transactions_within(Duration::from_secs(3));
    assert!(spent <= 15, "{spent} transactions in 3 s of waiting");
    post.wait_until_ended(51);
    assert_eq!(post.count("state = 'sent'"), 51);
    assert_eq!((keys.count(), keys.are_one()), (3, true));
}

#[test]
fn a_stop_parks_what_had_no_answer_by_then() {
    let (receiver, arrivals) = ambiguous();
    let mut post = by_sendgrid(
        &receiver,
        &["transport.max_ambiguous = 0", "transport.timeout = '10min'"],
    );
    send(&mut post, &["silent"]);
    eventually("mail under way", || (receiver.open() == 1).then_some(()));
    post.stop_promptly(Duration::from_secs(60));
    post.start_again();
    let (state, attempts, error) = told(&mut post, "silent");
    assert_eq!((state.as_str(), attempts), ("error", 1));
    assert!(error.starts_with("may have been sent: "), "{error}");
    assert_eq!(arrived(&arrivals, "silent"), 1);
}

/// Refuses that a mail with this subject becomes `sent`.
fn refuse(post: &mut Post, subject: &str) {
    post.client
        .batch_execute(&format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE check_violation USING MESSAGE = 'not this one'; END $$; \
             CREATE TRIGGER refuse AFTER UPDATE OF state ON outbox FOR EACH ROW \
             WHEN (NEW.state = 'sent' AND NEW.subject = '{subject}') EXECUTE FUNCTION refuse()"
        ))
        .unwrap();
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
        ("error".to_owned(), 3, "claim lapsed".to_owned())
    );
    let lapsed = "SELECT count(*) FROM outbox_attempts a JOIN outbox o ON o.id = a.outbox_id \
                  WHERE a.outcome = 'lease_expired' AND o.subject = 'fine'";
    assert_eq!(number(&mut post.client, lapsed), 3);
    post.wait_for("state = 'sent' AND subject = 'another'", 1);
    assert_eq!(arrived(&arrivals, "fine"), 1, "it went out again");
    // The worker remembers: once the trigger is gone, it is put on record without being sent again.
    post.client
        .batch_execute("DROP TRIGGER refuse ON outbox; SELECT mailroom_retry(id) FROM outbox WHERE subject = 'fine'")
        .unwrap();
    post.wait_for("state = 'sent' AND subject = 'fine'", 1);
    assert_eq!(arrived(&arrivals, "fine"), 1, "it went out again");
}

#[test]
fn at_the_end_of_the_worker_it_spoils_no_other() {
    // Nobody is answered until all are under way.
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let theirs = Arc::clone(&gate);
    let receiver = Receiver::start(move |_| {
        drop(theirs.lock());
        status(200)
    });
    let settings = ["transport.timeout = '10min'", "mailroom.lease = '1h'"];
    let mut post = Post::start(&receiver, &settings);
    refuse(&mut post, "Hello 3");
    post.send(10);
    eventually("all to be under way", || {
        (receiver.open() == 10).then_some(())
    });
    // The worker is told to stop while it has the answers and cannot settle a thing.
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
    // What was settled by then does not lapse. An answer that was heard too late is a failure that was settled.
    post.wait_for("state = 'sent'", 9);
    let lapsed = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'lease_expired'";
    let lapsed = number(&mut post.client, lapsed);
    assert!(lapsed <= 1, "{lapsed} claims lapsed");
}
