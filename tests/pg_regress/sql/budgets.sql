-- Budgets: what they let a claim take, what is kept for urgent mail, what comes back, when a period ends, what
-- can be seen of it, and who may do what. Months and days are used, so that none ends while this runs; one that is
-- about to is waited for.

SET client_min_messages = error;
CREATE EXTENSION mailroom;
\pset null NULL
SET timezone = 'UTC';
DO $$
DECLARE
    day_ends CONSTANT timestamptz := date_trunc('day', clock_timestamp(), 'UTC') + interval '1 day';
BEGIN
    IF day_ends - clock_timestamp() < interval '2 minutes' THEN
        PERFORM pg_sleep_until(day_ends + interval '1 s');
    -- What is taken in the first second of a period does not come back.
    ELSIF clock_timestamp() - date_trunc('day', clock_timestamp(), 'UTC') < interval '1 s' THEN
        PERFORM pg_sleep(1);
    END IF;
END;
$$;

-- Periods are calendar periods in UTC, in each time zone of a session, and begin where the one before ends.
SELECT p.period, p.at, _period_start(p.period, _period_number(p.period, p.at)) AS since,
    _period_start(p.period, _period_number(p.period, p.at) + 1) AS until
FROM (VALUES
    ('minute'::budget_period, '2028-02-29 23:59:59.999999+00'::timestamptz),
    ('hour', '2028-02-29 23:59:59.999999+00'),
    ('day', '2028-02-29 23:59:59.999999+00'),
    ('month', '2028-02-29 23:59:59.999999+00'),
    ('month', '2028-12-31 23:59:59.999999+00'),
    ('month', '2029-01-01 00:00:00+00')
) p (period, at);
SET timezone = 'Pacific/Kiritimati';
SELECT _period_number('month', '2029-01-01 00:00:00+00') - _period_number('month', '2028-12-31 23:59:59+00') AS months,
    _period_number('day', '2029-01-01 00:00:00+00') - _period_number('day', '2028-12-31 23:59:59+00') AS days,
    _period_start('month', _period_number('month', '2029-01-01 00:00:00+00')) = '2029-01-01 00:00:00+00' AS same;
SET timezone = 'UTC';
SELECT bool_and(_period_start(p, _period_number(p, at)) <= at AND at < _period_start(p, _period_number(p, at) + 1))
FROM unnest(enum_range(NULL::budget_period)) p,
    generate_series('1999-12-31 12:34:56+00'::timestamptz, '2032-01-01', interval '13 days 7 hours') at;

-- No budget, no limit.
CREATE VIEW sent AS SELECT priority, count(*) FROM outbox WHERE state = 'claimed' GROUP BY priority ORDER BY priority;
SELECT count(*) FROM mailroom_send_many((
    SELECT jsonb_agg(jsonb_build_object(
        'recipients', i || '@example.com', 'subject', 'Hello', 'body_text', 'Hello.',
        'priority', CASE WHEN i % 10 = 0 THEN -10 ELSE 0 END
    ))
    FROM generate_series(1, 100) i
));
TABLE mailroom_budgets;
SELECT * FROM _budget();
SELECT count(*) FROM mailroom_claim(5, '1 h', 'me');
SELECT count(*) FROM outbox_waits WHERE reason = 'due';

-- What is within it goes by priority; what was reserved goes to urgent mail alone.
INSERT INTO budgets (period, amount, reserved_share) VALUES ('month', 20, 0.2);
SELECT period, amount, reserved, spent, available, available_to_urgent, since <= now() AND now() < until AS now FROM mailroom_budgets;
SELECT count(*) FROM mailroom_claim(10, '1 h', 'me');
TABLE sent;
SELECT count(*) FROM mailroom_claim(10, '1 h', 'me');
SELECT count(*) FROM mailroom_claim(10, '1 h', 'me');
TABLE sent;
SELECT spent, available, available_to_urgent FROM mailroom_budgets;
SELECT reason, until = (SELECT until FROM mailroom_budgets) AS until, count(*)
FROM (SELECT regexp_replace(reason, ' until .*', '') AS reason, until FROM outbox_waits) w GROUP BY 1, 2;
SELECT regexp_replace(budget, ' until .*', '') AS budget FROM mailroom_status();
SELECT room, frees_at > now() AS frees, urgent_room, urgent_frees_at FROM _budget();
SELECT count(*) FROM mailroom_send_many((
    SELECT jsonb_agg(jsonb_build_object(
        'recipients', i || '@example.com', 'subject', 'Urgent', 'body_text', 'Hello.', 'priority', -10 - i % 2
    ))
    FROM generate_series(1, 6) i
));
SELECT reason = 'due' AS due, count(*) FROM outbox_waits GROUP BY 1 ORDER BY 1;
-- In whichever order: a priority that this session meets for the first time may come behind one that it knows.
SELECT count(*), bool_and(priority <= -10) AS urgent FROM mailroom_claim(10, '1 h', 'me');
SELECT spent, available, available_to_urgent FROM mailroom_budgets;
SELECT count(*) FROM mailroom_claim(10, '1 h', 'me');
SELECT bool_and(reason ~ '^the budget of 20 per month is spent until \d{4}-\d\d-01 00:00 UTC$') FROM outbox_waits;

-- It limits claims of mails and of groups.
SELECT mailroom_send('group@example.com', 'Hello', 'Hello.', group_key => 'of their own') > 0;
SELECT count(*) FROM mailroom_claim(1, '1 h', 'other');
SELECT count(*) FROM mailroom_claim_group(group_key => 'of their own', claimant => 'other');
SELECT spent FROM mailroom_budgets;

-- What is released comes back, once; what was sent or failed does not.
SELECT cardinality(mailroom_release_many(ARRAY(SELECT id FROM outbox WHERE state = 'claimed' AND priority = 0 AND claimed_by = 'me' ORDER BY id DESC LIMIT 6), 'me')) AS released;
SELECT spent, available, available_to_urgent FROM mailroom_budgets;
SELECT mailroom_release_many(ARRAY[(SELECT id FROM outbox WHERE state = 'scheduled' ORDER BY id LIMIT 1)], 'me') = '{}' AS lost;
-- A group takes what it has due, in the order of claims, as far as there is room.
SELECT mailroom_send(i || '@group.example.com', 'Hello', 'Hello.', group_key => 'of their own') > 0 AS sent FROM generate_series(1, 2) i;
SELECT recipients FROM mailroom_claim_group(group_key => 'of their own', claimant => 'other');
SELECT spent, available, available_to_urgent FROM mailroom_budgets;
SELECT cardinality(mailroom_release_many(ARRAY(SELECT id FROM outbox WHERE claimed_by = 'other'), 'other')) AS released;
DELETE FROM outbox WHERE group_key = 'of their own';
SELECT spent, available, available_to_urgent FROM mailroom_budgets;
SELECT cardinality(mailroom_mark_sent_many(ARRAY(SELECT id FROM outbox WHERE state = 'claimed' AND claimed_by = 'me'), NULL, 'me')) AS settled;
SELECT spent, available, available_to_urgent FROM mailroom_budgets;

-- What is not needed comes back.
SELECT count(*) FROM mailroom_cancel((SELECT id FROM outbox WHERE state = 'scheduled' ORDER BY id LIMIT 1)) c WHERE c;
UPDATE outbox SET state = 'cancelled' WHERE state = 'scheduled' AND id <> (SELECT min(id) FROM outbox WHERE state = 'scheduled');
SELECT count(*) FROM mailroom_claim(2, '1 h', 'me');
SELECT spent FROM mailroom_budgets;
SELECT count(*) FROM mailroom_claim(2, '1 h', 'me');
SELECT spent FROM mailroom_budgets;

-- A claim that is rolled back has used its share.
SELECT mailroom_send('late@example.com', 'Hello', 'Hello.') > 0;
BEGIN;
SELECT count(*) FROM mailroom_claim(1, '1 h', 'me');
ROLLBACK;
SELECT spent FROM mailroom_budgets;
SELECT count(*) FROM outbox WHERE state = 'scheduled';

-- All budgets are kept to at once: the tightest decides.
UPDATE budgets SET reserved_share = 0;
INSERT INTO budgets (period, amount) VALUES ('day', 1000), ('hour', 0);
SELECT room, urgent_room, regexp_replace(reason, ' until .*', '') AS reason FROM _budget();
SELECT count(*) FROM mailroom_claim(10, '1 h', 'me');
DELETE FROM budgets WHERE period = 'hour';
SELECT room, urgent_room, reason FROM _budget();
SELECT count(*) FROM mailroom_claim(10, '1 h', 'me');
SELECT spent FROM mailroom_budgets WHERE period = 'month';

-- A new period begins with nothing; one that a clock put back is the same still.
DELETE FROM budgets WHERE period = 'day';
SELECT spent FROM _budget_usage(clock_timestamp());
SELECT spent FROM _budget_usage(clock_timestamp() + interval '32 days');
SELECT u.spent, u.number = _period_number('month', clock_timestamp()) AS kept
FROM _budget_usage(date_trunc('month', clock_timestamp(), 'UTC') - interval '1 s') u;
SELECT spent FROM _budget_usage(date_trunc('month', clock_timestamp(), 'UTC') - interval '32 days');

-- A smaller amount than what was spent is no debt.
UPDATE budgets SET amount = 1;
SELECT amount, spent > amount AS beyond, available, available_to_urgent FROM mailroom_budgets;
SELECT mailroom_send('later@example.com', 'Hello', 'Hello.') > 0;
SELECT count(*) FROM mailroom_claim(10, '1 h', 'me');
DELETE FROM budgets;
SELECT count(*) FROM mailroom_claim(10, '1 h', 'me');

-- No session holds the lock now.
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 0 AND database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- Reasons that come before a budget.
SELECT mailroom_send('a@example.com', 'Hello', 'Hello.', send_at => now() + interval '1 day') > 0;
SELECT mailroom_send('b@example.com', 'Hello', 'Hello.', group_key => 'g') > 0, mailroom_send('c@example.com', 'Hello', 'Hello.', group_key => 'g') > 0;
SELECT mailroom_send('d@example.com', 'Hello', 'Hello.') > 0;
SELECT count(*) FROM mailroom_claim(1, '1 h', 'me');
INSERT INTO budgets (period, amount) VALUES ('month', 0);
SELECT o.recipients, regexp_replace(w.reason, ' until .*', '') AS reason, w.until > now() AS until
FROM outbox_waits w JOIN outbox o ON o.id = w.outbox_id ORDER BY o.id;
-- A pause concerns mail that the worker or mailroom send delivers.
UPDATE outbox SET transport = 'one' WHERE recipients = '{c@example.com}';
SELECT mailroom_pause();
SELECT o.recipients, regexp_replace(w.reason, ' until .*', '') AS reason FROM outbox_waits w JOIN outbox o ON o.id = w.outbox_id ORDER BY o.id;
SELECT mailroom_resume();
UPDATE outbox SET transport = '' WHERE recipients = '{c@example.com}';

-- What a budget cannot be.
INSERT INTO budgets (period, amount) VALUES ('day', -1);
INSERT INTO budgets (period, amount, reserved_share) VALUES ('day', 1, 1.5);
INSERT INTO budgets (period, amount, reserved_share) VALUES ('day', 1, -0.5);
INSERT INTO budgets (period, amount) VALUES ('week', 1);
INSERT INTO budgets (period, amount) VALUES ('month', 1);
INSERT INTO budgets (period) VALUES ('day');

-- Who may do what: the administrator sets budgets, the sender keeps to them, the monitor looks.
SET ROLE mailroom_admin;
UPDATE budgets SET amount = 3;
SELECT spent FROM mailroom_budgets;
SET ROLE mailroom_sender;
SELECT count(*) FROM mailroom_claim(1, '1 h', 'sender');
SELECT cardinality(mailroom_release_many(ARRAY(SELECT id FROM outbox WHERE claimed_by = 'sender'), 'sender')) AS released;
SELECT spent FROM mailroom_budgets;
UPDATE budgets SET amount = 1000;
SET ROLE mailroom_monitor;
SELECT count(*) FROM budgets;
SELECT count(*) FROM mailroom_budgets;
SELECT count(*) > 0 FROM outbox_waits;
SELECT budget IS NOT NULL AS spent FROM mailroom_status();
DELETE FROM budgets;
SELECT _consume_budget(array_fill(1, ARRAY[1]), false);
SET ROLE mailroom_app;
TABLE budgets;
TABLE mailroom_budgets;
-- Older minor releases refuse a function in the view, while the query is planned.
SELECT has_table_privilege('outbox_waits', 'SELECT');
SELECT * FROM _budget();
RESET ROLE;

-- Each recipient counts. What does not fit has what comes behind it wait, until a share comes back.
DELETE FROM budgets;
DELETE FROM outbox;
CREATE FUNCTION mail(name text, size integer, urgent boolean DEFAULT false, transport text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
    SELECT mailroom_send(
        name || '@example.com', 'Hello', 'Hello.', priority => CASE WHEN urgent THEN -10 ELSE 0 END, transport => transport,
        send_at => now() - interval '1 min',
        cc => (SELECT string_agg(i || '@cc.example.com', ', ') FROM generate_series(2, size - size / 3) i),
        bcc => (SELECT string_agg(i || '@bcc.example.com', ', ') FROM generate_series(size - size / 3 + 1, size) i)
    )
$$;
CREATE VIEW sizes AS
SELECT id, recipients[1] AS mail, cardinality(recipients) + cardinality(cc) + cardinality(bcc) AS size, state FROM outbox;
CREATE FUNCTION claim(batch_limit integer DEFAULT 10) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT c.recipients[1]::text || ' ' || cardinality(c.recipients) + cardinality(c.cc) + cardinality(c.bcc)
    FROM mailroom_claim(batch_limit, '1 h', 'me') c
$$;
-- A month of which so much is spent already, at a time that is not its first second.
CREATE FUNCTION set_spent(spent bigint) RETURNS bigint LANGUAGE sql AS
    $$ SELECT setval('_spent_month', _period_number('month', clock_timestamp()) << 32 | spent) & 4294967295 $$;
CREATE FUNCTION release(name text) RETURNS boolean LANGUAGE sql AS
    $$ SELECT mailroom_release(id, 'me') FROM sizes WHERE mail = name || '@example.com' $$;
CREATE VIEW waits AS
SELECT s.mail, s.size, regexp_replace(w.reason, ' until .*', '') AS reason, w.until > now() AS until
FROM sizes s JOIN outbox_waits w ON w.outbox_id = s.id ORDER BY s.id;
SELECT mail('a', 4), mail('b', 1), mail('c', 6), mail('d', 1), mail('e', 1);
INSERT INTO budgets (period, amount) VALUES ('month', 10);
SELECT set_spent(0);
SELECT claim();
SELECT spent, available FROM mailroom_budgets;
TABLE waits;
SELECT room, frees_at > now() AS frees, largest FROM _budget();
SELECT room, frees_at > now() AS frees, regexp_replace(reason, ' until .*', '') AS reason FROM _budget(6);
-- Again and again, in this session and another, whose scans have gone past it.
SELECT claim();
SELECT claim(1);
\c -
\pset null NULL
SET client_min_messages = error;
SELECT claim();
SELECT claim(1);
SELECT spent FROM mailroom_budgets;
-- Nor when it is a group that does not fit.
UPDATE outbox SET group_key = 'c' WHERE recipients = '{c@example.com}';
SELECT count(*) FROM mailroom_claim_group(claimant => 'me');
SELECT count(*) FROM mailroom_claim_group(claimant => 'me');
SELECT claim();
SELECT spent FROM mailroom_budgets;
-- As much comes back as was taken.
SELECT release('b');
SELECT spent FROM mailroom_budgets;
SELECT claim();
SELECT release('a');
SELECT release('a');
SELECT spent FROM mailroom_budgets;
-- What was given back is the first again.
SELECT claim();
SELECT spent FROM mailroom_budgets;
SELECT cardinality(mailroom_release_many(ARRAY(SELECT id FROM outbox WHERE state = 'claimed' UNION ALL SELECT id FROM outbox WHERE state = 'claimed'), 'me')) AS released;
SELECT spent FROM mailroom_budgets;
DELETE FROM outbox;

-- What is larger than the budget goes when nothing is spent, and nothing else does then.
SELECT mail('a', 1), mail('large', 12), mail('b', 1);
SELECT claim();
SELECT claim();
SELECT spent, available FROM mailroom_budgets;
TABLE waits;
SELECT set_spent(0);
TABLE waits;
SELECT claim();
SELECT claim();
SELECT spent, available, available_to_urgent FROM mailroom_budgets;
TABLE waits;
SELECT release('large');
SELECT spent FROM mailroom_budgets;
SELECT claim();
SELECT mailroom_mark_sent(id, claimant => 'me') FROM sizes WHERE mail = 'large@example.com';
SELECT spent FROM mailroom_budgets;
SELECT claim();
-- Of several budgets it needs each: it is within one, and larger than the other.
DELETE FROM outbox;
SELECT setval(c, 0) FROM unnest(ARRAY['_spent_month', '_spent_day']) c;
INSERT INTO budgets (period, amount) VALUES ('day', 100);
SELECT mail('large', 12), mail('larger', 40), mail('b', 1);
SELECT claim();
SELECT spent FROM mailroom_budgets ORDER BY period;
SELECT set_spent(0);
SELECT setval('_spent_day', (SELECT last_value FROM _spent_day) + 60) > 0 AS more;
SELECT claim();
TABLE waits;
SELECT setval('_spent_day', (SELECT last_value FROM _spent_day) - 60) > 0 AS less;
SELECT claim();
SELECT spent FROM mailroom_budgets ORDER BY period;
DELETE FROM budgets WHERE period = 'day';
-- 0 stops it, too.
DELETE FROM outbox;
UPDATE budgets SET amount = 0;
SELECT set_spent(0);
SELECT mail('large', 12), mail('urgent', 12, true);
SELECT claim();
TABLE waits;

-- A share that is reserved is for urgent mail, but for what is larger than what is not reserved.
DELETE FROM outbox;
UPDATE budgets SET amount = 10, reserved_share = 0.5;
SELECT mail('a', 2), mail('b', 4), mail('c', 1);
SELECT claim();
SELECT mail('u', 3, true), mail('v', 6, true), mail('w', 1, true);
SELECT claim();
SELECT spent, available, available_to_urgent FROM mailroom_budgets;
TABLE waits;
SELECT set_spent(0);
SELECT claim();
SELECT spent, available, available_to_urgent FROM mailroom_budgets;
DELETE FROM outbox;
SELECT mail('large', 7), mail('b', 1);
SELECT set_spent(0);
SELECT claim();
SELECT spent, available, available_to_urgent FROM mailroom_budgets;
SELECT mail('u', 3, true), mail('v', 1, true);
SELECT claim();
SELECT spent, available, available_to_urgent FROM mailroom_budgets;
-- Mail of another transport that is urgent, behind mail that does not fit.
DELETE FROM outbox;
INSERT INTO routes (position, kind_pattern, transport) VALUES (1, 'none', 'other');
SELECT set_spent(2);
SELECT mail('a', 4), mail('u', 3, true, 'other'), mail('b', 1, false, 'other');
SELECT recipients[1] FROM mailroom_claim(10, '1 h', 'me', ARRAY['', 'other']);
SELECT spent FROM mailroom_budgets;
DELETE FROM routes;

-- What cannot be rendered takes nothing.
DELETE FROM outbox;
UPDATE budgets SET reserved_share = 0;
SELECT set_spent(0);
INSERT INTO outbox (kind, recipients, cc, transport) VALUES ('no such template', '{x@example.com}', '{y@example.com,z@example.com}', '');
SELECT mail('a', 4);
SELECT claim();
SELECT mail, state FROM sizes ORDER BY id;
SELECT spent FROM mailroom_budgets;
INSERT INTO outbox (kind, recipients, cc, group_key, transport) VALUES ('no such template', '{x@example.com}', '{y@example.com,z@example.com}', 'g', '');
SELECT count(*) FROM mailroom_claim_group(group_key => 'g', claimant => 'me');
SELECT spent FROM mailroom_budgets;

DROP VIEW waits, sizes;
DROP FUNCTION mail, claim, set_spent, release;

DROP VIEW sent;
DROP EXTENSION mailroom;
