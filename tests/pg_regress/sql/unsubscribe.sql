-- Unsubscribing: the link in mail of a list, and what a click does.

SET client_min_messages = error;
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
\pset format unaligned

-- Without a base URL there is no link.
SELECT mailroom_unsubscribe_url('ann@example.com', 'news');
SELECT mailroom_send('Ann <Ann@example.com>', 'S', 'T', list => 'news') AS one \gset
SELECT id, list, unsubscribe_url, data FROM mailroom_claim(1, claimant => 'c');
SELECT mailroom_release(:one, 'c');

SET mailroom.link_base_url = 'https://example.com/app/';
SELECT mailroom_unsubscribe_url('Ann@EXAMPLE.com', 'news') AS url \gset
SELECT left(:'url', 42), split_part(:'url', '=', 2) AS token \gset
SELECT :'left';
SELECT unsubscribe_url = :'url' AS same, data ->> 'unsubscribe_link' = :'url' AS variable FROM mailroom_claim(1, claimant => 'c');
SELECT mailroom_mark_sent(:one, claimant => 'c');

-- As templates have it; a URL of the application's own goes before it.
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('digest', 'en', 'News', 'Stop: {{ unsubscribe_link }}');
SELECT mailroom_send('ann@example.com', kind => 'digest', list => 'news');
SELECT mailroom_send('ann@example.com', kind => 'digest', list => 'news', unsubscribe_url => 'https://example.com/own');
SELECT replace(body_text, :'token', 'TOKEN'), replace(unsubscribe_url, :'token', 'TOKEN') FROM mailroom_claim(2, claimant => 'c') ORDER BY id;
SELECT mailroom_mark_sent_many('{2,3}', claimant => 'c');
-- The header needs https, and a mail to several has none.
SET mailroom.link_base_url = 'http://localhost:3000';
SELECT mailroom_send('ann@example.com', kind => 'digest', list => 'news');
INSERT INTO outbox (kind, recipients, subject, body_text, transport, list) VALUES ('x', '{a@example.com,b@example.com}', 'S', 'T', '', 'news');
SELECT left(body_text, 46), unsubscribe_url FROM mailroom_claim(2, claimant => 'c') ORDER BY id;
SET mailroom.link_base_url = 'https://example.com';

-- A click, twice; then mail of this list goes nowhere, and other mail does.
SELECT mailroom_unsubscribe(:'token');
SELECT mailroom_unsubscribe(:'token');
SELECT address, list, reason, until FROM suppressions;
SELECT mailroom_send('ann@example.com', 'S', 'T', list => 'news') AS news, mailroom_send('ann@example.com', 'S', 'T', list => 'offers') AS offers, mailroom_send('ann@example.com', 'S', 'T') AS other \gset
SELECT coalesce(list, 'none') FROM mailroom_claim(10, claimant => 'c') ORDER BY 1;
SELECT state, last_error FROM outbox WHERE id = :news;

-- What no key signed.
SELECT mailroom_unsubscribe(''), mailroom_unsubscribe(NULL), mailroom_unsubscribe(overlay(:'token' placing 'AAAA' from 3)), mailroom_unsubscribe(:'token' || 'A'), mailroom_unsubscribe(repeat('A', 10000));
SELECT mailroom_unsubscribe(E'\u00e9');

-- By an event: the list of that mail; of mail without one, it is recorded only.
TRUNCATE suppressions, delivery_events;
SELECT mailroom_report('', jsonb_build_array(jsonb_build_object('type', 'unsubscribed', 'event_id', id::text, 'message_id', message_id)))
FROM outbox
WHERE id IN (:offers, :other);
SELECT address, list, reason FROM suppressions;

-- What is not valid.
SELECT mailroom_send('a@example.com, b@example.com', 'S', 'T', list => 'news');
SELECT mailroom_send('a@example.com', 'S', 'T', list => '');
SELECT id FROM mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T", "list": "a\nb"}]');
SELECT mailroom_unsubscribe_url('a@example.com', '');
SELECT mailroom_unsubscribe_url('a@example.com', NULL);
SELECT mailroom_unsubscribe_url('ann', 'news');

-- Without a key, mail of lists waits, and other mail does not.
SELECT mailroom_send('x@example.com', 'S', 'T', list => 'offers') AS list, mailroom_send('x@example.com', 'S', 'T', list => 'offers', unsubscribe_url => 'https://example.com/own') AS own, mailroom_send('x@example.com', 'S', 'T') AS plain \gset
BEGIN;
SET LOCAL mailroom.key_file = 'absent';
SELECT CASE id WHEN :own THEN 'own' WHEN :plain THEN 'plain' WHEN :list THEN 'list' END FROM mailroom_claim(10, claimant => 'c') ORDER BY id;
ROLLBACK;
SELECT mailroom_cancel(:list), mailroom_cancel(:own), mailroom_cancel(:plain);

-- The application and the receiver may, and read nothing by it.
CREATE ROLE regress_receiver LOGIN IN ROLE mailroom_receiver;
CREATE ROLE regress_sender LOGIN IN ROLE mailroom_sender;
SET ROLE regress_receiver;
SELECT mailroom_unsubscribe(:'token');
SELECT mailroom_unsubscribe_url('ann@example.com', 'news');
SELECT mailroom_suppressed('ann@example.com', 'news');
SET ROLE regress_sender;
SELECT mailroom_unsubscribe(:'token');
RESET ROLE;
SELECT mailroom_send('x@example.com', 'S', 'T', list => 'news') > 0;
SET ROLE regress_sender;
SELECT list, unsubscribe_url LIKE 'https://example.com/unsubscribe?token=%' FROM mailroom_claim(10);
RESET ROLE;
DROP ROLE regress_receiver, regress_sender;

DROP EXTENSION mailroom;
