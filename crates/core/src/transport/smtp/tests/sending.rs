use super::*;
use mail_parser::MessageParser;

fn script(extensions: &[&'static str]) -> Script {
    Script {
        extensions: extensions.to_vec(),
        ..Script::default()
    }
}

#[test]
fn a_mail_arrives() {
    let message = fixture::message();
    let (delivered, seen) = deliver(Script::default(), &message);
    assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
    assert_eq!(delivered.status, Some(250));
    assert!(delivered.refused.is_empty());
    assert_eq!(seen.commands("EHLO"), ["EHLO client.example"]);
    assert_eq!(
        seen.commands("RCPT"),
        [
            "RCPT TO:<ada@example.com>",
            "RCPT TO:<grace@example.com>",
            "RCPT TO:<alan@example.com>",
        ]
    );
    let mails = seen.mails.lock().unwrap();
    let size = format!("MAIL FROM:<shop@example.com> SIZE={}", mails[0].len());
    assert_eq!(seen.commands("MAIL"), [size]);
    let read = MessageParser::default().parse(&mails[0]).unwrap();
    assert_eq!(read.subject(), Some(message.subject.as_str()));
    assert_eq!(
        read.message_id().unwrap(),
        format!("{}@example.com", message.message_id)
    );
    assert!(!String::from_utf8_lossy(&mails[0]).contains("alan@"));
}

#[test]
fn the_envelope_is_from_the_sender_of_the_mail_or_the_bounce_address() {
    let mut message = fixture::plain(1);
    message.from_address = Some("\"Lee, Ann\" <ann@bücher.example>".to_owned());
    message.recipients = vec![
        "Bob <bob@example.com>".to_owned(),
        "bob@EXAMPLE.com".to_owned(),
    ];
    for (bounces, mail) in [
        (None, "MAIL FROM:<ann@xn--bcher-kva.example>"),
        (
            Some("bounces@bücher.example"),
            "MAIL FROM:<bounces@xn--bcher-kva.example>",
        ),
    ] {
        let seen = run(async {
            let (port, seen) = start(Script::default()).await;
            let settings = Settings {
                bounce_address: bounces.map(str::to_owned),
                ..settings(port)
            };
            let relay = Relay::new(settings).unwrap();
            assert_eq!(
                relay.send(&message, now()).await.outcome,
                sent(Some("4F1B2C"))
            );
            seen
        });
        let command = &seen.commands("MAIL")[0];
        assert!(command.starts_with(mail), "{command}");
        assert_eq!(seen.commands("RCPT"), ["RCPT TO:<bob@example.com>"]);
        let mails = seen.mails.lock().unwrap();
        let read = MessageParser::default().parse(&mails[0]).unwrap();
        let from = read.from().unwrap().first().unwrap();
        assert_eq!(from.name(), Some("Lee, Ann"));
        assert_eq!(from.address(), Some("ann@xn--bcher-kva.example"));
        assert!(
            read.message_id()
                .unwrap()
                .ends_with("@xn--bcher-kva.example")
        );
    }
    let wrong = Settings {
        bounce_address: Some("Bounces <b@example.com>".to_owned()),
        ..settings(25)
    };
    assert_eq!(Relay::new(wrong).err().unwrap().key, "bounce_address");
}

#[test]
fn commands_go_together_where_the_server_offers_it() {
    let script = Script {
        wants_pipelining: true,
        ..Script::default()
    };
    let (delivered, _) = deliver(script, &fixture::plain(1));
    assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
}

#[test]
fn and_one_after_the_other_where_it_does_not() {
    run(async {
        let (relay, seen) = relay(script(&[])).await;
        for number in 1..4 {
            let delivered = relay.send(&fixture::plain(number), now()).await;
            assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        }
        assert_eq!((seen.connections(), seen.mails()), (1, 3));
        assert_eq!(seen.commands("MAIL")[0], "MAIL FROM:<shop@example.com>");
    });
}

#[test]
fn what_the_text_is_made_of_stays() {
    let mut message = fixture::plain(1);
    let text = format!(
        ".\n.\r\n..\r. \nFrom me\n{}\na\rb\nc\r\n\u{1}\u{7f}\n.",
        "long ".repeat(500)
    );
    message.body_text = Some(text.clone());
    message.body_html = Some(format!("<p>{}</p>\n.\n\n.\n", "ü.".repeat(2000)));
    let (delivered, seen) = deliver(Script::default(), &message);
    assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
    let mails = seen.mails.lock().unwrap();
    let longest = mails[0].split(|byte| *byte == b'\n').map(<[u8]>::len).max();
    assert!(longest.unwrap() < 100);
    let read = MessageParser::default().parse(&mails[0]).unwrap();
    let lines = |text: &str| -> Vec<String> {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        text.split('\n').map(str::to_owned).collect()
    };
    assert_eq!(lines(&read.body_text(0).unwrap()), lines(&text));
    let html = read.body_html(0).unwrap();
    assert_eq!(lines(&html), lines(message.body_html.as_deref().unwrap()));
}

#[test]
fn dots_at_the_start_of_lines_stay() {
    let mut message = fixture::plain(1);
    message.body_html = None;
    // Not encoded, so that the lines of the body are those of the content.
    for text in [".", ".\r\n..\r\n.a\r\n\r\n.\r\n", "a\r\n.\r\nQUIT\r\n"] {
        message.body_text = Some(text.to_owned());
        let (delivered, seen) = deliver(Script::default(), &message);
        assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        let mails = seen.mails.lock().unwrap();
        let content = String::from_utf8(mails[0].clone()).unwrap();
        let (_, body) = content.split_once("\r\n\r\n").unwrap();
        assert_eq!(body.trim_end(), text.trim_end());
        assert!(seen.commands("QUIT").is_empty());
    }
}

#[test]
fn a_mail_that_is_too_large_is_refused_here() {
    run(async {
        let (relay, seen) = relay(script(&["SIZE 2000", "PIPELINING"])).await;
        let mut large = fixture::plain(1);
        large.body_text = Some("x".repeat(3000));
        assert_eq!(relay.check(&large), Ok(()));
        let delivered = relay.send(&large, now()).await;
        let MessageOutcome::Unsendable { reason: shown } = delivered.outcome else {
            panic!("{delivered:?}");
        };
        assert!(
            shown.ends_with("and the server takes 2000 at most"),
            "{shown}"
        );
        // From then on it is known.
        assert!(relay.check(&large).is_err());
        assert_eq!(relay.check(&fixture::plain(2)), Ok(()));
        let delivered = relay.send(&fixture::plain(2), now()).await;
        assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        assert_eq!((seen.connections(), seen.commands("MAIL").len()), (1, 1));
    });
}

#[test]
fn addresses_beyond_ascii() {
    let mut message = fixture::plain(1);
    message.recipients = vec!["jörg@bücher.example".to_owned()];
    let (delivered, seen) = deliver(Script::default(), &message);
    assert!(matches!(
        delivered.outcome,
        MessageOutcome::Unsendable { .. }
    ));
    assert!(seen.commands("MAIL").is_empty());
    let (delivered, seen) = deliver(script(&["SMTPUTF8", "8BITMIME"]), &message);
    assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
    assert_eq!(
        seen.commands("MAIL"),
        ["MAIL FROM:<shop@example.com> BODY=8BITMIME SMTPUTF8"]
    );
    assert_eq!(
        seen.commands("RCPT"),
        ["RCPT TO:<jörg@xn--bcher-kva.example>"]
    );
    // A domain alone does not need it.
    message.recipients = vec!["joerg@bücher.example".to_owned()];
    let (delivered, seen) = deliver(Script::default(), &message);
    assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
    assert_eq!(
        seen.commands("RCPT"),
        ["RCPT TO:<joerg@xn--bcher-kva.example>"]
    );
}

/// Every message would end otherwise, and at once.
#[test]
fn a_sender_that_the_server_cannot_take_ends_no_mail() {
    for (extensions, is_taken) in [(&["PIPELINING"][..], false), (&["SMTPUTF8"][..], true)] {
        run(async {
            let (port, seen) = start(script(extensions)).await;
            let mut settings = settings(port);
            settings.from = "Shop <jörg@bücher.example>".to_owned();
            let relay = Relay::new(settings).unwrap();
            for number in 1..3 {
                let delivered = relay.send(&fixture::plain(number), now()).await;
                if is_taken {
                    assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
                } else {
                    let MessageOutcome::AccountRefused { reason: shown } = delivered.outcome else {
                        panic!("{delivered:?}");
                    };
                    assert!(
                        shown.starts_with("from has letters beyond ASCII"),
                        "{shown}"
                    );
                }
                assert_eq!(relay.check(&fixture::plain(number)), Ok(()));
            }
            assert_eq!(seen.commands("MAIL").len(), if is_taken { 2 } else { 0 });
            // Nor does it end mail to a recipient that needs the same.
            let mut message = fixture::plain(3);
            message.recipients = vec!["jörg@example.com".to_owned()];
            assert_eq!(relay.check(&message), Ok(()));
        });
    }
}

#[test]
fn reports_are_asked_for_where_the_server_makes_them() {
    let message = fixture::plain(1);
    let (_, seen) = deliver(script(&["DSN"]), &message);
    let mail = format!(
        "MAIL FROM:<shop@example.com> RET=HDRS ENVID={}",
        message.message_id
    );
    assert_eq!(seen.commands("MAIL"), [mail]);
    assert_eq!(
        seen.commands("RCPT"),
        ["RCPT TO:<ada@example.com> NOTIFY=FAILURE,DELAY"]
    );
}

#[test]
fn what_a_server_may_say() {
    let retry = |reason: &str| MessageOutcome::Retry {
        reason: reason.to_owned(),
        after: None,
    };
    let throttled = |reason: &str| MessageOutcome::Throttled {
        reason: reason.to_owned(),
        after: None,
    };
    let refused = |reason: &str| MessageOutcome::Refused {
        reason: reason.to_owned(),
    };
    let broken = |reason: &str| MessageOutcome::AccountRefused {
        reason: reason.to_owned(),
    };
    let cases: [(Says, MessageOutcome); 9] = [
        (
            |_, _, line| (line == "connect").then_some("421 4.3.2 busy with ada@example.com"),
            throttled("smtp 421 4.3.2"),
        ),
        (
            |_, _, line| line.starts_with("EHLO").then_some("550 go away"),
            broken("smtp 550: the server takes no mail from here"),
        ),
        (
            |_, _, line| {
                line.starts_with("MAIL")
                    .then_some("421 4.3.2 shutting down")
            },
            throttled("smtp 421 4.3.2"),
        ),
        (
            |_, _, line| line.starts_with("RCPT").then_some("451 4.7.1 greylisted"),
            throttled("smtp 451 4.7.1"),
        ),
        (
            |_, _, line| {
                line.starts_with("RCPT")
                    .then_some("421 4.3.2 shutting down")
            },
            throttled("smtp 421 4.3.2"),
        ),
        (
            |_, _, line| (line == "DATA").then_some("451 4.3.0 later"),
            retry("smtp 451 4.3.0"),
        ),
        (
            |_, _, line| (line == ".").then_some("421 4.3.0 later"),
            retry("smtp 421 4.3.0"),
        ),
        (
            |_, _, line| (line == ".").then_some("550 5.7.1 spam: see {{you}}"),
            refused("smtp 550 5.7.1"),
        ),
        (
            |_, _, line| (line == "connect").then_some("SSH-2.0-OpenSSH"),
            retry(""),
        ),
    ];
    for (says, expected) in cases {
        let (delivered, _) = deliver_to(says);
        if expected.reason().is_empty() {
            assert_eq!(
                unreached(&delivered),
                "no session: the server's reply is not SMTP"
            );
        } else {
            assert_eq!(delivered.outcome, expected);
        }
    }
}

#[test]
fn addresses_that_must_not_be_dialled() {
    run(async {
        let (port, seen) = start(Script::default()).await;
        for networks in ["", "10.0.0.0/8"] {
            let mut settings = settings(port);
            settings.networks = AllowedNetworks::parse(networks).unwrap();
            let relay = Relay::new(settings).unwrap();
            let delivered = relay.send(&fixture::plain(1), now()).await;
            assert!(matches!(
                delivered.outcome,
                MessageOutcome::EndpointDenied { .. }
            ));
        }
        for tls in [Tls::Implicit, Tls::Starttls] {
            let mut settings = settings(port);
            settings.networks = AllowedNetworks::default();
            settings.tls = tls;
            let relay = Relay::new(settings).unwrap();
            let delivered = relay.send(&fixture::plain(1), now()).await;
            let reason = "address 127.0.0.1 of the relay is not public; see allowed_networks";
            assert_eq!(
                delivered.outcome,
                MessageOutcome::EndpointDenied {
                    reason: reason.to_owned()
                }
            );
        }
        assert_eq!(seen.connections(), 0);
    });
}

#[test]
fn no_server_at_all() {
    run(async {
        let (port, _) = {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            (listener.local_addr().unwrap().port(), listener)
        };
        // The listener is gone.
        let delivered = Relay::new(settings(port))
            .unwrap()
            .send(&fixture::plain(1), now())
            .await;
        assert!(unreached(&delivered).starts_with("no connection: "));
    });
}
