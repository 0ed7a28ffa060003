-- I8: a bad row hurts only itself. If one token, one address or one recipient is wrong, or a trigger refuses
-- it, that row ends with its reason and the rest of its batch is processed. An outbox that takes nothing
-- at all is another matter: then the call fails, and nothing is lost (I1).

SET client_min_messages = error;
CREATE EXTENSION mailroom;
\set SHOW_CONTEXT never

CREATE TEMPORARY VIEW mails AS
SELECT
    token_id, account_id, recipients, kind, priority, state, last_error,
    (SELECT string_agg(key, ',' ORDER BY key) FROM jsonb_object_keys(data || coalesce(secrets, '{}')) key) AS data,
    ended_at IS NOT NULL AS ended
FROM outbox
ORDER BY id;
CREATE PROCEDURE pg_temp.start_over() LANGUAGE sql AS $$
    TRUNCATE accounts, tokens, pending, outbox RESTART IDENTITY;
    SELECT setval('_last_seq', 0);
$$;

-- I8: a malformed secret or code. A trigger refuses them; a table can be older than a rule, and a trigger can be off.
CALL pg_temp.start_over();
ALTER TABLE tokens DISABLE TRIGGER tokens_check;
INSERT INTO accounts (email, login) VALUES
    ('good@example.com', 'good'), ('secret@example.com', 'secret'), ('code@example.com', 'code'), ('also.good@example.com', 'also good');
UPDATE tokens SET secret = '\x00' WHERE account = 2;
UPDATE tokens SET code = 'x' WHERE account = 3;
BEGIN;
SELECT login FROM mailroom_dequeue();
TABLE mails;
ROLLBACK;
SELECT mailroom_collect(2);
TABLE mails;
ALTER TABLE tokens ENABLE TRIGGER tokens_check;

-- I8: an address that the outbox refuses and the accounts did not.
CALL pg_temp.start_over();
ALTER TABLE accounts DISABLE TRIGGER accounts_normalise;
INSERT INTO accounts (email, login) VALUES
    ('good@example.com', 'good'), (E'bad\r@example.com', 'bad'), ('also.good@example.com', 'also good');
SELECT mailroom_collect();
TABLE mails;
-- I8: text that a deliverer refuses, and another sender could read as another address. No claimant gets it.
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) VALUES
    ('<eve@evil.example>.corp.example', 'eve'), ('ada@example.com.', 'dot'), ('"ada"@example.com', 'quoted'),
    (U&'\200Bada@example.com', 'invisible'), (U&'ada\0085@example.com', 'control'), ('a,b@example.com', 'comma'),
    ('ada@example.com ', 'blank'), ('', 'empty'), ('good@example.com', 'good');
BEGIN;
SELECT email FROM mailroom_dequeue();
SELECT token_id, recipients, state, last_error FROM mails;
ROLLBACK;
BEGIN;
SELECT split_part(mailroom_dequeue_line(), ',', 2) AS email;
SELECT state, last_error, count(*) FROM mails GROUP BY 1, 2 ORDER BY 1, 2;
ROLLBACK;
SELECT mailroom_collect();
SELECT token_id, recipients, state, last_error FROM mails ORDER BY token_id;
SELECT recipients FROM mailroom_claim(10, transports => ARRAY(SELECT DISTINCT transport::text FROM outbox));
-- Its person can be suspended all the same.
UPDATE accounts SET status = 'suspended' WHERE login = 'eve' RETURNING email;
ALTER TABLE accounts ENABLE TRIGGER accounts_normalise;
UPDATE accounts SET status = 'provisioned' WHERE login = 'eve' RETURNING email;
UPDATE accounts SET email = 'eve@corp.example.' WHERE login = 'eve';
UPDATE accounts SET email = 'Eve@corp.example' WHERE login = 'eve' RETURNING email;
ALTER TABLE accounts DISABLE TRIGGER accounts_normalise;
-- Passed over by a dequeuer, it must not stop the others either.
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) VALUES
    ('good@example.com', 'good'), (E'bad\r@example.com', 'bad'), ('also.good@example.com', 'also good');
UPDATE accounts SET status = 'suspended' WHERE login = 'bad';
\set VERBOSITY terse
SELECT login FROM mailroom_dequeue();
\set VERBOSITY default
SELECT count(*) AS recorded FROM mails WHERE token_id = 2 AND ended;
CALL pg_temp.start_over();
ALTER TABLE accounts ENABLE TRIGGER accounts_normalise;

-- I8: a token that is good for ever, as epoch seconds that no timestamp can hold.
INSERT INTO accounts (email, login) VALUES
    ('good@example.com', 'good'), ('forever@example.com', 'forever'), ('also.good@example.com', 'also good');
UPDATE tokens SET expires_at = 9223372036854775807 WHERE account = 2;
SELECT mailroom_collect() >= 2 AS the_good_ones_went;
SELECT recipients, state FROM outbox WHERE recipients[1] LIKE '%good%';
SELECT count(*) AS left_behind FROM pending;
CALL pg_temp.start_over();

-- I8: a trigger of the application's that refuses one recipient, in each way a trigger can fail.
CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state = 'scheduled' AND NEW.recipients[1] LIKE TG_ARGV[0] THEN
        IF TG_ARGV[1] = 'raise' THEN
            RAISE EXCEPTION 'this recipient is on the list of those who want no mail';
        ELSIF TG_ARGV[1] = 'state' THEN
            RAISE EXCEPTION 'an error of the application''s own' USING ERRCODE = 'AP001';
        ELSIF TG_ARGV[1] = 'divide' THEN
            PERFORM 1 / (random() * 0)::integer;
        END IF;
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER refuse BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse('bad%', 'raise');
INSERT INTO accounts (email, login) VALUES
    ('good@example.com', 'good'), ('bad@example.com', 'bad'), ('also.good@example.com', 'also good');
SELECT mailroom_collect();
TABLE mails;
TABLE pending;
DROP TRIGGER refuse ON outbox;
CALL pg_temp.start_over();
CREATE TRIGGER refuse BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse('bad%', 'divide');
INSERT INTO accounts (email, login) VALUES
    ('good@example.com', 'good'), ('bad@example.com', 'bad'), ('also.good@example.com', 'also good');
SELECT mailroom_collect();
TABLE mails;
DROP TRIGGER refuse ON outbox;
CALL pg_temp.start_over();
CREATE TRIGGER refuse BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse('bad%', 'state');
INSERT INTO accounts (email, login) VALUES
    ('good@example.com', 'good'), ('bad@example.com', 'bad'), ('also.good@example.com', 'also good');
SELECT mailroom_collect();
TABLE mails;
DROP TRIGGER refuse ON outbox;

-- As many bad ones as a batch takes must not bar the way of the good ones behind them.
CALL pg_temp.start_over();
CREATE TRIGGER refuse BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse('bad%', 'raise');
INSERT INTO accounts (email, login) VALUES
    ('bad@example.com', 'bad'), ('bad.too@example.com', 'bad too'), ('good@example.com', 'good');
SELECT mailroom_collect(2);
SELECT recipients, state FROM outbox ORDER BY token_id;
SELECT count(*) AS left_behind FROM pending;
DROP TRIGGER refuse ON outbox;

-- Nor must those that were skipped: there may be good ones behind ten times as many of them as a batch takes.
CALL pg_temp.start_over();
CREATE TRIGGER refuse BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse('bad%', 'raise');
INSERT INTO accounts (email, login) VALUES ('bad@example.com', 'bad'), ('bad.too@example.com', 'bad too');
INSERT INTO accounts (email, login) SELECT 'gone' || i || '@example.com', 'gone' || i FROM generate_series(1, 30) i;
UPDATE accounts SET status = 'suspended' WHERE login LIKE 'gone%';
INSERT INTO accounts (email, login) VALUES ('good@example.com', 'good');
SELECT * FROM _run_batch(2, 'limit');
SELECT recipients, state FROM outbox WHERE recipients[1] NOT LIKE 'gone%' ORDER BY token_id;
SELECT count(*) AS left_behind FROM pending;
DROP TRIGGER refuse ON outbox;

-- A dequeuer records those that it passes over; one that cannot be recorded so does not keep the others from it.
CALL pg_temp.start_over();
ALTER TABLE outbox ADD CONSTRAINT no_such_domain CHECK (recipients[1] NOT LIKE '%@bad.example');
INSERT INTO accounts (email, login) VALUES
    ('a@bad.example', 'bad'), ('b@example.com', 'suspended'), ('c@bad.example', 'c,d'), ('d@example.com', 'good'), ('e@example.com', 'also good');
UPDATE accounts SET status = 'suspended' WHERE login IN ('bad', 'suspended');
SELECT substr(mailroom_dequeue_line(10), 1, 21);
SELECT token_id, recipients, state, last_error FROM mails ORDER BY token_id;
SELECT count(*) AS left_behind FROM pending;
ALTER TABLE outbox DROP CONSTRAINT no_such_domain;
-- Nor does one that is refused after it was written; and each of the others is handed out once.
CREATE FUNCTION pg_temp.refuse_later() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE foreign_key_violation; END $$;
CREATE TRIGGER refuse_later AFTER INSERT ON outbox FOR EACH ROW WHEN (NEW.recipients[1] LIKE 'bad%') EXECUTE FUNCTION pg_temp.refuse_later();
CALL pg_temp.start_over();
INSERT INTO accounts (email, login) VALUES
    ('bad@example.com', 'bad'), ('b@example.com', 'suspended'), ('d@example.com', 'good'), ('e@example.com', 'also good');
UPDATE accounts SET status = 'suspended' WHERE login IN ('bad', 'suspended');
SELECT login FROM mailroom_dequeue(10);
SELECT token_id, recipients, state FROM mails ORDER BY token_id;
SELECT count(*) AS left_behind FROM pending;
DROP TRIGGER refuse_later ON outbox;

-- When nothing goes through it is not the rows that are bad: the call fails and nothing is lost.
CALL pg_temp.start_over();
CREATE TRIGGER refuse BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse('%', 'raise');
INSERT INTO accounts (email, login) VALUES ('one@example.com', 'one'), ('two@example.com', 'two');
SELECT mailroom_collect();
\echo :SQLSTATE
TABLE mails;
TABLE pending;
TABLE jobs;
DROP TRIGGER refuse ON outbox;
SELECT mailroom_collect();

DROP VIEW mails;
DROP EXTENSION mailroom CASCADE;
