-- Accounts and their lifecycle, as an application writes them: the statements of the guide as they stand
-- there, stamps and clears, uniqueness regardless of case with every form of ON CONFLICT, COPY, what each
-- kind of bad input is told, and what goes with an account that is deleted.

SET client_min_messages = error;
CREATE EXTENSION mailroom;

-- Times vary, so they are shown as set or not; `now` is for those of this very second.
CREATE TEMPORARY VIEW people AS
SELECT
    id, email, login, status,
    status_changed_at IS NOT NULL AS changed,
    activated_at IS NOT NULL AS activated,
    suspended_at IS NOT NULL AS suspended,
    unsuspended_at IS NOT NULL AS unsuspended
FROM accounts
ORDER BY id;
-- What a statement is refused with.
CREATE FUNCTION pg_temp.refusal(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text;
    name text;
    col text;
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, name = CONSTRAINT_NAME, col = COLUMN_NAME;
    RETURN concat_ws(' ', state, nullif(name, ''), nullif(col, ''));
END;
$$;

-- An account, and its activation token in the same transaction.
BEGIN;
INSERT INTO accounts (email, login) VALUES ('user@example.com', 'user123');
TABLE people;
SELECT created_at = floor(extract(epoch FROM now())) AS created_now FROM accounts;
SELECT id, action, account, consumed_at, created_at = floor(extract(epoch FROM now())) AS created_now FROM tokens;
SELECT * FROM pending;
COMMIT;

-- Activation.
BEGIN;
UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE account = 1 AND action = 'activation';
TABLE people;
SELECT
    activated_at = floor(extract(epoch FROM now())) AS activated_now,
    status_changed_at = floor(extract(epoch FROM now())) AS changed_now
FROM accounts;
COMMIT;

-- Suspension, and back.
BEGIN;
UPDATE accounts SET status = 'suspended' WHERE id = 1;
TABLE people;
SELECT suspended_at = floor(extract(epoch FROM now())) AS suspended_now FROM accounts;
COMMIT;
BEGIN;
UPDATE accounts SET status = 'active' WHERE id = 1;
TABLE people;
SELECT unsuspended_at = floor(extract(epoch FROM now())) AS unsuspended_now FROM accounts;
COMMIT;
-- Suspended again: the earlier unsuspension is cleared. The first activation keeps its time throughout.
UPDATE accounts SET activated_at = 1000 WHERE id = 1;
UPDATE accounts SET status = 'suspended' WHERE id = 1;
TABLE people;
UPDATE accounts SET status = 'active' WHERE id = 1;
SELECT status, activated_at FROM accounts;

-- An account that was never activated goes back to provisioned, also if the UPDATE says otherwise, and gets another link. The old one
-- has ended.
CREATE FUNCTION pg_temp.links(name text) RETURNS TABLE (action token_action, verdict text) LANGUAGE sql AS $$
    SELECT v.action, v.verdict::text FROM _token_verdicts v WHERE v.login = name ORDER BY v.token_id
$$;
INSERT INTO accounts (email, login) VALUES ('late@example.com', 'late');
UPDATE accounts SET status = 'suspended' WHERE login = 'late';
UPDATE accounts SET status = 'active' WHERE login = 'late';
SELECT * FROM people WHERE login = 'late';
SELECT * FROM pg_temp.links('late');
UPDATE accounts SET status = 'suspended' WHERE login = 'late';
UPDATE accounts SET status = 'provisioned' WHERE login = 'late';
SELECT * FROM people WHERE login = 'late';
SELECT * FROM pg_temp.links('late');
-- With another address at the same time there is one link, too.
UPDATE accounts SET status = 'suspended' WHERE login = 'late';
UPDATE accounts SET status = 'active', email = 'later@example.com' WHERE login = 'late';
SELECT * FROM pg_temp.links('late');
UPDATE accounts SET email = 'late@example.com' WHERE login = 'late';
SELECT verdict, count(*) FROM pg_temp.links('late') GROUP BY verdict ORDER BY verdict;

-- An active account that is provisioned again: the change is stamped, it is not activated any more, and it gets a link.
UPDATE accounts SET status = 'provisioned' WHERE id = 1;
SELECT * FROM people WHERE id = 1;
SELECT * FROM pg_temp.links('user123');
-- Not even by way of a suspension it is active without the link.
UPDATE accounts SET status = 'suspended' WHERE id = 1;
UPDATE accounts SET status = 'active' WHERE id = 1;
SELECT status FROM accounts WHERE id = 1;
UPDATE accounts SET status = 'active' WHERE id = 1;
SELECT status, activated_at > 1000 AS stamped_again FROM accounts WHERE id = 1;
-- A link that was left over when an account was activated by hand does not work again, nor does a recovery.
INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');
SELECT * FROM pg_temp.links('user123');
UPDATE accounts SET status = 'provisioned' WHERE id = 1;
SELECT * FROM pg_temp.links('user123');
UPDATE accounts SET status = 'active' WHERE id = 1;
SELECT * FROM pg_temp.links('user123');
-- Many at once, and by ON CONFLICT.
BEGIN;
INSERT INTO accounts (id, email, login, status)
SELECT 1000 + i, format('many%s@example.com', i), format('many%s', i), 'active' FROM generate_series(1, 50) i;
UPDATE accounts SET status = 'provisioned' WHERE login ~ '^many';
SELECT v.verdict, count(*) FROM _token_verdicts v WHERE v.login ~ '^many' GROUP BY v.verdict;
INSERT INTO accounts (id, email, login, status) VALUES (1101, 'by-hand@example.com', 'by-hand', 'active');
INSERT INTO accounts (id, email, login) VALUES (1102, 'by-hand@example.com', 'by-hand'), (1103, 'by-hand2@example.com', 'by-hand2')
ON CONFLICT (email) DO UPDATE SET status = 'provisioned';
SELECT v.login, v.verdict, count(*) FROM _token_verdicts v WHERE v.login ~ '^by-hand' GROUP BY 1, 2 ORDER BY 1;
-- An account that is inserted as provisioned was not activated, also if activated_at is given.
INSERT INTO accounts (id, email, login, activated_at) VALUES (1104, 'brought@example.com', 'brought', 1000) RETURNING status, activated_at;
ROLLBACK;
DROP FUNCTION pg_temp.links;

-- A status that stays the same is not stamped.
UPDATE accounts SET status_changed_at = 1000 WHERE id = 1;
UPDATE accounts SET status = 'active' WHERE id = 1;
SELECT status_changed_at FROM accounts WHERE id = 1;
-- Nor is any other column's change.
UPDATE accounts SET login = 'user124' WHERE id = 1;
SELECT status_changed_at FROM accounts WHERE id = 1;

-- Accounts that come with a status, from another system for instance, keep the times they bring.
INSERT INTO accounts (email, login, status) VALUES ('moved@example.com', 'moved', 'active');
INSERT INTO accounts (email, login, status, created_at, activated_at)
VALUES ('older@example.com', 'older', 'active', 900, 1000);
INSERT INTO accounts (email, login, status) VALUES ('banned@example.com', 'banned', 'suspended');
SELECT * FROM people WHERE login IN ('moved', 'older', 'banned');
SELECT created_at, activated_at FROM accounts WHERE login = 'older';
-- No activation mail for them.
SELECT count(*) FROM tokens t JOIN accounts a ON a.id = t.account WHERE a.login IN ('moved', 'older', 'banned');

-- Case: stored in lower case, unique in any.
INSERT INTO accounts (email, login) VALUES ('MiXeD@Example.COM', 'MiXeD') RETURNING email, login;
INSERT INTO accounts (email, login) VALUES ('mixed@EXAMPLE.com', 'other');
INSERT INTO accounts (email, login) VALUES ('other@example.com', 'mIxEd');
UPDATE accounts SET email = 'USER@example.com' WHERE login = 'mixed';
UPDATE accounts SET email = 'Mixed@EXAMPLE.org' WHERE login = 'mixed' RETURNING email;
-- Beyond ASCII, too.
INSERT INTO accounts (email, login) VALUES ('JÜRGEN@example.com', 'Jürgen') RETURNING email, login;
INSERT INTO accounts (email, login) VALUES ('jürgen@EXAMPLE.COM', 'jurgen') ON CONFLICT (email) DO NOTHING RETURNING email;

-- ON CONFLICT in each form: a row that is turned away gets no token.
SELECT count(*) AS tokens FROM tokens \gset before_
INSERT INTO accounts (email, login) VALUES ('User@Example.Com', 'new') ON CONFLICT DO NOTHING RETURNING email;
INSERT INTO accounts (email, login) VALUES ('new@example.com', 'USER124') ON CONFLICT DO NOTHING RETURNING email;
INSERT INTO accounts (email, login) VALUES ('User@Example.Com', 'USER124') ON CONFLICT DO NOTHING RETURNING email;
INSERT INTO accounts (email, login) VALUES ('USER@EXAMPLE.COM', 'new') ON CONFLICT (email) DO NOTHING RETURNING email;
INSERT INTO accounts (email, login) VALUES ('new@example.com', 'User124') ON CONFLICT (login) DO NOTHING RETURNING email;
-- The other key still conflicts.
INSERT INTO accounts (email, login) VALUES ('new@example.com', 'User124') ON CONFLICT (email) DO NOTHING;
INSERT INTO accounts (email, login) VALUES ('uSER@example.com', 'Renamed')
ON CONFLICT (email) DO UPDATE SET login = excluded.login
RETURNING id, email, login;
INSERT INTO accounts (email, login) VALUES ('user@EXAMPLE.com', 'whatever')
ON CONFLICT (email) DO UPDATE SET login = 'Written In Capitals'
RETURNING id, email, login;
SELECT count(*) - :before_tokens AS new_tokens FROM tokens;
-- Of several rows, those that are new get theirs.
INSERT INTO accounts (email, login)
VALUES ('USER@example.com', 'x'), ('fresh@example.com', 'fresh'), ('LATE@example.com', 'y'), ('FRESH@example.com', 'z')
ON CONFLICT DO NOTHING
RETURNING email, login;
SELECT count(*) - :before_tokens AS new_tokens FROM tokens;

-- COPY: one statement, a token for each.
COPY accounts (email, login) FROM STDIN;
Copied.One@example.com	Copied1
copied.two@example.com	copied2
\.
SELECT a.email, a.login, a.status, t.action
FROM accounts a LEFT JOIN tokens t ON t.account = a.id
WHERE a.login LIKE 'copied%' ORDER BY a.id;
-- One bad line, and none of it happened.
\set VERBOSITY terse
COPY accounts (email, login) FROM STDIN;
copied.three@example.com	copied3
no address	copied4
\.
\set VERBOSITY default
SELECT count(*) FROM accounts WHERE login = 'copied3';

-- MERGE, by its own comparison.
MERGE INTO accounts a
USING (VALUES ('Merged@example.com', 'Merged'), ('COPIED.one@example.com', 'ignored')) v (email, login)
ON a.email = lower(v.email)
WHEN NOT MATCHED THEN INSERT (email, login) VALUES (v.email, v.login);
SELECT a.email, a.login, t.action
FROM accounts a LEFT JOIN tokens t ON t.account = a.id
WHERE a.login IN ('merged', 'ignored');

-- Bulk.
INSERT INTO accounts (email, login) SELECT format('b%s@example.com', i), format('b%s', i) FROM generate_series(1, 1000) i;
SELECT count(*) AS accounts, count(t.id) AS tokens, count(p.token_id) AS pending
FROM accounts a
LEFT JOIN tokens t ON t.account = a.id
LEFT JOIN pending p ON p.token_id = t.id
WHERE a.login ~ '^b[0-9]+$';

-- Bad input, each with the constraint that says what is wrong.
SELECT what, pg_temp.refusal(format('INSERT INTO accounts (email, login) VALUES (%L, %L)', email, login)) AS outcome
FROM (VALUES
    ('no @', 'example.com', 'l'),
    ('nothing before @', '@example.com', 'l'),
    ('nothing after @', 'user@', 'l'),
    ('two @', 'user@example.com@example.org', 'l'),
    ('empty', '', 'l'),
    ('missing', NULL, 'l'),
    ('newline in email', E'user\n@example.com', 'l'),
    ('newline at its end', E'user@example.com\n', 'l'),
    ('header injection', E'user@example.com\r\nX-Priority: 1', 'l'),
    ('tab', E'us\ter@example.com', 'l'),
    ('delete character', E'us\x7Fer@example.com', 'l'),
    ('space', 'us er@example.com', 'l'),
    ('space before', ' user@example.com', 'l'),
    ('space after', 'user@example.com ', 'l'),
    ('two addresses in the domain', 'user@example.com，victim＠example.org', 'l'),
    ('another address in angle brackets', '<eve@evil.example>.corp.example', 'l'),
    ('comment', 'eve@evil.example(@corp.example', 'l'),
    ('quoted local part', '"ada"@example.com', 'l'),
    ('link', 'mailto:ada@example.com', 'l'),
    ('dot at the end', 'ada@example.com.', 'l'),
    ('two dots', 'ada@example..com', 'l'),
    ('domain without a form in ASCII', 'ada@example。com。', 'l'),
    ('invisible character', U&'\200Bada@example.com', 'l'),
    ('mark of direction', U&'ada\202E@example.com', 'l'),
    ('control character beyond ASCII', U&'ada\0085@example.com', 'l'),
    ('255 characters', repeat('a', 63) || '@' || repeat(repeat('d', 63) || '.', 2) || repeat('d', 63), 'l'),
    ('65 characters before the @', repeat('a', 65) || '@example.com', 'l'),
    ('10,000 characters', repeat('a', 10000) || '@example.com', 'l'),
    ('login missing', 'login@example.com', NULL),
    ('login empty', 'login@example.com', ''),
    ('newline in login', 'login@example.com', E'a\nb'),
    ('login of 255 characters', 'login@example.com', repeat('l', 255)),
    ('login with an invisible character', 'login@example.com', U&'admin\200B'),
    ('login with a joiner', 'login@example.com', U&'ad\200Dmin'),
    ('login with a mark of direction', 'login@example.com', U&'\202Enimda'),
    ('login with a control character beyond ASCII', 'login@example.com', U&'ad\0085min'),
    ('login with a line separator', 'login@example.com', U&'ad\2028min'),
    ('login with a space before', 'login@example.com', ' admin'),
    ('login with a wide space after', 'login@example.com', U&'admin\3000'),
    -- And these are fine.
    ('254 characters', repeat('a', 62) || '@' || repeat(repeat('d', 63) || '.', 2) || repeat('d', 63), 'a254'),
    ('letters that are not ASCII', repeat('é', 32) || '@example.com', 'e32'),
    ('domain that is not ASCII', 'user@bücher.example', 'idn'),
    ('its form in ASCII', 'USER@xn--bcher-KVA.example', 'idn2'),
    ('login of 254 characters', 'login254@example.com', repeat('l', 254)),
    ('login with a space', 'login@example.com', 'Anna Müller'),
    ('login of full width', 'wide@example.com', 'ａdmin'),
    ('plus, dots and dashes', 'first.last+tag@mail.exa-mple.com', 'plus')
) v (what, email, login);
-- The message that a person sees.
\set VERBOSITY terse
INSERT INTO accounts (email, login) VALUES ('example.com', 'l');
\echo :SQLSTATE
\set VERBOSITY default
-- An error shows no character that a reader does not see.
INSERT INTO accounts (email, login) VALUES (U&'\200Bada@example.com', 'l');
INSERT INTO accounts (email, login) VALUES ('ada@example.com', U&'admin\200B\000A');
INSERT INTO accounts (email, login) VALUES ('<eve@evil.example>.corp.example', repeat('l', 100));
INSERT INTO accounts (email, login) VALUES ('eve@evil.example', repeat('l', 300));
-- One mailbox is one account, however its domain is written. By place: how wide psql takes a soft hyphen depends on its release.
SELECT v.place, pg_temp.refusal(format('INSERT INTO accounts (email, login) VALUES (%L, %L)', v.email, 'one ' || v.place)) AS outcome
FROM unnest(ARRAY[
    'ada@example.com', 'ADA@EXAMPLE.COM', U&'ada@exam\00ADple.com', 'ada@example。com', 'ada@ｅxample.com',
    'a@bücher.example', 'a@xn--bcher-kva.example', 'A@BÜCHER.example', U&'a@bu\0308cher.example'
]) WITH ORDINALITY v (email, place);
INSERT INTO accounts (email, login) VALUES ('A@Bücher.example', 'conflict') ON CONFLICT (email) DO UPDATE SET login = excluded.login
RETURNING email, login;
SELECT email FROM accounts WHERE email = mailroom_address_key(' A@bücher.EXAMPLE ');
SELECT mailroom_address_key(a) AS key
FROM unnest(ARRAY['Ünal@Example.com', 'ada@example.com.', '<ada@example.com>', 'a@b, c@d', '', NULL, E'\tada@example.com ']) a;
-- By UPDATE just the same.
SELECT pg_temp.refusal($$UPDATE accounts SET email = 'example.com' WHERE id = 1$$);
SELECT pg_temp.refusal($$UPDATE accounts SET login = '' WHERE id = 1$$);
SELECT pg_temp.refusal($$UPDATE accounts SET status = 'unknown' WHERE id = 1$$);
SELECT pg_temp.refusal($$UPDATE accounts SET status = NULL WHERE id = 1$$);
DELETE FROM accounts;

-- Times reach beyond 2038.
INSERT INTO accounts (email, login, created_at) VALUES ('future@example.com', 'future', 4102444800);
SELECT to_timestamp(created_at) AT TIME ZONE 'UTC' AS created FROM accounts;
DELETE FROM accounts;

-- Deletion takes along the tokens and what still waits: of the queue, and of the outbox, where the secrets
-- go and the row stays as a record. What was sent stays as it is.
SELECT count(*) FROM pending;
ALTER SEQUENCE accounts_id_seq RESTART;
ALTER SEQUENCE tokens_id_seq RESTART;
INSERT INTO accounts (email, login) VALUES ('sent@example.com', 'sent'), ('scheduled@example.com', 'scheduled');
SELECT mailroom_collect();
UPDATE outbox SET state = 'sent', data = data - '{token,code,link}'::text[], ended_at = now() WHERE token_id = 1;
INSERT INTO accounts (email, login) VALUES ('queued@example.com', 'queued'), ('stays@example.com', 'stays');
DELETE FROM accounts WHERE login <> 'stays';
SELECT login, status FROM people;
SELECT id, account FROM tokens;
SELECT * FROM pending;
SELECT id, recipients, state, last_error, ended_at IS NOT NULL AS ended, data FROM outbox ORDER BY id;
-- A token that goes alone, the same.
SELECT mailroom_collect();
SELECT state FROM outbox WHERE token_id = 4;
DELETE FROM tokens;
SELECT state, last_error, data FROM outbox WHERE token_id = 4;

DROP VIEW people;

-- An address that is corrected before it was proved gets a link of its own, at COMMIT; one of an active account does not.
INSERT INTO accounts (email, login) VALUES ('tpyo@example.com', 'corrected');
INSERT INTO accounts (email, login, status) VALUES ('old@example.com', 'settled', 'active');
UPDATE accounts SET email = CASE login WHEN 'corrected' THEN 'typo@example.com' ELSE 'new@example.com' END WHERE login IN ('corrected', 'settled');
UPDATE accounts SET email = 'TYPO@example.com' WHERE login = 'corrected';
SELECT a.login, t.action, t.revoked_at IS NOT NULL AS revoked, p.lane
FROM accounts a LEFT JOIN tokens t ON t.account = a.id LEFT JOIN pending p ON p.token_id = t.id
WHERE a.login IN ('corrected', 'settled') ORDER BY a.id, t.id;

DROP EXTENSION mailroom;
