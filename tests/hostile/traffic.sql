-- Calls every public function and, through them, the internal ones. @s@ is the schema, quoted. Arguments have the
-- types that the functions declare, none is left out, and every operator is PostgreSQL's own: what is looked up
-- wrongly is then looked up so by mailroom. Statements end with an empty line.
INSERT INTO @s@.accounts (email, login) VALUES ('One@example.com', 'One'), ('two@example.com', 'two'), ('three@example.com', 'three');

INSERT INTO @s@.accounts (email, login, status) VALUES ('active@example.com', 'active', 'active'), ('busy@example.com', 'busy', 'active');

DO $$ BEGIN SET LOCAL ROLE mailroom_app; INSERT INTO @s@.accounts (id, email, status, login, created_at) VALUES (DEFAULT, 'model@example.com', 'provisioned', 'model', 1); INSERT INTO @s@.accounts (email, login, status) VALUES ('granted@example.com', 'granted', 'active'); EXCEPTION WHEN insufficient_privilege THEN NULL; END $$;

UPDATE @s@.accounts SET email = 'Three.new@example.com' WHERE login OPERATOR(pg_catalog.=) 'three';

DO $$ BEGIN UPDATE @s@.tokens SET id = 1000000 WHERE id OPERATOR(pg_catalog.=) 1; EXCEPTION WHEN feature_not_supported THEN NULL; END $$;

SELECT * FROM @s@.mailroom_dequeue(1::integer);

SELECT @s@.mailroom_dequeue_line(1::integer);

INSERT INTO @s@.tokens (account, action) SELECT id, 'activation' FROM @s@.accounts WHERE login OPERATOR(pg_catalog.=) 'three';

SELECT @s@.mailroom_collect(10::integer);

-- The articles' query, taken back.
DO $$ BEGIN UPDATE @s@.jobs SET last_seq = last_seq OPERATOR(pg_catalog.+) 1; RAISE division_by_zero; EXCEPTION WHEN division_by_zero OR serialization_failure THEN NULL; END $$;

DO $$ BEGIN UPDATE @s@.outbox SET token_id = NULL WHERE secrets IS NOT NULL; EXCEPTION WHEN check_violation THEN NULL; END $$;

-- A token that is no longer good, and whose row the application refuses.
INSERT INTO @s@.accounts (email, login) VALUES ('refused@example.com', 'refused');

UPDATE @s@.accounts SET status = 'suspended' WHERE login OPERATOR(pg_catalog.=) 'refused';

ALTER TABLE @s@.outbox ADD CONSTRAINT refusing CHECK (recipients[1] OPERATOR(pg_catalog.<>) 'refused@example.com'::pg_catalog.text);

SELECT * FROM @s@.mailroom_dequeue(10::integer);

ALTER TABLE @s@.outbox DROP CONSTRAINT refusing;

-- Where another role may change the rows, statements do what the library does elsewhere.
CREATE RULE passing AS ON DELETE TO @s@.pending DO ALSO NOTHING;

ALTER TABLE @s@.outbox ADD CONSTRAINT passing CHECK (true);

INSERT INTO @s@.tokens (account, action) SELECT id, 'activation' FROM @s@.accounts WHERE login OPERATOR(pg_catalog.=) 'three';

SELECT @s@.mailroom_collect(10::integer);

DROP RULE passing ON @s@.pending;

ALTER TABLE @s@.outbox DROP CONSTRAINT passing;

SELECT @s@.mailroom_address_key('Active@Example.com'::pg_catalog.text);

SELECT @s@.mailroom_request_recovery('active@example.com'::pg_catalog.text);

SELECT @s@.mailroom_request_activation('two@example.com'::pg_catalog.text);

SELECT @s@.mailroom_revoke(0::pg_catalog.int8);

BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT @s@.mailroom_revoke(id) FROM @s@.accounts WHERE login OPERATOR(pg_catalog.=) 'busy'; COMMIT;

UPDATE @s@.tokens SET created_at = created_at OPERATOR(pg_catalog.-) 7200, expires_at = expires_at OPERATOR(pg_catalog.-) 7200;

SELECT @s@.mailroom_answer_requests(100::integer);

INSERT INTO @s@.tokens (account, action) SELECT id, 'password_recovery' FROM @s@.accounts WHERE login OPERATOR(pg_catalog.=) 'active';

SELECT @s@.mailroom_request_recovery('active@example.com'::pg_catalog.text);

SELECT * FROM @s@._run_batch(100::integer, 'poll'::pg_catalog.text);

-- In a pause it took nothing.
SELECT @s@.mailroom_collect(100::integer);

DO $$
DECLARE
    mail record;
    outcomes pg_catalog.text[] := '{}';
    wrong pg_catalog.text;
BEGIN
    FOR mail IN
        SELECT o.secrets OPERATOR(pg_catalog.->>) 'token' AS token, o.secrets OPERATOR(pg_catalog.->>) 'code' AS code
        FROM @s@.outbox o
        WHERE o.state OPERATOR(pg_catalog.=) 'scheduled'
          AND o.token_id IS NOT NULL
        ORDER BY o.id
    LOOP
        wrong := CASE WHEN mail.code OPERATOR(pg_catalog.=) '11111' THEN '22222' ELSE '11111' END;
        PERFORM @s@.mailroom_peek(mail.token::pg_catalog.text);
        PERFORM @s@.mailroom_verify(mail.token::pg_catalog.text, 'password_recovery'::@s@.token_action, mail.code::pg_catalog.text);
        outcomes := outcomes OPERATOR(pg_catalog.||) ARRAY[(@s@.mailroom_redeem(mail.token::pg_catalog.text, wrong)).outcome];
        outcomes := outcomes OPERATOR(pg_catalog.||) ARRAY[(@s@.mailroom_redeem(mail.token::pg_catalog.text, mail.code::pg_catalog.text)).outcome];
    END LOOP;
    IF NOT outcomes OPERATOR(pg_catalog.@>) '{ok,wrong_code}' THEN
        RAISE 'links ended as %', outcomes;
    END IF;
END;
$$;

SELECT @s@.mailroom_sign('activation'::@s@.token_action, pg_catalog.sha256('x'), NULL::pg_catalog.text);

INSERT INTO @s@.templates (kind, locale, subject, body_text) VALUES ('note', 'en', 'S {{ x }}', 'T');

SELECT @s@.mailroom_preview('note'::pg_catalog.text, '{"x": "y"}'::pg_catalog.jsonb, 'en'::pg_catalog.text);

SELECT @s@.mailroom_preview('activation'::pg_catalog.text, '{}'::pg_catalog.jsonb, 'en'::pg_catalog.text);

SELECT @s@.mailroom_send(
    'a@example.com'::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text,
    'note'::pg_catalog.text, '{"x": "y"}'::pg_catalog.jsonb, NULL::pg_catalog.timestamptz, NULL::pg_catalog.timestamptz, NULL::integer,
    'key'::pg_catalog.text, k::pg_catalog.text, 2::integer, c::pg_catalog.text, NULL::pg_catalog.uuid, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.jsonb, NULL::pg_catalog.text, NULL::pg_catalog.jsonb, NULL::pg_catalog.text
) FROM (VALUES ('error', NULL), ('ignore', NULL), ('replace', 'group')) v (c, k);

SELECT @s@.mailroom_send(
    'b@example.com, b2@example.com'::pg_catalog.text, 'S'::pg_catalog.text, 'T'::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text,
    NULL::pg_catalog.text, NULL::pg_catalog.jsonb, NULL::pg_catalog.timestamptz, NULL::pg_catalog.timestamptz, NULL::integer,
    pg_catalog.to_char(i, 'FM999'), NULL::pg_catalog.text, NULL::integer, NULL::pg_catalog.text, pg_catalog.gen_random_uuid(), NULL::pg_catalog.text, NULL::pg_catalog.text, 'S <s@example.com>'::pg_catalog.text, '{"X-Own": "y"}'::pg_catalog.jsonb, 'https://example.com/u'::pg_catalog.text,
    '[{"filename": "a.txt", "content": "QQ=="}, {"filename": "b.txt", "content": "QQ=="}]'::pg_catalog.jsonb, NULL::pg_catalog.text
) FROM pg_catalog.generate_series(1, 20) i;

SELECT @s@.mailroom_send_many('[{"recipients": "c@example.com", "subject": "S", "body_text": "T"}]'::pg_catalog.jsonb);

SELECT @s@.mailroom_add_file('a file'::pg_catalog.bytea);

SELECT @s@.mailroom_send_many('[{"recipients": "c@example.com", "subject": "S", "body_text": "T", "attachments": [{"filename": "a.txt", "file_id": 1}]}]'::pg_catalog.jsonb);

SELECT * FROM @s@.mailroom_attachments(1::bigint);

DO $$ BEGIN PERFORM @s@.mailroom_send_many('[{"recipients": "c@example.com", "subject": "S", "body_text": "T", "attachments": [{"filename": "a.txt", "content": "?"}]}]'::pg_catalog.jsonb); EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$;

SELECT @s@.mailroom_report(''::pg_catalog.text, pg_catalog.jsonb_build_array(
    pg_catalog.jsonb_build_object('type', 'delivered', 'event_id', '1', 'message_id', message_id),
    pg_catalog.jsonb_build_object('type', 'bounced', 'message_id', message_id, 'recipient', 'c@example.com')
)) FROM @s@.outbox WHERE id OPERATOR(pg_catalog.=) (SELECT pg_catalog.max(id) FROM @s@.outbox);

DO $$ BEGIN PERFORM @s@.mailroom_receive('main'::pg_catalog.text, '{}'::pg_catalog.jsonb, ''::pg_catalog.bytea); EXCEPTION WHEN object_not_in_prerequisite_state OR undefined_object THEN NULL; END $$;

SELECT @s@._refuse_size(1::integer, ''::pg_catalog.text, 1::bigint);

DO $$ BEGIN PERFORM @s@._refuse_lost(1::integer); EXCEPTION WHEN object_not_in_prerequisite_state THEN NULL; END $$;

DO $$ BEGIN PERFORM @s@.mailroom_send_many('[{"recipients": "c@example.com", "priority": "x"}]'::pg_catalog.jsonb); EXCEPTION WHEN data_exception THEN NULL; END $$;

DO $$ BEGIN PERFORM @s@.mailroom_send_many('[{"recipients": "c@example.com", "colour": "x"}]'::pg_catalog.jsonb); EXCEPTION WHEN data_exception THEN NULL; END $$;

DO $$ BEGIN PERFORM @s@.mailroom_send_many('[{"recipients": "c@example.com", "subject": "S", "body_text": "T", "item_key": "1"}]'::pg_catalog.jsonb); EXCEPTION WHEN unique_violation THEN NULL; END $$;

SELECT @s@.mailroom_reschedule_item('1'::pg_catalog.text, pg_catalog.now()), @s@.mailroom_cancel_item('1'::pg_catalog.text);

SELECT @s@.mailroom_reschedule(id, pg_catalog.now()), @s@.mailroom_cancel(id) FROM @s@.outbox WHERE item_key OPERATOR(pg_catalog.=) '2';

UPDATE @s@.outbox SET state = 'cancelled' WHERE item_key OPERATOR(pg_catalog.=) '3';

SELECT * FROM @s@.mailroom_claim_group(NULL::integer, '1 min'::pg_catalog.interval, 'me'::pg_catalog.text, 'group'::pg_catalog.text, NULL::pg_catalog.text[]);

SELECT @s@.mailroom_release(id, 'me'::pg_catalog.text, NULL::integer) FROM @s@.outbox WHERE group_key OPERATOR(pg_catalog.=) 'group' AND state OPERATOR(pg_catalog.=) 'claimed';

SELECT @s@.mailroom_next_due(NULL::pg_catalog.text[]);

SELECT * FROM @s@.mailroom_claim_group(NULL::integer, '1 min'::pg_catalog.interval, 'me'::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text[]);

SELECT @s@.mailroom_release_many(ARRAY[id], 'me'::pg_catalog.text, ARRAY[failed_attempts]) FROM @s@.outbox WHERE group_key OPERATOR(pg_catalog.=) 'group' AND state OPERATOR(pg_catalog.=) 'claimed';

SELECT id, @s@._redirect_to(), @s@._first_attempt_at(id) FROM @s@.mailroom_claim(100::integer, '1 min'::pg_catalog.interval, 'me'::pg_catalog.text, NULL::pg_catalog.text[]);

SELECT @s@.mailroom_extend(id, '1 min'::pg_catalog.interval, 'me'::pg_catalog.text, NULL::integer), @s@.mailroom_extend_many(ARRAY[id], '1 min'::pg_catalog.interval, 'me'::pg_catalog.text, ARRAY[failed_attempts]) FROM @s@.outbox WHERE item_key OPERATOR(pg_catalog.=) '4';

SELECT @s@.mailroom_mark_sent(id, 'p'::pg_catalog.text, 'me'::pg_catalog.text, NULL::integer, '[{"response_code": 550}]'::pg_catalog.jsonb) FROM @s@.outbox WHERE item_key OPERATOR(pg_catalog.=) '4';

SELECT @s@.mailroom_mark_sent_many(ARRAY[id], ARRAY['p']::pg_catalog.text[], v.m::pg_catalog.text, ARRAY[failed_attempts], NULL::pg_catalog.jsonb[]) FROM @s@.outbox, (VALUES ('me'), ('you')) v (m) WHERE item_key OPERATOR(pg_catalog.=) '5';

SELECT @s@.mailroom_mark_error(id, 'no 00000'::pg_catalog.text, '1 s'::pg_catalog.interval, v.p, 500::integer, 'me'::pg_catalog.text, NULL::integer, v.p, v.p, v.p) FROM @s@.outbox JOIN (VALUES ('6', true), ('7', false)) v (k, p) ON item_key OPERATOR(pg_catalog.=) v.k;

SELECT @s@.mailroom_report(''::pg_catalog.text, pg_catalog.jsonb_build_array(pg_catalog.jsonb_build_object('type', 'delivered', 'event_id', '6', 'message_id', message_id)))
FROM @s@.outbox WHERE item_key OPERATOR(pg_catalog.=) '6';

SELECT @s@.mailroom_mark_error_many(ARRAY[id], ARRAY['no']::pg_catalog.text[], ARRAY[NULL]::pg_catalog.interval[], ARRAY[true], ARRAY[500], v.m::pg_catalog.text, ARRAY[failed_attempts], ARRAY[true], ARRAY[false], NULL::pg_catalog.uuid[], ARRAY[true]) FROM @s@.outbox, (VALUES ('you'), ('me')) v (m) WHERE item_key OPERATOR(pg_catalog.=) '8';

UPDATE @s@.outbox SET claimed_until = pg_catalog.clock_timestamp() WHERE item_key OPERATOR(pg_catalog.=) '9';

-- What a server refused is suppressed, and lifted again.
SELECT @s@.mailroom_mark_sent(id, 'p'::pg_catalog.text, 'me'::pg_catalog.text, NULL::integer, '[{"recipient": "b2@example.com", "error": "smtp 550 5.1.1", "is_permanent": true}]'::pg_catalog.jsonb) FROM @s@.outbox WHERE item_key OPERATOR(pg_catalog.=) '10';

SELECT @s@.mailroom_suppressed('b2@example.com'::pg_catalog.text, ''::pg_catalog.text);

SELECT @s@.mailroom_suppress('e@example.com'::pg_catalog.text, l::pg_catalog.text, 'manual'::@s@.suppression_reason, NULL::pg_catalog.timestamptz) FROM (VALUES (''), ('news')) v (l);

SELECT @s@.mailroom_suppress_many('{e@example.com,f@example.com}'::pg_catalog.text[], ''::pg_catalog.text, 'bounced'::@s@.suppression_reason, pg_catalog.now() OPERATOR(pg_catalog.-) '2 years'::pg_catalog.interval);

DO $$ BEGIN PERFORM @s@.mailroom_suppress_many('{e@example.com,f@}'::pg_catalog.text[], E'a\nb'::pg_catalog.text, 'manual'::@s@.suppression_reason, NULL::pg_catalog.timestamptz); EXCEPTION WHEN data_exception THEN NULL; END $$;

INSERT INTO @s@.outbox (kind, recipients, cc, subject, body_text, transport) VALUES ('own', '{e@example.com}', '{g@example.com}', 'S', 'T', 'suppressed'), ('own', '{g@example.com}', '{e@example.com}', 'S', 'T', 'suppressed');

SELECT id FROM @s@.mailroom_claim(2::integer, '1 min'::pg_catalog.interval, 'me'::pg_catalog.text, '{suppressed}'::pg_catalog.text[]);

SELECT @s@.mailroom_unsuppress(a::pg_catalog.text, NULL::pg_catalog.text) FROM (VALUES ('e@example.com'), ('b2@example.com')) v (a);

SET mailroom.link_base_url = 'https://example.com';

SELECT @s@.mailroom_unsubscribe(pg_catalog.split_part(@s@.mailroom_unsubscribe_url('e@example.com'::pg_catalog.text, 'news'::pg_catalog.text), '=', 2));

RESET mailroom.link_base_url;

DO $$ BEGIN PERFORM @s@.mailroom_unsubscribe_url('e@example.com'::pg_catalog.text, ''::pg_catalog.text); EXCEPTION WHEN data_exception THEN NULL; END $$;

SELECT @s@.mailroom_send_again(id) FROM @s@.outbox WHERE item_key OPERATOR(pg_catalog.=) '4';

SELECT @s@.mailroom_retry(id) FROM @s@.outbox WHERE item_key OPERATOR(pg_catalog.=) '6';

SELECT @s@.mailroom_retry_failed(NULL::pg_catalog.text, NULL::pg_catalog.text, 'failed'::@s@.attempt_outcome, 500::integer, NULL::pg_catalog.timestamptz, 10::integer);

SELECT id FROM @s@.mailroom_claim(NULL::integer, NULL::pg_catalog.interval, NULL::pg_catalog.text, NULL::pg_catalog.text[]);

SELECT * FROM @s@._maintain_outbox();

SELECT @s@._others_deliver('{one}'::pg_catalog._text);

SELECT @s@._retry_tokens('{0}'::pg_catalog._int8);

SELECT * FROM @s@._pending_summary(10::integer);

SELECT @s@._note_progress(1::bigint);

SELECT * FROM @s@.mailroom_status(), @s@.outbox_history;

SELECT * FROM @s@.mailroom_problems();

SELECT * FROM @s@.mailroom_version();

DO $$ BEGIN PERFORM @s@._require_library('99.0.0'::pg_catalog.text); EXCEPTION WHEN object_not_in_prerequisite_state THEN NULL; END $$;

INSERT INTO @s@.budgets (period, amount, reserved_share) VALUES ('day', 3, 0.5), ('month', 1000, 0);

SELECT @s@.mailroom_send(
    'c@example.com'::pg_catalog.text, 'S'::pg_catalog.text, 'T'::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text,
    NULL::pg_catalog.text, NULL::pg_catalog.jsonb, NULL::pg_catalog.timestamptz, NULL::pg_catalog.timestamptz, p::integer,
    NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::integer, NULL::pg_catalog.text, NULL::pg_catalog.uuid, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.jsonb, NULL::pg_catalog.text, NULL::pg_catalog.jsonb, NULL::pg_catalog.text
) FROM (VALUES (0), (0), (0), (OPERATOR(pg_catalog.-) 10), (OPERATOR(pg_catalog.-) 20)) v (p);

SELECT id FROM @s@.mailroom_claim(4::integer, '1 min'::pg_catalog.interval, 'me'::pg_catalog.text, NULL::pg_catalog.text[]);

UPDATE @s@.budgets SET amount = 100 WHERE amount OPERATOR(pg_catalog.=) 3;

INSERT INTO @s@.outbox (kind, recipients, expires_at) VALUES ('unwritten', '{d@example.com}', NULL), ('late', '{d@example.com}', pg_catalog.now());

INSERT INTO @s@.outbox (kind, recipients, subject, body_text, priority)
VALUES ('large', pg_catalog.array_fill('d@example.com'::pg_catalog.text, '{101}'::pg_catalog.int4[]), 'S', 'T', 99);

SELECT id FROM @s@.mailroom_claim(1000::integer, '1 min'::pg_catalog.interval, 'me'::pg_catalog.text, NULL::pg_catalog.text[]);

DELETE FROM @s@.outbox WHERE kind OPERATOR(pg_catalog.=) 'large';

UPDATE @s@.budgets SET amount = 3 WHERE amount OPERATOR(pg_catalog.=) 100;

SELECT * FROM @s@.mailroom_budgets, @s@.outbox_waits, @s@._budget(1::integer);

SELECT @s@.mailroom_release_many(ARRAY[max(id)], 'me'::pg_catalog.text, ARRAY[0]) FROM @s@.outbox WHERE state OPERATOR(pg_catalog.=) 'claimed' AND priority OPERATOR(pg_catalog.=) 0;

SELECT @s@._expire_previous_claims('1'::pg_catalog.text);

-- As in a copy of a database.
DELETE FROM @s@._database_identity;

SELECT @s@._pause_if_copied(1::pg_catalog.oid, '3'::pg_catalog.xid);

DELETE FROM @s@.budgets;

SELECT @s@.mailroom_next_due(NULL::pg_catalog.text[]);

-- Several transports: of each kind of mail one, which are claimed, put off, moved by hand and by a fallback.
INSERT INTO @s@.routes (position, kind_pattern, transport, fallback, fallback_after) VALUES (1, 'message', 'one', 'two', '0');

SELECT @s@._publish_transports('me'::pg_catalog.text, '[{"name": "three", "provider": "log", "state": "paused", "next_probe_at": 1}]'::pg_catalog.jsonb, NULL::pg_catalog.text);

INSERT INTO @s@.outbox (kind, recipients, send_at, priority) VALUES ('message', '{d@example.com}', pg_catalog.now(), -20), ('message', '{d@example.com}', pg_catalog.now() OPERATOR(pg_catalog.+) '1 day', 0);

SELECT @s@.mailroom_send(
    'd@example.com'::pg_catalog.text, 'S'::pg_catalog.text, 'T'::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text,
    NULL::pg_catalog.text, NULL::pg_catalog.jsonb, NULL::pg_catalog.timestamptz, NULL::pg_catalog.timestamptz, NULL::integer,
    NULL::pg_catalog.text, k::pg_catalog.text, NULL::integer, NULL::pg_catalog.text, NULL::pg_catalog.uuid, t::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.jsonb, NULL::pg_catalog.text, NULL::pg_catalog.jsonb, NULL::pg_catalog.text
) FROM (VALUES ('one', NULL), ('two', NULL), ('three', 'group of three'), (NULL, NULL)) v (t, k);

-- As after a change that the application refuses.
SELECT @s@._note_refused(1::bigint, '23514'::pg_catalog.text);
SELECT @s@._passes_by('23514'::pg_catalog.text, '{"(0,1)"}'::pg_catalog.tid[]);
SELECT @s@._note_ended(1::bigint, 1::bigint, 'a test'::pg_catalog.text);

INSERT INTO @s@.outbox (kind, recipients, transport, expires_at) VALUES ('late', '{d@example.com}', 'two', pg_catalog.now());

SELECT id FROM @s@.mailroom_claim(2::integer, '1 min'::pg_catalog.interval, 'me'::pg_catalog.text, '{two,three}'::pg_catalog.text[]);

SELECT id FROM @s@.mailroom_claim_group(2::integer, '1 min'::pg_catalog.interval, 'you'::pg_catalog.text, NULL::pg_catalog.text, '{one,three}'::pg_catalog.text[]);

DO $$
BEGIN
    IF @s@._fall_back('two'::pg_catalog.text, '{one}'::pg_catalog.text[], '{1 h}'::pg_catalog.interval[], 1::integer) OPERATOR(pg_catalog.<>) 1 THEN
        RAISE 'no fallback';
    END IF;
    IF @s@.mailroom_reroute('one'::pg_catalog.text, 'three'::pg_catalog.text) OPERATOR(pg_catalog.=) 0 THEN
        RAISE 'nothing was rerouted';
    END IF;
    PERFORM @s@.mailroom_reroute('one'::pg_catalog.text, 'none'::pg_catalog.text);
    RAISE 'rerouted to nothing';
EXCEPTION
    WHEN undefined_object THEN
        NULL;
END;
$$;

SELECT @s@.mailroom_next_due('{one,two,three}'::pg_catalog.text[]);

SELECT * FROM @s@.mailroom_transports, @s@._scheduled_transports();

SELECT @s@._publish_transports('me'::pg_catalog.text, '[]'::pg_catalog.jsonb, NULL::pg_catalog.text);

DELETE FROM @s@.routes;

SELECT @s@.mailroom_pause(), @s@.mailroom_resume(), @s@.mailroom_wake_worker();

-- Mail that the application does not let go.
CREATE TABLE @s@.letters (mail pg_catalog.int8 CONSTRAINT letters_mail REFERENCES @s@.outbox);

WITH mail AS (
    INSERT INTO @s@.outbox (kind, recipients, state, created_at, ended_at) SELECT 'own', '{a@example.com}', 'sent', '2000-01-01', '2000-01-01' FROM pg_catalog.generate_series(1, 2) RETURNING id
), attempt AS (
    INSERT INTO @s@.outbox_attempts (outbox_id, attempt, outcome, ended_at, error) SELECT id, 1, 'failed', '2000-01-01', 'no' FROM mail
)
INSERT INTO @s@.letters SELECT max(id) FROM mail;

UPDATE @s@.tokens SET created_at = 0, expires_at = 1;

SELECT @s@.mailroom_purge(10::integer);

-- In the order of a purge by the worker.
BEGIN; LOCK TABLE @s@.outbox; DROP TABLE @s@.letters; COMMIT;

SELECT @s@.mailroom_purge(10::integer);

DO $$ BEGIN PERFORM * FROM @s@.mailroom_claim(0::integer, NULL::pg_catalog.interval, NULL::pg_catalog.text, NULL::pg_catalog.text[]); RAISE 'a batch of 0'; EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$;

DO $$ BEGIN PERFORM * FROM @s@.mailroom_claim_group(0::integer, NULL::pg_catalog.interval, NULL::pg_catalog.text, NULL::pg_catalog.text, NULL::pg_catalog.text[]); RAISE 'a batch of 0'; EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$;

DO $$ BEGIN PERFORM * FROM @s@.mailroom_dequeue(0::integer); RAISE 'a batch of 0'; EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$;

DO $$ BEGIN PERFORM @s@.mailroom_collect(0::integer); RAISE 'a batch of 0'; EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$;

DO $$ BEGIN PERFORM @s@.mailroom_purge(0::integer); RAISE 'a batch of 0'; EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$;

DO $$ BEGIN PERFORM @s@.mailroom_answer_requests(0::integer); RAISE 'a batch of 0'; EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$;

SELECT * FROM @s@.jobs;

CREATE TABLE public.people (id serial, mail pg_catalog.text, nick pg_catalog.text, live boolean DEFAULT true);

INSERT INTO public.people (mail) VALUES ('Was.here@example.com');

SELECT @s@.mailroom_attach('public.people'::pg_catalog.regclass, 'mail'::pg_catalog.name, 'nick'::pg_catalog.name, 'active'::@s@.account_status, 'live'::pg_catalog.name);

INSERT INTO public.people (mail) VALUES ('People@example.com'), (NULL);

UPDATE public.people SET mail = 'changed@example.com', nick = 'nick' WHERE mail IS NOT NULL AND mail OPERATOR(pg_catalog.<>) 'Was.here@example.com';

UPDATE public.people SET nick = 'nicked' WHERE nick IS NOT NULL;

UPDATE public.people SET live = NOT live;

UPDATE public.people SET live = true;

UPDATE public.people SET mail = 'new@example.com' WHERE mail IS NULL;

DELETE FROM public.people WHERE nick IS NOT NULL;

-- Rows that swap; and addresses that only the table takes for different ones.
ALTER TABLE public.people ADD UNIQUE (mail) DEFERRABLE;

INSERT INTO public.people (mail, nick) VALUES ('left@example.com', 'left'), ('right@example.com', 'right');

UPDATE public.people SET mail = CASE WHEN nick OPERATOR(pg_catalog.=) 'left' THEN 'right@example.com' ELSE 'left@example.com' END WHERE nick IS NOT NULL;

DO $$ BEGIN UPDATE public.people SET mail = 'LEFT@example.com' WHERE nick OPERATOR(pg_catalog.=) 'left'; SET CONSTRAINTS ALL IMMEDIATE; EXCEPTION WHEN unique_violation THEN NULL; END $$;

-- A row whose account is gone.
DELETE FROM @s@.accounts WHERE login OPERATOR(pg_catalog.=) 'right';

UPDATE public.people SET nick = 'gone' WHERE nick OPERATOR(pg_catalog.=) 'right';

TRUNCATE public.people;

SELECT @s@.mailroom_detach('public.people'::pg_catalog.regclass);

DO $$ BEGIN PERFORM @s@.mailroom_attach('@s@.outbox'::pg_catalog.regclass, 'kind'::pg_catalog.name, NULL::pg_catalog.name, 'active'::@s@.account_status, NULL::pg_catalog.name); EXCEPTION WHEN wrong_object_type THEN NULL; END $$;

DROP TABLE public.people;

-- What cannot be written to the outbox, alone and among others.
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS $$ BEGIN IF NEW.data ->> 'login' = 'bad' THEN RAISE division_by_zero; END IF; RETURN NEW; END $$;

CREATE TRIGGER refuse BEFORE INSERT ON @s@.outbox FOR EACH ROW EXECUTE FUNCTION public.refuse();

INSERT INTO @s@.accounts (email, login) VALUES ('bad@example.com', 'bad'), ('good@example.com', 'good');

SELECT @s@.mailroom_collect(10::integer);

DROP FUNCTION public.refuse() CASCADE;

DELETE FROM @s@.accounts WHERE login OPERATOR(pg_catalog.=) 'good';

UPDATE @s@.accounts SET status = 'suspended' WHERE login OPERATOR(pg_catalog.=) 'two';

-- A batch that is being taken would wait for these tables, and they for its rows of pending.
DO $$ BEGIN WHILE EXISTS (SELECT FROM @s@.pending) LOOP PERFORM @s@.mailroom_collect(NULL::integer), pg_catalog.pg_sleep(0.01); END LOOP; END $$;

TRUNCATE @s@.accounts, @s@.tokens;

TRUNCATE @s@.templates, @s@.outbox, @s@.pending, @s@.link_requests, @s@.outbox_attempts;

SELECT @s@.mailroom_rotate_key();
