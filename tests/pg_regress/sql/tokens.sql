-- Tokens: what the defaults give, what is refused by which constraint, and what consuming one does: an
-- activation token activates a provisioned account, and nothing else activates anything.

SET client_min_messages = error;
CREATE EXTENSION mailroom;

CREATE FUNCTION pg_temp.refusal(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text;
    name text;
    col text;
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    -- A rule of tokens is named by the message alone.
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, name = CONSTRAINT_NAME, col = COLUMN_NAME;
    RETURN concat_ws(' ', state, coalesce(nullif(name, ''), substring(SQLERRM FROM 'constraint "(.*)"')), nullif(col, ''));
END;
$$;

-- 1 is provisioned, 2 active, 3 suspended before it was ever activated.
INSERT INTO accounts (email, login) VALUES ('new@example.com', 'new');
INSERT INTO accounts (email, login, status) VALUES ('active@example.com', 'active', 'active');
INSERT INTO accounts (email, login) VALUES ('banned@example.com', 'banned');
UPDATE accounts SET status = 'suspended' WHERE id = 3;

-- Defaults.
INSERT INTO tokens (account, action) VALUES (2, 'password_recovery');
INSERT INTO tokens (account, action) SELECT 2, 'password_recovery' FROM generate_series(1, 100);
SELECT
    count(*),
    bool_and(octet_length(secret) = 32) AS secrets_of_32_bytes,
    count(DISTINCT secret) = count(*) AS secrets_differ,
    bool_and(code ~ '^[0-9]{5}$') AS codes_of_five_digits,
    count(DISTINCT code) > 50 AS codes_differ,
    min(expires_at - created_at) AS shortest_life,
    max(expires_at - created_at) AS longest_life,
    count(consumed_at) AS consumed
FROM tokens;
-- Each waits in its lane: 0 for recoveries, which are urgent, 1 for activations.
SELECT t.action, p.lane, count(*) FROM tokens t LEFT JOIN pending p ON p.token_id = t.id GROUP BY 1, 2 ORDER BY 1, 2;
-- The life of new tokens is a setting for each action, and only of new ones; a default of the table's own comes first.
SELECT action, expires_at - created_at AS life FROM tokens GROUP BY 1, 2 ORDER BY 1;
SET mailroom.recovery_ttl = '1h';
SET mailroom.activation_ttl = '2h';
INSERT INTO tokens (account, action) VALUES (2, 'password_recovery') RETURNING expires_at - created_at AS life;
INSERT INTO tokens (account, action) VALUES (1, 'activation') RETURNING expires_at - created_at AS life;
ALTER TABLE tokens ALTER COLUMN expires_at SET DEFAULT _epoch() + 60;
INSERT INTO tokens (account, action) VALUES (2, 'password_recovery') RETURNING expires_at - created_at AS life;
ALTER TABLE tokens ALTER COLUMN expires_at DROP DEFAULT;
DELETE FROM tokens WHERE action = 'activation' AND account = 1 AND id > 1;
RESET mailroom.recovery_ttl;
RESET mailroom.activation_ttl;
SELECT expires_at - created_at AS life FROM tokens WHERE id = 1;
DELETE FROM tokens WHERE action = 'password_recovery';

-- Bad input.
SELECT what, pg_temp.refusal('INSERT INTO tokens (account, action' || columns || ') VALUES (2, ''password_recovery''' || given || ')') AS outcome
FROM (VALUES
    ('31-byte secret', ', secret', $$, decode(repeat('ab', 31), 'hex')$$),
    ('33-byte secret', ', secret', $$, decode(repeat('ab', 33), 'hex')$$),
    ('empty secret', ', secret', $$, ''$$),
    ('no secret', ', secret', ', NULL'),
    ('code of four digits', ', code', $$, '1234'$$),
    ('code of six digits', ', code', $$, '123456'$$),
    ('code with a letter', ', code', $$, '1234a'$$),
    ('code with a sign', ', code', $$, '-1234'$$),
    ('code with a newline', ', code', $$, E'12345\n'$$),
    ('code in Arabic digits', ', code', $$, '١٢٣٤٥'$$),
    ('no code', ', code', ', NULL'),
    ('expiry before creation', ', created_at, expires_at', ', 1000, 999'),
    ('expiry at creation', ', created_at, expires_at', ', 1000, 1000'),
    ('expiry in the past', ', expires_at', ', 1000'),
    ('no expiry', ', expires_at', ', NULL'),
    ('expiry after creation', ', created_at, expires_at', ', 1000, 1001'),
    ('leading zeros', ', code', $$, '00000'$$)
) v (what, columns, given);
SELECT pg_temp.refusal($$INSERT INTO tokens (account, action) VALUES (999, 'activation')$$) AS no_such_account;
SELECT pg_temp.refusal($$INSERT INTO tokens (account, action) VALUES (NULL, 'activation')$$) AS no_account;
SELECT pg_temp.refusal($$INSERT INTO tokens (account, action) VALUES (1, 'invitation')$$) AS no_such_action;
SELECT pg_temp.refusal($$INSERT INTO tokens (account, action, secret) SELECT account, action, secret FROM tokens WHERE id = 1$$) AS secret_twice;
SELECT pg_temp.refusal($$UPDATE tokens SET secret = '\x00' WHERE id = 1$$) AS secret_update;
SELECT pg_temp.refusal($$UPDATE tokens SET code = '' WHERE id = 1$$) AS code_update;
SELECT pg_temp.refusal($$UPDATE tokens SET expires_at = created_at WHERE id = 1$$) AS expiry_update;
\set VERBOSITY terse
INSERT INTO tokens (account, action, secret) VALUES (1, 'activation', decode(repeat('ab', 31), 'hex'));
\echo :SQLSTATE
\set VERBOSITY default
DELETE FROM tokens WHERE action = 'password_recovery';
SELECT id, account, action FROM tokens ORDER BY id;

-- A token that was used before it came is not mailed, and activates no account: consuming is an UPDATE.
INSERT INTO tokens (account, action, consumed_at) VALUES (1, 'activation', extract(epoch FROM now())) RETURNING id \gset used_
SELECT count(*) AS waiting FROM pending WHERE token_id = :used_id;
SELECT id, status FROM accounts ORDER BY id;

-- A recovery token activates no account, in each status of it.
INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts;
UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE action = 'password_recovery';
SELECT id, status FROM accounts ORDER BY id;

-- An activation token does nothing for a suspended account, nor for an active one.
INSERT INTO tokens (account, action) VALUES (2, 'activation');
UPDATE accounts SET activated_at = 1000, status_changed_at = 1000 WHERE id = 2;
UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE account IN (2, 3) AND action = 'activation';
SELECT id, status, activated_at, status_changed_at = 1000 AS unstamped FROM accounts WHERE id IN (2, 3) ORDER BY id;

-- For a provisioned one it does, as the original system wrote it. Only the change from unused to used counts.
UPDATE tokens SET expires_at = expires_at + 60 WHERE id = 1;
UPDATE tokens SET consumed_at = NULL WHERE id = 1;
SELECT status FROM accounts WHERE id = 1;
UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE account = 1 AND action = 'activation' AND consumed_at IS NULL;
SELECT status, activated_at IS NOT NULL AS stamped FROM accounts WHERE id = 1;
UPDATE accounts SET status = 'provisioned' WHERE id = 1;
UPDATE tokens SET consumed_at = consumed_at + 1 WHERE id = 1;
SELECT status FROM accounts WHERE id = 1;
-- Many at once.
INSERT INTO accounts (email, login) SELECT format('m%s@example.com', i), format('m%s', i) FROM generate_series(1, 10) i;
UPDATE tokens t SET consumed_at = extract(epoch FROM now()) FROM accounts a WHERE a.id = t.account AND a.login ~ '^m[0-9]';
SELECT status, count(*) FROM accounts WHERE login ~ '^m[0-9]' GROUP BY status;

-- Epoch seconds beyond 2038.
INSERT INTO tokens (account, action, expires_at) VALUES (1, 'activation', 4102444800)
RETURNING to_timestamp(expires_at) AT TIME ZONE 'UTC' AS expires;

-- A token is known by its id everywhere: it is positive and it stays.
\set VERBOSITY terse
INSERT INTO tokens (id, account, action) VALUES (0, 1, 'activation');
\echo :SQLSTATE
UPDATE tokens SET id = id + 1000000 WHERE account = 1;
\echo :SQLSTATE

-- TRUNCATE takes everything back: with RESTART IDENTITY the ids will belong to others.
TRUNCATE accounts RESTART IDENTITY CASCADE;
SELECT count(*) FROM pending;
INSERT INTO accounts (email, login) VALUES ('before@example.com', 'before');
SELECT mailroom_collect();
INSERT INTO accounts (email, login) VALUES ('waits@example.com', 'waits');
TRUNCATE accounts RESTART IDENTITY CASCADE;
SELECT token_id, recipients, state, last_error, secrets IS NOT NULL AS has_token FROM outbox ORDER BY id DESC LIMIT 1;
SELECT count(*) FROM pending;
INSERT INTO accounts (email, login) VALUES ('after@example.com', 'after');
SELECT mailroom_collect();
SELECT token_id, recipients, state FROM outbox WHERE state = 'scheduled';

DROP EXTENSION mailroom;
