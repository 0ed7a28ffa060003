-- Events: what is recorded, once, of which mail; what they settle; who may see them.

SET client_min_messages = error;
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
\pset format unaligned

-- A mail with one recipient, one with several, and a shorter way to report about them.
SELECT mailroom_send('Ann <Ann@Example.com>', 'S', 'T') AS one \gset
SELECT mailroom_send('a@example.com, b@example.com', 'S', 'T', cc => 'c@example.com') AS many \gset
CREATE FUNCTION about(mail bigint, VARIADIC parts text[]) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_build_array(jsonb_object(parts) || jsonb_build_object('message_id', (SELECT message_id FROM outbox WHERE id = mail)))
$$;
CREATE VIEW seen AS
SELECT outbox_id, type, is_permanent AS permanent, reason, recipient, status, detail
FROM delivery_events
ORDER BY id;

-- Once each. The recipient follows if there is one only, and is of the form of mailroom_address_key.
SELECT mailroom_report('', about(:one, 'type', 'delivered', 'event_id', '1'));
SELECT mailroom_report('', about(:one, 'type', 'delivered', 'event_id', '1'));
SELECT mailroom_report('', about(:one, 'type', 'delivered', 'event_id', '1') || about(:one, 'type', 'delivered', 'event_id', '1'));
SELECT mailroom_report('', about(:one, 'type', 'complained', 'event_id', '1', 'recipient', 'Ann <ANN@example.com>', 'reason', 'spam'));
SELECT mailroom_report('', about(:many, 'type', 'delivered', 'event_id', '2'));
SELECT mailroom_report('', jsonb_build_array(about(:many, 'type', 'bounced', 'event_id', '3', 'recipient', 'b@example.com', 'status', '5.1.1', 'detail', E'550 no\n<b@example.com>') -> 0 || '{"is_permanent": true}'));
SELECT * FROM seen;

-- Without an id it counts for a recipient of the mail only, once a time.
TRUNCATE delivery_events;
SELECT mailroom_report('', about(:many, 'type', 'bounced', 'recipient', 'C@example.com', 'occurred_at', '2026-01-01T00:00:00Z'));
SELECT mailroom_report('', about(:many, 'type', 'bounced', 'recipient', 'c@example.com', 'occurred_at', '2026-01-01T00:00:00Z'));
SELECT mailroom_report('', about(:many, 'type', 'bounced', 'recipient', 'd@example.com'));
SELECT mailroom_report('', '[{"type": "bounced", "message_id": "01976b2e-8f00-7abc-8def-0123456789ab", "recipient": "c@example.com"}]');

-- outbox_id has to fit, and alone finds nothing; provider_id finds mail of its transport.
SELECT mailroom_report('', jsonb_build_array(about(:one, 'type', 'deferred', 'event_id', '4') -> 0 || jsonb_build_object('outbox_id', :many)));
SELECT mailroom_report('', jsonb_build_array('{"type": "deferred", "event_id": "5"}'::jsonb || jsonb_build_object('outbox_id', :one)));
UPDATE outbox SET provider_id = 'abc' WHERE id = :one;
SELECT mailroom_report('', '[{"type": "deferred", "event_id": "6", "provider_id": "abc"}]');

-- Mail that is not known: what says that an address takes no mail, of mail that may have been ours.
SELECT mailroom_report('', '[{"type": "delivered", "event_id": "7", "message_id": "01976b2e-8f00-7abc-8def-0123456789ab"}]');
SELECT mailroom_report('', '[{"type": "complained", "event_id": "8", "recipient": "x@example.com"}]');
SELECT mailroom_report('', '[{"type": "complained", "event_id": "9", "message_id": "01976b2e-8f00-7abc-8def-0123456789ab", "recipient": "x@example.com"}]');
SELECT * FROM seen;

-- What cannot be read changes nothing.
SELECT mailroom_report('', about(:one, 'type', 'delivered', 'event_id', '10') || '[{"type": "opened", "event_id": "11"}]');
SELECT mailroom_report('', '{}');
SELECT mailroom_report('', '[{"type": "bounced"}]');
SELECT mailroom_report('', '[{"type": "bounced", "event_id": "1", "secret": 1}]');
SELECT mailroom_report('', NULL);
SELECT mailroom_report(NULL, '[]');
SELECT mailroom_report('no where', '[]');
SELECT mailroom_report('', '[]');
SELECT count(*) FROM delivery_events;

-- An application verifies by the transports file.
SELECT * FROM mailroom_receive('main', '{}', '');
SELECT * FROM mailroom_receive(NULL, '{}', '');

-- Doubt. What an attempt may have sent is settled by what any event proves; "accepted" counts for nothing else.
TRUNCATE outbox, outbox_attempts RESTART IDENTITY;
SELECT count(*) FROM delivery_events WHERE outbox_id IS NOT NULL;
SELECT mailroom_send('a@example.com', i::text, 'T') FROM generate_series(1, 8) i;
CREATE FUNCTION try(mails bigint[]) RETURNS bigint[] LANGUAGE sql AS $$
    SELECT mailroom_mark_error_many(mails, array_fill('timeout'::text, ARRAY[cardinality(mails)]), ambiguous => array_fill(true, ARRAY[cardinality(mails)]), claimant => 'c')
$$;
CREATE VIEW rows AS
SELECT id, state, failed_attempts AS failed, ambiguous_attempts AS ambiguous, last_error, claimed_by IS NULL AS free, ended_at IS NOT NULL AS ended
FROM outbox
ORDER BY id;
SELECT id FROM mailroom_claim(8, claimant => 'c');
-- Before the settle, and after it. 3 comes too late for its first attempt.
SELECT mailroom_report('', about(1, 'type', 'accepted', 'event_id', 'd1') || about(2, 'type', 'rejected', 'event_id', 'd2'));
SELECT try('{1,2,3,4,5,6,7}');
SELECT mailroom_mark_sent(8, claimant => 'c');
SELECT mailroom_report('', about(8, 'type', 'accepted', 'event_id', 'd8'));
SELECT mailroom_report('', about(4, 'type', 'bounced', 'event_id', 'd4', 'status', '5.1.1', 'reason', 'invalid'));
SELECT mailroom_report('', about(5, 'type', 'failed', 'event_id', 'd5'));
SELECT * FROM rows;
-- The other way about: delivered to one, given up for another.
SELECT mailroom_report('', about(5, 'type', 'delivered', 'event_id', 'd51'));
SELECT mailroom_report('', about(4, 'type', 'rejected', 'event_id', 'd41'));
-- What a person retries is not ended by what was told before.
SELECT mailroom_retry(2);
UPDATE outbox SET send_at = now() WHERE state = 'scheduled';
SELECT id FROM mailroom_claim(2, claimant => 'c');
SELECT mailroom_release(2, 'c'), mailroom_release(3, 'c');
-- An event while another session held the row: the next claim ends it. So it does if the lease ended.
INSERT INTO delivery_events (event_key, outbox_id, transport, type, occurred_at)
SELECT gen_random_uuid(), i, '', 'delivered', now() FROM generate_series(6, 7) i;
SELECT id FROM mailroom_claim(8, claimant => 'c');
SELECT * FROM rows;
SELECT outbox_id, attempt, outcome, duration IS NOT NULL AS timed, error FROM outbox_history WHERE outbox_id IN (1, 2, 4, 5, 8) ORDER BY outbox_id, ended_at, attempt;
-- A batch that its provider recognises stays together.
SELECT mailroom_send('a@example.com', 'S', 'T') AS batched \gset
SELECT id FROM mailroom_claim(1, claimant => 'c');
SELECT mailroom_mark_error_many(ARRAY[:batched], '{timeout}', ambiguous => '{true}', alone => '{false}', batches => ARRAY[gen_random_uuid()], claimant => 'c');
SELECT mailroom_report('', about(:batched, 'type', 'delivered', 'event_id', 'b1'));
UPDATE outbox SET send_at = now() WHERE id = :batched;
SELECT state, batch IS NOT NULL AS batched FROM outbox WHERE id = :batched;
SELECT id = :batched AS claimed FROM mailroom_claim(1, claimant => 'c');
-- A trigger of the application keeps no event from being recorded.
SELECT mailroom_send('a@example.com', 'S', 'T') AS kept \gset
SELECT id = :kept AS claimed FROM mailroom_claim(1, claimant => 'c');
SELECT try(ARRAY[:kept]) = ARRAY[:kept]::bigint[] AS tried;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT mailroom_report('', about(:kept, 'type', 'delivered', 'event_id', 'k1') || about(3, 'type', 'delivered', 'event_id', 'd3'));
DROP TRIGGER refuse ON outbox;
SELECT state FROM outbox WHERE id = :kept;
UPDATE outbox SET send_at = now() WHERE id = :kept;
SELECT id FROM mailroom_claim(1, claimant => 'c');
SELECT state FROM outbox WHERE id IN (3, :kept) ORDER BY id;

-- A member of a batch whose event came before the settle stays with the others.
SELECT mailroom_send('a@example.com', 'S', 'T') AS first, mailroom_send('a@example.com', 'S', 'T') AS second \gset
SELECT count(*) FROM mailroom_claim(2, claimant => 'c');
SELECT mailroom_report('', about(:first, 'type', 'delivered', 'event_id', 's1'));
SELECT cardinality(mailroom_mark_error_many(ARRAY[:first, :second], '{timeout,timeout}', ambiguous => '{true,true}', alone => '{false,false}',
    batches => array_fill(gen_random_uuid(), ARRAY[2]), claimant => 'c'));
SELECT count(*) FILTER (WHERE state = 'scheduled') AS scheduled, count(DISTINCT batch) AS batches FROM outbox WHERE id IN (:first, :second);
SELECT count(mailroom_cancel(id)) FROM outbox WHERE id IN (:first, :second);
-- What ended as error or expired had been sent: by a lease that ended, by a later attempt, or because its time was over.
SELECT mailroom_send('a@example.com', 'S', 'T', max_attempts => 1) AS lapsed, mailroom_send('a@example.com', 'S', 'T') AS refused,
    mailroom_send('a@example.com', 'S', 'T', expires_at => now() + interval '1 hour') AS late \gset
SELECT count(*) FROM mailroom_claim(3, claimant => 'c');
SELECT cardinality(try(ARRAY[:refused, :late]));
UPDATE outbox SET send_at = now() WHERE id = :refused;
UPDATE outbox SET state = 'expired' WHERE id = :late;
SELECT id = :refused AS again FROM mailroom_claim(1, claimant => 'c');
SELECT mailroom_report('', about(:lapsed, 'type', 'delivered', 'event_id', 'l1') || about(:refused, 'type', 'delivered', 'event_id', 'l2') || about(:late, 'type', 'delivered', 'event_id', 'l3'));
SELECT mailroom_mark_error(:refused, 'no such user', permanent => true, claimant => 'c');
UPDATE outbox SET claimed_until = claimed_at WHERE id = :lapsed;
SELECT count(*) FROM mailroom_claim(1, claimant => 'c');
SELECT state, failed_attempts, last_error FROM outbox WHERE id IN (:lapsed, :refused, :late) ORDER BY id;

-- Deleted after mailroom.retention, however the mail ended.
UPDATE delivery_events SET received_at = now() - interval '8 days' WHERE id % 2 = 0;
SELECT count(*) AS young FROM delivery_events WHERE received_at > now() - interval '7 days' \gset
SELECT purged > 0 AS purged, more FROM mailroom_purge();
SELECT count(*) = :young AS gone FROM delivery_events;

-- Who may.
SET ROLE mailroom_receiver;
SELECT mailroom_report('', '[]');
SELECT count(*) FROM delivery_events;
SELECT mailroom_receive('main', '{}', '');
SET ROLE mailroom_app;
SELECT mailroom_report('', '[]');
SELECT count(*) FROM delivery_events;
SET ROLE mailroom_monitor;
SELECT count(type) > 0 FROM delivery_events;
SELECT count(detail) FROM delivery_events;
SELECT count(recipient) FROM delivery_events;
SET ROLE mailroom_support;
SELECT count(recipient) > 0 FROM delivery_events;
DELETE FROM delivery_events;
RESET ROLE;

DROP VIEW seen, rows;
DROP FUNCTION about, try, refuse;
DROP EXTENSION mailroom;
