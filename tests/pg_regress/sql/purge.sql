-- The purge of mail that the application does not let go: it is passed by, and the rest is purged. Each story begins with a
-- new session, because a session remembers where its last purge ended.

SET client_min_messages = error;
CREATE EXTENSION mailroom;

CREATE PROCEDURE start_over() LANGUAGE sql SET client_min_messages = error AS $$
    TRUNCATE outbox, outbox_attempts RESTART IDENTITY CASCADE;
    ALTER SEQUENCE _purged_outbox RESTART;
    INSERT INTO outbox (kind, recipients, state, created_at, ended_at)
    SELECT 'own', '{a@example.com}', 'sent', now() - interval '9 days', now() - interval '8 days' + i * interval '1 h' FROM generate_series(1, 6) i;
    INSERT INTO outbox_attempts (outbox_id, attempt, outcome, ended_at, error)
    SELECT id, 1, 'failed', now() - interval '1 day', 'no' FROM outbox;
    INSERT INTO outbox (kind, recipients, subject, body_text, created_at) VALUES ('own', '{a@example.com}', 'S', 'T', now() - interval '9 days');
$$;
CREATE VIEW remaining AS
SELECT o.id, o.state, (SELECT count(*) FROM outbox_attempts a WHERE a.outbox_id = o.id) AS attempts FROM outbox o ORDER BY o.id;

CREATE TABLE orders (mail bigint CONSTRAINT orders_mail REFERENCES outbox);
CALL start_over();
\c -
INSERT INTO orders VALUES (2), (4);
SELECT * FROM mailroom_purge();
TABLE remaining;
SELECT * FROM mailroom_purge();
SELECT count(*) FROM outbox_attempts;
-- What is let go later is purged later.
DELETE FROM orders WHERE mail = 2;
\c -
SELECT * FROM mailroom_purge();
TABLE remaining;

-- In small batches.
CALL start_over();
\c -
INSERT INTO orders VALUES (1), (3), (4);
SELECT purged, more FROM mailroom_purge(2);
SELECT purged, more FROM mailroom_purge(2);
SELECT purged, more FROM mailroom_purge(2);
SELECT purged, more FROM mailroom_purge(2);
TABLE remaining;
-- In a session for each batch.
CALL start_over();
INSERT INTO orders VALUES (1), (3), (4);
\c -
SELECT purged, more FROM mailroom_purge(2);
\c -
SELECT purged, more FROM mailroom_purge(2);
\c -
SELECT purged, more FROM mailroom_purge(2);
\c -
SELECT purged, more FROM mailroom_purge(2);
TABLE remaining;

-- A foreign key that follows.
ALTER TABLE orders DROP CONSTRAINT orders_mail, ADD CONSTRAINT orders_mail FOREIGN KEY (mail) REFERENCES outbox ON DELETE CASCADE;
\c -
SELECT * FROM mailroom_purge();
TABLE remaining;
SELECT count(*) FROM orders;
DROP TABLE orders;

-- A trigger that refuses, and an error that is not the mail's.
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.id = 5 THEN
        RAISE EXCEPTION USING ERRCODE = TG_ARGV[0], MESSAGE = 'it stays';
    END IF;
    RETURN OLD;
END;
$$;
CREATE TRIGGER refuse BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION refuse('P0001');
CALL start_over();
\c -
SELECT * FROM mailroom_purge();
TABLE remaining;
DROP TRIGGER refuse ON outbox;
CREATE TRIGGER refuse BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION refuse('53100');
\c -
\set SHOW_CONTEXT never
SELECT * FROM mailroom_purge();
DROP TRIGGER refuse ON outbox;
\c -
SELECT * FROM mailroom_purge();
TABLE remaining;

-- A row of another table that the application does not let go keeps nothing else.
CALL start_over();
DELETE FROM outbox_attempts;
INSERT INTO accounts (email, login, status) VALUES ('a@example.com', 'a', 'active');
INSERT INTO tokens (account, action, created_at, expires_at) SELECT 1, 'password_recovery', 1, 2 FROM generate_series(1, 2);
INSERT INTO link_requests (email, action, requested_at) SELECT 'a@example.com', 'password_recovery', now() - interval '8 days' FROM generate_series(1, 2);
INSERT INTO outbox_attempts (outbox_id, attempt, outcome, ended_at, error) SELECT 0, 1, 'failed', now() - interval '8 days', 'no' FROM generate_series(1, 2);
INSERT INTO job_runs (started_at, duration, trigger) SELECT now() - interval '8 days', '1 s', 'poll' FROM generate_series(1, 2);
CREATE TABLE audit (token bigint REFERENCES tokens, request bigint REFERENCES link_requests, attempt bigint REFERENCES outbox_attempts, run bigint REFERENCES job_runs);
INSERT INTO audit SELECT (SELECT min(id) FROM tokens), (SELECT min(id) FROM link_requests), (SELECT min(id) FROM outbox_attempts), (SELECT min(id) FROM job_runs);
CREATE VIEW left_over AS
SELECT (SELECT count(*) FROM tokens) AS tokens, (SELECT count(*) FROM link_requests) AS requests,
    (SELECT count(*) FROM outbox_attempts) AS attempts, (SELECT count(*) FROM job_runs) AS runs, (SELECT count(*) FROM outbox WHERE state = 'sent') AS mails;
SELECT * FROM mailroom_purge();
TABLE left_over;
DELETE FROM audit;
\c -
SELECT * FROM mailroom_purge();
TABLE left_over;
DROP VIEW left_over;
DROP TABLE audit;

-- What has ended otherwise is purged before it expires.
CALL start_over();
INSERT INTO accounts (email, login, status) VALUES ('e@example.com', 'e', 'active');
INSERT INTO tokens (account, action, created_at, expires_at, consumed_at, revoked_at)
SELECT a.id, 'password_recovery', 1000, 4000000000, e.consumed_at, e.revoked_at
FROM accounts a CROSS JOIN (VALUES (2000, NULL), (NULL, 2000), (NULL, NULL)) e (consumed_at, revoked_at)
WHERE a.login = 'e';
SELECT purged FROM mailroom_purge();
SELECT count(*), count(*) FILTER (WHERE consumed_at IS NULL AND revoked_at IS NULL) AS open FROM tokens;

-- Rows from the future keep no others: the clock may have been wrong.
CALL start_over();
DELETE FROM accounts;
ALTER SEQUENCE accounts_id_seq RESTART;
ALTER SEQUENCE tokens_id_seq RESTART;
INSERT INTO accounts (email, login) SELECT i || '@example.com', i FROM generate_series(1, 6) i;
UPDATE tokens SET created_at = created_at + CASE WHEN id <= 4 THEN 1e8 ELSE -1e7 END, expires_at = expires_at + CASE WHEN id <= 4 THEN 1e8 ELSE -1e7 END;
INSERT INTO job_runs (started_at, duration, collected, skipped, trigger)
SELECT CASE WHEN i <= 4 THEN 'infinity' ELSE now() - interval '1 year' END, '1 s', 1, 0, 'poll' FROM generate_series(1, 6) i;
INSERT INTO link_requests (action, email, requested_at)
SELECT 'activation', i || '@example.com', CASE WHEN i <= 4 THEN now() + interval '1 year' ELSE now() - interval '1 year' END FROM generate_series(1, 6) i;
INSERT INTO outbox_attempts (outbox_id, outcome, ended_at)
SELECT 1000, 'late', CASE WHEN i <= 4 THEN now() + interval '1 year' ELSE now() - interval '1 year' END FROM generate_series(1, 6) i;
\c -
SELECT purged, more FROM mailroom_purge(4);
SELECT purged, more FROM mailroom_purge(4);
SELECT purged, more FROM mailroom_purge(4);
SELECT purged, more FROM mailroom_purge(4);
SELECT (SELECT count(*) FROM tokens) AS tokens, (SELECT count(*) FROM job_runs) AS job_runs, (SELECT count(*) FROM link_requests) AS link_requests,
    (SELECT count(*) FROM outbox_attempts WHERE outbox_id = 1000) AS outbox_attempts;

DROP FUNCTION refuse;
DROP PROCEDURE start_over;
DROP VIEW remaining;
DROP EXTENSION mailroom;
