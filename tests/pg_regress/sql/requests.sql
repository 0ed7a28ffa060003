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

-- The answer is nothing, whoever it is; what was asked for waits.
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

-- Five an hour of each kind: the sixth comes to nothing, and the link stays open.
SET mailroom.recovery_ttl = '4h';
DELETE FROM tokens WHERE account = 2;
SELECT pass(61), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver() FROM generate_series(1, 7);
SELECT * FROM links WHERE account = 2;
SELECT pass(3600), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT * FROM links WHERE account = 2;
-- A new one goes when less than a third of its life is left, whatever was sent; the old one ends by itself.
SELECT pass(5800), mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT * FROM links WHERE account = 2;
SELECT pass(4800);
SELECT * FROM links WHERE account = 2;
-- One that was locked by wrong codes is no use any more; a new one goes as long as there are some left in the hour.
UPDATE tokens SET wrong_codes = 5 WHERE account = 2;
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT * FROM links WHERE account = 2;
SET mailroom.requests_per_hour = 1;
UPDATE tokens SET wrong_codes = 5 WHERE account = 2;
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
RESET mailroom.requests_per_hour;
-- One that was revoked is replaced at once.
SELECT mailroom_revoke(2), mailroom_revoke(2), mailroom_revoke(4711), mailroom_revoke(NULL);
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
SELECT * FROM links WHERE account = 2;
RESET mailroom.recovery_ttl;

-- The clock was set back: a link that is said to have been sent in the future is sent again.
DELETE FROM tokens WHERE account = 2;
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
UPDATE tokens SET created_at = created_at + 86400, expires_at = expires_at + 86400 WHERE account = 2;
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();
-- From then on, time counts.
SELECT mailroom_request_recovery('active@example.com'), mailroom_answer_requests(), deliver();

-- A stranger asks once a minute for two hours: the owner has a live link that was sent at every moment, and his mailbox
-- is not flooded.
DELETE FROM tokens WHERE account = 2;
TRUNCATE outbox;
CREATE FUNCTION two_hours(OUT without integer, OUT mails bigint, OUT most_in_an_hour bigint) LANGUAGE plpgsql AS $$
DECLARE
    sent integer[] := '{}';
BEGIN
    without := 0;
    FOR minute IN 1 .. 120 LOOP
        PERFORM mailroom_request_recovery('active@example.com');
        PERFORM mailroom_answer_requests();
        sent := sent || deliver()::integer;
        PERFORM FROM _token_verdicts v JOIN outbox o USING (token_id) WHERE v.account_id = 2 AND v.eligible AND NOT v.locked AND o.state = 'sent';
        without := without + (NOT FOUND)::integer;
        PERFORM pass(59);
        PERFORM FROM _token_verdicts v JOIN outbox o USING (token_id) WHERE v.account_id = 2 AND v.eligible AND NOT v.locked AND o.state = 'sent';
        without := without + (NOT FOUND)::integer;
        PERFORM pass(1);
    END LOOP;
    mails := (SELECT sum(s) FROM unnest(sent) s);
    most_in_an_hour := (SELECT max((SELECT sum(s) FROM unnest(sent[m : m + 59]) s)) FROM generate_series(1, 61) m);
END;
$$;
SELECT * FROM two_hours();

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

-- A request that somebody's trigger refuses spoils no other, and does not come back.
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
-- as the limit says. (Time passes, and nobody has a link.)
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

-- What nobody answers goes with all else that is old.
SELECT mailroom_request_recovery(a || '@example.com') FROM unnest('{b,c,d,e}'::text[]) a;
SELECT purged FROM mailroom_purge();
UPDATE link_requests SET requested_at = now() - interval '8 days' WHERE email <> 'e@example.com';
SELECT * FROM mailroom_purge(2);
SELECT * FROM mailroom_purge(2);
SELECT email FROM link_requests;

DROP VIEW links;
DROP EXTENSION mailroom;
DROP FUNCTION refuse;
