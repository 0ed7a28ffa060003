-- The outbox as a queue: what is claimed, in what order and for how long, how claims are settled, retried and
-- lost, groups, what is not handed out any more, the history, and the purge.

SET client_min_messages = error;
CREATE EXTENSION mailroom;
\set SHOW_CONTEXT never

CREATE PROCEDURE pg_temp.start_over() LANGUAGE sql AS $$
    TRUNCATE accounts, tokens, pending, outbox, outbox_attempts RESTART IDENTITY;
$$;
CREATE FUNCTION pg_temp.put(n integer DEFAULT 1, priority smallint DEFAULT 0, group_key text DEFAULT NULL, send_at timestamptz DEFAULT now())
RETURNS void LANGUAGE sql AS $$
    INSERT INTO outbox (kind, recipients, subject, body_text, priority, group_key, send_at)
    SELECT 'own', '{a@example.com}', 'Hello', 'Text', put.priority, put.group_key, put.send_at FROM generate_series(1, n);
$$;
-- Lets the leases of some rows end.
CREATE PROCEDURE pg_temp.lapse(ids bigint[]) LANGUAGE sql AS $$
    UPDATE outbox SET claimed_at = claimed_at - interval '1 h', claimed_until = clock_timestamp() - interval '1 ms'
    WHERE id = ANY (ids) AND state = 'claimed';
$$;
CREATE TEMPORARY VIEW story AS
SELECT id, state, failed_attempts, regexp_replace(claimed_by, '[0-9a-f]+[.][0-9a-f]+$', '<session>') AS claimed_by, claimed_at IS NOT NULL AS claimed, claimed_until IS NOT NULL AS leased, last_error, provider_id, ended_at IS NOT NULL AS ended
FROM outbox ORDER BY id;
CREATE TEMPORARY VIEW history AS
SELECT outbox_id, attempt, outcome, started_at IS NOT NULL AS started, ended_at IS NOT NULL AS ended, duration >= '0' AS took, regexp_replace(claimant, '[0-9a-f]+[.][0-9a-f]+$', '<session>') AS claimant, response_code, error, provider_id
FROM outbox_history h ORDER BY outbox_id, h.ended_at, outcome;

-- Nothing to claim.
SELECT count(*) FROM mailroom_claim();
SELECT count(*) FROM mailroom_claim_group();

-- The order: priority, send_at, id. What is not due is not claimed.
SELECT pg_temp.put(2);
SELECT pg_temp.put(1, 5::smallint);
SELECT pg_temp.put(1, (-10)::smallint);
SELECT pg_temp.put(1, 0::smallint, NULL, now() - interval '1 h');
SELECT pg_temp.put(1, (-100)::smallint, NULL, now() + interval '1 h');
SELECT id, state, claimed_by, claimed_until - claimed_at AS lease, failed_attempts FROM mailroom_claim(3, '5 s', 'me');
SELECT id, claimed_by LIKE session_user || '/%.' || to_hex(pg_backend_pid()) AS by_session, claimed_until - claimed_at AS lease FROM mailroom_claim(10);
SELECT count(*) FROM mailroom_claim(10);
SET mailroom.batch_limit = 1;
SET mailroom.lease = '90s';
SELECT mailroom_release_many(ARRAY[4, 1]::bigint[], 'me');
SELECT id, claimed_until - claimed_at AS lease FROM mailroom_claim();
SELECT id FROM mailroom_claim(NULL, NULL, NULL);
RESET mailroom.batch_limit;
RESET mailroom.lease;
TABLE story;
-- ROLLBACK gives them back.
CALL pg_temp.start_over();
SELECT pg_temp.put(2);
BEGIN;
SELECT id FROM mailroom_claim(2);
ROLLBACK;
SELECT id FROM mailroom_claim(2);
-- Rows that came in behind are found.
CALL pg_temp.start_over();
SELECT pg_temp.put(4);
SELECT id FROM mailroom_claim(4, claimant => 'me');
SELECT mailroom_release(2, 'me');
SELECT pg_temp.put(1, 0::smallint, NULL, now() - interval '1 day');
SELECT id FROM mailroom_claim(4, claimant => 'me');

-- More groups than one call takes: the next one goes on where this one stopped.
CALL pg_temp.start_over();
SELECT count(*) FROM (SELECT pg_temp.put(1, 0::smallint, 'g' || i) FROM generate_series(1, 300) i) p;
SELECT pg_temp.put(1);
SELECT count(*), min(id), max(id) FILTER (WHERE group_key IS NOT NULL), count(*) FILTER (WHERE group_key IS NULL) AS single
FROM mailroom_claim(1000, claimant => 'me');
SELECT count(*), min(id), max(id) FROM mailroom_claim(1000, claimant => 'me');
SELECT count(*) FROM mailroom_claim(1000, claimant => 'me');

-- Settling: only by the holder, and only once.
CALL pg_temp.start_over();
SELECT pg_temp.put(4);
SELECT id FROM mailroom_claim(2);
SELECT id FROM mailroom_claim(2, claimant => 'me');
SELECT mailroom_mark_sent(1, 'provider-1');
SELECT mailroom_mark_sent(3, 'provider-3', 'me'), mailroom_mark_sent(4, 'provider-4');
SELECT mailroom_mark_sent(1) AS again, mailroom_mark_sent(99) AS unknown, mailroom_mark_sent(1, claimant => 'me') AS not_mine;
TABLE story;
TABLE history;
-- By arrays: the ones that were lost come back.
CALL pg_temp.start_over();
SELECT pg_temp.put(6);
SELECT id FROM mailroom_claim(5);
SELECT mailroom_mark_sent_many(ARRAY[1, 2]::bigint[]);
SELECT mailroom_mark_sent_many(ARRAY[3, 6, 4, 3]::bigint[], ARRAY['three', 'six', 'four', 'three']);
SELECT mailroom_mark_sent_many('{}'::bigint[]);
SELECT mailroom_release_many(ARRAY[6, 5, 5]::bigint[]);
SELECT mailroom_mark_error_many(ARRAY[5]::bigint[], ARRAY['not mine']);
TABLE story;
TABLE history;
SELECT mailroom_mark_sent_many(ARRAY[1, 2]::bigint[], ARRAY['one']);
SELECT mailroom_mark_error_many(ARRAY[1, 2]::bigint[], ARRAY['one', 'two'], permanent => ARRAY[true]);
SELECT mailroom_release_many(ARRAY[1]::bigint[], 'me', ARRAY[1, 2]);
-- A longer lease.
SELECT id FROM mailroom_claim(1, '1 min');
SELECT mailroom_extend(5, '1 h'), mailroom_extend(5, '1 h', 'me');
SELECT claimed_until > now() + interval '59 min' AS extended FROM outbox WHERE id = 5;
SELECT mailroom_extend_many(ARRAY[5, 6]::bigint[]);

-- Sent, but not to all recipients: the others are recorded once, with their answers, and only with a settle that counts.
CALL pg_temp.start_over();
SELECT pg_temp.put(5);
SELECT count(*) FROM mailroom_claim(4, claimant => 'me');
SELECT mailroom_mark_sent(1, 'provider-1', 'me', refused_recipients => '[{"recipient": "b@example.com", "response_code": 550, "error": "smtp 550 5.1.1"}]');
SELECT mailroom_mark_sent_many(
    ARRAY[2, 3, 5, 1]::bigint[], claimant => 'me',
    refused_recipients => ARRAY[
        NULL, '[{"recipient": "c@example.com", "response_code": 552}, {"recipient": "d@example.com", "response_code": 553}]',
        '[{"recipient": "e@example.com", "response_code": 554}]', '[{"recipient": "b@example.com", "response_code": 550}]'
    ]::jsonb[]
);
SELECT outbox_id, attempt, outcome, started_at IS NOT NULL AS started, claimant, response_code, error, refused_recipients FROM outbox_attempts ORDER BY id;
TABLE history;
SELECT mailroom_mark_sent_many(ARRAY[4]::bigint[], claimant => 'me', refused_recipients => ARRAY[NULL, NULL]::jsonb[]);

-- Errors: tried again after a random time that grows, or not at all.
CALL pg_temp.start_over();
SELECT pg_temp.put(7);
UPDATE outbox SET max_attempts = 2 WHERE id = 4;
UPDATE outbox SET expires_at = now() + interval '30 min' WHERE id IN (5, 6);
SELECT id FROM mailroom_claim(7);
SELECT mailroom_mark_error(1, 'busy');
SELECT mailroom_mark_error(2, 'slow down', '20 min', response_code => 429);
SELECT mailroom_mark_error(3, 'no such mailbox', permanent => true, response_code => 550);
SELECT mailroom_mark_error_many(ARRAY[4, 5, 6, 7]::bigint[], ARRAY['once', 'last try', 'in time', NULL], ARRAY[NULL, '1 h', '10 min', NULL]::interval[]);
TABLE story;
SELECT id, send_at > clock_timestamp() - interval '1 min' AND send_at < clock_timestamp() + interval '5 s' AS soon, send_at > clock_timestamp() + interval '9 min' AS later
FROM outbox ORDER BY id;
UPDATE outbox SET send_at = now() WHERE id = 4;
SELECT id, failed_attempts FROM mailroom_claim(7) WHERE id = 4;
SELECT mailroom_mark_error(4, 'twice');
SELECT * FROM story WHERE id = 4;
TABLE history;

-- Dead letters are redriven.
UPDATE outbox SET kind = 'letter', item_key = 'k' WHERE id = 4;
SELECT mailroom_retry(4), mailroom_retry(4), mailroom_retry(5), mailroom_retry(99);
SELECT id, state, failed_attempts, max_attempts, ended_at IS NULL AS live, claimed_by IS NULL AS free, send_at <= clock_timestamp() AS due FROM outbox WHERE id IN (3, 4) ORDER BY id;
-- By what is known of the last attempt, which is no word of a message: 3 was refused with status 550.
SELECT mailroom_retry_failed(outcome => 'ambiguous'), mailroom_retry_failed(outcome => 'late'), mailroom_retry_failed(response_code => 551), mailroom_retry_failed(outcome => 'lease_expired', response_code => 550);
SELECT mailroom_retry_failed(outcome => 'failed', response_code => 550, since => now() + interval '1 h'), mailroom_retry_failed('letter');
SELECT mailroom_retry_failed('own', '', 'failed', 550, now() - interval '1 h', 1), mailroom_retry_failed(since => '-infinity');
SELECT id, state, failed_attempts, max_attempts FROM outbox WHERE id IN (3, 4) ORDER BY id;
INSERT INTO outbox (kind, recipients, item_key, state, last_error, ended_at) VALUES ('own', '{a@example.com}', 'k', 'error', 'because', now());
SELECT mailroom_retry_failed(since => '-infinity');
SELECT mailroom_retry(8);
SELECT mailroom_retry_failed();
SELECT mailroom_retry_failed(kind => 'own', batch_limit => 0);

-- What may have been sent is known by columns, over all attempts, and never by the words of an error.
CALL pg_temp.start_over();
SELECT pg_temp.put(4);
SELECT count(*) FROM mailroom_claim(4, claimant => 'me');
SELECT mailroom_mark_error(1, 'may have been sent: so it says', claimant => 'me');
SELECT mailroom_mark_error(2, 'no answer', claimant => 'me', ambiguous => true, alone => false);
SELECT mailroom_mark_error_many(ARRAY[3, 4]::bigint[], ARRAY['no answer', 'no answer'], claimant => 'me', ambiguous => ARRAY[true, NULL]);
SELECT id, state, failed_attempts, ambiguous_attempts, ambiguous_alone FROM outbox ORDER BY id;
UPDATE outbox SET send_at = now() WHERE state = 'scheduled';
SELECT count(*) FROM mailroom_claim(4, claimant => 'me');
SELECT mailroom_mark_error_many(ARRAY[1, 2, 3, 4]::bigint[], ARRAY['x', 'x', 'x', 'x'], permanent => ARRAY[true, true, true, true], response_codes => ARRAY[500, NULL, NULL, 504], claimant => 'me', ambiguous => ARRAY[false, true, false, true], alone => ARRAY[true, true, true, false]);
SELECT id, state, failed_attempts, ambiguous_attempts, ambiguous_alone FROM outbox ORDER BY id;
SELECT outbox_id, attempt, outcome FROM outbox_attempts WHERE outbox_id <= 4 ORDER BY outbox_id, attempt;
SELECT mailroom_retry_failed(outcome => 'ambiguous', response_code => 504), mailroom_retry_failed(outcome => 'ambiguous'), mailroom_retry_failed(response_code => 500), mailroom_retry_failed(since => '-infinity');
SELECT mailroom_mark_error_many(ARRAY[1, 2]::bigint[], ARRAY['a', 'b'], ambiguous => ARRAY[true]);

-- Leases that end.
CALL pg_temp.start_over();
SELECT pg_temp.put(4);
UPDATE outbox SET max_attempts = 1 WHERE id = 2;
SELECT id FROM mailroom_claim(4, claimant => 'me');
UPDATE outbox SET expires_at = now() WHERE id = 3;
CALL pg_temp.lapse('{1, 2, 3, 4}');
-- A claimant whose expired claim was not taken over may still settle it.
SELECT mailroom_mark_sent(4, claimant => 'me');
SELECT id, failed_attempts FROM mailroom_claim(4, claimant => 'me');
TABLE story;
-- The number of attempts tells the second claim from the first.
SELECT mailroom_mark_sent(1, 'late', 'me', 0), mailroom_mark_error(1, 'late', claimant => 'me', failed_attempts => 0), mailroom_release(1, 'me', 0);
SELECT mailroom_mark_sent_many(ARRAY[1]::bigint[], NULL, 'me', ARRAY[0]);
SELECT mailroom_mark_sent_many(ARRAY[1]::bigint[], NULL, 'me', ARRAY[1]);
TABLE story;
TABLE history;

-- Groups. All due rows of one, for one claimant; while one of them is claimed no other claimant gets the others.
CALL pg_temp.start_over();
SELECT pg_temp.put(2, 0::smallint, 'a');
SELECT pg_temp.put(1);
SELECT pg_temp.put(2, 0::smallint, 'b');
SELECT pg_temp.put(1, 0::smallint, 'a', now() + interval '1 h');
SELECT id, group_key FROM mailroom_claim_group(claimant => 'one');
SELECT id, group_key FROM mailroom_claim(1, claimant => 'two');
SELECT pg_temp.put(1, (-1)::smallint, 'a');
SELECT id, group_key FROM mailroom_claim(1, claimant => 'two');
SELECT id, group_key FROM mailroom_claim(9, claimant => 'two');
SELECT id, group_key FROM mailroom_claim_group(group_key => 'a');
SELECT id, group_key FROM mailroom_claim_group(NULL, '1 min', 'three');
SELECT mailroom_mark_sent_many(ARRAY[1]::bigint[], claimant => 'one');
SELECT id, group_key FROM mailroom_claim(9);
SELECT mailroom_mark_sent_many(ARRAY[2]::bigint[], claimant => 'one');
SELECT id, group_key FROM mailroom_claim(9, claimant => 'two');
SELECT id, group_key FROM mailroom_claim_group(group_key => 'b');
CALL pg_temp.lapse('{4}');
SELECT id, group_key, failed_attempts FROM mailroom_claim_group(group_key => 'b');
SELECT id, group_key FROM mailroom_claim_group(group_key => 'none');
-- A transaction that cannot see who claimed a group meanwhile gets no rows of groups.
CALL pg_temp.start_over();
SELECT pg_temp.put(1, 0::smallint, 'a');
SELECT pg_temp.put(1);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT id FROM mailroom_claim(9);
SELECT id FROM mailroom_claim_group();
ROLLBACK;

-- What is not handed out: expired mails, and token mails whose token is no longer good. They do not count.
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) SELECT format('a%s@example.com', i), format('a%s', i) FROM generate_series(1, 6) i;
SELECT mailroom_collect();
SELECT pg_temp.put(2);
UPDATE outbox SET expires_at = now() - interval '1 s' WHERE id IN (1, 7);
UPDATE tokens SET consumed_at = 1 WHERE id = 2;
UPDATE accounts SET status = 'suspended' WHERE id = 3;
DELETE FROM accounts WHERE id = 4;
UPDATE tokens SET expires_at = created_at + 1, created_at = created_at - 10 WHERE id = 5;
UPDATE tokens SET expires_at = created_at + 5 WHERE id = 5;
SELECT id, data ? 'token' AS secrets FROM mailroom_claim(2);
SELECT id, state, last_error, ended_at IS NOT NULL AS ended, secrets IS NOT NULL AS secrets FROM outbox ORDER BY id;
TABLE history;
SELECT mailroom_mark_sent(6);
SELECT data FROM outbox WHERE id = 6;
-- The same for a group.
CALL pg_temp.start_over();
SELECT pg_temp.put(2, 0::smallint, 'a');
UPDATE outbox SET expires_at = now();
SELECT pg_temp.put(2, 0::smallint, 'b');
SELECT id, group_key FROM mailroom_claim_group();
TABLE story;

-- Secrets are removed and times are stamped by any statement that ends a row.
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) SELECT format('a%s@example.com', i), format('a%s', i) FROM generate_series(1, 4) i;
SELECT mailroom_collect();
SELECT id FROM mailroom_claim(2, claimant => 'me');
UPDATE outbox SET state = 'sent' WHERE id = 1;
UPDATE outbox SET state = 'error' WHERE id = 2;
SELECT mailroom_claim_group();
DELETE FROM tokens WHERE id = 3;
SELECT id, secrets IS NOT NULL AS secrets, state, last_error, claimed_until, ended_at = updated_at AS stamped FROM outbox ORDER BY id;
TRUNCATE tokens;
SELECT id, data, state, last_error, ended_at = updated_at AS stamped FROM outbox WHERE id = 4;
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) SELECT format('a%s@example.com', i), format('a%s', i) FROM generate_series(1, 3) i;
SELECT mailroom_collect();
UPDATE outbox SET max_attempts = 1;
SELECT id FROM mailroom_claim(9, claimant => 'me');
SELECT mailroom_mark_error(1, 'gone', claimant => 'me'), mailroom_mark_error(2, 'gone', permanent => true, claimant => 'me');
CALL pg_temp.lapse('{3}');
SELECT count(*) FROM mailroom_claim();
SELECT id, data, state, last_error, claimed_by FROM outbox ORDER BY id;
SELECT mailroom_retry(1);
UPDATE tokens SET wrong_codes = 5 WHERE id = 2; SELECT mailroom_retry(2);

-- When to claim next: never, at once, when a lease ends or ended, when a mail becomes due; infinity is no time.
CALL pg_temp.start_over();
SELECT mailroom_next_due();
SELECT pg_temp.put(1);
SELECT mailroom_next_due() <= clock_timestamp() AS at_once;
SELECT id FROM mailroom_claim(1, '1 h', 'me');
SELECT mailroom_next_due() = claimed_until AS when_it_lapses FROM outbox;
SELECT mailroom_extend(1, '10 min', 'me');
SELECT mailroom_next_due() = claimed_until AND claimed_until < now() + interval '11 min' AS sooner FROM outbox;
CALL pg_temp.lapse('{1}');
SELECT mailroom_next_due() <= clock_timestamp() AS at_once;
SELECT mailroom_mark_sent(1, claimant => 'me');
SELECT mailroom_next_due();
SELECT pg_temp.put(1, 5::smallint, NULL, 'infinity');
SELECT mailroom_next_due();
SELECT pg_temp.put(1, 5::smallint, NULL, now() + interval '1 h');
SELECT mailroom_next_due() BETWEEN now() + interval '30 min' AND now() + interval '1 h' AS within_the_hour;
-- Due mail of a busy group waits for its claimant.
SELECT pg_temp.put(3, 0::smallint, 'g');
SELECT id FROM mailroom_claim_group(2, '10 min', 'me');
SELECT mailroom_next_due() = claimed_until AS when_it_lapses FROM outbox WHERE id = 4;
SELECT id FROM mailroom_claim(9);
SELECT id FROM mailroom_claim_group(group_key => 'g');
SELECT mailroom_mark_sent_many(ARRAY[4, 5]::bigint[], claimant => 'me');
SELECT mailroom_next_due() <= clock_timestamp() AS at_once;
SELECT id FROM mailroom_claim_group(9);
-- A claim of a group that lapsed is not to be had again, and holds the group no more.
SELECT pg_temp.put(1, 0::smallint, 'g');
CALL pg_temp.lapse('{6}');
SELECT mailroom_extend(6, '1 h', session_user || '/' || _session_id());
SELECT id, failed_attempts FROM mailroom_claim_group(group_key => 'g');

-- Later mail of the same priority does not wait for a held group, nor does mail that is due behind it.
CALL pg_temp.start_over();
SELECT pg_temp.put(3, 0::smallint, 'g');
SELECT id FROM mailroom_claim_group(2, '10 min', 'me');
SELECT pg_temp.put(1, 0::smallint, NULL, now() + interval '5 min');
SELECT mailroom_next_due() = send_at AS when_it_is_due FROM outbox WHERE id = 4;
SELECT pg_temp.put(1, 0::smallint, 'h');
SELECT mailroom_next_due() = send_at AS at_once FROM outbox WHERE id = 5;

-- What is refused.
SELECT mailroom_claim(0);
SELECT mailroom_claim(-1);
SELECT mailroom_claim(1, '0');
SELECT mailroom_claim_group(0);
SELECT mailroom_claim_group(1, '-1 s');
SELECT mailroom_extend(1, '0');
SELECT mailroom_purge(0);
SELECT mailroom_purge(NULL);

-- The purge: what ended longer ago than mailroom.retention, with its attempts, and the diary.
CALL pg_temp.start_over();
SELECT pg_temp.put(5);
SELECT id FROM mailroom_claim(4);
SELECT mailroom_mark_error(1, 'first', permanent => true), mailroom_mark_sent(2), mailroom_mark_sent(3);
INSERT INTO job_runs (started_at, duration, trigger) VALUES (now() - interval '8 days', '1 s', 'poll'), (now(), '1 s', 'poll');
UPDATE outbox SET created_at = created_at - interval '8 days';
SELECT * FROM mailroom_purge();
UPDATE outbox SET ended_at = ended_at - interval '8 days' WHERE id IN (1, 2);
SELECT * FROM mailroom_purge(1);
SELECT * FROM mailroom_purge(1);
SELECT id FROM outbox ORDER BY id;
SELECT * FROM mailroom_purge();
SELECT * FROM mailroom_purge();
SELECT id, state FROM outbox ORDER BY id;
SELECT count(*) FROM outbox_attempts;
SELECT count(*) FROM job_runs;
SET mailroom.retention = 0;
SELECT * FROM mailroom_purge();
SELECT id, state FROM outbox ORDER BY id;
RESET mailroom.retention;

DROP VIEW story, history;

-- What a sender says went wrong may quote what others must not read.
INSERT INTO outbox (kind, recipients, subject, body_text, data)
VALUES ('own', '{quoted@example.com}', 'S', 'T', '{"code": "04711"}') RETURNING id AS quoted \gset
SELECT count(*) FROM mailroom_claim(100, '1 h', 'me');
SELECT mailroom_mark_error(:quoted, 'refused: <Quoted@EXAMPLE.com> 04711 ' || repeat('A', 86) || repeat('.', 2000), '400000 years', claimant => 'me');
SELECT left(last_error, 60), length(last_error), send_at < now() + interval '31 days' AS bounded FROM outbox WHERE id = :quoted;
SELECT mailroom_claim(1, '400000 years');

-- The wait before another try: anything between nothing and 2 s, doubled with each failure, and an hour at most, or a minute
-- in the last hour, if that makes the attempts that are left last until its end.
SELECT attempts, bool_and(wait BETWEEN 0 AND most) AS within, max(wait) > 0.9 * most AS up_to_it, min(wait) < 0.1 * most AS from_0
FROM (
    SELECT v.attempts, v.most, v.time_left, _backoff(v.attempts, v.attempts_left, v.time_left) AS wait
    FROM (
        VALUES
            (0, 2, NULL::interval, NULL::integer), (1, 2, NULL, 9), (2, 4, NULL, 9), (11, 2048, '2 h', 9), (12, 3600, NULL, 9),
            (2147483647, 3600, NULL, 9), (5, 32, '1 h', 9), (6, 60, '1 h', NULL), (20, 60, '10 s', 9), (20, 60, '-10 s', 0),
            (7, 100, '10 min', 12), (8, 60, '10 min', 20)
    ) v (attempts, most, time_left, attempts_left), generate_series(1, 500)
) w
GROUP BY attempts, most, time_left
ORDER BY attempts, most;

-- A link that is valid for a quarter of an hour is tried until its end, 25 times at most.
WITH RECURSIVE tries AS (
    SELECT run, 1 AS attempt, timestamptz '2000-01-01 00:00' AS at
    FROM generate_series(1, 1000) run
    UNION ALL
    SELECT run, attempt + 1, _due_again(attempt, 25 - attempt, NULL, '2000-01-01 00:15', at)
    FROM tries
    WHERE attempt < 25
      AND at < '2000-01-01 00:14:55'
)
SELECT count(*) FILTER (WHERE t.latest > '2000-01-01 00:14') > 900 AS most_until_the_last_minute, min(t.latest) > '2000-01-01 00:10' AS and_all_for_long
FROM (SELECT max(at) AS latest FROM tries GROUP BY run) t;

-- The last try comes shortly before a mail is of no use any more, and it ends as expired only when that time is past.
TRUNCATE outbox, outbox_attempts;
INSERT INTO outbox (kind, recipients, subject, body_text, failed_attempts, expires_at)
SELECT 'own', '{g@example.com}', 'S', 'T', 8, now() + i * interval '1 s' FROM unnest('{3,10,600}'::integer[]) i;
SELECT count(*) FROM mailroom_claim(10, '1 h', 'me');
SELECT mailroom_mark_error_many(
    ARRAY(SELECT id FROM outbox ORDER BY id), '{no,no,no}', '{1 h,1 h,1 h}', claimant => 'me'
) <> '{}' AS settled;
SELECT state, (expires_at - send_at) AS before_its_end FROM outbox ORDER BY id;

-- A claim of a group takes what comes after rows that end instead.
TRUNCATE outbox, outbox_attempts;
INSERT INTO outbox (kind, recipients, subject, body_text, group_key, expires_at)
SELECT 'own', '{g@example.com}', 'S', 'T', 'late', CASE WHEN i < 4 THEN now() - interval '1 s' END FROM generate_series(1, 6) i;
SELECT count(*) FROM mailroom_claim_group(2, group_key => 'late', claimant => 'me');
SELECT state, count(*) FROM outbox GROUP BY state ORDER BY state;

-- All claims that a worker of this database and timeline left are taken over, also under the name of the one that asks.
UPDATE outbox SET claimed_by = 'mailroom worker/1/1.1' WHERE state = 'claimed';
SELECT _expire_previous_claims('2');
SELECT _expire_previous_claims('1');
SELECT _expire_previous_claims('1');
SELECT count(*) FROM mailroom_claim(10, claimant => 'me');

DROP EXTENSION mailroom CASCADE;
