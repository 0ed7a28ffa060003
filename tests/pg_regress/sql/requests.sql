-- Requests for links: the same for any address as far as the caller can see, and what comes of them.

SET client_min_messages = error;
CREATE EXTENSION mailroom;
\set VERBOSITY terse

INSERT INTO accounts (id, email, login) VALUES (1, 'new@example.com', 'new');
INSERT INTO accounts (id, email, login, status) VALUES
    (2, 'active@example.com', 'active', 'active'), (3, 'banned@example.com', 'banned', 'suspended');
SELECT mailroom_collect();
CREATE VIEW links AS
SELECT t.account, t.action, cardinality(t.sent_again_at) AS sent_again, v.eligible AS open
FROM tokens t JOIN _token_verdicts v ON v.token_id = t.id ORDER BY t.id;
-- Time passes, as far as tokens know.
CREATE FUNCTION pass(seconds bigint) RETURNS void LANGUAGE sql AS $$
    UPDATE tokens
    SET created_at = created_at - seconds,
        expires_at = expires_at - seconds,
        sent_again_at = ARRAY(SELECT s - seconds FROM unnest(sent_again_at) s)
$$;
-- What waits is sent.
CREATE FUNCTION deliver() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    sent bigint[];
BEGIN
    PERFORM mailroom_collect();
    sent := ARRAY(SELECT c.id FROM mailroom_claim(100, '1 h', 'me') c);
    RETURN cardinality(mailroom_mark_sent_many(sent, claimant => 'me'));
END;
$$;

-- The answer is empty for every address; the request waits.
SET ROLE mailroom_app;
SELECT mailroom_request_recovery(a) FROM (VALUES
    ('Active@Example.com'), ('nobody@example.com'), ('new@example.com'), ('banned@example.com'), (''),
    ('no address'), (repeat('a', 250) || '@example.com'), (E'a\nb@example.com')) v (a);
SELECT mailroom_request_activation(a) FROM (VALUES ('new@example.com'), ('active@example.com'), ('nobody@example.com')) v (a);
SELECT mailroom_request_recovery(NULL);
SELECT mailroom_request_activation(NULL);
SELECT * FROM link_requests;
SELECT mailroom_answer_requests();
SELECT _request('active@example.com', 'password_recovery');
RESET ROLE;
SELECT id, action, email FROM link_requests ORDER BY id;
-- Only eligible accounts get a link: 2 a recovery. 1 had its activation a moment ago.
SET ROLE mailroom_collector;
SELECT mailroom_answer_requests();
SELECT mailroom_answer_requests();
RESET ROLE;
SELECT count(*) FROM link_requests;
SELECT * FROM links;

-- What is on its way is not sent twice; nor is what was sent within a minute. Several requests are one.
SELECT mailroom_request_recovery('active@example.com') FROM generate_series(1, 3);
SELECT mailroom_answer_requests();
SELECT pass(62);
SELECT mailroom_request_recovery('active@example.com');
SELECT mailroom_answer_requests();
SELECT mailroom_collect();
SELECT mailroom_request_recovery('active@example.com');
SELECT mailroom_answer_requests();
SELECT deliver();
SELECT pass(-12);
SELECT mailroom_request_recovery('active@example.com');
SELECT mailroom_answer_requests();
SELECT count(*) FROM link_requests;
SELECT * FROM links WHERE account = 2;
-- After it the open link is sent again, for each kind.
SELECT pass(12);
SELECT mailroom_request_recovery('active@example.com') FROM generate_series(1, 3);
SELECT mailroom_request_activation('new@example.com');
SELECT mailroom_answer_requests();
SELECT * FROM links;
SELECT deliver();
SELECT account_id, kind, state, count(*), count(DISTINCT token_id) AS tokens FROM outbox GROUP BY 1, 2, 3 ORDER BY 1;
-- A mail that failed counts as one that was sent; a rollback is no way around.
BEGIN;
SELECT pass(61);
SELECT mailroom_request_recovery('active@example.com');
ROLLBACK;
SELECT mailroom_answer_requests();

-- A burst of five for each account and action, then one each 720 seconds: the sixth comes to nothing, and the link stays
-- open.
SET mailroom.recovery_ttl = '4h';
DELETE FROM tokens WHERE account = 2;
SELECT pass(61), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver() FROM generate_series(1, 7);
SELECT * FROM links WHERE account = 2;
-- The fifth mail was two minutes ago: 600 s since then, and 720 s.
SELECT pass(600 - 122), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT pass(120), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT pass(600), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT pass(120), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
-- After an hour without a request there is another burst.
SELECT pass(3600), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT pass(61), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver() FROM generate_series(1, 5);
SELECT * FROM links WHERE account = 2;
-- A new one goes when less than a third of its life is left; the old one ends by itself.
DELETE FROM tokens WHERE account = 2;
INSERT INTO tokens (account, action) VALUES (2, 'password_recovery');
SELECT deliver();
SELECT pass(9000), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT pass(700), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT * FROM links WHERE account = 2;
SELECT pass(4800);
SELECT * FROM links WHERE account = 2;
-- One that was locked by wrong codes, revoked, used or let expire is replaced at once, and all of them count.
DELETE FROM tokens WHERE account = 2;
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
UPDATE tokens SET wrong_codes = 5 WHERE account = 2;
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT mailroom_revoke(2), mailroom_revoke(2), mailroom_revoke(4711), mailroom_revoke(NULL);
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
UPDATE tokens SET consumed_at = extract(epoch FROM now()) WHERE account = 2 AND consumed_at IS NULL;
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
UPDATE tokens SET created_at = created_at - 2, expires_at = _epoch() - 1 WHERE account = 2 AND consumed_at IS NULL;
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT * FROM links WHERE account = 2;
SELECT mailroom_revoke(2), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
-- The rows outlive a purge for as long as they count.
SET mailroom.retention = 0;
SELECT more FROM mailroom_purge();
RESET mailroom.retention;
SELECT pass(600), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT pass(120), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
RESET mailroom.recovery_ttl;

-- Links that come of themselves count, and are never withheld.
INSERT INTO accounts (id, email, login) VALUES (11, 'flip@example.com', 'flip');
UPDATE accounts SET email = CASE email WHEN 'flip@example.com' THEN 'flop@example.com' ELSE 'flip@example.com' END WHERE id = 11;
UPDATE accounts SET email = CASE email WHEN 'flip@example.com' THEN 'flop@example.com' ELSE 'flip@example.com' END WHERE id = 11;
UPDATE accounts SET status = 'suspended' WHERE id = 11;
UPDATE accounts SET status = 'active' WHERE id = 11;
UPDATE accounts SET status = 'suspended' WHERE id = 11;
UPDATE accounts SET status = 'active' WHERE id = 11;
SELECT deliver();
SELECT mailroom_revoke(11), mailroom_request_activation('flip@example.com'), mailroom_answer_requests(), deliver();
UPDATE accounts SET status = 'suspended' WHERE id = 11;
UPDATE accounts SET status = 'active' WHERE id = 11;
SELECT deliver();
SELECT * FROM links WHERE account = 11;
DELETE FROM accounts WHERE id = 11;

-- A recovery for an account that was never activated is an activation, within the limits of these.
INSERT INTO accounts (id, email, login) VALUES (12, 'never@example.com', 'never');
SELECT deliver();
SELECT mailroom_request_recovery('never@example.com'), mailroom_answer_requests(), deliver();
SELECT pass(61), mailroom_request_recovery('never@example.com'), mailroom_request_activation('never@example.com'), mailroom_answer_requests(), deliver();
SELECT * FROM links WHERE account = 12;
SELECT mailroom_revoke(12), mailroom_request_recovery('never@example.com'), mailroom_answer_requests(), deliver();
SELECT pass(61), mailroom_request_recovery('never@example.com'), mailroom_answer_requests(), deliver() FROM generate_series(1, 3);
SELECT * FROM links WHERE account = 12;
UPDATE accounts SET status = 'suspended' WHERE id = 12;
SELECT pass(3600), mailroom_request_recovery('never@example.com'), mailroom_answer_requests(), deliver();
DELETE FROM accounts WHERE id = 12;

-- The clock was set back: a link that is said to have been sent in the future is sent again.
DELETE FROM tokens WHERE account = 2;
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
UPDATE tokens SET created_at = created_at + 86400, expires_at = expires_at + 86400 WHERE account = 2;
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
-- From then on, time counts.
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();

-- A stranger asks every few seconds for two hours, and has the links ended as soon as they are sent: at most ten mails come in
-- the first hour and five in the second, and no link is withheld for more than 720 s. A short life of the links changes nothing.
CREATE FUNCTION two_hours(pause integer, after_each text, OUT first_hour bigint, OUT second_hour bigint, OUT longest_wait integer)
LANGUAGE plpgsql AS $$
DECLARE
    sent integer[] := '{}';
BEGIN
    DELETE FROM tokens WHERE account = 2;
    TRUNCATE outbox;
    FOR moment IN 0 .. 7199 BY pause LOOP
        PERFORM mailroom_request_recovery('active@example.com');
        PERFORM mailroom_answer_requests();
        IF deliver() > 0 THEN
            sent := sent || moment;
            EXECUTE after_each;
        END IF;
        PERFORM pass(pause);
    END LOOP;
    first_hour := (SELECT count(*) FROM unnest(sent) s WHERE s < 3600);
    second_hour := (SELECT count(*) FROM unnest(sent) s WHERE s >= 3600);
    longest_wait := (SELECT max(w.wait) FROM (SELECT s - lag(s) OVER (ORDER BY s) FROM unnest(sent) s) w (wait));
END;
$$;
SELECT * FROM two_hours(60, 'SELECT');
SELECT * FROM two_hours(60, 'SELECT mailroom_revoke(2)');
SELECT * FROM two_hours(60, 'UPDATE tokens SET wrong_codes = 5 WHERE account = 2');
SELECT * FROM two_hours(60, $$UPDATE accounts SET status = 'suspended' WHERE id = 2; UPDATE accounts SET status = 'active' WHERE id = 2$$);
SELECT * FROM two_hours(60, $$UPDATE accounts SET email = 'x@example.com' WHERE id = 2; UPDATE accounts SET email = 'active@example.com' WHERE id = 2$$);
SET mailroom.recovery_ttl = '1min';
SELECT * FROM two_hours(5, 'SELECT');
RESET mailroom.recovery_ttl;

-- The limits are settings.
SET mailroom.request_interval = 0;
SET mailroom.requests_per_hour = 3;
DELETE FROM tokens WHERE account = 2;
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver() FROM generate_series(1, 5);
SELECT * FROM links WHERE account = 2;
RESET mailroom.request_interval;
RESET mailroom.requests_per_hour;
-- PostgreSQL 17 words it in another way.
\set VERBOSITY sqlstate
SET mailroom.request_interval = '2d';
\set VERBOSITY terse
SET mailroom.requests_per_hour = 0;
SET ROLE mailroom_app;
SET mailroom.request_interval = 0;
SET mailroom.requests_per_hour = 1000;
RESET ROLE;
SELECT mailroom_answer_requests(0);

-- The diary's batches answer too, and what waits is seen.
SELECT pass(3600);
SELECT mailroom_request_recovery('active@example.com');
SELECT waiting, urgent FROM _pending_summary(10);
SELECT count(*) AS stale FROM pending;
SELECT mailroom_answer_requests();
SELECT collected > 0 AS collected FROM _run_batch(100, 'urgent');
SELECT count(*) FROM link_requests;
SELECT count(*) FROM outbox WHERE state = 'scheduled' AND account_id = 2;

-- A request that a trigger of the application refuses spoils no other, and does not come back.
INSERT INTO accounts (id, email, login, status) VALUES (4, 'b@example.com', 'b', 'active');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE data_exception USING MESSAGE = 'not ' || NEW.secret; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON tokens FOR EACH ROW WHEN (NEW.account = 2) EXECUTE FUNCTION refuse();
SELECT pass(3600);
SELECT mailroom_request_recovery('active@example.com'), mailroom_request_recovery('b@example.com');
SET client_min_messages = warning;
SELECT mailroom_answer_requests();
SET client_min_messages = error;
SELECT count(*) FROM link_requests;
SELECT a.login, count(*) FILTER (WHERE open) AS open FROM links l JOIN accounts a ON a.id = l.account WHERE a.login IN ('b', 'active') GROUP BY 1 ORDER BY 1;

-- A flood for one address, and one of strangers, are worked off at once, and are one mail; what is for others comes
-- as the limit says. (Time passes, and no account has a link.)
DROP TRIGGER refuse ON tokens;
SELECT count(*) AS stale FROM (SELECT pass(3600)) p;
SELECT count(mailroom_request_recovery('Active@Example.com')) FROM generate_series(1, 1500);
SELECT count(mailroom_request_recovery(i || '@example.com')) FROM generate_series(1, 1400) i;
INSERT INTO accounts (id, email, login, status) VALUES (5, 'c@example.com', 'c', 'active'), (6, 'd@example.com', 'd', 'active');
SELECT mailroom_request_recovery(a || '@example.com') FROM unnest('{b,c,d}'::text[]) a;
SELECT mailroom_answer_requests(2) AS made, (SELECT count(*) FROM link_requests) AS before;
SELECT mailroom_answer_requests(2) AS made, (SELECT count(*) FROM link_requests) AS before;
SELECT mailroom_answer_requests(2) AS made, (SELECT count(*) FROM link_requests) AS before;
SELECT mailroom_answer_requests(2) AS made, (SELECT count(*) FROM link_requests) AS before;
SELECT count(*) FROM link_requests;
SELECT a.login, count(*) FILTER (WHERE open) AS open FROM links l JOIN accounts a ON a.id = l.account WHERE l.action = 'password_recovery' GROUP BY 1 ORDER BY 1;

-- The account that asked first is answered first, also if its id is higher.
SELECT mailroom_request_recovery(a || '@example.com') FROM unnest('{d,c,b}'::text[]) a;
SELECT mailroom_answer_requests(1) AS made, (SELECT string_agg(email, ', ' ORDER BY id) FROM link_requests) AS before;
SELECT mailroom_answer_requests(1) AS made, (SELECT string_agg(email, ', ' ORDER BY id) FROM link_requests) AS before;
SELECT mailroom_answer_requests(1) AS made, (SELECT string_agg(email, ', ' ORDER BY id) FROM link_requests) AS before;

-- An address is found in each of its spellings, and with blanks around it.
INSERT INTO accounts (id, email, login, status) VALUES (7, 'a@bücher.example', 'idn', 'active');
SELECT mailroom_request_recovery(a) FROM unnest(ARRAY[' A@xn--bcher-kva.example ', 'a@BÜCHER.example', 'a@bücher.example.', '<a@bücher.example>']) a;
SELECT email FROM link_requests ORDER BY id;
SELECT mailroom_answer_requests();

-- Requests that are not answered are purged with all else that is old.
SELECT mailroom_request_recovery(a || '@example.com') FROM unnest('{b,c,d,e}'::text[]) a;
SELECT purged FROM mailroom_purge();
UPDATE link_requests SET requested_at = now() - interval '8 days' WHERE email <> 'e@example.com';
SELECT * FROM mailroom_purge(2);
SELECT * FROM mailroom_purge(2);
SELECT email FROM link_requests;

DROP VIEW links;
DROP EXTENSION mailroom;
DROP FUNCTION refuse;
