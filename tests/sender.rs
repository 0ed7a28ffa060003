//! `mailroom send`: the deliverer over a connection, against servers without a worker.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cluster;
mod receiver;

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use cluster::{Cluster, Stop, eventually, eventually_or_tell, number};
use postgres::Client;
use receiver::{Reaction, Receiver, status};

const POOLER_PORT: u16 = 6432;

/// The program that `make test` builds.
fn program() -> Command {
    let program = std::env::var("MAILROOM_SEND").unwrap_or_else(|_| {
        panic!("MAILROOM_SEND is not set: run the tests with `make test`, which builds it")
    });
    let mut command = Command::new(program);
    for variable in ["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE"] {
        command.env_remove(variable);
    }
    command
}

/// A running `mailroom send`, which ends with the test.
struct Sender {
    child: Child,
    log: PathBuf,
}

impl Sender {
    fn start(name: &str, scene: &Scene, arguments: &[&str]) -> Self {
        let log = scene.cluster.scratch().join(name);
        let child = program()
            .arg("send")
            .arg("--transports")
            .arg(&scene.transports)
            .args(arguments)
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn signal(&self, signal: &str) {
        let kill = Command::new("kill")
            .arg(signal)
            .arg(self.child.id().to_string())
            .status();
        assert!(kill.unwrap().success());
    }

    /// Has it stop; returns how it did, and how long that took.
    fn stop(mut self) -> (ExitStatus, Duration) {
        let begin = Instant::now();
        self.signal("-TERM");
        let status = self.child.wait().unwrap();
        (status, begin.elapsed())
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until its log has this so often.
    fn wait_for(&self, text: &str, times: usize) {
        eventually_or_tell(&format!("the log to tell of {text}"), || {
            let log = self.log();
            if log.matches(text).count() >= times {
                Ok(())
            } else {
                Err(log)
            }
        });
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {} ---\n{}", self.log.display(), self.log());
        }
    }
}

/// A cluster without a worker, whose database `app` has mail for a transport `main`.
struct Scene {
    client: Client,
    cluster: Cluster,
    receiver: Receiver,
    transports: PathBuf,
}

impl Scene {
    fn start(settings: &[&str]) -> Self {
        Self::start_with(Receiver::start(|_| status(200)), settings)
    }

    fn start_with(receiver: Receiver, settings: &[&str]) -> Self {
        let mut all = vec![
            "shared_preload_libraries = ''",
            "mailroom.transport = 'main'",
        ];
        all.extend(settings);
        let cluster = Cluster::start(&all);
        let mut client = cluster.create_database("app");
        client
            .batch_execute(
                "CREATE ROLE sender LOGIN PASSWORD 'hunter2' IN ROLE mailroom_sender; \
                 CREATE ROLE collector LOGIN IN ROLE mailroom_collector",
            )
            .unwrap();
        let transports = cluster.scratch().join("transports.toml");
        write_transports(&transports, &receiver, "main");
        Self {
            client,
            cluster,
            receiver,
            transports,
        }
    }

    fn url(&self, user: &str, database: &str) -> String {
        let socket = self.cluster.socket().display();
        format!("host={socket} user={user} password=hunter2 dbname={database}")
    }

    /// One under mailroom_sender.
    fn sender(&self, name: &str, arguments: &[&str]) -> Sender {
        let url = self.url("sender", "app");
        let mut all = vec!["--database", &url];
        all.extend(arguments);
        Sender::start(name, self, &all)
    }

    /// Puts so many messages into the outbox at once.
    fn load(&mut self, count: i64) {
        load(&mut self.client, count);
    }

    fn count(&mut self, which: &str) -> i64 {
        number(
            &mut self.client,
            &format!("SELECT count(*) FROM outbox WHERE {which}"),
        )
    }

    fn wait_for(&mut self, which: &str, count: i64) {
        eventually_or_tell(&format!("{count} mails with {which}"), || {
            if self.count(which) >= count {
                return Ok(());
            }
            let states = "SELECT coalesce(string_agg(state || ' ' || n, ', '), 'none') \
                FROM (SELECT state, count(*) AS n FROM outbox GROUP BY state) s";
            Err(self
                .client
                .query_one(states, &[])
                .unwrap()
                .get::<_, String>(0))
        });
    }

    /// How often each mail arrived that did more than once.
    fn copies(&self) -> Vec<usize> {
        let mut times: HashMap<String, usize> = HashMap::new();
        for id in self.receiver.accepted() {
            *times.entry(id).or_default() += 1;
        }
        times.into_values().filter(|&times| times > 1).collect()
    }
}

fn load(client: &mut Client, count: i64) {
    client
        .execute(
            "INSERT INTO outbox (kind, recipients, subject, body_text) \
             SELECT 'own', '{a@example.com}', 'Hello ' || i, 'Text' FROM generate_series(1, $1::bigint) i",
            &[&count],
        )
        .unwrap();
}

/// A file with transports of these names to the receiver, in one step.
fn write_transports(path: &Path, receiver: &Receiver, name: &str) {
    let new = path.with_extension("new");
    let text = format!(
        "[transports.{name}]\nprovider = \"webhook\"\nendpoint = \"{}\"\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"\n\
         allowed_networks = [\"127.0.0.1\"]\n",
        receiver.endpoint()
    );
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&new, path).unwrap();
}

#[test]
fn mail_goes_without_a_worker() {
    let mut scene = Scene::start(&[]);
    scene.load(10);
    let sender = scene.sender("sender", &["--poll", "600"]);
    scene.wait_for("state = 'sent'", 10);
    // Told by a notification, and for later by the answer to a question that came of one.
    scene
        .client
        .batch_execute(
            "SELECT mailroom_send('a@example.com', 'Now', 'Text'); \
             SELECT mailroom_send('a@example.com', 'Later', 'Text', send_at => now() + interval '2s')",
        )
        .unwrap();
    scene.wait_for("state = 'sent'", 12);
    let late = "SELECT max(extract(epoch FROM ended_at - send_at) * 1000)::bigint FROM outbox WHERE subject = 'Later'";
    let late = number(&mut scene.client, late);
    assert!((0..60_000).contains(&late), "{late} ms");
    assert_eq!(scene.receiver.count(), 12);
    assert_eq!(
        number(
            &mut scene.client,
            "SELECT count(DISTINCT claimed_by) FROM outbox"
        ),
        1
    );
    let shown =
        "SELECT count(*) FROM mailroom_transports WHERE name = 'main' AND state = 'healthy'";
    eventually("its transport to be published", || {
        (number(&mut scene.client, shown) == 1).then_some(())
    });
    assert!(!sender.log().contains("hunter2"));
    let (status, took) = sender.stop();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(number(&mut scene.client, shown), 0, "it is withdrawn");
}

#[test]
fn a_collector_makes_sign_ups_arrive() {
    let mut scene = Scene::start(&["mailroom.link_base_url = 'https://example.com/'"]);
    let url = scene.url("collector", "app");
    let sender = Sender::start("collector", &scene, &["--database", &url, "--poll", "600"]);
    sender.wait_for("started", 1);
    scene
        .client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('ada@example.com', 'ada')")
        .unwrap();
    scene.wait_for("state = 'sent' AND kind = 'activation'", 1);
    scene
        .client
        .batch_execute(
            "UPDATE tokens SET consumed_at = extract(epoch FROM now()); \
             SELECT mailroom_request_recovery('ada@example.com')",
        )
        .unwrap();
    scene.wait_for("state = 'sent' AND kind = 'password_recovery'", 1);
    let runs = number(
        &mut scene.client,
        "SELECT count(*) FROM job_runs WHERE error IS NULL",
    );
    assert!(runs >= 2, "{runs} batches");
    drop(sender);
    // What is left to clients stays, and requests are answered.
    scene
        .client
        .batch_execute("ALTER DATABASE app SET mailroom.collect = off")
        .unwrap();
    let sender = Sender::start("left", &scene, &["--database", &url, "--poll", "600"]);
    sender.wait_for("started", 1);
    scene
        .client
        .batch_execute(
            "INSERT INTO accounts (email, login) VALUES ('eve@example.com', 'eve'); \
             SELECT mailroom_request_recovery('ada@example.com')",
        )
        .unwrap();
    eventually("the request to be answered", || {
        (number(&mut scene.client, "SELECT count(*) FROM link_requests") == 0).then_some(())
    });
    scene.load(1);
    scene.wait_for("state = 'sent' AND kind = 'own'", 1);
    let left = "SELECT count(*) FROM pending";
    assert!(number(&mut scene.client, left) >= 1);
}

#[test]
fn killing_it_loses_nothing() {
    const MAILS: i64 = 400;
    let receiver = Receiver::start(|_| Reaction::Late(Duration::from_millis(50), 200));
    let mut scene = Scene::start_with(receiver, &["mailroom.lease = '2s'"]);
    scene.load(MAILS);
    for round in 0..3 {
        let sender = scene.sender(&format!("killed-{round}"), &[]);
        let before = scene.receiver.count();
        eventually("some mails to arrive", || {
            (scene.receiver.count() > before + 40).then_some(())
        });
        sender.kill();
    }
    let _sender = scene.sender("last", &[]);
    scene.wait_for("state = 'sent'", MAILS);
    let arrived: HashSet<String> = scene.receiver.accepted().into_iter().collect();
    assert_eq!(arrived.len() as i64, MAILS);
    // No more than was in flight when it was killed, which is counted.
    let lapsed = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'lease_expired'";
    let lapsed = number(&mut scene.client, lapsed);
    let copies = scene.copies();
    assert!(copies.len() as i64 <= lapsed, "{copies:?}, {lapsed} lapsed");
    scene.cluster.verify();
}

#[test]
fn two_at_once_send_nothing_twice() {
    const MAILS: i64 = 3_000;
    let receiver = Receiver::start(|_| Reaction::Late(Duration::from_millis(5), 200));
    let mut scene = Scene::start_with(receiver, &[]);
    let _senders = [scene.sender("one", &[]), scene.sender("two", &[])];
    for _ in 0..10 {
        scene.load(MAILS / 10);
    }
    scene.wait_for("state = 'sent'", MAILS);
    assert_eq!(scene.receiver.count() as i64, MAILS);
    assert_eq!(scene.copies(), Vec::<usize>::new());
    let claimants = "SELECT count(DISTINCT claimed_by) FROM outbox";
    assert_eq!(number(&mut scene.client, claimants), 2, "both are at work");
    let attempts = "SELECT count(*) FROM outbox_attempts";
    assert_eq!(number(&mut scene.client, attempts), 0);
}

#[test]
fn one_that_is_frozen_beyond_its_lease_is_counted() {
    let receiver = Receiver::start(|_| Reaction::Late(Duration::from_secs(1), 200));
    let mut scene = Scene::start_with(receiver, &["mailroom.lease = '3s'"]);
    scene.load(20);
    let frozen = scene.sender("frozen", &[]);
    eventually("all to be in flight", || {
        (scene.receiver.open() == 20).then_some(())
    });
    frozen.signal("-STOP");
    let other = scene.sender("other", &["--poll", "1"]);
    scene.wait_for("state = 'sent'", 20);
    frozen.signal("-CONT");
    // It has answers to settle of which the claims were lost, and says so.
    eventually("the late settles", || {
        let late = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'late'";
        (number(&mut scene.client, late) == 20).then_some(())
    });
    let lapsed = "SELECT count(*) FROM outbox_attempts WHERE outcome = 'lease_expired'";
    assert_eq!(number(&mut scene.client, lapsed), 20);
    assert_eq!(scene.receiver.count(), 40, "each once more, and no more");
    assert_eq!(scene.count("state = 'sent'"), 20);
    drop(other);
    // It works on.
    scene.receiver.react(|_| status(200));
    scene.load(5);
    scene.wait_for("state = 'sent'", 25);
}

#[test]
fn a_restart_of_the_server_is_survived() {
    let mut scene = Scene::start(&[]);
    let sender = scene.sender("sender", &["--poll", "1"]);
    scene.load(10);
    scene.wait_for("state = 'sent'", 10);
    for (round, how) in [(1, Stop::Fast), (2, Stop::Immediate)] {
        scene.cluster.stop_server(how);
        sender.wait_for("cannot use the database", round);
        // Some tries fail, of which the log does not hear.
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
fn a_database_that_is_not_there_keeps_no_other_waiting() {
    let mut scene = Scene::start(&[]);
    let mut other = scene.cluster.create_database("other");
    let urls = ["app", "other", "absent"].map(|name| scene.url("sender", name));
    // Nobody answers there.
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
    // Nor one whose tables are locked.
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
fn once_sends_what_is_due_and_ends() {
    let mut scene = Scene::start(&[]);
    let url = scene.url("collector", "app");
    let once = |scene: &Scene, url: &str| {
        let mut sender = Sender::start("once", scene, &["--database", url, "--once"]);
        let status = sender.child.wait().unwrap();
        status.code()
    };
    scene.load(200);
    scene
        .client
        .batch_execute(
            "INSERT INTO accounts (email, login) SELECT i || '@example.com', 'p' || i FROM generate_series(1, 250) i; \
             SELECT mailroom_send('a@example.com', 'Later', 'Text', send_at => now() + interval '1 day')",
        )
        .unwrap();
    assert_eq!(once(&scene, &url), Some(0));
    assert_eq!(scene.count("state = 'sent'"), 450);
    assert_eq!(scene.count("state = 'scheduled'"), 1);
    assert_eq!(scene.receiver.count(), 450);
    assert_eq!(once(&scene, &url), Some(0), "there is nothing to do");
    let absent = scene.url("collector", "absent");
    assert_eq!(once(&scene, &absent), Some(1));
    scene.load(1);
    scene
        .client
        .batch_execute("SELECT mailroom_pause()")
        .unwrap();
    assert_eq!(once(&scene, &url), Some(3));
    scene
        .client
        .batch_execute("SELECT mailroom_resume()")
        .unwrap();
    // The receiver wants no more: the transport is paused.
    scene.receiver.react(|_| status(410));
    scene.load(1);
    assert_eq!(once(&scene, &url), Some(3));
    assert_eq!(scene.count("state = 'claimed'"), 0, "all is given back");
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
        client
            .batch_execute(&format!(
                "INSERT INTO outbox (kind, recipients, subject, body_text) \
                 SELECT 'own', '{{a@example.com}}', 'Hello', CASE WHEN i % 40 = 7 THEN {bad} ELSE 'Text' END \
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
fn a_signal_has_the_file_read_again() {
    let mut scene = Scene::start(&[]);
    write_transports(&scene.transports, &scene.receiver, "another");
    let sender = scene.sender("sender", &["--poll", "1", "--log-format", "json"]);
    sender.wait_for("delivers through another", 1);
    scene.load(3);
    // A file that is no good changes nothing.
    let good = std::fs::read(&scene.transports).unwrap();
    std::fs::write(
        &scene.transports,
        "[transports.main]\nprovider = \"hunter2\"\n",
    )
    .unwrap();
    sender.signal("-HUP");
    sender.wait_for("stay in force", 1);
    sender.signal("-USR1");
    std::fs::write(&scene.transports, good).unwrap();
    write_transports(&scene.transports, &scene.receiver, "main");
    sender.signal("-HUP");
    sender.wait_for("delivers through main", 1);
    scene.wait_for("state = 'sent'", 3);
    for line in sender.log().lines() {
        assert!(line.starts_with('{') && line.ends_with('}'), "{line}");
        assert!(!line.contains("hunter2"), "{line}");
    }
    assert_eq!(sender.stop().0.code(), Some(0));
}

/// Debian's pgbouncer in front of the cluster, in transaction mode.
fn start_pooler(cluster: &Cluster) -> Child {
    let directory = cluster.scratch();
    let file = directory.join("pgbouncer.ini");
    let text = format!(
        "[databases]\n* = host={socket}\n[pgbouncer]\nlisten_addr =\nlisten_port = {POOLER_PORT}\nunix_socket_dir = {here}\n\
         auth_type = any\nauth_user = postgres\npool_mode = transaction\ndefault_pool_size = 4\nserver_round_robin = 1\nlogfile = {here}/pgbouncer.log\n",
        socket = cluster.socket().display(),
        here = directory.display(),
    );
    let text = text.replace("\n[pgbouncer]", " user=collector\n[pgbouncer]");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("/usr/sbin/pgbouncer");
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        // It refuses to run as root.
        command.args(["--user", "postgres"]);
    }
    command.arg(&file).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn behind_pgbouncer_in_transaction_mode_it_polls() {
    let mut scene = Scene::start(&["log_statement = 'all'"]);
    let mut pooler = start_pooler(&scene.cluster);
    let here = scene.cluster.scratch();
    let url = format!(
        "host={} port={POOLER_PORT} user=postgres dbname=app",
        here.display()
    );
    eventually("the pooler", || {
        let socket = here.join(format!(".s.PGSQL.{POOLER_PORT}"));
        socket.exists().then_some(())
    });
    // All of the pooler's sessions are there, and each transaction comes to another one.
    let mut held: Vec<Client> = (0..4)
        .map(|_| postgres::Client::connect(&url, postgres::NoTls).unwrap())
        .collect();
    for statement in ["BEGIN; SELECT 1", "COMMIT"] {
        for client in &mut held {
            client.batch_execute(statement).unwrap();
        }
    }
    drop(held);
    let sender = Sender::start(
        "pooled",
        &scene,
        &["--database", &url, "--poll", "1", "--no-listen"],
    );
    scene.load(500);
    scene
        .client
        .batch_execute("INSERT INTO accounts (email, login) SELECT i || '@example.com', 'p' || i FROM generate_series(1, 50) i")
        .unwrap();
    scene.wait_for("state = 'sent'", 550);
    // Mail that comes while it waits.
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
    pooler.kill().unwrap();
    pooler.wait().unwrap();
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
    assert_eq!(text.lines().count(), 4, "{text}");
    assert_eq!(scene.receiver.count(), 1, "the test message");
    assert_eq!(scene.count("true"), 0);
    // Nothing works.
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
    std::fs::set_permissions(&scene.transports, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, text) = check(&scene, &[]);
    assert_eq!(code, Some(1));
    assert!(text.contains("0600"), "{text}");
}
