-- One account at a time: its token and its place in the queue are stored without a statement, unless somebody else has
-- a say in the rows of these tables. Either way the outcome is the same.

SET client_min_messages = error;
SET track_functions = 'all';
CREATE EXTENSION mailroom;

-- Adds an account; tells what came of it, and whether it took a statement for the token and for the queue.
CREATE FUNCTION pg_temp.add(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    issued bigint := coalesce(pg_stat_get_xact_function_calls('_issue_activations'::regproc), 0);
    queued bigint := coalesce(pg_stat_get_xact_function_calls('_enqueue_tokens'::regproc), 0);
    state text;
    constraint_name text;
BEGIN
    INSERT INTO accounts (email, login) VALUES (name || '@example.com', name);
    issued := coalesce(pg_stat_get_xact_function_calls('_issue_activations'::regproc), 0) - issued;
    queued := coalesce(pg_stat_get_xact_function_calls('_enqueue_tokens'::regproc), 0) - queued;
    RETURN (
        SELECT format('%s token, %s, lane %s; statements: %s, %s', count(*), string_agg(t.action::text, ' '),
            string_agg(p.lane::text, ' '), issued, queued)
        FROM accounts a
        JOIN tokens t ON t.account = a.id
        LEFT JOIN pending p ON p.token = t.id
        WHERE a.login = name
    );
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, constraint_name = CONSTRAINT_NAME;
    RETURN concat_ws(' ', state, nullif(constraint_name, ''));
END;
$$;

SELECT pg_temp.add('first');
SELECT pg_temp.add('second');
SELECT octet_length(secret), code ~ '^[0-9]{5}$' AS digits, expires_at - created_at AS life, consumed_at, revoked_at, wrong_codes
FROM tokens ORDER BY id;
SET mailroom.token_ttl = '1h';
SELECT pg_temp.add('hour');
RESET mailroom.token_ttl;
SELECT expires_at - created_at AS life FROM tokens ORDER BY id DESC LIMIT 1;
-- A token by itself enters the queue the same way; several take a statement.
BEGIN;
INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');
SELECT coalesce(pg_stat_get_xact_function_calls('_enqueue_tokens'::regproc), 0) AS statements;
INSERT INTO tokens (account, action) VALUES (1, 'password_recovery'), (1, 'activation');
SELECT coalesce(pg_stat_get_xact_function_calls('_enqueue_tokens'::regproc), 0) AS statements;
SELECT p.lane, t.action FROM pending p JOIN tokens t ON t.id = p.token WHERE t.account = 1 ORDER BY p.token;
ROLLBACK;
-- A savepoint takes all of it back.
BEGIN;
SAVEPOINT s;
INSERT INTO accounts (email, login) VALUES ('gone@example.com', 'gone');
ROLLBACK TO s;
INSERT INTO accounts (email, login) VALUES ('stays@example.com', 'stays');
COMMIT;
SELECT (SELECT count(*) FROM accounts) AS accounts, (SELECT count(*) FROM tokens) AS tokens, (SELECT count(*) FROM pending) AS pending;

-- What was there before is an error like any other, by the name of its constraint.
SELECT setval('tokens_id_seq', 1, false);
SELECT pg_temp.add('again');
DELETE FROM pending WHERE token = 3;
INSERT INTO pending (lane, token) VALUES (1, 100);
SELECT setval('tokens_id_seq', 100, false);
SELECT pg_temp.add('queued');
DELETE FROM pending WHERE token = 100;
SELECT setval('tokens_id_seq', 200, false);
-- An id that is refused.
ALTER SEQUENCE tokens_id_seq MINVALUE -10 RESTART -5;
SELECT pg_temp.add('negative');
ALTER SEQUENCE tokens_id_seq RESTART 201;
SELECT pg_temp.add('positive');

-- An account that is gone before its token comes, or might be.
CREATE TABLE log (id bigint);
CREATE FUNCTION pg_temp.forget(id bigint) RETURNS bigint LANGUAGE sql AS 'DELETE FROM accounts a WHERE a.id = forget.id RETURNING a.id';
CREATE FUNCTION pg_temp.note(id bigint) RETURNS bigint LANGUAGE sql AS 'INSERT INTO log VALUES (note.id) RETURNING 1::bigint';
CREATE FUNCTION pg_temp.rename(id bigint) RETURNS bigint LANGUAGE sql AS 'UPDATE accounts a SET login = ''renamed'' WHERE a.id = rename.id RETURNING 2::bigint';
\set VERBOSITY terse
SET client_min_messages = notice;
INSERT INTO accounts (email, login) VALUES ('forgotten@example.com', 'forgotten') RETURNING pg_temp.forget(id) > 0;
SET client_min_messages = error;
\set VERBOSITY default
INSERT INTO accounts (email, login) VALUES ('noted@example.com', 'noted') RETURNING pg_temp.note(id);
INSERT INTO accounts (email, login) VALUES ('named@example.com', 'named') RETURNING pg_temp.rename(id);
SELECT a.login, t.action, p.lane FROM accounts a JOIN tokens t ON t.account = a.id JOIN pending p ON p.token = t.id
WHERE a.login IN ('forgotten', 'noted', 'renamed') ORDER BY a.login;
SELECT count(*) AS orphans FROM tokens t WHERE NOT EXISTS (SELECT FROM accounts a WHERE a.id = t.account);

-- Others who have a say: the session notices that they came and that they went.
CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'MR001'; END $$;
CREATE TRIGGER say AFTER INSERT ON tokens FOR EACH STATEMENT EXECUTE FUNCTION say();
SELECT pg_temp.add('say1');
DROP TRIGGER say ON tokens;
CREATE TRIGGER say BEFORE INSERT ON pending FOR EACH ROW EXECUTE FUNCTION say();
SELECT pg_temp.add('say2');
DROP TRIGGER say ON pending;
CREATE TRIGGER say BEFORE DELETE ON pending FOR EACH ROW EXECUTE FUNCTION say();
SELECT pg_temp.add('say3');
DROP TRIGGER say ON pending;
ALTER TABLE tokens ADD CONSTRAINT mine CHECK (code = '') NOT VALID;
SELECT pg_temp.add('check1');
ALTER TABLE tokens DROP CONSTRAINT mine;
ALTER TABLE pending ADD CONSTRAINT mine CHECK (lane = 0) NOT VALID;
SELECT pg_temp.add('check2');
ALTER TABLE pending DROP CONSTRAINT mine;
CREATE RULE mine AS ON INSERT TO pending DO INSTEAD NOTHING;
SELECT pg_temp.add('rule');
DROP RULE mine ON pending;
ALTER TABLE tokens DISABLE TRIGGER tokens_enqueue;
SELECT pg_temp.add('disabled');
ALTER TABLE tokens ENABLE ALWAYS TRIGGER tokens_enqueue;
SELECT pg_temp.add('always');
ALTER TABLE tokens ENABLE TRIGGER tokens_enqueue;
ALTER TABLE tokens ALTER CONSTRAINT tokens_account_fkey DEFERRABLE;
SELECT pg_temp.add('deferrable');
ALTER TABLE tokens ALTER CONSTRAINT tokens_account_fkey NOT DEFERRABLE;
ALTER TABLE tokens ADD CONSTRAINT mine FOREIGN KEY (wrong_codes) REFERENCES accounts NOT VALID;
SELECT pg_temp.add('key');
ALTER TABLE tokens DROP CONSTRAINT mine;
ALTER TABLE accounts ENABLE ALWAYS TRIGGER accounts_issue_activation;
SET session_replication_role = replica;
SELECT pg_temp.add('replica');
RESET session_replication_role;
ALTER TABLE accounts ENABLE TRIGGER accounts_issue_activation;
SELECT pg_temp.add('nobody');

-- Columns and indexes of somebody's own.
ALTER TABLE tokens ADD plain text, ADD constant integer DEFAULT 7;
SELECT pg_temp.add('columns1');
ALTER TABLE tokens ADD word text DEFAULT 'word';
SELECT pg_temp.add('columns2');
SELECT plain, constant, word FROM tokens ORDER BY id DESC LIMIT 1;
ALTER TABLE tokens DROP word, DROP plain, DROP constant;
SELECT pg_temp.add('dropped');
CREATE INDEX mine ON pending (token);
SELECT pg_temp.add('index1');
CREATE INDEX mine_too ON pending ((token + 1));
SELECT pg_temp.add('index2');
DROP INDEX mine_too;
CREATE INDEX mine_too ON pending (token) WHERE lane = 1;
SELECT pg_temp.add('index3');
DROP INDEX mine_too;
CREATE INDEX mine_too ON pending USING hash (token);
SELECT pg_temp.add('index4');
DROP INDEX mine_too;
-- Every index has every row.
ANALYZE tokens, pending;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*), count(DISTINCT token) FROM (SELECT token FROM pending WHERE token > 0 ORDER BY token) p;
SELECT count(*) FROM (SELECT lane, token FROM pending WHERE lane = 1 ORDER BY lane, token) p;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SET enable_seqscan = on;
SELECT count(*) FROM pending;

DROP EXTENSION mailroom CASCADE;
-- Another one in the same session has tables of its own.
CREATE EXTENSION mailroom;
SELECT pg_temp.add('anew');
DROP EXTENSION mailroom CASCADE;
