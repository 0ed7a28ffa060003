-- Problems: each rule of mailroom_problems, and none on a healthy database.

SET client_min_messages = error;
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
\pset format unaligned
CREATE VIEW problems AS
SELECT severity, problem, subject, since < now() - interval '4 min' AS has_long, regexp_replace(detail, '[0-9]+\.[0-9]+\.[0-9]+', '...') AS detail,
    regexp_replace(hint, '[0-9]{4}-[0-9-]+ [0-9:]+', '...') AS hint
FROM mailroom_problems();

-- Without a worker, as long as clients deliver all there is.
SELECT * FROM problems;
SELECT mailroom_send('a@example.com', 'S', 'T') > 0 AS sent;
SELECT * FROM problems;
UPDATE outbox SET send_at = now() - interval '6 min';
SELECT * FROM problems;
-- It waits for a budget.
INSERT INTO budgets (period, amount) VALUES ('day', 0);
SELECT severity, problem, subject, detail, hint FROM problems;
UPDATE budgets SET amount = 11;
SELECT _consume_budget(ARRAY[8], false);
SELECT problem FROM problems;
SELECT _consume_budget(ARRAY[2], false);
SELECT severity, problem, subject, detail FROM problems;
DELETE FROM budgets;
DELETE FROM outbox;

-- The worker's, and that of mailroom send.
INSERT INTO routes (position, kind_pattern, transport) VALUES (1, '%', 'ses');
SELECT * FROM problems;
SELECT mailroom_send('a@example.com', 'S', 'T', send_at => now() - interval '6 min') > 0 AS sent;
SELECT * FROM problems;
SELECT _publish_transports('send/one', '[{"name": "smtp", "provider": "log"}]');
SELECT * FROM problems;
SELECT _publish_transports('send/one', '[{"name": "ses", "provider": "log"}]');
SELECT * FROM problems;
SELECT _publish_transports('send/one', '[{"name": "ses", "provider": "log", "state": "slowed", "reason": "busy"}]', 'line 3: no such key');
SELECT * FROM problems;
SELECT _publish_transports('send/one', '[{"name": "ses", "provider": "log", "state": "throttled", "reason": "429"}]');
SELECT * FROM problems;
UPDATE transports SET since = since - interval '1 h';
SELECT * FROM problems;
SELECT _publish_transports('send/one', '[{"name": "ses", "provider": "log", "state": "paused", "reason": "the credentials were refused (401)", "next_probe_at": 1}]');
SELECT * FROM problems;
-- Another deliverer goes on.
SELECT _publish_transports('send/two', '[{"name": "ses", "provider": "log"}]');
SELECT severity, problem, subject, detail FROM problems;
-- One that has published nothing for long is gone.
UPDATE deliverers SET updated_at = now() - interval '21 min';
SELECT severity, problem FROM problems;
DELETE FROM outbox;
DELETE FROM transports;
DELETE FROM deliverers;
DELETE FROM routes;

-- Tokens.
INSERT INTO accounts (email, login, created_at) VALUES ('ada@example.com', 'ada', 0);
SELECT * FROM problems;
UPDATE tokens SET created_at = created_at - 600;
SELECT * FROM problems;
SET mailroom.batch_timeout = '1h';
SELECT * FROM problems;
RESET mailroom.batch_timeout;
DELETE FROM accounts;

-- A pause, by a person and of a copy.
SELECT mailroom_pause();
SELECT severity, problem, detail = format('The worker was paused by %s.', session_user) AS detail, hint FROM problems;
UPDATE pauses SET since = now() - interval '31 min', paused_by = 'mailroom_collector';
SELECT * FROM problems;
SELECT mailroom_resume();

SET mailroom.redirect_to = 'dev@example.com';
SELECT * FROM problems;
RESET mailroom.redirect_to;

BEGIN;
UPDATE pg_extension SET extversion = '99.0.0' WHERE extname = 'mailroom';
SELECT problem, detail FROM problems;
ROLLBACK;

-- What the purge left; mail that an application keeps is passed by until the next cycle.
INSERT INTO outbox (kind, recipients, state, created_at, ended_at) VALUES ('own', '{a@example.com}', 'sent', now() - interval '8 d 1 h', now() - interval '8 d 1 h');
SELECT * FROM problems;
CREATE TABLE letters (mail bigint REFERENCES outbox);
INSERT INTO letters SELECT id FROM outbox;
SELECT more FROM mailroom_purge(1);
SELECT * FROM problems;
DROP TABLE letters;

-- Of a role that may read none of it, but not of any.
SET ROLE mailroom_sender;
SELECT count(*) FROM mailroom_problems();
SET ROLE mailroom_monitor;
SELECT count(*) FROM mailroom_problems();
SET ROLE mailroom_app;
SELECT count(*) FROM mailroom_problems();
RESET ROLE;

DROP VIEW problems;
DROP EXTENSION mailroom;
