//! Several transports on one thread, with receivers on this machine.

use super::*;

mod single;
mod world;

use world::{Owner, Receiver, file};

#[test]
fn one_that_hangs_or_fails_does_not_slow_the_other() {
    let (hangs, fails, works) = (
        Receiver::start(200),
        Receiver::start(503),
        Receiver::start(200),
    );
    hangs.close();
    let mut owner = Owner::new(file(&[
        ("hangs", hangs.address, ""),
        ("fails", fails.address, ""),
        ("works", works.address, ""),
    ]));
    for name in ["hangs", "fails", "works"] {
        owner.schedule(name, 500);
    }
    owner.until("all are sent", |owner| owner.sent("works") == 500);
    assert_eq!(owner.sent("hangs") + owner.sent("fails"), 0);
    owner.until("it is paused", |owner| {
        owner.state("fails") == Some("paused")
    });
    assert_eq!(owner.names(), ["hangs", "fails", "works"]);
    assert_eq!(owner.state("works"), Some("healthy"));
    let statuses = owner.thread.statuses();
    assert_eq!(statuses[0].1.in_flight, 64);
    assert!(statuses[1].1.paused_since.is_some() && statuses[2].1.paused_since.is_none());
    assert!(owner.news.iter().all(|(name, _)| &**name == "fails"));
    hangs.open();
    owner.until("it goes on", |owner| owner.sent("hangs") == 500);
}

#[test]
fn one_that_leaves_the_file_settles_what_is_in_flight_and_releases_the_rest() {
    let (leaves, stays) = (Receiver::start(200), Receiver::start(200));
    leaves.close();
    let stays_alone = file(&[("stays", stays.address, "")]);
    let mut owner = Owner::new(file(&[
        ("leaves", leaves.address, "concurrency = 4"),
        ("stays", stays.address, ""),
    ]));
    owner.schedule("leaves", 100);
    owner.until("requests are under way", |_| leaves.requests() == 4);
    owner.file = Some(stays_alone);
    owner.configure();
    owner.until("the rest is released", |owner| {
        owner.waiting("leaves") == 96
    });
    assert_eq!(owner.names(), ["stays", "leaves"]);
    owner.schedule("stays", 10);
    owner.until("the other goes on", |owner| owner.sent("stays") == 10);
    leaves.open();
    owner.until("it is gone", |owner| owner.names() == ["stays"]);
    assert_eq!((owner.sent("leaves"), leaves.requests()), (4, 4));
}

#[test]
fn one_that_comes_back_while_it_leaves_goes_on() {
    let receiver = Receiver::start(200);
    receiver.close();
    let content = file(&[("a", receiver.address, "concurrency = 2")]);
    let mut owner = Owner::new(content.clone());
    owner.schedule("a", 20);
    owner.until("requests are under way", |_| receiver.requests() == 2);
    owner.file = Some(String::new());
    owner.configure();
    owner.until("the rest is released", |owner| owner.waiting("a") == 18);
    owner.file = Some(content);
    owner.configure();
    receiver.open();
    owner.until("all are sent", |owner| owner.sent("a") == 20);
    assert_eq!(receiver.requests(), 20);
    owner.file = Some(String::new());
    owner.configure();
    owner.until("it is gone", |owner| owner.names().is_empty());
}

#[test]
fn a_probe_goes_with_the_file_as_it_is_then_or_as_it_was() {
    let (gone, works) = (Receiver::start(410), Receiver::start(200));
    let mut owner = Owner::new(file(&[("a", gone.address, "")]));
    owner.schedule("a", 3);
    owner.until("it is paused", |owner| owner.state("a") == Some("paused"));
    // The file cannot be read: the old settings are tried.
    owner.file = None;
    let (asked, requests) = (owner.asked, gone.requests());
    owner.until("it is probed", |owner| {
        owner.asked > asked && gone.requests() > requests
    });
    assert_eq!(owner.sent("a"), 0);
    // Without a reload.
    owner.file = Some(file(&[("a", works.address, "")]));
    owner.until("all are sent", |owner| owner.sent("a") == 3);
    assert_eq!(owner.state("a"), Some("healthy"));
    assert_eq!(works.requests(), 3);
}

#[test]
fn probes_of_several_ask_for_the_file_once() {
    let (a, b) = (Receiver::start(410), Receiver::start(410));
    let mut owner = Owner::new(file(&[("a", a.address, ""), ("b", b.address, "")]));
    owner.schedule("a", 1);
    owner.schedule("b", 1);
    owner.is_slow_to_configure = true;
    owner.until("both are paused", |owner| {
        owner.state("a") == Some("paused") && owner.state("b") == Some("paused")
    });
    let requests = (a.requests(), b.requests());
    owner.thread.hurry();
    owner.until("the file is asked for", |owner| owner.asked == 1);
    owner.pass(Duration::from_millis(50));
    owner.thread.hurry();
    owner.pass(Duration::from_millis(50));
    assert_eq!(owner.asked, 1);
    assert_eq!((a.requests(), b.requests()), requests);
    owner.is_slow_to_configure = false;
    owner.configure();
    owner.until("both are probed", |_| {
        a.requests() > requests.0 && b.requests() > requests.1
    });
}

#[test]
fn healthy_ones_are_told_of_those_that_are_paused_and_look_while_they_are() {
    let (gone, works) = (Receiver::start(410), Receiver::start(200));
    let mut owner = Owner::new(file(&[
        ("gone", gone.address, ""),
        ("works", works.address, ""),
        ("gone2", gone.address, ""),
    ]));
    owner.schedule("works", 3);
    owner.until("they are sent", |owner| owner.sent("works") == 3);
    owner.pass(Duration::from_millis(50));
    assert!(owner.claims.iter().all(|(_, paused)| paused.is_empty()));
    let idle = owner.claims.len();
    owner.pass(Duration::from_millis(200));
    assert_eq!(owner.claims.len(), idle, "nothing is claimed when idle");
    owner.schedule("gone", 1);
    let told = |owner: &Owner| -> Vec<Duration> {
        let all = owner.claims.iter();
        all.filter(|(name, paused)| {
            &**name == "works" && paused.first().is_some_and(|(first, _)| &**first == "gone")
        })
        .map(|(_, paused)| paused[0].1)
        .collect()
    };
    owner.until("the other is told", |owner| !told(owner).is_empty());
    assert_eq!(owner.state("gone"), Some("paused"));
    // A second one is told of at once, too.
    owner.schedule("gone2", 1);
    let second = |owner: &Owner| -> Option<Duration> {
        let mut both = owner.claims.iter().filter(|(_, paused)| paused.len() == 2);
        both.next().map(|(_, paused)| paused[1].1)
    };
    owner.until("the second one is told of", |owner| second(owner).is_some());
    assert!(second(&owner) < Some(Duration::from_secs(2)));
    owner.until("and again", |owner| {
        told(owner).last() >= Some(&Duration::from_secs(5))
    });
    // Each looks, and what is paused is told of no other.
    assert!(told(&owner).len() <= 6, "{:?}", told(&owner));
    assert!(
        owner
            .claims
            .iter()
            .all(|(name, paused)| &**name != "gone" || paused.is_empty())
    );
    gone.answer(200);
    owner.until("both work again", |owner| {
        owner.sent("gone") == 1 && owner.sent("gone2") == 1
    });
    owner.pass(Duration::from_millis(50));
    let told_before = told(&owner).len();
    owner.schedule("works", 1);
    owner.until("it is sent", |owner| owner.sent("works") == 4);
    assert_eq!(told(&owner).len(), told_before);
}

#[test]
fn after_a_stop_all_of_them_rest_with_nothing_claimed() {
    let (slow, works) = (Receiver::start(200), Receiver::start(200));
    slow.close();
    let mut owner = Owner::new(file(&[
        ("slow", slow.address, "concurrency = 1"),
        ("works", works.address, ""),
    ]));
    owner.schedule("slow", 5);
    owner.schedule("works", 5);
    owner.until("they are sent", |owner| owner.sent("works") == 5);
    owner.until("one is under way", |_| slow.requests() == 1);
    // A claim that the stop overtakes.
    owner.schedule("works", 5);
    let mut late = Vec::new();
    let began = Instant::now();
    while late.is_empty() && began.elapsed() < Duration::from_secs(10) {
        late = owner.exchanges();
    }
    owner.thread.stop();
    slow.open();
    owner.until("the slow one is done", |owner| owner.sent("slow") == 1);
    assert!(!owner.thread.is_resting());
    for job in late {
        owner.exchange(job);
    }
    owner.until("all rest", |owner| owner.thread.is_resting());
    assert_eq!(owner.waiting("slow") + owner.waiting("works"), 4 + 5);
    assert_eq!((slow.requests(), works.requests()), (1, 5));
    // Nothing is set up any more.
    owner.configure();
    assert!(!owner.thread.has_failed());
}

#[test]
fn without_any_transport_there_is_nothing_to_wait_for() {
    let mut owner = Owner::new(String::new());
    owner.thread.look(true);
    owner.thread.allow(false);
    owner.thread.in_force(HashSet::from([1]));
    owner.thread.stop();
    owner.until("it rests", |owner| owner.thread.is_resting());
    assert!(owner.names().is_empty());
}
