-- That the grants suffice for what each role is there for, and for no more: it is done, rather than asked as in privileges.

SET client_min_messages = error;
\set SHOW_CONTEXT never
\set VERBOSITY terse
CREATE EXTENSION mailroom;
\pset format unaligned
-- A role with no right but to connect stands for PUBLIC.
CREATE ROLE mail_nobody;

INSERT INTO accounts (email, login) VALUES ('one@example.com', 'one');

SET ROLE mail_nobody;
SELECT * FROM accounts;
SELECT * FROM tokens;
SELECT * FROM pending;
SELECT * FROM outbox;
SELECT * FROM jobs;
SELECT * FROM job_runs;
SELECT * FROM _token_verdicts;
INSERT INTO accounts (email, login) VALUES ('nobody@example.com', 'nobody');
SELECT * FROM mailroom_dequeue();
SELECT mailroom_dequeue_line();
SELECT mailroom_collect();
SELECT mailroom_sign('activation', decode(repeat('00', 32), 'hex'));
SELECT mailroom_verify('', 'activation');
SELECT mailroom_pause();
SELECT mailroom_resume();
SELECT * FROM mailroom_status();
SELECT mailroom_wake_worker();
SELECT * FROM mailroom_claim();
SELECT * FROM mailroom_claim_group();
SELECT mailroom_mark_sent(1);
SELECT mailroom_mark_error(1, 'no');
SELECT mailroom_release(1);
SELECT mailroom_retry(1);
SELECT mailroom_retry_failed();
SELECT mailroom_purge();
SELECT * FROM outbox_attempts;
SELECT * FROM outbox_history;
SELECT * FROM pauses;
SELECT mailroom_send('a@example.com', 'S', 'T');
SELECT * FROM mailroom_send_many('[]');
SELECT mailroom_cancel(1);
SELECT mailroom_reschedule(1, now());
SELECT * FROM mailroom_preview('activation');
SELECT * FROM templates;
INSERT INTO _own_changes (ids, change) VALUES ('{1}', 'cancel');
-- Not read: an older minor release names a function of the view that it may not call, instead.
SELECT has_table_privilege('_new_mail', 'SELECT');
SELECT * FROM _own_item_keys;
SELECT mailroom_attach('tokens', 'code');
SELECT mailroom_detach('tokens');
SELECT * FROM mailroom_attached;
SELECT * FROM link_requests;
SELECT mailroom_peek('');
SELECT mailroom_redeem('');
SELECT mailroom_request_recovery('one@example.com');
SELECT mailroom_request_activation('one@example.com');
SELECT mailroom_answer_requests();
SELECT mailroom_rotate_key();
SELECT _random_code();
SELECT _sign('activation', decode(repeat('00', 32), 'hex'), NULL);
RESET ROLE;

-- The application registers people, in any spelling, and sees no token and no mail.
SET ROLE mailroom_app;
INSERT INTO accounts (email, login) VALUES ('App@Example.com', 'App') RETURNING id, email, login, status;
INSERT INTO accounts (email, login) VALUES ('APP@example.com', 'again') ON CONFLICT (email) DO NOTHING;
INSERT INTO accounts (email, login) VALUES ('other@example.com', 'APP') ON CONFLICT DO NOTHING;
COPY accounts (email, login) FROM STDIN;
copied@example.com	copied
\.
SELECT id, email, login, status FROM accounts ORDER BY id;
SELECT count(created_at) FROM accounts;
INSERT INTO accounts (email, login, status) VALUES ('cheat@example.com', 'cheat', 'active');
UPDATE accounts SET status = 'active';
UPDATE accounts SET email = 'mine@example.com';
DELETE FROM accounts;
SELECT * FROM tokens;
INSERT INTO tokens (account, action) VALUES (1, 'password_recovery');
UPDATE tokens SET consumed_at = 1;
SELECT * FROM pending;
SELECT * FROM outbox;
SELECT * FROM _token_verdicts;
SELECT * FROM mailroom_dequeue();
SELECT mailroom_collect();
SELECT * FROM mailroom_claim();
SELECT mailroom_mark_sent(1);
SELECT mailroom_retry(1);
SELECT mailroom_purge();
SELECT * FROM outbox_history;
SELECT mailroom_pause();
SELECT * FROM mailroom_status();
-- It redeems links, and can neither make them nor try codes at them without being counted.
SELECT mailroom_verify('', 'activation');
SELECT _verify('', 'activation', NULL);
SELECT mailroom_sign('activation', decode(repeat('00', 32), 'hex'));
SELECT _sign('activation', decode(repeat('00', 32), 'hex'), NULL);
-- It schedules mail in its own name, and takes back and moves its own and no other, with any arguments.
RESET ROLE;
CREATE ROLE mail_shop;
CREATE ROLE mail_clerk;
GRANT mailroom_app TO mail_shop, mail_clerk;
GRANT mail_shop TO mail_clerk;
INSERT INTO outbox (id, kind, recipients, item_key) VALUES (900, 'x', '{foreign@example.com}', 'foreign');
SET ROLE mail_shop;
SELECT mailroom_send('shop@example.com', 'S', 'T', item_key => 'shop') AS shop \gset
SELECT count(*) FROM mailroom_send_many('[{"recipients": "shop@example.com", "subject": "S", "body_text": "T", "item_key": "shop-2"}]');
SELECT mailroom_cancel(900), mailroom_cancel_item('foreign'), mailroom_reschedule(900, now()), mailroom_reschedule_item('foreign', now());
BEGIN; SELECT mailroom_send('shop@example.com', 'S', 'T', item_key => 'foreign', on_conflict => 'replace') <> 900 AS key_of_its_own;
SELECT mailroom_cancel_item('foreign'), (SELECT count(*) FROM _own_item_keys) AS still_has; ROLLBACK;
SELECT subject FROM mailroom_preview('activation');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('activation', 'en', 'S', 'T');
UPDATE templates SET subject = 'S';
SELECT * FROM _own_changes;
-- Around the functions it gets no further: neither another's name, nor mail with a token, nor another state.
SELECT state, item_key FROM _own_item_keys ORDER BY item_key;
INSERT INTO _new_mail (kind, recipients, enqueued_by) VALUES ('x', '{a@example.com}', 'mailroom_admin');
INSERT INTO _new_mail (kind, recipients, token_id) VALUES ('activation', '{a@example.com}', 1);
INSERT INTO _new_mail (kind, recipients) VALUES ('activation', '{a@example.com}');
INSERT INTO _new_mail (kind, recipients, state) VALUES ('x', '{a@example.com}', 'sent');
INSERT INTO _new_mail (kind, recipients) VALUES ('x', ARRAY[E'a@example.com\r\nBcc: b@example.com']);
SELECT subject FROM _new_mail;
SELECT count(id), bool_and(id <> 900) AS own FROM _new_mail;
UPDATE _new_mail SET item_key = 'mine';
DELETE FROM _new_mail;
-- ON CONFLICT DO UPDATE would reach, and lock, mail that a view hides: it takes the right to insert and the right to
-- update on one view, and there is none with both.
INSERT INTO _new_mail (kind, recipients, subject, body_text, item_key) VALUES ('x', '{a@example.com}', 'S', 'T', 'foreign')
ON CONFLICT (item_key) WHERE item_key IS NOT NULL AND state IN ('scheduled', 'claimed') DO UPDATE SET subject = 'mine' WHERE false;
INSERT INTO _new_mail (kind, recipients, subject, body_text, message_id) VALUES ('x', '{a@example.com}', 'S', 'T', gen_random_uuid())
ON CONFLICT (message_id) DO UPDATE SET priority = 1 WHERE false;
INSERT INTO _new_mail (kind, recipients, subject, body_text, item_key) VALUES ('x', '{a@example.com}', 'S', 'T', 'foreign')
ON CONFLICT (message_id) DO UPDATE SET send_at = now();
INSERT INTO _new_mail (kind, recipients, subject, body_text, item_key) VALUES ('x', '{a@example.com}', 'S', 'T', 'foreign')
ON CONFLICT DO NOTHING RETURNING id;
INSERT INTO _own_changes (ids, change) VALUES ('{900}', 'cancel'), ('{900}', 'replace') RETURNING done;
INSERT INTO _own_changes (ids, change, caller) VALUES ('{900}', 'cancel', 'mailroom_admin');
INSERT INTO _own_changes (ids, change) VALUES ('{900}', 'sent');
UPDATE _own_changes SET change = 'cancel';
DELETE FROM _own_changes;
-- It can lock no mail: a claimant would have to wait.
SELECT done FROM _own_changes FOR UPDATE;
SELECT id FROM _new_mail FOR KEY SHARE;
SELECT id FROM _own_item_keys FOR SHARE;
BEGIN; LOCK TABLE _new_mail IN SHARE MODE; ROLLBACK;
BEGIN; LOCK TABLE _own_changes IN SHARE MODE; ROLLBACK;
SELECT nextval('outbox_id_seq') IS NOT NULL AS may_burn_numbers;
SELECT setval('outbox_id_seq', 1);
-- Another application does not get at it; a role that has its rights does.
SET ROLE mailroom_app;
SELECT mailroom_cancel(:shop), mailroom_cancel_item('shop');
SET ROLE mail_clerk;
SELECT mailroom_reschedule(:shop, '2040-01-01 00:00:00+00'), mailroom_cancel_item('shop') AS by_key, mailroom_cancel(:shop);
SET ROLE mail_shop;
INSERT INTO _own_changes (ids, change, send_at) VALUES (ARRAY[:shop]::bigint[], 'reschedule', now()) RETURNING done;
-- A function that lends its owner's rights makes its owner the sender.
RESET ROLE;
CREATE FUNCTION lent() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $$ SELECT mailroom_send('lent@example.com', 'S', 'T') $$;
ALTER FUNCTION lent() OWNER TO mail_shop;
SET ROLE mail_nobody;
SELECT lent() IS NOT NULL AS lent;
RESET ROLE;
SELECT recipients, enqueued_by = current_user AS by_owner, enqueued_by = 'mail_shop' AS by_shop, state FROM outbox ORDER BY id = 900, id;
-- What a role left behind that is gone is for the administrator.
DROP FUNCTION lent();
REASSIGN OWNED BY mail_shop TO mail_clerk;
DROP OWNED BY mail_shop;
DROP ROLE mail_shop;
SET ROLE mail_clerk;
SELECT mailroom_cancel_item('shop-2');
SET ROLE mailroom_admin;
SELECT mailroom_cancel_item('shop-2'), mailroom_cancel(900);
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('activation', 'en', 'S', 'T');
DELETE FROM templates;
RESET ROLE;
DROP OWNED BY mail_clerk;
DROP ROLE mail_clerk;
DELETE FROM outbox;
-- Their tokens came all the same, by the rights of mailroom_admin.
SELECT a.login, t.action FROM accounts a LEFT JOIN tokens t ON t.account = a.id ORDER BY a.id;

-- The sender takes no token, and purges nothing, pauses nothing, not even by saying that a mail ended long ago.
SET ROLE mailroom_sender;
SELECT login FROM mailroom_dequeue(1);
SELECT mailroom_collect(1);
SELECT secret FROM _token_verdicts;
SELECT _sign('activation', decode(repeat('00', 32), 'hex'), NULL);
INSERT INTO outbox (kind, recipients, subject, body_text) VALUES ('message', '{anybody@example.com}', 'S', 'T');
SELECT * FROM mailroom_purge();
SELECT mailroom_pause();
SELECT _pause_if_copied(0::oid, (txid_current() + 1000)::text::xid);
-- Nor by what counts, or by what tells of transports.
SELECT setval('_spent_month', 4000000000);
SELECT _lock_budgets(); SELECT _unlock_budgets();
DELETE FROM transports; DELETE FROM deliverers;
BEGIN; LOCK TABLE transports IN ACCESS EXCLUSIVE MODE; ROLLBACK;
BEGIN; LOCK TABLE outbox IN SHARE MODE; ROLLBACK;
SELECT _forget_workers();
RESET ROLE;
CREATE ROLE mail_relay IN ROLE mailroom_sender;
SET SESSION AUTHORIZATION mail_relay;
SELECT _publish_transports('mailroom worker/1/a', '[]');
SELECT _publish_transports('mailroom send/relay', '[{"name": "relay", "provider": "smtp"}]');
SELECT name, deliverer FROM transports;
SELECT _publish_transports('mailroom send/relay', '[]');
RESET SESSION AUTHORIZATION;
DROP ROLE mail_relay;
-- The collector takes what waits, and writes nothing but the outbox, the diary and the figure.
SET ROLE mailroom_collector;
SELECT login FROM mailroom_dequeue(1);
SELECT mailroom_dequeue_line(1) IS NOT NULL AS line;
SELECT mailroom_collect(1);
SELECT state, recipients, enqueued_by FROM outbox;
SELECT * FROM jobs;
SELECT mailroom_verify('', 'activation');
SELECT collected FROM _run_batch(1, 'poll');
SELECT waiting FROM _pending_summary(1);
SELECT mailroom_sign('activation', decode(repeat('00', 32), 'hex'));
SELECT * FROM accounts;
SELECT * FROM tokens;
-- It claims and settles, purges what is old, and changes neither the words nor the addresses of a mail. New mail it
-- may write, and the data of any: hand-out and settling do.
BEGIN;
INSERT INTO outbox (kind, recipients, subject, body_text) VALUES ('message', '{anybody@example.com}', 'S', 'T') RETURNING state, enqueued_by;
ROLLBACK;
SELECT id FROM mailroom_claim(1);
SELECT mailroom_mark_error(1, 'busy');
UPDATE outbox SET send_at = now();
SELECT id, failed_attempts FROM mailroom_claim(1);
SELECT mailroom_extend(1), mailroom_release(1), mailroom_release(1);
SELECT id FROM mailroom_claim_group();
SELECT id FROM mailroom_claim(1);
SELECT mailroom_mark_sent(1, 'provider'), mailroom_mark_sent(1, 'late', 'somebody');
SELECT outbox_id, outcome, error FROM outbox_history ORDER BY ended_at;
SELECT * FROM mailroom_purge();
SELECT mailroom_retry(1);
UPDATE outbox SET body_text = 'mine';
UPDATE outbox_attempts SET error = NULL;
DELETE FROM outbox_attempts;
SELECT mailroom_pause();
SELECT _pause_if_copied(0::oid, (txid_current() + 1000)::text::xid);
INSERT INTO pauses DEFAULT VALUES;
INSERT INTO pending VALUES (1, 1);
UPDATE outbox SET recipients = '{mine@example.com}';
DELETE FROM outbox;
DELETE FROM job_runs;
INSERT INTO accounts (email, login) VALUES ('sender@example.com', 'sender');
RESET ROLE;

-- The monitor sees counts, states and reasons, but no address and no content.
SET ROLE mailroom_monitor;
SELECT state, kind, priority, last_error, failed_attempts FROM outbox;
SELECT outbox_id, outcome, error FROM outbox_history ORDER BY ended_at;
SELECT mailroom_claim();
SELECT mailroom_retry_failed();
SELECT mailroom_purge();
SELECT count(*) FROM pending;
SELECT * FROM jobs;
SELECT collected, skipped, trigger, error FROM job_runs;
SELECT worker_pid, paused, waiting, oldest_waiting, errors_in_a_row FROM mailroom_status();
SELECT mailroom_pause();
SELECT * FROM outbox;
SELECT recipients FROM outbox;
SELECT outbox_id, outcome, transport, error FROM outbox_attempts ORDER BY id;
SELECT refused_recipients FROM outbox_attempts;
SELECT data FROM outbox;
SELECT subject FROM outbox;
SELECT body_text FROM outbox;
SELECT * FROM accounts;
SELECT * FROM tokens;
SELECT * FROM _token_verdicts;
SELECT mailroom_collect();
SELECT mailroom_verify('', 'activation');
UPDATE jobs SET last_seq = 0;
RESET ROLE;

-- Support sees to whom mail went and what became of it, has it tried again or ended, and sends new links; what mail says
-- and secrets are none of its business, and it signs nothing.
INSERT INTO accounts (email, login) VALUES ('caller@example.com', 'caller');
SELECT mailroom_collect() > 0 AS collected;
UPDATE outbox SET state = 'error', last_error = 'busy' WHERE recipients = '{caller@example.com}';
INSERT INTO outbox (kind, recipients, subject, body_text, state, last_error) VALUES ('invoice', '{customer@example.com}', 'Your invoice', 'A lot.', 'error', 'busy');
SET ROLE mailroom_support;
SELECT recipients, subject, state, last_error FROM outbox WHERE state = 'error' ORDER BY id;
SELECT email, status FROM accounts WHERE login = 'caller';
SELECT action, consumed_at, wrong_codes FROM tokens WHERE account = (SELECT id FROM accounts WHERE login = 'caller');
SELECT count(*) > 0 AS told FROM outbox_history;
SELECT count(refused_recipients) FROM outbox_attempts;
SELECT body_text FROM outbox;
SELECT data FROM outbox;
SELECT secrets FROM outbox;
SELECT * FROM _mail_secrets;
SELECT secret FROM tokens;
SELECT code FROM tokens;
SELECT * FROM _token_verdicts;
SELECT * FROM link_requests;
SELECT mailroom_retry(id) FROM outbox WHERE kind = 'invoice';
SELECT mailroom_retry(id) FROM outbox WHERE recipients = '{caller@example.com}';
SELECT mailroom_retry_failed(since => '-infinity');
SELECT mailroom_reschedule(id, now() + interval '1 h'), mailroom_cancel(id) FROM outbox WHERE kind = 'invoice';
SELECT state, last_error FROM outbox WHERE kind = 'invoice';
SELECT mailroom_request_activation('caller@example.com');
SELECT mailroom_revoke(0);
UPDATE outbox SET state = 'scheduled';
UPDATE accounts SET status = 'active';
INSERT INTO tokens (account, action) VALUES (1, 'activation');
SELECT mailroom_send('a@example.com', 'S', 'T');
SELECT mailroom_claim();
SELECT mailroom_dequeue();
SELECT mailroom_purge();
SELECT mailroom_pause();
RESET ROLE;
-- An administrator's retry signs it again: the same link as before, as long as the token is open.
SET ROLE mailroom_admin;
SELECT mailroom_retry_failed(kind => 'activation'), mailroom_retry_failed(kind => 'activation');
SELECT state, mailroom_verify(secrets ->> 'token', 'activation') AS genuine FROM outbox WHERE recipients = '{caller@example.com}';
UPDATE outbox SET state = 'error', last_error = 'busy' WHERE recipients = '{caller@example.com}';
SELECT mailroom_retry(id), secrets FROM outbox WHERE recipients = '{caller@example.com}';
UPDATE outbox SET state = 'error', last_error = 'busy' WHERE recipients = '{caller@example.com}';
UPDATE tokens SET revoked_at = 1 WHERE account = (SELECT id FROM accounts WHERE login = 'caller');
SELECT mailroom_retry(id) FROM outbox WHERE recipients = '{caller@example.com}';
SELECT mailroom_retry_failed(kind => 'activation');
SELECT _create_key_file();
RESET ROLE;
-- The key file is the whole cluster's: a grant in one database does not open it.
GRANT EXECUTE ON FUNCTION mailroom_rotate_key(), _create_key_file() TO mailroom_admin;
SET ROLE mailroom_admin;
SELECT mailroom_rotate_key();
SELECT _create_key_file();
RESET ROLE;
REVOKE EXECUTE ON FUNCTION mailroom_rotate_key(), _create_key_file() FROM mailroom_admin;
DELETE FROM accounts WHERE login = 'caller';
DELETE FROM link_requests;
DELETE FROM outbox WHERE recipients && '{caller@example.com,customer@example.com}';

-- The administrator changes everything there is.
SET ROLE mailroom_admin;
SELECT mailroom_pause();
SELECT paused_by = session_user AS by_whom_logged_in FROM pauses;
SELECT mailroom_resume();
UPDATE accounts SET status = 'suspended' WHERE login = 'one';
UPDATE tokens SET consumed_at = 1 WHERE account = 1;
INSERT INTO accounts (email, login, status) VALUES ('admin@example.com', 'admin', 'active');
INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts WHERE login = 'admin';
SELECT action, login FROM mailroom_dequeue();
SELECT length(mailroom_sign('activation', decode(repeat('00', 32), 'hex')));
DELETE FROM accounts;
SELECT state, count(*) FROM outbox GROUP BY state ORDER BY state;
SELECT mailroom_retry_failed(since => '-infinity'), mailroom_purge();
DELETE FROM outbox;
DROP TABLE outbox;
-- But not the server: it cannot alter it, and it cannot become the role whose rights are lent.
SELECT mailroom_rotate_key();
ALTER FUNCTION _tokens_enqueue() SECURITY INVOKER;
ALTER FUNCTION mailroom_redeem(text, text) RESET search_path;
SELECT pg_has_role('mailroom_admin', 'mailroom_definer', 'MEMBER');
CREATE TRIGGER mine BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION _accounts_stamp_status();
CREATE TEMPORARY TABLE accounts_of_mine (id bigint, status account_status);
CREATE TRIGGER mine AFTER INSERT ON accounts_of_mine REFERENCING NEW TABLE AS new_accounts
    FOR EACH STATEMENT EXECUTE FUNCTION _accounts_issue_activation();
DROP TABLE accounts_of_mine;
RESET ROLE;

-- Rights that a trigger lends go no further: a table of the same name in the caller's own schema is not
-- written to, and an operator of the caller's own is not called.
GRANT mailroom_app TO mail_nobody;
CREATE SCHEMA mine AUTHORIZATION mail_nobody;
SET ROLE mail_nobody;
CREATE TABLE mine.tokens (account bigint, action text);
CREATE FUNCTION mine.lower(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$;
CREATE FUNCTION mine.same(token_action, token_action) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'called as %', current_user; END $$;
CREATE OPERATOR mine.= (LEFTARG = token_action, RIGHTARG = token_action, FUNCTION = mine.same);
SET search_path = mine, public;
INSERT INTO accounts (email, login) VALUES ('Mine@example.com', 'mine') RETURNING email;
SELECT count(*) FROM mine.tokens;
RESET search_path;
RESET ROLE;
SELECT count(*) FROM tokens;

-- Settings: mail is what the superuser says it is.
SET ROLE mail_nobody;
SET mailroom.batch_limit = 1;
SET mailroom.batch_timeout = 0;
SET mailroom.poll_interval = '1s';
SET mailroom.channel = 'mine';
SET mailroom.recovery_ttl = '1d';
SET mailroom.max_attempts = 1;
SET mailroom.lease = '1d';
SET mailroom.retention = 0;
SET mailroom.key_file = '/tmp/mine';
SET mailroom.link_base_url = 'https://evil.example.com';
SET mailroom.no_such_setting = 1;
RESET ROLE;

DROP SCHEMA mine CASCADE;
DROP EXTENSION mailroom;
DROP ROLE mail_nobody;
