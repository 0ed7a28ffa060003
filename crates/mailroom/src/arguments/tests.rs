use super::*;

fn read(line: &str) -> Result<Command, String> {
    parse(line.split_whitespace().map(OsString::from))
}

#[test]
fn databases_may_be_many() {
    let line = "send --database postgresql://a/x -d dbname=y --transports=/t --once --poll 0.5 --log-format json --no-listen";
    let expected = Send {
        databases: vec!["postgresql://a/x".to_owned(), "dbname=y".to_owned()],
        transports: "/t".into(),
        once: true,
        poll: Duration::from_millis(500),
        listen: false,
        format: Format::Json,
    };
    assert_eq!(read(line), Ok(Command::Send(expected)));
}

#[test]
fn a_report_names_its_transport() {
    let expected = Report {
        databases: vec!["x".to_owned()],
        transport: "relay".to_owned(),
    };
    let line = "report -d x --transport relay";
    assert_eq!(read(line), Ok(Command::Report(expected)));
    for wrong in [
        "report -d x",
        "report --transport relay",
        "report -d x -t /t",
        "send -d x -t /t --transport y",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_check_needs_no_database() {
    let expected = Check {
        databases: vec![],
        transports: "/t".into(),
        to: Some("a@example.com".to_owned()),
    };
    let line = "check --transports /t --to a@example.com";
    assert_eq!(read(line), Ok(Command::Check(expected)));
}

#[test]
fn a_receiver_listens_on_this_machine() {
    let expected = |listen: &str| {
        Ok(Command::Receive(Receive {
            databases: vec!["x".to_owned()],
            transports: "/t".into(),
            listen: listen.parse().unwrap(),
            format: Format::Text,
        }))
    };
    let line = "receive -d x -t /t";
    assert_eq!(read(line), expected("127.0.0.1:8025"));
    for address in ["127.1.2.3:1", "[::1]:8026", "[::ffff:127.0.0.1]:80"] {
        assert_eq!(
            read(&format!("{line} --listen {address}")),
            expected(address)
        );
    }
    for address in ["0.0.0.0:8025", "[::]:8025", "192.0.2.1:8025"] {
        let line = format!("{line} --listen {address}");
        let problem = read(&line).unwrap_err();
        assert!(problem.contains("--behind-proxy"), "{problem}");
        assert_eq!(read(&format!("{line} --behind-proxy")), expected(address));
    }
}

#[test]
fn a_page_is_on_this_machine_or_behind_a_proxy() {
    let expected = |listen: &str, url: Option<&str>, is_behind_proxy: bool| {
        Ok(Command::Serve(Serve {
            databases: vec!["x".to_owned()],
            listen: listen.parse().unwrap(),
            url: url.map(str::to_owned),
            is_behind_proxy,
            format: Format::Text,
        }))
    };
    let default = "127.0.0.1:8425";
    let url = "https://ops.example.com/mail";
    let line = "serve -d x";
    assert_eq!(read(line), expected(default, None, false));
    let with_url = format!("{line} --url {url}");
    assert_eq!(read(&with_url), expected(default, Some(url), false));
    for address in ["0.0.0.0:8425", "[::]:80"] {
        let line = format!("{with_url} --listen {address}");
        let problem = read(&line).unwrap_err();
        assert!(problem.contains("--behind-proxy"), "{problem}");
        let behind = format!("{line} --behind-proxy");
        assert_eq!(read(&behind), expected(address, Some(url), true));
    }
    let several = "serve -d x --database postgresql:///y --listen [::1]:1 --log-format json";
    let Ok(Command::Serve(serve)) = read(several) else {
        panic!("{several}");
    };
    assert_eq!(serve.databases, ["x", "postgresql:///y"]);
    assert_eq!(serve.listen, "[::1]:1".parse().unwrap());
    assert_eq!(serve.format, Format::Json);
}

#[test]
fn a_transports_file_is_named_from_the_root() {
    let expected = std::env::current_dir().unwrap().join("conf/t.toml");
    for command in ["send -d x", "check", "receive -d x"] {
        let transports = match read(&format!("{command} -t conf/t.toml")).unwrap() {
            Command::Send(send) => send.transports,
            Command::Check(check) => check.transports,
            Command::Receive(receive) => receive.transports,
            other => panic!("{other:?}"),
        };
        assert_eq!(transports, expected);
    }
    assert!(read("check --transports=").is_err());
}

#[test]
fn help_is_to_be_had_anywhere() {
    for line in [
        "--help",
        "-h",
        "help",
        "send --help",
        "check -h",
        "receive -h",
        "serve -h",
    ] {
        assert_eq!(read(line), Ok(Command::Help), "{line}");
    }
    assert_eq!(read("--version"), Ok(Command::Version));
}

#[test]
fn errors_are_one_line_without_values() {
    for (line, wrong) in [
        ("", "no command"),
        ("deliver", "command"),
        ("send --transports /t", "--database"),
        ("send --database hunter2", "--transports"),
        ("send hunter2", "argument"),
        ("send --database hunter2 --transports", "--transports"),
        ("send --once=hunter2", "--once"),
        ("send --to hunter2", "--to"),
        ("send --hunt", "--hunt"),
        ("send -d x -t t --poll hunter2", "--poll"),
        ("send -d x -t t --poll 0", "--poll"),
        ("send -d x -t t --log-format hunter2", "--log-format"),
        ("check --transports t --once", "--once"),
        ("receive -t t", "--database"),
        ("receive -d x", "--transports"),
        ("receive -d x -t t --once", "--once"),
        ("receive -d x -t t --listen hunter2", "--listen"),
        ("receive -d x -t t --listen 8025", "--listen"),
        ("send -d x -t t --listen 127.0.0.1:1", "--listen"),
        ("send -d x -t t --behind-proxy", "--behind-proxy"),
        ("serve", "--database"),
        ("serve -d hunter2 -t t", "-t"),
        ("serve -d x --listen hunter2", "--listen"),
        ("serve -d x --url", "--url"),
        ("serve -d x --once", "--once"),
        ("serve hunter2", "argument"),
        ("receive -d x -t t --url hunter2", "--url"),
    ] {
        let told = read(line).unwrap_err();
        assert!(told.contains(wrong), "{line}: {told}");
        assert!(!told.contains("hunter2"), "{line}: {told}");
        assert!(!told.contains('\n'));
    }
}

#[test]
fn help_tells_of_every_option() {
    for option in [
        "--database",
        "--transports",
        "--once",
        "--poll",
        "--no-listen",
        "--log-format",
        "--to",
        "--transport NAME",
        "--listen",
        "--behind-proxy",
        "--url",
        "SIGTERM",
        "SIGHUP",
        "NOTIFY_SOCKET",
        "PGPASSFILE",
    ] {
        assert!(HELP.contains(option), "{option}");
    }
}
