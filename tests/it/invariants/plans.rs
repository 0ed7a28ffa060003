//! I4, for long sessions: a plan that was made while the tables were almost empty must serve when they are large.

use super::pages;
use crate::cluster::Cluster;
use postgres::Client;

/// Name, preparation, and the statement whose pages count. `$` is a number that no other call has.
const DEEDS: [[&str; 3]; 38] = [
    [
        "sign-up",
        "",
        "INSERT INTO accounts (email, login) VALUES ('p$@example.com', 'p$')",
    ],
    ["collect", ACCOUNTS, "SELECT mailroom_collect(10)"],
    [
        "dequeue",
        ACCOUNTS,
        "SELECT count(*) FROM mailroom_dequeue(10)",
    ],
    [
        "batch of the worker",
        ACCOUNTS,
        "SELECT _run_batch(10, 'limit')",
    ],
    [
        "claim of token mail",
        "INSERT INTO accounts (email, login) SELECT 't$-' || i || '@example.com', 't$-' || i FROM generate_series(1, 10) i; \
         UPDATE tokens SET revoked_at = 1 WHERE id IN (SELECT token_id FROM outbox WHERE state = 'scheduled') AND revoked_at IS NULL; \
         SELECT mailroom_collect(10)",
        "SELECT count(*) FROM mailroom_claim(10, claimant => 'me')",
    ],
    [
        "claim",
        MAIL,
        "SELECT count(*) FROM mailroom_claim(10, claimant => 'me')",
    ],
    [
        "mark_sent",
        CLAIMED,
        "SELECT mailroom_mark_sent_many(current_setting('plans.ids')::bigint[], claimant => 'me')",
    ],
    [
        "mark_error",
        CLAIMED,
        "SELECT mailroom_mark_error_many(current_setting('plans.ids')::bigint[], array_fill('no'::text, '{10}'), claimant => 'me')",
    ],
    [
        "release",
        CLAIMED,
        "SELECT mailroom_release_many(current_setting('plans.ids')::bigint[], claimant => 'me')",
    ],
    [
        "answer",
        "SELECT mailroom_request_recovery('first@example.com')",
        "SELECT mailroom_answer_requests(10)",
    ],
    [
        "peek",
        LINK,
        "SELECT mailroom_peek(current_setting('plans.link'))",
    ],
    [
        "redeem",
        LINK,
        "SELECT mailroom_redeem(current_setting('plans.link'))",
    ],
    [
        "revoke",
        LINK,
        "SELECT mailroom_revoke(current_setting('plans.account')::bigint)",
    ],
    [
        "suspension",
        LINK,
        "UPDATE accounts SET status = 'suspended' WHERE email = 'l$@example.com'",
    ],
    [
        "deletion",
        LINK,
        "DELETE FROM accounts WHERE email = 'l$@example.com'",
    ],
    [
        "cancel_item",
        "SELECT mailroom_send('a@example.com', 'Hello', 'Text', item_key => 'i$')",
        "SELECT mailroom_cancel_item('i$')",
    ],
    ["next_due", MAIL, "SELECT mailroom_next_due()"],
    [
        "claim of a group",
        "INSERT INTO outbox (kind, recipients, subject, body_text, group_key) \
         SELECT 'own', '{a@example.com}', 'Hello', 'Text', 'g$-' || i FROM generate_series(1, 10) i",
        "SELECT count(*) FROM mailroom_claim_group(claimant => 'me')",
    ],
    [
        "extend",
        CLAIMED,
        "SELECT mailroom_extend_many(current_setting('plans.ids')::bigint[], claimant => 'me')",
    ],
    [
        "mark_sent with what the provider said",
        CLAIMED,
        "SELECT mailroom_mark_sent_many(i.ids, array_fill('p'::text, '{10}'), 'me', array_fill(0, '{10}'), \
             array_fill('[{\"recipient\": \"a@example.com\", \"response_code\": 550}]'::jsonb, '{10}')) \
         FROM (SELECT current_setting('plans.ids')::bigint[]) i (ids)",
    ],
    [
        "mark_sent of what another holds",
        CLAIMED,
        "SELECT mailroom_mark_sent_many(current_setting('plans.ids')::bigint[], claimant => 'you')",
    ],
    [
        "mark_error for ever",
        CLAIMED,
        "SELECT mailroom_mark_error_many(i.ids, array_fill('a@example.com'::text, '{10}'), permanent => array_fill(true, '{10}'), claimant => 'me') \
         FROM (SELECT current_setting('plans.ids')::bigint[]) i (ids)",
    ],
    [
        "mark_error of what another holds",
        CLAIMED,
        "SELECT mailroom_mark_error_many(current_setting('plans.ids')::bigint[], array_fill('no'::text, '{10}'), claimant => 'you')",
    ],
    [
        "claims that lapsed",
        LAPSED,
        "SELECT _expire_leases(clock_timestamp(), 1000)",
    ],
    [
        "claims of a predecessor",
        CLAIMED,
        "SELECT _expire_previous_claims('me')",
    ],
    [
        "retry",
        FAILED,
        "SELECT count(mailroom_retry(i)) FROM unnest(current_setting('plans.ids')::bigint[]) i",
    ],
    [
        "retry_failed",
        FAILED,
        "SELECT mailroom_retry_failed(kind => 'own', since => now() - interval '1 min')",
    ],
    [
        "reschedule",
        "SELECT set_config('plans.id', mailroom_send('a@example.com', 'Hello', 'Text')::text, false)",
        "SELECT mailroom_reschedule(current_setting('plans.id')::bigint, now() + interval '1 day')",
    ],
    [
        "cancel",
        "SELECT set_config('plans.id', mailroom_send('a@example.com', 'Hello', 'Text')::text, false)",
        "SELECT mailroom_cancel(current_setting('plans.id')::bigint)",
    ],
    [
        "reschedule_item",
        "SELECT mailroom_send('a@example.com', 'Hello', 'Text', item_key => 'i$')",
        "SELECT mailroom_reschedule_item('i$', now() + interval '1 day')",
    ],
    [
        "send that replaces",
        "SELECT mailroom_send('a@example.com', 'Hello', 'Text', item_key => 'i$')",
        "SELECT mailroom_send('a@example.com', 'Hello', 'Text', item_key => 'i$', on_conflict => 'replace')",
    ],
    [
        "send with a message_id",
        "SELECT mailroom_send('a@example.com', 'Hello', 'Text', message_id => lpad('$', 32, '0')::uuid)",
        "SELECT mailroom_send('a@example.com', 'Hello', 'Text', message_id => lpad('$', 32, '0')::uuid)",
    ],
    [
        "change of an address",
        LINK,
        "UPDATE accounts SET email = 'new$@example.com' WHERE email = 'l$@example.com'",
    ],
    [
        "request",
        LINK,
        "SELECT mailroom_request_activation('l$@example.com')",
    ],
    [
        "look at what waits",
        ACCOUNTS,
        "SELECT waiting FROM _pending_summary(10)",
    ],
    ["upkeep", MAIL, "SELECT more FROM _maintain_outbox()"],
    [
        "purge",
        "WITH old AS ( \
             INSERT INTO outbox (kind, recipients, subject, body_text, state, created_at, ended_at) \
             SELECT 'own', '{a@example.com}', 'Hello', 'Text', 'sent', now() - interval '1 year', now() - interval '1 year' \
             FROM generate_series(1, 10) i RETURNING id \
         ) INSERT INTO outbox_attempts (outbox_id, outcome, ended_at) SELECT id, 'failed', now() FROM old",
        "SELECT more FROM mailroom_purge(10)",
    ],
    [
        "fall-back",
        "INSERT INTO outbox (kind, recipients, subject, body_text, transport) \
         SELECT 'falling', '{a@example.com}', 'Hello', 'Text', 'slow' FROM generate_series(1, 10) i",
        "SELECT _fall_back('relay', '{slow}', '{1 h}', 10)",
    ],
];

const ACCOUNTS: &str = "INSERT INTO accounts (email, login) \
     SELECT 'c$-' || i || '@example.com', 'c$-' || i FROM generate_series(1, 10) i";

macro_rules! mail {
    () => {
        "INSERT INTO outbox (kind, recipients, subject, body_text) \
         SELECT 'own', '{a@example.com}', 'Hello', 'Text' FROM generate_series(1, 10) i"
    };
}

macro_rules! claimed {
    () => {
        concat!(
            mail!(),
            "; SELECT set_config('plans.ids', array_agg(id)::text, false) FROM mailroom_claim(10, claimant => 'me')"
        )
    };
}

const MAIL: &str = mail!();

const CLAIMED: &str = claimed!();

const LAPSED: &str = concat!(
    mail!(),
    "; SELECT count(*) FROM mailroom_claim(10, '1 us', 'me')"
);

const FAILED: &str = concat!(
    claimed!(),
    "; SELECT mailroom_mark_error_many(i.ids, array_fill('no'::text, '{10}'), permanent => array_fill(true, '{10}'), claimant => 'me') \
     FROM (SELECT current_setting('plans.ids')::bigint[]) i (ids)"
);

const LINK: &str = "INSERT INTO accounts (email, login) VALUES ('l$@example.com', 'l$'); \
     SELECT set_config('plans.link', mailroom_sign(t.action, t.secret), false), set_config('plans.account', a.id::text, false) \
     FROM accounts a JOIN tokens t ON t.account = a.id WHERE a.email = 'l$@example.com'";

/// A few rows of everything, for statistics.
const LITTLE: &str = "INSERT INTO accounts (email, login, status) VALUES ('first@example.com', 'first', 'active'); \
     INSERT INTO routes VALUES (1, 'falling', 'slow', 'relay', '0 s'); \
     INSERT INTO outbox (kind, recipients, subject, body_text, state, ended_at) \
     SELECT 'own', '{a@example.com}', 'Hello', 'Text', 'sent', now() FROM generate_series(1, 2) i; \
     INSERT INTO outbox_attempts (outbox_id, outcome, ended_at) SELECT min(id), 'failed', now() FROM outbox";

/// Many rows of everything, in each state.
const MUCH: &str = "SET session_replication_role = replica; \
     INSERT INTO accounts (email, login) SELECT 'm' || i || '@example.com', 'm' || i FROM generate_series(1, 3000) i; \
     INSERT INTO tokens (account, action) SELECT id, 'activation' FROM accounts WHERE login LIKE 'm%'; \
     INSERT INTO pending (lane, token_id) SELECT 1, t.id FROM tokens t JOIN accounts a ON a.id = t.account WHERE a.login LIKE 'm%'; \
     INSERT INTO outbox (kind, recipients, subject, body_text, item_key, state, ended_at, last_error) \
     SELECT 'own', '{a@example.com}', 'Hello', 'Text', s || i, s::outbox_state, now() - interval '1 h', 'no' \
     FROM generate_series(1, 3000) i, unnest('{sent,error}'::text[]) s; \
     INSERT INTO outbox (kind, recipients, subject, body_text, item_key, group_key, send_at) \
     SELECT 'own', '{a@example.com}', 'Hello', 'Text', 'later' || i, 'later' || i, now() + interval '1 year' FROM generate_series(1, 3000) i; \
     INSERT INTO outbox (kind, recipients, subject, body_text, item_key, state, claimed_by, claimed_at, claimed_until) \
     SELECT 'own', '{a@example.com}', 'Hello', 'Text', 'held' || i, 'claimed', 'another', now(), now() + interval '1 year' FROM generate_series(1, 3000) i; \
     INSERT INTO outbox_attempts (outbox_id, outcome, ended_at) SELECT id, 'failed', now() FROM outbox";

/// Runs the statements `times` times; returns the median of the pages that the last three accessed.
fn cost(
    client: &mut Client,
    [_, before, statement]: [&str; 3],
    times: usize,
    calls: &mut usize,
) -> u64 {
    let mut costs: Vec<u64> = (0..times)
        .map(|_| {
            *calls += 1;
            let [before, statement] =
                [before, statement].map(|text| text.replace('$', &calls.to_string()));
            client.batch_execute(&before).unwrap();
            pages(client, &statement)
        })
        .collect();
    costs[times - 3..].sort_unstable();
    costs[times - 2]
}

#[test]
fn i4_a_plan_made_while_tables_were_small_serves_when_they_are_large() {
    let cluster = Cluster::start(&["shared_preload_libraries = ''", "autovacuum = off"]);
    let mut little = cluster.create_database("little");
    little.batch_execute(LITTLE).unwrap();
    little.batch_execute("VACUUM (ANALYZE)").unwrap();
    drop(little);
    let mut calls = 0;
    let mut costlier = Vec::new();
    // A database for each, because a session plans again after a VACUUM or an ANALYZE of a table.
    for (number, deed) in DEEDS.into_iter().enumerate() {
        let name = format!("app{number}");
        let copy = format!("CREATE DATABASE {name} TEMPLATE little");
        crate::cluster::eventually("the template to be left", || {
            let mut client = cluster.connect("postgres");
            client.batch_execute(&copy).ok()
        });
        let mut client = cluster.connect(&name);
        client
            .batch_execute("SET client_min_messages = error; SET jit = off")
            .unwrap();
        // PL/pgSQL settles on a plan after five calls.
        cost(&mut client, deed, 7, &mut calls);
        cluster.connect(&name).batch_execute(MUCH).unwrap();
        let old = cost(&mut client, deed, 3, &mut calls);
        client.batch_execute("DISCARD PLANS").unwrap();
        let new = cost(&mut client, deed, 7, &mut calls);
        if old > 2 * new + 50 || new > 1_000 {
            costlier.push(format!("{}: {old} pages, {new} by a new plan", deed[0]));
        }
        drop(client);
        let mut client = cluster.connect("postgres");
        let drop = format!("DROP DATABASE {name} WITH (FORCE)");
        client.batch_execute(&drop).unwrap();
    }
    assert_eq!(costlier, Vec::<String>::new());
}
