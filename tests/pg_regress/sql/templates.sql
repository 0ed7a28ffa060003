-- Templates: what is stored and what is refused, which one a mail gets, what it makes of a mail, and that what
-- a visitor wrote into a form never becomes part of a template.

SET client_min_messages = error;
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
\pset format unaligned
\pset tuples_only on

-- What comes with the library, with a link and without.
SELECT kind, locale, subject, builtin FROM mailroom_templates ORDER BY kind, locale;
SELECT * FROM templates;
SELECT subject, body_text FROM mailroom_preview('activation');
SELECT subject, body_text FROM mailroom_preview('password_recovery');
SET mailroom.link_base_url = 'https://example.com/account/';
SELECT subject, body_text FROM mailroom_preview('activation');
SELECT subject, body_text FROM mailroom_preview('password_recovery');
SELECT body_html FROM mailroom_preview('password_recovery');
RESET mailroom.link_base_url;

-- Refused when stored: by part, line and column.
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('w', 'en', 'Hello {{ login', 'T');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('w', 'en', 'S', E'Hello\n{% if login %}');
INSERT INTO templates (kind, locale, subject, body_html) VALUES ('w', 'en', 'S', E'<p>\n  {{ login | uper }}');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('w', 'en', 'S', '{% include "/etc/passwd" %}');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('w', 'en', 'S', '{{ debug() }}');
\set VERBOSITY terse
INSERT INTO templates (kind, locale, subject) VALUES ('w', 'en', 'S');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('w', 'en', '', 'T');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('', 'en', 'S', 'T');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('w', 'en_GB', 'S', 'T');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('w', '', 'S', 'T');
\set VERBOSITY default
INSERT INTO templates (kind, locale, subject, body_text, body_html) VALUES
    ('w', 'en', 'Hello {{ name }}', 'Dear {{ name }}, {{ count }} items for {{ recipients | join(" and ") }}', '<b>{{ name }}</b> {{ kind }} {{ locale }} {{ message_id }}'),
    ('w', 'pt', 'Oi {{ name }}', 'Oi {{ name }}', NULL),
    ('w', 'pt-br', 'Opa {{ name }}', 'Opa {{ name }}', NULL);
UPDATE templates SET body_text = '{% for %}' WHERE locale = 'pt';
-- updated_at follows.
UPDATE templates SET updated_at = '2000-01-01' WHERE locale = 'pt' RETURNING updated_at = now();

-- Preview, and what it says when it fails.
SELECT * FROM mailroom_preview('w', '{"name": "Ann", "count": 2}');
SELECT * FROM mailroom_preview('w', '{"name": "Ann"}');
SELECT * FROM mailroom_preview('w', '{"name": "Ann", "count": null}');
SELECT * FROM mailroom_preview('w', '{"name": "Ann\r\nBcc: b@example.com", "count": 2}');
SELECT * FROM mailroom_preview('nothing');
SELECT * FROM mailroom_preview('w', '[]');
SELECT * FROM mailroom_preview('w', NULL);
-- Which locale: exact, shorter, default.
SELECT l, p.subject FROM unnest(ARRAY['pt-BR', 'pt_BR', 'pt-PT', 'PT', 'de', NULL]) l CROSS JOIN LATERAL mailroom_preview('w', '{"name": "Ann", "count": 2}', l) p;
-- The script of the region comes before the language, and the name of a POSIX locale will do.
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('s', 'zh', '{{ locale }}', 'T'), ('s', 'zh-hant', '{{ locale }}', 'T'), ('s', 'sr-latn', '{{ locale }}', 'T'), ('s', 'pt-br', '{{ locale }}', 'T'), ('s', 'en', '{{ locale }}', 'T');
SELECT l, p.subject
FROM unnest(ARRAY['zh-HK', 'zh_TW.UTF-8', 'zh-Hant-HK', 'zh-CN', 'zh', 'sr-ME', 'sr_RS@latin', 'sr-RS', 'pt_BR.UTF-8', 'de_DE@euro']) l
CROSS JOIN LATERAL mailroom_preview('s', locale => l) p;
DELETE FROM templates WHERE kind = 's';
-- A tag that is too long is not taken apart.
SELECT subject FROM mailroom_preview('w', '{"name": "Ann", "count": 2}', repeat('pt-', 200000));
SET mailroom.locale = 'pt-BR';
SELECT l, p.subject FROM unnest(ARRAY['en', 'pt', 'de', NULL]) l CROSS JOIN LATERAL mailroom_preview('w', '{"name": "Ann", "count": 2}', l) p;
-- The library's own are the last resort, and so is what replaces them.
SELECT subject FROM mailroom_preview('activation');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('activation', 'en', 'Mine', '{{ login }}');
SELECT subject, body_text, body_html FROM mailroom_preview('activation', '{"login": "bob"}');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('activation', 'pt', 'Ative', '{{ login }}');
SELECT subject FROM mailroom_preview('activation');
SELECT subject FROM mailroom_preview('activation', locale => 'en');
RESET mailroom.locale;
SELECT subject FROM mailroom_preview('activation', locale => 'de');
SELECT kind, locale, builtin FROM mailroom_templates ORDER BY kind, locale;
DELETE FROM templates WHERE kind = 'activation';
SELECT subject FROM mailroom_preview('activation');

-- The library's own repeat no message of a stranger.
SELECT l, left(p.body_text, strpos(p.body_text, E'\n') - 1) AS greeting
FROM unnest(ARRAY['ada', 'ada lovelace', 'winner! Claim 500 EUR at https://evil.example/claim now.', 'evil.example']) l
CROSS JOIN LATERAL mailroom_preview('activation', jsonb_build_object('login', l)) p;

-- What a stranger may have written is a value and stays one.
INSERT INTO templates (kind, locale, subject, body_text, body_html) VALUES ('x', 'en', '{{ v }}', '{{ v }}', '<p title="{{ v }}">{{ v }}</p>');
SELECT p.*
FROM unnest(ARRAY['<script>alert("1")</script>', '{{7*7}}', '{% include "a" %}', '{{ secret }}', '&amp; ''x''']) v
CROSS JOIN LATERAL mailroom_preview('x', jsonb_build_object('v', v, 'secret', 's3cret')) p;
-- Nor can it take the place of a variable of ours.
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('y', 'en', '{{ kind }} {{ message_id }} {{ recipients[0] }}', 'T');
SELECT subject FROM mailroom_preview('y', '{"kind": "k", "message_id": "m", "recipients": ["r"]}');

-- As a sender gets it: errors are values, and hold none of the message.
INSERT INTO templates (kind, locale, subject, body_text) VALUES
    ('fails', 'en', 'S', E'Hello\n{{ login | int }}'),
    ('endless', 'en', 'S', '{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}'),
    ('long', 'en', 'S', '{% for a in range(2000) %}' || repeat('x', 1000) || '{% endfor %}'),
    ('growing', 'en', 'S', repeat('{% set login = login ~ login %}', 60)),
    ('lines', 'en', '{{ login }}', 'T');
INSERT INTO outbox (kind, recipients, subject, body_text, body_html, data, expires_at, message_id) VALUES
    ('w', '{a@example.com}', NULL, NULL, NULL, '{"name": "Ann", "count": 2}', NULL, 'c0ffee00-0000-0000-0000-000000000000'),
    ('w', '{a@example.com}', 'Own', NULL, NULL, '{"name": "Ann", "count": 2}', NULL, 'c0ffee00-0000-0000-0000-000000000001'),
    ('w', '{a@example.com}', NULL, 'Own', NULL, '{"name": "Ann", "count": 2}', NULL, DEFAULT),
    ('w', '{a@example.com}', NULL, NULL, 'Own', '{"name": "Ann", "count": 2}', NULL, DEFAULT),
    ('w', '{a@example.com}', 'Own', 'Own {{ name }}', '<b>{{ name }}</b>', '{"name": "Ann"}', NULL, DEFAULT),
    ('w', '{a@example.com}', NULL, NULL, NULL, '{"name": "Ann", "locale": "pt-BR"}', NULL, DEFAULT),
    ('activation', '{a@example.com}', NULL, NULL, NULL, '{"login": "al", "token": "TOKEN", "code": "12345"}', '2130-01-01 12:15:59+00', DEFAULT),
    ('none', '{a@example.com}', NULL, NULL, NULL, '{}', NULL, DEFAULT),
    ('fails', '{a@example.com}', NULL, NULL, NULL, '{"login": "s3cret"}', NULL, DEFAULT),
    ('endless', '{a@example.com}', NULL, NULL, NULL, '{"login": "s3cret"}', NULL, DEFAULT),
    ('long', '{a@example.com}', NULL, NULL, NULL, '{"login": "s"}', NULL, DEFAULT),
    ('growing', '{a@example.com}', NULL, NULL, NULL, '{"login": "s3cret"}', NULL, DEFAULT),
    ('lines', '{a@example.com}', NULL, NULL, NULL, '{"login": "s3\ncret"}', NULL, DEFAULT),
    ('x', '{a@example.com}', NULL, NULL, NULL, '{"login": "s3cret"}', NULL, DEFAULT),
    ('x', '{a@example.com}', NULL, NULL, NULL, ('{"v": ' || repeat('[', 200) || repeat(']', 200) || '}')::jsonb, NULL, DEFAULT),
    ('x', '{a@example.com}', NULL, NULL, NULL, '{"v": 1e400}', NULL, DEFAULT);
-- By those who send: what cannot be rendered ends, does not count, and is not stored.
SET ROLE mailroom_sender;
SELECT c.subject, c.body_text, left(c.body_html, 80) FROM mailroom_claim(5, '1 h', 'me') c;
SELECT c.subject, c.body_text, left(c.body_html, 80) FROM mailroom_claim(100, '1 h', 'me') c;
RESET ROLE;
SELECT kind, state, last_error FROM outbox WHERE state = 'error' ORDER BY id;
SELECT count(*) FROM outbox WHERE subject LIKE 'Hello%' OR body_text LIKE 'Dear%';
RESET ROLE;
-- A row that a trigger of the application's own keeps as it is stops no claim.
INSERT INTO outbox (kind, recipients, subject, body_text) VALUES ('kept', '{k@example.com}', 'Kept', 'Text'), ('own', '{k@example.com}', 'After', 'Text');
CREATE FUNCTION pg_temp.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep BEFORE UPDATE ON outbox FOR EACH ROW WHEN (OLD.kind = 'kept') EXECUTE FUNCTION pg_temp.keep();
SELECT c.subject FROM mailroom_claim(10, '1 h', 'me') c;
DROP TRIGGER keep ON outbox;
DELETE FROM outbox WHERE kind IN ('kept', 'own');
-- And those who schedule.
SET ROLE mailroom_sender;
SELECT subject FROM mailroom_preview('w', '{"name": "Ann", "count": 2}');
SET ROLE mailroom_app;
SELECT subject FROM mailroom_preview('w', '{"name": "Ann", "count": 2}');
RESET ROLE;

-- A changed template is in force at once.
UPDATE templates SET subject = 'Changed' WHERE kind = 'w' AND locale = 'en';
SELECT count(mailroom_release(id, 'me')) FROM outbox WHERE state = 'claimed';
SELECT c.subject FROM mailroom_claim(1, '1 h', 'me') c;

DROP EXTENSION mailroom;

-- In a database that is not in UTF8 text is what it is in UTF-8, and what the database has no letter for is refused.
SELECT current_database() AS here \gset
CREATE DATABASE mail_latin1 ENCODING LATIN1 TEMPLATE template0 LOCALE 'C';
\c mail_latin1
SET client_min_messages = error;
CREATE EXTENSION mailroom;
SELECT mailroom_send('a@example.com', 'S' || chr(252), 'T' || chr(252)) IS NOT NULL;
SELECT mailroom_send(chr(252) || '@example.com', 'S', 'T');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('w', 'en', chr(252), 'T');
SELECT encode(convert_to(subject, 'UTF8'), 'hex') FROM mailroom_preview('w');
INSERT INTO templates (kind, locale, subject, body_text) VALUES ('x', 'en', '{{ v }}', 'T'), ('y', 'en', '{{ "\u00fc" }}', 'T'), ('z', 'en', '{{ "\u20ac" }}', 'T');
SELECT subject FROM mailroom_preview('x', '{"v": "<v>"}');
SELECT encode(convert_to(subject, 'UTF8'), 'hex') FROM mailroom_preview('x', '{"v": "\u00fc"}');
SELECT encode(convert_to(subject, 'UTF8'), 'hex') FROM mailroom_preview('y');
SELECT subject FROM mailroom_preview('z');
\c :here
DROP DATABASE mail_latin1;
