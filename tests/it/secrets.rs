//! Where secrets go and where they do not: the server logs and collects all that it can, under traffic through every
//! function that handles a secret. Then its output is searched for each secret that was used.
//!
//! Keys, signed tokens and links are searched for byte by byte. Five digits occur by chance in a log. So the codes of
//! this test begin with 9, as no SQLSTATE does, and are searched for where a value would be: between quotes, brackets
//! or commas.

// needs: pg_stat_statements test_decoding

mod by_hand;
mod copies;
mod logs;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::cluster::{Cluster, eventually, number};
use postgres::Client;

/// Logs all that a server can, except the values of parameters: those contain the applications' secrets as well as
/// ours, and an administrator who logs statements leaves them out.
const TALKATIVE: &[&str] = &[
    "shared_preload_libraries = 'mailroom, pg_stat_statements'",
    "pg_stat_statements.track = 'all'",
    "pg_stat_statements.track_utility = on",
    "track_activity_query_size = 100kB",
    "log_statement = 'all'",
    "log_min_duration_statement = 0",
    "log_min_messages = debug2",
    "log_min_error_statement = debug5",
    "log_error_verbosity = verbose",
    "log_parameter_max_length = 0",
    "log_lock_waits = on",
    "log_temp_files = 0",
    "wal_level = logical",
    "mailroom.batch_timeout = 0",
    "mailroom.link_base_url = 'https://example.com'",
    "mailroom.key_file = '../keys/mailroom.key'",
];

/// The secrets that were used, in the form in which they would be found.
#[derive(Default)]
struct Secrets {
    /// In hexadecimal, as in the key file.
    keys: Vec<String>,
    /// 86 characters each; a link contains one of them.
    tokens: Vec<String>,
    /// Five digits.
    codes: Vec<String>,
}

impl Secrets {
    /// The bytes to search for, each with the secret that it reveals.
    fn traces(&self) -> Vec<(Vec<u8>, &str)> {
        let mut traces = Vec::new();
        for token in &self.tokens {
            // A third of a token would be too much, at either end.
            for part in [&token[..28], &token[58..]] {
                traces.push((part.into(), token.as_str()));
            }
        }
        for key in &self.keys {
            for form in [key.to_lowercase(), key.to_uppercase()] {
                traces.push((form[..32].into(), key.as_str()));
                traces.push((form[32..].into(), key.as_str()));
            }
            traces.push((bytes(key), key.as_str()));
        }
        for code in &self.codes {
            let places = ["'%'", "\"%\"", "(%)", ",%,", "(%,", ",%)", "=%,", "\t%\t"];
            for place in places {
                traces.push((place.replace('%', code).into(), code.as_str()));
            }
        }
        traces
    }

    /// The secrets that a text contains.
    fn shown(&self, text: &[u8]) -> BTreeSet<&str> {
        self.search().shown(text)
    }

    fn search(&self) -> Search<'_> {
        let mut by_start = vec![Vec::new(); 1 << 16];
        for trace in self.traces() {
            by_start[pair(&trace.0)].push(trace);
        }
        Search { by_start }
    }

    /// Fails if a text contains a secret.
    fn assert_not_in(&self, what: &str, text: &[u8]) {
        assert!(!text.is_empty(), "{what} is empty");
        let shown = self.shown(text);
        if let Some(secret) = shown.first() {
            let text = String::from_utf8_lossy(text);
            let line = text
                .lines()
                .find(|line| line.contains(&secret[..secret.len().min(28)]));
            panic!(
                "{what} shows {} secrets, {secret} here: {line:?}",
                shown.len()
            );
        }
    }
}

/// All traces by their first two bytes, so that a text is read once.
struct Search<'a> {
    by_start: Vec<Vec<(Vec<u8>, &'a str)>>,
}

impl<'a> Search<'a> {
    fn shown(&self, text: &[u8]) -> BTreeSet<&'a str> {
        let mut shown = BTreeSet::new();
        for place in 1..text.len() {
            let text = &text[place - 1..];
            for (trace, secret) in &self.by_start[pair(text)] {
                if text.starts_with(trace) {
                    shown.insert(*secret);
                }
            }
        }
        shown
    }
}

fn pair(text: &[u8]) -> usize {
    usize::from(text[0]) << 8 | usize::from(text[1])
}

/// Whether `text` contains `part`: the standard library has this for strings only.
fn contains(text: &[u8], part: &[u8]) -> bool {
    let Some((first, rest)) = part.split_first() else {
        return true;
    };
    let mut text = text;
    while let Some(place) = text.iter().position(|byte| byte == first) {
        text = &text[place + 1..];
        if text.starts_with(rest) {
            return true;
        }
    }
    false
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

/// A cluster with its key outside the data directory, and a database with a role of each kind.
fn prepare() -> (Cluster, Client) {
    let cluster = Cluster::start(&["shared_preload_libraries = ''"]);
    let mut command = cluster.as_server_user(Command::new("sh"));
    let output = command
        .current_dir(cluster.data())
        .args(["-euc", "umask 077; mkdir ../keys"])
        .output()
        .unwrap();
    assert!(output.status.success());
    cluster.append("postgresql.auto.conf", &(TALKATIVE.join("\n") + "\n"));
    cluster.stop_server(crate::cluster::Stop::Fast);
    cluster.start_server();
    let mut client = cluster.create_database("app");
    client
        .batch_execute(
            "CREATE EXTENSION pg_stat_statements; \
             CREATE ROLE web LOGIN IN ROLE mailroom_app; CREATE ROLE mailer LOGIN IN ROLE mailroom_collector; \
             CREATE ROLE watcher LOGIN IN ROLE mailroom_monitor, pg_read_all_stats; \
             CREATE ROLE chief LOGIN IN ROLE mailroom_admin; \
             CREATE PUBLICATION outbox_cdc FOR TABLE outbox (id, message_id, kind, recipients, subject, data, item_key, created_at) \
                 WHERE (token_id IS NULL) WITH (publish = 'insert'); \
             CREATE PUBLICATION everything FOR ALL TABLES",
        )
        .unwrap();
    client
        .batch_execute(
            "SELECT pg_create_logical_replication_slot('cdc', 'pgoutput'); \
             SELECT pg_create_logical_replication_slot('all_of_it', 'test_decoding')",
        )
        .unwrap();
    (cluster, client)
}

/// Mails for ten accounts of each kind are claimed, settled in every way, and redeemed with right and wrong codes, with
/// every secret in a parameter. The sessions stay open, so that their last statements can be seen.
fn traffic(cluster: &Cluster, client: &mut Client) -> (Secrets, Vec<Client>) {
    let mut secrets = Secrets::default();
    let mut web = cluster.connect_as("app", "web");
    let mut mailer = cluster.connect_as("app", "mailer");
    let mut chief = cluster.connect_as("app", "chief");
    let mut watcher = cluster.connect_as("app", "watcher");

    for number in 0..10 {
        let login = format!("new{number}");
        web.execute(
            "INSERT INTO accounts (email, login) VALUES ($1 || '@example.com', $1)",
            &[&login],
        )
        .unwrap();
        let login = format!("old{number}");
        let code = format!("9{:04}", 7 * number + 1234);
        chief
            .execute(
                "WITH a AS (INSERT INTO accounts (email, login, status) VALUES ($1 || '@example.com', $1, 'active') RETURNING id) \
                 INSERT INTO tokens (account, action, code) SELECT id, 'password_recovery', $2 FROM a",
                &[&login, &code],
            )
            .unwrap();
        secrets.codes.push(code);
    }
    eventually("the worker's mails", || {
        (number(client, "SELECT count(*) FROM outbox") == 20).then_some(())
    });
    let mails = mailer
        .query(
            "SELECT id, kind::text, data ->> 'token', coalesce(data ->> 'code', '00000'), data ->> 'link', failed_attempts \
             FROM mailroom_claim(100, '5 min', 'mailer') ORDER BY id",
            &[],
        )
        .unwrap();
    assert_eq!(mails.len(), 20);
    for (index, mail) in mails.iter().enumerate() {
        let (id, kind, token, code): (i64, &str, &str, &str) =
            (mail.get(0), mail.get(1), mail.get(2), mail.get(3));
        assert!(mail.get::<_, &str>(4).ends_with(token));
        secrets.tokens.push(token.to_owned());
        // mailroom masks what a sender quotes of the mail in its error.
        let error = format!("550 <https://example.com/recover?token={token}> \"{code}\" refused");
        match index % 4 {
            0 => drop(mailer.execute("SELECT mailroom_mark_sent($1::bigint, $2::text, 'mailer')", &[&id, &"p"]).unwrap()),
            1 => drop(
                mailer
                    .execute("SELECT mailroom_mark_error($1::bigint, $2::text, permanent => true, claimant => 'mailer')", &[&id, &error])
                    .unwrap(),
            ),
            2 => drop(
                mailer
                    .execute("SELECT mailroom_mark_error($1::bigint, $2::text, claimant => 'mailer')", &[&id, &error])
                    .unwrap(),
            ),
            _ => drop(mailer.execute("SELECT mailroom_release($1::bigint, 'mailer')", &[&id]).unwrap()),
        }
        // A late settle, which is logged.
        mailer
            .execute(
                "SELECT mailroom_mark_error($1::bigint, $2::text, claimant => 'stranger')",
                &[&id, &error],
            )
            .unwrap();
        let wrong = "90000";
        let action = if kind == "activation" {
            "activation"
        } else {
            "password_recovery"
        };
        mailer
            .query(
                "SELECT mailroom_verify($1, $2::text::token_action, $3)",
                &[&token, &action, &code],
            )
            .unwrap();
        web.query("SELECT * FROM mailroom_peek($1)", &[&token])
            .unwrap();
        web.query("SELECT * FROM mailroom_redeem($1, $2)", &[&token, &wrong])
            .unwrap();
        if index % 2 == 0 {
            web.query("SELECT * FROM mailroom_redeem($1, $2)", &[&token, &code])
                .unwrap();
        }
        // Errors: a session that has the secret asks for what it may not.
        assert!(
            web.query("SELECT mailroom_redeem($1, $2), 1 / 0", &[&token, &code])
                .is_err()
        );
        assert!(
            web.query("SELECT 1 FROM tokens WHERE code = $1", &[&code])
                .is_err()
        );
        assert!(
            web.query(
                "SELECT _sign($2, $1::text::bytea, $3)",
                &[&token, &action, &code]
            )
            .is_err()
        );
    }
    for row in client
        .query("SELECT action::text, secret, code FROM tokens", &[])
        .unwrap()
    {
        let (action, secret, code): (&str, &[u8], &str) = (row.get(0), row.get(1), row.get(2));
        chief
            .query(
                "SELECT mailroom_sign($1::text::token_action, $2, $3)",
                &[&action, &secret, &code],
            )
            .unwrap();
        // The error for a secret of the wrong length does not show it.
        assert!(
            chief
                .query(
                    "SELECT mailroom_sign($1::text::token_action, $2 || $2, $3)",
                    &[&action, &secret, &code]
                )
                .is_err()
        );
    }
    chief
        .query("SELECT login, secret, code FROM mailroom_dequeue(5)", &[])
        .unwrap();
    web.query(
        "SELECT mailroom_request_recovery($1)",
        &[&"old1@example.com"],
    )
    .unwrap();
    web.query("SELECT mailroom_preview('activation')", &[])
        .unwrap();
    watcher
        .query("SELECT * FROM mailroom_status()", &[])
        .unwrap();
    client
        .batch_execute("SELECT mailroom_rotate_key()")
        .unwrap();
    let file = fs::read_to_string(cluster.data().join("../keys/mailroom.key")).unwrap();
    secrets.keys = file.split_whitespace().map(str::to_owned).collect();
    assert_eq!(secrets.keys.len(), 2);
    (secrets, vec![web, mailer, chief, watcher])
}
