//! A large database, and each operation of the API on it, for tests and benchmarks of size.

mod operations;

use postgres::Client;

pub use operations::OPERATIONS;

/// Fills a database that has the extension: `accounts` accounts, three times as many tokens, ten times as many mails
/// that ended within twenty days, as many due mails as accounts, in groups of ten, and as many mails for next month,
/// over 200 priorities.
///
/// Triggers do not fire, so that no row is announced as new.
pub fn fill(client: &mut Client, accounts: i64) {
    client
        .batch_execute(
            "SET session_replication_role = replica; SET client_min_messages = error; SET synchronous_commit = off; \
             ALTER TABLE outbox DISABLE TRIGGER outbox_announce, SET (fillfactor = 90)",
        )
        .unwrap();
    for statement in [
        "INSERT INTO accounts (id, email, login, status, created_at, activated_at) \
         SELECT i, 'a' || i || '@example.com', 'a' || i, \
             (CASE i % 10 WHEN 0 THEN 'suspended' WHEN 1 THEN 'provisioned' ELSE 'active' END)::account_status, \
             _epoch() - 864000, CASE WHEN i % 10 > 1 THEN _epoch() - 864000 END \
         FROM generate_series(1, $1) i",
        "INSERT INTO tokens (id, account, action, secret, code, created_at, expires_at, consumed_at) \
         SELECT i, 1 + i % $1, (CASE WHEN i <= $1 THEN 'activation' ELSE 'password_recovery' END)::token_action, \
             sha256(i::text::bytea), '12345', t.made, t.made + 86400, CASE WHEN i % 2 = 0 THEN t.made + 60 END \
         FROM generate_series(1, 3 * $1) i \
         CROSS JOIN LATERAL (SELECT _epoch() - 1728000 + i * 1641600 / (3 * $1)) t (made)",
        "INSERT INTO outbox (id, message_id, state, priority, send_at, created_at, updated_at, ended_at, failed_attempts, kind, \
             recipients, subject, body_text, last_error, claimed_by, provider_id) \
         SELECT i, lpad(to_hex(i), 32, '0')::uuid, (CASE WHEN i % 100 = 0 THEN 'error' ELSE 'sent' END)::outbox_state, \
             i % 200 - 100, t.ended, t.ended, t.ended, t.ended, (i % 100 = 0)::integer, 'own', \
             ARRAY['a' || i % $1 || '@example.com'], 'Hello', 'Text', CASE WHEN i % 100 = 0 THEN 'no such mailbox' END, 'me', 'p' || i \
         FROM generate_series(1, 10 * $1) i \
         CROSS JOIN LATERAL (SELECT now() - interval '20 days' + interval '20 days' * i / (10 * $1)) t (ended)",
        "INSERT INTO outbox_attempts (outbox_id, attempt, outcome, started_at, ended_at, claimant, error) \
         SELECT id, 1, 'failed', created_at, ended_at, 'me', 'no such mailbox' FROM outbox WHERE state = 'error' AND $1 > 0",
        "INSERT INTO outbox (id, priority, send_at, created_at, group_key, kind, recipients, subject, body_text) \
         SELECT 10 * $1 + i, i % 200 - 100, t.due, t.due, 'g' || i / 2000 * 200 + i % 200, 'own', \
             ARRAY['a' || i || '@example.com'], 'Hello', 'Text' \
         FROM generate_series(1, $1) i \
         CROSS JOIN LATERAL (SELECT now() - interval '1 day' + interval '1 hour' * i / $1) t (due)",
        "INSERT INTO outbox (id, priority, send_at, kind, recipients, subject, body_text) \
         SELECT 11 * $1 + i, i % 200 - 100, now() + interval '30 days' + interval '1 hour' * i / $1, 'own', \
             ARRAY['a' || i || '@example.com'], 'Hello', 'Text' \
         FROM generate_series(1, $1) i",
    ] {
        let statement = statement.replace("$1", &format!("{accounts}::bigint"));
        client.batch_execute(&statement).unwrap();
    }
    client
        .batch_execute(&format!(
            "SELECT setval('accounts_id_seq', {accounts}), setval('tokens_id_seq', 3 * {accounts}), setval('outbox_id_seq', 12 * {accounts}); \
             ALTER TABLE outbox ENABLE ALWAYS TRIGGER outbox_announce, SET (fillfactor = 50); \
             RESET session_replication_role; RESET synchronous_commit"
        ))
        .unwrap();
    client.batch_execute("VACUUM (ANALYZE)").unwrap();
    install(client, accounts);
}

/// Creates two functions for each operation: its cost is that of one function call.
fn install(client: &mut Client, accounts: i64) {
    client
        .batch_execute(
            "CREATE FUNCTION keep(value text) RETURNS void LANGUAGE sql AS $$ SELECT set_config('volume.kept', value, true) $$; \
             CREATE FUNCTION kept() RETURNS text LANGUAGE sql STABLE AS $$ SELECT current_setting('volume.kept') $$",
        )
        .unwrap();
    // An active account in the middle of the table.
    let me = accounts / 2 + 5;
    for (number, operation) in OPERATIONS.iter().enumerate() {
        for (part, body) in [("before", operation.before), ("run", operation.run)] {
            client
                .batch_execute(&format!(
                    "CREATE FUNCTION {part}_{number}() RETURNS void LANGUAGE plpgsql AS \
                     $f$ DECLARE me CONSTANT bigint := {me}; BEGIN {body} END $f$"
                ))
                .unwrap();
        }
    }
}

/// Runs an operation once and rolls it back; returns what `measure` returns for the statement that runs it.
pub fn once<T>(
    client: &mut Client,
    number: usize,
    measure: impl FnOnce(&mut Client, &str) -> Result<T, postgres::Error>,
) -> T {
    let result = begin(client, number, measure);
    client.batch_execute("ROLLBACK").unwrap();
    result
}

/// As [`once`], but settles claimed mail as sent.
#[allow(dead_code, reason = "only where another client is at work, too")]
pub fn once_for_good<T>(
    client: &mut Client,
    number: usize,
    measure: impl FnOnce(&mut Client, &str) -> Result<T, postgres::Error>,
) -> T {
    let operation = &OPERATIONS[number];
    if ![operation.before, operation.run]
        .iter()
        .any(|body| body.contains("mailroom_claim"))
    {
        return once(client, number, measure);
    }
    let result = begin(client, number, measure);
    client
        .batch_execute(
            "SELECT mailroom_mark_sent_many(ARRAY(SELECT id FROM outbox WHERE state = 'claimed' AND claimed_by = c.name), claimant => c.name) \
             FROM (VALUES ('me'), ('you')) c (name); COMMIT",
        )
        .unwrap();
    result
}

fn begin<T>(
    client: &mut Client,
    number: usize,
    measure: impl FnOnce(&mut Client, &str) -> Result<T, postgres::Error>,
) -> T {
    // After a rollback, claimed mail is before the positions of the session.
    client
        .batch_execute(
            "SELECT count(_scan_back(s || _default_transport(), p::smallint, '-infinity', 0)) \
             FROM unnest(ARRAY['due ', 'groups ']) s, generate_series(-100, 100) p",
        )
        .unwrap();
    client
        .batch_execute(&format!("BEGIN; SELECT before_{number}()"))
        .and_then(|()| measure(client, &format!("SELECT run_{number}()")))
        .unwrap_or_else(|error| panic!("{}: {error:?}", OPERATIONS[number].name))
}

/// The number of pages that a statement accesses.
///
/// # Errors
///
/// Those of the statement.
pub fn pages(client: &mut Client, statement: &str) -> Result<u64, postgres::Error> {
    let plan: String = client
        .query(&format!("EXPLAIN (ANALYZE, BUFFERS) {statement}"), &[])?
        .iter()
        .map(|row| row.get::<_, String>(0) + "\n")
        .collect();
    assert!(plan.contains("Execution Time"), "no figures in\n{plan}");
    // The first such line is about the whole plan. There is none if no page was read.
    let line = plan
        .lines()
        .find(|line| line.trim_start().starts_with("Buffers: shared"))
        .unwrap_or_default();
    Ok(["hit=", "read="]
        .iter()
        .filter_map(|figure| line.split_once(figure))
        .map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap())
        .map(|digits| digits.parse::<u64>().unwrap())
        .sum())
}
