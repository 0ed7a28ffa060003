//! Dump and restore: what pg_dump includes, that it is restored as it was, and that delivery then continues without
//! duplicates.
//!
//! pg_dump makes the dumps, and psql or pg_restore restores them: between databases of one cluster where only rows
//! matter, and between two clusters where the key and the worker do.

mod elsewhere;
mod restore_guard;
mod rights;
mod rows;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::cluster::Cluster;
use postgres::Client;

/// No worker, so that only the test changes anything.
const QUIET: &[&str] = &["shared_preload_libraries = ''"];

/// A worker that collects each token at once.
const BUSY: &[&str] = &["mailroom.batch_limit = 1", "mailroom.poll_interval = '1h'"];

/// Live token mail, which is dumped as pending tokens.
const LIVE_TOKEN_MAIL: &str = "token_id IS NOT NULL AND state IN ('scheduled', 'claimed')";

/// Runs one of the server's programs, which must succeed.
fn run(cluster: &Cluster, program: &str, arguments: &[&str]) -> Output {
    let output = cluster.program(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Returns the script that pg_dump makes of a database.
fn dump(cluster: &Cluster, database: &str, options: &[&str]) -> String {
    let arguments = [options, &[database]].concat();
    String::from_utf8(run(cluster, "pg_dump", &arguments).stdout).unwrap()
}

/// Creates a database and runs a script in it with psql. Returns the messages of psql.
fn restore(cluster: &Cluster, database: &str, script: &str) -> String {
    cluster
        .connect("postgres")
        .batch_execute(&format!("CREATE DATABASE {database} TEMPLATE template0"))
        .unwrap();
    read_in(cluster, database, script)
}

fn read_in(cluster: &Cluster, database: &str, script: &str) -> String {
    let mut psql = psql(cluster, database, "ON_ERROR_STOP=1");
    psql.stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let output = psql.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    told
}

/// Starts psql, which reads a script from its standard input. `on_error` says whether it ends with the first error.
fn psql(cluster: &Cluster, database: &str, on_error: &str) -> std::process::Child {
    cluster
        .program("psql")
        .args(["-X", "-q", "-v", on_error, "-d", database])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the names of the extension's relations of these kinds, such as tables or sequences.
fn relations(client: &mut Client, kinds: &str) -> Vec<String> {
    client
        .query(
            &format!(
                "SELECT c.relname::text FROM pg_depend d JOIN pg_class c ON c.oid = d.objid \
                 WHERE d.classid = 'pg_class'::regclass AND d.deptype IN ('e', 'a') \
                 AND (d.deptype = 'e' OR d.refobjid IN (SELECT objid FROM pg_depend \
                   WHERE deptype = 'e' AND refclassid = 'pg_extension'::regclass)) \
                 AND c.relkind = ANY ('{{{kinds}}}') AND c.relnamespace = \
                   (SELECT extnamespace FROM pg_extension WHERE extname = 'mailroom') \
                 GROUP BY 1 ORDER BY 1"
            ),
            &[],
        )
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// Returns all rows of all tables and all positions of sequences as a restore of a dump must bring them back: live
/// token mail is left out of `outbox` and included in `pending`.
fn contents(client: &mut Client) -> Vec<String> {
    let mut all = Vec::new();
    for table in relations(client, "r,p") {
        let query = match table.as_str() {
            "outbox" => format!("SELECT t::text FROM outbox t WHERE NOT ({LIVE_TOKEN_MAIL})"),
            "pending" => format!(
                "SELECT t::text FROM pending t UNION SELECT ROW(CASE kind WHEN 'activation' THEN 1 ELSE 0 END, token_id)::text \
                 FROM outbox WHERE {LIVE_TOKEN_MAIL}"
            ),
            "outbox_attempts" => format!(
                "SELECT t::text FROM outbox_attempts t WHERE outbox_id NOT IN (SELECT id FROM outbox WHERE {LIVE_TOKEN_MAIL})"
            ),
            // Deliverers publish them again.
            "transports" | "deliverers" => "SELECT ''::text WHERE false".to_owned(),
            // The row must name the database itself, also in a restored one.
            "_database_identity" => {
                "SELECT format('%s', database = d.oid) FROM _database_identity \
                 JOIN pg_database d ON d.datname = current_database()"
                    .to_owned()
            }
            _ => format!("SELECT t::text FROM {table} t"),
        };
        let rows = client.query(&format!("{query} ORDER BY 1"), &[]).unwrap();
        all.push(format!("{table}: {}", rows.len()));
        all.extend(rows.iter().map(|row| row.get::<_, String>(0)));
    }
    for sequence in relations(client, "S") {
        let at: String = client
            .query_one(
                &format!("SELECT (last_value, is_called)::text FROM {sequence}"),
                &[],
            )
            .unwrap()
            .get(0);
        all.push(format!("{sequence}: {at}"));
    }
    all
}

/// Creates accounts, tokens, mail in every state but `expired`, and at least one row in each table.
fn populate(client: &mut Client) {
    client
        .batch_execute(
            "INSERT INTO accounts (email, login) SELECT format('user%s@example.com', i), format('user%s', i) \
               FROM generate_series(1, 12) i;
             UPDATE tokens SET consumed_at = 1 WHERE account IN (1, 2);
             UPDATE accounts SET status = 'suspended' WHERE id = 2;
             UPDATE accounts SET status = 'suspended' WHERE id = 3;
             UPDATE accounts SET status = 'active' WHERE id = 3;
             INSERT INTO accounts (email, login, status) VALUES ('Odd@example.com', 'odd', 'active');
             UPDATE accounts SET activated_at = NULL WHERE login = 'odd';
             INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');
             UPDATE jobs SET last_seq = 1;
             SELECT mailroom_collect(6);
             INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');
             INSERT INTO templates (kind, locale, subject, body_text, body_html)
               VALUES ('welcome', 'en', 'Hello {{ name }}', E'Two\\nlines\\t\\\\.', '<p>{{ name }}</p>');
             SELECT mailroom_send(format('to%s@example.com', i), 'Subject', 'Text', group_key => 'group')
               FROM generate_series(1, 3) i;
             SELECT mailroom_send('to@example.com, other@example.com', kind => 'welcome',
               data => '{\"name\": \"Ann\\\\ \\u00e4\"}', item_key => 'key', bcc => 'b@example.com', reply_to => 'r@example.com', from_address => 'Shop <s@example.com>', 
               headers => '{\"X-A\": \"b\"}', unsubscribe_url => 'https://example.com/u',
               attachments => '[{\"filename\": \"a.bin\", \"content\": \"/wABAlwN\"}]');
             SELECT mailroom_send('later@example.com', 'S', 'T', send_at => '2100-01-01', expires_at => '2101-01-01');
             SELECT mailroom_send('gone@example.com', 'S', 'T', item_key => 'gone');
             SELECT mailroom_cancel_item('gone');
             SELECT mailroom_claim(2, claimant => 'first');
             SELECT mailroom_mark_error(id, 'no answer', claimant => 'first'),
               mailroom_mark_sent(id, 'provider-1', claimant => 'first') FROM outbox WHERE claimed_by = 'first';
             SELECT mailroom_claim(3, claimant => 'second');
             SELECT mailroom_mark_sent(max(id), 'provider-2', claimant => 'second',
               refused_recipients => '[{\"recipient\": \"a@example.com\", \"response_code\": 550}]') FROM outbox WHERE claimed_by = 'second';
             SELECT mailroom_claim_group(claimant => 'third');
             SELECT mailroom_mark_error(min(id), 'never', permanent => true, claimant => 'third') FROM outbox WHERE claimed_by = 'third';
             INSERT INTO job_runs (started_at, duration, trigger, error) VALUES (now(), '1 s', 'poll', 'an error');
             SELECT mailroom_request_activation('user9@example.com');
             SELECT mailroom_request_recovery('user1@example.com');
             INSERT INTO budgets (period, amount) VALUES ('hour', 100), ('month', 1000);
             INSERT INTO routes (position, kind_pattern, transport, fallback) VALUES (1, 'a\\_%', 'one', 'two');
             SELECT _publish_transports('me', '[{\"name\": \"one\", \"provider\": \"log\"}]');
             SELECT mailroom_send('routed@example.com', 'S', 'T', transport => 'one');
             SELECT mailroom_report('one', jsonb_build_array('{\"type\": \"bounced\", \"event_id\": \"1\", \"status\": \"5.1.1\", \"detail\": \"no \\u00e4\"}'::jsonb
               || jsonb_build_object('message_id', (SELECT message_id FROM outbox WHERE recipients = '{routed@example.com}'))));
             SELECT mailroom_suppress('S' || i || '@example.com', 'l', until => now() + i * interval '1 day') FROM generate_series(1, 2) i;
             SELECT _consume_budget(array_fill(1, ARRAY[5]), false);
             CREATE TABLE people (mail text, name text);
             SELECT mailroom_attach('people', 'mail', 'name');
             INSERT INTO people VALUES ('ann@example.com', 'Ann');
             SELECT mailroom_pause();",
        )
        .unwrap();
}

/// Copies the key file from one cluster to another, as docs/operations/backup.md says.
fn copy_key(from: &Cluster, to: &Cluster) {
    let (from, to) = (
        from.data().join("mailroom.key"),
        to.data().join("mailroom.key"),
    );
    let mut command = Command::new("install");
    command.args(["-m", "600"]).arg(from).arg(&to);
    // As the server's user, who must own both files.
    let copied = as_server_user(&to, command);
    assert!(copied.status.success(), "{copied:?}");
}

fn as_server_user(file: &Path, mut command: Command) -> Output {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    let owner = std::fs::metadata(file.parent().unwrap()).unwrap();
    command.uid(owner.uid()).gid(owner.gid()).output().unwrap()
}
