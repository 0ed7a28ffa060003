-- Scheduling any message, one or many, and taking it back: what is written, what is refused and why.

SET client_min_messages = error;
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
\pset format unaligned

-- As little as possible, by position and by name; several recipients are an array.
SELECT mailroom_send('a@example.com', 'Hi', 'Hello there.');
SELECT mailroom_send('a@example.com, b@example.com', 'Hi', 'Hello there.');
SELECT mailroom_send(recipients => 'c@example.com', subject => 'Hi', body_html => '<p>Hello</p>');
SELECT mailroom_send(E' a@example.com ,\tb@example.com', 'Hi', 'Hello there.');
PREPARE send AS SELECT mailroom_send($1, $2, $3);
EXECUTE send('d@example.com', 'Hi', 'A parameter without a type is one recipient.');
DEALLOCATE send;
SELECT
    id, recipients, cc, bcc, reply_to, subject, body_text, body_html, kind, data, priority, state, send_at = created_at AS at_once,
    expires_at, failed_attempts, max_attempts, item_key, group_key, token_id, account_id, enqueued_by = current_user AS mine
FROM outbox
ORDER BY id;

-- Everything there is.
SELECT mailroom_send(
    recipients => 'to@example.com', subject => 'S', body_text => 'T', body_html => '<p>H</p>',
    cc => 'cc@example.com', bcc => 'b1@example.com,b2@example.com', kind => 'invoice',
    data => '{"number": 7}', send_at => '2040-01-01 00:00:00+00', expires_at => '2040-01-02 00:00:00+00', priority => -5,
    item_key => 'invoice-7', group_key => 'customer-1', max_attempts => 3, on_conflict => 'error',
    reply_to => 'help@example.net, desk@example.net'
);
SELECT
    recipients, cc, bcc, reply_to, subject, body_text, body_html, kind, data, send_at = '2040-01-01 00:00:00+00' AS send_at,
    expires_at = '2040-01-02 00:00:00+00' AS expires_at, priority, item_key, group_key, max_attempts
FROM outbox
WHERE item_key = 'invoice-7';

-- NULL is as good as leaving an argument out.
SELECT mailroom_send('n@example.com', 'S', 'T', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);

-- In the caller's transaction.
BEGIN;
SELECT mailroom_send('gone@example.com', 'S', 'T') IS NOT NULL AS scheduled;
ROLLBACK;
SELECT count(*) FROM outbox WHERE recipients = ARRAY['gone@example.com'];

-- Names of people, stored as they were given.
SELECT mailroom_send(
    'Ann Lee <ann@example.com>,"Lee, \"Bob\"" <bob@example.com> , <c@example.com>', 'S', 'T', cc => ' "a, b" <d@example.com>',
    bcc => 'Ann M. Lee<e@example.com>', reply_to => '=?utf-8?q?x?= <f@example.com>', item_key => 'names',
    from_address => '"Shop, Ltd." <shop@example.com>', headers => '{"X-Order": "Grüße"}', unsubscribe_url => 'https://example.com/u?t=1'
) IS NOT NULL AS scheduled;
SELECT unnest(recipients) AS recipients, cc, bcc, reply_to, from_address, headers, unsubscribe_url FROM outbox WHERE item_key = 'names';
SELECT a.addresses FROM _mail_addresses a JOIN outbox o USING (id) WHERE o.item_key = 'names';
SELECT _search_keys(ARRAY['"Lee, Ann" <Ann.Lee@Example.COM>', U&'\00DC@b\00FCcher.example', 'no address', NULL]), _search_keys(NULL);
SELECT mailroom_send_many('[{"recipients": ["Ann Lee <ann@example.com>", "\"Lee, Bob\" <bob@example.com>"], "cc": "\"x, y\" <x@example.com>", "subject": "S", "body_text": "T", "item_key": "array"}]') IS NOT NULL AS scheduled;
SELECT recipients, cc FROM outbox WHERE item_key = 'array';
SELECT mailroom_send_many('[{"recipients": ["a@example.com, b@example.com"], "subject": "S", "body_text": "T"}]');

-- Refused, with the reason. The second argument decides which overload is called.
SELECT mailroom_send(NULL::text, 'S', 'T');
SELECT mailroom_send(' ', 'S', 'T');
SELECT mailroom_send('a@example.com,', 'S', 'T');
SELECT mailroom_send('{a@example.com,b@example.com}', 'S', 'T');
SELECT mailroom_send('', 'S', 'T');
SELECT mailroom_send('nobody', 'S', 'T');
SELECT mailroom_send('Lee, Ann <ann@example.com>', 'S', 'T');
SELECT mailroom_send('Ann (work) <ann@example.com>', 'S', 'T');
SELECT mailroom_send('Team: ann@example.com;', 'S', 'T');
SELECT mailroom_send('"ann"@example.com', 'S', 'T');
SELECT mailroom_send('"Ann <ann@example.com>, bob@example.com', 'S', 'T');
SELECT mailroom_send('Ann <ann@example.com> (work)', 'S', 'T');
SELECT mailroom_send(E'Ann\r\nBcc: b@example.com <ann@example.com>', 'S', 'T');
SELECT mailroom_send('"' || repeat('n', 129) || '" <ann@example.com>', 'S', 'T');
SELECT mailroom_send('a@example.com，victim＠example.org', 'S', 'T');
SELECT mailroom_send(E'a@example.com\r\nBcc: b@example.com', 'S', 'T');
SELECT mailroom_send(repeat('l', 65) || '@example.com', 'S', 'T');
SELECT mailroom_send('a@' || repeat(repeat('d', 63) || '.', 4) || 'com', 'S', 'T');
SELECT mailroom_send('a@example.com', 'S', 'T', cc => 'b@example.com, c@@example.com');
SELECT mailroom_send('a@example.com', 'S', 'T', bcc => ',');
SELECT mailroom_send('a@example.com', 'S', 'T', reply_to => 'b@example.com, Help <c@>');
SELECT mailroom_send('a@example.com', 'S', 'T', headers => '[]');
SELECT mailroom_send('a@example.com', 'S', 'T', headers => '{"Bcc": "b@example.com"}');
SELECT mailroom_send('a@example.com', 'S', 'T', headers => '{"X-A": "b\r\nBcc: b@example.com"}');
SELECT mailroom_send('a@example.com', 'S', 'T', headers => '{"X-A": "b\u2028"}');
SELECT mailroom_send('a@example.com', 'S', 'T', headers => '{"X-Mailroom-Message-ID": "b"}');
SELECT mailroom_send('a@example.com', 'S', 'T', headers => jsonb_build_object('X-A', repeat('v', 999)));
SELECT mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T", "headers": {"X-A": 1}}]');
SELECT mailroom_send('a@example.com', 'S', 'T', unsubscribe_url => 'mailto:u@example.com');
SELECT mailroom_send('a@example.com', 'S', 'T', unsubscribe_url => E'https://example.com/\r\nBcc: b@example.com');
SELECT mailroom_send('a@example.com', 'S', 'T', from_address => 'Shop');
SELECT mailroom_send('a@example.com', 'S', 'T', from_address => '');
SELECT mailroom_send('a@example.com', 'S', 'T', from_address => 'a@example.com, b@example.com');
SELECT mailroom_send('a@example.com', 'S', 'T', from_address => E'Shop\nBcc: x@example.com <shop@example.com>');
SELECT mailroom_send('a@example.com', 'S', 'T', reply_to => E'b@example.com\r\nBcc: c@example.com');
SELECT mailroom_send('a@example.com', 'S', 'T', reply_to => (SELECT string_agg(n || '@example.com', ',') FROM generate_series(1, 10) n)) IS NOT NULL AS ten;
SELECT mailroom_send('a@example.com', 'S', 'T', reply_to => (SELECT string_agg(n || '@example.com', ',') FROM generate_series(1, 11) n));
SELECT mailroom_send((SELECT string_agg(n || '@example.com', ',') FROM generate_series(1, 40) n), 'S', 'T', cc => (SELECT string_agg(n || '@example.com', ',') FROM generate_series(41, 50) n)) IS NOT NULL AS fifty;
SELECT mailroom_send((SELECT string_agg(n || '@example.com', ',') FROM generate_series(1, 40) n), 'S', 'T', cc => (SELECT string_agg(n || '@example.com', ',') FROM generate_series(41, 51) n));
SELECT mailroom_send('a@example.com', '', 'T');
SELECT mailroom_send('a@example.com', E'S\nBcc: b@example.com', 'T');
SELECT mailroom_send('a@example.com', repeat('ü', 499), 'T') IS NOT NULL AS longest_subject;
SELECT mailroom_send('a@example.com', repeat('ü', 500), 'T');
SELECT mailroom_send('a@example.com', 'S', '');
SELECT mailroom_send('a@example.com', 'S', body_html => '');
SELECT mailroom_send('a@example.com', 'S', 'T', kind => '');
SELECT mailroom_send('a@example.com', 'S', 'T', kind => repeat('k', 256));
SELECT mailroom_send('a@example.com', 'S', 'T', kind => E'a\tb');
SELECT mailroom_send('a@example.com', 'S', 'T', kind => 'activation');
SELECT mailroom_send('a@example.com', 'S', 'T', kind => 'password_recovery');
SELECT mailroom_send('a@example.com', 'S', 'T', data => '[1]');
SELECT mailroom_send('a@example.com', 'S', 'T', data => 'null');
SELECT mailroom_send('a@example.com', 'S', 'T', send_at => 'infinity');
SELECT mailroom_send('a@example.com', 'S', 'T', expires_at => 'infinity');
SELECT mailroom_send('a@example.com', 'S', 'T', expires_at => now());
SELECT mailroom_send('a@example.com', 'S', 'T', send_at => '2040-01-02', expires_at => '2040-01-01');
SELECT mailroom_send('a@example.com', 'S', 'T', send_at => now() - interval '2 hours', expires_at => now() - interval '1 hour');
SELECT mailroom_send('a@example.com', 'S', 'T', priority => 40000);
SELECT mailroom_send('a@example.com', 'S', 'T', item_key => '');
SELECT mailroom_send('a@example.com', 'S', 'T', item_key => repeat('k', 256));
SELECT mailroom_send('a@example.com', 'S', 'T', group_key => '');
SELECT mailroom_send('a@example.com', 'S', 'T', group_key => repeat('k', 256));
SELECT mailroom_send('a@example.com', 'S', 'T', max_attempts => 0);
SELECT mailroom_send('a@example.com', 'S', 'T', on_conflict => 'update');
-- Without a subject or a body there must be a template.
SELECT mailroom_send('a@example.com');
SELECT mailroom_send('a@example.com', 'S');
SELECT mailroom_send('a@example.com', body_text => 'T', kind => 'welcome', data => '{"locale": "pt-BR"}');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('welcome', 'pt', 'Oi', 'Oi!');
SELECT mailroom_send('a@example.com', kind => 'welcome');
SELECT mailroom_send('a@example.com', kind => 'welcome', data => '{"locale": "pt-BR"}') IS NOT NULL AS scheduled;

-- Around the function: what protects headers holds for everybody.
\set VERBOSITY terse
INSERT INTO outbox (kind, recipients) VALUES ('x', '{}');
INSERT INTO outbox (kind, recipients) VALUES ('x', '{NULL}');
INSERT INTO outbox (kind, recipients) VALUES ('x', '{""}');
INSERT INTO outbox (kind, recipients) VALUES ('x', '{a@example.com,NULL}');
INSERT INTO outbox (kind, recipients, cc) VALUES ('x', '{a@example.com}', '{NULL}');
INSERT INTO outbox (kind, recipients, bcc) VALUES ('x', '{a@example.com}', '{""}');
INSERT INTO outbox (kind, recipients, reply_to) VALUES ('x', '{a@example.com}', '{NULL}');
INSERT INTO outbox (kind, recipients) VALUES ('x', ARRAY[E'a@example.com\r\nBcc: b@example.com']);
INSERT INTO outbox (kind, recipients, subject) VALUES ('x', '{a@example.com}', E'S\r\nBcc: b@example.com');
\set VERBOSITY default
TRUNCATE outbox RESTART IDENTITY;

-- item_key, one at a time.
SELECT mailroom_send('first@example.com', 'S', 'T', item_key => 'k');
SELECT mailroom_send('second@example.com', 'S', 'T', item_key => 'k');
SELECT mailroom_send('third@example.com', 'S', 'T', item_key => 'k', on_conflict => 'ignore');
SELECT mailroom_send('fourth@example.com', 'S', 'T', item_key => 'k', on_conflict => 'replace');
-- The mail that replaces another is a mail of its own.
SELECT id, recipients, state, last_error = 'replaced by ' || current_user AS replaced, ended_at IS NOT NULL AS ended FROM outbox ORDER BY id;
SELECT count(DISTINCT message_id) FROM outbox;
-- A claimed one has the key still, and is not replaced.
UPDATE outbox SET state = 'claimed', claimed_by = 'me', claimed_at = now(), claimed_until = now() + '1 min' WHERE id = 2;
SELECT mailroom_send('fifth@example.com', 'S', 'T', item_key => 'k', on_conflict => 'replace');
SELECT mailroom_send('fifth@example.com', 'S', 'T', item_key => 'k');
SELECT mailroom_send('fifth@example.com', 'S', 'T', item_key => 'k', on_conflict => 'ignore');
-- One that has ended has it no more.
UPDATE outbox SET state = 'sent' WHERE id = 2;
SELECT mailroom_send('fifth@example.com', 'S', 'T', item_key => 'k', on_conflict => 'replace');
SELECT recipients, state, item_key FROM outbox ORDER BY id;

-- One that has expired before it was claimed has it no more either, and ends as it would at a claim.
CREATE TEMPORARY VIEW holders AS
SELECT recipients, state, last_error, ended_at IS NOT NULL AS ended FROM outbox WHERE item_key = 'late' ORDER BY id;
CREATE FUNCTION pg_temp.expire(key text) RETURNS void LANGUAGE sql AS $$
    UPDATE outbox SET send_at = '2000-01-01', expires_at = '2000-01-02' WHERE item_key = key AND state = 'scheduled';
$$;
SELECT mailroom_send('1@example.com', 'S', 'T', item_key => 'late') IS NOT NULL AS scheduled;
SELECT pg_temp.expire('late');
SELECT mailroom_send('2@example.com', 'S', 'T', item_key => 'late', on_conflict => 'ignore') IS NOT NULL AS scheduled;
-- As after a failure shortly before its end.
SELECT pg_temp.expire('late');
UPDATE outbox SET send_at = expires_at, failed_attempts = 1 WHERE item_key = 'late' AND state = 'scheduled';
SELECT mailroom_send('3@example.com', 'S', 'T', item_key => 'late') IS NOT NULL AS scheduled;
SELECT pg_temp.expire('late');
SELECT mailroom_send('4@example.com', 'S', 'T', item_key => 'late', on_conflict => 'replace') IS NOT NULL AS scheduled;
SELECT pg_temp.expire('late');
SELECT count(DISTINCT id) FROM mailroom_send_many('[
    {"recipients": "5@example.com", "subject": "S", "body_text": "T", "item_key": "late", "on_conflict": "ignore"},
    {"recipients": "6@example.com", "subject": "S", "body_text": "T", "item_key": "late", "expires_at": "2040-01-01", "on_conflict": "ignore"}
]') m (id);
TABLE holders;
-- While it is claimed it may be sent still.
SELECT pg_temp.expire('late');
UPDATE outbox SET state = 'claimed', claimed_by = 'me', claimed_at = now(), claimed_until = now() + '1 min'
WHERE item_key = 'late' AND state = 'scheduled';
SELECT o.recipients FROM outbox o WHERE o.id = mailroom_send('8@example.com', 'S', 'T', item_key => 'late', on_conflict => 'ignore');
SELECT mailroom_release(id, 'me') FROM outbox WHERE claimed_by = 'me';
-- By an application, for its own mail; a key of another role's is not taken.
BEGIN;
CREATE ROLE another IN ROLE mailroom_app;
SET LOCAL ROLE another;
SELECT mailroom_send('1@example.com', 'S', 'T', item_key => 'another') IS NOT NULL AS scheduled;
RESET ROLE;
SELECT pg_temp.expire('another');
SET LOCAL ROLE another;
SELECT mailroom_send('2@example.com', 'S', 'T', item_key => 'another', on_conflict => 'ignore') IS NOT NULL AS scheduled;
RESET ROLE;
SELECT state, item_key, last_error FROM outbox WHERE enqueued_by = 'another' ORDER BY id;
SET LOCAL ROLE another;
SELECT mailroom_send('9@example.com', 'S', 'T', item_key => 'late') IS NOT NULL AS scheduled;
SELECT mailroom_send('9@example.com', 'S', 'T', item_key => 'late', on_conflict => 'replace') IS NOT NULL AS replaced;
SELECT mailroom_cancel_item('late'), mailroom_cancel_item('late') AS again;
ROLLBACK;
DROP VIEW holders;
DELETE FROM outbox WHERE item_key = 'late';

-- Taking back and moving, by id and by key; each does something once.
SELECT mailroom_send('cancel@example.com', 'S', 'T', item_key => 'c') AS c, mailroom_send('move@example.com', 'S', 'T', item_key => 'm', expires_at => '2040-01-02 00:00:00+00') AS m \gset
SELECT mailroom_cancel(:c), mailroom_cancel(:c), mailroom_cancel_item('c');
SELECT state, last_error = 'cancelled by ' || current_user AS told, ended_at IS NOT NULL AS ended FROM outbox WHERE id = :c;
SELECT mailroom_reschedule(:m, '2040-01-01 00:00:00+00'), mailroom_reschedule_item('m', '2039-01-01 00:00:00+00');
SELECT state, send_at = '2039-01-01 00:00:00+00' AS moved FROM outbox WHERE id = :m;
SELECT mailroom_reschedule(:c, now()), mailroom_reschedule_item('c', now());
SET timezone = 'UTC';
SELECT mailroom_reschedule(:m, '2040-01-02 00:00:00+00');
SELECT mailroom_reschedule(:m, NULL);
SELECT mailroom_reschedule(:m, 'infinity');
RESET timezone;
SELECT mailroom_cancel_item('m'), mailroom_cancel_item('m');
SELECT mailroom_cancel(0), mailroom_cancel_item('nothing'), mailroom_cancel(NULL::bigint), mailroom_cancel_item(NULL::text);
-- An id may come as a string, as some drivers send it.
SELECT mailroom_send('quoted@example.com', 'S', 'T') AS q \gset
SELECT mailroom_cancel(:'q'), mailroom_cancel(id => :'q');
-- A message_id of the caller's own: the call can be repeated, in each state of the mail, and by its role alone.
SELECT mailroom_send('once@example.com', 'S', 'T', message_id => '0197c5d0-0000-7000-8000-000000000001') AS once \gset
SELECT mailroom_send('once@example.com', 'S', 'T', message_id => '0197c5d0-0000-7000-8000-000000000001') = :once AS same;
-- Even if it would be refused by now, also beside others in one call. Times, priority and keys are no contents.
SELECT mailroom_send('once@example.com', 'S', 'T', send_at => '2040-01-01', expires_at => '2000-01-01', message_id => '0197c5d0-0000-7000-8000-000000000001') = :once AS same;
SELECT mailroom_send('once@example.com', 'S', 'T', priority => 1000, group_key => '', transport => 'no-transport', message_id => '0197c5d0-0000-7000-8000-000000000001') = :once AS same;
SELECT mailroom_send_many('[
    {"recipients": "once@example.com", "subject": "S", "body_text": "T", "message_id": "0197c5d0-0000-7000-8000-000000000001"},
    {"recipients": "no address", "subject": "S", "body_text": "T", "message_id": "0197c5d0-0000-7000-8000-000000000009"}
]');
CREATE FUNCTION pg_temp.state_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
    RETURN 'none';
EXCEPTION
    WHEN OTHERS THEN
        RETURN SQLSTATE;
END;
$$;
-- With other contents it is another mail.
SELECT c.what, pg_temp.state_of(format('SELECT mailroom_send(%s, message_id => %L)', c.arguments, '0197c5d0-0000-7000-8000-000000000001'))
FROM (VALUES
    ('recipients', $$'twice@example.com', 'S', 'T'$$),
    ('cc', $$'once@example.com', 'S', 'T', cc => 'twice@example.com'$$),
    ('bcc', $$'once@example.com', 'S', 'T', bcc => 'twice@example.com'$$),
    ('reply_to', $$'once@example.com', 'S', 'T', reply_to => 'twice@example.com'$$),
    ('subject', $$'once@example.com', 'S2', 'T'$$),
    ('body_text', $$'once@example.com', 'S', 'T2'$$),
    ('body_html', $$'once@example.com', 'S', 'T', 'H'$$),
    ('kind', $$'once@example.com', 'S', 'T', kind => 'other'$$),
    ('data', $$'once@example.com', 'S', 'T', data => '{"n": 1}'$$)
) c (what, arguments);
SELECT mailroom_send('once@example.com', 'S', 'T2', message_id => '0197c5d0-0000-7000-8000-000000000001');
SELECT id = :once AS same FROM mailroom_send_many('[{"recipients": "no address", "message_id": "0197c5d0-0000-7000-8000-000000000001"}]');
SELECT mailroom_send_many('[
    {"recipients": "a@example.com", "subject": "S", "body_text": "T", "message_id": "0197c5d0-0000-7000-8000-000000000002"},
    {"recipients": "b@example.com", "subject": "S", "body_text": "T", "message_id": "0197c5d0-0000-7000-8000-000000000002"}
]');
UPDATE outbox SET state = 'sent' WHERE id = :once;
SELECT mailroom_send('once@example.com', 'S', 'T', item_key => 'once', on_conflict => 'replace', message_id => '0197c5d0-0000-7000-8000-000000000001') = :once AS same;
SELECT array_agg(m.id = :once ORDER BY m.ordinality) AS same FROM mailroom_send_many('[
    {"recipients": "new@example.com", "subject": "S", "body_text": "T"},
    {"recipients": "once@example.com", "subject": "S", "body_text": "T", "message_id": "0197c5d0-0000-7000-8000-000000000001"},
    {"recipients": "a@example.com", "subject": "S", "body_text": "T", "message_id": "0197c5d0-0000-7000-8000-000000000002"},
    {"recipients": "a@example.com", "subject": "S", "body_text": "T", "priority": 5, "message_id": "0197c5d0-0000-7000-8000-000000000002"}
]') WITH ORDINALITY m;
SELECT recipients, item_key, state, message_id FROM outbox WHERE message_id < '0197c5d0-0000-7000-8000-000000000003' ORDER BY id;
BEGIN;
CREATE ROLE another IN ROLE mailroom_app;
SET LOCAL ROLE another;
SELECT mailroom_send('once@example.com', 'S', 'T', message_id => '0197c5d0-0000-7000-8000-000000000001');
ROLLBACK;
SELECT mailroom_send('a@example.com', 'S', 'T', message_id => 'no id');
-- One that was generated has the time in front and the version behind it (RFC 9562).
SELECT count(*) AS of_version_7
FROM outbox
WHERE message_id::text ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'
  AND abs(('x' || left(replace(message_id::text, '-', ''), 12))::bit(48)::bigint / 1000.0 - extract(epoch FROM created_at)) < 60
  AND recipients = '{new@example.com}';
-- What is claimed or has ended stays as it is.
SELECT mailroom_send('claimed@example.com', 'S', 'T', item_key => 'claimed') AS i \gset
UPDATE outbox SET state = 'claimed', claimed_by = 'me', claimed_at = now(), claimed_until = now() + '1 min' WHERE id = :i;
SELECT mailroom_cancel(:i), mailroom_cancel_item('claimed'), mailroom_reschedule(:i, now()), mailroom_reschedule_item('claimed', now());
UPDATE outbox SET state = 'sent' WHERE id = :i;
SELECT mailroom_cancel(:i), mailroom_cancel_item('claimed'), mailroom_reschedule(:i, now()), mailroom_reschedule_item('claimed', now());
-- Mail with a token can be taken back; its secrets go with it.
INSERT INTO accounts (email, login) VALUES ('token@example.com', 'token');
SELECT mailroom_collect();
SELECT mailroom_cancel(id) FROM outbox WHERE kind = 'activation';
SELECT state, data FROM outbox WHERE kind = 'activation';
TRUNCATE outbox RESTART IDENTITY;

-- In bulk: ids in the order of the array.
SELECT * FROM mailroom_send_many('[
    {"recipients": "z@example.com", "subject": "S", "body_text": "T"},
    {"recipients": ["y@example.com", "x@example.com"], "subject": "S", "body_html": "H", "cc": ["c@example.com"], "bcc": null,
     "reply_to": ["h@example.net", "d@example.net"],
     "kind": "news", "data": {"n": 1}, "send_at": "2040-01-01T00:00:00Z", "expires_at": "2040-01-02T00:00:00Z",
     "priority": -1, "item_key": "a", "group_key": "g", "max_attempts": 2, "on_conflict": "error"},
    {"recipients": "w@example.com", "subject": "S", "body_text": "T", "reply_to": "h@example.net", "body_html": null, "kind": null, "data": null,
     "send_at": null, "expires_at": null, "priority": null, "item_key": "b", "group_key": null, "max_attempts": null, "on_conflict": null}
]');
SELECT
    id, recipients, cc, bcc, reply_to, subject, body_text, body_html, kind, data, send_at = '2040-01-01 00:00:00+00' AS send_at,
    expires_at = '2040-01-02 00:00:00+00' AS expires_at, priority, item_key, group_key, max_attempts
FROM outbox
ORDER BY id;
-- Some keys are taken, by rows and by each other: the last one that replaces counts, else the first.
CREATE TEMPORARY TABLE scheduled AS
SELECT * FROM mailroom_send_many('[
    {"recipients": "1@example.com", "subject": "S", "body_text": "T", "item_key": "a", "on_conflict": "ignore"},
    {"recipients": "2@example.com", "subject": "S", "body_text": "T"},
    {"recipients": "3@example.com", "subject": "S", "body_text": "T", "item_key": "b", "on_conflict": "replace"},
    {"recipients": "4@example.com", "subject": "S", "body_text": "T", "item_key": "new", "on_conflict": "ignore"},
    {"recipients": "5@example.com", "subject": "S", "body_text": "T", "item_key": "new", "on_conflict": "ignore"},
    {"recipients": "6@example.com", "subject": "S", "body_text": "T", "item_key": "twice"},
    {"recipients": "7@example.com", "subject": "S", "body_text": "T", "item_key": "twice", "on_conflict": "replace"},
    {"recipients": "8@example.com", "subject": "S", "body_text": "T", "item_key": "twice", "on_conflict": "ignore"}
]');
SELECT * FROM scheduled;
SELECT id, recipients, state, item_key FROM outbox ORDER BY id;
-- All or none, and the culprit by its place.
SELECT count(*) AS before FROM outbox \gset
SELECT * FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T"}, {"recipients": "nobody", "subject": "S", "body_text": "T"}, {"recipients": "", "subject": "S", "body_text": "T"}]');
SELECT * FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T"}, {"recipients": "a@example.com", "sbject": "S", "boddy": "T"}]');
SELECT * FROM mailroom_send_many('[{"recipients": {"to": "a@example.com"}, "subject": "S", "body_text": "T"}]');
SELECT * FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T"}, 7]');
SELECT * FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": {"en": "x"}, "body_text": "T"}]');
SELECT * FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": ["B"]}]');
SELECT * FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T", "kind": [1]}]');
SELECT * FROM mailroom_send_many('[{"recipients": ["a@example.com", 7], "subject": "S", "body_text": "T"}]');
SELECT * FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T"}, {"recipients": "a@example.com", "subject": "S", "body_text": "T", "send_at": "never"}]');
SELECT * FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T"}, {"recipients": "a@example.com", "subject": "S", "body_text": "T", "priority": "high"}]');
SELECT * FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T"}]');
SELECT * FROM mailroom_send_many('[{"subject": "S", "body_text": "T"}]');
SELECT * FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T", "item_key": "u"}, {"recipients": "a@example.com", "subject": "S", "body_text": "T", "item_key": "u"}]');
SELECT * FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T"}, {"recipients": "a@example.com", "subject": "S", "body_text": "T", "item_key": "a"}]');
SELECT * FROM mailroom_send_many('{"recipients": "a@example.com"}');
SELECT * FROM mailroom_send_many(NULL);
SELECT * FROM mailroom_send_many('[]');
SELECT count(*) - :before AS more FROM outbox;
SELECT * FROM mailroom_send_many('[
    {"recipients": "a@example.com", "subject": "S", "body_text": "T", "item_key": "u", "on_conflict": "replace"},
    {"recipients": "a@example.com", "subject": "S", "body_text": "T", "item_key": "u"}
]');
-- Of any number of messages with one item_key that replace, the last is scheduled, and all have its id.
CREATE TEMPORARY TABLE same AS
SELECT s.*
FROM mailroom_send_many((
    SELECT jsonb_agg(jsonb_build_object('recipients', n || '@example.com', 'subject', 'S', 'body_text', 'T', 'item_key', 'same', 'on_conflict', 'replace') ORDER BY n)
    FROM generate_series(1, 250) n
)) WITH ORDINALITY s (id, place);
SELECT o.recipients, o.state, count(*) FROM same s JOIN outbox o USING (id) GROUP BY o.id;
SELECT count(*) FROM outbox WHERE item_key = 'same';
DROP TABLE same;
-- Messages that a trigger of the application keeps out have no id, and the others have theirs in their places.
CREATE FUNCTION pg_temp.keep_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END; $$;
CREATE TRIGGER keep_out BEFORE INSERT ON outbox FOR EACH ROW WHEN (NEW.kind = 'unwanted') EXECUTE FUNCTION pg_temp.keep_out();
CREATE TEMPORARY TABLE kept AS SELECT m.* FROM mailroom_send_many('[
    {"recipients": "1@example.com", "subject": "S", "body_text": "T", "kind": "unwanted"},
    {"recipients": "2@example.com", "subject": "S", "body_text": "T"},
    {"recipients": "3@example.com", "subject": "S", "body_text": "T", "kind": "unwanted"},
    {"recipients": "4@example.com", "subject": "S", "body_text": "T"}
]') WITH ORDINALITY m (id, place);
SELECT k.place, k.id IS NOT NULL AS stored, o.recipients FROM kept k LEFT JOIN outbox o USING (id) ORDER BY k.place;
DROP TABLE kept;
CREATE TEMPORARY TABLE kept AS SELECT m.* FROM mailroom_send_many('[
    {"recipients": "1@example.com", "subject": "S", "body_text": "T", "kind": "unwanted", "item_key": "out"},
    {"recipients": "2@example.com", "subject": "S", "body_text": "T", "item_key": "in"},
    {"recipients": "3@example.com", "subject": "S", "body_text": "T", "kind": "unwanted"},
    {"recipients": "4@example.com", "subject": "S", "body_text": "T", "item_key": "out", "on_conflict": "ignore"},
    {"recipients": "5@example.com", "subject": "S", "body_text": "T", "kind": "unwanted", "message_id": "0197c5d0-0000-7000-8000-000000000005"},
    {"recipients": "6@example.com", "subject": "S", "body_text": "T", "kind": "unwanted", "item_key": "out", "on_conflict": "replace"},
    {"recipients": "7@example.com", "subject": "S", "body_text": "T"}
]') WITH ORDINALITY m (id, place);
SELECT k.place, k.id IS NOT NULL AS stored, o.recipients FROM kept k LEFT JOIN outbox o USING (id) ORDER BY k.place;
DROP TABLE kept;
SELECT mailroom_send('a@example.com', 'S', 'T', kind => 'unwanted') IS NULL AS kept_out;
DROP TRIGGER keep_out ON outbox;
-- Ten thousand.
DROP TABLE scheduled;
CREATE TEMPORARY TABLE scheduled AS
SELECT s.*
FROM mailroom_send_many((
    SELECT jsonb_agg(jsonb_build_object('recipients', n || '@example.com', 'subject', 'S', 'body_text', 'T', 'item_key', 'bulk-' || n) ORDER BY n)
    FROM generate_series(1, 10000) n
)) WITH ORDINALITY s (id, place);
SELECT count(*), max(id) - min(id) AS span, bool_and(o.recipients[1] = s.place || '@example.com') AS in_order
FROM scheduled s
JOIN outbox o USING (id);

-- Each cause has an SQLSTATE of its own.
TRUNCATE outbox;
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('greeting', 'en', 'S', 'Hello, {{ name }}.');
SELECT c.what, pg_temp.state_of('SELECT * FROM ' || c.call) AS state
FROM (VALUES
    ('no recipient', $$mailroom_send('', 'S', 'T')$$),
    ('no address', $$mailroom_send('nobody', 'S', 'T')$$),
    ('no address, in a list', $$mailroom_send_many('[{"recipients": "a@example.com", "cc": "nobody", "subject": "S", "body_text": "T"}]')$$),
    ('a priority', $$mailroom_send('a@example.com', 'S', 'T', priority => 101)$$),
    ('no transport', $$mailroom_send('a@example.com', 'S', 'T', transport => 'nowhere')$$),
    ('no template', $$mailroom_send('a@example.com', kind => 'nothing')$$),
    ('an item', $$mailroom_send('a@example.com', 'S', 'T', item_key => 'k', expires_at => '2040-01-01')$$),
    ('its key', $$mailroom_send('a@example.com', 'S', 'T', item_key => 'k')$$),
    ('to an infinite time', $$mailroom_reschedule_item('k', 'infinity')$$),
    ('to a time after its end', $$mailroom_reschedule_item('k', '2041-01-01')$$),
    ('preview without a template', $$mailroom_preview('nothing')$$),
    ('preview without a variable', $$mailroom_preview('greeting')$$),
    ('retry without a condition', $$mailroom_retry_failed()$$),
    ('retry of none', $$mailroom_retry_failed('own', batch_limit => 0)$$),
    ('reroute to nowhere', $$mailroom_reroute('', 'nowhere')$$),
    ('reroute to where it is', $$mailroom_reroute('', '')$$)
) c (what, call);

DROP EXTENSION mailroom;
