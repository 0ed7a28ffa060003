use super::*;

#[test]
fn fifty_recipients() {
    for extensions in [vec!["PIPELINING"], vec![]] {
        let script = Script {
            extensions,
            ..Script::default()
        };
        let (delivered, seen) = deliver(script, &to_many(50));
        assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        assert_eq!(seen.commands("RCPT").len(), 50);
        assert_eq!(seen.mails(), 1);
    }
    let relay = Relay::new(settings(1)).unwrap();
    assert!(relay.check(&to_many(100)).is_ok());
    assert!(relay.check(&to_many(101)).is_err());
}

#[test]
fn a_mailbox_is_named_once() {
    let mut message = fixture::plain(1);
    message.bcc = message.recipients.clone();
    let (_, seen) = deliver(Script::default(), &message);
    assert_eq!(seen.commands("RCPT").len(), 1);
    let text = |address: &str| address.to_owned();
    message.recipients = vec![text("ada@Example.com"), text("ada@example.com")];
    message.cc = vec![text("ada@EXAMPLE.com"), text("Ada@example.com")];
    message.bcc = vec![text("a@bücher.example"), text("a@xn--BCHER-kva.example")];
    let (_, seen) = deliver(Script::default(), &message);
    assert_eq!(
        seen.commands("RCPT"),
        [
            "RCPT TO:<ada@Example.com>",
            "RCPT TO:<Ada@example.com>",
            "RCPT TO:<a@xn--bcher-kva.example>"
        ]
    );
}

#[test]
fn those_that_are_refused_do_not_keep_the_others_from_it() {
    let script = Script {
        says: |_, _, line| match line {
            "RCPT TO:<r2@example.com>" => Some("550 5.1.1 no"),
            "RCPT TO:<r4@example.com>" => Some("554 5.7.1 no"),
            _ => None,
        },
        ..Script::default()
    };
    let (delivered, seen) = deliver(script, &to_many(4));
    assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
    let refused = |number: u8, code, reason: &str| Refused {
        recipient: format!("r{number}@example.com"),
        code,
        reason: reason.to_owned(),
        is_permanent: code == 550,
    };
    assert_eq!(
        delivered.refused,
        [
            refused(2, 550, "smtp 550 5.1.1"),
            refused(4, 554, "smtp 554 5.7.1")
        ]
    );
    assert_eq!(seen.mails(), 1);
}

#[test]
fn one_that_is_put_off_is_waited_for_a_few_times() {
    let script = Script {
        says: |_, _, line| match line {
            "RCPT TO:<r1@example.com>" => Some("550 5.1.1 no"),
            "RCPT TO:<r2@example.com>" => Some("452 4.2.2 full"),
            _ => None,
        },
        ..Script::default()
    };
    let mut message = to_many(3);
    let (delivered, seen) = deliver(script.clone(), &message);
    let reason = "smtp 452 4.2.2".to_owned();
    assert_eq!(
        delivered.outcome,
        MessageOutcome::RecipientDeferred { reason }
    );
    assert_eq!(delivered.status, Some(452));
    assert_eq!(delivered.refused.len(), 1);
    assert!(seen.commands("DATA").is_empty());
    message.attempts = 8;
    let (delivered, _) = deliver(script.clone(), &message);
    assert_eq!(delivered.status, Some(452));
    for (attempts, is_last_attempt) in [(9, false), (2, true)] {
        message.attempts = attempts;
        message.is_last_attempt = is_last_attempt;
        let (delivered, seen) = deliver(script.clone(), &message);
        assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        assert_eq!(delivered.refused.len(), 2);
        assert_eq!(seen.mails(), 1);
    }
    let script = Script {
        says: |_, _, line| match line {
            "RCPT TO:<r1@example.com>" => Some("550 5.1.1 no"),
            "RCPT TO:<r2@example.com>" => Some("452 4.2.2 full"),
            "." => Some("451 4.3.0 later"),
            _ => None,
        },
        ..Script::default()
    };
    let (delivered, _) = deliver(script, &message);
    assert_eq!(delivered.status, Some(451));
    assert_eq!(delivered.refused.len(), 1);
}

/// A greylisting server's reply to one of several says nothing about the transport.
#[test]
fn one_that_is_put_off_is_no_sign_of_the_transport_beside_an_accepted_one() {
    for reply in ["451 4.7.1 greylisted", "450 later"] {
        let says: Says = match reply {
            "450 later" => |_, _, line| (line == "RCPT TO:<r2@example.com>").then_some("450 later"),
            _ => {
                |_, _, line| (line == "RCPT TO:<r2@example.com>").then_some("451 4.7.1 greylisted")
            }
        };
        let (delivered, seen) = deliver_saying(says, &to_many(3));
        assert!(
            matches!(delivered.outcome, MessageOutcome::RecipientDeferred { .. }),
            "{delivered:?}"
        );
        assert_eq!(seen.mails(), 0);
    }
}

/// A server that takes two recipients a transaction.
fn takes_two(_: usize, _: usize, line: &str) -> Option<&'static str> {
    static COUNT: std::sync::Mutex<usize> = std::sync::Mutex::new(0);
    let mut count = COUNT.lock().unwrap();
    if line.starts_with("MAIL") {
        *count = 0;
    }
    if !line.starts_with("RCPT") {
        return None;
    }
    *count += 1;
    (*count > 2).then_some("452 4.5.3 too many recipients")
}

#[test]
fn those_that_are_too_many_get_it_in_further_transactions() {
    for extensions in [vec!["PIPELINING"], vec![]] {
        let script = Script {
            extensions,
            says: takes_two,
            ..Script::default()
        };
        let (delivered, seen) = deliver(script, &to_many(5));
        assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        assert_eq!(delivered.refused, []);
        assert_eq!((seen.connections(), seen.mails()), (1, 3));
        assert_eq!(seen.commands("MAIL").len(), 3);
        assert_eq!(seen.commands("RCPT TO:<r5@").len(), 3);
    }
}

/// A server that takes one recipient in the first transaction.
fn takes_one(connection: usize, mail: usize, line: &str) -> Option<&'static str> {
    let is_further = line.starts_with("RCPT") && !line.contains("<r1@");
    ((connection, mail) == (1, 1) && is_further).then_some("452 4.5.3 too many recipients")
}

/// The others have the mail, so there is no later attempt for these.
#[test]
fn those_that_are_too_many_count_as_refused_with_what_a_further_transaction_said() {
    let lost = "smtp 452 4.5.3, then after the end of the mail: the server closed the connection";
    let left = "smtp 421 4.7.0";
    let cases: [(Says, &[(u16, &str)]); 5] = [
        (
            |connection, mail, line| {
                takes_one(connection, mail, line)
                    .or_else(|| (mail == 2 && line == ".").then_some("451 4.3.0 later"))
            },
            &[(451, "smtp 451 4.3.0"), (451, "smtp 451 4.3.0")],
        ),
        (
            |connection, mail, line| {
                takes_one(connection, mail, line)
                    .or_else(|| (mail == 2 && line == ".").then_some(CLOSE))
            },
            &[(452, lost), (452, lost)],
        ),
        (
            |connection, mail, line| {
                let begins = (connection > 1 || mail == 2) && line.starts_with("MAIL");
                takes_one(connection, mail, line).or_else(|| begins.then_some("421 4.7.0 enough"))
            },
            &[(421, left), (421, left)],
        ),
        (
            |connection, mail, line| match line {
                "RCPT TO:<r2@example.com>" if mail == 2 => Some("550 5.1.1 no"),
                "RCPT TO:<r3@example.com>" if mail == 2 => Some("554 5.7.1 no"),
                _ => takes_one(connection, mail, line),
            },
            &[(550, "smtp 550 5.1.1"), (554, "smtp 554 5.7.1")],
        ),
        (
            |connection, mail, line| match line {
                "RCPT TO:<r2@example.com>" if mail == 2 => Some("451 4.7.1 greylisted"),
                _ => takes_one(connection, mail, line),
            },
            &[(451, "smtp 451 4.7.1")],
        ),
    ];
    for (says, expected) in cases {
        let (delivered, _) = deliver_saying(says, &to_many(3));
        assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        let refused = delivered.refused.iter();
        let refused: Vec<_> = refused.map(|one| (one.code, &*one.reason)).collect();
        assert_eq!(refused, expected);
    }
}

#[test]
fn another_connection_replaces_one_that_ends_before_a_further_transaction() {
    let cases: [Says; 4] = [
        |connection, mail, line| match (connection, line) {
            (1, "RSET") => Some(CLOSE),
            _ => takes_one(connection, mail, line),
        },
        |connection, mail, line| match (connection, mail) {
            (1, 2) => line.starts_with("MAIL").then_some("421 4.7.0 enough"),
            _ => takes_one(connection, mail, line),
        },
        |connection, mail, line| match (connection, mail) {
            (1, 2) => line.starts_with("RCPT").then_some(CLOSE),
            _ => takes_one(connection, mail, line),
        },
        |connection, mail, line| match (connection, mail) {
            (1, 2) => (line == ".").then_some("421 4.3.2 enough"),
            _ => takes_one(connection, mail, line),
        },
    ];
    for says in cases {
        let (delivered, seen) = deliver_saying(says, &to_many(3));
        assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        assert_eq!(delivered.refused, []);
        assert_eq!(seen.connections(), 2);
    }
}

/// A deliverer that stops then knows that the mail was sent.
#[test]
fn what_is_abandoned_in_a_further_transaction_was_sent_to_the_others() {
    let says: Says = |connection, mail, line| {
        // The beginning of a longer reply.
        let hangs = mail == 2 && line.starts_with("MAIL");
        takes_one(connection, mail, line).or_else(|| hangs.then_some("250-wait"))
    };
    let script = Script {
        says,
        ..Script::default()
    };
    run(async {
        let (relay, _seen) = relay(script).await;
        let message = to_many(2);
        let mut told = Vec::new();
        let mut tell = |sent: Option<&Delivered>| told.push(sent.cloned());
        let sending = relay.send_telling(&message, now(), &mut tell);
        let abandoned = tokio::time::timeout(Duration::from_secs(2), sending).await;
        assert!(abandoned.is_err());
        let [None, Some(so_far)] = told.as_slice() else {
            panic!("{told:?}");
        };
        assert_eq!(so_far.outcome, sent(Some("4F1B2C")));
        assert_eq!(so_far.refused.len(), 1);
    });
}

/// RFC 5321, section 4.5.3.1.10, asks for the code 452 alone, and has clients read 552 so.
#[test]
fn servers_say_in_several_ways_that_recipients_are_too_many() {
    let cases: [Says; 2] = [
        |connection, mail, line| {
            takes_one(connection, mail, line).map(|_| "452 too many recipients")
        },
        |connection, mail, line| {
            takes_one(connection, mail, line).map(|_| "552 5.5.3 too many recipients")
        },
    ];
    for says in cases {
        let (delivered, seen) = deliver_saying(says, &to_many(3));
        assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        assert_eq!(delivered.refused, []);
        assert_eq!(seen.mails(), 2);
    }
}

#[test]
fn when_all_are_refused_the_gravest_reason_counts() {
    let outcome = |says: Says| {
        let (delivered, seen) = deliver_saying(says, &to_many(2));
        assert_eq!(seen.mails(), 0);
        delivered.outcome
    };
    let reason = "smtp 550 5.1.1".to_owned();
    assert_eq!(
        outcome(|_, _, line| line.starts_with("RCPT").then_some("550 5.1.1 no")),
        MessageOutcome::RecipientRefused {
            reason,
            is_permanent: true,
        }
    );
    let reason = "smtp 554 5.7.1".to_owned();
    assert_eq!(
        outcome(|_, _, line| match line {
            "RCPT TO:<r1@example.com>" => Some("550 5.1.1 no"),
            "RCPT TO:<r2@example.com>" => Some("554 5.7.1 no"),
            _ => None,
        }),
        MessageOutcome::Refused { reason }
    );
    assert!(matches!(
        outcome(|_, _, line| match line {
            "RCPT TO:<r1@example.com>" => Some("554 5.7.1 no"),
            "RCPT TO:<r2@example.com>" => Some("530 5.7.0 log in"),
            _ => None,
        }),
        MessageOutcome::AccountRefused { .. }
    ));
    assert!(matches!(
        outcome(|_, _, line| match line {
            "RCPT TO:<r1@example.com>" => Some("554 5.7.1 no"),
            "RCPT TO:<r2@example.com>" => Some("450 4.2.0 later"),
            _ => None,
        }),
        MessageOutcome::RecipientDeferred { .. }
    ));
}

#[test]
fn data_without_a_recipient_is_ended_with_a_dot() {
    for data in ["354 go", "554 5.5.1 no valid recipients"] {
        let says: Says = match data {
            "354 go" => |_, mail, line| match line {
                "." => Some("554 5.5.1 no valid recipients"),
                _ => (mail == 1 && line.starts_with("RCPT")).then_some("550 5.1.1 no"),
            },
            _ => |_, mail, line| match line {
                "DATA" if mail == 1 => Some("554 5.5.1 no valid recipients"),
                "." if mail == 1 => unreachable!(),
                _ => (mail == 1 && line.starts_with("RCPT")).then_some("550 5.1.1 no"),
            },
        };
        let script = Script {
            says,
            ..Script::default()
        };
        run(async {
            let (relay, seen) = relay(script).await;
            let delivered = relay.send(&fixture::plain(1), now()).await;
            let reason = "smtp 550 5.1.1".to_owned();
            assert_eq!(
                delivered.outcome,
                MessageOutcome::RecipientRefused {
                    reason,
                    is_permanent: true,
                }
            );
            assert_eq!(delivered.status, Some(550));
            // The connection is as good as before.
            let _ = relay.send(&fixture::plain(2), now()).await;
            assert_eq!(seen.connections(), 1);
            assert_eq!(seen.commands("RSET").len(), 1);
            let mails = seen.mails.lock().unwrap();
            assert!(!mails.last().unwrap().is_empty());
            assert!(mails.iter().rev().skip(1).all(Vec::is_empty));
        });
    }
}
