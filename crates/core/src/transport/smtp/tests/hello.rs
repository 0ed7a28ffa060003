//! The beginning of a session: greeting, EHLO or HELO, and servers that begin otherwise than `tls` says.

use super::*;

/// Delivers to a server that says so, over a connection of this kind.
fn deliver_over(script: Script, tls: Tls, login: Login) -> (Delivered, Arc<Seen>) {
    run(async {
        let (port, seen) = start(script).await;
        let mut settings = settings(port);
        settings.host = "localhost".to_owned();
        settings.tls = tls;
        settings.login = login;
        settings.timeout = Duration::from_millis(500);
        settings.connect_timeout = Duration::from_millis(500);
        let relay = Relay::new(settings).unwrap();
        (relay.send(&fixture::plain(1), now()).await, seen)
    })
}

fn saying(says: Says, is_encrypted: bool) -> Script {
    Script {
        says,
        is_encrypted,
        ..Script::default()
    }
}

#[test]
fn a_server_without_ehlo_is_told_helo() {
    let cases: [Says; 3] = [
        |_, _, line| line.starts_with("EHLO").then_some("500 what?"),
        |_, _, line| line.starts_with("EHLO").then_some("502 5.5.2 what?"),
        |_, _, line| line.starts_with("EHLO").then_some("504 what?"),
    ];
    for says in cases {
        for tls in [Tls::None, Tls::Implicit] {
            let script = saying(says, tls == Tls::Implicit);
            let (delivered, seen) = deliver_over(script, tls, Login::None);
            assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
            assert_eq!(seen.commands("HELO"), ["HELO client.example"]);
            // It offers no extension.
            assert_eq!(seen.commands("MAIL"), ["MAIL FROM:<shop@example.com>"]);
        }
    }
}

#[test]
fn not_if_the_transport_needs_an_extension() {
    let says: Says = |_, _, line| line.starts_with("EHLO").then_some("502 what?");
    let password = Login::Password {
        username: "shop".to_owned(),
        password: Zeroizing::new("hunter2".to_owned()),
    };
    for (tls, login) in [(Tls::Starttls, Login::None), (Tls::None, password)] {
        let (delivered, seen) = deliver_over(saying(says, false), tls, login);
        let MessageOutcome::AccountRefused { reason } = delivered.outcome else {
            panic!("{delivered:?}");
        };
        assert!(reason.ends_with(": see tls and username"), "{reason}");
        assert_eq!(*seen.commands.lock().unwrap(), ["EHLO client.example"]);
    }
}

#[test]
fn not_if_the_server_refuses_the_client() {
    let cases: [Says; 3] = [
        |_, _, line| line.starts_with("EHLO").then_some("550 5.7.1 go away"),
        |_, _, line| line.starts_with("EHLO").then_some("501 5.5.4 your name?"),
        |_, _, line| line.starts_with("EHLO").then_some("421 4.3.2 later"),
    ];
    for says in cases {
        let (_, seen) = deliver_over(saying(says, false), Tls::None, Login::None);
        assert_eq!(*seen.commands.lock().unwrap(), ["EHLO client.example"]);
    }
}

#[test]
fn a_server_that_waits_for_tls_is_told_by_the_key() {
    for tls in [Tls::Starttls, Tls::None] {
        let (delivered, _) = deliver_over(saying(|_, _, _| None, true), tls, Login::None);
        assert_eq!(
            unreached(&delivered),
            "no session: no greeting: timeout; if TLS begins at once on this port, write tls = \"implicit\""
        );
    }
}

#[test]
fn so_is_one_that_does_not_begin_with_tls() {
    let script = saying(|_, _, _| None, false);
    let (delivered, _) = deliver_over(script, Tls::Implicit, Login::None);
    let shown = unreached(&delivered);
    assert!(
        shown.ends_with(
            "the server does not begin with TLS: write tls = \"starttls\", or in port one that does"
        ),
        "{shown}"
    );
    // One that keeps a client waiting for its greeting.
    run(async {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut settings = settings(silent.local_addr().unwrap().port());
        settings.tls = Tls::Implicit;
        settings.connect_timeout = Duration::from_millis(200);
        let relay = Relay::new(settings).unwrap();
        let delivered = relay.send(&fixture::plain(1), now()).await;
        assert_eq!(
            unreached(&delivered),
            "no connection: timeout during the TLS handshake; if TLS does not begin at once on this port, write tls = \"starttls\""
        );
    });
}

#[test]
fn a_certificate_that_does_not_pass_is_told_with_what_to_change() {
    let authority = include_bytes!("authority.pem");
    let other = include_bytes!("of_another_authority.pem");
    let expired = include_bytes!("expired.pem");
    for (pem, trusted, remedy) in [
        (
            &authority[..],
            &authority[..],
            "the server presents the certificate of an authority: give it one that the authority issued, and keep the authority's in ca_file",
        ),
        (
            &other[..],
            &authority[..],
            "write in ca_file the name of a file with the certificate of the authority that issued the server's",
        ),
        (
            &expired[..],
            &expired[..],
            "renew the server's certificate, or correct the clock of this machine: no key lets it pass",
        ),
    ] {
        for tls in [Tls::Implicit, Tls::Starttls] {
            let script = Script {
                extensions: vec!["STARTTLS"],
                is_encrypted: tls == Tls::Implicit,
                pem,
                ..Script::default()
            };
            run(async {
                let (port, _) = start(script).await;
                let mut settings = settings(port);
                settings.host = "localhost".to_owned();
                settings.tls = tls;
                settings.tls_config = trusting(trusted);
                let relay = Relay::new(settings).unwrap();
                let delivered = relay.send(&fixture::plain(1), now()).await;
                let shown = unreached(&delivered);
                assert!(shown.ends_with(&format!("; {remedy}")), "{shown}");
            });
        }
    }
}
