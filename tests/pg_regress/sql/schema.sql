-- The extension in a schema whose name needs quoting and that is on no search_path, while objects of
-- the same names, and functions, operators and types that shadow PostgreSQL's own, lie in wait: in that very
-- schema before the extension comes, in the caller's path ahead of pg_catalog, and in pg_temp. Each function
-- and operator raises, each type accepts nothing, each table would show rows: none of them is ever touched.

SET client_min_messages = error;
\set SHOW_CONTEXT never
\set VERBOSITY terse

-- Traps, in the schema where the extension is about to be installed and in another one.
CREATE SCHEMA "Mail Room";
CREATE SCHEMA traps;
DO $$
DECLARE
    place text;
    name text;
    kind text;
    body constant text := $f$RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''trapped as %'', current_user; END'$f$;
BEGIN
    FOREACH place IN ARRAY ARRAY['"Mail Room"', 'traps'] LOOP
        FOREACH name IN ARRAY ARRAY['lower', 'char_length', 'octet_length', 'to_timestamp', 'cardinality', 'pg_notify', 'set_config'] LOOP
            FOREACH kind IN ARRAY ARRAY['text', 'bytea', 'bigint', 'bigint[]', 'text[]', 'text, text', 'text, text, boolean'] LOOP
                EXECUTE format('CREATE FUNCTION %s.%I(%s) %s', place, name, kind, body);
            END LOOP;
        END LOOP;
        FOREACH name IN ARRAY ARRAY['now', 'clock_timestamp', 'gen_random_uuid'] LOOP
            EXECUTE format('CREATE FUNCTION %s.%I() %s', place, name, body);
        END LOOP;
        FOREACH name IN ARRAY ARRAY['=', '<>', '<', '<=', '>', '>=', '+', '-', '||', '~', '!~', '~~'] LOOP
            FOREACH kind IN ARRAY ARRAY['text', 'bigint', 'integer', 'boolean', 'name', 'oid'] LOOP
                EXECUTE format('CREATE FUNCTION %s.%I(%s, %s) %s', place, 'trap ' || name, kind, kind, body);
                EXECUTE format(
                    'CREATE OPERATOR %1$s.%2$s (LEFTARG = %3$s, RIGHTARG = %3$s, FUNCTION = %1$s."trap %2$s")', place, name, kind
                );
            END LOOP;
        END LOOP;
    END LOOP;
    FOREACH name IN ARRAY ARRAY['_channel', '_batch_limit', '_link_base_url', '_random_code', '_activation_ttl'] LOOP
        EXECUTE format('CREATE FUNCTION traps.%I() %s', name, body);
    END LOOP;
    FOREACH name IN ARRAY ARRAY['accounts', 'tokens', 'pending', 'outbox', 'jobs', 'job_runs', 'outbox_attempts', '_token_verdicts', 'templates', 'mailroom_templates', '_own_changes', '_new_mail'] LOOP
        EXECUTE format('CREATE TABLE traps.%I (id bigint, status text, account bigint, action text, token_id bigint, lane smallint)', name);
        EXECUTE format('CREATE TEMPORARY TABLE %I AS TABLE traps.%I', name, name);
    END LOOP;
    -- The names of the triggers' transition tables.
    CREATE TEMPORARY TABLE new_accounts (id bigint, status text);
    CREATE TEMPORARY TABLE new_tokens (id bigint, action text, consumed_at bigint);
    CREATE TEMPORARY TABLE old_tokens (id bigint);
END;
$$;
-- Types are looked up in pg_temp first unless it is put last.
CREATE DOMAIN traps.text AS integer CHECK (false);
CREATE DOMAIN traps.jsonb AS integer CHECK (false);
CREATE DOMAIN traps.token_action AS integer CHECK (false);
CREATE DOMAIN traps.account_status AS integer CHECK (false);
CREATE DOMAIN traps.outbox_state AS integer CHECK (false);
CREATE DOMAIN traps._message AS integer CHECK (false);
CREATE DOMAIN pg_temp._message AS integer CHECK (false);
CREATE DOMAIN pg_temp.text AS integer CHECK (false);
CREATE DOMAIN pg_temp.jsonb AS integer CHECK (false);
CREATE DOMAIN pg_temp.token_action AS integer CHECK (false);
CREATE DOMAIN pg_temp.account_status AS integer CHECK (false);
CREATE DOMAIN pg_temp.outbox_state AS integer CHECK (false);

-- They are armed.
SET search_path = pg_temp, traps, "Mail Room", pg_catalog;
SELECT lower('A'::pg_catalog.text);
SELECT 1 = 1;
SELECT 'a'::text;

-- Installed in their presence.
CREATE EXTENSION mailroom SCHEMA "Mail Room";

-- The whole story, with every trap ahead of what it shadows.
INSERT INTO "Mail Room".accounts (email, login) VALUES ('One@Example.com', 'One');
INSERT INTO "Mail Room".accounts (email, login) VALUES ('two@example.com', 'two'), ('ONE@example.com', 'x') ON CONFLICT DO NOTHING;
INSERT INTO "Mail Room".accounts (email, login) VALUES ('TWO@example.com', 'Zwei')
ON CONFLICT (email) DO UPDATE SET login = excluded.login RETURNING id, login;
INSERT INTO "Mail Room".accounts (email, login) VALUES ('no address', 'y');
INSERT INTO "Mail Room".accounts (email, login, status) VALUES ('three@example.com', 'three', 'active') RETURNING id;
INSERT INTO "Mail Room".tokens (account, action) VALUES (6, 'password_recovery') RETURNING id, action;
COPY "Mail Room".accounts (email, login) FROM STDIN;
Four@example.com	four
five@example.com	five
\.
UPDATE "Mail Room".tokens SET consumed_at = 1 WHERE account OPERATOR(pg_catalog.=) 2;
UPDATE "Mail Room".accounts SET status = 'suspended' WHERE id OPERATOR(pg_catalog.=) 2;
UPDATE "Mail Room".accounts SET status = 'active' WHERE id OPERATOR(pg_catalog.=) 2;
SELECT id, email, login, status FROM "Mail Room".accounts ORDER BY id;
SELECT action, email, login FROM "Mail Room".mailroom_dequeue(1);
SELECT "Mail Room".mailroom_dequeue_line(1) IS NOT NULL AS line;
SELECT "Mail Room".mailroom_collect();
SELECT * FROM "Mail Room".mailroom_dequeue();
SELECT id, account_id, kind, state, recipients FROM "Mail Room".outbox ORDER BY id;
SELECT * FROM "Mail Room".jobs;
SELECT "Mail Room".mailroom_verify(
    "Mail Room".mailroom_sign('activation', '\x0707070707070707070707070707070707070707070707070707070707070707'), 'activation'
);
DELETE FROM "Mail Room".accounts WHERE id OPERATOR(pg_catalog.=) 7;
SELECT id, account_id, state, last_error FROM "Mail Room".outbox ORDER BY id;
-- A bad row takes the longer way.
ALTER TABLE "Mail Room".outbox ADD CONSTRAINT no_bad CHECK (state::pg_catalog.text OPERATOR(pg_catalog.<>) 'scheduled' OR recipients[1] OPERATOR(pg_catalog.<>) 'bad@example.com');
INSERT INTO "Mail Room".accounts (email, login) VALUES ('bad@example.com', 'bad'), ('good@example.com', 'good');
SELECT "Mail Room".mailroom_collect();
SELECT id, account_id, state, last_error FROM "Mail Room".outbox ORDER BY id;
-- What the worker calls.
INSERT INTO "Mail Room".accounts (email, login) VALUES ('worker@example.com', 'worker');
SELECT waiting, urgent FROM "Mail Room"._pending_summary(10);
SELECT collected, skipped FROM "Mail Room"._run_batch(10, 'poll');
SELECT collected, trigger FROM "Mail Room".job_runs;
-- The outbox as a queue.
INSERT INTO "Mail Room".outbox (kind, recipients, subject, body_text, group_key) VALUES ('own', '{a@example.com}', 'Hello', 'Text', 'a'), ('own', '{a@example.com}', 'Hello', 'Text', 'a');
SELECT count(id) FROM "Mail Room".mailroom_claim_group(claimant => 'me');
SELECT "Mail Room".mailroom_release(o.id, 'me') FROM "Mail Room".outbox o WHERE o.claimed_by OPERATOR(pg_catalog.=) 'me';
SELECT count(id) FROM "Mail Room".mailroom_claim(100, '1 h', 'me');
UPDATE "Mail Room".outbox SET claimed_until = claimed_at WHERE state::pg_catalog.text OPERATOR(pg_catalog.=) 'claimed';
SELECT count(id) FROM "Mail Room".mailroom_claim(1, '1 h', 'me');
SELECT "Mail Room".mailroom_extend(o.id, '1 h', 'me'), "Mail Room".mailroom_mark_error(o.id, 'no', permanent => true, claimant => 'me'), "Mail Room".mailroom_mark_sent(o.id, 'late', 'me')
FROM "Mail Room".outbox o WHERE o.claimed_by OPERATOR(pg_catalog.=) 'me' AND o.state::pg_catalog.text OPERATOR(pg_catalog.=) 'claimed';
SELECT "Mail Room".mailroom_retry_failed('own');
SELECT purged FROM "Mail Room".mailroom_purge();
SELECT outcome, count(*) FROM "Mail Room".outbox_history GROUP BY outcome ORDER BY outcome;

-- Any message, in every way there is to schedule it, and taken back.
INSERT INTO "Mail Room".templates (kind, locale, subject, body_text, body_html) VALUES ('w', 'en', 'Hello {{ name }}', '{{ name }}', '<p>{{ name }}</p>');
SELECT "Mail Room".mailroom_send('to@example.com', 'S', 'T', item_key => 'k') AS id \gset
SELECT "Mail Room".mailroom_send('to@example.com', 'S', 'T', item_key => 'k');
SELECT "Mail Room".mailroom_send('to@example.com', 'S', 'T', item_key => 'k', on_conflict => 'ignore') OPERATOR(pg_catalog.=) :id AS same;
SELECT "Mail Room".mailroom_send('to@example.com', kind => 'w', data => '{"name": "Ann"}', item_key => 'k', on_conflict => 'replace') OPERATOR(pg_catalog.>) :id AS other;
SELECT "Mail Room".mailroom_send('nobody', 'S', 'T');
SELECT pg_catalog.count(*) FROM "Mail Room".mailroom_send_many('[{"recipients": "a@example.com", "kind": "w", "data": {"name": "Bob"}}, {"recipients": ["b@example.com"], "subject": "S", "body_text": "T", "item_key": "l"}]');
SELECT "Mail Room".mailroom_send_many('[{"recipients": "a@example.com", "send_at": "never"}]');
SELECT "Mail Room".mailroom_reschedule_item('l', '2040-01-01 00:00:00+00'), "Mail Room".mailroom_cancel_item('l'), "Mail Room".mailroom_cancel(:id);
SELECT recipients, state, subject, body_text, body_html FROM "Mail Room".mailroom_claim() WHERE kind OPERATOR(pg_catalog.=) 'w';
SELECT subject, body_text FROM "Mail Room".mailroom_preview('w', '{"name": "Ann"}');
SELECT subject FROM "Mail Room".mailroom_preview('activation');
SELECT kind, locale, builtin FROM "Mail Room".mailroom_templates ORDER BY kind;

-- By a role that finds nothing unqualified at all.
SET search_path = '';
SET ROLE mailroom_app;
INSERT INTO "Mail Room".accounts (email, login) VALUES ('App@example.com', 'App') RETURNING email, login;
SELECT * FROM "Mail Room".mailroom_peek('');
SELECT "Mail Room".mailroom_send('app@example.com', 'S', 'T', item_key => 'app') AS id \gset
SELECT "Mail Room".mailroom_send('app@example.com', 'S', 'T', item_key => 'app', on_conflict => 'replace') > :id AS other;
SELECT count(*) FROM "Mail Room".mailroom_send_many('[{"recipients": "a@example.com", "kind": "w"}]');
SELECT "Mail Room".mailroom_reschedule_item('app', '2040-01-01 00:00:00+00'), "Mail Room".mailroom_cancel_item('app');
SELECT subject FROM "Mail Room".mailroom_preview('activation');
SET ROLE mailroom_collector;
SELECT action, email, login FROM "Mail Room".mailroom_dequeue();
RESET ROLE;

-- Not a row in any of the traps.
RESET search_path;
SELECT
    (SELECT count(*) FROM pg_temp.accounts) + (SELECT count(*) FROM pg_temp.tokens) + (SELECT count(*) FROM pg_temp.pending)
    + (SELECT count(*) FROM pg_temp.outbox) + (SELECT count(*) FROM pg_temp.jobs) + (SELECT count(*) FROM pg_temp.job_runs) AS in_pg_temp,
    (SELECT count(*) FROM traps.accounts) + (SELECT count(*) FROM traps.tokens) + (SELECT count(*) FROM traps.pending)
    + (SELECT count(*) FROM traps.outbox) + (SELECT count(*) FROM traps.jobs) + (SELECT count(*) FROM traps.job_runs) AS in_traps;

DROP EXTENSION mailroom;
DISCARD TEMP;
DROP SCHEMA "Mail Room" CASCADE;
DROP SCHEMA traps CASCADE;
