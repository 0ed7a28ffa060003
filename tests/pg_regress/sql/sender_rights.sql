-- What a sender may not do to mail with the columns that it may write: nothing that a claim or a settlement could not have
-- done, and nothing that keeps other mail from being claimed, settled or kept.

SET client_min_messages = error;
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
SELECT mailroom_send(name || '@example.com', 'S', 'T', send_at => '2000-01-01') FROM unnest(ARRAY['a', 'b', 'c']) name;
UPDATE outbox SET created_at = now() - interval '30 days';

SET ROLE mailroom_sender;
SELECT id FROM mailroom_claim(1, '1 h', 'me');
-- The end of a mail is when it ends; otherwise a purge would delete it too early.
UPDATE outbox SET state = 'cancelled', ended_at = '2000-01-01', claimed_until = NULL WHERE id = 1;
UPDATE outbox SET state = 'cancelled', ended_at = '2000-01-01' WHERE id = 2;
SELECT mailroom_mark_sent(1, claimant => 'me');
UPDATE outbox SET ended_at = now() - interval '8 days' WHERE id = 1;
UPDATE outbox SET ended_at = now() WHERE id = 1;
-- Nor with other rights inside a function.
RESET ROLE;
CREATE FUNCTION lent() RETURNS void LANGUAGE sql SECURITY DEFINER AS $$ UPDATE outbox SET ended_at = '2000-01-01' WHERE id = 1 $$;
ALTER FUNCTION lent() OWNER TO mailroom_collector;
SET ROLE mailroom_sender;
SELECT lent();
-- A role that may delete a mail may date its end.
SET ROLE mailroom_admin;
UPDATE outbox SET ended_at = now() - interval '1 day' WHERE id = 1;

-- Times that no claim and no settlement has: a claim that does not end, a mail that is never due or purged, an attempt
-- without a duration.
SET ROLE mailroom_sender;
SELECT id FROM mailroom_claim(1, '1 year', 'me');
UPDATE outbox SET claimed_until = 'infinity' WHERE id = 2;
UPDATE outbox SET claimed_until = '-infinity' WHERE id = 2;
UPDATE outbox SET claimed_at = 'infinity' WHERE id = 2;
UPDATE outbox SET send_at = 'infinity' WHERE id = 2;
UPDATE outbox SET state = 'sent', claimed_until = NULL, ended_at = 'infinity' WHERE id = 2;
SELECT mailroom_release(2, 'me');
INSERT INTO _new_attempts (outbox_id, attempt, outcome, started_at, ended_at) VALUES (2, 1, 'failed', '-infinity', '2000-01-01');
INSERT INTO _new_attempts (outbox_id, attempt, outcome, started_at, ended_at) VALUES (2, 1, 'failed', 'infinity', '2000-01-01');
INSERT INTO _new_attempts (outbox_id, attempt, outcome, started_at, ended_at) VALUES (2, 1, 'failed', '2000-01-01', '4713-01-01 BC');
INSERT INTO _new_attempts (outbox_id, attempt, outcome, started_at, ended_at) VALUES (2, 1, 'failed', '2000-01-01', 'infinity');
SELECT outcome, duration FROM outbox_history WHERE outbox_id = 2;
-- Texts that a dump could not hold.
UPDATE outbox SET last_error = repeat('x', 16385) WHERE id = 2;
UPDATE outbox SET claimed_by = repeat('x', 1025) WHERE id = 2;
UPDATE outbox SET provider_id = repeat('x', 1025) WHERE id = 2;
INSERT INTO _new_attempts (outbox_id, outcome, ended_at, error) VALUES (2, 'failed', '2000-01-01', repeat('x', 16385));
INSERT INTO _new_attempts (outbox_id, outcome, ended_at, claimant) VALUES (2, 'failed', '2000-01-01', repeat('x', 1025));
INSERT INTO _new_attempts (outbox_id, outcome, ended_at, refused_recipients) VALUES (2, 'partial', '2000-01-01', to_jsonb(ARRAY[repeat('x', 16777216)]));
SELECT mailroom_claim(1, claimant => repeat('x', 1025));

-- Numbers of attempts that a further attempt would carry beyond the type.
SET ROLE mailroom_sender;
UPDATE outbox SET failed_attempts = 2147483647 WHERE id = 2;
UPDATE outbox SET ambiguous_attempts = 2147483647 WHERE id = 2;
UPDATE outbox SET ambiguous_attempts = -1 WHERE id = 2;
UPDATE outbox SET failed_attempts = 1000000 WHERE id = 2;
SELECT id, failed_attempts FROM mailroom_claim(2, '1 h', 'me');
SELECT mailroom_mark_error(id, 'no', claimant => 'me') FROM generate_series(2, 3) id;
SELECT id, state, failed_attempts FROM outbox ORDER BY id;

-- An id that the sequence has not reached.
INSERT INTO outbox_attempts (outbox_id, outcome, ended_at) VALUES (3, 'failed', now());
INSERT INTO _new_attempts (id, outbox_id, outcome, ended_at) VALUES (1000, 3, 'failed', now());
INSERT INTO _new_attempts (outbox_id, outcome, ended_at) VALUES (3, 'failed', now());
SET ROLE mailroom_collector;
INSERT INTO outbox (id, kind, recipients) VALUES (1000, 'own', '{a@example.com}');
INSERT INTO job_runs (started_at, duration, trigger) VALUES (now(), '1 s', 'poll');
INSERT INTO _new_job_runs (id, started_at, duration, trigger) VALUES (1000, now(), '1 s', 'poll');
RESET ROLE;
-- What these numbers lead to can be restored.
INSERT INTO outbox (kind, recipients, failed_attempts, ambiguous_attempts) VALUES ('own', '{a@example.com}', 1000001, 1000001);

DROP EXTENSION mailroom CASCADE;
DROP FUNCTION lent();
