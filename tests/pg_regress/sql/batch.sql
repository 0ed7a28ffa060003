-- A batch is taken, put into the outbox and recorded without a statement, unless somebody else has a say in the rows of
-- these tables. Either way the outcome is the same.

SET client_min_messages = error;
SET track_functions = 'all';
CREATE EXTENSION mailroom;

-- Adds an account and hands its token out; tells what came of it, and what took a statement.
CREATE FUNCTION pg_temp.hand_out(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    picked bigint := coalesce(pg_stat_get_xact_function_calls('_pick'::regproc), 0);
    put bigint := coalesce(pg_stat_get_xact_function_calls('_enqueue'::regproc), 0);
    collected integer;
BEGIN
    INSERT INTO accounts (email, login) VALUES (name || '@example.com', name);
    collected := mailroom_collect();
    picked := coalesce(pg_stat_get_xact_function_calls('_pick'::regproc), 0) - picked;
    put := coalesce(pg_stat_get_xact_function_calls('_enqueue'::regproc), 0) - put;
    RETURN (
        SELECT format('%s collected: %s; statements: %s, %s', collected, string_agg(o.state::text, ' '), picked, put)
        FROM accounts a
        LEFT JOIN outbox o ON o.account = a.id
        WHERE a.login = name
    );
EXCEPTION WHEN OTHERS THEN
    RETURN format('%s: %s', SQLSTATE, SQLERRM);
END;
$$;

SELECT pg_temp.hand_out('first');
SELECT pg_temp.hand_out('second');
SELECT count(*) AS pending FROM pending;
SELECT _record(now() - interval '1 s', 3, 4, 'urgent');
SELECT job_type, duration BETWEEN interval '1 s' AND interval '1 min' AS right, collected, skipped, trigger, error FROM job_runs;

-- The row is that of the statement, but for what is drawn for it.
CREATE TEMPORARY TABLE made (way text, token bigint, row jsonb);
CREATE FUNCTION pg_temp.compare(wanted bigint[]) RETURNS TABLE (token bigint, way text, same boolean, state text, kind text, priority text, keys text[])
    LANGUAGE plpgsql AS $$
DECLARE
    one bigint;
BEGIN
    DELETE FROM made;
    FOREACH one IN ARRAY wanted LOOP
        BEGIN
            INSERT INTO made SELECT CASE _put(ARRAY[one]) WHEN '{}' THEN 'put' ELSE 'left' END, one;
            UPDATE made m SET row = to_jsonb(o) FROM outbox o WHERE m.way = 'put' AND m.token = one AND o.token = one;
            RAISE 'undo' USING DETAIL = (SELECT json_agg(m) FROM made m WHERE m.token = one);
        EXCEPTION WHEN raise_exception THEN
            DECLARE detail jsonb;
            BEGIN
                GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
                INSERT INTO made SELECT r.* FROM jsonb_populate_recordset(NULL::made, detail) r;
            END;
        END;
        PERFORM _enqueue(ARRAY[one]);
        INSERT INTO made SELECT 'statement', one, to_jsonb(o) FROM outbox o WHERE o.token = one;
        DELETE FROM outbox o WHERE o.token = one;
    END LOOP;
    RETURN QUERY
    SELECT s.token, m.way, s.row - '{id,message_id}'::text[] = m.row - '{id,message_id}'::text[] AND s.row ->> 'message_id' <> m.row ->> 'message_id',
        s.row ->> 'state', s.row ->> 'kind', s.row ->> 'priority', ARRAY(SELECT k FROM jsonb_object_keys(s.row -> 'data') k ORDER BY k)
    FROM made s JOIN made m ON m.token = s.token AND m.way <> 'statement'
    WHERE s.way = 'statement'
    ORDER BY s.token;
END;
$$;
TRUNCATE accounts, tokens, pending, outbox RESTART IDENTITY;
ALTER TABLE accounts DISABLE TRIGGER USER;
INSERT INTO accounts (email, login, status) VALUES
    ('new@example.com', 'new', 'provisioned'), ('old@example.com', 'old', 'active'), ('out@example.com', 'out', 'suspended'),
    ('Zoë@example.com', 'Zoë "Z" \ Ω', 'provisioned'), (E'a\tb@example.com', 'tab', 'provisioned'), (E'a\x7F@example.com', 'del', 'provisioned'),
    ('', 'nowhere', 'provisioned'), (repeat('x', 40000), repeat('long', 10000), 'provisioned');
ALTER TABLE accounts ENABLE TRIGGER USER;
ALTER TABLE tokens DISABLE TRIGGER USER;
INSERT INTO tokens (account, action, secret, code, expires_at, consumed_at, revoked_at) VALUES
    (1, 'activation', decode(repeat('01', 32), 'hex'), '01234', 4000000000, NULL, NULL),
    (2, 'password_recovery', decode(repeat('02', 32), 'hex'), '01234', 4000000000, NULL, NULL),
    (1, 'password_recovery', decode(repeat('03', 32), 'hex'), '01234', 4000000000, NULL, NULL),
    (2, 'activation', decode(repeat('04', 32), 'hex'), '01234', 4000000000, NULL, NULL),
    (3, 'activation', decode(repeat('05', 32), 'hex'), '01234', 4000000000, NULL, NULL),
    (3, 'password_recovery', decode(repeat('06', 32), 'hex'), '01234', 4000000000, NULL, NULL),
    (4, 'activation', decode(repeat('07', 32), 'hex'), '01234', 9223372036854775807, NULL, NULL),
    (1, 'activation', decode(repeat('08', 32), 'hex'), '01234', 1, NULL, NULL),
    (1, 'activation', decode(repeat('09', 32), 'hex'), '01234', 4000000000, 1, NULL),
    (1, 'activation', decode(repeat('10', 32), 'hex'), '01234', 4000000000, NULL, 1),
    (1, 'activation', decode(repeat('11', 31), 'hex'), '01234', 4000000000, NULL, NULL),
    (1, 'activation', decode(repeat('12', 32), 'hex'), '0123x', 4000000000, NULL, NULL),
    (8, 'activation', decode(repeat('13', 32), 'hex'), '99999', 253402300800, NULL, NULL),
    (1, 'activation', decode(repeat('14', 32), 'hex'), '01234', extract(epoch FROM now())::bigint - 1, NULL, NULL);
ALTER TABLE tokens ENABLE TRIGGER USER;
SELECT * FROM pg_temp.compare(ARRAY(SELECT t.id FROM tokens t ORDER BY t.id));
SET mailroom.link_base_url = 'https://example.com/app/';
SET mailroom.max_attempts = 7;
SELECT * FROM pg_temp.compare('{1,2}');
SET ROLE mailroom_sender;
SELECT _put('{1}');
RESET ROLE;
SELECT max_attempts, data ->> 'link' = 'https://example.com/app/activate?token=' || mailroom_sign('activation', decode(repeat('01', 32), 'hex')) AS link, enqueued_by
FROM outbox;
RESET mailroom.link_base_url;
RESET mailroom.max_attempts;
-- An address that no mail can go to ends by itself.
INSERT INTO tokens (account, action) SELECT a.id, 'activation' FROM accounts a WHERE a.login IN ('new', 'tab', 'del', 'nowhere') ORDER BY a.id;
SELECT mailroom_collect();
SELECT recipients, state, last_error FROM outbox WHERE token > 14 ORDER BY token;
DELETE FROM outbox WHERE token > 14;
-- Tokens that are not there.
SELECT _put('{900,901}'), _put('{}'), _put(NULL);
-- A token is live in one row.
\set VERBOSITY terse
SELECT _put('{1}');
\set VERBOSITY default
DELETE FROM outbox;
-- In the order given; what is left comes behind.
SELECT _put('{2,8,7,900,1}');
SELECT token, state FROM outbox ORDER BY id;
TRUNCATE accounts, tokens, pending, outbox, job_runs;

-- Urgent ones first, each lane in order, and no more than were asked for; what somebody else has is passed over.
INSERT INTO pending (lane, token) VALUES (1, 1), (0, 4), (1, 3), (0, 2);
SELECT _scan_end(true, 0, 0);
SELECT _take(3);
SELECT _take(3);
SELECT _take(3);
INSERT INTO pending (lane, token) VALUES (1, 9), (1, 8);
-- Behind the position, in the second look.
SELECT _scan_end(false, NULL, 100);
SELECT _take(5);
SELECT _take(0), _take(-1), _take(NULL);
-- Of a token in both lanes there is one mail.
INSERT INTO pending (lane, token) VALUES (1, 31), (0, 30), (1, 30);
SELECT _take(5);
SELECT _take(5);
-- What this transaction has locked itself is not somebody else's.
BEGIN;
INSERT INTO pending (lane, token) VALUES (1, 40), (1, 41), (1, 42);
COMMIT;
BEGIN;
SELECT token FROM pending WHERE token = 40 FOR UPDATE;
SELECT token FROM pending WHERE token = 41 FOR KEY SHARE;
SAVEPOINT s;
SELECT token FROM pending WHERE token = 42 FOR SHARE;
ROLLBACK TO s;
SELECT _take(5);
COMMIT;
SELECT _highest('{2,9,4}'), _highest('{}'), _highest(NULL);
BEGIN;
INSERT INTO pending (lane, token) VALUES (1, 20), (1, 21);
SAVEPOINT s;
SELECT _take(5);
ROLLBACK TO s;
SELECT _scan_end(true, 0, 0);
SELECT _take(5);
SELECT _take(5);
ROLLBACK;

-- Others who have a say: the session notices that they came and that they went.
CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '57MR1'; END $$;
CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN coalesce(NEW, OLD); END $$;
CREATE TRIGGER say BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION say();
SELECT pg_temp.hand_out('say1');
DROP TRIGGER say ON outbox;
CREATE TRIGGER say AFTER INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION say();
SELECT pg_temp.hand_out('say2');
DROP TRIGGER say ON outbox;
CREATE TRIGGER say BEFORE UPDATE ON outbox FOR EACH ROW EXECUTE FUNCTION say();
SELECT pg_temp.hand_out('say3');
DROP TRIGGER say ON outbox;
CREATE TRIGGER say BEFORE DELETE ON pending FOR EACH ROW EXECUTE FUNCTION say();
SELECT pg_temp.hand_out('say4');
DROP TRIGGER say ON pending;
CREATE TRIGGER say AFTER DELETE ON pending FOR EACH STATEMENT EXECUTE FUNCTION say();
SELECT pg_temp.hand_out('say5');
DROP TRIGGER say ON pending;
CREATE TRIGGER pass BEFORE DELETE ON pending FOR EACH ROW EXECUTE FUNCTION pass();
CREATE TRIGGER pass BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION pass();
SELECT pg_temp.hand_out('pass');
DROP TRIGGER pass ON outbox;
DROP TRIGGER pass ON pending;
CREATE RULE mine AS ON DELETE TO pending DO ALSO NOTHING;
CREATE RULE mine AS ON INSERT TO outbox DO ALSO NOTHING;
SELECT pg_temp.hand_out('rule');
DROP RULE mine ON pending;
DROP RULE mine ON outbox;
ALTER TABLE pending ENABLE ROW LEVEL SECURITY;
ALTER TABLE outbox ENABLE ROW LEVEL SECURITY;
SELECT pg_temp.hand_out('policy');
ALTER TABLE pending DISABLE ROW LEVEL SECURITY;
ALTER TABLE outbox DISABLE ROW LEVEL SECURITY;
-- As do those who have one in what is read.
ALTER TABLE accounts ENABLE ROW LEVEL SECURITY;
SELECT pg_temp.hand_out('read1');
ALTER TABLE accounts DISABLE ROW LEVEL SECURITY;
ALTER TABLE tokens ENABLE ROW LEVEL SECURITY;
SELECT pg_temp.hand_out('read2');
ALTER TABLE tokens DISABLE ROW LEVEL SECURITY;
CREATE TABLE heir () INHERITS (pending);
SELECT pg_temp.hand_out('heir');
DROP TABLE heir;
-- Which takes this to be known.
ANALYZE pending;
SELECT pg_temp.hand_out('nobody');

-- Constraints and defaults of somebody's own.
ALTER TABLE outbox ADD CONSTRAINT mine CHECK (kind <> 'x') NOT VALID;
SELECT pg_temp.hand_out('check');
ALTER TABLE outbox DROP CONSTRAINT mine;
ALTER TABLE outbox DROP CONSTRAINT outbox_max_attempts_must_be_positive;
SELECT pg_temp.hand_out('fewer');
ALTER TABLE outbox ADD CONSTRAINT other_name CHECK (max_attempts > 0);
SELECT pg_temp.hand_out('renamed');
ALTER TABLE outbox RENAME CONSTRAINT other_name TO outbox_max_attempts_must_be_positive;
ALTER TABLE outbox ALTER max_attempts SET DEFAULT 3;
SELECT pg_temp.hand_out('default');
SELECT max_attempts FROM outbox ORDER BY id DESC LIMIT 1;
ALTER TABLE outbox ALTER max_attempts SET DEFAULT _max_attempts();
ALTER TABLE outbox ALTER message_id SET DEFAULT NULL;
SELECT pg_temp.hand_out('unused');
ALTER TABLE outbox ALTER message_id SET DEFAULT gen_random_uuid();
ALTER TABLE outbox ADD plain text, ADD constant integer DEFAULT 7;
SELECT pg_temp.hand_out('columns1');
ALTER TABLE outbox ADD word text DEFAULT 'word';
SELECT pg_temp.hand_out('columns2');
SELECT plain, constant, word FROM outbox ORDER BY id DESC LIMIT 2;
ALTER TABLE outbox DROP word, DROP plain, DROP constant;
ALTER TABLE outbox ADD doubled bigint GENERATED ALWAYS AS (token * 2) STORED;
SELECT pg_temp.hand_out('generated');
ALTER TABLE outbox DROP doubled;
SELECT pg_temp.hand_out('dropped');
-- A function of somebody's own may be another tomorrow.
CREATE FUNCTION seven() RETURNS integer IMMUTABLE LANGUAGE sql AS 'SELECT 7';
ALTER TABLE outbox ADD made integer DEFAULT seven();
SELECT pg_temp.hand_out('made1');
CREATE OR REPLACE FUNCTION seven() RETURNS integer IMMUTABLE LANGUAGE sql AS 'SELECT 8';
SELECT pg_temp.hand_out('made2');
SELECT made FROM outbox ORDER BY id DESC LIMIT 2;
ALTER TABLE outbox DROP made;
DROP FUNCTION seven();
-- One of the same name, where a search finds it.
CREATE SCHEMA other;
CREATE FUNCTION other._max_attempts() RETURNS integer LANGUAGE sql AS 'SELECT 1';
ALTER TABLE outbox ALTER max_attempts SET DEFAULT other._max_attempts();
SET search_path = other, public;
SELECT pg_temp.hand_out('other');
RESET search_path;
SELECT max_attempts FROM outbox ORDER BY id DESC LIMIT 1;
ALTER TABLE outbox ALTER max_attempts SET DEFAULT _max_attempts();
DROP SCHEMA other CASCADE;

-- Domains are asked about each value, also when they changed since; and a value is not fitted to a type's modifier.
SELECT pg_temp.hand_out('before');
ALTER DOMAIN _addresses ADD CONSTRAINT mine CHECK (VALUE::text !~ 'blocked');
SELECT pg_temp.hand_out('blocked');
SELECT state, last_error FROM outbox ORDER BY id DESC LIMIT 1;
SELECT pg_temp.hand_out('free');
ALTER DOMAIN _addresses DROP CONSTRAINT mine;
SELECT pg_temp.hand_out('blocked2');
CREATE DOMAIN needed AS text CHECK (VALUE IS NOT NULL);
ALTER TABLE outbox ADD extra needed DEFAULT 'here';
SELECT pg_temp.hand_out('domain1');
ALTER TABLE outbox DROP extra;
DROP DOMAIN needed;
CREATE DOMAIN later AS integer;
ALTER TABLE outbox ADD extra later;
SELECT pg_temp.hand_out('domain2');
ALTER DOMAIN later SET DEFAULT 7;
SELECT pg_temp.hand_out('domain3');
ALTER TABLE outbox DROP extra;
DROP DOMAIN later;
ALTER DOMAIN _lane ADD CONSTRAINT mine CHECK (VALUE = 0) NOT VALID;
INSERT INTO accounts (email, login) VALUES ('lane@example.com', 'lane');
ALTER DOMAIN _lane DROP CONSTRAINT mine;
SELECT pg_temp.hand_out('lane');

-- Triggers of ours that are not as they were.
ALTER TABLE outbox RENAME CONSTRAINT outbox_attempts_must_not_be_negative TO mine;
SELECT pg_temp.hand_out('name');
ALTER TABLE outbox RENAME CONSTRAINT mine TO outbox_attempts_must_not_be_negative;
BEGIN;
DROP TRIGGER outbox_end ON outbox;
CREATE TRIGGER outbox_end AFTER INSERT OR UPDATE OF state ON outbox FOR EACH ROW WHEN (true) EXECUTE FUNCTION _outbox_end();
SELECT pg_temp.hand_out('when');
ROLLBACK;
SELECT pg_temp.hand_out('rollback');
ALTER TABLE outbox DISABLE TRIGGER outbox_end;
SELECT pg_temp.hand_out('disabled');
ALTER TABLE outbox ENABLE ALWAYS TRIGGER outbox_end;
SELECT pg_temp.hand_out('always');
ALTER TABLE outbox ENABLE TRIGGER outbox_end;
SET session_replication_role = replica;
SELECT pg_temp.hand_out('replica');
RESET session_replication_role;
SELECT pg_temp.hand_out('origin');

-- Indexes.
CREATE INDEX mine ON outbox (account);
SELECT pg_temp.hand_out('index1');
CREATE INDEX mine_too ON outbox ((account + 1));
SELECT pg_temp.hand_out('index2');
DROP INDEX mine_too;
CREATE INDEX mine_too ON outbox (account) WHERE priority < 0;
SELECT pg_temp.hand_out('index3');
DROP INDEX mine_too;
CREATE INDEX mine_too ON outbox USING hash (account);
SELECT pg_temp.hand_out('index4');
DROP INDEX mine_too;
DROP INDEX outbox_due;
CREATE INDEX other_name ON outbox (priority, send_at, id) WHERE state = 'scheduled';
SELECT pg_temp.hand_out('index5');
DROP INDEX other_name;
CREATE INDEX outbox_due ON outbox (priority, send_at, id) WHERE state = 'scheduled' AND priority < 0;
SELECT pg_temp.hand_out('index6');
DROP INDEX outbox_due;
CREATE INDEX outbox_due ON outbox (priority, send_at, id) WHERE state = 'scheduled';
ALTER TABLE pending DROP CONSTRAINT pending_pkey;
SELECT pg_temp.hand_out('key1');
ALTER TABLE pending ADD UNIQUE (token, lane);
SELECT pg_temp.hand_out('key2');
ALTER TABLE pending ADD CONSTRAINT pending_pkey PRIMARY KEY (lane, token);
SELECT pg_temp.hand_out('key3');
-- Each of them has what was put, and no more.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT
    (SELECT count(*) FROM outbox WHERE id > 0) AS by_id,
    (SELECT count(*) FROM outbox WHERE account > 0) AS by_account,
    (SELECT count(*) FROM (SELECT FROM outbox WHERE state = 'scheduled' ORDER BY priority, send_at, id) d) AS due,
    (SELECT count(*) FROM (SELECT FROM outbox WHERE token > 0 AND state IN ('scheduled', 'claimed') ORDER BY token) t) AS live,
    (SELECT count(*) FROM (SELECT FROM outbox WHERE state = 'scheduled' AND send_at > created_at ORDER BY send_at) t) AS timer,
    (SELECT count(*) FROM (SELECT FROM outbox WHERE state = 'scheduled' AND group_key IS NOT NULL ORDER BY priority, send_at, id) t) AS groups;
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT count(*) AS outbox FROM outbox;

-- The diary.
SELECT _record(now(), 1, 1, 'weekly'), _record(now(), -1, 1, 'poll'), _record(now(), 1, 0, NULL), _record('-infinity', 1, 0, 'poll');
ALTER TABLE job_runs ADD CONSTRAINT mine CHECK (collected < 5);
SELECT _record(now(), 9, 0, 'poll');
ALTER TABLE job_runs DROP CONSTRAINT mine;
CREATE TRIGGER pass BEFORE INSERT ON job_runs FOR EACH ROW EXECUTE FUNCTION pass();
SELECT _record(now(), 9, 0, 'poll');
INSERT INTO accounts (email, login) VALUES ('diary@example.com', 'diary');
SELECT collected, skipped FROM _run_batch(5, 'poll');
DROP TRIGGER pass ON job_runs;
INSERT INTO accounts (email, login) VALUES ('diary2@example.com', 'diary2');
SELECT collected, skipped FROM _run_batch(5, 'limit');
SELECT collected, skipped, trigger FROM job_runs ORDER BY id;
ALTER TABLE job_runs ALTER duration TYPE interval(0);
SELECT _record(now(), 1, 0, 'poll');
ALTER TABLE job_runs ALTER duration TYPE interval;
SELECT _record(now(), 1, 0, 'poll');
INSERT INTO accounts (email, login) VALUES ('null@example.com', 'null');
\set VERBOSITY terse
SELECT * FROM _run_batch(5, NULL);
\set VERBOSITY default
SELECT count(*) FROM pending;
SELECT mailroom_collect();

-- Rights that are missing are missing, and a transaction that may not write does not.
\set VERBOSITY terse
INSERT INTO accounts (email, login) VALUES ('rights@example.com', 'rights');
REVOKE DELETE ON pending FROM mailroom_sender;
SET ROLE mailroom_sender;
SELECT mailroom_collect();
RESET ROLE;
GRANT DELETE ON pending TO mailroom_sender;
REVOKE INSERT ON outbox FROM mailroom_sender;
SET ROLE mailroom_sender;
SELECT mailroom_collect();
RESET ROLE;
GRANT INSERT ON outbox TO mailroom_sender;
REVOKE SELECT ON outbox FROM mailroom_sender;
SET ROLE mailroom_sender;
SELECT mailroom_collect();
RESET ROLE;
GRANT SELECT ON outbox TO mailroom_sender;
REVOKE USAGE ON SEQUENCE outbox_id_seq FROM mailroom_sender;
SET ROLE mailroom_sender;
SELECT mailroom_collect();
RESET ROLE;
GRANT USAGE ON SEQUENCE outbox_id_seq TO mailroom_sender;
REVOKE SELECT ON _handout FROM mailroom_sender;
SET ROLE mailroom_sender;
SELECT mailroom_collect();
RESET ROLE;
GRANT SELECT ON _handout TO mailroom_sender;
REVOKE INSERT ON job_runs FROM mailroom_sender;
SET ROLE mailroom_sender;
SELECT collected FROM _run_batch(5, 'poll');
RESET ROLE;
GRANT INSERT ON job_runs TO mailroom_sender;
BEGIN READ ONLY;
SELECT mailroom_collect();
ROLLBACK;
BEGIN READ ONLY;
SELECT _put(ARRAY(SELECT token FROM pending)) = ARRAY(SELECT token FROM pending), _record(now(), 1, 0, 'poll');
ROLLBACK;
SET ROLE mailroom_sender;
SELECT collected FROM _run_batch(5, 'urgent');
RESET ROLE;
SET ROLE mailroom_app;
SELECT _take(1);
SELECT _put('{1}');
SELECT _record(now(), 1, 0, 'poll');
RESET ROLE;
DROP EXTENSION mailroom;
DROP FUNCTION say();
DROP FUNCTION pass();
