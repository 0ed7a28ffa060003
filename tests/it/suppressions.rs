//! Who is not written to: what providers and relays answer, while the worker delivers.
//!
//! needs: worker

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::cluster::{eventually, number};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, Request};

const ROWS: &str = "SELECT count(*) FROM suppressions";

/// Postmark's answer to a request: of each mail whether its recipient is inactive, or the mail was taken.
fn answer(request: &Request, is_refused: impl Fn(&str) -> bool) -> Reaction {
    let body: Value = serde_json::from_str(&request.body).unwrap();
    let result = |mail: &Value| match is_refused(mail["To"].as_str().unwrap()) {
        true => json!({"ErrorCode": 406, "Message": "inactive"}),
        false => json!({"ErrorCode": 0, "MessageID": "id"}),
    };
    let (status, said) = match body.as_array() {
        Some(mails) => (200, mails.iter().map(result).collect()),
        None if is_refused(body["To"].as_str().unwrap()) => (422, result(&body)),
        None => (200, result(&body)),
    };
    let headers = "Content-Type: application/json\r\n".to_owned();
    Reaction::Answer(status, headers, said.to_string())
}

fn is_gone(address: &str) -> bool {
    address.contains("gone")
}

fn by_postmark(receiver: &Receiver) -> Post {
    let settings = [
        "transport.provider = postmark",
        "transport.from = noreply@example.com",
        "transport.api_key = 0123456789abcdef",
        "mailroom.batch_timeout = 0",
    ];
    Post::start_at(&format!("http://{}", receiver.address), &settings)
}

fn send(post: &mut Post, name: &str, count: i64) {
    let send = "SELECT count(mailroom_send($1 || i || '@example.com', 'S', 'T')) FROM generate_series(1, $2::bigint) i";
    post.client.execute(send, &[&name, &count]).unwrap();
}

#[test]
fn a_provider_that_refuses_a_mailbox_is_not_asked_again() {
    let receiver = Receiver::start(|request| answer(request, is_gone));
    let mut post = by_postmark(&receiver);
    send(&mut post, "there", 1);
    post.wait_for("state = 'sent'", 1);
    send(&mut post, "gone", 1);
    post.wait_for("state = 'error'", 1);
    let row = "SELECT concat_ws(' ', address, reason, round(extract(epoch FROM until - now()) / 86400)) FROM suppressions";
    let row: String = post.client.query_one(row, &[]).unwrap().get(0);
    assert_eq!(row, "gone1@example.com bounced 3");
    let asked = receiver.requests();
    // Beside others: they get theirs, and the history says why she does not.
    post.client
        .execute(
            "SELECT mailroom_send('Gone <GONE1@example.com>, there1@example.com', 'Both', 'T', bcc => 'gone1@example.com'), \
                mailroom_send('gone1@example.com', 'Alone', 'T')",
            &[],
        )
        .unwrap();
    post.wait_until_ended(4);
    assert_eq!(post.count("state = 'suppressed'"), 1);
    assert_eq!(post.count("state = 'sent'"), 2);
    assert_eq!(receiver.requests(), asked + 1);
    let events = "SELECT string_agg(concat_ws(' ', o.subject, e.type, e.reason, e.recipient), '; ' ORDER BY o.id) \
         FROM delivery_events e JOIN outbox o ON o.id = e.outbox_id WHERE o.subject <> 'S'";
    let events: String = post.client.query_one(events, &[]).unwrap().get(0);
    assert_eq!(
        events,
        "Both suppressed bounced gone1@example.com; Alone suppressed bounced gone1@example.com"
    );
    // Lifted, and sent once.
    receiver.react(|request| answer(request, |_| false));
    post.client
        .batch_execute(
            "SELECT mailroom_unsuppress('gone1@example.com'); \
             SELECT mailroom_retry(id) FROM outbox WHERE state = 'suppressed'",
        )
        .unwrap();
    post.wait_for("state = 'sent'", 3);
    assert_eq!(receiver.requests(), asked + 2);
}

#[test]
fn a_relay_that_refuses_everyone_suppresses_few() {
    const COUNT: i64 = 1000;
    let recovers = Arc::new(AtomicBool::new(false));
    let recovered = Arc::clone(&recovers);
    let receiver =
        Receiver::start(move |request| answer(request, |_| !recovered.load(Ordering::SeqCst)));
    let mut post = by_postmark(&receiver);
    send(&mut post, "a", COUNT);
    post.wait_for("state = 'error'", COUNT);
    assert_eq!(number(&mut post.client, ROWS), 0);
    recovers.store(true, Ordering::SeqCst);
    let retry = "SELECT mailroom_retry_failed(kind => 'message')";
    post.client.execute(retry, &[]).unwrap();
    post.wait_for("state = 'sent'", COUNT);
    assert_eq!(number(&mut post.client, ROWS), 0);
    // When it begins again, a few are believed.
    recovers.store(false, Ordering::SeqCst);
    send(&mut post, "b", COUNT);
    post.wait_for("state = 'error'", COUNT);
    let believed = number(&mut post.client, ROWS);
    assert!((1..=5).contains(&believed), "{believed}");
}

/// On 14 and 15 December 2020, Gmail answered 550 5.1.1 for mailboxes that existed.
#[test]
fn mailboxes_that_bounced_for_two_days_get_mail_again() {
    let receiver = Receiver::start(|request| answer(request, |_| false));
    let mut post = by_postmark(&receiver);
    send(&mut post, "a", 1000);
    post.wait_for("state = 'sent'", 1000);
    let report = |post: &mut Post, event: &str, which: &str, at: &str| {
        let report = format!(
            "SELECT mailroom_report('main', jsonb_agg(jsonb_build_object( \
                'type', '{event}', 'event_id', '{event}' || id, 'message_id', message_id, 'is_permanent', {}, \
                'occurred_at', to_char(now() AT TIME ZONE 'UTC' - interval '{at}', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')))) \
             FROM outbox WHERE {which}",
            event == "bounced"
        );
        post.client.execute(&report, &[]).unwrap();
    };
    let before = "UPDATE outbox SET created_at = now() - interval '4 days'";
    post.client.execute(before, &[]).unwrap();
    // Half of them three days ago, half of them now.
    report(&mut post, "bounced", "id % 2 = 0", "73 hours");
    report(&mut post, "bounced", "id % 2 = 1", "1 hour");
    assert_eq!(number(&mut post.client, ROWS), 1000);
    let in_force = "SELECT count(*) FROM _suppressions_in_force";
    assert_eq!(number(&mut post.client, in_force), 500);
    // What was on its way is delivered.
    report(&mut post, "delivered", "id % 2 = 1", "1 second");
    assert_eq!(number(&mut post.client, in_force), 0);
    send(&mut post, "a", 1000);
    post.wait_for("state = 'sent'", 2000);
}

#[test]
fn suppressing_while_mail_is_under_way_keeps_neither_claims_nor_settles() {
    let receiver = Receiver::start(|request| answer(request, is_gone));
    let mut post = by_postmark(&receiver);
    send(&mut post, "there", 1);
    post.wait_for("state = 'sent'", 1);
    let mut other = post.cluster.connect("app");
    other
        .batch_execute("BEGIN; SELECT mailroom_suppress_many('{gone1@example.com,gone2@example.com}', reason => 'bounced')")
        .unwrap();
    send(&mut post, "gone", 3);
    // It is not committed, so both are sent to; the answers are settled without waiting for it.
    post.wait_for("state = 'error'", 3);
    let events = "SELECT count(*) FROM delivery_events WHERE type = 'rejected'";
    assert_eq!(number(&mut post.client, events), 1);
    other.batch_execute("COMMIT").unwrap();
    eventually("all of them to be suppressed", || {
        (number(&mut post.client, ROWS) == 3).then_some(())
    });
}
