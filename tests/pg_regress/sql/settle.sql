-- Settles by arrays as clients make them: subscripts that start elsewhere, and refused recipients in odd forms.

SET client_min_messages = error;
CREATE EXTENSION mailroom;
\set SHOW_CONTEXT never

CREATE PROCEDURE pg_temp.start_over() LANGUAGE sql AS $$ TRUNCATE outbox, outbox_attempts RESTART IDENTITY $$;
CREATE FUNCTION pg_temp.put(n integer) RETURNS void LANGUAGE sql AS $$
    INSERT INTO outbox (kind, recipients, subject, body_text)
    SELECT 'own', '{a@example.com}', 'Hello', 'Text' FROM generate_series(1, n);
$$;

-- Arrays of PL/pgSQL's may start at another subscript than 1, and each at its own.
CALL pg_temp.start_over();
SELECT pg_temp.put(12);
SELECT count(*) FROM mailroom_claim(12, claimant => 'me');
SELECT mailroom_mark_sent_many('[0:1]={1,2}', '[5:6]={one,two}', 'me', '[-1:0]={0,0}');
-- Only the second is of this claim, and so the first is late.
SELECT mailroom_mark_sent_many('[0:1]={3,4}', '[0:1]={three,four}', 'me', '[0:1]={7,0}');
SELECT mailroom_release_many('[0:1]={3,5}', 'me', '[0:1]={7,0}'), mailroom_extend_many('[0:1]={3,6}', '1 h', 'me', '[0:1]={7,0}');
SELECT mailroom_mark_error_many(
    '[0:2]={7,8,9}', '[0:2]={seven,eight,nine}', '[2:4]={NULL,10 min,NULL}', '[0:2]={f,f,t}', '[7:9]={407,408,409}', 'me', '[0:2]={0,0,3}',
    '[0:2]={t,f,f}', '[0:2]={f,t,t}', '[0:2]={0197c5d0-0000-7000-8000-000000000007,NULL,NULL}'
);
-- Settled after the lease ended, but before the claim was taken back.
UPDATE outbox SET claimed_at = claimed_at - interval '1 h', claimed_until = clock_timestamp() - interval '1 ms' WHERE id IN (10, 11, 12);
SELECT mailroom_mark_sent_many('[0:2]={10,11,12}', '[0:2]={ten,eleven,twelve}', 'me', '[0:2]={0,9,0}');
SELECT id, state, failed_attempts, ambiguous_attempts, ambiguous_alone, batch, send_at > now() + interval '9 min' AS later, last_error, provider_id FROM outbox ORDER BY id;
SELECT outbox_id, attempt, outcome, response_code, error FROM outbox_attempts ORDER BY outbox_id, id;

-- Odd values do not undo a settle: what is no array of objects counts as no refusal, and what is no number as no answer.
CALL pg_temp.start_over();
SELECT pg_temp.put(12);
SELECT count(*) FROM mailroom_claim(12, claimant => 'me');
SELECT mailroom_mark_sent(1, claimant => 'me', refused_recipients => '{"recipient": "a@example.com"}');
SELECT mailroom_mark_sent_many(
    ARRAY[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]::bigint[], claimant => 'me',
    refused_recipients => ARRAY[
        'null', '7', '"b@example.com"', '[]', '{}', '[null, 1, "x", []]',
        '[{"recipient": "b@example.com", "response_code": "550 5.1.1"}]', '[1, {"response_code": "551"}, null, {}]', '[{"response_code": 5.5}]',
        '[{"response_code": 99999999999}]', '[{"response_code": {"code": 550}}]'
    ]::jsonb[]
);
SELECT count(*) FROM outbox WHERE state = 'sent';
SELECT outbox_id, response_code, error, refused_recipients FROM outbox_attempts ORDER BY outbox_id;
SELECT pg_temp.put(1);
SELECT mailroom_mark_sent(id, claimant => 'me', refused_recipients => jsonb_build_array(jsonb_build_object('error', repeat('x', 16777216)))) FROM mailroom_claim(1, claimant => 'me');
SELECT error, refused_recipients FROM outbox_attempts ORDER BY id DESC LIMIT 1;

-- What a trigger of the application keeps is not cancelled.
CREATE FUNCTION pg_temp.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.keep();
SELECT pg_temp.put(1);
SELECT mailroom_cancel(max(id)), mailroom_reschedule(max(id), '2040-01-01') FROM outbox;

DROP TRIGGER keep ON outbox;
-- The mail of a token that is locked by wrong codes cannot be retried, and takes no place from other mail.
INSERT INTO accounts (email, login) VALUES ('locked@example.com', 'locked');
SELECT mailroom_collect();
UPDATE tokens SET wrong_codes = 5;
UPDATE outbox SET state = 'error', last_error = 'busy', ended_at = now() WHERE kind = 'activation';
INSERT INTO outbox (kind, recipients, subject, body_text, state, last_error, ended_at)
VALUES ('other', '{late@example.com}', 'S', 'T', 'error', 'busy', now() + interval '1 s');
SELECT mailroom_retry_failed(since => now() - interval '1 s', batch_limit => 1);
SELECT kind, state FROM outbox WHERE kind IN ('activation', 'other') ORDER BY id;

DROP EXTENSION mailroom;
