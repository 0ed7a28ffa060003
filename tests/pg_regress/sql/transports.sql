-- Transports: how a mail gets one, how it is claimed by it, and how it goes to another; what deliverers publish; and who may
-- do what.

SET client_min_messages = error;
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
DELETE FROM pauses;

-- The setting: a name or nothing.
SHOW mailroom.transport;
SET mailroom.transport = 'Relay';
SET mailroom.transport = '2nd';
SET mailroom.transport = 'a b';
SET mailroom.transport = 'relay-2';
SELECT _default_transport();
RESET mailroom.transport;
SELECT context, boot_val FROM pg_settings WHERE name = 'mailroom.transport';
-- The other settings whose values are checked.
SET mailroom.channel = '';
SET mailroom.link_base_url = 'https://example.com/a?x=1';
SET mailroom.link_base_url = 'https://example.com/#/app';
SET mailroom.link_base_url = 'https://ada:secret@example.com';
SET mailroom.link_base_url = 'https://example.com/{tenant}';
SET mailroom.link_base_url = 'http://example.com';

-- Routes: what a row may be.
INSERT INTO routes (position, kind_pattern, transport) VALUES (1, '', 'bulk');
INSERT INTO routes (position, kind_pattern, transport) VALUES (1, 'a\', 'bulk');
INSERT INTO routes (position, kind_pattern, transport) VALUES (1, '%', '');
INSERT INTO routes (position, kind_pattern, transport) VALUES (1, '%', 'Bulk');
INSERT INTO routes (position, kind_pattern, transport, fallback) VALUES (1, '%', 'bulk', '');
INSERT INTO routes (position, kind_pattern, transport, fallback) VALUES (1, '%', 'bulk', 'bulk');
INSERT INTO routes (position, kind_pattern, transport, fallback, fallback_after) VALUES (1, '%', 'bulk', 'relay', '-1 s');
INSERT INTO routes (position, kind_pattern, transport, fallback) VALUES
    (10, 'digest%', 'bulk', NULL),
    (20, '100\%', 'bulk', NULL),
    (30, 'password\_recovery', 'urgent', 'relay'),
    (40, 'digest-weekly', 'urgent', NULL);
SELECT * FROM routes ORDER BY position;

-- Every writer of a row gets the same: a hand-written one, those of the functions, and those of tokens.
CREATE VIEW mails AS SELECT kind, transport, state FROM outbox;
INSERT INTO outbox (kind, recipients) VALUES ('digest-weekly', '{a@example.com}'), ('100%', '{a@example.com}'), ('100', '{a@example.com}');
INSERT INTO outbox (kind, recipients, transport) VALUES ('digest', '{a@example.com}', ''), ('digest', '{a@example.com}', 'elsewhere');
INSERT INTO outbox (kind, recipients, transport) VALUES ('digest', '{a@example.com}', 'Elsewhere');
SELECT mailroom_send('a@example.com', 'S', 'T', kind => 'digest-daily') > 0 AS sent;
SELECT count(*) FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T", "kind": "digest"}, {"recipients": "a@example.com", "subject": "S", "body_text": "T"}, {"recipients": "a@example.com", "subject": "S", "body_text": "T", "kind": "digest", "transport": ""}, {"recipients": "a@example.com", "subject": "S", "body_text": "T", "kind": "digest", "transport": "relay"}]');
INSERT INTO accounts (email, login, status) VALUES ('one@example.com', 'one', 'provisioned'), ('two@example.com', 'two', 'active'), ('gone@example.com', 'gone', 'suspended');
INSERT INTO tokens (account, action) SELECT id, 'password_recovery' FROM accounts WHERE login IN ('two', 'gone');
SET mailroom.transport = 'main';
SELECT mailroom_collect();
INSERT INTO outbox (kind, recipients) VALUES ('100', '{a@example.com}');
SELECT * FROM mails ORDER BY kind, transport, state;
-- A changed route, and another setting, concern later rows.
UPDATE routes SET transport = 'urgent' WHERE position = 10;
RESET mailroom.transport;
INSERT INTO outbox (kind, recipients) VALUES ('digest', '{a@example.com}'), ('100', '{a@example.com}');
SELECT transport, count(*) FROM outbox GROUP BY transport ORDER BY transport;
-- COPY, and a session that loads rows as a replica does.
COPY outbox (kind, recipients) FROM STDIN;
digest	{a@example.com}
\.
SET session_replication_role = replica;
INSERT INTO outbox (kind, recipients) VALUES ('digest', '{a@example.com}');
RESET session_replication_role;
SELECT count(*) FROM outbox WHERE kind = 'digest' AND transport = 'urgent';

-- A name that a message gives must be known.
SELECT mailroom_send('a@example.com', 'S', 'T', transport => 'nowhere');
SELECT mailroom_send('a@example.com', 'S', 'T', transport => 'Nowhere');
SELECT mailroom_send('a@example.com', 'S', 'T', transport => 'main');
SELECT mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T"}, {"recipients": "a@example.com", "subject": "S", "body_text": "T", "transport": "nowhere"}]');
SELECT mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T", "transport": 1}]');
SELECT mailroom_send('a@example.com', 'S', 'T', transport => 'relay') > 0 AS a_fallback, mailroom_send('a@example.com', 'S', 'T', transport => '') > 0 AS clients;
SET mailroom.transport = 'main';
SELECT mailroom_send('a@example.com', 'S', 'T', transport => 'main') > 0 AS the_setting;
RESET mailroom.transport;
SELECT _publish_transports('me', '[{"name": "nowhere", "provider": "log"}]');
SELECT mailroom_send('a@example.com', 'S', 'T', transport => 'nowhere') > 0 AS published;
SELECT _publish_transports('me', '[]');

-- Claims: of the mail that clients deliver, unless transports are named; those of the first named come first.
TRUNCATE outbox, tokens, accounts RESTART IDENTITY;
DELETE FROM pending;
INSERT INTO outbox (kind, recipients, subject, body_text, transport, priority, group_key, send_at)
SELECT 'x', '{a@example.com}', 'S', 'T', t, p, g, now() - interval '1 h' + i * interval '1 s'
FROM (VALUES
    (1, '', 0, NULL), (2, 'one', 0, NULL), (3, 'one', -5, NULL), (4, 'two', -10, NULL), (5, 'two', 0, 'g'), (6, 'one', 1, 'g'),
    (7, '', 0, NULL), (8, 'two', 0, NULL)
) v (i, t, p, g)
ORDER BY i;
SELECT mailroom_next_due() <= clock_timestamp() AS clients, mailroom_next_due('{one,two}') <= clock_timestamp() AS some, mailroom_next_due('{three}'), mailroom_next_due('{}');
SELECT id, transport FROM mailroom_claim(claimant => 'me', lease => '1 h');
SELECT id, transport FROM mailroom_claim(claimant => 'me', lease => '1 h');
SELECT count(*) FROM mailroom_claim(transports => '{}');
SELECT count(*) FROM mailroom_claim(transports => '{three,NULL,Three}');
BEGIN;
SELECT id, transport, priority FROM mailroom_claim(2, '1 h', 'me', '{two,one,two}');
SELECT id, transport, priority FROM mailroom_claim(2, '1 h', 'me', '{two,one}');
SELECT id, transport, priority FROM mailroom_claim(9, '1 h', 'me', '{two,one}');
ROLLBACK;
SELECT id, transport, priority FROM mailroom_claim(9, '1 h', 'me', '{one,two}');
-- One claimant has a group, over all transports.
SELECT mailroom_release_many(ARRAY(SELECT id FROM outbox WHERE state = 'claimed' AND group_key = 'g' AND transport = 'two'), 'me');
SELECT count(*) FROM mailroom_claim(9, '1 h', 'you', '{one,two}');
SELECT count(*) FROM mailroom_claim_group(claimant => 'you', transports => '{two}');
SELECT mailroom_release_many(ARRAY(SELECT id FROM outbox WHERE state = 'claimed'), 'me');
-- A whole group: the mail of the transports that are named, by priority, send_at and id.
SELECT count(*) FROM mailroom_claim_group(claimant => 'you', group_key => 'g');
SELECT count(*) FROM mailroom_claim_group(claimant => 'you');
BEGIN;
SELECT id, transport FROM mailroom_claim_group(claimant => 'you', group_key => 'g', transports => '{one}');
ROLLBACK;
BEGIN;
SELECT id, transport FROM mailroom_claim_group(1, claimant => 'you', group_key => 'g', transports => '{one,two}');
ROLLBACK;
SELECT id, transport FROM mailroom_claim_group(claimant => 'you', transports => '{three,one,two}');
SELECT mailroom_mark_sent_many(ARRAY(SELECT id FROM outbox WHERE state = 'claimed'), claimant => 'you');
-- Claims that lapsed are taken back, of any transport, and are claimed by it.
UPDATE outbox SET state = 'claimed', claimed_by = 'gone', claimed_at = now() - interval '1 h', claimed_until = now() - interval '1 min' WHERE id IN (1, 2);
SELECT mailroom_next_due('{two}') <= clock_timestamp() AS lapsed;
SELECT id, transport, failed_attempts FROM mailroom_claim(9, '1 h', 'me', '{one}');
SELECT id, transport, failed_attempts FROM mailroom_claim(9, '1 h', 'me');
-- Each attempt has the transport it went by; one of them is a condition for what is tried again.
SELECT outbox_id, transport, outcome FROM outbox_attempts ORDER BY outbox_id, id;
BEGIN;
SELECT cardinality(mailroom_mark_error_many(array_agg(id), array_agg('no'::text), permanent => array_agg(true), claimant => 'me'))
FROM outbox WHERE state = 'claimed' AND claimed_by = 'me';
SELECT outbox_id, transport, outcome FROM outbox_attempts ORDER BY outbox_id, id;
SELECT outbox_id, attempt, outcome, transport FROM outbox_history ORDER BY ended_at, outbox_id, attempt;
SELECT mailroom_retry_failed(transport => 'absent'), mailroom_retry_failed(transport => 'one', outcome => 'late'), mailroom_retry_failed(transport => 'one');
SELECT mailroom_retry_failed(transport => '');
ROLLBACK;
SELECT mailroom_next_due('{one}') = min(claimed_until) AS when_it_lapses FROM outbox WHERE state = 'claimed';
SELECT mailroom_mark_sent_many(ARRAY(SELECT id FROM outbox WHERE state = 'claimed'), claimant => 'me');
-- What becomes due later.
DELETE FROM outbox;
INSERT INTO outbox (kind, recipients, transport, send_at) VALUES ('x', '{a@example.com}', 'one', '2040-01-01'), ('x', '{a@example.com}', 'two', '2041-01-01');
SELECT extract(year FROM mailroom_next_due('{two}')) AS two, extract(year FROM mailroom_next_due('{two,one}')) AS both, mailroom_next_due() AS clients;
-- Budgets are for all transports together, and keep a share for urgent mail of each.
-- In a new session: how soon another one looks for priorities that it does not know depends on the load.
\c -
SET client_min_messages = error;
SET mailroom.transport = 'main';
DELETE FROM outbox;
INSERT INTO budgets (period, amount, reserved_share) VALUES ('month', 4, 0.5);
INSERT INTO outbox (kind, recipients, subject, body_text, transport, priority)
SELECT 'x', '{a@example.com}', 'S', 'T', t, p FROM unnest('{one,two}'::text[]) t, unnest('{0,0,-10}'::integer[]) p;
SELECT transport, priority FROM mailroom_claim(9, '1 h', 'me', '{one,two}');
SELECT available, available_to_urgent FROM mailroom_budgets;
DELETE FROM budgets;
DELETE FROM outbox;
-- The oldest that is due, of any transport.
INSERT INTO outbox (kind, recipients, transport, send_at) VALUES ('x', '{a@example.com}', '', now()), ('x', '{a@example.com}', 'one', now() - interval '1 h'), ('x', '{a@example.com}', 'two', now() + interval '1 h');
SELECT scheduled, oldest_due >= interval '1 h' AS an_hour FROM mailroom_status();
SELECT * FROM _scheduled_transports();
DELETE FROM outbox;

-- Rerouting: what is scheduled, and nothing else.
DELETE FROM routes;
INSERT INTO routes (position, kind_pattern, transport, fallback) VALUES (1, 'x', 'one', 'two');
INSERT INTO outbox (kind, recipients, state, claimed_by, claimed_at, claimed_until, ended_at)
VALUES
    ('x', '{a@example.com}', 'scheduled', NULL, NULL, NULL, NULL),
    ('x', '{a@example.com}', 'claimed', 'me', now(), now() + interval '1 h', NULL),
    ('x', '{a@example.com}', 'sent', 'me', now(), NULL, now());
SELECT mailroom_reroute('one', 'one');
SELECT mailroom_reroute('one', 'three');
SELECT mailroom_reroute('three', 'one');
SELECT mailroom_reroute('one', NULL);
SELECT mailroom_reroute(NULL, 'one');
SELECT mailroom_reroute('one', 'two');
SELECT mailroom_reroute('one', 'two');
SELECT state, transport FROM outbox ORDER BY state;
SELECT mailroom_reroute('two', '');
-- From one that is gone, as long as mail waits for it.
DELETE FROM routes;
INSERT INTO outbox (kind, recipients, transport) VALUES ('x', '{a@example.com}', 'left');
SELECT mailroom_reroute('left', '');
SELECT mailroom_reroute('left', '');
SELECT transport, count(*) FROM outbox WHERE state = 'scheduled' GROUP BY transport;
DELETE FROM outbox;

-- A fallback: of mail whose first route of that transport allows it, when that has been paused for long enough.
SELECT _fall_back('two', '{one}', '{1 h}', 10);
INSERT INTO routes (position, kind_pattern, transport, fallback, fallback_after) VALUES
    (1, 'x%', 'one', 'two', '1 min'),
    (2, 'xy', 'one', 'three', '0'),
    (3, 'y', 'two', 'three', '0'),
    (4, 'y', 'one', NULL, '0'),
    (5, 'y', 'one', 'two', '0');
INSERT INTO outbox (kind, recipients, transport, priority, ambiguous_attempts, send_at, item_key) VALUES
    ('x', '{a@example.com}', 'one', 5, 0, now(), 'late'),
    ('x', '{a@example.com}', 'one', 0, 0, now(), 'normal'),
    ('xy', '{a@example.com}', 'one', -5, 0, now(), 'first route'),
    ('x', '{a@example.com}', 'one', 0, 1, now(), 'ambiguous'),
    ('x', '{a@example.com}', 'one', 0, 0, now() + interval '1 h', 'not due'),
    ('y', '{a@example.com}', 'one', 0, 0, now(), 'no fallback'),
    ('z', '{a@example.com}', 'one', 0, 0, now(), 'no route'),
    ('x', '{a@example.com}', 'four', 0, 0, now(), 'elsewhere');
SELECT _fall_back('two', '{one}', '{59 s}', 10) AS too_early, _fall_back('three', '{one}', '{1 h}', 10) AS second_route, _fall_back('two', '{four}', '{1 h}', 10) AS no_route;
SELECT _fall_back('two', '{four,one}', '{1 h,1 min}', 1);
SELECT item_key FROM outbox WHERE transport = 'two' ORDER BY id;
SELECT _fall_back('two', '{one}', '{1 min}', 1);
SELECT item_key FROM outbox WHERE transport = 'two' ORDER BY id;
SELECT _fall_back('two', '{one}', '{1 min}', 10);
SELECT _fall_back('two', '{one}', '{1 min}', 10);
SELECT transport, string_agg(item_key, ', ' ORDER BY id) AS items FROM outbox GROUP BY transport ORDER BY transport;
-- More than one call looks at: the next ones go on.
DELETE FROM outbox;
INSERT INTO outbox (kind, recipients, transport, priority) SELECT CASE WHEN i % 1000 = 0 THEN 'x' ELSE 'z' END, '{a@example.com}', 'one', i / 5000 FROM generate_series(1, 10000) i;
SELECT sum(_fall_back('two', '{one}', '{1 min}', 4)) FROM generate_series(1, 12) i;
SELECT kind, count(*) FROM outbox WHERE transport = 'two' GROUP BY kind;
DELETE FROM outbox;
-- What a fallback cannot carry goes back, once, and ends only when a server refuses it.
INSERT INTO outbox (kind, recipients, subject, body_text, transport, item_key, max_attempts) VALUES
    ('x', '{a@example.com}', 'S', 'T', 'one', 'unsendable', 1),
    ('x', '{a@example.com}', 'S', 'T', 'one', 'refused', 25),
    ('x', '{a@example.com}', 'S', 'T', 'one', 'ambiguous', 25),
    ('x', '{a@example.com}', 'S', 'T', 'two', 'its own', 25);
SELECT _fall_back('two', '{one}', '{1 h}', 10);
SELECT item_key, fallback_from FROM mailroom_claim(10, '1 h', 'me', '{two}');
SELECT cardinality(mailroom_mark_error_many(
    array_agg(id), array_agg('no'::text), permanent => array_agg(true), claimant => 'me',
    response_codes => array_agg(CASE item_key WHEN 'refused' THEN 550 END), ambiguous => array_agg(item_key = 'ambiguous')
)) FROM outbox;
SELECT item_key, transport, fallback_from, state, failed_attempts FROM outbox ORDER BY id;
UPDATE outbox SET send_at = now() WHERE state = 'scheduled';
SELECT _fall_back('two', '{one}', '{1 h}', 10);
SELECT mailroom_reroute('one', 'two');
SELECT item_key, transport, fallback_from FROM outbox WHERE state = 'scheduled';
DELETE FROM outbox;
SELECT _fall_back('two', '{one}', '{1 h}', 0);
SELECT _fall_back('two', '{one}', '{1 h}', NULL);
DELETE FROM routes;

-- What deliverers publish.
SELECT _publish_transports('mailroom worker/1/a', '[{"name": "one", "provider": "ses", "allow_from": ["*@example.com"], "state": "healthy", "ambiguous": 2}, {"name": "two", "provider": "smtp", "state": "paused", "reason": "connection refused", "next_probe_at": 2000000000.5}]');
SELECT _publish_transports('elsewhere', '[{"name": "one", "provider": "log", "state": null}]');
SELECT name, provider, deliverer, state, reason, extract(epoch FROM next_probe_at) AS next_probe_at, ambiguous, allow_from FROM mailroom_transports ORDER BY deliverer, name;
-- The sender of a mail is one that the transport allows; of a transport that no deliverer published, nothing is known.
BEGIN;
SELECT mailroom_send('a@example.com', 'S', 'T', from_address => 'Ann Lee <ann@EXAMPLE.com>', transport => 'one') IS NOT NULL AS allowed;
SELECT mailroom_send('a@example.com', 'S', 'T', from_address => 'ann@example.org', transport => '') IS NOT NULL AS allowed;
SAVEPOINT refused;
SELECT mailroom_send('a@example.com', 'S', 'T', from_address => 'Ann Lee <ann@sub.example.com>', transport => 'one');
ROLLBACK TO refused;
SELECT mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T", "transport": "one", "from_address": "ann@example.org"}]');
ROLLBACK TO refused;
SELECT mailroom_send('a@example.com', 'S', 'T', from_address => 'ann@example.com', transport => 'two');
ROLLBACK;
UPDATE transports SET since = '2026-01-01 00:00:00+00';
SELECT _publish_transports('mailroom worker/1/a', '[{"name": "three", "provider": "log"}, {"name": "one", "provider": "ses", "state": "slowed", "reason": "429"}, {"name": "two", "provider": "smtp", "state": "paused", "reason": "timeout"}]');
SELECT name, deliverer, state, reason, since = '2026-01-01 00:00:00+00' AS since_before FROM mailroom_transports ORDER BY deliverer, name;
SELECT _publish_transports('mailroom worker/1/a', '[{"name": "two", "provider": "smtp"}]');
SELECT name, deliverer, state, reason FROM mailroom_transports ORDER BY deliverer, name;
SELECT _expire_previous_claims('2');
SELECT count(*) FROM transports;
SELECT _expire_previous_claims('1');
SELECT name, deliverer FROM mailroom_transports;
SELECT _publish_transports('elsewhere', '[]');
SELECT count(*) FROM transports;
SELECT _publish_transports('elsewhere', '{"name": "one"}');

-- Why mail waits for its transport, and until when.
SELECT _publish_transports('here', '[{"name": "one", "provider": "log", "state": "paused", "next_probe_at": 2000000000}, {"name": "two", "provider": "log", "state": "paused", "next_probe_at": 2000000002}, {"name": "three", "provider": "log", "state": "throttled", "next_probe_at": 2000000004}, {"name": "four", "provider": "log", "state": "paused"}]');
SELECT _publish_transports('there', '[{"name": "one", "provider": "log", "state": "slowed"}, {"name": "two", "provider": "log", "state": "paused", "next_probe_at": 2000000001}, {"name": "three", "provider": "log", "state": "paused", "next_probe_at": 2000000003}]');
INSERT INTO outbox (kind, recipients, transport) SELECT 'x', '{a@example.com}', t FROM unnest(ARRAY['', 'one', 'two', 'three', 'four', 'five']) t;
INSERT INTO outbox (kind, recipients, transport, send_at) VALUES ('x', '{a@example.com}', 'two', now() + interval '1 h');
CREATE TEMPORARY VIEW waits AS
SELECT o.transport, w.reason, CASE WHEN w.until = o.send_at THEN 'send_at' ELSE extract(epoch FROM w.until)::text END AS until
FROM outbox_waits w JOIN outbox o ON o.id = w.outbox_id ORDER BY o.id;
TABLE waits;
SELECT mailroom_pause();
TABLE waits;
SELECT mailroom_resume();
DROP VIEW waits;
DELETE FROM outbox;
SELECT _publish_transports(d, '[]') FROM unnest(ARRAY['here', 'there']) d;

-- Those that are gone are forgotten after an hour.
SELECT _publish_transports(d, '[{"name": "one", "provider": "log"}]') FROM unnest(ARRAY['gone', 'here', 'mailroom worker/1/a.b']) d;
UPDATE deliverers SET updated_at = now() - interval '61 min' WHERE name <> 'here';
UPDATE transports SET updated_at = now() - interval '61 min' WHERE deliverer <> 'here';
SELECT mailroom_purge();
SELECT d.name, t.name AS transport FROM deliverers d FULL JOIN transports t ON t.deliverer = d.name;
DELETE FROM deliverers;
DELETE FROM transports;
\set VERBOSITY terse
SELECT _publish_transports('elsewhere', '[{"name": "", "provider": "log"}]');
SELECT _publish_transports('elsewhere', '[{"name": "One", "provider": "log"}]');
SELECT _publish_transports('elsewhere', '[{"name": "one"}]');
SELECT _publish_transports('elsewhere', '[{"name": "one", "provider": "log", "state": "well"}]');

-- Rights.
INSERT INTO routes (position, kind_pattern, transport) VALUES (1, 'x', 'one');
SET ROLE mailroom_app;
SELECT mailroom_send('a@example.com', 'S', 'T', kind => 'x') > 0 AS sent, mailroom_send('a@example.com', 'S', 'T', transport => 'one') > 0 AS named;
INSERT INTO _new_mail (kind, recipients, subject, body_text) VALUES ('x', '{a@example.com}', 'S', 'T');
INSERT INTO _new_mail (kind, recipients, subject, body_text, transport) VALUES ('x', '{a@example.com}', 'S', 'T', 'three');
INSERT INTO _new_mail (kind, recipients, subject, body_text, transport) VALUES ('x', '{a@example.com}', 'S', 'T', 'one');
SELECT * FROM routes;
SELECT * FROM mailroom_transports;
SELECT mailroom_reroute('one', '');
SELECT _fall_back('two', '{one}', '{1 h}', 10);
SELECT _publish_transports('me', '[]');
SET ROLE mailroom_sender;
SELECT count(*) FROM mailroom_claim(1, '1 h', 'me', '{one}');
SELECT mailroom_next_due('{one}') <= clock_timestamp() AS due;
SELECT count(*) FROM mailroom_claim_group(transports => '{one}');
SELECT _publish_transports('me', '[{"name": "two", "provider": "log"}]');
SELECT _fall_back('two', '{one}', '{1 h}', 10);
SELECT mailroom_reroute('one', '');
UPDATE routes SET transport = 'two';
SELECT * FROM mailroom_transports;
SET ROLE mailroom_collector;
SELECT _fall_back('two', '{one}', '{1 h}', 10);
SELECT _expire_previous_claims('1');
SELECT mailroom_reroute('one', '');
SET ROLE mailroom_monitor;
SELECT position, kind_pattern, transport FROM routes;
SELECT name FROM mailroom_transports;
SELECT transport, count(*) FROM outbox GROUP BY transport ORDER BY transport;
SELECT oldest_due >= '0' AS due FROM mailroom_status();
SELECT DISTINCT reason FROM outbox_waits ORDER BY 1;
UPDATE routes SET transport = 'two';
SELECT * FROM transports;
SELECT mailroom_reroute('one', '');
SET ROLE mailroom_support;
SELECT position, kind_pattern, transport FROM routes;
SELECT name FROM mailroom_transports;
SELECT mailroom_reroute('one', '');
SET ROLE mailroom_admin;
UPDATE routes SET transport = 'three', fallback = 'two', fallback_after = '0';
SELECT mailroom_reroute('one', 'three');
SELECT _fall_back('two', '{three}', '{0}', 10);
SELECT name FROM mailroom_transports;
DELETE FROM routes;
INSERT INTO routes (position, kind_pattern, transport) VALUES (1, 'x', 'one');
INSERT INTO outbox (kind, recipients) VALUES ('x', '{a@example.com}') RETURNING transport;
RESET ROLE;

-- A deliverer is published by one role only.
CREATE ROLE mail_sender_a IN ROLE mailroom_sender;
CREATE ROLE mail_sender_b IN ROLE mailroom_sender;
SET SESSION AUTHORIZATION mail_sender_a;
SELECT _publish_transports('mine', '[{"name": "t", "provider": "smtp"}]');
SET SESSION AUTHORIZATION mail_sender_b;
SELECT _publish_transports('mine', '[]');
SET SESSION AUTHORIZATION mail_sender_a;
SELECT _publish_transports('mine', '[]');
RESET SESSION AUTHORIZATION;

DROP VIEW mails;
DROP EXTENSION mailroom;
DROP ROLE mail_sender_a, mail_sender_b;
