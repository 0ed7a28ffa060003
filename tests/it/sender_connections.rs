//! `mailroom send` (in MAILROOM_SEND) and its connections: databases that stop and start, poolers, TLS, encodings.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crate::cluster::{Stop, eventually, eventually_or_tell, number};
use crate::pooler::Pooler;
use crate::receiver::{Reaction, status};
use crate::sender_scene::{Scene, Sender, load, program};

#[test]
fn a_restart_of_the_server_is_survived() {
    let mut scene = Scene::start(&[]);
    let sender = scene.sender("sender", &["--poll", "1"]);
    scene.load(10);
    scene.wait_for("state = 'sent'", 10);
    for (round, how) in [(1, Stop::Fast), (2, Stop::Immediate)] {
        scene.cluster.stop_server(how);
        sender.wait_for("cannot use the database", round);
        // Some attempts fail, which are not logged.
        std::thread::sleep(Duration::from_secs(4));
        scene.cluster.start_server();
        scene.client = scene.cluster.connect("app");
        let before = scene.count("state = 'sent'");
        scene.load(10);
        scene.wait_for("state = 'sent'", before + 10);
        sender.wait_for("the database can be used again", round);
        assert_eq!(
            sender.log().matches("cannot use the database").count(),
            round
        );
    }
    assert_eq!(scene.copies(), Vec::<usize>::new());
    assert_eq!(sender.stop().0.code(), Some(0));
}

#[test]
fn an_update_of_the_extension_is_noticed() {
    let mut scene = Scene::start(&[]);
    let query = "SELECT extversion FROM pg_extension WHERE extname = 'mailroom'";
    let current: String = scene.client.query_one(query, &[]).unwrap().get(0);
    let set = |scene: &mut Scene, version: &str| {
        let update = "UPDATE pg_extension SET extversion = $1 WHERE extname = 'mailroom'";
        scene.client.execute(update, &[&version]).unwrap();
    };
    let sender = scene.sender("sender", &["--poll", "1"]);
    sender.wait_for("started", 1);
    set(&mut scene, "99");
    sender.wait_for("the extension is version 99, this program", 1);
    scene.load(3);
    set(&mut scene, &current);
    scene.wait_for("state = 'sent'", 3);
    sender.wait_for("the database can be used again", 1);
}

#[test]
fn a_database_that_is_not_there_keeps_no_other_waiting() {
    let mut scene = Scene::start(&[]);
    let mut other = scene.cluster.create_database("other");
    let urls = ["app", "other", "absent"].map(|name| scene.url("sender", name));
    // A server that accepts connections but never responds.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!(
        "postgresql://127.0.0.1:{}/silent",
        silent.local_addr().unwrap().port()
    );
    let mut arguments = Vec::new();
    for url in urls.iter().chain([&silent]) {
        arguments.extend(["--database", url]);
    }
    let sender = Sender::start("many", &scene, &arguments);
    scene.load(50);
    load(&mut other, 50);
    scene.wait_for("state = 'sent'", 50);
    eventually("the other database's mail", || {
        let sent = "SELECT count(*) FROM outbox WHERE state = 'sent'";
        (number(&mut other, sent) == 50).then_some(())
    });
    // Nor does one whose tables are locked.
    other
        .batch_execute("BEGIN; LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE")
        .unwrap();
    scene.load(50);
    scene.wait_for("state = 'sent'", 100);
    other.batch_execute("ROLLBACK").unwrap();
    sender.wait_for("database=absent cannot use the database", 1);
    let (status, took) = sender.stop();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn mail_that_is_no_text_keeps_no_other_back() {
    let mut scene = Scene::start(&[]);
    for (encoding, bad) in [
        ("WIN1252", "chr(129)"),
        ("SQL_ASCII", "convert_from('\\xff', 'SQL_ASCII')"),
    ] {
        let database = encoding.to_lowercase();
        scene
            .client
            .batch_execute(&format!(
                "CREATE DATABASE {database} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
            ))
            .unwrap();
        let mut client = scene.cluster.connect(&database);
        client.batch_execute("CREATE EXTENSION mailroom").unwrap();
        let before = scene.receiver.count();
        // No claim reads item_key, so it may contain any bytes.
        client
            .batch_execute(&format!(
                "INSERT INTO outbox (kind, recipients, subject, body_text, item_key) \
                 SELECT 'own', '{{a@example.com}}', 'Hello', CASE WHEN i % 40 = 7 THEN {bad} ELSE 'Text' END, \
                     {bad} || i \
                 FROM generate_series(1, 200) i"
            ))
            .unwrap();
        let url = scene.url("sender", &database);
        let sender = Sender::start(&database, &scene, &["--database", &url]);
        eventually_or_tell("all to end", || {
            let ended = "SELECT count(*) FROM outbox WHERE ended_at IS NOT NULL";
            let ended = number(&mut client, ended);
            if ended == 200 { Ok(()) } else { Err(ended) }
        });
        let errors = "SELECT count(*) FROM outbox WHERE state = 'error' AND failed_attempts = 1";
        assert_eq!(number(&mut client, errors), 5, "{encoding}");
        assert_eq!(scene.receiver.count() - before, 195, "{encoding}");
        assert!(
            !sender.log().contains("could not claim"),
            "{}",
            sender.log()
        );
    }
}

#[test]
fn behind_pgbouncer_in_transaction_mode_it_polls() {
    let mut scene = Scene::start(&["log_statement = 'all'"]);
    let pooler = Pooler::start(&scene.cluster, "collector");
    drop(pooler.connect("app"));
    let sender = Sender::start(
        "pooled",
        &scene,
        &["--database", &pooler.url("app"), "--poll", "1"],
    );
    scene.load(500);
    scene
        .client
        .batch_execute("INSERT INTO accounts (email, login) SELECT i || '@example.com', 'p' || i FROM generate_series(1, 50) i")
        .unwrap();
    scene.wait_for("state = 'sent'", 550);
    sender.wait_for("notifications do not reach", 1);
    // Mail that is scheduled while the program waits.
    scene.load(5);
    scene.wait_for("state = 'sent'", 555);
    assert_eq!(scene.receiver.count(), 555);
    assert_eq!(scene.copies(), Vec::<usize>::new());
    let log = scene.cluster.log();
    assert!(log.contains("execute <unnamed>: SELECT"));
    let ours = number(&mut scene.client, "SELECT pg_backend_pid()::bigint");
    let named = log.lines().find(|line| {
        line.contains("execute ")
            && !line.contains("execute <unnamed>")
            && !line.contains(&format!("[{ours}]"))
    });
    assert_eq!(named, None);
    assert_eq!(sender.stop().0.code(), Some(0));
}

#[test]
fn a_check_says_what_is_wrong() {
    let mut scene = Scene::start(&[]);
    let check = |scene: &Scene, arguments: &[&str]| {
        let output = program()
            .args(["check", "--transports"])
            .arg(&scene.transports)
            .args(arguments)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        (output.status.code(), text)
    };
    let urls = ["sender", "collector"].map(|user| scene.url(user, "app"));
    let all = [
        "--database",
        &urls[0],
        "--database",
        &urls[1],
        "--to",
        "a@example.com",
    ];
    let (code, text) = check(&scene, &all);
    assert_eq!(code, Some(0), "{text}");
    // Nothing delivers yet.
    let warned = ": warning: There is no worker, and no mailroom send. ";
    assert_eq!(text.matches(warned).count(), 2, "{text}");
    assert_eq!(text.lines().count(), 6, "{text}");
    assert!(text.contains(" answers, without TLS\n"), "{text}");
    let version = env!("CARGO_PKG_VERSION");
    let versions = format!(
        ": ok; versions: extension {version}, library {version}, program {version}; role \""
    );
    assert_eq!(text.matches(&versions).count(), 2, "{text}");
    assert_eq!(scene.receiver.count(), 1, "the test message");
    assert_eq!(scene.count("true"), 0);
    // Mail that is not sent is a failure.
    let due = "INSERT INTO outbox (kind, recipients, send_at) VALUES ('own', '{a@example.com}', now() - interval '6 min')";
    scene.client.batch_execute(due).unwrap();
    let (code, text) = check(&scene, &["--database", &urls[0]]);
    assert_eq!(code, Some(1), "{text}");
    let failed = ": critical: There is no worker, and no mailroom send. ";
    assert!(text.contains(failed), "{text}");
    scene.client.batch_execute("DELETE FROM outbox").unwrap();
    // Of an extension that this program cannot use, all three versions.
    let set = "UPDATE pg_extension SET extversion = $1 WHERE extname = 'mailroom'";
    scene.client.execute(set, &[&"99.0.0"]).unwrap();
    let (code, text) = check(&scene, &["--database", &urls[0]]);
    assert_eq!(code, Some(1), "{text}");
    let versions = format!(
        "the extension is version 99.0.0, this program {version}, the library that the server has loaded {version} ("
    );
    assert!(text.contains(&versions), "{text}");
    scene.client.execute(set, &[&version]).unwrap();
    // All checks fail.
    scene
        .client
        .batch_execute("CREATE ROLE stranger LOGIN")
        .unwrap();
    let urls = [
        scene.url("stranger", "app"),
        scene.url("sender", "postgres"),
        scene.url("sender", "absent"),
    ];
    let mut all = vec!["--to", "a@example.com"];
    for url in &urls {
        all.extend(["--database", url]);
    }
    scene.receiver.react(|_| status(401));
    let (code, text) = check(&scene, &all);
    assert_eq!(code, Some(1), "{text}");
    for wrong in [
        "may not claim",
        "does not have the extension",
        "absent",
        "401",
    ] {
        assert!(text.contains(wrong), "{wrong}: {text}");
    }
    // It answers, but is not the provider.
    let working = std::fs::read_to_string(&scene.transports).unwrap();
    let of_resend = format!(
        "[transports.main]\nprovider = \"resend\"\nendpoint = \"http://{}\"\napi_key = \"hunter2\"\n\
         from = \"a@example.com\"\nallowed_networks = [\"127.0.0.1\"]\n",
        scene.receiver.address
    );
    std::fs::write(&scene.transports, of_resend).unwrap();
    scene
        .receiver
        .react(|_| Reaction::Answer(200, String::new(), "Welcome".to_owned()));
    let began = std::time::Instant::now();
    let (code, text) = check(&scene, &["--to", "a@example.com"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("does not take mail"), "{text}");
    assert!(!text.contains("accepted"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(30));
    // No server listens there, and an address that must not be connected to.
    let closed = format!("http://127.0.0.1:{}/", crate::process::free_port());
    for (from, to, wrong) in [
        (
            scene.receiver.endpoint(),
            closed,
            "127.0.0.1: Connection refused",
        ),
        (
            "allowed_networks = [\"127.0.0.1\"]".to_owned(),
            String::new(),
            "address 127.0.0.1 of the endpoint is not public",
        ),
    ] {
        std::fs::write(&scene.transports, working.replace(&from, &to)).unwrap();
        let (code, text) = check(&scene, &[]);
        assert_eq!(code, Some(1));
        assert!(text.contains(wrong), "{wrong}: {text}");
    }
    std::fs::set_permissions(&scene.transports, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, text) = check(&scene, &[]);
    assert_eq!(code, Some(1));
    assert!(text.contains("0600"), "{text}");
}
