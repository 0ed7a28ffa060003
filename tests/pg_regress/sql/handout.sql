-- Hand-out: who gets which tokens in what order, what a limit means, that ROLLBACK returns everything, where
-- the ones go that are not handed out, the line protocol, and the rows of the outbox with what they refuse.

SET client_min_messages = error;
CREATE EXTENSION mailroom;
-- The place in our functions where an error was raised is not part of the interface.
\set SHOW_CONTEXT never

-- What a hand-out gives; the signed token is random, so it is shown as genuine or not.
CREATE FUNCTION pg_temp.dequeue(batch_limit integer DEFAULT NULL)
RETURNS TABLE (action token_action, email text, login text, genuine boolean, code_matches boolean)
LANGUAGE sql AS $$
    SELECT d.action, d.email, d.login, mailroom_verify(d.secret, d.action, d.code), d.code = t.code
    FROM mailroom_dequeue(batch_limit) WITH ORDINALITY d (action, email, login, secret, code, place)
    LEFT JOIN tokens t ON d.secret LIKE left(translate(encode(t.secret, 'base64'), E'+/\n', '-_'), 42) || '%'
    ORDER BY d.place
$$;
CREATE TEMPORARY VIEW mails AS
SELECT
    token_id, account_id, recipients, kind, priority, state, last_error,
    (SELECT string_agg(key, ',' ORDER BY key) FROM jsonb_object_keys(data || coalesce(secrets, '{}')) key) AS data,
    ended_at IS NOT NULL AS ended
FROM outbox
ORDER BY id;
CREATE PROCEDURE pg_temp.start_over() LANGUAGE sql AS $$
    TRUNCATE accounts, tokens, pending, outbox RESTART IDENTITY;
    SELECT setval('_last_seq', 0);
$$;

-- An empty queue.
SELECT * FROM mailroom_dequeue();
SELECT mailroom_dequeue_line() IS NULL AS nothing;
SELECT mailroom_collect();
TABLE jobs;

-- Recoveries first, then by id. Each token goes once, the figure in jobs follows, and
-- nothing is written to the outbox: the session that dequeues is the sender.
INSERT INTO accounts (email, login) SELECT format('a%s@example.com', i), format('a%s', i) FROM generate_series(1, 4) i;
UPDATE accounts SET status = 'active' WHERE login IN ('a3', 'a4');
INSERT INTO tokens (account, action) VALUES (4, 'password_recovery'), (3, 'password_recovery');
DELETE FROM tokens WHERE account IN (3, 4) AND action = 'activation';
SELECT * FROM pending ORDER BY lane, token_id;
SELECT * FROM pg_temp.dequeue();
SELECT * FROM pg_temp.dequeue();
TABLE jobs;
TABLE pending;
TABLE mails;

-- The limit, by argument and by setting; NULL is the setting; the order goes on where it stopped.
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) SELECT format('a%s@example.com', i), format('a%s', i) FROM generate_series(1, 10) i;
SELECT login FROM mailroom_dequeue(2);
SELECT login FROM mailroom_dequeue(batch_limit => 1);
SET mailroom.batch_limit = 3;
SELECT login FROM mailroom_dequeue();
SELECT login FROM mailroom_dequeue(NULL);
RESET mailroom.batch_limit;
TABLE jobs;
SELECT login FROM mailroom_dequeue(2147483647);
SELECT login FROM mailroom_dequeue(1);
TABLE jobs;
SELECT * FROM mailroom_dequeue(0);
SELECT * FROM mailroom_dequeue(-1);
SELECT mailroom_dequeue_line(0);
SELECT mailroom_collect(0);
SELECT mailroom_collect(-2147483648);
\set VERBOSITY sqlstate
SELECT mailroom_collect(0);
SELECT mailroom_dequeue(0);
\set VERBOSITY default

-- ROLLBACK returns them, of the transaction and to a savepoint, and takes back the figure.
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) SELECT format('a%s@example.com', i), format('a%s', i) FROM generate_series(1, 3) i;
BEGIN;
SELECT login FROM mailroom_dequeue();
SELECT count(*) FROM pending;
TABLE jobs;
ROLLBACK;
TABLE pending;
TABLE jobs;
BEGIN;
SAVEPOINT before;
SELECT mailroom_collect();
TABLE mails;
ROLLBACK TO before;
TABLE mails;
SELECT login FROM mailroom_dequeue();
COMMIT;
SELECT count(*) FROM pending;
-- What was rolled back is found again although what follows is already gone.
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) SELECT format('a%s@example.com', i), format('a%s', i) FROM generate_series(1, 6) i;
BEGIN;
SAVEPOINT before;
SELECT login FROM mailroom_dequeue(3);
ROLLBACK TO before;
DELETE FROM pending WHERE token_id > 4;
SELECT login FROM mailroom_dequeue(10) ORDER BY login;
COMMIT;

-- Tokens that are of no use any more are passed over without counting: two were asked for, two come. They
-- end in the outbox, each with its reason, and without their secrets.
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) VALUES
    ('expired@example.com', 'expired'),
    ('consumed@example.com', 'consumed'),
    ('suspended@example.com', 'suspended'),
    ('activated@example.com', 'activated'),
    ('one@example.com', 'one'),
    ('deleted@example.com', 'deleted'),
    ('two@example.com', 'two'),
    ('three@example.com', 'three');
UPDATE tokens SET created_at = created_at - 86400, expires_at = expires_at - 86400 WHERE account = 1;
UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE account = 2;
UPDATE accounts SET status = 'suspended' WHERE login = 'suspended';
UPDATE accounts SET status = 'active' WHERE login = 'activated';
DELETE FROM accounts WHERE login = 'deleted';
INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');
SELECT login FROM mailroom_dequeue(2);
TABLE mails;
SELECT token_id FROM pending ORDER BY token_id;
TABLE jobs;
-- The same by way of the outbox.
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) VALUES
    ('expired@example.com', 'expired'),
    ('consumed@example.com', 'consumed'),
    ('suspended@example.com', 'suspended'),
    ('one@example.com', 'one'),
    ('two@example.com', 'two'),
    ('three@example.com', 'three');
UPDATE tokens SET created_at = created_at - 86400, expires_at = expires_at - 86400 WHERE account = 1;
UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE account = 2;
UPDATE accounts SET status = 'suspended' WHERE login = 'suspended';
SELECT mailroom_collect(2);
TABLE mails;
TABLE jobs;
-- Nothing but tokens of no use: an empty hand, an empty queue.
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) SELECT format('s%s@example.com', i), format('s%s', i) FROM generate_series(1, 5) i;
UPDATE accounts SET status = 'suspended';
SELECT * FROM mailroom_dequeue(2);
SELECT state, last_error, count(*) FROM outbox GROUP BY 1, 2;
SELECT count(*) FROM pending;

-- The line protocol. The signed token is masked; that it is genuine is checked.
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) VALUES ('one@example.com', 'one'), ('two@example.com', 'two two');
INSERT INTO accounts (email, login, status) VALUES ('three@example.com', 'three', 'active');
INSERT INTO tokens (account, action) VALUES (3, 'password_recovery');
UPDATE tokens SET code = '0000' || id;
SELECT mailroom_dequeue_line() AS line \gset
SELECT regexp_replace(:'line', '[A-Za-z0-9_-]{86}', '<86 characters>', 'g');
SELECT mailroom_verify(f[4], 'password_recovery', f[5]), mailroom_verify(f[9], 'activation'), mailroom_verify(f[14], 'activation')
FROM string_to_array(:'line', ',') f;
SELECT mailroom_dequeue_line() IS NULL AS nothing;
-- A comma would shift every field after it. Such a row ends as error and does not count; mailroom_dequeue
-- has no trouble with it.
INSERT INTO accounts (email, login) VALUES
    ('comma@example.com', 'surname, name'), ('four@example.com', 'four');
SELECT regexp_replace(mailroom_dequeue_line(1), '[A-Za-z0-9_-]{86},[0-9]{5}', '<86 characters>,<code>', 'g');
SELECT mailroom_dequeue_line() IS NULL AS nothing;
TABLE mails;
INSERT INTO accounts (email, login) VALUES ('c.d@example.com', 'd, c');
SELECT email, login FROM mailroom_dequeue();

-- Collected: rows of the outbox that hold all a mail needs, recoveries more urgent than activations.
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) VALUES ('one@example.com', 'one');
INSERT INTO accounts (email, login, status) VALUES ('two@example.com', 'two', 'active');
INSERT INTO tokens (account, action) VALUES (2, 'password_recovery');
SELECT mailroom_collect();
SELECT mailroom_collect();
TABLE mails;
SELECT
    o.token_id,
    o.data ->> 'login' AS login,
    mailroom_verify(o.secrets ->> 'token', t.action, o.secrets ->> 'code') AS genuine,
    o.secrets ->> 'code' = t.code AS code, o.secrets ? 'code' = (t.action = 'password_recovery') AS code_if_needed,
    o.expires_at = to_timestamp(t.expires_at) AS expires_with_token,
    o.message_id IS NOT NULL AS message_id,
    o.failed_attempts, o.max_attempts, o.cc, o.bcc, o.subject, o.body_text, o.body_html, o.item_key, o.group_key,
    o.claimed_by, o.claimed_until, o.provider_id, o.enqueued_by = current_user AS enqueued_by_me,
    o.send_at <= now() AS due
FROM outbox o JOIN tokens t ON t.id = o.token_id
ORDER BY o.id \gx
SELECT count(DISTINCT message_id) FROM outbox;
TABLE jobs;
-- With links.
CALL pg_temp.start_over();
SET mailroom.link_base_url = 'https://example.com/account';
INSERT INTO accounts (email, login) VALUES ('one@example.com', 'one');
INSERT INTO accounts (email, login, status) VALUES ('two@example.com', 'two', 'active');
INSERT INTO tokens (account, action) VALUES (2, 'password_recovery');
SELECT mailroom_collect();
SELECT secrets IS NOT NULL AS token, replace(secrets ->> 'link', secrets ->> 'token', '<token>') AS link FROM outbox ORDER BY id;
-- The setting may end in a slash; the link has one all the same.
SET mailroom.link_base_url = 'https://example.com/account/';
INSERT INTO accounts (email, login) VALUES ('three@example.com', 'three');
SELECT mailroom_collect();
SELECT replace(secrets ->> 'link', secrets ->> 'token', '<token>') AS link FROM outbox WHERE account_id = 3;
RESET mailroom.link_base_url;

-- The secrets of a mail are removed when it ends, by any statement; its time is stamped.
UPDATE outbox SET state = 'sent' WHERE token_id = 1;
SELECT state, data, ended_at IS NOT NULL AS stamped FROM outbox WHERE token_id = 1;
-- A token is live in one mail at most.
INSERT INTO outbox (kind, token_id, account_id, recipients) VALUES ('password_recovery', 2, 2, '{two@example.com}');

-- What the outbox refuses from every role.
CREATE FUNCTION pg_temp.refusal(columns text, given text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    name text;
    col text;
BEGIN
    EXECUTE format('INSERT INTO outbox (kind, recipients%s) VALUES (''own'', ''{a@example.com}''%s)', columns, given);
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS name = CONSTRAINT_NAME, col = COLUMN_NAME;
    RETURN concat_ws(' ', SQLSTATE, nullif(name, ''), nullif(col, ''));
END;
$$;
SELECT what, pg_temp.refusal(columns, given) AS outcome
FROM (VALUES
    ('nothing else', '', ''),
    ('subject of two lines', ', subject', $$, E'Hello\nBcc: all@example.com'$$),
    ('address of two lines', ', cc', $$, ARRAY[E'b@example.com\r\nX: y']$$),
    ('address with a delete character', ', bcc', $$, ARRAY[E'b\x7F@example.com']$$),
    ('data that is no object', ', data', $$, '[]'$$),
    ('no data', ', data', ', NULL'),
    ('negative attempts', ', failed_attempts', ', -1'),
    ('no attempts allowed', ', max_attempts', ', 0'),
    ('claimed by nobody', ', state', $$, 'claimed'$$),
    ('claimed without end', ', state, claimed_by', $$, 'claimed', 'me'$$),
    ('claimed since nobody knows when', ', state, claimed_by, claimed_until', $$, 'claimed', 'me', now()$$),
    ('scheduled and claimed', ', claimed_by, claimed_until', $$, 'me', now()$$),
    ('sent without a time', ', state', $$, 'sent'$$),
    ('scheduled with an end', ', ended_at', ', now()'),
    ('error without a reason', ', state, ended_at', $$, 'error', now()$$),
    ('error with a reason', ', state, ended_at, last_error', $$, 'error', now(), 'because'$$),
    ('sent with secrets', ', state, ended_at, token_id, secrets', $$, 'sent', now(), 1, '{"token": ""}'$$),
    ('cancelled with secrets', ', state, ended_at, token_id, secrets', $$, 'cancelled', now(), 1, '{"code": ""}'$$),
    ('expired with secrets', ', state, ended_at, token_id, secrets', $$, 'expired', now(), 1, '{"link": ""}'$$),
    ('own mail may keep its link', ', state, ended_at, data', $$, 'sent', now(), '{"link": ""}'$$),
    ('item key', ', item_key', $$, 'k'$$),
    ('item key twice', ', item_key', $$, 'k'$$),
    ('item key of an ended mail', ', item_key, state, ended_at', $$, 'k', 'sent', now()$$)
) v (what, columns, given);
-- What ends with a secret, or without its time, is mended rather than refused: an error would show the secret.
SELECT state, token_id, data, secrets, ended_at IS NOT NULL AS stamped FROM outbox WHERE kind = 'own' AND state IN ('sent', 'cancelled', 'expired') ORDER BY id;
\set VERBOSITY terse
INSERT INTO outbox (kind, recipients) VALUES ('', '{a@example.com}');
INSERT INTO outbox (kind, recipients) VALUES ('own', '{}');
INSERT INTO outbox (kind, recipients) VALUES ('own', NULL);
\set VERBOSITY default

DROP VIEW mails;
DROP EXTENSION mailroom CASCADE;
