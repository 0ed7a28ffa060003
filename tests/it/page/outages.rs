//! Databases that are away, locked or slow.

use std::time::{Duration, Instant};

use super::scene::{PASSWORD, Scene, words};
use crate::cluster::{Stop, eventually};

#[test]
fn a_database_that_is_away_comes_back_on_the_same_page() {
    let scene = Scene::start();
    let server = scene.serve();
    let browser = server.of("support");
    for how in [Stop::Fast, Stop::Immediate] {
        browser.page("messages");
        scene.cluster.stop_server(how);
        for within in ["messages", "", "messages/1", "messages.csv"] {
            let answer = browser.get(within);
            assert_eq!(
                (answer.status, answer.header("refresh")),
                (503, Some("5")),
                "{within}"
            );
            let told = words(&answer.body);
            assert!(told.contains("The database cannot be used now."), "{told}");
            // Nothing of hosts and sockets.
            assert!(
                !answer.body.contains("mailroom-") && !told.contains("refused"),
                "{told}"
            );
        }
        let told = server.browser("app").log_in("support", PASSWORD);
        assert_eq!(told.status, 503);
        assert!(words(&told.body).contains("The database cannot be used now."));
        let answer = browser.post("messages/1/cancel", &[("back", "messages")]);
        assert_eq!(answer.status, 303);
        scene.cluster.start_server();
        let page = words(&browser.page("messages"));
        assert!(
            page.contains("cannot be used now") || page.contains("not known whether this was done"),
            "{page}"
        );
        assert!(!words(&browser.page("messages")).contains("not known whether"));
    }
    let log = server.program.log();
    assert!(!log.contains(PASSWORD), "{log}");
    let health = server.exchange("GET /-/health HTTP/1.1\nHost: x\n", "");
    assert_eq!((health.status, &*health.body), (200, "ok"));
}

#[test]
fn a_locked_table_keeps_only_its_own_readers_waiting_and_not_for_long() {
    let mut scene = Scene::start();
    let other = scene.cluster.create_database("other");
    drop(other);
    let sent = "SELECT mailroom_send('a@example.com', 'Hello', 'Text')";
    scene.client.batch_execute(sent).unwrap();
    let server = scene.serve_at(&[scene.url("app"), scene.url("other")], &[]);
    let browser = server.of("support");
    let elsewhere = server.browser("other");
    assert_eq!(elsewhere.log_in("support", PASSWORD).status, 303);
    scene
        .client
        .batch_execute("BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
        .unwrap();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'support' AND wait_event_type = 'Lock'";
    let mut watching = scene.cluster.connect("postgres");
    std::thread::scope(|threads| {
        let cookies = browser.cookies.borrow().clone();
        let (name, value) = cookies.iter().next().unwrap();
        let head = format!(
            "GET /app/messages HTTP/1.1\nHost: {}\nCookie: {}={value}\n",
            server.address, name.0
        );
        let server = &server;
        let asking = threads.spawn(move || {
            let begin = Instant::now();
            (server.exchange(&head, ""), begin.elapsed())
        });
        eventually("the request to wait", || {
            (crate::cluster::number(&mut watching, waits) > 0).then_some(())
        });
        let begin = Instant::now();
        elsewhere.page("messages");
        let took = begin.elapsed();
        let (answer, waited) = asking.join().unwrap();
        assert!(took < waited, "{took:?} {waited:?}");
        assert!(waited < Duration::from_secs(10), "{waited:?}");
        assert_eq!((answer.status, answer.header("refresh")), (503, Some("5")));
        let told = words(&answer.body);
        assert!(
            told.contains("Another session holds what this needs."),
            "{told}"
        );
    });
    let told = browser.post("messages/1/cancel", &[("back", "log")]);
    assert_eq!(told.status, 303);
    let page = words(&browser.page("log"));
    assert!(
        page.contains("Another session holds what this needs."),
        "{page}"
    );
    scene.client.batch_execute("COMMIT").unwrap();
    browser.page("messages");
    assert_eq!(
        browser.act("messages/1/cancel", &[("back", "messages/1")]),
        "Cancelled."
    );
}

#[test]
fn a_slow_statement_is_given_up() {
    let mut scene = Scene::start();
    scene
        .client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'Hello', 'Text');
             ALTER TABLE outbox ENABLE ROW LEVEL SECURITY;
             CREATE POLICY slow ON outbox AS RESTRICTIVE TO support USING (pg_sleep(100) IS NOT NULL)",
        )
        .unwrap();
    let server = scene.serve();
    let (browser, admin) = (server.of("support"), server.of("admin"));
    let begin = Instant::now();
    let answer = browser.get("messages");
    assert!(
        (2..10).contains(&begin.elapsed().as_secs()),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!((answer.status, answer.header("refresh")), (503, Some("5")));
    let told = words(&answer.body);
    assert!(
        told.contains("The database took too long, so this was given up."),
        "{told}"
    );
    admin.page("messages");
    scene
        .client
        .batch_execute("DROP POLICY slow ON outbox")
        .unwrap();
    browser.page("messages");
}

/// Otherwise rows that were deleted could not be vacuumed.
#[test]
fn no_transaction_outlives_its_request() {
    let mut scene = Scene::start();
    let server = scene.serve();
    let browsers = ["admin", "support", "monitor"].map(|role| server.of(role));
    for browser in &browsers {
        browser.page("messages");
        browser.get("messages/1");
        browser.get("suppressions");
        browser.post("messages/1/cancel", &[]);
    }
    let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mailroom serve' AND (state <> 'idle' OR xact_start IS NOT NULL)";
    assert_eq!(scene.number(open), 0);
    let all = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mailroom serve'";
    assert_eq!(scene.number(all), 3);
}
