//! Several transports at once: what happens to one affects no other, unless a route says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::cluster::transports::{FILE, write_secret};
use crate::cluster::{eventually, number, signal};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, status};

/// Returns the table of the transports file for a webhook transport to this receiver.
fn webhook(name: &str, receiver: &Receiver, more: &str) -> String {
    format!(
        "[transports.{name}]\nprovider = \"webhook\"\nendpoint = \"{}\"\nallowed_networks = [\"127.0.0.1\"]\n\
         secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\ntimeout = \"60 s\"\nconnect_timeout = \"30 s\"\n{more}\n",
        receiver.endpoint()
    )
}

/// Starts a worker with the transport `main`, and then adds the others.
fn with(main: &Receiver, others: &[String], settings: &[&str]) -> Post {
    let mut post = Post::start(main, settings);
    let file = post.transports.render() + "\n" + &others.join("\n");
    reread(&mut post, &file, 1 + others.len() as i64);
    post
}

/// Replaces the transports file, and waits until this number of transports is published.
fn reread(post: &mut Post, file: &str, transports: i64) {
    write_secret(&post.cluster, FILE, file);
    post.reload();
    eventually("the transports to be published", || {
        let known = number(&mut post.client, "SELECT count(*) FROM mailroom_transports");
        (known == transports).then_some(())
    });
}

/// Inserts this number of messages for a transport into the outbox.
fn load(post: &mut Post, transport: &str, count: i64) {
    post.client
        .execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text, transport) \
             SELECT 'own', '{a@example.com}', $1::text || ' ' || i, 'Text', $1::text FROM generate_series(1, $2::bigint) i",
            &[&transport, &count],
        )
        .unwrap();
    post.client
        .batch_execute("SELECT _mail_due(now(), false, false)")
        .unwrap();
}

fn state_of(post: &mut Post, transport: &str) -> String {
    let row = post.client.query_opt(
        "SELECT state::text FROM mailroom_transports WHERE name = $1",
        &[&transport],
    );
    row.unwrap().map_or(String::new(), |row| row.get(0))
}

#[test]
fn a_transport_that_is_down_holds_up_no_other() {
    let good = Receiver::start(|_| status(200));
    let down = Receiver::start(|_| status(503));
    let mut post = with(&good, &[webhook("down", &down, "")], &[]);
    load(&mut post, "down", 5_000);
    eventually("a pause", || {
        (state_of(&mut post, "down") == "paused").then_some(())
    });
    load(&mut post, "main", 2_000);
    post.wait_for("transport = 'main' AND state = 'sent'", 2_000);
    assert_eq!(state_of(&mut post, "main"), "healthy");
    assert_eq!(post.count("transport = 'down' AND state = 'sent'"), 0);
    assert!(down.requests() < 300, "{} requests", down.requests());
    // Mail that waits for it is claimed only for a probe.
    assert!(post.count("transport = 'down' AND state = 'claimed'") < 20);
    down.react(|_| status(200));
    post.client
        .batch_execute("SELECT mailroom_wake_worker()")
        .unwrap();
    post.hurry_until_ended(7_000);
    assert_eq!(post.count("state = 'sent'"), 7_000);
    assert_eq!(good.count(), 2_000);
    assert_eq!(down.count(), 5_000);
}

#[test]
fn mail_falls_back_from_a_paused_transport_but_not_what_may_have_been_sent() {
    let backup = Receiver::start(|_| status(200));
    let first = Receiver::start(|request| {
        if request.says("doubtful") {
            Reaction::Close
        } else {
            status(503)
        }
    });
    let mut post = with(&backup, &[webhook("first", &first, "")], &[]);
    post.client
        .batch_execute(
            "INSERT INTO routes (position, kind_pattern, transport, fallback, fallback_after) \
             VALUES (1, 'login%', 'first', 'main', '1 s'), (2, 'news', 'first', NULL, '1 s')",
        )
        .unwrap();
    post.client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'doubtful', 'Text', kind => 'login_code'); \
             SELECT mailroom_send('a@example.com', 'news ' || i, 'Text', kind => 'news') FROM generate_series(1, 30) i",
        )
        .unwrap();
    post.wait_for("subject = 'doubtful' AND ambiguous_attempts > 0", 1);
    eventually("a pause", || {
        (state_of(&mut post, "first") == "paused").then_some(())
    });
    post.client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'code ' || i, 'Text', kind => 'login_code') FROM generate_series(1, 40) i",
        )
        .unwrap();
    post.wait_for("subject LIKE 'code %' AND state = 'sent'", 40);
    assert_eq!(backup.count(), 40);
    assert_eq!(
        post.count("subject LIKE 'code %' AND transport = 'main'"),
        40
    );
    // Mail without a fallback stays, and so does mail that may have been sent.
    assert_eq!(
        post.count("subject LIKE 'news %' AND transport = 'first' AND state <> 'sent'"),
        30
    );
    assert_eq!(
        post.count("subject = 'doubtful' AND transport = 'first'"),
        1
    );
    // An operator may move any scheduled mail.
    post.client
        .batch_execute("SELECT mailroom_reroute('first', 'main')")
        .unwrap();
    post.wait_for("subject LIKE 'news %' AND state = 'sent'", 29);
}

/// I8
#[test]
fn mail_that_may_not_move_to_a_fallback_holds_up_neither_transport() {
    let main = Receiver::start(|_| status(200));
    let down = Receiver::start(|_| status(503));
    let mut post = with(&main, &[webhook("down", &down, "")], &[]);
    post.client
        .batch_execute(
            "INSERT INTO routes (position, kind_pattern, transport, fallback, fallback_after) VALUES (1, 'code', 'down', 'main', '0 s'); \
             CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$; \
             CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW \
             WHEN (OLD.transport <> NEW.transport AND NEW.subject = 'stays') EXECUTE FUNCTION refuse()",
        )
        .unwrap();
    load(&mut post, "down", 30);
    eventually("a pause", || {
        (state_of(&mut post, "down") == "paused").then_some(())
    });
    post.client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'stays', 'Text', kind => 'code'); \
             SELECT mailroom_send('a@example.com', 'moves', 'Text', kind => 'code') FROM generate_series(1, 10)",
        )
        .unwrap();
    load(&mut post, "main", 10);
    post.wait_for("transport = 'main' AND state = 'sent'", 20);
    assert_eq!(post.count("subject = 'stays' AND transport = 'down'"), 1);
    let log = post.log();
    assert!(log.contains("cannot be changed, and waits"), "{log}");
}

#[test]
fn a_transport_that_is_gone_from_the_file_gives_back_what_it_holds() {
    let gate = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&gate);
    let main = Receiver::start(|_| status(200));
    let leaving = Receiver::start(move |_| {
        while !open.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
        status(200)
    });
    let other = webhook("leaving", &leaving, "concurrency = 2");
    let mut post = with(&main, &[other], &[]);
    load(&mut post, "leaving", 100);
    eventually("mail in flight", || (leaving.open() == 2).then_some(()));
    let file = post.transports.render();
    write_secret(&post.cluster, FILE, &file);
    post.reload();
    // All mail but that in flight is released, without an attempt.
    post.wait_for("state = 'scheduled' AND failed_attempts = 0", 98);
    gate.store(true, Ordering::Release);
    post.wait_for("state = 'sent'", 2);
    load(&mut post, "main", 10);
    post.wait_for("state = 'sent'", 12);
    assert_eq!(leaving.count(), 2);
    let moved = "SELECT mailroom_reroute('leaving', 'main')";
    assert_eq!(number(&mut post.client, moved), 98);
    post.wait_for("state = 'sent'", 110);
}

#[test]
fn urgent_mail_goes_first_however_much_waits_for_the_rate() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let urgent = Arc::new(AtomicUsize::new(0));
    let (count, place) = (Arc::clone(&arrived), Arc::clone(&urgent));
    let receiver = Receiver::start(move |request| {
        let number = count.fetch_add(1, Ordering::AcqRel) + 1;
        if request.body.contains("Urgent") {
            place.store(number, Ordering::Release);
        }
        status(200)
    });
    let mut post = Post::start(&receiver, &["transport.rate = 14 messages/s"]);
    post.load(5_000);
    post.wait_for("state = 'sent'", 20);
    post.client
        .batch_execute("SELECT mailroom_send('a@example.com', 'Urgent', 'Text', priority => -10)")
        .unwrap();
    let before = arrived.load(Ordering::Acquire);
    post.wait_for("subject = 'Urgent' AND state = 'sent'", 1);
    // At most as many mails as the rate allows in two seconds were sent before it.
    let others = urgent.load(Ordering::Acquire).saturating_sub(before);
    assert!(others <= 2 * 14, "{others} went before it");
    let held = post.count("state = 'claimed'");
    assert!(held < 200, "{held} are held");
}

/// A worker is stopped for longer than its leases, and then continues: it sends none of the mail that was not in
/// flight.
#[test]
fn a_worker_frozen_beyond_its_lease_duplicates_only_ambiguous_mail() {
    let gate = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&gate);
    let receiver = Receiver::start(move |_| {
        while !open.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
        status(200)
    });
    let settings = ["transport.concurrency = 4", "mailroom.lease = '2s'"];
    let mut post = Post::start(&receiver, &settings);
    post.load(200);
    eventually("mail in flight", || (receiver.open() == 4).then_some(()));
    let held = post.count("state = 'claimed'");
    let worker = post.worker();
    signal("STOP", worker);
    // If `mailroom send` is frozen, the worker takes back the expired claims.
    let lapsed = "state = 'claimed' AND claimed_until < now() OR failed_attempts > 0";
    post.wait_for(lapsed, held);
    // A client claims the mail whose leases have expired, and holds it.
    let mut client = post.cluster.connect("app");
    eventually("all of it to be taken by a client", || {
        let query = "SELECT count(*) FROM mailroom_claim(1000, '1 h', 'client', '{main}')";
        number(&mut client, query);
        let taken = "SELECT count(*) FROM outbox WHERE claimed_by = 'client' AND state = 'claimed'";
        (number(&mut client, taken) == 200).then_some(())
    });
    gate.store(true, Ordering::Release);
    signal("CONT", worker);
    // Mail in flight has arrived, and is settled late. That is recorded, and the client's claims stay in force.
    let late = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'late'";
    eventually("the late settles to be told", || {
        (number(&mut post.client, late) == 4).then_some(())
    });
    assert_eq!(receiver.count(), 4);
    assert_eq!(
        post.count("claimed_by = 'client' AND state = 'claimed'"),
        200
    );
    post.client
        .batch_execute(
            "SELECT mailroom_mark_sent_many(ARRAY(SELECT id FROM outbox WHERE claimed_by = 'client'), claimant => 'client')",
        )
        .unwrap();
    assert_eq!(post.count("state = 'sent'"), 200);
    assert_eq!(receiver.count(), 4, "the worker sent what it had lost");
}

// needs: worker
#[test]
fn those_of_the_worker_stay_however_long_nothing_changes() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = with(&receiver, &[], &[]);
    post.client
        .batch_execute(
            "SELECT _publish_transports(d, '[{\"name\": \"main\", \"provider\": \"log\"}]') \
             FROM unnest(ARRAY['gone', 'mailroom worker/1/0.0']) d; \
             UPDATE deliverers SET updated_at = now() - interval '1 day'; \
             UPDATE transports SET updated_at = now() - interval '1 day'; \
             SELECT mailroom_purge()",
        )
        .unwrap();
    let left = "SELECT count(*) FROM deliverers JOIN transports ON deliverer = deliverers.name";
    assert_eq!(number(&mut post.client, left), 1);
    let worker = post.worker();
    let own = format!(
        "SELECT count(*) FROM deliverers WHERE name LIKE 'mailroom worker/%.' || to_hex({worker})"
    );
    assert_eq!(number(&mut post.client, &own), 1);
    // A new worker removes the rows of the one before.
    signal("TERM", worker);
    post.another_worker(worker);
    eventually("the transports of the new worker alone", || {
        (number(&mut post.client, left) == 1 && number(&mut post.client, &own) == 0).then_some(())
    });
}
