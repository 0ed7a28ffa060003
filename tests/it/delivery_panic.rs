//! A real panic of the sending thread, caused by a failure of its event loop: the worker continues and loses no mail.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::cluster::{Stop, eventually, number};
use crate::post::Post;
use crate::receiver::{Receiver, status};

/// Returns a receiver that answers no request until the flag is set, and then accepts all requests.
fn reluctant() -> (Receiver, Arc<AtomicBool>) {
    let willing = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&willing);
    let receiver = Receiver::start(move |_| {
        while !told.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(5));
        }
        status(200)
    });
    (receiver, willing)
}

/// Starts a cluster whose sending thread fails when a file is created at the returned path.
fn breakable(receiver: &Receiver, settings: &[&str]) -> (Post, PathBuf) {
    let mut post = Post::start(receiver, settings);
    let order = post.cluster.scratch().join("break");
    restart_under(&mut post, "tests/panic/epoll.c", &order);
    (post, order)
}

/// Restarts the server with this library, which fails a call for each file that is created at `order`.
fn restart_under(post: &mut Post, source: &str, order: &Path) {
    let library = post.cluster.compile_preload(source);
    post.cluster.stop_server(Stop::Fast);
    post.cluster.start_server_under(
        "",
        &[
            ("LD_PRELOAD", library.to_str().unwrap()),
            ("MAILROOM_BREAK", order.to_str().unwrap()),
        ],
    );
    post.client = post.cluster.connect("app");
    post.cluster.worker("app");
}

/// Returns the names of the threads of a process.
fn threads(process: i32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect()
}

fn senders(process: i32) -> usize {
    let names = threads(process);
    names
        .iter()
        .filter(|name| *name == "mailroom sender")
        .count()
}

#[test]
fn a_new_thread_takes_over_and_nothing_is_lost() {
    const ALL: i64 = 300;
    // Four requests are in flight when the thread fails.
    const IN_FLIGHT: i64 = 4;
    let (receiver, willing) = reluctant();
    let (mut post, order) = breakable(
        &receiver,
        &[
            "transport.concurrency = 4",
            "transport.timeout = '10min'",
            "mailroom.lease = '1h'",
        ],
    );
    let worker = post.worker();
    post.load(ALL);
    eventually("mail under way", || (receiver.open() >= 4).then_some(()));
    std::fs::write(&order, "").unwrap();
    eventually("the thread to break", || (!order.exists()).then_some(()));
    // Mail in flight has an attempt, mail that waited has none.
    post.wait_for("ambiguous_attempts > 0", IN_FLIGHT);
    willing.store(true, Ordering::Release);
    post.hurry_until_ended(ALL);
    let failed = post.count("failed_attempts = 1");
    assert_eq!(failed, IN_FLIGHT);
    assert_eq!(post.count("failed_attempts = 0"), ALL - failed);
    assert_eq!(post.count("state = 'sent'"), ALL);
    let accepted: HashSet<String> = receiver.accepted().into_iter().collect();
    assert_eq!(accepted.len() as i64, ALL);
    assert!(receiver.count() as i64 <= ALL + failed, "more went twice");
    // The worker is the same, has one sending thread again, and logged the pause once.
    assert_eq!(post.worker(), worker);
    assert_eq!(senders(worker), 1);
    let lapsed =
        "SELECT count(*) FROM outbox_attempts WHERE outcome NOT IN ('failed', 'ambiguous')";
    assert_eq!(number(&mut post.client, lapsed), 0);
    let log = post.cluster.log();
    let times = |text: &str| log.matches(text).count();
    assert_eq!(
        times("transport \"main\" paused: the sending thread failed and was started again"),
        1
    );
    // The log says where the panic happened, but not its message.
    assert_eq!(times("a panic in the sending thread at "), 1);
    assert_eq!(times("polling the I/O driver"), 0);
    assert_eq!(
        times("server process"),
        0,
        "the server restarted its processes"
    );
}

#[test]
fn a_thread_that_breaks_again_and_again_is_started_ever_more_slowly() {
    let (receiver, willing) = reluctant();
    let (mut post, order) = breakable(&receiver, &["transport.timeout = '10min'"]);
    let worker = post.worker();
    let panics = |post: &Post| {
        let log = post.cluster.log();
        log.matches("a panic in the sending thread at ").count()
    };
    post.send(50);
    for times in 1..=3 {
        std::fs::write(&order, "").unwrap();
        // From the second time on, the transport is paused, and the thread sends only a probe.
        eventually("the thread to break", || {
            (panics(&post) == times).then_some(())
        });
        post.wait_for_status("transport_state", "paused");
        post.wait_for_status("transport_reason", "the sending thread failed");
    }
    willing.store(true, Ordering::Release);
    post.hurry_until_ended(50);
    assert_eq!(post.count("state = 'sent'"), 50);
    assert_eq!(panics(&post), 3);
    assert_eq!(post.worker(), worker);
    assert_eq!(senders(worker), 1);
    let log = post.cluster.log();
    let told = log.matches("the sending thread failed").count();
    assert_eq!(told, 1, "{log}");
}

#[test]
fn a_thread_that_the_system_refuses_is_started_later() {
    let receiver = Receiver::start(|_| status(200));
    let mut post = Post::start(&receiver, &["mailroom.poll_interval = '1h'"]);
    let order = post.cluster.scratch().join("break");
    std::fs::write(&order, "").unwrap();
    restart_under(&mut post, "tests/panic/thread.c", &order);
    assert!(!order.exists());
    let worker = post.worker();
    post.send(1);
    post.wait_until_ended(1);
    assert_eq!(post.worker(), worker);
    let warning = "mailroom worker could not start the sending thread (attempt 1, next in 1 s)";
    assert!(post.log().contains(warning), "{}", post.log());
}
