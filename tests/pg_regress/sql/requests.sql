-- Requests for links: the same for any address as far as the caller can see, and what comes of them.

SET client_min_messages = error;
CREATE EXTENSION mailroom;
\set VERBOSITY terse

INSERT INTO accounts (id, email, login) VALUES (1, 'new@example.com', 'new');
INSERT INTO accounts (id, email, login, status) VALUES
    (2, 'active@example.com', 'active', 'active'), (3, 'banned@example.com', 'banned', 'suspended');
SELECT mailroom_collect();
CREATE VIEW links AS
SELECT t.account, t.action, t.consumed_at IS NOT NULL AS consumed, t.revoked_at IS NOT NULL AS revoked
FROM tokens t ORDER BY t.id;
-- Time passes, as far as tokens know.
CREATE FUNCTION pass(seconds bigint) RETURNS void LANGUAGE sql AS
    $$ UPDATE tokens SET created_at = created_at - seconds $$;

-- The answer is nothing, whoever it is; what was asked for waits.
SET ROLE mailroom_app;
SELECT mailroom_request_recovery(a) FROM (VALUES
    ('Active@Example.com'), ('nobody@example.com'), ('new@example.com'), ('banned@example.com'), (''), (NULL),
    ('no address'), (repeat('a', 250) || '@example.com'), (E'a\nb@example.com')) v (a);
SELECT mailroom_request_activation(a) FROM (VALUES ('new@example.com'), ('active@example.com'), ('nobody@example.com')) v (a);
SELECT * FROM requests;
SELECT mailroom_answer_requests();
SELECT _request('active@example.com', 'password_recovery');
RESET ROLE;
SELECT id, action, email FROM requests ORDER BY id;
-- Only eligible accounts get a link: 2 a recovery. 1 had its activation a moment ago.
SET ROLE mailroom_collector;
SELECT mailroom_answer_requests();
SELECT mailroom_answer_requests();
RESET ROLE;
SELECT count(*) FROM requests;
SELECT * FROM links;

-- One a minute: the second within it comes to nothing, and the first stays good.
SELECT mailroom_request_recovery('active@example.com') FROM generate_series(1, 3);
SELECT mailroom_answer_requests();
SELECT pass(50);
SELECT mailroom_request_recovery('active@example.com');
SELECT mailroom_answer_requests();
SELECT count(*) FROM requests;
SELECT * FROM links WHERE account = 2;
-- After it, a new link takes the place of the old one, whose mail is cancelled. Several requests are one.
SELECT mailroom_collect();
SELECT pass(12);
SELECT mailroom_request_recovery('active@example.com') FROM generate_series(1, 3);
SELECT mailroom_request_activation('new@example.com');
SELECT mailroom_answer_requests();
SELECT * FROM links;
SELECT account, kind, state, last_error, secrets IS NOT NULL AS has_token FROM outbox ORDER BY id;
SELECT mailroom_collect();
SELECT account, kind, state FROM outbox ORDER BY id;

-- Five an hour, of each kind; rolling back is no way around.
SELECT pass(61), mailroom_request_recovery('active@example.com'), mailroom_answer_requests() FROM generate_series(1, 6);
SELECT count(*) FROM tokens WHERE account = 2;
BEGIN;
SELECT pass(61);
SELECT mailroom_request_recovery('active@example.com');
ROLLBACK;
SELECT count(*) FROM requests;
SELECT pass(3600);
SELECT mailroom_request_recovery('active@example.com');
SELECT mailroom_answer_requests();
SELECT count(*) AS all, count(*) FILTER (WHERE NOT revoked) AS open FROM links WHERE account = 2;

-- The limits are settings.
SET mailroom.request_interval = 0;
SET mailroom.requests_per_hour = 3;
SELECT mailroom_request_recovery('active@example.com');
SELECT mailroom_answer_requests();
SELECT mailroom_request_recovery('active@example.com');
SELECT mailroom_answer_requests();
SELECT mailroom_request_recovery('active@example.com');
SELECT mailroom_answer_requests();
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
SELECT waiting, urgent FROM _waiting(10);
SELECT count(*) AS stale FROM pending;
SELECT mailroom_answer_requests();
SELECT collected > 0 AS collected FROM _run_batch(100, 'urgent');
SELECT count(*) FROM requests;
SELECT count(*) FROM outbox WHERE state = 'scheduled' AND account = 2;

-- A request that somebody's trigger refuses spoils no other, and does not come back.
INSERT INTO accounts (id, email, login, status) VALUES (4, 'b@example.com', 'b', 'active');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE data_exception USING MESSAGE = 'not ' || NEW.secret; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON tokens FOR EACH ROW WHEN (NEW.account = 2) EXECUTE FUNCTION refuse();
SELECT pass(3600);
SELECT mailroom_request_recovery('active@example.com'), mailroom_request_recovery('b@example.com');
SET client_min_messages = warning;
SELECT mailroom_answer_requests();
SET client_min_messages = error;
SELECT count(*) FROM requests;
SELECT a.login, count(*) FILTER (WHERE NOT revoked) AS open FROM links l JOIN accounts a ON a.id = l.account WHERE a.login IN ('b', 'active') GROUP BY 1 ORDER BY 1;

-- A flood for one address, and one of strangers, are worked off at once, and are one mail; what is for others comes
-- as the limit says. (Time passes, and nobody has a link.)
DROP TRIGGER refuse ON tokens;
SELECT count(*) AS stale FROM (SELECT pass(3600)) p;
SELECT count(mailroom_request_recovery('Active@Example.com')) FROM generate_series(1, 1500);
SELECT count(mailroom_request_recovery(i || '@example.com')) FROM generate_series(1, 1400) i;
INSERT INTO accounts (id, email, login, status) VALUES (5, 'c@example.com', 'c', 'active'), (6, 'd@example.com', 'd', 'active');
SELECT mailroom_request_recovery(a || '@example.com') FROM unnest('{b,c,d}'::text[]) a;
SELECT mailroom_answer_requests(2) AS made, (SELECT count(*) FROM requests) AS before;
SELECT mailroom_answer_requests(2) AS made, (SELECT count(*) FROM requests) AS before;
SELECT mailroom_answer_requests(2) AS made, (SELECT count(*) FROM requests) AS before;
SELECT mailroom_answer_requests(2) AS made, (SELECT count(*) FROM requests) AS before;
SELECT count(*) FROM requests;
SELECT a.login, count(*) FILTER (WHERE NOT revoked) AS open FROM links l JOIN accounts a ON a.id = l.account WHERE l.action = 'password_recovery' GROUP BY 1 ORDER BY 1;

-- What nobody answers goes with all else that is old.
SELECT mailroom_request_recovery(a || '@example.com') FROM unnest('{b,c,d,e}'::text[]) a;
SELECT purged FROM mailroom_purge();
UPDATE requests SET requested_at = now() - interval '8 days' WHERE email <> 'e@example.com';
SELECT * FROM mailroom_purge(2);
SELECT * FROM mailroom_purge(2);
SELECT email FROM requests;

DROP VIEW links;
DROP EXTENSION mailroom;
DROP FUNCTION refuse;
