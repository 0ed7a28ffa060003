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
-- The count before is that of the retry, and writes nothing.
BEGIN READ ONLY;
SELECT _retryable(NULL, NULL, NULL, NULL, '-infinity', 10001), _retryable('none', NULL, NULL, NULL, NULL, 10001);
COMMIT;
SELECT mailroom_retry_failed(since => '-infinity'), mailroom_retry_failed(kind => 'none');
SELECT * FROM actions;
SET SESSION AUTHORIZATION regress_root;
SELECT mailroom_pause(), mailroom_pause(), mailroom_resume(), mailroom_resume(), mailroom_wake_worker();
RESET SESSION AUTHORIZATION;
INSERT INTO routes (position, kind_pattern, transport) VALUES (1, 'none', 'ses');
SET SESSION AUTHORIZATION regress_root;
-- The role that logged in, not that of SET ROLE.
SET ROLE mailroom_admin;
SELECT mailroom_reroute('', 'ses');
RESET SESSION AUTHORIZATION;
SELECT * FROM actions OFFSET 6;

-- In the history of the mail; one row for a cancellation.
SELECT outbox_id, outcome, claimant, error IS NOT NULL AS has_detail, ended_at IS NOT NULL AS has_time
FROM outbox_history
WHERE outbox_id < 4
ORDER BY outbox_id, ended_at;

-- A mail is sent again as it was, for its role, without its item_key and with what is left of its time.
CREATE FUNCTION compare(one bigint, other bigint) RETURNS TABLE (field text, original jsonb, copy jsonb) LANGUAGE sql AS $$
    SELECT e.key, e.value, to_jsonb(c) -> e.key
    FROM outbox o
    JOIN outbox c ON c.id = other
    CROSS JOIN jsonb_each(to_jsonb(o)) e
    WHERE o.id = one
      AND e.value <> to_jsonb(c) -> e.key
      AND e.key NOT IN ('id', 'message_id', 'created_at', 'updated_at', 'send_at', 'ended_at', 'claimed_at')
    ORDER BY e.key COLLATE "C"
$$;
SET SESSION AUTHORIZATION regress_shop;
SELECT mailroom_send(
    'Ann <a@example.com>, b@example.com', 'Subject', 'Text', '<p>HTML', 'c@example.com', 'd@example.com', 'receipt', '{"n": 1}',
    expires_at => now() + interval '1 d', priority => 7, item_key => 'key', group_key => 'group', max_attempts => 3, transport => 'ses',
    reply_to => 'r@example.com', headers => '{"X-A": "b"}', unsubscribe_url => 'https://example.com/u',
    attachments => '[{"filename": "a.txt", "content": "QQ=="}, {"filename": "b.txt", "content": "QQ=="}]'
) AS mail \gset
SET SESSION AUTHORIZATION regress_ann;
SELECT mailroom_send_again(:mail);
RESET SESSION AUTHORIZATION;
SELECT count(id) FROM mailroom_claim(10, claimant => 'me', transports => '{ses}');
SELECT mailroom_mark_sent(:mail, claimant => 'me');
SET SESSION AUTHORIZATION regress_ann;
SELECT mailroom_send_again(0), mailroom_send_again(NULL);
SELECT mailroom_send_again(:mail) AS copy \gset
RESET SESSION AUTHORIZATION;
SELECT * FROM compare(:mail, :copy);
SELECT position, filename, content FROM mailroom_attachments(:copy);
SELECT count(*) FROM outbox_attachments a JOIN outbox_attachments b USING (position, file_id, digest, size) WHERE a.outbox_id = :mail AND b.outbox_id = :copy;
SELECT role, outbox_id = :mail AS is_original, detail = jsonb_build_object('mail', :copy) AS names_copy FROM operator_actions WHERE action = 'sent_again';
SELECT claimant, error = 'as mail ' || :copy AS names_copy FROM outbox_history WHERE outbox_id = :mail AND outcome = 'sent_again';
UPDATE outbox SET expires_at = now() WHERE id = :mail;
SELECT mailroom_send_again(:mail) AS copy \gset
SELECT expires_at FROM outbox WHERE id = :copy;
SELECT mailroom_send_again(:mail) > 0 AS third, mailroom_send_again(:mail) > 0 AS fourth, mailroom_send_again(:mail) > 0 AS fifth;
SELECT mailroom_send_again(:mail);
UPDATE operator_actions SET at = at - interval '1 h' WHERE action = 'sent_again';
DELETE FROM outbox_files WHERE content = 'A';
SELECT mailroom_send_again(:mail);
-- Not a link, whose secret is gone; nor by an application.
SELECT mailroom_collect() >= 0 AS collected;
INSERT INTO outbox (kind, recipients, token_id, state) VALUES ('password_recovery', '{ada@example.com}', 1, 'sent') RETURNING id AS link \gset
SELECT mailroom_send_again(:link);
UPDATE outbox SET token_id = NULL WHERE id = :link;
SELECT mailroom_send_again(:link);
SET SESSION AUTHORIZATION regress_shop;
SELECT mailroom_send_again(:mail);
RESET SESSION AUTHORIZATION;
-- One that a trigger of the application keeps out.
CREATE FUNCTION keep_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep_out BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION keep_out();
SELECT mailroom_send_again(1);
DROP FUNCTION keep_out CASCADE;
DROP FUNCTION compare;

-- Neither who nor when can be written, and nothing is changed.
SET SESSION AUTHORIZATION regress_ann;
INSERT INTO operator_actions (action, role) VALUES ('paused', 'regress_root');
INSERT INTO _new_actions (action, role) VALUES ('paused', 'regress_root');
CREATE TEMPORARY VIEW mine AS SELECT * FROM _new_actions;
ALTER VIEW mine ALTER COLUMN detail SET DEFAULT '{"x": 1}';
INSERT INTO mine (action) VALUES ('paused') RETURNING action;
INSERT INTO mine (action) VALUES ('paused');
SELECT * FROM actions WHERE action = 'paused';
\set VERBOSITY terse
INSERT INTO _new_actions (action, detail) VALUES ('paused', '[]');
INSERT INTO _new_actions (action, detail) VALUES ('paused', jsonb_build_object('x', repeat('x', 5000)));
\set VERBOSITY default
DELETE FROM operator_actions;
UPDATE operator_actions SET role = 'regress_root';
DROP VIEW mine;
SET SESSION AUTHORIZATION regress_root;
UPDATE operator_actions SET role = 'regress_ann';
SET SESSION AUTHORIZATION regress_shop;
SELECT count(*) FROM operator_actions;
RESET SESSION AUTHORIZATION;

-- What mail of a kind says, though not what a mail said.
SET SESSION AUTHORIZATION regress_ann;
SELECT kind, locale FROM mailroom_templates ORDER BY 1, 2 LIMIT 1;
SELECT subject FROM mailroom_preview('activation');
SELECT data FROM outbox;
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
