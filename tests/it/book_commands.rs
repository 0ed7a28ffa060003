//! The commands of the book that run programs: `mailroom`, psql, pg_dump, and the rotation of a key.

pub mod page;
mod replication;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output};

use crate::book::{block, blocks, read, run_sql};
use crate::book_blocks::FLEETS;
use crate::cluster::{self, Cluster, Stop, eventually, number};
use crate::counterparts::{http, process::Process};
use crate::post::Post;
use crate::receiver::{Receiver, status};

/// Returns the standard output of a program, which must have succeeded.
fn printed(output: Output, block: &str) -> String {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{block}\n{told}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a PATH with `mailroom` and the programs of the server.
fn path(cluster: &Cluster) -> String {
    let scratch = cluster.scratch();
    let program = std::env::var("MAILROOM_SEND").unwrap_or_else(|_| {
        panic!("MAILROOM_SEND is not set: run the tests with `make test`, which builds it")
    });
    let link = scratch.join("mailroom");
    let _ = fs::remove_file(&link);
    symlink(program, link).unwrap();
    format!(
        "{}:{}:{}",
        scratch.display(),
        cluster::bin_directory("MAILROOM_PG_CONFIG").display(),
        std::env::var("PATH").unwrap()
    )
}

/// SQL blocks run in each of two databases. The TOML block, or else a `log` transport, is the transports file of the
/// commands. `mailroom send` gets `--once`, so that it ends when nothing is due.
#[test]
fn the_pages_on_fleets_are_executed() {
    for page in FLEETS {
        let cluster = Cluster::start(&["wal_level = logical"]);
        let databases = ["shop1", "shop2"];
        for database in databases {
            cluster.create_database(database);
        }
        let transports = cluster.scratch().join("transports.toml");
        let path = path(&cluster);
        let socket = cluster.socket().display().to_string().replace('/', "%2F");
        let text = read(page);
        let file = blocks(&text)
            .into_iter()
            .find(|block| block.language == "toml")
            .map_or_else(
                || "[transports.log]\nprovider = \"log\"\n".to_owned(),
                |block| block.text,
            );
        fs::write(&transports, file).unwrap();
        fs::set_permissions(&transports, fs::Permissions::from_mode(0o600)).unwrap();
        cluster.give_away(&transports);
        let mut executed = 0;
        for block in blocks(&text) {
            match block.info().as_str() {
                "sql" => {
                    for database in databases {
                        run_sql(&cluster, database, &block.text);
                    }
                }
                "sh" => {
                    let script = block
                        .text
                        .replace("mailroom send", "mailroom send --once")
                        .replace(
                            "/etc/mailroom/transports.toml",
                            &transports.display().to_string(),
                        )
                        .replace("db1.internal", &socket);
                    let mut shell = cluster.as_server_user(Command::new("sh"));
                    shell.env("PATH", &path).args(["-euc", &script]);
                    let told = printed(shell.output().unwrap(), &block.text);
                    assert!(
                        !block.text.contains("psql") || told.contains("shop2"),
                        "{told}"
                    );
                }
                _ => continue,
            }
            executed += 1;
        }
        assert!(executed >= 2, "only {executed} blocks were found in {page}");
    }
}

#[test]
fn the_endpoint_for_events_starts_as_described() {
    let page = "docs/guides/events.md";
    let cluster = Cluster::start(&[]);
    cluster.create_database("shop");
    let role = blocks(&read(page))
        .into_iter()
        .find(|block| block.language == "sql" && block.text.contains("mailroom_receiver"));
    run_sql(&cluster, "shop", &role.unwrap().text);
    let transports = cluster.scratch().join("transports.toml");
    fs::write(&transports, block(page, "toml events")).unwrap();
    fs::set_permissions(&transports, fs::Permissions::from_mode(0o600)).unwrap();
    let socket = cluster.socket().display().to_string().replace('/', "%2F");
    let script = block(page, "sh receive")
        .replace(
            "/etc/mailroom/transports.toml",
            &transports.display().to_string(),
        )
        .replace("db1.internal", &socket);
    let mut shell = Command::new("sh");
    shell
        .env("PATH", path(&cluster))
        .args(["-euc", &format!("exec {script}")]);
    let _receiver = Process::start(&shell);
    let status = eventually("the endpoint", || {
        std::net::TcpStream::connect(("127.0.0.1", 8025)).ok()?;
        Some(http::call(8025, "GET", "/health", None).0)
    });
    assert_eq!(status, 200);
    let unproven = http::call(8025, "POST", "/events/main", Some(&serde_json::json!({})));
    assert_eq!(unproven.0, 401);
}

#[test]
fn the_key_is_rotated_as_described() {
    let cluster = Cluster::start(&[]);
    let mut client = cluster.create_database("app");
    let secret = vec![7_u8; 32];
    let sign = "SELECT mailroom_sign('activation', $1)";
    let old: String = client.query_one(sign, &[&secret]).unwrap().get(0);
    let rotation = block("docs/operations/key-file.md", "sh key");
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &rotation]);
    let status = cluster
        .as_server_user(shell)
        .current_dir(cluster.data())
        .status()
        .unwrap();
    assert!(status.success());
    let new: String = client.query_one(sign, &[&secret]).unwrap().get(0);
    assert_ne!(old, new);
    for token in [old, new] {
        let genuine: bool = client
            .query_one("SELECT mailroom_verify($1, 'activation')", &[&token])
            .unwrap()
            .get(0);
        assert!(genuine);
    }
}

#[test]
fn a_database_is_restored_as_described() {
    let (old, new) = (Cluster::start(&[]), Cluster::start(&[]));
    old.connect("postgres")
        .batch_execute("CREATE DATABASE app")
        .unwrap();
    let mut client = old.connect("app");
    // As in docs/start/install.md.
    client
        .batch_execute(
            "CREATE SCHEMA mailroom; CREATE EXTENSION mailroom SCHEMA mailroom; \
             INSERT INTO mailroom.accounts (email, login) VALUES ('a@example.com', 'a'); \
             CREATE TABLE notes (note text); CREATE POLICY readers ON notes USING (true); \
             CREATE TABLE carts (account bigint REFERENCES mailroom.accounts); INSERT INTO carts VALUES (1)",
        )
        .unwrap();
    // The application's own columns, which a dump does not create.
    let columns = "ALTER TABLE mailroom.accounts ADD COLUMN tenant text; \
         ALTER TABLE mailroom.pending ADD COLUMN reason json; \
         ALTER TABLE mailroom.outbox ADD COLUMN state_of text DEFAULT 'x' NOT NULL;";
    client.batch_execute(columns).unwrap();
    client
        .batch_execute("UPDATE mailroom.accounts SET tenant = 'theirs'")
        .unwrap();
    fs::write(old.scratch().join("columns.sql"), columns).unwrap();
    let sign = "SELECT mailroom.mailroom_sign('activation', decode(repeat('07', 32), 'hex'))";
    let signed: String = client.query_one(sign, &[]).unwrap().get(0);
    let backup = block("docs/operations/backup.md", "sh backup");
    let (dump, restore) = backup.split_once("# On the other server").unwrap();
    let into = |database: &str, block: &str| {
        let script = block.replace("--dbname=app", &format!("--dbname={database}"));
        format!("its user\ncreatedb --template=template0 {database}\n{script}")
    };
    let copy = into("copy", &block("docs/operations/backup.md", "sh copy"));
    let shared = |name: &str| old.scratch().join(name).display().to_string();
    let run = |cluster: &Cluster, script: &str| {
        let script = script
            .replace("app.list", &shared("app.list"))
            .replace("app.dump", &shared("app.dump"))
            .replace("columns.sql", &shared("columns.sql"))
            .replace("mailroom.key.copy", &shared("mailroom.key.copy"));
        let mut shell = cluster.as_server_user(Command::new("sh"));
        shell
            .env("PATH", path(cluster))
            .env("PGDATA", cluster.data())
            .args(["-euc", &format!("#{script}")]);
        printed(shell.output().unwrap(), &script);
    };
    let (_, steps) = restore.split_once("app\n").unwrap();
    let list = block("docs/operations/backup.md", "sh policies");
    let steps = steps.replace("pg_restore ", "pg_restore --use-list=app.list ");
    let listed = into("listed", &format!("{list}\n{steps}"));
    run(&old, &format!("\n{dump}"));
    run(&new, restore);
    let mut client = new.connect("app");
    let accounts = "SELECT count(*) FROM mailroom.accounts WHERE tenant = 'theirs'";
    assert_eq!(number(&mut client, accounts), 1);
    let again: String = client.query_one(sign, &[]).unwrap().get(0);
    assert_eq!(again, signed);
    run(&new, &copy);
    let paused = "SELECT count(*) FROM mailroom.pauses WHERE paused_by = 'postgres'";
    assert_eq!(number(&mut new.connect("copy"), paused), 1);
    run(&new, &listed);
    for (database, policies) in [("app", 1), ("listed", 0)] {
        let mut client = new.connect(database);
        let own = "SELECT count(*) FROM pg_policies WHERE tablename = 'notes'";
        assert_eq!(number(&mut client, own), policies, "{database}");
        let ours = "SELECT count(*) FROM pg_policies WHERE policyname = 'mailroom'";
        assert!(number(&mut client, ours) >= 12, "{database}");
        let keys = "SELECT count(*) FROM pg_constraint WHERE conname = 'carts_account_fkey'";
        assert_eq!(number(&mut client, keys), 1, "{database}");
    }
}

#[test]
fn a_copied_data_directory_sends_nothing() {
    let receiver = Receiver::start(|_| status(503));
    let mut original = Post::start(&receiver, &["wal_level = replica"]);
    let sign = "SELECT mailroom_sign('activation', decode(repeat('07', 32), 'hex'))";
    let signed: String = original.client.query_one(sign, &[]).unwrap().get(0);
    original.send(1);
    eventually("the original to try", || {
        (receiver.requests() > 0).then_some(())
    });
    let copy = Cluster::copy_of(&original.cluster, &[]);
    original.cluster.stop_server(Stop::Fast);
    receiver.react(|_| status(204));

    let configuration = fs::read_to_string(copy.data().join("postgresql.auto.conf")).unwrap();
    let script = block("docs/operations/backup.md", "sh clone");
    let mut shell = copy.as_server_user(Command::new("sh"));
    shell.env("PGDATA", copy.data()).args(["-euc", &script]);
    printed(shell.output().unwrap(), &script);
    copy.start_server();
    let mut client = copy.connect("app");
    let again: String = client.query_one(sign, &[]).unwrap().get(0);
    assert_ne!(again, signed);
    let due = "SELECT count(*) FROM outbox WHERE state = 'scheduled' AND send_at <= now()";
    eventually("the mail to be due", || {
        (number(&mut client, due) == 1).then_some(())
    });
    // The worker is there, and sees what waits.
    client
        .batch_execute("INSERT INTO accounts (email, login) VALUES ('b@example.com', 'b')")
        .unwrap();
    eventually("the worker to collect", || {
        (number(&mut client, due) == 2).then_some(())
    });
    assert_eq!(receiver.count(), 0);

    // Only these settings hold the mail up.
    fs::write(copy.data().join("postgresql.auto.conf"), configuration).unwrap();
    copy.reload();
    eventually("both mails", || (receiver.count() == 2).then_some(()));
}

// needs: aiosmtpd
#[test]
fn a_whole_mail_is_seen_as_described() {
    let page = "docs/guides/testing.md";
    // A path that the file can name before the cluster's own directory is known.
    let directory = crate::process::directory();
    let mail = directory.join("mail");
    fs::create_dir(&mail).unwrap();
    fs::set_permissions(&mail, fs::Permissions::from_mode(0o777)).unwrap();
    let transports =
        block(page, "toml").replace("/var/lib/postgresql/mail", mail.to_str().unwrap());
    let settings = ["mailroom.transports_file = 'transports.toml'"];
    let (cluster, mut client) =
        Cluster::start_with_app_and_file(&settings, "transports.toml", &transports);
    eventually("the transports of the page", || {
        let known = "SELECT count(*) FROM mailroom_transports";
        (number(&mut client, known) == 2).then_some(())
    });
    run_sql(&cluster, "app", &block(page, "sql whole"));
    eventually("the mail to be sent", || {
        let sent = "SELECT count(*) FROM outbox WHERE state = 'sent' AND transport = 'file'";
        (number(&mut client, sent) == 1).then_some(())
    });
    let files: Vec<_> = fs::read_dir(&mail)
        .unwrap()
        .map(|one| one.unwrap().path())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(files[0].extension().unwrap(), "eml");
    let shown = crate::mailbox::as_shown(&files[0]);
    assert_eq!(shown.trim_end(), block(page, "text").trim_end());
    fs::remove_dir_all(&directory).unwrap();
}
