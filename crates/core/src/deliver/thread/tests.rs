//! Several transports on one thread, with receivers on this machine.

use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::deliver::events::LogEvent;

mod fallback;
mod single;
mod world;

use world::{Receiver, TestRunner, file};

#[test]
fn one_that_hangs_or_fails_does_not_slow_the_other() {
    let (hangs, fails, works) = (
        Receiver::start(200),
        Receiver::start(503),
        Receiver::start(200),
    );
    hangs.close();
    let mut runner = TestRunner::new(file(&[
        ("hangs", hangs.address, ""),
        ("fails", fails.address, ""),
        ("works", works.address, ""),
    ]));
    for name in ["hangs", "fails", "works"] {
        runner.schedule(name, 500);
    }
    runner.until("all are sent", |runner| runner.sent("works") == 500);
    assert_eq!(runner.sent("hangs") + runner.sent("fails"), 0);
    runner.until("it is paused", |runner| {
        runner.state("fails") == Some("paused")
    });
    assert_eq!(runner.names(), ["hangs", "fails", "works"]);
    assert_eq!(runner.state("works"), Some("healthy"));
    let statuses = runner.thread.statuses();
    assert_eq!(hangs.requests(), 64);
    assert!(statuses[1].1.state == "paused" && statuses[2].1.state != "paused");
    assert!(runner.log.iter().all(|(name, _)| &**name == "fails"));
    hangs.open();
    runner.until("it goes on", |runner| runner.sent("hangs") == 500);
}

#[test]
fn one_that_leaves_the_file_settles_what_is_in_flight_and_releases_the_rest() {
    let (leaves, stays) = (Receiver::start(200), Receiver::start(200));
    leaves.close();
    let stays_alone = file(&[("stays", stays.address, "")]);
    let mut runner = TestRunner::new(file(&[
        ("leaves", leaves.address, "concurrency = 4"),
        ("stays", stays.address, ""),
    ]));
    runner.schedule("leaves", 100);
    runner.until("requests are under way", |_| leaves.requests() == 4);
    runner.file = Some(stays_alone);
    runner.configure();
    runner.until("the rest is released", |runner| {
        runner.waiting("leaves") == 96
    });
    assert_eq!(runner.names(), ["stays", "leaves"]);
    runner.schedule("stays", 10);
    runner.until("the other goes on", |runner| runner.sent("stays") == 10);
    leaves.open();
    runner.until("it is gone", |runner| runner.names() == ["stays"]);
    assert_eq!((runner.sent("leaves"), leaves.requests()), (4, 4));
}

#[test]
fn one_that_comes_back_while_it_leaves_goes_on() {
    let receiver = Receiver::start(200);
    receiver.close();
    let content = file(&[("a", receiver.address, "concurrency = 2")]);
    let mut runner = TestRunner::new(content.clone());
    runner.schedule("a", 20);
    runner.until("requests are under way", |_| receiver.requests() == 2);
    runner.file = Some(String::new());
    runner.configure();
    runner.until("the rest is released", |runner| runner.waiting("a") == 18);
    runner.file = Some(content);
    runner.configure();
    receiver.open();
    runner.until("all are sent", |runner| runner.sent("a") == 20);
    assert_eq!(receiver.requests(), 20);
    runner.file = Some(String::new());
    runner.configure();
    runner.until("it is gone", |runner| runner.names().is_empty());
}

#[test]
fn a_probe_goes_with_the_file_as_it_is_then_or_as_it_was() {
    let (gone, works) = (Receiver::start(410), Receiver::start(200));
    let mut runner = TestRunner::new(file(&[("a", gone.address, "")]));
    runner.schedule("a", 3);
    runner.until("it is paused", |runner| runner.state("a") == Some("paused"));
    // The file cannot be read: the old settings are tried.
    runner.file = None;
    let (asked, requests) = (runner.asked, gone.requests());
    runner.until("it is probed", |runner| {
        runner.asked > asked && gone.requests() > requests
    });
    assert_eq!(runner.sent("a"), 0);
    // Without a reload.
    runner.file = Some(file(&[("a", works.address, "")]));
    runner.until("all are sent", |runner| runner.sent("a") == 3);
    assert_eq!(runner.state("a"), Some("healthy"));
    assert_eq!(works.requests(), 3);
}

#[test]
fn a_probe_applies_a_changed_section_and_keeps_the_connections_of_others() {
    let (gone, works) = (Receiver::start(410), Receiver::start(200));
    let of_gone = file(&[("gone", gone.address, "")]);
    let of_works = file(&[("works", works.address, "concurrency = 1")]);
    let mut runner = TestRunner::new(format!("{of_gone}{of_works}"));
    runner.schedule("gone", 1);
    runner.schedule("works", 1);
    runner.until("one is paused, the other works", |runner| {
        runner.state("gone") == Some("paused") && runner.sent("works") == 1
    });
    let asked = runner.asked;
    runner.until("one is probed", |runner| runner.asked > asked);
    runner.schedule("works", 1);
    runner.until("it is sent", |runner| runner.sent("works") == 2);
    assert_eq!(works.connections(), 1);
    // Of the same account, with another client.
    let changed = of_works.replace("[\"127.0.0.1\"]", "[\"10.0.0.0/8\"]");
    runner.file = Some(of_gone + &changed);
    let asked = runner.asked;
    runner.until("one is probed again", |runner| runner.asked > asked);
    runner.schedule("works", 1);
    runner.until("the new networks hold", |runner| {
        runner.state("works") == Some("paused")
    });
    assert_eq!((works.connections(), works.requests()), (1, 2));
}

#[test]
fn probes_of_several_ask_for_the_file_once() {
    let (a, b) = (Receiver::start(410), Receiver::start(410));
    let mut runner = TestRunner::new(file(&[("a", a.address, ""), ("b", b.address, "")]));
    runner.schedule("a", 1);
    runner.schedule("b", 1);
    runner.is_slow_to_configure = true;
    runner.until("both are paused", |runner| {
        runner.state("a") == Some("paused") && runner.state("b") == Some("paused")
    });
    let requests = (a.requests(), b.requests());
    runner.thread.retry_now();
    runner.until("the file is asked for", |runner| runner.asked == 1);
    runner.pass(Duration::from_millis(50));
    runner.thread.retry_now();
    runner.pass(Duration::from_millis(50));
    assert_eq!(runner.asked, 1);
    assert_eq!((a.requests(), b.requests()), requests);
    runner.is_slow_to_configure = false;
    runner.configure();
    runner.until("both are probed", |_| {
        a.requests() > requests.0 && b.requests() > requests.1
    });
}

#[test]
fn healthy_ones_are_told_of_those_that_are_paused_and_look_while_they_are() {
    let (gone, works) = (Receiver::start(410), Receiver::start(200));
    let mut runner = TestRunner::new(file(&[
        ("gone", gone.address, ""),
        ("works", works.address, ""),
        ("gone2", gone.address, ""),
    ]));
    runner.schedule("works", 3);
    runner.until("they are sent", |runner| runner.sent("works") == 3);
    runner.pass(Duration::from_millis(50));
    assert!(runner.claims.iter().all(|(_, paused)| paused.is_empty()));
    let idle = runner.claims.len();
    runner.pass(Duration::from_millis(200));
    assert_eq!(runner.claims.len(), idle, "nothing is claimed when idle");
    runner.schedule("gone", 1);
    let told = |runner: &TestRunner| -> Vec<Duration> {
        let all = runner.claims.iter();
        all.filter(|(name, paused)| {
            &**name == "works" && paused.first().is_some_and(|(first, _)| &**first == "gone")
        })
        .map(|(_, paused)| paused[0].1)
        .collect()
    };
    runner.until("the other is told", |runner| !told(runner).is_empty());
    assert_eq!(runner.state("gone"), Some("paused"));
    // A second one is told of at once, too.
    runner.schedule("gone2", 1);
    let second = |runner: &TestRunner| -> Option<Duration> {
        let mut both = runner.claims.iter().filter(|(_, paused)| paused.len() == 2);
        both.next().map(|(_, paused)| paused[1].1)
    };
    runner.until("the second one is told of", |runner| {
        second(runner).is_some()
    });
    assert!(second(&runner) < Some(Duration::from_secs(2)));
    runner.until("and again", |runner| {
        told(runner).last() >= Some(&Duration::from_secs(5))
    });
    // Each looks, and what is paused is told of no other.
    assert!(told(&runner).len() <= 6, "{:?}", told(&runner));
    assert!(
        runner
            .claims
            .iter()
            .all(|(name, paused)| &**name != "gone" || paused.is_empty())
    );
    gone.answer(200);
    runner.until("both work again", |runner| {
        runner.sent("gone") == 1 && runner.sent("gone2") == 1
    });
    runner.pass(Duration::from_millis(50));
    let told_before = told(&runner).len();
    runner.schedule("works", 1);
    runner.until("it is sent", |runner| runner.sent("works") == 4);
    assert_eq!(told(&runner).len(), told_before);
}

#[test]
fn after_a_stop_all_of_them_rest_with_nothing_claimed() {
    let (slow, works) = (Receiver::start(200), Receiver::start(200));
    slow.close();
    let mut runner = TestRunner::new(file(&[
        ("slow", slow.address, "concurrency = 1"),
        ("works", works.address, ""),
    ]));
    runner.schedule("slow", 5);
    runner.schedule("works", 5);
    runner.until("they are sent", |runner| runner.sent("works") == 5);
    runner.until("one is under way", |_| slow.requests() == 1);
    // A claim that the stop overtakes.
    runner.schedule("works", 5);
    let mut late = Vec::new();
    let began = Instant::now();
    while late.is_empty() && began.elapsed() < Duration::from_secs(10) {
        late = runner.exchanges();
    }
    runner.thread.stop();
    slow.open();
    runner.until("the slow one is done", |runner| runner.sent("slow") == 1);
    assert!(!runner.thread.has_stopped());
    for job in late {
        runner.exchange(job);
    }
    runner.until("all rest", |runner| runner.thread.has_stopped());
    assert_eq!(runner.waiting("slow") + runner.waiting("works"), 4 + 5);
    assert_eq!((slow.requests(), works.requests()), (1, 5));
    // Nothing is set up any more.
    runner.configure();
    assert!(!runner.thread.has_failed());
}

#[test]
fn without_any_transport_there_is_nothing_to_wait_for() {
    let mut runner = TestRunner::new(String::new());
    runner.thread.mail_due(true);
    runner.thread.allow_sending(false);
    runner.thread.keep_claims(HashSet::from([1]));
    runner.thread.stop();
    runner.until("it rests", |runner| runner.thread.has_stopped());
    assert!(runner.names().is_empty());
}

/// Stops while three mails are under way, and returns how many of them may have been sent.
fn ambiguous_after_stop(file: String, are_under_way: impl Fn() -> bool) -> i32 {
    let mut runner = TestRunner::new(file);
    runner.schedule("a", 3);
    runner.until("all are under way", |_| are_under_way());
    runner.thread.stop();
    runner.thread.abandon_requests();
    runner.until("it rests", |runner| runner.thread.has_stopped());
    assert_eq!((runner.sent("a"), runner.waiting("a")), (0, 3));
    let waiting = runner.waiting["a"].iter();
    waiting.map(|mail| mail.ambiguous_attempts).sum()
}

#[test]
fn only_mail_that_was_written_may_have_been_sent_when_the_worker_stops() {
    let hangs = Receiver::start(200);
    hangs.close();
    let written = file(&[("a", hangs.address, "")]);
    assert_eq!(ambiguous_after_stop(written, || hangs.requests() == 3), 3);
    // It takes no part in the TLS handshake.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let address = silent.local_addr().unwrap();
    let waits = file(&[("a", address, "")]).replace("http:", "https:");
    let connections = Mutex::new(Vec::new());
    let are_connecting = || {
        let mut connections = connections.lock().unwrap();
        connections.extend(silent.accept());
        connections.len() == 3
    };
    assert_eq!(ambiguous_after_stop(waits, are_connecting), 0);
}

/// Starts a server that accepts each request, and never ends the body of its response.
fn start_without_end() -> std::net::SocketAddr {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut streams = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let head = BufReader::new(stream.try_clone().unwrap()).lines();
            head.map_while(Result::ok).find(String::is_empty);
            let answer = "HTTP/1.1 202 Accepted\r\ncontent-length: 1000\r\n\r\n{";
            stream.write_all(answer.as_bytes()).unwrap();
            streams.push(stream);
        }
    });
    address
}

#[test]
fn the_head_of_a_response_settles_a_single_mail_even_if_the_body_never_comes() {
    let address = start_without_end();
    let mut runner = TestRunner::new(format!(
        "[transports.a]\nprovider = \"sendgrid\"\napi_key = \"x\"\nfrom = \"a@example.com\"\n\
         endpoint = \"http://{address}/\"\nallowed_networks = [\"127.0.0.1\"]\n"
    ));
    runner.schedule("a", 1);
    // It does not wait for the timeout, which is a minute.
    runner.until("it is sent", |runner| runner.sent("a") == 1);
    runner.schedule("a", 1);
    runner.pass(Duration::from_secs(2));
    runner.thread.stop();
    runner.thread.abandon_requests();
    runner.until("it rests", |runner| runner.thread.has_stopped());
    assert_eq!((runner.sent("a"), runner.waiting("a")), (2, 0));
}
