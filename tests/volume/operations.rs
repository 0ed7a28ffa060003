//! Each operation of the API whose cost could depend on what a database contains.

/// One operation: its preparation, which does not count, and what is measured.
pub struct Operation {
    pub name: &'static str,
    /// Statements of PL/pgSQL, in the same transaction. `me` is an account; `kept()` returns what `keep` got.
    pub(super) before: &'static str,
    /// Statements of PL/pgSQL.
    pub(super) run: &'static str,
}

impl Operation {
    /// Whether it calls this function.
    #[allow(dead_code, reason = "for the test of the list")]
    pub fn calls(&self, function: &str) -> bool {
        let call = format!("{function}(");
        [self.before, self.run]
            .iter()
            .any(|body| body.contains(&call))
    }
}

const fn one(name: &'static str, before: &'static str, run: &'static str) -> Operation {
    Operation { name, before, run }
}

// While other sessions claim too, mail that is left for this session may be found only by its next sweep.
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

// The position of a purge stays where it was before a rollback: the next one would look at other rows, and in the smaller
// database find no tokens.
const PURGEABLE: &str = "PERFORM set_config('mailroom.retention', '7d', true); \
    PERFORM setval('_purged_' || t, 0), _scan_back('purge ' || t, 0::smallint, '-infinity', 0) \
    FROM unnest('{outbox,tokens,link_requests,outbox_attempts,outbox_attachments,outbox_files,delivery_events,operator_actions,job_runs}'::text[]) t;";

/// Each operation whose cost could depend on what the database contains.
pub const OPERATIONS: [Operation; 69] = [
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
    one("new file", "", "PERFORM mailroom_add_file('a file');"),
    one(
        "mail with a file, and its files",
        "PERFORM keep(mailroom_add_file('a file')::text);",
        "PERFORM mailroom_attachments(mailroom_send('a@example.com', 'S', 'T', attachments => format('[{\"filename\": \"a.txt\", \"file_id\": %s}]', kept())::jsonb));",
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
        "dequeue_line, 100",
        "INSERT INTO tokens (account, action) SELECT i * 10 + 7, 'password_recovery' FROM generate_series(1, 100) i;",
        "PERFORM mailroom_dequeue_line(100);",
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
        "send_again",
        "PERFORM keep(id::text) FROM outbox WHERE state = 'sent' ORDER BY ended_at DESC LIMIT 1;",
        "PERFORM mailroom_send_again(kept()::bigint);",
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
    one("problems", "", "PERFORM * FROM mailroom_problems();"),
    one("jobs", "", "PERFORM * FROM jobs;"),
    one("budgets", "", "PERFORM * FROM mailroom_budgets;"),
    one(
        "preview",
        "",
        "PERFORM * FROM mailroom_preview('activation', '{}');",
    ),
    one(
        "why a mail waits",
        SENT,
        "PERFORM * FROM outbox_waits WHERE outbox_id = kept()::bigint;",
    ),
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
        "look for ended mail by address",
        "",
        "PERFORM id FROM outbox \
         WHERE _search_keys(recipients || cc || bcc) COLLATE \"C\" @> ARRAY['a' || me || '@example.com'] AND ended_at IS NOT NULL;",
    ),
    one(
        "mail that failed lately",
        "PERFORM keep(ended_at::text) FROM outbox WHERE state = 'error' ORDER BY ended_at DESC OFFSET 9 LIMIT 1;",
        "PERFORM id, last_error FROM outbox WHERE state = 'error' AND ended_at >= kept()::timestamptz;",
    ),
    one(
        "reroute, 100",
        "INSERT INTO outbox (kind, recipients, subject, body_text, transport) \
         SELECT 'own', '{a@example.com}', 'Hello', 'Text', 'old' FROM generate_series(1, 100);",
        "PERFORM mailroom_reroute('old', '');",
    ),
    one(
        "event of a mail",
        SENT,
        "PERFORM mailroom_report('', jsonb_build_array('{\"type\": \"delivered\", \"event_id\": \"new\"}'::jsonb || jsonb_build_object('message_id', (SELECT message_id FROM outbox WHERE id = kept()::bigint))));",
    ),
    one(
        "events of unknown mail, 100",
        "",
        "PERFORM mailroom_report('', (SELECT jsonb_agg(jsonb_build_object('type', 'complained', 'event_id', i::text, 'provider_id', i::text, 'recipient', 'a@example.com', 'message_id', gen_random_uuid())) FROM generate_series(1, 100) i));",
    ),
    one(
        "suppress and lift, 100",
        "",
        "PERFORM mailroom_suppress_many(array_agg('s' || i || '@example.com')) FROM generate_series(1, 100) i; \
         PERFORM mailroom_suppressed('s' || i || '@example.com'), mailroom_unsuppress('s' || i || '@example.com') FROM generate_series(1, 100) i;",
    ),
    one(
        "claim with suppressions",
        "PERFORM mailroom_suppress('s@example.com'); \
         INSERT INTO outbox (kind, recipients, subject, body_text, transport, priority) \
         SELECT 'own', '{s@example.com,a@example.com}', 'Hello', 'Text', 'mine', -100 FROM generate_series(1, 10);",
        "PERFORM id FROM mailroom_claim(10, claimant => 'me', transports => '{mine}');",
    ),
    one("purge, 1000", PURGEABLE, "PERFORM mailroom_purge(1000);"),
    one("the worker's upkeep", "", "PERFORM _maintain_outbox();"),
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
