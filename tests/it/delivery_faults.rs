//! Sudden and orderly ends while mail is under way: nothing is lost, and little goes out twice (I1, I2).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cluster::{Halts, eventually, number, signal};
use crate::post::Post;
use crate::receiver::{Reaction, Receiver, status};

/// How often each message was accepted more than once, in all.
fn repeats(accepted: &[String]) -> usize {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for id in accepted {
        *times.entry(id).or_default() += 1;
    }
    accepted.len() - times.len()
}

/// A receiver that answers so many requests, and has the others wait for more.
fn answering_as_many_as_told() -> (Receiver, Arc<AtomicUsize>) {
    let quota = Arc::new(AtomicUsize::new(0));
    let left = Arc::clone(&quota);
    let receiver = Receiver::start(move |_| {
        while left
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1))
            .is_err()
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        status(200)
    });
    (receiver, quota)
}

/// I1, I2: what goes out twice is what a worker that was killed had not settled, and nothing else.
#[test]
fn killed_again_and_again_nothing_is_lost_and_little_is_sent_twice() {
    const KILLS: usize = 4;
    const MAILS: i64 = 1_500;
    // So many until the next kill; the rest are under way by then.
    let (receiver, quota) = answering_as_many_as_told();
    // For the program, which waits for the leases of one that was killed.
    let settings = ["transport.concurrency = 16", "mailroom.lease = '5s'"];
    let mut post = Post::start(&receiver, &settings);
    post.load(MAILS);
    let mut unsettled = 0;
    for _ in 0..KILLS {
        let before = receiver.count();
        quota.store(100, Ordering::Release);
        eventually("mail to go out", || {
            (receiver.count() >= before + 100 && receiver.open() > 0).then_some(())
        });
        post.kill();
        // Nobody is answered until the next round: what was accepted and is not on record will go out again, and so may
        // what is still open.
        let accepted: HashSet<String> = receiver.accepted().into_iter().collect();
        let sent = usize::try_from(post.count("state = 'sent'")).unwrap();
        assert!(sent <= accepted.len(), "more is on record than went out");
        unsettled += accepted.len() - sent + receiver.open();
    }
    quota.store(usize::MAX, Ordering::Release);
    post.wait_for("state = 'sent'", MAILS);
    let mut accepted = receiver.accepted();
    let twice = repeats(&accepted);
    assert!(
        twice <= unsettled,
        "{twice} repeats, {unsettled} were not settled"
    );
    accepted.sort();
    accepted.dedup();
    assert_eq!(accepted.len() as i64, MAILS);
}

/// Tells a worker to stop while requests are under way, and has them answered after it knows; returns whether the
/// machine gave it the two seconds that it waits for the answers.
fn stop_with_requests_under_way() -> bool {
    let (receiver, quota) = answering_as_many_as_told();
    let settings = ["transport.concurrency = 4", "transport.timeout = '10min'"];
    let mut post = Post::start(&receiver, &settings);
    post.send(200);
    eventually("mail under way", || (receiver.open() >= 4).then_some(()));
    let worker = post.worker();
    let claimant = "SELECT DISTINCT claimed_by FROM outbox WHERE state = 'claimed'";
    let claimant: String = post.client.query_one(claimant, &[]).unwrap().get(0);
    let halts = Halts::watch();
    signal("TERM", worker);
    eventually("the signal to be taken", || {
        // Where there is no such process any more, the signal was taken, too.
        let path = format!("/proc/{worker}/status");
        let Ok(status) = std::fs::read_to_string(path) else {
            return Some(());
        };
        let pending = status.lines().find(|line| line.starts_with("ShdPnd:"))?;
        pending.ends_with("0000000000000000").then_some(())
    });
    // By then a worker that waits for nothing is gone, and one that goes on handing over has done it.
    std::thread::sleep(Duration::from_millis(300));
    let under_way = receiver.requests();
    quota.store(under_way, Ordering::Release);
    eventually("the worker to go", || {
        (!std::path::Path::new(&format!("/proc/{worker}")).exists()).then_some(())
    });
    if halts.longest() > Duration::from_millis(500) {
        return false;
    }
    quota.store(usize::MAX, Ordering::Release);
    post.wait_until_ended(200);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 200);
    assert_eq!(
        post.count(&format!("claimed_by = '{claimant}'")),
        under_way as i64,
        "it waits for what is under way and hands over no more"
    );
    assert_eq!(receiver.count(), 200, "some went out twice");
    true
}

#[test]
fn told_to_stop_it_waits_for_what_is_under_way_and_gives_back_the_rest() {
    // On a machine that stood still for half a second it may have given up on some: then once more.
    let undisturbed = (0..20).any(|_| stop_with_requests_under_way());
    assert!(undisturbed, "the machine does not run what it has to");
}

#[test]
fn a_cancel_while_mail_is_under_way_takes_nothing_from_it() {
    let receiver = Receiver::start(|_| Reaction::Late(Duration::from_secs(1), 200));
    let mut post = Post::start(&receiver, &[]);
    post.send(20);
    eventually("mail under way", || (receiver.open() >= 20).then_some(()));
    let (worker, backend) = (post.worker(), post.backend());
    post.client
        .execute("SELECT pg_cancel_backend($1)", &[&backend])
        .unwrap();
    post.wait_until_ended(20);
    assert_eq!(post.worker(), worker);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 20);
    assert_eq!(receiver.requests(), 20, "nothing twice");
}

#[test]
fn what_is_not_answered_in_time_does_not_keep_the_server_from_stopping() {
    let receiver = Receiver::start(|_| Reaction::Hang);
    let mut post = Post::start(&receiver, &["transport.timeout = '60s'"]);
    post.send(100);
    eventually("mail under way", || (receiver.open() >= 64).then_some(()));
    post.stop_promptly(Duration::from_secs(20));
    post.start_again();
    receiver.react(|_| status(200));
    // It was under way without an answer: an attempt, told as such.
    let unknown = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'ambiguous'";
    assert!(number(&mut post.client, unknown) >= 64);
    post.hurry_until_ended(100);
    assert_eq!(post.count("state = 'sent'"), 100);
}

#[test]
fn leases_of_what_is_under_way_for_long_are_extended() {
    let receiver = Receiver::start(|_| Reaction::Late(Duration::from_secs(5), 200));
    let settings = ["mailroom.lease = '2s'", "transport.timeout = '60s'"];
    let mut post = Post::start(&receiver, &settings);
    post.send(3);
    post.wait_until_ended(3);
    assert_eq!(post.count("state = 'sent' AND failed_attempts = 0"), 3);
    assert_eq!(receiver.requests(), 3, "nothing twice");
}

/// I8: a row that cannot be settled hurts only itself.
#[test]
fn a_mail_that_cannot_be_settled_keeps_no_other_from_it() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &["mailroom.lease = '1h'"]);
    post.client
        .batch_execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE check_violation USING MESSAGE = 'not this one'; END $$; \
             CREATE TRIGGER refuse AFTER UPDATE OF state ON outbox FOR EACH ROW \
             WHEN (NEW.state = 'sent' AND NEW.subject = 'Hello 3') EXECUTE FUNCTION refuse()",
        )
        .unwrap();
    post.send(10);
    post.wait_for("state = 'sent'", 9);
    post.send(2);
    post.wait_for("state = 'sent'", 11);
    assert_eq!(post.count("state = 'claimed'"), 1);
    assert!(post.log().contains("could not settle 1 mails"));
}

#[test]
fn answers_that_come_while_nothing_can_be_settled_wait_without_a_busy_worker() {
    const MAILS: usize = 31;
    let (receiver, quota) = answering_as_many_as_told();
    let settings = ["mailroom.lease = '1h'", "transport.timeout = '10min'"];
    let mut post = Post::start(&receiver, &settings);
    post.send(MAILS as i64);
    eventually("all requests to be under way", || {
        (receiver.requests() == MAILS).then_some(())
    });
    // A sequence counts what is rolled back, too.
    post.client
        .batch_execute(
            "CREATE SEQUENCE tries; \
             CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS \
             $$ BEGIN PERFORM nextval('public.tries'); RAISE insufficient_privilege; END $$; \
             CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH STATEMENT EXECUTE FUNCTION refuse()",
        )
        .unwrap();
    quota.store(1, Ordering::Release);
    eventually("the failure", || {
        let log = post.log();
        log.contains("could not claim or settle mail").then_some(())
    });
    // It tries again after one, two, four seconds, and so on. Meanwhile the other answers come, one after the other.
    for answers in 2..=MAILS {
        quota.store(1, Ordering::Release);
        eventually("the answer to be there", || {
            (receiver.count() == answers).then_some(())
        });
        std::thread::sleep(Duration::from_millis(100));
    }
    let tried = number(&mut post.client, "SELECT last_value FROM tries");
    assert!(
        tried <= 10,
        "{tried} tries while {MAILS} answers came: these drive it"
    );
    post.client
        .batch_execute("DROP TRIGGER refuse ON outbox")
        .unwrap();
    post.wait_for("state = 'sent' AND failed_attempts = 0", MAILS as i64);
    assert_eq!(receiver.requests(), MAILS, "nothing twice");
}

#[test]
fn a_server_stops_promptly_under_load() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &[]);
    post.load(20_000);
    eventually("mail to go out", || (receiver.count() > 100).then_some(()));
    post.stop_promptly(Duration::from_secs(20));
    let count = receiver.count();
    post.start_again();
    // All that was accepted by then was settled before the end, as sent or as what may have been.
    assert!(post.count("state = 'sent' OR failed_attempts > 0") >= count as i64);
}

// needs: worker
#[test]
fn dropping_the_extension_while_mail_is_under_way_ends_the_worker() {
    let receiver = Receiver::start(|_| Reaction::Late(Duration::from_millis(200), 200));
    let mut post = Post::start(&receiver, &[]);
    post.send(500);
    eventually("mail under way", || (receiver.open() >= 10).then_some(()));
    post.client
        .batch_execute("DROP EXTENSION mailroom")
        .unwrap();
    eventually("the worker to go", || {
        crate::cluster::find_worker(&mut post.client)
            .is_none()
            .then_some(())
    });
    post.client
        .batch_execute("CREATE EXTENSION mailroom")
        .unwrap();
    receiver.react(|_| status(200));
    post.send(5);
    post.wait_until_ended(5);
}
