-- Operators: what they did is recorded by the functions that they call, under the role that logged in.

SET client_min_messages = error;
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
\pset format unaligned
CREATE ROLE regress_ann IN ROLE mailroom_support;
CREATE ROLE regress_root IN ROLE mailroom_admin;
CREATE ROLE regress_shop IN ROLE mailroom_app;
CREATE VIEW actions AS
SELECT a.role, a.action, a.outbox_id, regexp_replace(a.detail::text, '\d{4}-\d\d-\d\dT[^"]*', '...') AS detail
FROM operator_actions a
ORDER BY a.id;
GRANT SELECT ON actions TO regress_ann;

-- What an application does to its own mail and links is not recorded.
INSERT INTO accounts (email, login, status) VALUES ('ada@example.com', 'ada', 'active');
INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');
SET SESSION AUTHORIZATION regress_shop;
SELECT mailroom_send(r || '@example.com', 'S', 'T') FROM unnest('{a,b,c,d}'::text[]) r;
SELECT mailroom_reschedule(4, now()), mailroom_cancel(4);
SELECT mailroom_request_recovery('ada@example.com'), mailroom_revoke(1);
SET SESSION AUTHORIZATION regress_root;
INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');
RESET SESSION AUTHORIZATION;
SELECT * FROM actions;

-- An operator's calls are recorded if they changed something, and not if they are rolled back.
SET SESSION AUTHORIZATION regress_ann;
SELECT mailroom_reschedule(1, now()), mailroom_cancel(1), mailroom_cancel(1), mailroom_retry(1);
SELECT mailroom_request_activation('ada@example.com'), mailroom_revoke(1), mailroom_revoke(1), mailroom_revoke(0);
BEGIN;
SELECT mailroom_cancel(2);
ROLLBACK;
RESET SESSION AUTHORIZATION;
UPDATE outbox SET state = 'error', last_error = 'busy' WHERE id IN (2, 3);
SET SESSION AUTHORIZATION regress_ann;
SELECT mailroom_retry(2);
SELECT mailroom_retry_failed(since => '-infinity'), mailroom_retry_failed(kind => 'none');
SELECT * FROM actions;
SET SESSION AUTHORIZATION regress_root;
SELECT mailroom_pause(), mailroom_pause(), mailroom_resume(), mailroom_resume(), mailroom_wake_worker();
RESET SESSION AUTHORIZATION;
INSERT INTO routes (position, kind_pattern, transport) VALUES (1, 'none', 'ses');
SET SESSION AUTHORIZATION regress_root;
-- The role that logged in, whatever it has become since.
SET ROLE mailroom_admin;
SELECT mailroom_reroute('', 'ses');
RESET SESSION AUTHORIZATION;
SELECT * FROM actions OFFSET 6;

-- In the history of the mail; one row for a cancellation.
SELECT outbox_id, outcome, claimant, error IS NOT NULL AS has_detail, ended_at IS NOT NULL AS has_time
FROM outbox_history
WHERE outbox_id < 4
ORDER BY outbox_id, ended_at;

-- Neither who nor when can be written, and nothing is taken back.
SET SESSION AUTHORIZATION regress_ann;
INSERT INTO operator_actions (action, role) VALUES ('paused', 'regress_root');
INSERT INTO _new_actions (action, role) VALUES ('paused', 'regress_root');
CREATE TEMPORARY VIEW mine AS SELECT * FROM _new_actions;
ALTER VIEW mine ALTER COLUMN detail SET DEFAULT '{"x": 1}';
INSERT INTO mine (action) VALUES ('paused') RETURNING action;
INSERT INTO mine (action) VALUES ('paused');
SELECT * FROM actions OFFSET 10;
\set VERBOSITY terse
INSERT INTO _new_actions (action, detail) VALUES ('paused', '[]');
INSERT INTO _new_actions (action, detail) VALUES ('paused', jsonb_build_object('x', repeat('x', 5000)));
\set VERBOSITY default
DELETE FROM operator_actions;
UPDATE operator_actions SET role = 'regress_root';
DROP VIEW mine;
SET SESSION AUTHORIZATION regress_root;
DELETE FROM operator_actions;
UPDATE operator_actions SET role = 'regress_ann';
SET SESSION AUTHORIZATION regress_shop;
SELECT count(*) FROM operator_actions;
RESET SESSION AUTHORIZATION;

-- They go with time, and those of a mail with TRUNCATE, whose ids may come again.
UPDATE operator_actions SET at = now() - interval '1 year' WHERE action = 'woken';
SELECT purged > 0 AS purged FROM mailroom_purge();
SELECT count(*) FROM operator_actions WHERE action = 'woken';
SELECT count(*) > 0 AS some FROM operator_actions WHERE outbox_id IS NOT NULL;
TRUNCATE outbox;
SELECT count(*) FROM operator_actions WHERE outbox_id IS NOT NULL;

DROP VIEW actions;
DROP EXTENSION mailroom;
DROP ROLE regress_ann, regress_root, regress_shop;
