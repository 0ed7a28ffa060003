//! Every public function is called by the drivers that people use, with the parameters that each makes of plain values:
//! some send a number with the smallest type that holds it, some send everything without a type. The sender of the book for
//! Node.js delivers to the SMTP server that the Python runs which `MAILROOM_PYTHON` names.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cluster::{Cluster, eventually, number};
use bytes::BytesMut;
use postgres::types::{Format, IsNull, ToSql, Type};
use serde_json::{Value, json};

/// What is called, with which parameters, and the text of the first column that comes of it.
type Call = (&'static str, Value, &'static str);

const ID: &str = "0197c5d0-0000-7000-8000-000000000001";
const LATER: &str = "2040-01-01T00:00:00+00:00";

fn calls() -> Vec<Call> {
    let secret = json!({"bytes": "07".repeat(32)});
    vec![
        // Scheduling.
        (
            "SELECT mailroom_send($1, $2, $3)::text",
            json!(["a@example.com, b@example.com", "Subject", "Text"]),
            "1",
        ),
        (
            "SELECT mailroom_send($1, subject => $2, body_text => $3, cc => $4, data => $5, send_at => $6, priority => $7, \
             item_key => $8, max_attempts => $9, message_id => $10)::text",
            json!(["c@example.com", "Subject", "Text", null, {"json": {"n": 1}}, {"time": LATER}, -5, "key", 3, {"uuid": ID}]),
            "2",
        ),
        (
            "SELECT mailroom_send($1, $2, $3, message_id => $4)::text",
            json!(["c@example.com", "Subject", "Text", {"uuid": ID}]),
            "2",
        ),
        (
            "SELECT id::text FROM mailroom_send_many($1)",
            json!([{"json": [{"recipients": ["d@example.com"], "subject": "S", "body_text": "T", "group_key": "g", "priority": 9}]}]),
            "3",
        ),
        (
            "SELECT mailroom_reschedule($1, $2)::text",
            json!([2, {"time": "2041-01-01T00:00:00+00:00"}]),
            "true",
        ),
        (
            "SELECT mailroom_reschedule_item($1, $2)::text",
            json!(["key", {"time": LATER}]),
            "true",
        ),
        (
            "SELECT mailroom_cancel_item($1)::text",
            json!(["key"]),
            "true",
        ),
        ("SELECT mailroom_cancel($1)::text", json!([2]), "false"),
        (
            "SELECT (mailroom_next_due() <= now())::text",
            json!([]),
            "true",
        ),
        // Transports.
        (
            "INSERT INTO routes (position, kind_pattern, transport) VALUES ($1, $2, $3) RETURNING transport::text",
            json!([1, "digest%", "bulk"]),
            "bulk",
        ),
        (
            "SELECT mailroom_send($1, $2, $3, kind => $4, transport => $5)::text",
            json!(["e@example.com", "Subject", "Text", "digest", null]),
            "4",
        ),
        (
            "SELECT (mailroom_next_due($1) <= now())::text",
            json!([["bulk"]]),
            "true",
        ),
        (
            "SELECT id::text FROM mailroom_claim($1, claimant => $2, transports => $3)",
            json!([1, "me", ["bulk", "other"]]),
            "4",
        ),
        (
            "SELECT mailroom_release($1, claimant => $2)::text",
            json!([4, "me"]),
            "true",
        ),
        (
            "SELECT mailroom_reroute($1, $2)::text",
            json!(["bulk", ""]),
            "1",
        ),
        ("SELECT mailroom_cancel($1)::text", json!([4]), "true"),
        // Claiming and settling.
        (
            "SELECT id::text FROM mailroom_claim($1, claimant => $2)",
            json!([1, "me"]),
            "1",
        ),
        (
            "SELECT mailroom_extend($1, claimant => $2)::text",
            json!([1, "me"]),
            "true",
        ),
        (
            "SELECT mailroom_extend_many($1, claimant => $2)::text",
            json!([[1, 2], "me"]),
            "{1}",
        ),
        (
            "SELECT mailroom_release($1, claimant => $2)::text",
            json!([1, "me"]),
            "true",
        ),
        (
            "SELECT id::text FROM mailroom_claim($1, claimant => $2)",
            json!([1, "me"]),
            "1",
        ),
        (
            "SELECT mailroom_release_many($1, $2)::text",
            json!([[1], "me"]),
            "{1}",
        ),
        (
            "SELECT id::text FROM mailroom_claim($1, claimant => $2)",
            json!([1, "me"]),
            "1",
        ),
        (
            "SELECT mailroom_mark_error($1, $2, permanent => $3, response_code => $4, claimant => $5)::text",
            json!([1, "no such mailbox", true, 550, "me"]),
            "true",
        ),
        ("SELECT mailroom_retry($1)::text", json!([1]), "true"),
        (
            "SELECT id::text FROM mailroom_claim($1, claimant => $2)",
            json!([1, "me"]),
            "1",
        ),
        (
            "SELECT mailroom_mark_error_many($1, $2, claimant => $3, failed_attempts => $4::integer[])::text",
            json!([[1], ["busy"], "me", [1]]),
            "{1}",
        ),
        (
            "UPDATE outbox SET state = 'error', last_error = 'busy' WHERE id = $1 RETURNING state::text",
            json!([1]),
            "error",
        ),
        (
            "SELECT mailroom_retry_failed(kind => $1, batch_limit => $2)::text",
            json!(["message", 10]),
            "1",
        ),
        (
            "SELECT id::text FROM mailroom_claim($1, claimant => $2)",
            json!([1, "me"]),
            "1",
        ),
        (
            "SELECT mailroom_mark_sent($1, claimant => $2)::text",
            json!([1, "me"]),
            "true",
        ),
        (
            "SELECT id::text FROM mailroom_claim_group(claimant => $1, group_key => $2)",
            json!(["me", "g"]),
            "3",
        ),
        (
            "SELECT mailroom_mark_sent_many($1, $2, $3)::text",
            json!([[3], ["provider"], "me"]),
            "{3}",
        ),
        // Accounts and links.
        (
            "INSERT INTO accounts (email, login) VALUES ($1, $2) RETURNING id::text",
            json!(["ada@example.com", "ada"]),
            "1",
        ),
        ("SELECT mailroom_collect($1)::text", json!([10]), "1"),
        (
            "SELECT mailroom_request_activation($1)::text",
            json!(["ada@example.com"]),
            "",
        ),
        (
            "SELECT mailroom_request_recovery($1)::text",
            json!(["ada@example.com"]),
            "",
        ),
        (
            "SELECT mailroom_answer_requests($1)::text",
            json!([10]),
            "0",
        ),
        (
            "INSERT INTO accounts (email, login) VALUES ($1, $2) RETURNING id::text",
            json!(["bob@example.com", "bob"]),
            "2",
        ),
        ("SELECT login FROM mailroom_dequeue($1)", json!([1]), "bob"),
        (
            "SELECT (mailroom_dequeue_line($1) IS NULL)::text",
            json!([10]),
            "true",
        ),
        (
            "SELECT outcome FROM mailroom_peek($1)",
            json!(["A".repeat(86)]),
            "invalid",
        ),
        (
            "SELECT outcome FROM mailroom_redeem($1, $2)",
            json!(["A".repeat(86), "04711"]),
            "invalid",
        ),
        ("SELECT mailroom_revoke($1)::text", json!([1]), "1"),
        (
            "SELECT length(mailroom_sign($1::text::token_action, $2, $3))::text",
            json!(["password_recovery", secret, "04711"]),
            "86",
        ),
        (
            "SELECT mailroom_verify($1, $2::text::token_action, $3)::text",
            json!(["A".repeat(86), "password_recovery", "04711"]),
            "false",
        ),
        // The rest.
        (
            "SELECT subject FROM mailroom_preview($1, $2)",
            json!(["password_changed", {"json": {"login": "ada"}}]),
            "Your password was changed",
        ),
        (
            "SELECT waiting::text FROM mailroom_status()",
            json!([]),
            "0",
        ),
        ("SELECT mailroom_pause()::text", json!([]), "true"),
        ("SELECT mailroom_resume()::text", json!([]), "true"),
        (
            "SELECT (mailroom_wake_worker() IS NOT NULL)::text",
            json!([]),
            "true",
        ),
        (
            "SELECT purged::text FROM mailroom_purge($1)",
            json!([10]),
            "0",
        ),
        (
            "SELECT mailroom_attach($1, email => $2, login => $3)::text",
            json!(["people", "mail", "nick"]),
            "1",
        ),
        ("SELECT mailroom_detach($1)::text", json!(["people"]), "1"),
        (
            "SELECT (mailroom_rotate_key() > 1)::text",
            json!([]),
            "true",
        ),
        // What is refused is told apart by its SQLSTATE.
        (
            "SELECT mailroom_send($1, $2, $3)",
            json!(["nobody", "S", "T"]),
            "22023",
        ),
        (
            "SELECT mailroom_reschedule($1, $2)",
            json!([1, null]),
            "22023",
        ),
        ("SELECT mailroom_retry_failed()", json!([]), "22023"),
    ]
}

/// A server whose worker takes nothing away.
fn cluster() -> Cluster {
    Cluster::start(&["mailroom.collect = off"])
}

/// A database for one driver, and where it is.
fn database(cluster: &Cluster, name: &str) -> String {
    let mut client = cluster.create_database(name);
    client
        .batch_execute(
            "CREATE TABLE people (mail text, nick text); INSERT INTO people VALUES ('eve@example.com', 'eve')",
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
    assert!(missing.is_empty(), "nobody calls {missing:?}");
    name.to_owned()
}

/// Whether each call came to what it should.
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

/// Has a program make the calls.
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
                 bcc => 'dave@example.com'); \
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
    assert!(
        bob.contains("dave@example.com") && !bob.contains("Bcc:"),
        "{bob}"
    );
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

/// A plain value for the driver of Rust, which asks the server for the type of each parameter and sends that.
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
