-- The triggers on accounts and tokens, also after changes of these tables, and what they refuse: the error reaches the
-- client complete, as do errors of later steps.

\set SHOW_CONTEXT never
SET client_min_messages = error;
CREATE EXTENSION mailroom;
CREATE FUNCTION pg_temp.refusal(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text;
    name text;
    tab text;
    message text;
    detail text;
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, name = CONSTRAINT_NAME, tab = TABLE_NAME,
        message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
    RETURN concat_ws(' | ', state, nullif(tab, ''), nullif(name, ''), message, nullif(detail, ''));
END;
$$;
\pset format unaligned
\pset tuples_only on

-- What a person sees.
INSERT INTO accounts (email, login) VALUES (E'No Address\n', 'l');
INSERT INTO accounts (email, login) VALUES ('a@example.com', E'l\t');
INSERT INTO accounts (email, login) VALUES (repeat('ü', 300) || '@example.com', 'l');
INSERT INTO accounts (email, login) VALUES ('a@example.com', 'l');
-- A secret or a code is never shown.
INSERT INTO tokens (account, action, secret) SELECT id, 'activation', '\x0102' FROM accounts;
INSERT INTO tokens (account, action, code) SELECT id, 'activation', '1234x' FROM accounts;

-- A table that changed its shape under triggers that were already at work in this session.
ALTER TABLE accounts ADD before_all text, ADD with_default text DEFAULT 'D';
INSERT INTO accounts (email, login, with_default) VALUES ('Shape@Example.com', 'Shape', 'X') RETURNING email, login, with_default;
ALTER TABLE accounts DROP before_all, ADD number bigint DEFAULT 7;
INSERT INTO accounts (email, login, status) VALUES ('Shape2@Example.com', 'Shape2', 'active') RETURNING email, login, number, activated_at > 0;
UPDATE accounts SET email = 'SHAPE@example.org' WHERE login = 'shape' RETURNING email, with_default, number;
ALTER TABLE accounts DROP with_default, DROP number;
INSERT INTO accounts (email, login) VALUES ('Shape3@Example.com', 'Shape3') RETURNING email, (SELECT count(*) FROM tokens);
SELECT count(*) FROM tokens t JOIN accounts a ON a.id = t.account WHERE a.login = 'shape3';

-- Values that are stored out of line or compressed, and lower case that changes the length.
INSERT INTO accounts (email, login) VALUES (repeat('A', 200000) || '@example.com', 'long');
INSERT INTO accounts (email, login) VALUES (repeat('Ⱥ', 20) || 'X@example.com', repeat('Ⱥ', 254)) RETURNING email = lower(email), login = lower(repeat('Ⱥ', 254));
-- From the table itself.
INSERT INTO accounts (email, login) SELECT 'Copy.' || email, 'Copy.' || login FROM accounts WHERE login LIKE 'shape%' ORDER BY id RETURNING email;

-- Triggers of one's own beside ours, which fire in the order of their names: what those before write is looked at.
CREATE FUNCTION pg_temp.capitals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.email := upper(NEW.email);
    RETURN NEW;
END;
$$;
CREATE TRIGGER a_first BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION pg_temp.capitals();
INSERT INTO accounts (email, login) VALUES ('own@example.com', 'own') RETURNING email;
DROP TRIGGER a_first ON accounts;
CREATE FUNCTION pg_temp.skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER z_last BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION pg_temp.skip();
INSERT INTO accounts (email, login) VALUES ('skipped@example.com', 'skipped');
INSERT INTO accounts (email, login) VALUES ('not even an address', 'skipped');
DROP TRIGGER z_last ON accounts;
SELECT count(*) FROM accounts WHERE login = 'skipped';

-- What goes wrong behind an INSERT reaches its client with all that it has to say.
ALTER TABLE tokens ADD CONSTRAINT no_tokens_today CHECK (action <> 'activation') NOT VALID;
SELECT pg_temp.refusal($$INSERT INTO accounts (email, login) VALUES ('x@example.com', 'x')$$) ~ '^23514 \| tokens \| no_tokens_today \| new row';
SELECT pg_temp.refusal($$INSERT INTO accounts (email, login) VALUES ('x@example.com', 'x'), ('y@example.com', 'y')$$) ~ '^23514 \| tokens \| no_tokens_today \| new row';
ALTER TABLE tokens DROP CONSTRAINT no_tokens_today;
ALTER TABLE pending ADD CONSTRAINT no_queue_today CHECK (lane <> 1) NOT VALID;
SELECT pg_temp.refusal($$INSERT INTO accounts (email, login) VALUES ('x@example.com', 'x')$$);
ALTER TABLE pending DROP CONSTRAINT no_queue_today;
SELECT pg_temp.refusal($$INSERT INTO pending (lane, token_id) VALUES (2, 1)$$);
-- Nothing of it stayed, and the session is as good as before.
SELECT count(*) FROM accounts WHERE login IN ('x', 'y');
INSERT INTO accounts (email, login) VALUES ('x@example.com', 'x');
SELECT count(*) FROM tokens t JOIN accounts a ON a.id = t.account JOIN pending p ON p.token_id = t.id WHERE a.login = 'x';

-- By a role with rights of its own on the table, and none on the functions or the tables behind.
CREATE ROLE regress_clerk;
GRANT INSERT, SELECT (email, login), UPDATE (email) ON accounts TO regress_clerk;
GRANT USAGE ON SEQUENCE accounts_id_seq TO regress_clerk;
SET ROLE regress_clerk;
INSERT INTO accounts (email, login) VALUES ('Clerk@example.com', 'Clerk') RETURNING email, login;
INSERT INTO accounts (email, login) VALUES ('Clerk1@example.com', 'Clerk1'), ('Clerk2@example.com', 'Clerk2') RETURNING email;
INSERT INTO accounts (email, login, status) VALUES ('Clerk3@example.com', 'Clerk3', 'suspended') RETURNING email;
UPDATE accounts SET email = 'CLERK@example.org' WHERE email = 'clerk@example.com' RETURNING email;
SELECT pg_temp.refusal($$INSERT INTO accounts (email, login) VALUES ('clerk', 'x')$$);
RESET ROLE;
SELECT count(*) FROM tokens t JOIN accounts a ON a.id = t.account JOIN pending p ON p.token_id = t.id WHERE a.login LIKE 'clerk%';
REVOKE ALL ON accounts FROM regress_clerk;
REVOKE ALL ON SEQUENCE accounts_id_seq FROM regress_clerk;
DROP ROLE regress_clerk;

-- As a replica stores what its primary has stored: nothing fires.
SET session_replication_role = replica;
INSERT INTO accounts (email, login) VALUES ('replica@example.com', 'replica');
INSERT INTO tokens (account, action) SELECT id, 'activation' FROM accounts WHERE login = 'replica';
RESET session_replication_role;
SELECT count(*), count(p.token_id) FROM tokens t JOIN accounts a ON a.id = t.account LEFT JOIN pending p ON p.token_id = t.id WHERE a.login = 'replica';

-- The statements behind are prepared once in a session, and again when the extension comes back elsewhere.
DROP EXTENSION mailroom;
CREATE SCHEMA "Post Office";
CREATE EXTENSION mailroom SCHEMA "Post Office";
INSERT INTO "Post Office".accounts (email, login) VALUES ('A@example.com', 'A');
INSERT INTO "Post Office".accounts (email, login) VALUES ('B@example.com', 'B'), ('C@example.com', 'C');
SELECT a.email, p.lane FROM "Post Office".pending p JOIN "Post Office".tokens t ON t.id = p.token_id JOIN "Post Office".accounts a ON a.id = t.account ORDER BY 1;
DROP EXTENSION mailroom;
DROP SCHEMA "Post Office";
CREATE EXTENSION mailroom;
INSERT INTO accounts (email, login) VALUES ('A@example.com', 'A');
SELECT count(*) FROM pending;
DROP EXTENSION mailroom;
