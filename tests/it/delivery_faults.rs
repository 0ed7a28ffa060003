//! Crashes and orderly stops while mail is in flight: no mail is lost, and few are sent twice (I1, I2).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cluster::{Halts, eventually, number, signal};
use crate::post::Post;
use crate::queue::refusals::BAD_AND_DEFERRED;
use crate::receiver::{Reaction, Receiver, status};

/// Number of requests that were accepted for messages that had been accepted before.
fn repeats(accepted: &[String]) -> usize {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for id in accepted {
        *times.entry(id).or_default() += 1;
    }
    accepted.len() - times.len()
}

/// Returns a receiver, and the number of requests that it may still answer; other requests wait until that is raised.
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

/// A deferred trigger of the application fires at COMMIT, where no row can be passed by.
#[test]
fn a_mail_that_a_deferred_trigger_refuses_holds_up_no_other() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &[]);
    post.client.batch_execute(BAD_AND_DEFERRED).unwrap();
    post.wait_for("state = 'sent' AND subject = 'good'", 2);
    assert_eq!(post.count("state = 'scheduled'"), 1);
}

/// I1, I2: only mail that a killed worker had not settled is sent twice.
#[test]
fn killed_again_and_again_nothing_is_lost_and_little_is_sent_twice() {
    const KILLS: usize = 4;
    const MAILS: i64 = 1_500;
    // The receiver answers 100 requests before each kill; others are in flight by then.
    let (receiver, quota) = answering_as_many_as_told();
    // For `mailroom send`, which waits until the leases of a killed predecessor have expired.
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
        // No request is answered until the next round. Mail that was accepted and is not settled will be sent again,
        // and open requests may be.
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

/// Tells a worker to stop while requests are in flight, and has them answered after it knows. Returns false if the
/// machine stood still for so long that the worker may have given up on responses (mailroom.stop_grace).
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
        // If the process is gone, it has handled the signal too.
        let path = format!("/proc/{worker}/status");
        let Ok(status) = std::fs::read_to_string(path) else {
            return Some(());
        };
        let pending = status.lines().find(|line| line.starts_with("ShdPnd:"))?;
        pending.ends_with("0000000000000000").then_some(())
    });
    // After this time a worker that does not wait for responses is gone, and one that continues to send has sent more.
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
    // Repeated if the machine stood still for half a second, because the worker may have given up on responses then.
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
    // Mail in flight without a response counts as an ambiguous attempt.
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

/// I8: a row that cannot be settled affects no other.
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
    // A sequence also counts tries that are rolled back.
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
    // The worker retries after 1, 2, 4 s and so on. The other responses arrive one by one in that time.
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
    // All accepted mail was settled before the end, as sent or as ambiguous.
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
