-- The statements of the articles, on this schema: the walk through the triggers, the query that takes tokens behind
-- jobs.last_seq and raises it, and what mailroom_dequeue and mailroom_collect find afterwards.

SET client_min_messages = error;
CREATE EXTENSION mailroom;
\set SHOW_CONTEXT never

-- The walk.
SELECT * FROM jobs;
INSERT INTO accounts (email, login) VALUES ('user@example.com', 'user123');
SELECT id, email, status, login, activated_at IS NULL AS never FROM accounts WHERE id = 1;
SELECT id, action, octet_length(secret) AS octets, code ~ '^[0-9]{5}$' AS five, account, consumed_at FROM tokens WHERE account = 1;
UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE account = 1 AND action = 'activation';
SELECT status, activated_at IS NOT NULL AS activated FROM accounts WHERE id = 1;
UPDATE accounts SET status = 'suspended' WHERE id = 1;
SELECT status, suspended_at IS NOT NULL AS suspended, unsuspended_at FROM accounts WHERE id = 1;
UPDATE accounts SET status = 'active' WHERE id = 1;
SELECT status, suspended_at, unsuspended_at IS NOT NULL AS unsuspended FROM accounts WHERE id = 1;
INSERT INTO tokens (action, account) VALUES ('password_recovery', 1);
CREATE INDEX accounts_id_status_idx ON accounts (id, status);
CREATE INDEX tokens_id_expires_consumed_action_idx ON tokens (id, expires_at, consumed_at, action);
LISTEN token_insert;
UNLISTEN token_insert;

-- The query, prepared, as the role of collectors. The consumed token stays in pending, whose row says why it ends.
INSERT INTO accounts (email, login) SELECT format('a%s@example.com', i), format('a%s', i) FROM generate_series(1, 4) i;
SELECT * FROM pending ORDER BY token_id;
SET ROLE mailroom_collector;
PREPARE collect (job_type, bigint) AS
WITH token_data AS (
    SELECT t.account, t.secret, t.code, t.expires_at, t.id, t.action, a.email, a.login
    FROM jobs
    JOIN tokens t
        ON t.id > jobs.last_seq
        AND t.expires_at > extract(epoch FROM now())
        AND t.consumed_at IS NULL
        AND t.action IN ('activation', 'password_recovery')
    JOIN accounts a
        ON a.id = t.account
        AND (
            (t.action = 'activation' AND a.status = 'provisioned')
            OR (t.action = 'password_recovery' AND a.status = 'active')
        )
    WHERE jobs.job_type = $1
    ORDER BY id ASC
    LIMIT $2
), updated_jobs AS (
    UPDATE jobs
    SET last_seq = (SELECT max(id) FROM token_data)
    WHERE job_type = $1
      AND EXISTS (SELECT 1 FROM token_data)
    RETURNING last_seq
)
SELECT td.action, td.email, td.login, octet_length(td.secret) AS secret, octet_length(td.code) AS code FROM token_data td;
EXECUTE collect ('mailroom', 3);
SELECT * FROM jobs;
RESET ROLE;
SELECT * FROM pending ORDER BY token_id;

-- ROLLBACK returns what a statement took, and two statements of a transaction take different tokens.
BEGIN;
EXECUTE collect ('mailroom', 1);
EXECUTE collect ('mailroom', 1);
EXECUTE collect ('mailroom', 1);
SELECT * FROM jobs;
ROLLBACK;
SELECT * FROM jobs;
EXECUTE collect ('mailroom', 3);
EXECUTE collect ('mailroom', 3);
SELECT * FROM jobs;

-- Nothing of it is handed out again; the consumed token ends with its reason.
SELECT login FROM mailroom_dequeue();
SELECT mailroom_collect();
SELECT token_id, state, last_error FROM outbox;

-- What mailroom_dequeue and mailroom_collect took is not handed out by the query.
INSERT INTO accounts (email, login) SELECT format('b%s@example.com', i), format('b%s', i) FROM generate_series(1, 3) i;
SELECT login FROM mailroom_dequeue(1);
SELECT mailroom_collect(1);
EXECUTE collect ('mailroom', 10);
SELECT count(*) FROM pending;

-- Also if last_seq does not say so: the first statement fails, the next one reads on behind what was taken.
INSERT INTO accounts (email, login) SELECT format('c%s@example.com', i), format('c%s', i) FROM generate_series(1, 3) i;
CREATE TEMPORARY TABLE figure AS SELECT last_value FROM _last_seq;
SELECT login FROM mailroom_dequeue(2);
SELECT setval('_last_seq', last_value) IS NULL AS set_back FROM figure;
EXECUTE collect ('mailroom', 10);
\set VERBOSITY sqlstate
SELECT setval('_last_seq', last_value) IS NULL AS set_back FROM figure;
EXECUTE collect ('mailroom', 10);
\set VERBOSITY default
EXECUTE collect ('mailroom', 10);

-- By hand: it goes forward only, for what may be handed out only, and nothing else of the row changes.
INSERT INTO accounts (email, login, status) VALUES ('d1@example.com', 'd1', 'provisioned'), ('d2@example.com', 'd2', 'provisioned');
UPDATE accounts SET status = 'suspended' WHERE login = 'd1';
SELECT last_seq AS reached FROM jobs \gset
UPDATE jobs SET last_seq = 1 RETURNING last_seq = :reached AS unchanged;
UPDATE jobs SET last_seq = NULL RETURNING last_seq = :reached AS unchanged;
SELECT count(*) FROM pending;
UPDATE jobs SET last_seq = last_seq + 100 RETURNING last_seq = :reached + 100 AS raised;
SELECT t.id - :reached AS behind FROM pending p JOIN tokens t ON t.id = p.token_id;
UPDATE jobs SET job_type = NULL;
DELETE FROM jobs;

-- Roles that see the position do not move it, and an application does not even see it.
SET ROLE mailroom_monitor;
SELECT job_type FROM jobs;
UPDATE jobs SET last_seq = 1000000;
SET ROLE mailroom_app;
SELECT * FROM jobs;
RESET ROLE;

DROP TABLE figure;
DEALLOCATE collect;
DROP EXTENSION mailroom;
