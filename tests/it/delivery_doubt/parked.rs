//! Mail that may have been sent is parked, that is, it ends as `error`, or is retried.

use std::sync::Arc;
use std::time::Duration;

use super::{Arrivals, ambiguous, arrived, by, send, subject, told};
use crate::cluster::{eventually, number};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, status};

/// From now on the receiver accepts all requests.
fn appease(receiver: &Receiver, arrivals: &Arrivals) {
    let seen = Arc::clone(arrivals);
    receiver.react(move |request| {
        *seen.lock().unwrap().entry(subject(request)).or_default() += 1;
        status(202)
    });
}

/// Starts a worker that delivers to this receiver by SendGrid's API, which does not recognize a repeated request.
fn by_sendgrid(receiver: &Receiver, settings: &[&str]) -> Post {
    by("sendgrid", receiver, settings)
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
    // The history has one row for each.
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
    // Parked mail is not retried by itself: no index of due mail contains it.
    post.client
        .batch_execute("SELECT mailroom_wake_worker()")
        .unwrap();
    send(&mut post, &["later"]);
    post.wait_for("subject = 'later' AND state = 'sent'", 1);
    assert_eq!(
        (arrived(&arrivals, "reset"), arrived(&arrivals, "silent")),
        (1, 1)
    );

    // Token mail is parked too, without its link. The link is signed again when a role that may sign retries the mail.
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

    // One mail is retried by its id, the other by its outcome. Each keeps its message_id.
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
