//! The recipe of the guide on change streams, verbatim, with Debezium's connector for PostgreSQL. It emits each new
//! message once, and neither token mail nor mail that existed before.
//!
//! needs: debezium

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::cluster::{Cluster, eventually, number};
use postgres::Client;
use serde_json::Value;

/// The line of the recipe that excludes mail that existed before the stream.
const NO_SNAPSHOT: &str = "snapshot.mode=no_data\n";
/// The default name of the connector's slot.
const SLOT: &str = "debezium";

/// Returns the guide's block with this info string.
fn block(info: &str) -> String {
    let guide = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/guides/change-streams.md"
    ))
    .unwrap();
    let (_, rest) = guide
        .split_once(&format!("```{info}\n"))
        .unwrap_or_else(|| panic!("the guide has no {info}"));
    rest.split_once("```").unwrap().0.to_owned()
}

/// Starts a server with a database, a worker and the publication of the recipe.
fn prepare() -> (Cluster, Client) {
    let cluster = Cluster::start(&[
        "wal_level = logical",
        "mailroom.batch_timeout = 0",
        "mailroom.link_base_url = 'https://links.example.com'",
    ]);
    let mut client = cluster.create_database_with_schema("app");
    client.batch_execute(&block("sql cdc")).unwrap();
    (cluster, client)
}

/// What gives access to accounts: tokens, links and codes.
#[derive(Default)]
struct Secrets {
    long: Vec<String>,
    codes: Vec<String>,
}

impl Secrets {
    /// Adds the secrets of all token mail that is still to be sent.
    fn remember(&mut self, client: &mut Client) {
        let rows = client
            .query(
                "SELECT secrets->>'token', secrets->>'link', secrets->>'code' FROM outbox WHERE secrets IS NOT NULL",
                &[],
            )
            .unwrap();
        assert!(!rows.is_empty());
        for row in rows {
            self.long.push(row.get(0));
            self.long.push(row.get(1));
            self.codes.extend(row.get::<_, Option<String>>(2));
        }
    }

    /// Returns the secrets that a text contains. A code counts only as a separate word, because a long number may
    /// contain its digits.
    fn shown(&self, text: &str) -> Vec<&str> {
        let words: Vec<&str> = text
            .split(|character: char| !character.is_ascii_alphanumeric())
            .collect();
        let long = self.long.iter().filter(|secret| text.contains(*secret));
        let codes = self
            .codes
            .iter()
            .filter(|code| words.contains(&code.as_str()));
        long.chain(codes).map(String::as_str).collect()
    }
}

/// Creates token mail and messages, some of which are sent, failed or claimed. Returns the secrets of the token mail.
fn mail_of_before(client: &mut Client) -> Secrets {
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) \
                 SELECT n || '@example.com', 'account ' || n FROM generate_series(1, 6) n; \
             UPDATE accounts SET status = 'active' WHERE login IN ('account 1', 'account 2'); \
             SELECT mailroom_request_recovery('1@example.com'), mailroom_request_recovery('2@example.com'); \
             SELECT mailroom_send('old@example.com', 'old ' || n, 'Old.') FROM generate_series(1, 6) n",
        )
        .unwrap();
    eventually("token mail of both kinds", || {
        let recoveries = "SELECT count(*) FROM outbox WHERE kind = 'password_recovery'";
        let activations = "SELECT count(*) FROM outbox WHERE kind = 'activation'";
        (number(client, recoveries) == 2 && number(client, activations) == 6).then_some(())
    });
    let mut secrets = Secrets::default();
    secrets.remember(client);
    assert!(!secrets.codes.is_empty());
    // Three mails are sent, three fail, and three stay claimed.
    client
        .batch_execute(
            "SELECT mailroom_mark_sent(id) FROM mailroom_claim(3); \
             SELECT mailroom_mark_error(id, 'refused', permanent => true) FROM mailroom_claim(3); \
             SELECT count(*) FROM mailroom_claim(3)",
        )
        .unwrap();
    let live = "SELECT count(*) FROM outbox WHERE secrets IS NOT NULL";
    assert!(number(client, live) > 0, "no live token mail is left");
    let old = "SELECT count(*) FROM outbox WHERE token_id IS NULL";
    assert_eq!(number(client, old), 6);
    secrets
}

/// A running Debezium connector.
struct Stream {
    program: Child,
    events: PathBuf,
    log: PathBuf,
}

impl Stream {
    /// Starts Debezium with this recipe, connected as this role.
    fn start(cluster: &Cluster, recipe: &str, role: &str) -> Self {
        let python = std::env::var("MAILROOM_DEBEZIUM").unwrap_or_else(|_| {
            panic!(
                "MAILROOM_DEBEZIUM is not set: run the tests with `make test`, which prepares it"
            )
        });
        let home = cluster.scratch().join(format!("stream-{role}"));
        fs::create_dir(&home).unwrap();
        let properties = home.join("recipe.properties");
        fs::write(&properties, recipe).unwrap();
        let log = home.join("log");
        let output = File::create(&log).unwrap();
        let events = home.join("events");
        let program = Command::new(python)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/change_stream/stream.py"))
            .arg(&properties)
            .arg(cluster.socket().join(".s.PGSQL.5432"))
            .arg(role)
            .arg(&events)
            .current_dir(&home)
            .stdin(Stdio::piped())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Self {
            program,
            events,
            log,
        }
    }

    /// Waits until Debezium has finished its snapshot, if any, and streams the changes.
    fn until_streaming(&self, client: &mut Client) {
        eventually("Debezium to follow the changes", || {
            let streaming = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
            (number(client, streaming) == 1).then_some(())
        });
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Returns the events that were emitted so far, as text.
    fn text(&self) -> String {
        let text = fs::read_to_string(&self.events).unwrap_or_default();
        // The last line may be incomplete.
        let end = text.rfind('\n').map_or(0, |end| end + 1);
        text[..end].to_owned()
    }

    fn events(&self) -> Vec<Value> {
        self.text()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn until_emitted(&self, message_id: &str) {
        eventually("the event of the last message", || {
            self.text().contains(message_id).then_some(())
        });
    }

    /// Ends Debezium and drops its slot.
    fn stop(mut self, client: &mut Client) {
        self.kill();
        eventually("the slot to be free", || {
            let dropped = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1";
            client.execute(dropped, &[&SLOT]).ok()
        });
    }

    fn kill(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- Debezium's log ---\n{}", self.log());
            eprintln!("--- its events ---\n{}", self.text());
        }
        self.kill();
    }
}

/// Schedules a message; returns its `message_id`.
fn send(client: &mut Client, subject: &str) -> String {
    let id: i64 = client
        .query_one(
            "SELECT mailroom_send('new@example.com', $1, 'New.', data => '{\"order\": 7}', item_key => $1)",
            &[&subject],
        )
        .unwrap()
        .get(0);
    client
        .query_one("SELECT message_id::text FROM outbox WHERE id = $1", &[&id])
        .unwrap()
        .get(0)
}

/// Schedules a message among token mail, and makes the changes of its delivery; then schedules a last message, after
/// whose event no event of the first can follow. Returns the `message_id`s of both.
fn new_mail(client: &mut Client, login: &str, secrets: &mut Secrets) -> [String; 2] {
    client
        .execute(
            "INSERT INTO accounts (email, login) VALUES ($1 || '@example.com', $1)",
            &[&login],
        )
        .unwrap();
    eventually("the token mail", || {
        let mail =
            format!("SELECT count(*) FROM outbox WHERE recipients = '{{{login}@example.com}}'");
        (number(client, &mail) == 1).then_some(())
    });
    secrets.remember(client);
    let message = send(client, "message");
    client
        .batch_execute(
            "SELECT mailroom_mark_sent(id) FROM mailroom_claim(1000); \
             UPDATE outbox SET provider_id = 'p' WHERE subject = 'message'; \
             DELETE FROM outbox WHERE subject = 'message'",
        )
        .unwrap();
    let last = send(client, "last");
    client
        .batch_execute("DELETE FROM outbox WHERE subject = 'last'")
        .unwrap();
    [message, last]
}

/// Checks that the events are exactly those of these two messages, and contain no secret.
///
/// # Errors
/// What is wrong.
fn judge(stream: &Stream, expected: &[String; 2], secrets: &Secrets) -> Result<(), String> {
    let text = stream.text();
    let shown = secrets.shown(&text);
    if !shown.is_empty() {
        return Err(format!("the events show {shown:?}"));
    }
    let events = stream.events();
    if events.len() != expected.len() {
        return Err(format!(
            "{} events instead of {}",
            events.len(),
            expected.len()
        ));
    }
    for (event, message_id) in events.iter().zip(expected) {
        if !event["headers"]["id"]
            .as_str()
            .is_some_and(|id| id.contains(message_id))
        {
            return Err(format!("{event} is not of {message_id}"));
        }
    }
    Ok(())
}

#[test]
fn the_recipe_emits_each_new_message_once_and_no_secret() {
    let (cluster, mut client) = prepare();
    let mut secrets = mail_of_before(&mut client);
    let recipe = block("properties");
    // The role of the recipe, which may read no table, and a role that may read all of them.
    for role in ["debezium", "postgres"] {
        let stream = Stream::start(&cluster, &recipe, role);
        stream.until_streaming(&mut client);
        let expected = new_mail(&mut client, &format!("to.{role}"), &mut secrets);
        stream.until_emitted(&expected[1]);
        judge(&stream, &expected, &secrets).unwrap();

        let event = &stream.events()[0];
        assert_eq!(event["destination"], "mail.message");
        assert!(event["key"].as_str().unwrap().contains("\"message\""));
        let value: Value = serde_json::from_str(event["value"].as_str().unwrap()).unwrap();
        let payload = &value["payload"];
        assert_eq!(payload["payload"], "{\"order\": 7}");
        assert_eq!(payload["recipients"][0], "new@example.com");
        assert_eq!(payload["subject"], "message");
        let log = stream.log();
        assert!(
            !secrets.long.iter().any(|secret| log.contains(secret)),
            "{log}"
        );
        stream.stop(&mut client);
    }
}

/// The check above can fail, and the role of the recipe prevents a snapshot.
#[test]
fn without_its_snapshot_mode_the_recipe_emits_old_mail_or_is_refused() {
    let (cluster, mut client) = prepare();
    let mut secrets = mail_of_before(&mut client);
    let recipe = block("properties");
    assert!(recipe.contains(NO_SNAPSHOT));
    let recipe = recipe.replace(NO_SNAPSHOT, "");

    let stream = Stream::start(&cluster, &recipe, "debezium");
    eventually("the snapshot to be refused", || {
        stream
            .log()
            .contains("permission denied for schema mailroom")
            .then_some(())
    });
    assert_eq!(stream.text(), "");
    stream.stop(&mut client);

    let stream = Stream::start(&cluster, &recipe, "postgres");
    stream.until_streaming(&mut client);
    let expected = new_mail(&mut client, "to.postgres", &mut secrets);
    stream.until_emitted(&expected[1]);
    let fault = judge(&stream, &expected, &secrets).unwrap_err();
    assert!(fault.contains("events instead of 2"), "{fault}");
    assert!(stream.text().contains("old 1"));
    stream.stop(&mut client);
}
