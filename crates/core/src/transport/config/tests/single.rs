//! Transports without HTTP: a relay, a directory, the log.

use super::*;
use crate::transport::smtp::{Login, Tls};

const FROM: &str = "from = \"Shop <shop@example.com>\"\n";

fn file(provider: &str, lines: &str) -> String {
    format!("[transports.a]\nprovider = \"{provider}\"\n{lines}")
}

/// The relay of a transport with these lines.
fn relay(lines: &str) -> (TransportConfig, Arc<Single>) {
    let content = file(
        "smtp",
        &format!("host = \"smtp.example.com\"\n{FROM}{lines}"),
    );
    let configured = transports(&content).remove(0);
    let Method::Single(single) = &configured.method else {
        panic!("it speaks HTTP");
    };
    let single = Arc::clone(single);
    (configured, single)
}

fn smtp(single: &Single) -> &crate::transport::smtp::Relay {
    match single {
        Single::Smtp(relay) => relay,
        _ => panic!("it is no relay"),
    }
}

#[test]
fn a_relay_by_its_keys() {
    let (configured, single) = relay("");
    let (host, port, tls, login) = smtp(&single).peer();
    assert_eq!((host, port, tls), ("smtp.example.com", 587, Tls::Starttls));
    assert!(matches!(login, Login::None));
    assert_eq!(smtp(&single).limits(), (4, method::TIMEOUT));
    assert_eq!(configured.provider_name, "smtp");
    assert_eq!(configured.delivery.allow_from, ["shop@example.com"]);
    assert_eq!(configured.delivery.concurrency, 4);
    assert_eq!(configured.delivery.capabilities.batch_limit(), 1);
    assert_eq!(configured.delivery.capabilities.idempotency_window(), None);

    let (configured, single) = relay(
        "tls = \"implicit\"\nusername = \"hunter2 user\"\npassword = \"hunter2 \\\"grüße\\\"\"\nconcurrency = 9\ntimeout = \"7 s\"\nhelo = \"db.example.com\"",
    );
    let (_, port, tls, login) = smtp(&single).peer();
    assert_eq!((port, tls), (465, Tls::Implicit));
    let Login::Password { username, password } = login else {
        panic!("no password");
    };
    assert_eq!(username, "hunter2 user");
    assert_eq!(password.as_str(), "hunter2 \"grüße\"");
    assert_eq!(smtp(&single).limits(), (9, Duration::from_secs(7)));
    assert_eq!(configured.delivery.concurrency, 9);
    assert!(!configured.delivery.account.contains("grüße"));

    let (_, single) = relay("tls = \"none\"\nport = 25");
    let (_, port, tls, _) = smtp(&single).peer();
    assert_eq!((port, tls), (25, Tls::None));
    let (_, single) = relay("username = \"u\"\ntoken_file = \"token\"");
    let Login::Xoauth2 { token_file, .. } = smtp(&single).peer().3 else {
        panic!("no token");
    };
    assert_eq!(token_file, Path::new("/nowhere/token"));
}

#[test]
fn another_relay_or_user_is_another_address() {
    let address = |lines: &str| relay(lines).0.delivery.account;
    let one = address("username = \"a\"\npassword = \"1\"");
    assert_eq!(one, address("username = \"a\"\npassword = \"2\""));
    assert_ne!(one, address("username = \"b\"\npassword = \"1\""));
    assert_ne!(
        one,
        address("port = 2525\nusername = \"a\"\npassword = \"1\"")
    );
}

#[test]
fn a_password_in_a_file() {
    let directory = Directory::new("password");
    directory.write("good", "two words\r\n", 0o600);
    directory.write("bad", "two\nlines", 0o600);
    directory.write("open", "hunter2", 0o644);
    let password = |name: &str| {
        let content = file(
            "smtp",
            &format!("host = \"h\"\n{FROM}username = \"u\"\npassword_file = \"{name}\""),
        );
        let all = parse(&content, &directory.0).map_err(|error| error.to_string())?;
        let Method::Single(single) = &all[0].method else {
            panic!("it speaks HTTP");
        };
        match smtp(single).peer().3 {
            Login::Password { password, .. } => Ok(password.to_string()),
            _ => panic!("no password"),
        }
    };
    assert_eq!(password("good"), Ok("two words".to_owned()));
    for (name, problem) in [
        (
            "bad",
            "what is in the file that password_file names is not text without control characters",
        ),
        (
            "open",
            "the file that password_file names is open to others, mode 0644",
        ),
    ] {
        let problem = format!("transports file, line 6: transport \"a\": {problem}");
        assert_eq!(password(name), Err(problem));
    }
}

#[test]
fn a_directory_and_the_log() {
    let all = transports(&format!(
        "[transports.b]\nprovider = \"file\"\ndirectory = \"mail\"\n{FROM}rate = \"2 messages/s\"\n[transports.c]\nprovider = \"log\""
    ));
    for (transport, name) in all.iter().zip(["file", "log"]) {
        assert_eq!(transport.provider_name, name);
        assert_eq!(transport.delivery.concurrency, 1);
        let Method::Single(single) = &transport.method else {
            panic!("it speaks HTTP");
        };
        assert!(single.check(&fixture::message()).is_ok());
    }
    assert_eq!(
        all[0].delivery.account,
        "b\nfile\n/nowhere/mail\nShop <shop@example.com>"
    );
    assert_eq!(all[0].delivery.allow_from, ["shop@example.com"]);
    assert!(all[1].delivery.allow_from.is_empty());
}

#[test]
fn errors_are_in_the_line_of_their_key() {
    let smtp = |lines: &str| file("smtp", &format!("{FROM}host = \"h\"\n{lines}"));
    for (content, line, problem) in [
        (file("smtp", FROM), 1, "host is missing"),
        (file("smtp", "host = \"h\""), 1, "from is missing"),
        (
            file("smtp", &format!("{FROM}host = \"h:25\"")),
            4,
            "host is neither a name nor an address",
        ),
        (
            file("smtp", &format!("{FROM}host = \"smtp://h\"")),
            4,
            "host is neither a name nor an address",
        ),
        (
            smtp("port = 0"),
            5,
            "port is not a whole number from 1 to 65535",
        ),
        (
            smtp("tls = \"ssl\""),
            5,
            "tls is not \"starttls\", \"implicit\" or \"none\"",
        ),
        (smtp("username = \"u\""), 1, "password is missing"),
        (smtp("password = \"p\""), 1, "username is missing"),
        (smtp("token_file = \"t\""), 1, "username is missing"),
        (
            smtp("username = \"u\"\npassword = \"p\"\ntoken_file = \"t\""),
            7,
            "token_file is given besides password",
        ),
        (
            smtp("username = \"u\\n\""),
            5,
            "username is not text without control characters",
        ),
        (
            smtp("helo = \"a b\""),
            5,
            "helo is not printable ASCII without spaces and quotes",
        ),
        (
            smtp("ca_file = \"none\""),
            5,
            "ca_file names a file that cannot be read: No such file or directory (os error 2)",
        ),
        (
            smtp("endpoint = \"https://a.example\""),
            5,
            "endpoint is no key of provider smtp",
        ),
        (file("file", FROM), 1, "directory is missing"),
        (file("file", "directory = \"/d\""), 1, "from is missing"),
        (
            file("file", "timeout = \"1 s\""),
            3,
            "timeout is no key of provider file",
        ),
        (file("log", "from = \"a\""), 3, "from has no @"),
        (
            file("log", "concurrency = 4"),
            3,
            "concurrency is no key of provider log",
        ),
        (
            file("resend", "host = \"h\""),
            3,
            "host is no key of provider resend",
        ),
    ] {
        let error = super::problem(&content);
        let expected = format!("transports file, line {line}: transport \"a\": {problem}");
        assert_eq!(error.to_string(), expected);
        assert!(!error.hint().is_empty(), "{expected}");
    }
}

#[test]
fn no_secret_of_a_relay_is_shown() {
    for line in [
        "password = \"hunter2\\n\"",
        "password = [\"hunter2\"]",
        "password_file = \"hunter2\"",
        "username = [\"hunter2\"]",
        "username = \"hunter2\\n\"",
        "token_file = [\"hunter2\"]",
        "host = \"hunter2@h\"",
        "tls = \"hunter2\"",
        "port = \"hunter2\"",
        "helo = \"hunter2 \"",
        "directory = \"hunter2\"",
    ] {
        let error = super::problem(&file("smtp", &format!("{FROM}{line}\n")));
        let said = format!("{error} {error:?} {}", error.hint());
        assert!(!said.contains("hunter"), "{line}: {said}");
    }
}

/// A block of the page: its name and the transport in it.
fn blocks() -> Vec<(&'static str, TransportConfig)> {
    let page = include_str!("../../../../../../docs/guides/transports.md");
    let block = |block: &'static str| {
        let (name, rest) = block.split_once('\n').unwrap();
        let (content, _) = rest.split_once("```").unwrap();
        (name, transports(content).remove(0))
    };
    page.split("```toml ").skip(1).map(block).collect()
}

#[test]
fn the_blocks_of_the_documentation_are_good() {
    let mut names = Vec::new();
    for (name, transport) in blocks() {
        assert_eq!(&*transport.name, name);
        if name != "mailpit" {
            assert_eq!(transport.provider_name, name);
            names.push(name);
        }
    }
    assert_eq!(names, keys::providers().collect::<Vec<_>>());
}

#[test]
fn the_example_for_compose_reaches_a_service_by_its_name() {
    let (_, transport) = blocks()
        .into_iter()
        .find(|block| block.0 == "mailpit")
        .unwrap();
    let Method::Single(single) = &transport.method else {
        panic!("it speaks HTTP");
    };
    let (host, port, tls, login) = smtp(single).peer();
    assert_eq!((host, port, tls), ("mailpit", 1025, Tls::None));
    assert!(matches!(login, Login::None));
    // Of the default bridge, and of the first networks of Compose.
    for address in ["172.17.0.2", "172.18.0.3", "172.31.255.254"] {
        assert!(smtp(single).judge(address).is_ok(), "{address}");
    }
    for address in ["10.0.0.1", "8.8.8.8", "192.168.0.1"] {
        assert!(smtp(single).judge(address).is_err(), "{address}");
    }
}
