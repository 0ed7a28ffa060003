-- The links of mails: what peek and redeem say of each, what redeeming does besides, and what it leaves alone.

SET client_min_messages = error;
CREATE EXTENSION mailroom;
\set VERBOSITY terse

-- The link that was mailed for a token.
CREATE FUNCTION link(id bigint) RETURNS text LANGUAGE sql AS
    $$ SELECT mailroom_sign(t.action, t.secret, t.code) FROM tokens t WHERE t.id = $1 $$;
-- A code that is not the token's.
CREATE FUNCTION wrong(id bigint) RETURNS text LANGUAGE sql AS
    $$ SELECT lpad(((t.code::int + 1) % 100000)::text, 5, '0') FROM tokens t WHERE t.id = $1 $$;
CREATE FUNCTION code(id bigint) RETURNS text LANGUAGE sql AS $$ SELECT t.code FROM tokens t WHERE t.id = $1 $$;
CREATE FUNCTION recovery(account bigint) RETURNS bigint LANGUAGE sql AS
    $$ INSERT INTO tokens (account, action) VALUES ($1, 'password_recovery') RETURNING id $$;
CREATE VIEW ends AS
SELECT t.id, t.account, t.action, t.consumed_at IS NOT NULL AS consumed, t.revoked_at IS NOT NULL AS revoked, t.wrong_codes
FROM tokens t;

INSERT INTO accounts (email, login) VALUES ('new@example.com', 'new');
INSERT INTO accounts (email, login, status) VALUES ('active@example.com', 'active', 'active');

-- An activation: a peek changes nothing, however often; a redeem activates, once.
SELECT * FROM mailroom_peek(link(1));
SELECT * FROM mailroom_peek(link(1));
SELECT * FROM ends;
SELECT status FROM accounts WHERE id = 1;
BEGIN;
SELECT * FROM mailroom_redeem(link(1));
SELECT * FROM mailroom_redeem(link(1));
ROLLBACK;
SELECT * FROM mailroom_redeem(link(1));
SELECT status, activated_at IS NOT NULL AS stamped FROM accounts WHERE id = 1;
SELECT * FROM mailroom_redeem(link(1));
SELECT * FROM mailroom_peek(link(1));
-- A code with it makes no difference.
INSERT INTO accounts (email, login) VALUES ('second@example.com', 'second') RETURNING id;
SELECT outcome, account FROM mailroom_redeem(link(2), '99999');

-- A link that cannot be used up is not taken for used.
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER keep BEFORE UPDATE ON tokens FOR EACH ROW EXECUTE FUNCTION keep();
INSERT INTO accounts (email, login) VALUES ('kept@example.com', 'kept');
SELECT r.* FROM tokens t JOIN accounts a ON a.id = t.account, mailroom_redeem(link(t.id)) r WHERE a.login = 'kept';
DROP TRIGGER keep ON tokens;
DROP FUNCTION keep();
SELECT outcome FROM tokens t JOIN accounts a ON a.id = t.account, mailroom_redeem(link(t.id)) r WHERE a.login = 'kept';
DELETE FROM accounts WHERE login = 'kept';

-- A recovery needs its code.
SELECT recovery(2) AS t \gset
SELECT * FROM mailroom_peek(link(:t));
SELECT * FROM mailroom_redeem(link(:t));
SELECT * FROM mailroom_redeem(link(:t), '');
SELECT wrong_codes FROM ends WHERE id = :t;
SELECT * FROM mailroom_redeem(link(:t), wrong(:t));
-- What is not five digits is no guess: it is wrong, and not counted. White space alone is no code.
SELECT p.code, r.outcome, r.action
FROM (VALUES ('abc'), ('1234'), ('123456'), ('123 45'), ('+1234'), ('12345;'), ('１２３４５'), ('١٢٣٤٥'), (E' \r\n')) p (code),
    mailroom_redeem(link(:t), p.code) r;
SELECT wrong_codes FROM ends WHERE id = :t;
-- It is counted with white space around, too.
SELECT * FROM mailroom_redeem(link(:t), ' ' || wrong(:t) || E'\r\n');
SELECT wrong_codes FROM ends WHERE id = :t;
-- Link and code are taken as they were pasted.
SELECT * FROM mailroom_peek(E'\t' || link(:t) || E'\r\n');
SELECT r.outcome
FROM (VALUES (E'\r\n'), (E'\u00A0'), (E'\u3000 ')) p (space), mailroom_peek(p.space || link(:t) || p.space) r;
BEGIN;
SELECT outcome FROM mailroom_redeem(link(:t), E'\u3000' || code(:t) || E'\u00A0');
ROLLBACK;
SELECT * FROM mailroom_redeem(' ' || link(:t) || E'\r\n', E'\r\n ' || code(:t) || E'\t\n');
SELECT * FROM ends WHERE id = :t;
-- The wire format stays strict.
SELECT mailroom_verify(link(:t), 'password_recovery', code(:t)), mailroom_verify(link(:t) || ' ', 'password_recovery', code(:t)), mailroom_verify(link(:t), 'password_recovery', ' ' || code(:t));
SELECT * FROM mailroom_redeem(link(:t), code(:t));
SELECT * FROM mailroom_redeem(link(:t), wrong(:t));

-- Five wrong codes lock it, and the right one comes too late. They are counted by the caller's transaction: a rollback
-- takes back what it counted, and a right code that is rolled back is no wrong one.
SELECT recovery(2) AS t \gset
SELECT * FROM mailroom_redeem(link(:t), wrong(:t));
BEGIN;
SELECT * FROM mailroom_redeem(link(:t), wrong(:t));
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT * FROM mailroom_redeem(link(:t), wrong(:t));
ROLLBACK TO a;
SELECT * FROM mailroom_redeem(link(:t), wrong(:t));
COMMIT;
SELECT wrong_codes FROM ends WHERE id = :t;
BEGIN;
SELECT * FROM mailroom_redeem(link(:t), code(:t));
ROLLBACK;
SELECT wrong_codes FROM ends WHERE id = :t;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT wrong_codes FROM ends WHERE id = :t;
SELECT * FROM mailroom_redeem(link(:t), wrong(:t));
SELECT * FROM mailroom_redeem(link(:t), wrong(:t));
SELECT * FROM mailroom_redeem(link(:t), wrong(:t));
SELECT * FROM mailroom_redeem(link(:t), code(:t));
COMMIT;
SELECT * FROM mailroom_redeem(link(:t), code(:t));
SELECT * FROM mailroom_redeem(link(:t), wrong(:t));
SELECT * FROM mailroom_redeem(link(:t));
SELECT * FROM mailroom_peek(link(:t));
SELECT * FROM ends WHERE id = :t;

-- The count is an ordinary column: indexes, generated columns and triggers see it.
SELECT recovery(2) AS t \gset
CREATE INDEX guessed ON tokens (id) WHERE wrong_codes > 0;
ALTER TABLE tokens ADD guessed boolean GENERATED ALWAYS AS (wrong_codes > 0) STORED;
SELECT outcome FROM mailroom_redeem(link(:t), wrong(:t));
SELECT wrong_codes, guessed FROM tokens WHERE id = :t;
SET enable_seqscan = off;
SELECT id = :t AS found FROM tokens WHERE wrong_codes > 0 AND id = :t;
RESET enable_seqscan;
ALTER TABLE tokens DROP guessed;
DROP INDEX guessed;
-- The caller's own version of the row is counted like any other.
ALTER TABLE tokens ADD last_try_at timestamptz;
SELECT recovery(2) AS t \gset
BEGIN;
UPDATE tokens SET last_try_at = now() WHERE id = :t;
SELECT outcome FROM mailroom_redeem(link(:t), wrong(:t));
COMMIT;
SELECT wrong_codes FROM tokens WHERE id = :t;
ALTER TABLE tokens DROP last_try_at;
-- A trigger that suppresses the count does not let anybody guess on for nothing.
CREATE FUNCTION pg_temp.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep BEFORE UPDATE OF wrong_codes ON tokens FOR EACH ROW EXECUTE FUNCTION pg_temp.keep();
SELECT * FROM mailroom_redeem(link(:t), wrong(:t));
DROP TRIGGER keep ON tokens;

-- All that is no good looks the same: nothing but 'invalid'.
SELECT recovery(2) AS used \gset
SELECT outcome FROM mailroom_redeem(link(:used), code(:used));
SELECT recovery(2) AS expired \gset
UPDATE tokens SET created_at = 1, expires_at = 2 WHERE id = :expired;
SELECT recovery(2) AS revoked \gset
UPDATE tokens SET revoked_at = 1 WHERE id = :revoked;
SELECT recovery(2) AS other \gset
SELECT recovery(1) AS suspended \gset
UPDATE accounts SET status = 'suspended' WHERE id = 1;
-- Not even if it were not revoked.
UPDATE tokens SET revoked_at = NULL WHERE id = :suspended;
INSERT INTO tokens (account, action) VALUES (2, 'activation') RETURNING id AS active \gset
INSERT INTO accounts (email, login) VALUES ('third@example.com', 'third') RETURNING id AS third \gset
SELECT recovery(:third) AS provisioned \gset
CREATE TEMPORARY TABLE bad (what text, token text, code text);
INSERT INTO bad VALUES
    ('used', link(:used), code(:used)), ('used, no code', link(:used), NULL), ('used, wrong code', link(:used), wrong(:used)),
    ('expired', link(:expired), code(:expired)), ('expired, wrong code', link(:expired), wrong(:expired)),
    ('revoked', link(:revoked), code(:revoked)),
    ('of a suspended account', link(:suspended), code(:suspended)),
    ('recovery of a provisioned account', link(:provisioned), code(:provisioned)),
    ('activation of an active account', link(:active), NULL),
    ('unknown', mailroom_sign('activation', decode(repeat('ab', 32), 'hex')), NULL),
    ('unknown recovery', mailroom_sign('password_recovery', decode(repeat('ab', 32), 'hex'), '00000'), '00000'),
    ('forged, first character of the MAC', overlay(link(:other) PLACING CASE substr(link(:other), 44, 1) WHEN 'A' THEN 'B' ELSE 'A' END FROM 44), code(:other)),
    ('forged, last but one', overlay(link(:other) PLACING CASE substr(link(:other), 85, 1) WHEN 'A' THEN 'B' ELSE 'A' END FROM 85), code(:other)),
    ('signed as an activation', (SELECT mailroom_sign('activation', secret) FROM tokens WHERE id = :other), code(:other)),
    ('signed for another code', (SELECT mailroom_sign('password_recovery', secret, wrong(id)) FROM tokens WHERE id = :other), wrong(:other)),
    ('MAC of another token', (SELECT translate(encode(secret || substr(decode(translate(link(:used), '-_', '+/') || '==', 'base64'), 33), 'base64'), E'+/=\n', '-_') FROM tokens WHERE id = :other), code(:other)),
    ('too short', left(link(:other), 85), code(:other)), ('too long', link(:other) || 'A', code(:other)),
    ('padded', link(:other) || '==', code(:other)), ('with a space', overlay(link(:other) PLACING ' ' FROM 43 FOR 0), code(:other)),
    ('empty', '', NULL), ('null', NULL, NULL), ('not ASCII', repeat('ä', 43), NULL), ('secret alone', (SELECT encode(secret, 'hex') FROM tokens WHERE id = :other), code(:other));
SELECT b.what, r, p FROM bad b, mailroom_redeem(b.token, b.code) r, mailroom_peek(b.token) p;
SELECT * FROM ends WHERE id = :other;
-- The one they were made from is good.
SELECT outcome FROM mailroom_redeem(link(:other), code(:other));

-- Redeeming one ends its siblings, and the mail that carries them; a recovery ends what else is open.
TRUNCATE accounts, outbox CASCADE;
INSERT INTO accounts (id, email, login) VALUES (101, 'a@example.com', 'a');
INSERT INTO accounts (id, email, login) VALUES (102, 'b@example.com', 'b');
INSERT INTO tokens (account, action) SELECT 101, 'activation' FROM generate_series(1, 2);
SELECT mailroom_collect();
SELECT min(id) AS first, max(id) AS last FROM tokens WHERE account = 101 \gset
INSERT INTO tokens (account, action) VALUES (101, 'activation');
SELECT outcome FROM mailroom_redeem(link(:last));
SELECT account, action, consumed, revoked FROM ends ORDER BY id;
SELECT account_id, state, last_error, secrets IS NOT NULL AS has_token FROM outbox ORDER BY id;
-- What had not been collected is not sent either.
SELECT mailroom_collect();
SELECT account_id, state, last_error FROM outbox ORDER BY id DESC LIMIT 1;
SELECT outcome FROM mailroom_redeem(link(:first));
INSERT INTO tokens (account, action, revoked_at) VALUES (101, 'activation', NULL);
SELECT recovery(101) AS t \gset
SELECT recovery(101);
SELECT outcome FROM mailroom_redeem(link(:t), code(:t));
SELECT action, count(*) FILTER (WHERE NOT consumed AND NOT revoked) AS open FROM ends WHERE account = 101 GROUP BY action ORDER BY action;

-- So do a suspension and another address; nothing else does.
TRUNCATE accounts, outbox CASCADE;
INSERT INTO accounts (id, email, login, status) SELECT i, i || '@example.com', i, 'active' FROM generate_series(1, 4) i;
INSERT INTO tokens (account, action) SELECT i, 'password_recovery' FROM generate_series(1, 4) i;
SELECT mailroom_collect();
UPDATE accounts SET login = 'x' || login, email = email;
UPDATE accounts SET status = 'active';
SELECT count(*) FROM ends WHERE revoked;
UPDATE accounts SET email = 'other@example.com' WHERE id = 1;
UPDATE accounts SET email = upper(email) WHERE id = 2;
UPDATE accounts SET status = 'suspended' WHERE id IN (3, 4);
UPDATE accounts SET status = 'active' WHERE id = 3;
SELECT account, revoked FROM ends ORDER BY account;
SELECT account_id, state, last_error, secrets IS NOT NULL AS has_token FROM outbox ORDER BY account_id;
SELECT t.account, r.outcome FROM tokens t, mailroom_redeem(link(t.id), t.code) r ORDER BY t.account;

-- What a sender had claimed by then is its own. If it comes back, the next claim judges it again.
TRUNCATE accounts, outbox CASCADE;
INSERT INTO accounts (id, email, login, status) SELECT i, i || '@example.com', i, 'active' FROM generate_series(1, 5) i;
INSERT INTO tokens (account, action) SELECT i, 'password_recovery' FROM generate_series(1, 5) i;
SELECT mailroom_collect();
SELECT account_id, state FROM mailroom_claim(10, claimant => 'me') ORDER BY account_id;
SELECT t.account, r.outcome FROM tokens t, mailroom_redeem(link(t.id), t.code) r WHERE t.account = 1;
UPDATE accounts SET status = 'suspended' WHERE id = 2;
UPDATE accounts SET email = 'moved@example.com' WHERE id = 3;
SELECT _revoke_tokens('{4}', '{password_recovery}');
SELECT account_id, state, last_error, secrets IS NOT NULL AS has_token FROM outbox ORDER BY account_id;
SELECT account_id, mailroom_release(id, 'me') AS released FROM outbox WHERE account_id IN (1, 2, 5) ORDER BY account_id;
SELECT account_id, mailroom_mark_error(id, 'busy', claimant => 'me') AS settled FROM outbox WHERE account_id = 3;
UPDATE outbox SET send_at = now() WHERE account_id = 3;
UPDATE outbox SET claimed_at = claimed_at - interval '1 h', claimed_until = clock_timestamp() - interval '1 ms' WHERE account_id = 4;
SELECT account_id, state FROM mailroom_claim(10, claimant => 'you') ORDER BY account_id;
SELECT account_id, state, last_error, secrets IS NOT NULL AS has_secrets, claimed_by, ended_at IS NOT NULL AS ended FROM outbox ORDER BY account_id;
SELECT o.account_id, h.outcome, h.error FROM outbox_history h JOIN outbox o ON o.id = h.outbox_id WHERE o.account_id <> 5 ORDER BY o.account_id, h.ended_at;

-- An account that goes takes its links along.
SELECT recovery(2) AS t \gset
SELECT link(:t) AS link \gset
DELETE FROM accounts WHERE id = 2;
SELECT * FROM mailroom_redeem(:'link', '12345');

-- The application may do all this, and sees nothing behind it.
INSERT INTO accounts (id, email, login) VALUES (201, 'app@example.com', 'app');
SELECT link(max(id)) AS link FROM tokens WHERE account = 201 \gset
SET ROLE mailroom_app;
SELECT * FROM mailroom_peek(:'link');
SELECT * FROM mailroom_redeem(:'link');
SELECT * FROM _find_token_by_link(:'link');
SELECT _is_code('12345', '12345');
RESET ROLE;
-- A sender and a monitor may not.
SET ROLE mailroom_sender;
SELECT * FROM mailroom_peek(:'link');
SELECT * FROM mailroom_redeem(:'link');
SET ROLE mailroom_monitor;
SELECT * FROM mailroom_redeem(:'link');
RESET ROLE;

-- Behind the last secret there is no token to read.
SELECT * FROM mailroom_peek(repeat('_', 85) || 'w');
SELECT * FROM mailroom_redeem(repeat('_', 85) || 'w', '12345');

-- A recovery without a code, which the rules forbid, is no activation.
INSERT INTO accounts (id, email, login, status) VALUES (203, 'codeless@example.com', 'codeless', 'active');
SELECT recovery(203) AS t \gset
SET session_replication_role = replica;
UPDATE tokens SET code = 'none' WHERE id = :t;
RESET session_replication_role;
SELECT p.* FROM tokens t, mailroom_peek(mailroom_sign('activation', t.secret)) p WHERE t.id = :t;

-- The key by which a token is found may have another name, and may not be missed.
ALTER INDEX tokens_secret_key RENAME TO another_name;
CREATE INDEX tokens_secret_some ON tokens (secret) WHERE id < 0;
INSERT INTO accounts (id, email, login) VALUES (202, 'key@example.com', 'key');
SELECT link(max(id)) AS link FROM tokens WHERE account = 202 \gset
SELECT * FROM mailroom_peek(:'link');
ALTER TABLE tokens DROP CONSTRAINT another_name;
CREATE UNIQUE INDEX tokens_secret_down ON tokens (secret DESC);
\set VERBOSITY default
SELECT * FROM mailroom_peek(:'link');
\set VERBOSITY terse

DROP VIEW ends;
DROP EXTENSION mailroom;
