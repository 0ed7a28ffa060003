use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn lost_before_the_end_it_was_not_sent() {
    let cases: [Says; 3] = [
        |_, _, line| line.starts_with("MAIL").then_some(CLOSE),
        |_, _, line| line.starts_with("RCPT").then_some(CLOSE),
        |_, _, line| (line == "DATA").then_some(CLOSE),
    ];
    for says in cases {
        let (delivered, seen) = deliver_to(says);
        let shown = unreached(&delivered);
        assert!(
            shown.contains("the server closed the connection"),
            "{shown}"
        );
        assert_eq!((seen.connections(), seen.mails()), (1, 0));
    }
}

/// A load balancer without a backend, or the wrong `tls`.
#[test]
fn without_a_session_there_is_no_connection() {
    let cases: [Says; 2] = [
        |_, _, line| (line == "connect").then_some(CLOSE),
        |_, _, line| line.starts_with("EHLO").then_some(CLOSE),
    ];
    for says in cases {
        let (delivered, seen) = deliver_to(says);
        assert!(
            matches!(&delivered.outcome, MessageOutcome::NoConnection { reason }
                if reason.contains("the server closed the connection")),
            "{delivered:?}"
        );
        assert_eq!((seen.connections(), seen.mails()), (1, 0));
    }
}

#[test]
fn lost_in_the_middle_of_the_text_it_was_not_sent() {
    let mut large = fixture::plain(1);
    // More than the buffers between here and there hold.
    large.body_text = Some("line\n".repeat(1_300_000));
    for (words, expected) in [(CLOSE, None), ("552 5.3.4 enough", Some(552))] {
        let says: Says = match words {
            CLOSE => |_, _, line| (line == "text").then_some(CLOSE),
            _ => |_, _, line| (line == "text").then_some("552 5.3.4 enough"),
        };
        let script = Script {
            extensions: Vec::new(),
            says,
            ..Script::default()
        };
        let (delivered, seen) = deliver(script, &large);
        // A reset may overtake the words.
        if expected.is_none() || delivered.status != expected {
            let shown = unreached(&delivered);
            assert!(shown.starts_with("before the end of the mail: "), "{shown}");
        }
        assert_eq!(seen.mails(), 0);
    }
}

#[test]
fn a_server_that_closes_instead_of_reading_has_not_accepted_it() {
    let (delivered, seen) = deliver_to(|_, _, line| (line == "text").then_some(CLOSE));
    let shown = unreached(&delivered);
    assert!(shown.starts_with("before the end of the mail: "), "{shown}");
    assert_eq!(seen.mails(), 0);
    let (delivered, seen) = deliver_to(|_, _, line| (line == "text").then_some("451 4.3.0 full"));
    assert_eq!(delivered.status, Some(451));
    assert!(matches!(delivered.outcome, MessageOutcome::Retry { .. }));
    assert_eq!(seen.mails(), 0);
}

#[test]
fn lost_after_the_end_it_may_have_been() {
    let (delivered, seen) = deliver_to(|_, _, line| (line == ".").then_some(CLOSE));
    let reason = "after the end of the mail: the server closed the connection".to_owned();
    assert_eq!(delivered.outcome, MessageOutcome::Ambiguous { reason });
    assert_eq!((seen.connections(), seen.mails()), (1, 1));
    let (delivered, _) = deliver_to(|_, _, line| (line == ".").then_some("what?"));
    let reason = "after the end of the mail: the server's reply is not SMTP".to_owned();
    assert_eq!(delivered.outcome, MessageOutcome::Ambiguous { reason });
}

/// A server that is slow from its greeting on still has half of the timeout for the reply to the content.
#[test]
fn the_last_reply_has_time_of_its_own() {
    let says: Says = |_, _, line| {
        let wait = match line {
            "connect" => 3400,
            "." => 1500,
            _ => 0,
        };
        std::thread::sleep(Duration::from_millis(wait));
        None
    };
    let delivered = deliver_slowly(says, 4500, &fixture::plain(1));
    assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
}

#[test]
fn a_further_transaction_has_time_of_its_own() {
    let says: Says = |_, mail, line| {
        let wait = match line {
            "." if mail == 1 => 5500,
            "RCPT TO:<r2@example.com>" if mail == 1 => return Some("452 4.5.3 too many"),
            "RCPT TO:<r2@example.com>" => 3000,
            _ => 0,
        };
        std::thread::sleep(Duration::from_millis(wait));
        None
    };
    let delivered = deliver_slowly(says, 8000, &to_many(2));
    assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
    assert_eq!(delivered.refused, []);
}

#[test]
fn a_large_mail_has_more_time() {
    let says: Says = |_, _, line| {
        std::thread::sleep(Duration::from_millis(if line == "." { 2500 } else { 0 }));
        None
    };
    let mut message = fixture::plain(1);
    let small = deliver_slowly(says, 1000, &message);
    assert!(matches!(small.outcome, MessageOutcome::Ambiguous { .. }));
    message.body_text = Some("a line of text\n".repeat(60_000));
    let large = deliver_slowly(says, 1000, &message);
    assert_eq!(large.outcome, sent(Some("4F1B2C")));
}

/// Sends a mail with this timeout in milliseconds to a server in a thread of its own, which may sleep.
fn deliver_slowly(says: Says, timeout: u64, message: &Message) -> Delivered {
    let (port, _seen) = elsewhere(Script {
        says,
        ..Script::default()
    });
    run(async {
        let mut settings = settings(port);
        settings.timeout = Duration::from_millis(timeout);
        let relay = Relay::new(settings).unwrap();
        relay.send(message, now()).await
    })
}

/// Starts a server in a thread of its own, which may sleep.
fn elsewhere(script: Script) -> (u16, Arc<Seen>) {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        run(async {
            tell.send(start(script).await).unwrap();
            std::future::pending::<()>().await;
        });
    });
    told.recv().unwrap()
}

#[test]
fn a_server_that_takes_its_time() {
    // It says nothing: each reply is the beginning of a longer one.
    let cases: [(Says, bool); 3] = [
        (
            |_, _, line| (line == "connect").then_some("220-wait"),
            false,
        ),
        (
            |_, _, line| line.starts_with("MAIL").then_some("250-wait"),
            false,
        ),
        (|_, _, line| (line == ".").then_some("250-wait"), true),
    ];
    for (says, may_have_arrived) in cases {
        let script = Script {
            says,
            extensions: Vec::new(),
            ..Script::default()
        };
        let delivered = run(async {
            let (port, _seen) = start(script).await;
            let mut settings = settings(port);
            settings.timeout = Duration::from_millis(500);
            let relay = Relay::new(settings).unwrap();
            relay.send(&fixture::plain(1), now()).await
        });
        if may_have_arrived {
            let reason = "after the end of the mail: timeout".to_owned();
            assert_eq!(delivered.outcome, MessageOutcome::Ambiguous { reason });
        } else {
            assert!(unreached(&delivered).contains(": timeout"));
        }
    }
}

/// The process is frozen, as by SIGSTOP, for longer than a message may take: its claim may have been given to another. All
/// replies are there when it goes on.
#[test]
fn a_client_that_stood_still_does_not_end_the_message() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    /// Whether the client stands still.
    static IS_FROZEN: AtomicBool = AtomicBool::new(false);
    let script = Script {
        says: |_, _, line| {
            let until = std::time::Instant::now() + TIMEOUT;
            while line.starts_with("MAIL")
                && !IS_FROZEN.load(Ordering::SeqCst)
                && std::time::Instant::now() < until
            {
                std::thread::yield_now();
            }
            None
        },
        ..Script::default()
    };
    let (tell, told) = std::sync::mpsc::channel();
    // The server does not stand still.
    std::thread::spawn(move || {
        run(async {
            tell.send(start(script).await).unwrap();
            std::future::pending::<()>().await;
        });
    });
    let (port, seen) = told.recv().unwrap();
    let watched = Arc::clone(&seen);
    let delivered = run(async move {
        let relay = Relay::new(Settings {
            timeout: TIMEOUT,
            ..settings(port)
        });
        tokio::spawn(async move {
            watched
                .until(|seen| !seen.commands("MAIL").is_empty())
                .await;
            IS_FROZEN.store(true, Ordering::SeqCst);
            // That is the fault: the only thread of the client does nothing.
            std::thread::sleep(3 * TIMEOUT);
        });
        relay.unwrap().send(&fixture::plain(1), now()).await
    });
    let shown = unreached(&delivered);
    assert!(shown.starts_with("before the end of the mail: "), "{shown}");
    assert_eq!(seen.mails(), 0);
}
