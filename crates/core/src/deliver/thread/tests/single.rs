//! Transports that take one message at a time: a relay, a directory, the log.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use serde_json::{Value, json};

use super::world::TestRunner;
use super::*;
use crate::deliver::fixture::mail;
use crate::transport::smtp::tests::server::{CLOSE, Script, Seen, start};

/// Starts a scripted server on a thread of its own.
fn serve(script: Script) -> (u16, Arc<Seen>) {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        new_runtime().unwrap().block_on(async {
            sender.send(start(script).await).unwrap();
            std::future::pending::<()>().await;
        });
    });
    receiver.recv().unwrap()
}

/// A transports file with one relay on this machine.
fn relay(port: u16) -> String {
    format!(
        "[transports.a]\nprovider = \"smtp\"\nhost = \"127.0.0.1\"\nport = {port}\ntls = \"none\"\n\
         from = \"Shop <shop@example.com>\"\nallowed_networks = [\"127.0.0.1\"]\nconcurrency = 3\n"
    )
}

/// A directory of its own, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("mailroom-thread-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn into(directory: &Path) -> String {
    format!(
        "[transports.a]\nprovider = \"file\"\nfrom = \"shop@example.com\"\ndirectory = \"{}\"\n",
        directory.display()
    )
}

/// A mail without a body, which no transport can send.
fn schedule_unsendable(runner: &mut TestRunner, id: i64) {
    let mut empty = mail(id);
    empty.message.body_text = None;
    let waiting = runner.waiting.entry("a".to_owned()).or_default();
    waiting.push_back(empty);
    runner.thread.mail_due(false);
}

#[test]
fn a_relay_gets_one_message_a_transaction_over_few_connections() {
    let (port, seen) = serve(Script::default());
    let mut runner = TestRunner::new(relay(port));
    runner.schedule("a", 200);
    runner.until("all are sent", |runner| runner.sent("a") == 200);
    assert_eq!(seen.mails(), 200);
    assert!((1..=3).contains(&seen.connections()));
    schedule_unsendable(&mut runner, 1_000);
    runner.until("it ended", |runner| !runner.ended.is_empty());
    assert_eq!(runner.ended, [(1_000, "there is no body".to_owned())]);
    assert_eq!(runner.state("a"), Some("healthy"));
    let ended = LogEvent::Failed(1, "there is no body".to_owned());
    runner.until("it is told", |runner| !runner.log.is_empty());
    assert_eq!(runner.log, [("a".into(), ended)]);
}

#[test]
fn refused_recipients_of_a_sent_mail_are_settled_and_told_without_addresses() {
    let (port, _) = serve(Script {
        says: |_, _, line| {
            line.starts_with("RCPT TO:<x")
                .then_some("550 5.1.1 x@example.com")
        },
        ..Script::default()
    });
    let mut runner = TestRunner::new(relay(port));
    let mut mail = mail(7);
    mail.message.cc = vec!["x1@example.com".to_owned(), "x2@example.com".to_owned()];
    runner
        .waiting
        .entry("a".to_owned())
        .or_default()
        .push_back(mail);
    runner.thread.mail_due(false);
    runner.until("it is sent", |runner| runner.sent("a") == 1);
    let news = LogEvent::RecipientsRefused {
        id: 7,
        count: 2,
        reason: "smtp 550 5.1.1".to_owned(),
    };
    assert_eq!(runner.log, [("a".into(), news)]);
    let refused = |address: &str| json!({"recipient": address, "response_code": 550, "error": "smtp 550 5.1.1", "is_permanent": true});
    let settled: Value = serde_json::from_str(&runner.refused[0]).unwrap();
    let expected = json!([refused("x1@example.com"), refused("x2@example.com")]);
    assert_eq!(settled, expected);
    // All that go to everybody settle nothing of the kind.
    runner.schedule("a", 1);
    runner.until("it is sent", |runner| runner.sent("a") == 2);
    assert_eq!(runner.refused.len(), 1);
}

#[test]
fn a_relay_that_is_not_there_or_closes_pauses_the_transport() {
    let (port, seen) = serve(Script {
        says: |_, _, line| (line == "connect").then_some(CLOSE),
        ..Script::default()
    });
    let mut runner = TestRunner::new(relay(port));
    runner.schedule("a", 100);
    runner.until("it is paused", |runner| runner.state("a") == Some("paused"));
    assert_eq!((runner.sent("a"), seen.mails()), (0, 0));
    let (port, seen) = serve(Script::default());
    runner.file = Some(relay(port));
    runner.configure();
    runner.until("all are sent", |runner| runner.sent("a") == 100);
    assert_eq!(seen.mails(), 100);
}

#[test]
fn mail_that_waits_for_a_connection_when_the_worker_stops_was_not_sent() {
    // Accepts connections and never speaks.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let port = silent.local_addr().unwrap().port();
    let mut runner = TestRunner::new(relay(port));
    runner.schedule("a", 3);
    let connections = RefCell::new(Vec::new());
    runner.until("all are under way", |_| {
        let mut connections = connections.borrow_mut();
        connections.extend(silent.accept());
        connections.len() == 3
    });
    runner.thread.stop();
    runner.thread.abandon_requests();
    runner.until("it rests", |runner| runner.thread.has_stopped());
    assert_eq!((runner.sent("a"), runner.waiting("a")), (0, 3));
    let waiting = runner.waiting["a"].iter();
    let ambiguous: i32 = waiting.map(|mail| mail.ambiguous_attempts).sum();
    assert_eq!(ambiguous, 0);
    assert_eq!(runner.thread.statuses()[0].1.ambiguous, 0);
}

#[test]
fn mail_whose_final_dot_was_not_written_when_the_worker_stops_was_not_sent() {
    let (port, seen) = serve(Script {
        // It keeps its thread for ever.
        says: |_, _, line| match line.starts_with("RCPT") {
            true => loop {
                std::thread::park();
            },
            false => None,
        },
        ..Script::default()
    });
    let mut runner = TestRunner::new(relay(port));
    runner.schedule("a", 1);
    runner.until("it hangs", |_| !seen.commands("RCPT").is_empty());
    runner.thread.stop();
    runner.thread.abandon_requests();
    runner.until("it rests", |runner| runner.thread.has_stopped());
    assert_eq!((runner.sent("a"), runner.waiting("a")), (0, 1));
    assert_eq!(runner.waiting["a"][0].ambiguous_attempts, 0);
}

#[test]
fn a_directory_gets_a_file_a_message() {
    let scratch = Scratch::new("file");
    let mut runner = TestRunner::new(into(&scratch.0));
    runner.schedule("a", 20);
    schedule_unsendable(&mut runner, 1_000);
    runner.until("all are written", |runner| runner.sent("a") == 20);
    runner.until("the other ended", |runner| !runner.ended.is_empty());
    assert_eq!(runner.ended, [(1_000, "there is no body".to_owned())]);
    let names = std::fs::read_dir(&scratch.0).unwrap();
    let names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 20);
    assert!(names.iter().all(|name| name.ends_with(".eml")));
}

#[test]
fn a_directory_that_is_missing_pauses_the_transport() {
    let scratch = Scratch::new("missing");
    let mut runner = TestRunner::new(into(&scratch.0.join("none")));
    runner.schedule("a", 10);
    runner.until("it is paused", |runner| runner.state("a") == Some("paused"));
    std::fs::create_dir(scratch.0.join("none")).unwrap();
    runner.thread.retry_now();
    runner.until("all are written", |runner| runner.sent("a") == 10);
}

#[test]
fn the_log_gets_a_line_a_message() {
    let mut runner = TestRunner::new("[transports.a]\nprovider = \"log\"\n".to_owned());
    runner.schedule("a", 3);
    runner.until("all are logged", |runner| runner.sent("a") == 3);
    let lines: Vec<&str> = runner
        .log
        .iter()
        .map(|(name, news)| match news {
            LogEvent::Logged(line) if &**name == "a" => line.as_str(),
            other => panic!("{other:?}"),
        })
        .collect();
    let first = "mail 00000000-0000-4000-8000-000000000001 (news) to r1@example.com: \"m1\": text";
    assert_eq!(lines.len(), 3);
    assert!(lines.contains(&first), "{lines:?}");
}

#[test]
fn a_transport_that_becomes_a_relay_loses_and_repeats_nothing() {
    let receiver = super::world::Receiver::start(503);
    let mut runner = TestRunner::new(super::world::file(&[("a", receiver.address, "")]));
    runner.schedule("a", 50);
    runner.until("it is paused", |runner| runner.state("a") == Some("paused"));
    let (port, seen) = serve(Script::default());
    runner.file = Some(relay(port));
    runner.configure();
    // As the worker does from time to time.
    runner.thread.mail_due(false);
    runner.until("all are sent", |runner| runner.sent("a") == 50);
    assert_eq!(seen.mails(), 50);
}
