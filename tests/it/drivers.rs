//! Common drivers call every public function with the parameters that each makes of plain values: some send a number
//! with the smallest type that holds it, some send everything without a type. The book's sender for Node.js delivers to
//! an SMTP server that runs under the Python that `MAILROOM_PYTHON` names.
//!
//! needs: aiosmtpd counterparts debezium

mod calls;

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use self::calls::{TRANSPORTS, calls};
use crate::cluster::transports::FILE;
use crate::cluster::{Cluster, eventually, number};
use crate::pooler::Pooler;
use bytes::BytesMut;
use postgres::types::{Format, IsNull, ToSql, Type};
use serde_json::{Value, json};

/// Starts a server whose worker does not collect tokens, and that knows a transport.
fn cluster() -> Cluster {
    let file = format!("mailroom.transports_file = '{FILE}'");
    let links = "mailroom.link_base_url = 'https://example.com'";
    Cluster::start_with_file(&["mailroom.collect = off", links, &file], FILE, TRANSPORTS)
}

/// Creates a database for one driver and returns its name. Fails if `calls` leaves out a public function.
fn database(cluster: &Cluster, name: &str) -> String {
    let mut client = cluster.create_database(name);
    client
        .batch_execute(
            "CREATE TABLE people (mail text, nick text, live boolean); INSERT INTO people VALUES ('eve@example.com', 'eve', true)",
        )
        .unwrap();
    let missing: Vec<String> = client
        .query(
            "SELECT DISTINCT p.proname::text FROM pg_proc p WHERE p.proname LIKE 'mailroom%'",
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get::<_, String>(0))
        .filter(|function| {
            let call = format!("{function}(");
            !calls().iter().any(|(sql, ..)| sql.contains(&call))
        })
        .collect();
    assert!(missing.is_empty(), "no driver calls {missing:?}");
    name.to_owned()
}

/// Checks that each call returned what it should, or failed with the SQLSTATE that it should.
fn compare(driver: &str, results: &[Value]) {
    let calls = calls();
    assert_eq!(results.len(), calls.len());
    for ((sql, parameters, expected), result) in calls.iter().zip(results) {
        let text = match result {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let is_right =
            text == *expected || (expected.len() == 5 && text.starts_with(&format!("{expected} ")));
        assert!(
            is_right,
            "{driver}: {sql} {parameters}: {text:?}, not {expected:?}"
        );
    }
}

/// Makes a program execute the calls, and checks the results.
fn check_program(driver: &str, mut program: Command) {
    let calls: Vec<Value> = calls()
        .into_iter()
        .map(|(sql, parameters, _)| json!({"sql": sql, "parameters": parameters}))
        .collect();
    let mut child = program
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = serde_json::to_vec(&calls).unwrap();
    child.stdin.take().unwrap().write_all(&input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{driver}: {output:?}");
    let results: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    compare(driver, &results);
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn prepared(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run the tests with `make test`"))
}

#[test]
fn psycopg_calls_every_function() {
    let cluster = cluster();
    let mut program = Command::new(prepared("MAILROOM_PYTHON"));
    program
        .arg(file("drivers/with_psycopg.py"))
        .arg(cluster.socket())
        .arg(database(&cluster, "app"));
    check_program("psycopg", program);
}

#[test]
fn psycopg_calls_every_function_behind_pgbouncer() {
    let cluster = cluster();
    let name = database(&cluster, "app");
    let pooler = Pooler::start(&cluster, "postgres");
    let mut program = Command::new(prepared("MAILROOM_PYTHON"));
    drop(pooler.connect(&name));
    program
        .env("PGPORT", Pooler::PORT.to_string())
        .arg(file("drivers/with_psycopg.py"))
        .arg(&pooler.socket)
        .arg(name);
    check_program("psycopg behind pgbouncer", program);
}

#[test]
fn node_postgres_calls_every_function() {
    let cluster = cluster();
    let mut program = crate::counterparts::node();
    program
        .arg(file("drivers/with_pg.mjs"))
        .arg(crate::counterparts::module("pg"))
        .arg(cluster.socket())
        .arg(database(&cluster, "app"));
    check_program("node-postgres", program);
}

#[test]
fn the_sender_of_the_book_for_node_delivers() {
    let cluster = cluster();
    let mut client = cluster.create_database("app_node");
    let smtp = crate::mailbox::Smtp::start();
    let folder = cluster.scratch();
    let program = folder.join("sender.mjs");
    let text = crate::book::block("docs/guides/consumers.md", "js");
    let text = text.replace(
        "host: \"localhost\", port: 25",
        &format!("host: \"127.0.0.1\", port: {}", smtp.port),
    );
    assert!(text.contains(&smtp.port.to_string()));
    std::fs::write(&program, text).unwrap();
    let packages = crate::counterparts::module("pg");
    std::os::unix::fs::symlink(packages.parent().unwrap(), folder.join("node_modules")).unwrap();
    let mut sender = crate::counterparts::node()
        .arg(&program)
        .env("PGHOST", cluster.socket())
        .env("PGUSER", "postgres")
        .env("PGDATABASE", "app_node")
        .spawn()
        .unwrap();
    client
        .batch_execute(
            "SELECT mailroom_send('bob@example.com', 'S', 'Text', '<p>HTML</p>', cc => 'carol@example.com', \
                 bcc => 'dave@example.com', reply_to => 'help@example.net', from_address => 'Orders <orders@example.com>', \
                 attachments => '[{\"filename\": \"bill.pdf\", \"content\": \"/wABAg==\"}, {\"filename\": \"logo.png\", \"content\": \"iVBORw0KGgo=\", \"content_id\": \"logo\"}]'); \
             SELECT mailroom_send('ann@example.com', 'S', 'T', send_at => clock_timestamp() + interval '300 ms')",
        )
        .unwrap();
    eventually("two mails to be sent", || {
        let sent = "SELECT count(*) FROM outbox WHERE state = 'sent'";
        (number(&mut client, sent) == 2).then_some(())
    });
    sender.kill().unwrap();
    sender.wait().unwrap();
    let messages = smtp.messages();
    assert_eq!(messages.len(), 2, "{messages:#?}");
    let bob = messages
        .iter()
        .find(|message| message.contains("bob@example.com"));
    let bob = bob.unwrap();
    assert!(
        bob.contains("Cc: carol@example.com") && bob.contains("text/html"),
        "{bob}"
    );
    assert!(bob.contains("Reply-To: help@example.net"), "{bob}");
    assert!(bob.contains("From: Orders <orders@example.com>"), "{bob}");
    assert!(
        bob.contains("dave@example.com") && !bob.contains("Bcc:"),
        "{bob}"
    );
    crate::senders::has_files(bob);
}

#[test]
fn jdbc_calls_every_function() {
    let cluster = cluster();
    let mut program = Command::new(prepared("MAILROOM_DEBEZIUM"));
    program
        .arg(file("drivers/with_jdbc.py"))
        .arg(file("change_stream"))
        .arg(cluster.socket().join(".s.PGSQL.5432"))
        .arg(database(&cluster, "app"));
    check_program("JDBC", program);
}

/// A plain value, as text, for the Rust driver, which asks the server for the type of each parameter and sends that.
#[derive(Debug)]
struct Plain(Option<String>);

impl Plain {
    fn of(value: &Value) -> Self {
        Self(match value {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            Value::Array(elements) => Some(
                elements
                    .iter()
                    .map(Value::to_string)
                    .collect::<Vec<_>>()
                    .join(",")
                    .replace('"', ""),
            )
            .map(|elements| format!("{{{elements}}}")),
            Value::Object(typed) => match typed.iter().next().unwrap() {
                (kind, Value::String(hex)) if kind == "bytes" => Some(format!("\\x{hex}")),
                (_, Value::String(text)) => Some(text.clone()),
                (_, document) => Some(document.to_string()),
            },
            other => Some(other.to_string()),
        })
    }
}

impl ToSql for Plain {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(text) = &self.0 else {
            return Ok(IsNull::Yes);
        };
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    postgres::types::to_sql_checked!();
}

#[test]
fn tokio_postgres_calls_every_function() {
    let cluster = cluster();
    let mut client = cluster.connect(&database(&cluster, "app"));
    let results: Vec<Value> = calls()
        .iter()
        .map(|(sql, parameters, _)| {
            let values: Vec<Plain> = parameters
                .as_array()
                .unwrap()
                .iter()
                .map(Plain::of)
                .collect();
            let values: Vec<&(dyn ToSql + Sync)> = values
                .iter()
                .map(|value| value as &(dyn ToSql + Sync))
                .collect();
            match client.query(*sql, &values) {
                Ok(rows) => rows
                    .first()
                    .and_then(|row| row.get::<_, Option<String>>(0))
                    .into(),
                Err(error) => match error.as_db_error() {
                    Some(told) => format!("{} {told}", told.code().code()).into(),
                    None => error.to_string().into(),
                },
            }
        })
        .collect();
    compare("tokio-postgres", &results);
}
