-- PostgreSQL does not check the columns that a view of a user's own fills by defaults, so grants of INSERT on some columns
-- keep no role from writing the others.

SET client_min_messages = error;
\set VERBOSITY terse
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
SELECT mailroom_pause();

-- Where it would matter: what a role may insert only in part, and whose other columns can be written.
SELECT r.role, c.oid::regclass AS relation,
    string_agg(a.attname, ', ' ORDER BY a.attnum) FILTER (WHERE NOT has_column_privilege(r.role, c.oid, a.attnum, 'INSERT')) AS others
FROM unnest('{mailroom_app,mailroom_sender,mailroom_collector,mailroom_monitor,mailroom_support,mailroom_admin}'::name[]) r (role)
CROSS JOIN pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'public'::regnamespace
  AND c.relkind IN ('r', 'v')
  AND pg_column_is_updatable(c.oid, a.attnum, false)
  AND has_any_column_privilege(r.role, c.oid, 'INSERT')
GROUP BY r.role, c.oid
HAVING NOT bool_and(has_column_privilege(r.role, c.oid, a.attnum, 'INSERT'))
ORDER BY 1, 2;

CREATE ROLE mail_shop;
CREATE ROLE mail_other;
GRANT mailroom_app TO mail_shop, mail_other;

-- Mail of others.
SET ROLE mail_other;
SELECT mailroom_send('a@example.com', 'S', 'T', send_at => now() + interval '1 day');
SET ROLE mail_shop;
SELECT mailroom_send('b@example.com', 'S', 'T', send_at => now() + interval '1 day');
CREATE TEMP VIEW my_changes AS SELECT ids, change, send_at, caller, done FROM _own_changes;
ALTER VIEW my_changes ALTER COLUMN caller SET DEFAULT 'mailroom_admin';
INSERT INTO my_changes (ids, change) VALUES ('{1}', 'cancel');
INSERT INTO my_changes (ids, change, send_at) VALUES ('{1}', 'reschedule', now());
INSERT INTO my_changes (ids, change) VALUES ('{2}', 'cancel');
-- Ids before their turn.
CREATE TEMP VIEW my_mail AS SELECT id, recipients, subject, body_text, kind FROM _new_mail;
ALTER VIEW my_mail ALTER COLUMN id SET DEFAULT 3;
INSERT INTO my_mail (recipients, subject, body_text, kind) VALUES ('{c@example.com}', 'S', 'T', 'own');
SELECT mailroom_send('d@example.com', 'S', 'T');
-- Accounts that are active before anybody has shown to read their mail.
CREATE TEMP VIEW my_accounts AS SELECT * FROM accounts;
ALTER VIEW my_accounts ALTER COLUMN id SET DEFAULT 1;
INSERT INTO my_accounts (email, login) VALUES ('a@example.com', 'a');
ALTER VIEW my_accounts ALTER COLUMN id DROP DEFAULT, ALTER COLUMN status SET DEFAULT 'active';
\set VERBOSITY default
INSERT INTO my_accounts (email, login) VALUES ('a@example.com', 'a');
ALTER VIEW my_accounts ALTER COLUMN id SET DEFAULT 1000, ALTER COLUMN status DROP DEFAULT, ALTER COLUMN activated_at SET DEFAULT 1;
INSERT INTO my_accounts (email, login) VALUES ('a@example.com', 'a');
\set VERBOSITY terse
ALTER VIEW my_accounts ALTER COLUMN id DROP DEFAULT, ALTER COLUMN activated_at DROP DEFAULT;
INSERT INTO my_accounts (email, login) VALUES ('a@example.com', 'a');
-- In every form in which an application may register people.
INSERT INTO accounts (email, login) VALUES ('b@example.com', 'b'), ('c@example.com', 'c');
INSERT INTO accounts (email, login) SELECT i || '@example.com', i FROM generate_series(1, 3) i ORDER BY i DESC ON CONFLICT DO NOTHING;
COPY accounts (email, login) FROM stdin;
d@example.com	d
\.
MERGE INTO accounts a USING (VALUES ('e@example.com', 'e')) n (email, login) ON a.login = n.login
    WHEN NOT MATCHED THEN INSERT (email, login) VALUES (n.email, n.login);
SELECT count(*), count(DISTINCT id), min(status) FROM accounts;
-- Although others took an id from the sequence after it.
INSERT INTO accounts (email, login) VALUES ('guest@example.com', 'guest ' || nextval('accounts_id_seq'));
CREATE FUNCTION pg_temp.signed_up(email text) RETURNS text LANGUAGE sql AS $$ INSERT INTO accounts (email, login) VALUES (email, email) RETURNING email $$;
INSERT INTO accounts (email, login) VALUES ('child@example.com', 'child of ' || pg_temp.signed_up('parent@example.com'));
WITH parent AS (INSERT INTO accounts (email, login) VALUES ('parent2@example.com', 'parent2') RETURNING login)
INSERT INTO accounts (email, login) SELECT 'child2@example.com', 'child of ' || p.login FROM parent p;
RESET ROLE;
-- What triggers of the owner write is not the role's.
CREATE FUNCTION pg_temp.with_companion() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.login LIKE 'boss%' THEN
        INSERT INTO accounts (email, login) VALUES ('of.' || NEW.email, 'of ' || NEW.login);
        NEW.status := 'active';
    END IF;
    RETURN NEW;
END;
$$;
CREATE TRIGGER "01_companion" BEFORE INSERT ON accounts FOR EACH ROW EXECUTE FUNCTION pg_temp.with_companion();
SET ROLE mail_shop;
INSERT INTO accounts (email, login) VALUES ('boss@example.com', 'boss');
RESET ROLE;
DROP TRIGGER "01_companion" ON accounts;
SELECT login, status, activated_at IS NOT NULL AS has_time FROM accounts WHERE login ~ 'boss|child|parent|guest' ORDER BY id;
-- Roles that may INSERT into the table, not into some columns, choose what they write, and need no right to the sequence.
GRANT INSERT (id, status) ON accounts TO mail_other;
SET ROLE mail_other;
INSERT INTO accounts (email, login, status) VALUES ('f@example.com', 'f', 'active');
INSERT INTO accounts (id, email, login) VALUES (2000, 'h@example.com', 'h');
RESET ROLE;
REVOKE INSERT (id, status) ON accounts FROM mail_other;
CREATE ROLE mail_importer;
GRANT INSERT ON accounts TO mail_importer;
SET ROLE mail_importer;
INSERT INTO accounts (id, email, login) VALUES (2001, 'l@example.com', 'l');
INSERT INTO accounts (id, email, login, status) VALUES (2002, 'm@example.com', 'm', 'active');
RESET ROLE;
REVOKE INSERT ON accounts FROM mail_importer;
DROP ROLE mail_importer;
-- Ids that do not come from the sequence need that right, and rows of an attached table get them.
BEGIN;
ALTER TABLE accounts ALTER COLUMN id SET DEFAULT 1000000 + extract(epoch FROM now())::bigint, ALTER COLUMN status SET DEFAULT 'active';
CREATE TABLE people (email text, login text);
SELECT mailroom_attach('people', 'email', 'login');
INSERT INTO people VALUES ('o@example.com', 'o');
SELECT id > 1000000 AS is_from_default, status FROM accounts WHERE login = 'o';
ALTER TABLE accounts ALTER COLUMN id SET DEFAULT 2000000 + extract(epoch FROM now())::bigint;
GRANT INSERT ON accounts TO mail_other;
SET LOCAL ROLE mail_other;
INSERT INTO accounts (email, login) VALUES ('j@example.com', 'j');
SET LOCAL ROLE mail_shop;
INSERT INTO accounts (email, login) VALUES ('k@example.com', 'k');
ROLLBACK;
SET ROLE mailroom_admin;
INSERT INTO accounts (id, email, login, status, activated_at) VALUES (1000, 'g@example.com', 'g', 'active', 1);
RESET ROLE;
SELECT id, state, enqueued_by, last_error FROM outbox ORDER BY id;

DROP OWNED BY mail_shop, mail_other;
DROP ROLE mail_shop, mail_other;
DROP EXTENSION mailroom;
