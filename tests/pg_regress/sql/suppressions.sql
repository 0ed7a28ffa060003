-- Suppressions: who is suppressed by what and for how long, what a claim leaves out, and who may do what.

SET client_min_messages = error;
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
\pset format unaligned

CREATE VIEW rows AS
SELECT address, list, reason, bounces, round(extract(epoch FROM until - now()) / 86400) AS days
FROM suppressions
ORDER BY address, list, reason;
CREATE VIEW mails AS SELECT id, state, recipients, last_error FROM outbox ORDER BY id;
CREATE VIEW seen AS SELECT outbox_id, type, is_permanent AS permanent, reason, recipient, status FROM delivery_events ORDER BY id;
CREATE FUNCTION about(mail bigint, type text, extra jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_array(jsonb_build_object('type', type, 'event_id', gen_random_uuid(), 'message_id', o.message_id) || extra)
    FROM outbox o
    WHERE id = mail
$$;
CREATE FUNCTION claim() RETURNS TABLE (id bigint, recipients text[], cc text[], bcc text[]) LANGUAGE sql AS $$
    SELECT c.id, c.recipients, c.cc, c.bcc FROM mailroom_claim(100, claimant => 'c') c
$$;

-- By hand. One key, however the address is written.
SELECT mailroom_suppress('Ann@EXAMPLE.com');
SELECT mailroom_suppress('ann@example.com');
SELECT mailroom_suppress('ann@example.com', 'news', 'unsubscribed');
SELECT mailroom_suppress(' ZOE@bücher.example');
SELECT mailroom_suppress_many(ARRAY['a@example.com', 'b@example.com', 'A@example.com', 'ann@example.com'], reason => 'bounced', until => now() + interval '10 days');
SELECT * FROM rows;
SELECT mailroom_suppressed('ANN@example.com'), mailroom_suppressed('zoe@xn--bcher-kva.example', 'x'), mailroom_suppressed('c@example.com'), mailroom_suppressed('nothing');
SELECT mailroom_unsuppress('ann@example.com', '');
SELECT mailroom_suppressed('ann@example.com'), mailroom_suppressed('ann@example.com', 'news'), mailroom_suppressed('ann@example.com', 'offers');
SELECT mailroom_unsuppress('Ann@Example.com');
SELECT mailroom_unsuppress('Ann@Example.com');
-- One that has ended is news again.
SELECT mailroom_suppress('c@example.com', until => now() - interval '1 day');
SELECT mailroom_suppressed('c@example.com');
SELECT mailroom_suppress('c@example.com');
SELECT mailroom_suppressed('c@example.com');
-- No call makes one shorter.
SELECT mailroom_suppress('c@example.com', until => 'yesterday'), mailroom_suppressed('c@example.com');

-- What is not valid changes nothing.
SELECT mailroom_suppress('Ann <ann@example.com>');
SELECT mailroom_suppress(NULL);
SELECT mailroom_suppress_many(ARRAY['a@example.com', NULL]);
SELECT mailroom_suppress_many(ARRAY['x@example.com', 'y@']);
SELECT mailroom_suppress_many(NULL);
SELECT mailroom_suppress('x@example.com', NULL);
SELECT mailroom_suppress('x@example.com', reason => NULL);
SELECT mailroom_suppress('x@example.com', E'a\nb');
SELECT mailroom_suppress('x@example.com', repeat('a', 129));
SELECT mailroom_suppress_many('{}');
\set VERBOSITY terse
INSERT INTO suppressions (address, reason) VALUES ('X@example.com', 'manual');
\set VERBOSITY default
SELECT count(*) FROM suppressions WHERE address LIKE 'x%' OR address LIKE 'y%';
TRUNCATE suppressions;

-- Bounces: three days, then 30, then 365. What comes meanwhile was on its way before.
SELECT mailroom_send('a@example.com', 'S', 'T') AS one \gset
SELECT id FROM mailroom_claim(1, claimant => 'c');
SELECT mailroom_mark_sent(:one, claimant => 'c');
SELECT mailroom_report('', about(:one, 'bounced', '{"is_permanent": true}'));
SELECT mailroom_report('', about(:one, 'bounced', '{"is_permanent": true}'));
SELECT * FROM rows;
UPDATE suppressions SET since = since - interval '4 days', until = until - interval '4 days';
SELECT mailroom_suppressed('a@example.com');
SELECT mailroom_report('', about(:one, 'bounced', '{"is_permanent": true}'));
SELECT * FROM rows;
UPDATE suppressions SET since = since - interval '40 days', until = until - interval '40 days';
SELECT mailroom_report('', about(:one, 'bounced', '{"is_permanent": true}'));
SELECT * FROM rows;
-- A delivery lifts it, if it came after the bounce; nothing else does.
SELECT mailroom_report('', about(:one, 'delivered', '{"occurred_at": "2026-01-01T00:00:00Z"}'));
SELECT mailroom_report('', about(:one, 'deferred') || about(:one, 'accepted'));
SELECT mailroom_suppressed('a@example.com');
SELECT mailroom_report('', about(:one, 'delivered', jsonb_build_object('occurred_at', to_char(now() AT TIME ZONE 'UTC' + interval '1 minute', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))));
SELECT mailroom_suppressed('a@example.com');
SELECT * FROM rows;
-- In one report, the delivery came after the bounce; one that has ended stays, and counts with the next.
SELECT mailroom_report('', about(:one, 'delivered') || about(:one, 'bounced', jsonb_build_object('is_permanent', true, 'occurred_at', to_char(now() AT TIME ZONE 'UTC' - interval '1 hour', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))));
SELECT * FROM rows;
SELECT mailroom_report('', about(:one, 'bounced', '{"is_permanent": true}'));
UPDATE suppressions SET since = since - interval '4 days', until = until - interval '4 days';
SELECT mailroom_report('', about(:one, 'delivered'));
SELECT mailroom_report('', about(:one, 'bounced', '{"is_permanent": true}'));
SELECT * FROM rows;
TRUNCATE suppressions;
-- What is not proven concerns no other recipient of a mail, and no time before it.
SELECT mailroom_send('mallory@example.com, victim@example.com', 'S', 'T') AS many \gset
SELECT mailroom_report('', about(:many, 'bounced', jsonb_build_object('event_id', null, 'recipient', 'victim@example.com', 'is_permanent', true, 'occurred_at', at)))
FROM unnest('{2020-01-01T00:00:00Z,2020-06-01T00:00:00Z}'::text[]) at;
SELECT mailroom_report('', about(:one, 'bounced', jsonb_build_object('event_id', null, 'recipient', 'a@example.com', 'is_permanent', true, 'occurred_at', at)))
FROM unnest('{2020-01-01T00:00:00Z,2020-06-01T00:00:00Z}'::text[]) at;
SELECT * FROM rows;
SELECT mailroom_cancel(:many);
TRUNCATE suppressions;
-- Others do not suppress: not permanent, a policy, a failure.
SELECT mailroom_report('', about(:one, 'bounced') || about(:one, 'failed') || about(:one, 'rejected', '{"is_permanent": true, "reason": "spam"}'));
SELECT * FROM rows;
-- The provider did not try, because it knows that it bounces.
SELECT mailroom_report('', about(:one, 'rejected', '{"is_permanent": true, "reason": "bounced"}'));
SELECT * FROM rows;
TRUNCATE suppressions, delivery_events, outbox RESTART IDENTITY;

-- Each reason, and what goes out then: a recovery, an activation, an order's mail, a digest of a list.
INSERT INTO accounts (email, login, status) VALUES
    ('bounced@example.com', 'b', 'active'), ('complained@example.com', 'c', 'active'), ('unsubscribed@example.com', 'u', 'active'),
    ('manual@example.com', 'm', 'active'), ('free@example.com', 'f', 'active');
INSERT INTO accounts (email, login) SELECT split_part(email, '@', 1) || '+new@example.com', login || '+new' FROM accounts;
SELECT count(mailroom_request_recovery(email)) FROM accounts WHERE status = 'active';
SELECT mailroom_answer_requests();
SELECT count(*) FROM mailroom_collect();
INSERT INTO suppressions (address, list, reason)
SELECT a.email, CASE r.reason WHEN 'unsubscribed' THEN 'digest' ELSE '' END, r.reason
FROM accounts a
JOIN unnest(enum_range(NULL::suppression_reason)) r (reason) ON split_part(split_part(a.email, '@', 1), '+', 1) = r.reason::text;
SELECT count(mailroom_send(email, 'Your order', 'T', kind => 'order')) FROM accounts WHERE status = 'active';
SELECT count(mailroom_send(email, 'News', 'T', kind => 'digest', list => 'digest')) FROM accounts WHERE status = 'active';
SELECT kind, recipients[1] FROM mailroom_claim(100) ORDER BY kind COLLATE "C", recipients[1] COLLATE "C";
SELECT kind, recipients[1], state, secrets IS NULL AS clean, last_error FROM outbox WHERE state = 'suppressed' ORDER BY kind COLLATE "C", recipients[1] COLLATE "C";
SELECT type, reason, count(*) FROM delivery_events GROUP BY type, reason ORDER BY type, reason;
SELECT h.outcome, h.error FROM outbox_history h JOIN outbox o ON o.id = h.outbox_id WHERE o.state = 'suppressed' AND o.kind = 'order' ORDER BY 1, 2;
TRUNCATE accounts, tokens, pending, suppressions, delivery_events, outbox, outbox_attempts RESTART IDENTITY;

-- Several recipients: the others get it. Of Cc and Bcc alone nothing is sent.
SELECT mailroom_suppress_many('{a@example.com,c@example.com}');
SELECT mailroom_send('A <A@example.com>, "B, Bob" <b@example.com>', 'S', 'T', cc => 'c@example.com', bcc => 'd@example.com');
SELECT mailroom_send('a@example.com', 'S', 'T', cc => 'b@example.com');
SELECT mailroom_send('b@example.com', 'S', 'T', cc => 'c@example.com', group_key => 'g');
SELECT mailroom_send('b@example.com', 'S', 'T');
SELECT * FROM claim();
SELECT * FROM mails;
SELECT * FROM seen;
SELECT outcome, error FROM outbox_history WHERE outbox_id IN (1, 2) ORDER BY outbox_id, outcome;
-- Claimed again, it tells nothing new.
SELECT mailroom_release_many('{1,3,4}', 'c');
SELECT * FROM claim();
SELECT count(*) FROM delivery_events;
SELECT mailroom_mark_sent_many('{1,3,4}', claimant => 'c');

-- Lifted: nothing is sent by itself; then it is sent once.
SELECT mailroom_unsuppress('a@example.com');
SELECT * FROM claim();
SELECT mailroom_retry(2);
SELECT * FROM claim();
SELECT * FROM claim();
SELECT mailroom_mark_sent(2, claimant => 'c');
TRUNCATE suppressions, delivery_events, outbox, outbox_attempts RESTART IDENTITY;

-- Refused recipients: the settle says so.
SELECT mailroom_send(x || '@example.com', 'S', 'T') FROM unnest('{a,b,c,d}'::text[]) x;
SELECT mailroom_send('e@example.com, f@example.com', 'S', 'T', cc => 'g@example.com');
SELECT id FROM claim();
SELECT mailroom_mark_error_many(
    '{1,2,3}', ARRAY['smtp 550 5.1.1', 'http 422 406', 'smtp 550 5.2.2'], permanent => '{t,t,t}', claimant => 'c', recipient_refused => '{t,t,f}'
);
SELECT mailroom_mark_error(4, 'smtp 550 5.1.1 <d@example.com>', permanent => true, claimant => 'c', recipient_refused => true);
SELECT mailroom_mark_sent(5, claimant => 'c', refused_recipients => '[
    {"recipient": "E <E@example.com>", "response_code": 550, "error": "smtp 550 5.1.1", "is_permanent": true},
    {"recipient": "f@example.com", "response_code": 452, "error": "smtp 452 4.2.2"},
    {"recipient": "stranger@example.com", "response_code": 550, "error": "smtp 550 5.1.1", "is_permanent": true},
    {"recipient": "no address", "is_permanent": true}, {"is_permanent": true}, {"recipient": 1, "is_permanent": "true"}
]');
SELECT mailroom_mark_sent(5, claimant => 'c', refused_recipients => '[{"recipient": "g@example.com", "is_permanent": true}]');
SELECT mailroom_mark_error(4, 'again', permanent => true, claimant => 'c', recipient_refused => true);
SELECT * FROM rows;
SELECT * FROM seen;
-- A mail that was refused and is tried again is not taken for sent.
SELECT mailroom_unsuppress('a@example.com'), mailroom_retry(1);
SELECT id, state FROM mailroom_claim(1, claimant => 'c');
SELECT mailroom_mark_sent(1, claimant => 'c');

-- What a claim and a settle write stands beside what an application did to the table.
CREATE FUNCTION no_more() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE check_violation; END $$;
CREATE TRIGGER no_more BEFORE INSERT ON suppressions FOR EACH ROW EXECUTE FUNCTION no_more();
SELECT mailroom_send('h@example.com', 'S', 'T') AS one \gset
SELECT id FROM claim();
SELECT mailroom_mark_error(:one, 'smtp 550 5.1.1', permanent => true, claimant => 'c', recipient_refused => true);
SELECT state FROM outbox WHERE id = :one;
DROP TRIGGER no_more ON suppressions;
DROP FUNCTION no_more;

-- Status.
SELECT bounced_in_24_h, complained_in_24_h, suppressed_in_24_h FROM mailroom_status();
SELECT mailroom_report('', about(:one, 'bounced') || about(:one, 'complained'));
SELECT mailroom_suppressed('h@example.com');
SELECT bounced_in_24_h, complained_in_24_h, suppressed_in_24_h FROM mailroom_status();

-- What ended more than a year ago is purged.
UPDATE suppressions SET until = now() - interval '366 days' WHERE address IN ('b@example.com', 'd@example.com');
UPDATE suppressions SET until = now() - interval '360 days' WHERE address = 'e@example.com';
SELECT * FROM mailroom_purge();
SELECT * FROM rows;

-- Who may do what.
CREATE ROLE regress_web LOGIN IN ROLE mailroom_app;
CREATE ROLE regress_support LOGIN IN ROLE mailroom_support;
CREATE ROLE regress_monitor LOGIN IN ROLE mailroom_monitor;
SET ROLE regress_web;
SELECT mailroom_suppress('w@example.com', 'news', 'unsubscribed');
SELECT mailroom_suppress('w@example.com');
SELECT mailroom_unsuppress('w@example.com');
SELECT mailroom_suppressed('w@example.com', 'news');
SELECT address FROM suppressions;
SET ROLE regress_support;
SELECT mailroom_suppress('w@example.com');
SELECT count(*) FROM suppressions WHERE address = 'w@example.com';
SELECT mailroom_unsuppress('w@example.com');
DELETE FROM suppressions;
INSERT INTO suppressions (address, reason) VALUES ('w@example.com', 'manual');
SET ROLE regress_monitor;
SELECT list, reason, bounces FROM suppressions WHERE reason = 'manual';
SELECT address FROM suppressions;
SELECT mailroom_suppressed('w@example.com');
RESET ROLE;
DROP ROLE regress_web, regress_support, regress_monitor;

DROP VIEW rows, mails, seen;
DROP FUNCTION about, claim;
DROP EXTENSION mailroom;
