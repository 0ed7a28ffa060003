use super::super::pool::Pool;
use super::*;
use std::sync::atomic::Ordering;

#[test]
fn a_connection_is_used_again() {
    run(async {
        let (relay, seen) = relay(Script::default()).await;
        for number in 1..=5 {
            let delivered = relay.send(&fixture::plain(number), now()).await;
            assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        }
        assert_eq!((seen.connections(), seen.mails()), (1, 5));
        assert_eq!(seen.commands("RSET").len(), 4);
    });
}

#[test]
fn one_with_a_reply_that_is_not_asked_for_is_replaced() {
    for extensions in [vec!["PIPELINING"], vec![]] {
        let script = Script {
            // The second reply belongs to no command.
            says: |connection, _, line| {
                (connection == 1 && line == ".").then_some("250 2.0.0 ok\r\n250 2.0.0 once more")
            },
            extensions,
            ..Script::default()
        };
        run(async {
            let (relay, seen) = relay(script).await;
            for number in 1..=3 {
                let delivered = relay.send(&fixture::plain(number), now()).await;
                assert!(matches!(delivered.outcome, MessageOutcome::Sent { .. }));
            }
            assert_eq!((seen.connections(), seen.mails()), (2, 3));
            assert_eq!(seen.commands("RSET").len(), 1);
        });
    }
}

#[test]
fn after_a_hundred_mails_it_is_closed() {
    run(async {
        let (relay, seen) = relay(Script::default()).await;
        for number in 1..=101 {
            relay.send(&fixture::plain(number), now()).await;
        }
        assert_eq!((seen.connections(), seen.mails()), (2, 101));
        seen.until(|seen| seen.commands("QUIT").len() == 1).await;
    });
}

#[test]
fn unused_it_is_closed_after_a_while() {
    run(async {
        let (mut relay, seen) = relay(Script::default()).await;
        relay.pool = Arc::new(Pool::new(2, Duration::from_millis(50)));
        relay.send(&fixture::plain(1), now()).await;
        assert_eq!(seen.open.load(Ordering::SeqCst), 1);
        seen.until(|seen| seen.open.load(Ordering::SeqCst) == 0)
            .await;
        assert_eq!(seen.commands("QUIT").len(), 1);
        // And so is the next.
        relay.send(&fixture::plain(2), now()).await;
        seen.until(|seen| seen.commands("QUIT").len() == 2).await;
        assert_eq!((seen.connections(), seen.mails()), (2, 2));
    });
}

#[test]
fn one_that_the_server_has_closed_is_replaced() {
    let cases: [Says; 2] = [
        |connection, _, line| (connection == 1 && line == "RSET").then_some(CLOSE),
        |connection, _, line| (connection == 1 && line == "RSET").then_some("421 4.4.2 timeout"),
    ];
    for says in cases {
        for extensions in [vec!["PIPELINING"], vec![]] {
            let script = Script {
                says,
                extensions,
                ..Script::default()
            };
            run(async {
                let (relay, seen) = relay(script).await;
                for number in 1..=3 {
                    let delivered = relay.send(&fixture::plain(number), now()).await;
                    assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
                }
                assert_eq!((seen.connections(), seen.mails()), (2, 3));
            });
        }
    }
}

/// Some servers say so only when they are to take a mail.
#[test]
fn one_that_the_server_closes_at_mail_is_replaced() {
    for extensions in [vec!["PIPELINING"], vec![]] {
        let script = Script {
            says: |connection, mail, line| {
                let is_second = connection == 1 && mail == 2 && line.starts_with("MAIL");
                is_second.then_some("421 4.4.2 idle for too long")
            },
            extensions,
            ..Script::default()
        };
        run(async {
            let (relay, seen) = relay(script).await;
            for number in 1..=2 {
                let delivered = relay.send(&fixture::plain(number), now()).await;
                assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
            }
            assert_eq!((seen.connections(), seen.mails()), (2, 2));
        });
    }
}

#[test]
fn it_is_replaced_once() {
    run(async {
        let script = Script {
            says: |connection, _, line| match (connection, line) {
                (1, "RSET") => Some(CLOSE),
                (2, "connect") => Some(CLOSE),
                _ => None,
            },
            ..Script::default()
        };
        let (relay, seen) = relay(script).await;
        relay.send(&fixture::plain(1), now()).await;
        let delivered = relay.send(&fixture::plain(2), now()).await;
        unreached(&delivered);
        assert_eq!((seen.connections(), seen.mails()), (2, 1));
    });
}

#[test]
fn what_may_have_arrived_is_never_repeated_here() {
    run(async {
        let script = Script {
            says: |connection, mail, line| {
                (connection == 1 && mail == 2 && line == ".").then_some(CLOSE)
            },
            ..Script::default()
        };
        let (relay, seen) = relay(script).await;
        relay.send(&fixture::plain(1), now()).await;
        let delivered = relay.send(&fixture::plain(2), now()).await;
        assert!(matches!(
            delivered.outcome,
            MessageOutcome::Ambiguous { .. }
        ));
        assert_eq!((seen.connections(), seen.mails()), (1, 2));
    });
}

#[test]
fn a_refused_mail_leaves_the_connection_as_it_was() {
    run(async {
        let script = Script {
            says: |_, mail, line| match line {
                "." if mail == 1 => Some("554 5.7.1 no"),
                _ if mail == 2 && line.starts_with("MAIL") => Some("552 5.3.4 no"),
                _ => None,
            },
            ..Script::default()
        };
        let (relay, seen) = relay(script).await;
        for (number, is_sent) in [(1, false), (2, false), (3, true)] {
            let delivered = relay.send(&fixture::plain(number), now()).await;
            assert_eq!(delivered.outcome == sent(Some("4F1B2C")), is_sent);
        }
        assert_eq!(seen.connections(), 1);
    });
}

#[test]
fn a_server_that_says_421_is_left() {
    run(async {
        let script = Script {
            says: |connection, _, line| {
                (connection == 1 && line == ".").then_some("421 4.3.0 later")
            },
            ..Script::default()
        };
        let (relay, seen) = relay(script).await;
        let delivered = relay.send(&fixture::plain(1), now()).await;
        assert!(matches!(delivered.outcome, MessageOutcome::Retry { .. }));
        let delivered = relay.send(&fixture::plain(1), now()).await;
        assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        assert_eq!(seen.connections(), 2);
    });
}

#[test]
fn there_are_no_more_connections_than_allowed() {
    run(async {
        let (relay, seen) = relay(Script::default()).await;
        let relay = Arc::new(relay);
        let tasks: Vec<_> = (1..=20)
            .map(|number| {
                let relay = Arc::clone(&relay);
                tokio::spawn(async move { relay.send(&fixture::plain(number), now()).await })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap().outcome, sent(Some("4F1B2C")));
        }
        assert_eq!((seen.connections(), seen.mails()), (2, 20));
    });
}
