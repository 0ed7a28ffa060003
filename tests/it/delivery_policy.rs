//! What a response means for its mail, and for the transport.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::cluster::{eventually, number};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, Request, status};

/// Starts a worker that delivers by SendGrid's API, which does not recognize a repeated request.
fn by_sendgrid(receiver: &Receiver, settings: &[&str]) -> Post {
    let mut all = vec![
        "transport.provider = sendgrid",
        "transport.api_key = SG.0123456789abcdef",
        "transport.from = noreply@example.com",
    ];
    all.extend(settings);
    Post::start_at(&format!("http://{}", receiver.address), &all)
}

fn send(post: &mut Post, to: &str, subject: &str, count: i64, priority: i32) {
    post.client
        .execute(
            "SELECT count(mailroom_send($1, $2 || i, 'Text', priority => $4)) FROM generate_series(1, $3::bigint) i",
            &[&to, &subject, &count, &priority],
        )
        .unwrap();
}

/// Returns the subject of a mail, which the bodies of webhooks and of SendGrid contain as a JSON string.
fn subject(request: &Request) -> String {
    let rest = request.body.split("\"subject\":\"").nth(1).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

/// The subjects that arrived, in order.
type Arrivals = Arc<Mutex<Vec<String>>>;

/// Records the subject of each request before it reacts.
fn noting(
    arrivals: &Arrivals,
    react: impl Fn(&Request) -> Reaction + Send + Sync + 'static,
) -> impl Fn(&Request) -> Reaction + Send + Sync + 'static {
    let arrivals = Arc::clone(arrivals);
    move |request| {
        arrivals.lock().unwrap().push(subject(request));
        react(request)
    }
}

/// The log line about a pause because of a response contains this.
const PAUSED_BY_HTTP: &str = "transport \"main\" paused: http";

fn times(log: &str, words: &str) -> usize {
    log.matches(words).count()
}

#[test]
fn what_is_refused_while_nothing_passes_is_held() {
    for (sender, refusal) in [("sendgrid", 400), ("sendgrid", 413), ("webhook", 400)] {
        let receiver = Receiver::start(move |_| status(refusal));
        let mut post = match sender {
            "webhook" => Post::start(&receiver, &[]),
            _ => by_sendgrid(&receiver, &[]),
        };
        post.load(2_000);
        post.wait_for_status("transport_state", "paused");
        // The paused transport is probed, each time with another mail.
        let before = receiver.requests();
        eventually("a probe", || (receiver.requests() > before).then_some(()));
        assert_eq!(post.count("state = 'error'"), 0, "{sender} {refusal}");
        assert!(
            receiver.requests() < 500,
            "{sender} {refusal}: {} requests",
            receiver.requests()
        );
        receiver.react(|_| status(202));
        post.hurry_until_ended(2_000);
        assert_eq!(post.count("state = 'sent'"), 2_000, "{sender} {refusal}");
        let log = post.log();
        assert_eq!(times(&log, PAUSED_BY_HTTP), 1, "{log}");
        assert_eq!(times(&log, "resumed after"), 1, "{log}");
        assert_eq!(times(&log, "ended as error"), 0, "{log}");
    }
}

#[test]
fn addresses_that_are_refused_stop_nobody() {
    let receiver =
        Receiver::start(|request| status(if request.says("wrong@") { 400 } else { 202 }));
    let mut post = by_sendgrid(&receiver, &[]);
    post.client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text) \
             SELECT 'own', ARRAY[CASE WHEN i % 21 = 0 THEN 'wrong@example.com' ELSE 'a@example.com' END], 'Hello', 'Text' \
             FROM generate_series(1, 1050) i; \
             SELECT _mail_due(now(), false, false)",
        )
        .unwrap();
    post.wait_for("state = 'sent'", 1_000);
    // Each mail ends when it is refused again after others were accepted.
    while post.count("state = 'error'") < 50 {
        send(&mut post, "a@example.com", "more", 1, 0);
        post.client
            .batch_execute(
                "UPDATE outbox SET send_at = now() WHERE state = 'scheduled' AND send_at > now()",
            )
            .unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(post.count("state = 'error' AND failed_attempts < 2"), 0);
    let log = post.log();
    assert_eq!(times(&log, PAUSED_BY_HTTP), 0, "{log}");
    assert_eq!(times(&log, "mail ended as error: "), 1, "{log}");
}

#[test]
fn a_receiver_that_refuses_for_good_says_so() {
    let receiver = Receiver::start(|request| {
        let headers = if request.says("never") {
            "mailroom-permanent: true\r\n"
        } else {
            ""
        };
        match subject(request).as_str() {
            "fine1" => status(200),
            _ if request.attempt > 1 && !request.says("never") => status(200),
            _ => Reaction::Answer(422, headers.to_owned(), String::new()),
        }
    });
    let mut post = Post::start(&receiver, &[]);
    send(&mut post, "a@example.com", "never", 1, 0);
    send(&mut post, "a@example.com", "later", 1, 0);
    send(&mut post, "a@example.com", "fine", 1, 0);
    post.hurry_until_ended(3);
    assert_eq!(post.count("state = 'sent' AND subject = 'later1'"), 1);
    assert_eq!(
        post.count("state = 'error' AND subject = 'never1' AND last_error = 'http 422'"),
        1
    );
}

#[test]
fn a_provider_that_answers_too_late_gets_no_more_copies_than_the_limit() {
    let arrivals = Arrivals::default();
    let receiver = Receiver::start(noting(&arrivals, |request| {
        if request.says("slow") {
            Reaction::Late(Duration::from_secs(3), 202)
        } else {
            status(202)
        }
    }));
    let mut post = by_sendgrid(&receiver, &["transport.timeout = '1s'"]);
    send(&mut post, "a@example.com", "slow", 3, 0);
    send(&mut post, "a@example.com", "fine", 3, 0);
    post.hurry_until_ended(6);
    assert_eq!(post.count("state = 'sent' AND subject LIKE 'fine%'"), 3);
    assert_eq!(
        post.count("state = 'error' AND ambiguous_attempts = 2 AND subject LIKE 'slow%'"),
        3
    );
    for copy in 1..=3 {
        let name = format!("slow{copy}");
        let copies = arrivals
            .lock()
            .unwrap()
            .iter()
            .filter(|s| **s == name)
            .count();
        assert_eq!(copies, 2, "{name}");
    }
}

/// Other providers that do not recognize a repeated request, and the keys that each needs.
const FORGETFUL: [(&str, &[&str]); 3] = [
    ("postmark", &["transport.api_key = any-token-0123456789"]),
    (
        "mailgun",
        &[
            "transport.api_key = key-0123456789",
            "transport.domain = mg.example.com",
        ],
    ),
    (
        "ses",
        &[
            "transport.access_key_id = AKIDEXAMPLE",
            "transport.secret_access_key = wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            "transport.region = eu-west-1",
        ],
    ),
];

#[test]
fn each_provider_that_answers_too_late_gets_no_more_copies_than_the_limit() {
    for (provider, credentials) in FORGETFUL {
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&bodies);
        let receiver = Receiver::start(move |request| {
            seen.lock().unwrap().push(request.body.clone());
            Reaction::Late(Duration::from_secs(3), 200)
        });
        let provider_is = format!("transport.provider = {provider}");
        let mut settings = vec![
            provider_is.as_str(),
            "transport.from = noreply@example.com",
            "transport.timeout = '1s'",
        ];
        settings.extend(credentials);
        let mut post = Post::start_at(&format!("http://{}", receiver.address), &settings);
        send(&mut post, "a@example.com", "slow", 3, 0);
        post.hurry_until_ended(3);
        assert_eq!(
            post.count("state = 'error' AND ambiguous_attempts = 2"),
            3,
            "{provider}"
        );
        // Alone or in a batch.
        for name in ["slow1", "slow2", "slow3"] {
            let copies = bodies
                .lock()
                .unwrap()
                .iter()
                .filter(|body| body.contains(name))
                .count();
            assert_eq!(copies, 2, "{provider} {name}");
        }
    }
}

#[test]
fn the_head_of_an_answer_settles_a_mail() {
    let stalls = |body: &str| {
        let head = "HTTP/1.1 202 Accepted\r\ncontent-length: 1000\r\n\r\n";
        Reaction::Stall(format!("{head}{body}").into_bytes())
    };
    let receiver = Receiver::start(move |request| match subject(request).as_str() {
        "stall1" => stalls("{"),
        "endless1" => Reaction::Endless,
        _ => Reaction::Raw(b"HTTP/1.1 202 Accepted\r\ncontent-length: 9\r\n\r\nabc".to_vec()),
    });
    let mut post = by_sendgrid(&receiver, &["transport.timeout = '2s'"]);
    for name in ["stall", "endless", "short"] {
        send(&mut post, "a@example.com", name, 1, 0);
    }
    post.wait_until_ended(3);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 3);
    assert_eq!(receiver.requests(), 3);
}

#[test]
fn a_long_wait_is_believed_from_two_mails_and_told() {
    let receiver = Receiver::start(|request| {
        if request.says("greedy") {
            Reaction::Answer(429, "retry-after: 3600\r\n".to_owned(), String::new())
        } else {
            status(202)
        }
    });
    let mut post = by_sendgrid(&receiver, &["transport.concurrency = 1"]);
    send(&mut post, "a@example.com", "first", 1, 0);
    post.wait_for("state = 'sent'", 1);
    // A long wait that only one mail was told delays no other.
    send(&mut post, "a@example.com", "greedy", 1, 0);
    send(&mut post, "a@example.com", "fine", 5, 0);
    post.wait_for("state = 'sent'", 6);
    receiver.react(|_| Reaction::Answer(429, "retry-after: 3600\r\n".to_owned(), String::new()));
    send(&mut post, "a@example.com", "all", 5, 0);
    post.wait_for_status("transport_state", "paused");
    let next =
        "SELECT count(*) FROM mailroom_status() WHERE next_probe_at < now() + interval '61 s'";
    assert_eq!(number(&mut post.client, next), 1);
    let log = post.log();
    assert_eq!(
        times(&log, "transport \"main\" paused: http 429"),
        1,
        "{log}"
    );
    receiver.react(|_| status(202));
    post.client
        .batch_execute("SELECT mailroom_wake_worker()")
        .unwrap();
    post.hurry_until_ended(12);
    assert_eq!(post.count("state = 'sent'"), 12);
}

#[test]
fn what_cannot_be_put_into_a_request_says_nothing_of_the_provider() {
    let receiver = Receiver::start(|_| status(503));
    let mut post = by_sendgrid(&receiver, &[]);
    post.load(50);
    post.wait_for_status("transport_state", "paused");
    // A row that is written by hand may have this address, but it cannot be sent to.
    post.client
        .batch_execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text) VALUES ('x', '{ann..lee@example.com}', 'S', 'T')",
        )
        .unwrap();
    post.hurry_until_ended(1);
    assert_eq!(post.count("state = 'error' AND kind = 'x'"), 1);
    post.wait_for_status("transport_state", "paused");
    let log = post.log();
    assert_eq!(
        times(&log, "transport \"main\" paused: http 503"),
        1,
        "{log}"
    );
    receiver.react(|_| status(202));
    post.hurry_until_ended(51);
    assert_eq!(post.count("state = 'sent'"), 50);
}

#[test]
fn urgent_mail_overtakes_what_is_held() {
    let arrivals = Arrivals::default();
    let receiver = Receiver::start(noting(&arrivals, |_| {
        Reaction::Late(Duration::from_millis(100), 202)
    }));
    let settings = ["transport.concurrency = 2"];
    let mut post = by_sendgrid(&receiver, &settings);
    post.load(200);
    eventually("some to be sent", || {
        (receiver.requests() > 10).then_some(())
    });
    let before = arrivals.lock().unwrap().len();
    send(&mut post, "a@example.com", "urgent", 3, -10);
    post.wait_for("state = 'sent' AND subject LIKE 'urgent%'", 3);
    post.wait_until_ended(203);
    let arrivals = arrivals.lock().unwrap();
    let last = arrivals
        .iter()
        .rposition(|subject| subject.starts_with("urgent"))
        .unwrap();
    assert!(last < before + 30, "after {} others", last - before);
}

/// A failed attempt shortly before the mail expires is its last one, and the mail ends as expired.
#[test]
fn mail_that_expires_is_not_logged_as_an_error() {
    let receiver = Receiver::start(|_| status(503));
    let mut post = Post::start(&receiver, &[]);
    let send = |more: &str| format!("SELECT mailroom_send('a@example.com', 'S', 'T', {more})");
    post.client
        .batch_execute(&send("expires_at => now() + interval '3 s'"))
        .unwrap();
    post.wait_for("state = 'expired' AND failed_attempts > 0", 1);
    assert!(!post.log().contains("mail ended as error"));
    post.client
        .batch_execute(&send("max_attempts => 1"))
        .unwrap();
    post.wait_for("state = 'error'", 1);
    eventually("a line in the log", || {
        post.log().contains("mail ended as error: 1").then_some(())
    });
}
