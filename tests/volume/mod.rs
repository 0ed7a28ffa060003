//! A database with much in it, and each operation of the API in it: what tests and benches about size share.

use postgres::Client;

/// One operation: what is done before it, which does not count, and what is measured.
pub struct Operation {
    pub name: &'static str,
    /// Statements of PL/pgSQL, in the same transaction; `me` is an account, and what is `kept` the operation has as `kept()`.
    before: &'static str,
    /// Statements of PL/pgSQL.
    run: &'static str,
}

const fn one(name: &'static str, before: &'static str, run: &'static str) -> Operation {
    Operation { name, before, run }
}

// Beside others, what is left for this session may be found by its next look at everything only.
const CLAIMED: &str = "FOR i IN 1..100 LOOP \
        PERFORM keep(coalesce(array_agg(c.id), '{}')::text) FROM mailroom_claim(100, '1 h', 'me', ARRAY[_default_transport()]) c; \
        EXIT WHEN kept() <> '{}'; \
        PERFORM pg_sleep(0.05); \
    END LOOP;";
const SENT: &str = "PERFORM keep(mailroom_send('a@example.com', 'Hello', 'Text', item_key => 'an item of ours')::text);";
const LINK: &str = "INSERT INTO tokens (account, action) VALUES (me, 'password_recovery'); \
    PERFORM keep(mailroom_sign(t.action, t.secret, t.code) || ' ' || t.code) FROM tokens t WHERE t.account = me ORDER BY t.id DESC LIMIT 1;";

const PEOPLE: &str = "CREATE TABLE people (id bigserial PRIMARY KEY, mail text NOT NULL, name text NOT NULL); \
    INSERT INTO people (mail, name) SELECT 'p' || i || '@example.com', 'p' || i FROM generate_series(1, 100) i;";
const ATTACHED: &str = "CREATE TABLE people (id bigserial PRIMARY KEY, mail text NOT NULL, name text NOT NULL); \
    INSERT INTO people (mail, name) SELECT 'p' || i || '@example.com', 'p' || i FROM generate_series(1, 100) i; \
    PERFORM mailroom_attach('people', 'mail', 'name');";

/// Each operation that deals with what the database holds.
pub const OPERATIONS: [Operation; 56] = [
    one(
        "sign-up",
        "",
        "INSERT INTO accounts (email, login) VALUES ('new@example.com', 'new');",
    ),
    one(
        "sign-ups, 100",
        "",
        "INSERT INTO accounts (email, login) SELECT 'new' || i || '@example.com', 'new' || i FROM generate_series(1, 100) i;",
    ),
    one(
        "suspension",
        "",
        "UPDATE accounts SET status = 'suspended' WHERE id = me;",
    ),
    one(
        "suspensions, 100",
        "",
        "UPDATE accounts SET status = 'suspended' WHERE id = ANY (ARRAY(SELECT i * 10 + 5 FROM generate_series(1, 100) i)) AND status = 'active';",
    ),
    one(
        "change of an address",
        "",
        "UPDATE accounts SET email = 'new@example.com' WHERE id = me;",
    ),
    one(
        "deletion of an account",
        "",
        "DELETE FROM accounts WHERE id = me;",
    ),
    one(
        "new token",
        "",
        "INSERT INTO tokens (account, action) VALUES (me, 'password_recovery');",
    ),
    one(
        "request_recovery, known address",
        "",
        "PERFORM mailroom_request_recovery('a' || me || '@example.com');",
    ),
    one(
        "request_recovery, unknown address",
        "",
        "PERFORM mailroom_request_recovery('nobody@example.com');",
    ),
    one(
        "request_activation",
        "",
        "PERFORM mailroom_request_activation('a1@example.com');",
    ),
    one(
        "answer_requests, 100 known addresses",
        "PERFORM mailroom_request_recovery('a' || i * 10 + 7 || '@example.com') FROM generate_series(1, 100) i;",
        "PERFORM mailroom_answer_requests(100);",
    ),
    one(
        "answer_requests, 100 unknown addresses",
        "PERFORM mailroom_request_recovery('nobody' || i || '@example.com') FROM generate_series(1, 100) i;",
        "PERFORM mailroom_answer_requests(100);",
    ),
    one(
        "collect, 100",
        "INSERT INTO tokens (account, action) SELECT i * 10 + 7, 'password_recovery' FROM generate_series(1, 100) i;",
        "PERFORM mailroom_collect(100);",
    ),
    one(
        "dequeue, 100",
        "INSERT INTO tokens (account, action) SELECT i * 10 + 7, 'password_recovery' FROM generate_series(1, 100) i;",
        "PERFORM mailroom_dequeue(100);",
    ),
    one(
        "peek",
        LINK,
        "PERFORM mailroom_peek(split_part(kept(), ' ', 1));",
    ),
    one(
        "redeem",
        LINK,
        "PERFORM mailroom_redeem(split_part(kept(), ' ', 1), split_part(kept(), ' ', 2));",
    ),
    one("revoke", LINK, "PERFORM mailroom_revoke(me);"),
    one(
        "send",
        "",
        "PERFORM mailroom_send('a@example.com', 'Hello', 'Text');",
    ),
    one(
        "send of an item",
        SENT,
        "PERFORM mailroom_send('a@example.com', 'Hello again', 'Text', item_key => 'an item of ours', on_conflict => 'replace');",
    ),
    one(
        "send with a message_id of before",
        "PERFORM mailroom_send('a@example.com', 'Hello', 'Text', message_id => '11111111-2222-3333-4444-555555555555');",
        "PERFORM mailroom_send('a@example.com', 'Hello', 'Text', message_id => '11111111-2222-3333-4444-555555555555');",
    ),
    one(
        "send_many, 100",
        "PERFORM keep(jsonb_agg(jsonb_build_object('recipients', 'a@example.com', 'subject', 'Hello ' || i, 'body_text', 'Text'))::text) \
         FROM generate_series(1, 100) i;",
        "PERFORM mailroom_send_many(kept()::jsonb);",
    ),
    one("cancel", SENT, "PERFORM mailroom_cancel(kept()::bigint);"),
    one(
        "cancel_item",
        SENT,
        "PERFORM mailroom_cancel_item('an item of ours');",
    ),
    one(
        "reschedule",
        SENT,
        "PERFORM mailroom_reschedule(kept()::bigint, now() + interval '1 day');",
    ),
    one(
        "reschedule_item",
        SENT,
        "PERFORM mailroom_reschedule_item('an item of ours', now() + interval '1 day');",
    ),
    one(
        "claim, 1",
        "",
        "PERFORM mailroom_claim(1, '1 h', 'me', ARRAY[_default_transport()]);",
    ),
    one(
        "claim, 100",
        "",
        "PERFORM mailroom_claim(100, '1 h', 'me', ARRAY[_default_transport()]);",
    ),
    one(
        "claim, 1000",
        "",
        "PERFORM mailroom_claim(1000, '1 h', 'me', ARRAY[_default_transport()]);",
    ),
    one(
        "claim_group",
        "",
        "PERFORM mailroom_claim_group(claimant => 'me', transports => ARRAY[_default_transport()]);",
    ),
    one(
        "claim_group beside 10 that are held",
        CLAIMED,
        "PERFORM mailroom_claim_group(claimant => 'you', transports => ARRAY[_default_transport()]);",
    ),
    one(
        "claim_group of a name",
        "",
        "PERFORM mailroom_claim_group(claimant => 'me', transports => ARRAY[_default_transport()], group_key => 'g7');",
    ),
    one(
        "mark_sent",
        CLAIMED,
        "PERFORM mailroom_mark_sent((kept()::bigint[])[50], claimant => 'me');",
    ),
    one(
        "mark_sent_many, 100",
        CLAIMED,
        "PERFORM mailroom_mark_sent_many(kept()::bigint[], claimant => 'me');",
    ),
    one(
        "mark_error",
        CLAIMED,
        "PERFORM mailroom_mark_error((kept()::bigint[])[50], 'no', claimant => 'me');",
    ),
    one(
        "mark_error_many, 100",
        CLAIMED,
        "PERFORM mailroom_mark_error_many(kept()::bigint[], array_fill('no'::text, ARRAY[cardinality(kept()::bigint[])]), claimant => 'me');",
    ),
    one(
        "release_many, 100",
        CLAIMED,
        "PERFORM mailroom_release_many(kept()::bigint[], claimant => 'me');",
    ),
    one(
        "extend_many, 100",
        CLAIMED,
        "PERFORM mailroom_extend_many(kept()::bigint[], '2 h', claimant => 'me');",
    ),
    one(
        "release",
        CLAIMED,
        "PERFORM mailroom_release((kept()::bigint[])[50], claimant => 'me');",
    ),
    one(
        "extend",
        CLAIMED,
        "PERFORM mailroom_extend((kept()::bigint[])[50], '2 h', claimant => 'me');",
    ),
    one(
        "claims that lapsed, 100",
        "PERFORM mailroom_claim(100, '1 us', 'me', ARRAY[_default_transport()]);",
        "PERFORM mailroom_claim(1, '1 h', 'you', ARRAY[_default_transport()]);",
    ),
    one(
        "retry",
        "PERFORM keep(id::text) FROM outbox WHERE state = 'error' ORDER BY ended_at DESC LIMIT 1;",
        "PERFORM mailroom_retry(kept()::bigint);",
    ),
    one(
        "retry_failed of the last of 100",
        "PERFORM keep(ended_at::text) FROM outbox WHERE state = 'error' ORDER BY ended_at DESC OFFSET 9 LIMIT 1;",
        "PERFORM mailroom_retry_failed(since => kept()::timestamptz);",
    ),
    one(
        "next_due",
        "",
        "PERFORM mailroom_next_due(ARRAY[_default_transport()]);",
    ),
    one("status", "", "PERFORM * FROM mailroom_status();"),
    one("jobs", "", "PERFORM * FROM jobs;"),
    one("budgets", "", "PERFORM * FROM mailroom_budgets;"),
    one(
        "history of a mail",
        "PERFORM keep(id::text) FROM outbox WHERE state = 'error' ORDER BY ended_at LIMIT 1;",
        "PERFORM * FROM outbox_history WHERE outbox_id = kept()::bigint;",
    ),
    one(
        "look by message_id",
        "PERFORM keep(message_id::text) FROM outbox WHERE id = me;",
        "PERFORM * FROM outbox WHERE message_id = kept()::uuid;",
    ),
    one(
        "look by provider_id",
        "",
        "PERFORM * FROM outbox WHERE provider_id = 'p' || me;",
    ),
    one(
        "mail that failed lately",
        "PERFORM keep(ended_at::text) FROM outbox WHERE state = 'error' ORDER BY ended_at DESC OFFSET 9 LIMIT 1;",
        "PERFORM id, last_error FROM outbox WHERE state = 'error' AND ended_at >= kept()::timestamptz;",
    ),
    one(
        "purge, 1000",
        "PERFORM set_config('mailroom.retention', '7d', true);",
        "PERFORM mailroom_purge(1000);",
    ),
    one(
        "the worker's upkeep",
        "",
        "PERFORM _maintain_outbox(false);",
    ),
    one(
        "attach, 100 rows",
        PEOPLE,
        "PERFORM mailroom_attach('people', 'mail', 'name');",
    ),
    one(
        "detach, 100 rows",
        ATTACHED,
        "PERFORM mailroom_detach('people');",
    ),
    one("pause", "", "PERFORM mailroom_pause();"),
    one(
        "resume",
        "PERFORM mailroom_pause();",
        "PERFORM mailroom_resume();",
    ),
];

/// Fills a database that has the extension: so many accounts, three times as many tokens, ten times as many mails that
/// ended over twenty days, as many as accounts that wait in groups of ten, and as many for next month, over 200 priorities.
///
/// Without triggers: rows as they would be, none of them new to anybody.
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

/// Makes each operation a pair of functions: what it does costs in one function call what it costs.
fn install(client: &mut Client, accounts: i64) {
    client
        .batch_execute(
            "CREATE FUNCTION keep(value text) RETURNS void LANGUAGE sql AS $$ SELECT set_config('volume.kept', value, true) $$; \
             CREATE FUNCTION kept() RETURNS text LANGUAGE sql STABLE AS $$ SELECT current_setting('volume.kept') $$",
        )
        .unwrap();
    // In the middle of what there is, and active.
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

/// Has it done once and taken back: what `measure` makes of the statement that does it.
pub fn once<T>(
    client: &mut Client,
    number: usize,
    measure: impl FnOnce(&mut Client, &str) -> Result<T, postgres::Error>,
) -> T {
    let result = begin(client, number, measure);
    client.batch_execute("ROLLBACK").unwrap();
    result
}

/// As [`once`], but what was claimed is sent: a session looks for what it claimed and gave up later than for other mail.
#[allow(dead_code, reason = "only where somebody else is at work, too")]
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
    client
        .batch_execute(&format!("BEGIN; SELECT before_{number}()"))
        .and_then(|()| measure(client, &format!("SELECT run_{number}()")))
        .unwrap_or_else(|error| panic!("{}: {error:?}", OPERATIONS[number].name))
}

/// Pages that a statement looks at.
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
    // The first line of its kind is that of the whole plan.
    let line = plan
        .lines()
        .find(|line| line.trim_start().starts_with("Buffers: shared"))
        .unwrap_or_else(|| panic!("no figures in\n{plan}"));
    Ok(["hit=", "read="]
        .iter()
        .filter_map(|figure| line.split_once(figure))
        .map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap())
        .map(|digits| digits.parse::<u64>().unwrap())
        .sum())
}
