use super::*;
use std::os::unix::fs::PermissionsExt;

/// `shop` and `hunter2`.
const PLAIN_WORDS: &str = "AUTH PLAIN AHNob3AAaHVudGVyMg==";

fn password() -> Login {
    Login::Password {
        username: "shop".to_owned(),
        password: Zeroizing::new("hunter2".to_owned()),
    }
}

/// Of a server that speaks TLS from the beginning, or after STARTTLS.
fn script(extensions: &[&'static str], tls: Tls) -> Script {
    Script {
        extensions: extensions.to_vec(),
        is_encrypted: tls == Tls::Implicit,
        ..Script::default()
    }
}

/// By the name that the certificate has.
fn encrypted(port: u16, tls: Tls, login: Login) -> Settings {
    let mut settings = settings(port);
    settings.host = "localhost".to_owned();
    settings.tls = tls;
    settings.login = login;
    settings
}

fn deliver_with(script: Script, tls: Tls, login: Login) -> (Delivered, Arc<Seen>) {
    run(async {
        let (port, seen) = start(script).await;
        let relay = Relay::new(encrypted(port, tls, login)).unwrap();
        (relay.send(&fixture::plain(1), now()).await, seen)
    })
}

#[test]
fn over_tls() {
    for tls in [Tls::Implicit, Tls::Starttls] {
        for (offer, said) in [
            ("AUTH LOGIN PLAIN", vec![PLAIN_WORDS]),
            ("AUTH=PLAIN", vec![PLAIN_WORDS]),
            ("AUTH LOGIN", vec!["AUTH LOGIN", "c2hvcA==", "aHVudGVyMg=="]),
        ] {
            let mut script = script(&["STARTTLS", "PIPELINING", offer], tls);
            script.says = |_, _, line| match line {
                "AUTH LOGIN" => Some("334 VXNlcm5hbWU6"),
                "c2hvcA==" => Some("334 UGFzc3dvcmQ6"),
                "aHVudGVyMg==" => Some("235 2.7.0 welcome"),
                _ => None,
            };
            let (delivered, seen) = deliver_with(script, tls, password());
            assert_eq!(delivered.outcome, sent(Some("4F1B2C")), "{tls:?} {offer}");
            let commands = seen.commands.lock().unwrap();
            let starts = if tls == Tls::Starttls {
                vec!["EHLO client.example", "STARTTLS", "EHLO client.example"]
            } else {
                vec!["EHLO client.example"]
            };
            let expected = [starts, said].concat();
            assert_eq!(commands[..expected.len()], expected);
        }
    }
}

#[test]
fn a_wrong_password() {
    let mut script = script(&["STARTTLS", "AUTH PLAIN"], Tls::Starttls);
    script.says = |_, _, line| line.starts_with("AUTH").then_some("535 5.7.8 hunter2?");
    let (delivered, seen) = deliver_with(script, Tls::Starttls, password());
    let reason = "smtp 535 5.7.8: the credentials were refused".to_owned();
    assert_eq!(delivered.outcome, MessageOutcome::AccountRefused { reason });
    assert_eq!(delivered.status, Some(535));
    assert!(seen.commands("MAIL").is_empty());
}

#[test]
fn a_server_that_knows_none_of_it() {
    let script = script(&["STARTTLS", "AUTH CRAM-MD5"], Tls::Starttls);
    let (delivered, seen) = deliver_with(script, Tls::Starttls, password());
    assert!(matches!(
        delivered.outcome,
        MessageOutcome::AccountRefused { .. }
    ));
    assert!(seen.commands("AUTH").is_empty() && seen.commands("MAIL").is_empty());
}

#[test]
fn nothing_is_said_in_clear() {
    let (delivered, seen) = deliver_with(
        script(&["AUTH PLAIN"], Tls::Starttls),
        Tls::Starttls,
        password(),
    );
    let reason =
        "the server does not offer STARTTLS, which tls asks for: nothing was sent in clear"
            .to_owned();
    assert_eq!(delivered.outcome, MessageOutcome::AccountRefused { reason });
    assert_eq!(*seen.commands.lock().unwrap(), ["EHLO client.example"]);
}

/// Delivers in clear to a relay of this name, which the hosts file has.
fn deliver_in_clear(address: &str, networks: &str, login: Login) -> (Delivered, Arc<Seen>) {
    run(async {
        let (port, seen) = start(script(&["AUTH PLAIN"], Tls::None)).await;
        let mut settings = settings(port);
        settings.host = "mail_relay".to_owned();
        settings.networks = AllowedNetworks::parse(networks).unwrap();
        settings.login = login;
        let mut relay = Relay::new(settings).unwrap();
        relay.peer.names = Resolver::of_hosts(&format!("{address} mail_relay"));
        (relay.send(&fixture::plain(1), now()).await, seen)
    })
}

#[test]
fn in_clear_they_go_to_this_machine_only() {
    let (delivered, seen) = deliver_in_clear("127.0.0.1", "127.0.0.1", password());
    assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
    assert_eq!(seen.commands("AUTH"), [PLAIN_WORDS]);
    let remedy = "tls must be \"starttls\" or \"implicit\"";
    for (address, login, problem) in [
        (
            "172.18.0.2",
            password(),
            "is not loopback, so credentials are sent to it by TLS only",
        ),
        (
            "8.8.8.8",
            password(),
            "is not loopback, so credentials are sent to it by TLS only",
        ),
        (
            "8.8.8.8",
            Login::None,
            "is not private, so mail is sent to it by TLS only",
        ),
    ] {
        let (delivered, seen) = deliver_in_clear(address, "0.0.0.0/0", login);
        let reason = format!("address {address} of the relay {problem}: {remedy}");
        assert_eq!(delivered.outcome, MessageOutcome::EndpointDenied { reason });
        assert_eq!(seen.connections(), 0);
    }
}

/// Answers AUTH PLAIN and AUTH LOGIN so, and takes the password.
fn deliver_refusing(says: Says) -> (Delivered, Vec<String>) {
    let mut script = script(&["STARTTLS", "AUTH PLAIN LOGIN"], Tls::Starttls);
    script.says = says;
    let (delivered, seen) = deliver_with(script, Tls::Starttls, password());
    (delivered, seen.commands("AUTH"))
}

#[test]
fn a_refused_mechanism_is_followed_by_the_next() {
    let cases: [Says; 3] = [
        |_, _, line| line.starts_with("AUTH PLAIN").then_some("504 5.5.4 no"),
        |_, _, line| line.starts_with("AUTH PLAIN").then_some("502 5.5.1 no"),
        |_, _, line| {
            line.starts_with("AUTH PLAIN")
                .then_some("534 5.7.9 too weak")
        },
    ];
    for says in cases {
        let (delivered, said) = deliver_refusing(says);
        assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        assert_eq!(said, [PLAIN_WORDS, "AUTH LOGIN"]);
    }
    let (delivered, said) = deliver_refusing(|_, _, line| match line {
        "AUTH LOGIN" => Some("504 5.5.4 no"),
        _ => line.starts_with("AUTH").then_some("504 5.5.4 no"),
    });
    let reason = "smtp 504 5.5.4: the server refuses the AUTH mechanisms that it offers".to_owned();
    assert_eq!(delivered.outcome, MessageOutcome::AccountRefused { reason });
    assert_eq!(said.len(), 2);
}

#[test]
fn wrong_credentials_are_tried_once() {
    let cases: [Says; 3] = [
        |_, _, line| line.starts_with("AUTH").then_some("535 5.7.8 no"),
        |_, _, line| line.starts_with("AUTH").then_some("538 5.7.11 no"),
        |_, _, line| line.starts_with("AUTH").then_some("454 4.7.0 later"),
    ];
    for says in cases {
        let (delivered, said) = deliver_refusing(says);
        assert_eq!(said, [PLAIN_WORDS], "{delivered:?}");
    }
}

#[test]
fn words_in_clear_do_not_pass_for_those_of_the_server() {
    let mut script = script(&["STARTTLS"], Tls::Starttls);
    script.says = |_, _, line| (line == "STARTTLS").then_some("220 go\r\n250 mine");
    let (delivered, seen) = deliver_with(script, Tls::Starttls, Login::None);
    assert_eq!(
        unreached(&delivered),
        "no session: the server's reply is not SMTP"
    );
    assert!(seen.commands("MAIL").is_empty());
}

#[test]
fn a_server_that_cannot_do_tls_now() {
    let mut script = script(&["STARTTLS"], Tls::Starttls);
    script.says = |_, _, line| (line == "STARTTLS").then_some("454 4.7.0 not now");
    let (delivered, _) = deliver_with(script, Tls::Starttls, Login::None);
    assert!(matches!(delivered.outcome, MessageOutcome::Retry { .. }));
}

#[test]
fn certificates_have_to_be_the_hosts_and_vouched_for() {
    for tls in [Tls::Implicit, Tls::Starttls] {
        run(async {
            let (port, seen) = start(script(&["STARTTLS", "AUTH PLAIN"], tls)).await;
            let mut other_name = encrypted(port, tls, password());
            other_name.host = "127.0.0.1".to_owned();
            let mut no_authority = encrypted(port, tls, password());
            no_authority.tls_config = crate::transport::tls::config(None, true).unwrap();
            for (settings, word, key) in [
                (other_name, "certificate not valid for name", "in host"),
                (no_authority, "UnknownIssuer", "in ca_file"),
            ] {
                let relay = Relay::new(settings).unwrap();
                let delivered = relay.send(&fixture::plain(1), now()).await;
                let shown = unreached(&delivered);
                assert!(shown.contains(word) && shown.contains(key), "{shown}");
            }
            assert!(seen.commands("AUTH").is_empty());
        });
    }
}

#[test]
fn a_token_from_a_file_that_changes() {
    let path = std::env::temp_dir().join(format!("mailroom-token-{}", std::process::id()));
    let write = |token: &str| {
        std::fs::write(&path, token).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    let mut script = script(&["STARTTLS", "AUTH XOAUTH2"], Tls::Starttls);
    script.says = |_, _, line| match line {
        // user=shop, auth=Bearer t1
        "AUTH XOAUTH2 dXNlcj1zaG9wAWF1dGg9QmVhcmVyIHQxAQE=" => Some("334 eyJzdGF0dXMiOiI0MDEifQ=="),
        "" => Some("535 5.7.8 no"),
        _ => None,
    };
    run(async {
        let (port, seen) = start(script).await;
        let login = Login::Xoauth2 {
            username: "shop".to_owned(),
            token_file: path.clone(),
        };
        let relay = Relay::new(encrypted(port, Tls::Starttls, login)).unwrap();
        let message = fixture::plain(1);
        let delivered = relay.send(&message, now()).await;
        let path_shown = path.display();
        let reason = format!("token file \"{path_shown}\" does not exist");
        assert_eq!(delivered.outcome, MessageOutcome::AccountRefused { reason });
        write("t1\n");
        let delivered = relay.send(&message, now()).await;
        assert_eq!(delivered.status, Some(535));
        assert!(matches!(
            delivered.outcome,
            MessageOutcome::AccountRefused { .. }
        ));
        write("t2\n");
        let delivered = relay.send(&message, now()).await;
        assert_eq!(delivered.outcome, sent(Some("4F1B2C")));
        assert_eq!(seen.commands("AUTH").len(), 2);
        for bad in ["", "two words"] {
            write(bad);
            let other = Login::Xoauth2 {
                username: "shop".to_owned(),
                token_file: path.clone(),
            };
            let relay = Relay::new(encrypted(port, Tls::Starttls, other)).unwrap();
            let delivered = relay.send(&message, now()).await;
            let reason = format!("token file \"{path_shown}\" does not hold a token");
            assert_eq!(delivered.outcome, MessageOutcome::AccountRefused { reason });
        }
    });
    std::fs::remove_file(&path).unwrap();
}
