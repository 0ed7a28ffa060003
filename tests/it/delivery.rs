//! Delivery by the worker, end to end: what is sent, what fails, the limits on requests and responses, and copies of a
//! database.

use std::time::Duration;

use crate::cluster::{another_worker, eventually, number};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, status};

#[test]
fn token_mail_and_messages_are_delivered_with_one_id_each() {
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = std::sync::Arc::clone(&seen);
    let receiver = Receiver::start(move |request| {
        log.lock().unwrap().push(request.clone());
        status(204)
    });
    let mut post = Post::start(&receiver, &["mailroom.batch_timeout = 0"]);
    post.client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('a@example.com', 'ann')")
        .unwrap();
    post.send(3);
    post.wait_until_ended(4);
    assert_eq!(post.count("state = 'sent'"), 4);
    let mut ids = receiver.accepted();
    ids.sort();
    let theirs: Vec<String> = post
        .client
        .query("SELECT message_id::text FROM outbox ORDER BY 1", &[])
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(ids, theirs);
    let seen = seen.lock().unwrap();
    let token_mail = seen
        .iter()
        .find(|request| request.says("activation"))
        .unwrap();
    let signed = token_mail.body.split('"').find(|part| part.len() == 86);
    assert!(signed.is_some(), "no signed token in {}", token_mail.body);
    // After it was sent, the row no longer contains the token.
    assert_eq!(post.count("secrets IS NOT NULL"), 0);
    assert_eq!(
        post.count("claimed_by LIKE 'mailroom worker/%' AND failed_attempts = 0"),
        4
    );
}

#[test]
fn a_third_of_the_answers_failing_keeps_nothing_from_being_sent() {
    let receiver = Receiver::start(|request| {
        // The first two attempts of some messages fail. The message id decides which and how, so both fail in the same
        // way.
        let kind = request
            .message_id()
            .bytes()
            .fold(0_u32, |sum, byte| sum + u32::from(byte))
            % 18;
        match kind {
            0..=5 if request.attempt > 2 => status(200),
            0 => status(500),
            1 => Reaction::Answer(503, "retry-after: 1\r\n".to_owned(), String::new()),
            2 => Reaction::Close,
            3 => Reaction::Raw(b"HTTP/1.1 2OO nonsense\r\n\r\n".to_vec()),
            4 => Reaction::Raw(b"HTTP/1.1 200 X\r\ncontent-length: 10\r\n\r\nabc".to_vec()),
            5 => Reaction::Hang,
            _ => status(200),
        }
    });
    let mut post = Post::start(&receiver, &["transport.timeout = '500ms'"]);
    post.send(200);
    post.hurry_until_ended(200);
    assert_eq!(post.count("state = 'sent'"), 200);
    // `outbox_attempts` has the status and the cause of the failures.
    assert!(
        number(
            &mut post.client,
            "SELECT count(*) FROM outbox_attempts WHERE response_code = 500"
        ) > 0
    );
    for reason in ["timeout after", "no response"] {
        let query = format!("SELECT count(*) FROM outbox_attempts WHERE error LIKE '%{reason}%'");
        assert!(
            number(&mut post.client, &query) > 0,
            "no attempt tells of {reason}"
        );
    }
}

/// I8: a bad row affects no other.
#[test]
fn a_mail_that_is_refused_ends_alone() {
    let receiver = Receiver::start(|request| {
        if request.says("poison") {
            Reaction::Answer(
                422,
                "mailroom-permanent: true\r\n".to_owned(),
                String::new(),
            )
        } else {
            status(200)
        }
    });
    let mut post = Post::start(&receiver, &[]);
    post.client
        .batch_execute("SELECT mailroom_send('p@example.com', 'poison', 'Text')")
        .unwrap();
    post.send(20);
    post.wait_for("state = 'sent'", 20);
    post.wait_for("failed_attempts >= 1", 1);
    // The mail counts as at fault when it is refused again after others were accepted.
    post.send(1);
    post.wait_for("state = 'sent'", 21);
    post.hurry_until_ended(22);
    let ended: String = post
        .client
        .query_one(
            "SELECT format('%s %s %s', state, failed_attempts < max_attempts, left(last_error, 8)) FROM outbox \
             WHERE recipients = '{p@example.com}'",
            &[],
        )
        .unwrap()
        .get(0);
    assert_eq!(ended, "error t http 422");
}

#[test]
fn mail_of_ten_megabytes_passes_and_is_held_one_after_the_other() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &[]);
    post.client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'Large', repeat(md5(i::text), 300000)) \
             FROM generate_series(1, 12) i",
        )
        .unwrap();
    post.wait_until_ended(12);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 12);
    let peak = post.worker_memory("VmHWM");
    assert!(peak < 400 << 10, "the worker took {peak} kB");
}

#[test]
fn there_are_never_more_requests_than_allowed_however_slow_they_are() {
    let receiver = Receiver::start(|_| Reaction::Hang);
    let mut post = Post::start(
        &receiver,
        &["transport.concurrency = 4", "transport.timeout = '60s'"],
    );
    post.send(50);
    eventually("all to be stuck", || (receiver.open() == 4).then_some(()));
    // The worker claims mail for two full sets of concurrent requests.
    post.wait_for("state = 'claimed'", 8);
    assert_eq!(receiver.open(), 4);
    post.stop_promptly(Duration::from_secs(20));
    assert_eq!(receiver.requests(), 4);
}

#[test]
fn an_endless_answer_is_cut() {
    const MAILS: usize = 3;
    let receiver = Receiver::start(|_| Reaction::Endless);
    // A worker that reads the whole response does so for longer than this test waits.
    let mut post = Post::start(&receiver, &["transport.timeout = '10min'"]);
    post.send(MAILS as i64);
    post.wait_until_ended(MAILS as i64);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 3);
    eventually("the worker to close the connections", || {
        (receiver.open() == 0).then_some(())
    });
    // The worker reads 64 KiB of each. The kernels buffer some megabytes more on either side, read or not.
    let taken = receiver.endless() / MAILS;
    assert!(taken < 16 << 20, "{taken} octets were taken of each");
}

#[test]
fn a_redirect_is_not_followed() {
    let other = Receiver::start(|_| status(200));
    let location = format!("location: {}\r\n", other.endpoint());
    let receiver = Receiver::start(move |_| Reaction::Answer(302, location.clone(), String::new()));
    let mut post = Post::start(&receiver, &[]);
    post.send(1);
    for attempts in 1..=3 {
        // The next attempt is due after a second, which may be over before this check.
        post.wait_for(&format!("failed_attempts >= {attempts}"), 1);
        assert!(receiver.requests() >= attempts);
        assert_eq!(other.requests(), 0, "attempt {attempts} followed it");
        post.client
            .batch_execute("SELECT mailroom_reschedule(id, clock_timestamp()) FROM outbox")
            .unwrap();
    }
}

#[test]
fn what_lies_behind_a_large_held_group_is_delivered_without_a_poll() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &["mailroom.poll_interval = '1h'"]);
    // More than twice as many rows of one priority as one claim reads.
    post.client
        .batch_execute(
            "SELECT mailroom_pause(); \
             INSERT INTO outbox (kind, recipients, subject, body_text, group_key) \
             SELECT 'own', '{a@example.com}', 'Hello', 'Text', 'large' FROM generate_series(1, 12000); \
             SELECT id FROM mailroom_claim_group(1, '1 h', 'holder', transports => '{main}'); \
             SELECT mailroom_send('a@example.com', 'Behind', 'Text'); \
             SELECT mailroom_resume()",
        )
        .unwrap();
    post.wait_for("state = 'sent'", 1);
    assert_eq!(post.count("state = 'sent' AND subject = 'Behind'"), 1);
    // When the holder releases its claim, the group is delivered too.
    post.client
        .batch_execute(
            "SELECT mailroom_release(id, 'holder') FROM outbox WHERE claimed_by = 'holder'",
        )
        .unwrap();
    post.wait_for("state = 'sent' AND group_key = 'large'", 1);
}

/// What waits in the original when it is copied: the name of the copy, the statements before the copy, and those that
/// clean up the original.
const WAITING: [(&str, &str, &str); 4] = [
    (
        "later",
        "SELECT mailroom_send('a@example.com', 'Later', 'Text', send_at => now() + interval '1 h')",
        "SELECT mailroom_cancel(id) FROM outbox WHERE state = 'scheduled'",
    ),
    (
        "claimed",
        "SELECT mailroom_pause(); SELECT mailroom_send('a@example.com', 'Claimed', 'Text'); \
         SELECT mailroom_claim(1, '1 h', 'me', '{main}'); SELECT mailroom_resume()",
        "DELETE FROM outbox WHERE state = 'claimed'",
    ),
    (
        "token",
        "SELECT mailroom_pause(); INSERT INTO accounts (email, login) VALUES ('b@example.com', 'bob')",
        "DELETE FROM accounts WHERE login = 'bob'; SELECT mailroom_resume()",
    ),
    (
        "request",
        "SELECT mailroom_pause(); SELECT mailroom_request_recovery('a@example.com')",
        "DELETE FROM link_requests; SELECT mailroom_resume()",
    ),
];

#[test]
fn a_copy_of_a_database_does_not_send_what_the_original_sends() {
    let receiver = Receiver::start(|_| status(204));
    let Post {
        client, cluster, ..
    } = Post::start(
        &receiver,
        &["mailroom.batch_timeout = 0", "max_worker_processes = 16"],
    );
    drop(client);
    let run = |database: &str, statements: &str| {
        cluster
            .connect(database)
            .batch_execute(statements)
            .unwrap_or_else(|error| panic!("{statements}: {error:?}"));
    };
    let copy = |name: &str| {
        run("postgres", &format!("CREATE DATABASE {name} TEMPLATE app"));
        cluster.worker(name);
    };
    let count = |database: &str, what: &str| {
        number(
            &mut cluster.connect(database),
            &format!("SELECT count(*) FROM {what}"),
        )
    };
    let told = |database: &str| {
        let line = format!("mailroom worker paused itself: database \"{database}\" is a copy");
        cluster.log().matches(&line).count()
    };
    let send = |database: &str| {
        run(
            database,
            "SELECT mailroom_send('a@example.com', 'Own', 'Text')",
        );
    };
    let restart_worker = |database: &str| {
        let worker = cluster.worker(database);
        run(
            "postgres",
            &format!("SELECT pg_terminate_backend({worker})"),
        );
        another_worker(&mut cluster.connect(database), worker);
    };

    // A copy in which nothing waited needs no mailroom_resume(), nor does one with mail that was scheduled after the
    // copy was made.
    run(
        "app",
        "INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'ann', 'active')",
    );
    copy("tenant");
    send("tenant");
    eventually("the tenant's mail", || {
        (receiver.count() == 1).then_some(())
    });
    run(
        "tenant",
        "UPDATE _database_identity SET database = 0; SELECT mailroom_pause(); \
         INSERT INTO accounts (email, login) VALUES ('b@example.com', 'bob'); \
         SELECT mailroom_request_recovery('a@example.com'), \
             mailroom_send('a@example.com', 'Later', 'Text', send_at => now() + interval '1 h'); \
         SELECT mailroom_send('a@example.com', 'Own', 'Text'); \
         SELECT mailroom_claim(1, '1 h', 'me', '{main}')",
    );
    restart_worker("tenant");
    eventually("the worker to look", || {
        (count("tenant", "_database_identity WHERE database > 0") == 1).then_some(())
    });
    assert_eq!(
        count("tenant", "pauses WHERE paused_by <> 'mailroom_collector'"),
        1
    );

    for (name, prepare, clear) in WAITING {
        run("app", prepare);
        copy(name);
        run("app", clear);
        eventually(&format!("a pause in {name}"), || {
            (count(name, "pauses WHERE paused_by = 'mailroom_collector'") == 1).then_some(())
        });
        assert_eq!(told(name), 1);
    }
    assert_eq!(
        [count("app", "pauses"), told("tenant").try_into().unwrap()],
        [0, 0]
    );

    // One mailroom_resume() ends the pause for good.
    send("later");
    run(
        "later",
        "SELECT mailroom_cancel(id) FROM outbox WHERE subject = 'Later'; SELECT mailroom_resume()",
    );
    eventually("a second mail", || (receiver.count() == 2).then_some(()));
    restart_worker("later");
    send("later");
    eventually("a third mail", || (receiver.count() == 3).then_some(()));
    assert_eq!(
        [count("later", "pauses"), told("later").try_into().unwrap()],
        [0, 1]
    );
    let mut accepted = receiver.accepted();
    accepted.sort();
    accepted.dedup();
    assert_eq!(accepted.len(), 3);
}
