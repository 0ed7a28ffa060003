//! The signing key in a running server: created by CREATE EXTENSION, kept, shared, rotated, corrupted and repaired, and
//! never shown outside its file.

mod file;
mod reload;
mod root;
mod rotation;

use std::fs;
use std::process::Command;

use crate::cluster::{Cluster, eventually};
use postgres::Client;

const KEY_A: &str = "deadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeefdeadbeef";

const KEY_B: &str = "cafebabecafebabecafebabecafebabecafebabecafebabecafebabecafebabe";

/// Logs as much as a server can.
const TALKATIVE: &[&str] = &[
    "log_statement = 'all'",
    "log_min_messages = debug5",
    "log_min_error_statement = debug5",
    "log_error_verbosity = verbose",
    "log_duration = on",
    "log_parameter_max_length = -1",
    "log_parameter_max_length_on_error = -1",
    "debug_print_plan = on",
    "mailroom.batch_timeout = 0",
];

/// Runs a shell script in the data directory as the server's user, whose files are accepted.
fn shell(cluster: &Cluster, script: &str) {
    let mut command = cluster.as_server_user(Command::new("sh"));
    let output = command
        .current_dir(cluster.data())
        .args(["-euc", script])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Replaces the key file.
fn write_key_file(cluster: &Cluster, content: &str) {
    shell(
        cluster,
        &format!("umask 077; printf '%s' '{content}' >new.key; mv new.key mailroom.key"),
    );
}

fn key_file(cluster: &Cluster) -> String {
    fs::read_to_string(cluster.data().join("mailroom.key")).unwrap()
}

fn sign(client: &mut Client) -> String {
    client
        .query_one(
            "SELECT mailroom_sign('activation', decode(repeat('07', 32), 'hex'))",
            &[],
        )
        .unwrap()
        .get(0)
}

fn verifies(client: &mut Client, token: &str) -> bool {
    client
        .query_one("SELECT mailroom_verify($1, 'activation')", &[&token])
        .unwrap()
        .get(0)
}

fn register(client: &mut Client, login: &str) {
    client
        .execute(
            "INSERT INTO accounts (email, login) VALUES ($1 || '@example.com', $1)",
            &[&login],
        )
        .unwrap();
}

/// Waits for the mail that the worker creates for this account; returns its signed token.
fn mailed(client: &mut Client, login: &str) -> String {
    eventually("the worker's mail", || {
        client
            .query_opt(
                "SELECT secrets->>'token' FROM outbox WHERE data->>'login' = $1",
                &[&login],
            )
            .unwrap()
            .map(|row| row.get(0))
    })
}

/// Fails if the text contains 12 consecutive characters of one of these secrets, in any case.
fn assert_tells_nothing(text: &str, secrets: &[&str]) {
    let text = text.to_lowercase();
    for secret in secrets {
        let secret = secret.trim().to_lowercase();
        assert!(secret.len() >= 12, "not much of a secret");
        for start in 0..=secret.len() - 12 {
            let piece = &secret[start..start + 12];
            if let Some(place) = text.find(piece) {
                let line = text[..place].matches('\n').count();
                panic!(
                    "line {line} shows a secret: {}",
                    text.lines().nth(line).unwrap_or_default()
                );
            }
        }
    }
}

/// SQLSTATE, message, detail, hint and context of an error.
fn told(error: &postgres::Error) -> String {
    let db = error.as_db_error().expect("an answer of the server");
    format!(
        "{} {} {} {} {}",
        db.code().code(),
        db.message(),
        db.detail().unwrap_or_default(),
        db.hint().unwrap_or_default(),
        db.where_().unwrap_or_default()
    )
}

/// A script that makes a key file with this content and mode.
fn broken(content: &str, mode: &str) -> String {
    format!("umask 077; printf '%s' '{content}' >mailroom.key; chmod {mode} mailroom.key")
}
