-- Attached tables, as far as one session shows it: logins that no person can take, which rows are active, which rows
-- cannot have an account, and what PostgreSQL allows with the columns.

SET client_min_messages = error;
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
SELECT mailroom_pause();
\pset format unaligned
CREATE VIEW people AS
SELECT email, regexp_replace(login, '[0-9a-f]{8}-[0-9a-f-]{27}', '<uuid>') AS login, status FROM accounts;

-- A row without a login gets one that no person has, and takes none: the user name of one person may be the address of
-- another.
INSERT INTO accounts (email, login) VALUES ('eve@example.com', 'victim@example.com');
CREATE TABLE members (id integer PRIMARY KEY, mail text);
INSERT INTO members VALUES (1, 'First@example.com');
SELECT mailroom_attach('members', 'mail');
INSERT INTO members VALUES (2, 'victim@example.com');
INSERT INTO accounts (email, login) VALUES ('adam@example.com', 'first@example.com');
SELECT * FROM people ORDER BY email COLLATE "C";
-- It stays with the account when the address changes.
SELECT login FROM accounts WHERE email = 'first@example.com' \gset first_
UPDATE members SET mail = 'other@example.com' WHERE id = 1;
SELECT login = :'first_login' AS is_same FROM accounts WHERE email = 'other@example.com';
DROP TABLE members;
DELETE FROM accounts;
-- The same in a table that has logins; a login that goes is free.
CREATE TABLE members (id integer PRIMARY KEY, mail text, nick text);
INSERT INTO members VALUES (1, 'a@example.com', 'b@example.com'), (2, 'b@example.com', NULL), (3, 'c@example.com', '');
SELECT mailroom_attach('members', 'mail', 'nick');
INSERT INTO members VALUES (4, 'd@example.com', NULL);
UPDATE members SET nick = NULL WHERE id = 1;
INSERT INTO members VALUES (5, 'e@example.com', 'B@example.com');
UPDATE members SET nick = 'four' WHERE id = 4;
SELECT * FROM people ORDER BY email COLLATE "C";
DROP TABLE members;
DELETE FROM accounts;

-- Rows that swap: no account can have the placeholders.
CREATE TABLE members (id integer PRIMARY KEY, mail text UNIQUE DEFERRABLE, nick text UNIQUE DEFERRABLE);
SELECT mailroom_attach('members', 'mail', 'nick');
INSERT INTO members VALUES (1, 'a@example.com', 'a'), (2, 'b@example.com', 'b');
INSERT INTO accounts (email, login) SELECT 'displaced-' || a.id || '@mailroom.invalid', 'stranger ' || a.id FROM accounts a;
UPDATE members SET mail = CASE id WHEN 1 THEN 'b@example.com' ELSE 'a@example.com' END, nick = CASE id WHEN 1 THEN 'b' ELSE 'a' END;
SELECT a.email, a.login, t.relation FROM accounts a JOIN attached t ON t.account_id = a.id ORDER BY a.id;
DROP TABLE members;
DELETE FROM accounts;

-- Rows that are not active have no account.
CREATE TABLE members (id integer PRIMARY KEY, mail text, nick text, live boolean);
CREATE UNIQUE INDEX members_mail ON members (mail) WHERE live;
INSERT INTO members VALUES (1, 'a@example.com', 'a', true), (2, 'b@example.com', 'b', false), (3, 'c@example.com', 'c', NULL);
SELECT mailroom_attach('members', 'mail', 'nick', active => 'live');
SELECT * FROM mailroom_attached;
INSERT INTO members VALUES (4, 'd@example.com', 'd', true), (5, 'e@example.com', 'e', false), (6, 'f@example.com', 'f', NULL);
SELECT * FROM people ORDER BY email;
-- Their other columns may be anything; a change between false and NULL changes nothing.
UPDATE members SET mail = 'no address', nick = repeat('n', 300) WHERE live IS NOT TRUE;
UPDATE members SET live = false WHERE live IS NULL;
DELETE FROM members WHERE id = 6;
-- A row that becomes inactive loses its account with its links; a new row may have its address.
UPDATE members SET live = NULL WHERE id = 1;
UPDATE members SET live = false WHERE id = 4;
INSERT INTO members VALUES (7, 'a@example.com', 'a', true);
DELETE FROM members WHERE id = 1;
SELECT * FROM people ORDER BY email;
-- One that becomes active gets an account as a new row does; all its columns may change at once.
UPDATE members SET live = true, mail = 'b2@example.com', nick = 'b2' WHERE id = 2;
UPDATE members SET live = true WHERE id = 4;
UPDATE members SET live = false, mail = 'e@example.com', nick = 'gone' WHERE id = 7;
UPDATE members SET live = true, nick = NULL, mail = 'a3@example.com' WHERE id = 7;
SELECT * FROM people ORDER BY email;
SELECT count(*) AS open_links FROM tokens WHERE revoked_at IS NULL;
-- Not while another row has its address.
INSERT INTO members VALUES (8, 'd@example.com', 'd8', false);
UPDATE members SET mail = 'D@example.com', live = true WHERE id = 8;
TRUNCATE members;
SELECT count(*) FROM accounts;
-- The columns follow renames, and all triggers go with the attachment.
ALTER TABLE members RENAME live TO "Is ""Live""";
INSERT INTO members VALUES (1, 'a@example.com', 'a', true), (2, 'b@example.com', 'b', false);
UPDATE members SET "Is ""Live""" = NOT "Is ""Live""";
SELECT * FROM people;
SELECT email, login, active FROM mailroom_attached;
SELECT mailroom_detach('members');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'members'::regclass;
DROP TABLE members;
DELETE FROM accounts;
-- A generated column expresses any condition.
CREATE TABLE members (mail text, deleted_at timestamptz, live boolean GENERATED ALWAYS AS (deleted_at IS NULL) STORED);
SELECT mailroom_attach('members', 'mail', active => 'live');
INSERT INTO members VALUES ('a@example.com', NULL), ('b@example.com', now());
UPDATE members SET deleted_at = CASE WHEN deleted_at IS NULL THEN now() END;
SELECT * FROM people;
SELECT mailroom_detach('members');
DELETE FROM accounts;
-- Only a plain boolean column can say it: no other type, no domain, no array, no expression.
CREATE DOMAIN flag AS boolean;
ALTER TABLE members ADD number integer, ADD flagged flag, ADD flags boolean[];
SELECT mailroom_attach('members', 'mail', active => 'deleted_at');
SELECT mailroom_attach('members', 'mail', active => 'number');
SELECT mailroom_attach('members', 'mail', active => 'flagged');
SELECT mailroom_attach('members', 'mail', active => 'flags');
SELECT mailroom_attach('members', 'mail', active => 'mail');
SELECT mailroom_attach('members', 'mail', active => 'gone');
SELECT mailroom_attach('members', 'mail', active => 'deleted_at IS NULL');
SELECT mailroom_attach('members', 'live');
DROP TABLE members;

-- All rows that cannot have an account are named, by their primary key if the table has one.
INSERT INTO accounts (email, login) VALUES ('boss@example.com', 'boss');
CREATE TABLE staff (mail text);
INSERT INTO staff VALUES ('clerk@example.com');
SELECT mailroom_attach('staff', 'mail');
CREATE TABLE members ("the ""id""" integer, part text, mail text, nick text, live boolean DEFAULT true, PRIMARY KEY (part, "the ""id"""));
INSERT INTO members VALUES
    (1, 'x', 'good@example.com', 'good'),
    (2, 'x', 'not an address', 'two'),
    (3, E'x\n', E'line@example.com\nBcc: x', 'three'),
    (4, 'x', 'twice@example.com', 'four'),
    (5, 'x', 'Twice@EXAMPLE.com', 'five'),
    (6, 'x', 'six@example.com', 'Same'),
    (7, 'x', 'seven@example.com', 'sAME'),
    (8, 'x', 'eight@example.com', 'BOSS'),
    (9, 'x', 'Boss@example.com', 'any'),
    (10, 'x', 'Clerk@example.com', 'ten'),
    (11, 'x', NULL, NULL),
    (12, 'x', repeat('l', 300) || '@example.com', 'twelve'),
    (13, 'x', 'thirteen@example.com', repeat('l', 300));
SELECT mailroom_attach('members', 'mail', 'nick');
INSERT INTO members SELECT i, 'y', 'bad ' || i, i FROM generate_series(1, 5) i;
SELECT mailroom_attach('members', 'mail', 'nick');
\set VERBOSITY terse
SELECT count(*) FROM accounts;
SELECT * FROM mailroom_attached;
DELETE FROM members WHERE mail LIKE '% %' OR mail ~ '\n' OR length(mail) > 254 OR length(nick) > 254;
\set VERBOSITY default
SELECT mailroom_attach('members', 'mail', 'nick');
-- Rows that are not active are neither named nor compared.
UPDATE members SET live = "the ""id""" IN (1, 4, 6, 9);
SELECT mailroom_attach('members', 'mail', 'nick', active => 'live');
SELECT * FROM people ORDER BY email COLLATE "C";
SELECT mailroom_detach('members');
-- Without a key, by the address. Two rows do not share an account that exists.
ALTER TABLE members DROP CONSTRAINT members_pkey;
UPDATE members SET mail = 'boss@example.com' WHERE mail = 'good@example.com';
DELETE FROM members WHERE live IS NOT TRUE;
SELECT mailroom_attach('members', 'mail', 'nick');
DROP TABLE members, staff;
DELETE FROM accounts;

-- The type of a column that a trigger names does not change. Detached and attached again, rows find their accounts.
CREATE TABLE members (mail varchar(20), nick varchar(20), live boolean);
INSERT INTO members VALUES ('a@example.com', 'a', true);
SELECT mailroom_attach('members', 'mail', 'nick', active => 'live');
ALTER TABLE members ALTER mail TYPE text;
ALTER TABLE members ALTER nick TYPE text;
ALTER TABLE members ALTER live TYPE integer USING live::integer;
ALTER TABLE members DROP COLUMN live;
SELECT id FROM accounts \gset
BEGIN;
SELECT mailroom_detach('members');
ALTER TABLE members ALTER mail TYPE text, ALTER nick TYPE text;
SELECT mailroom_attach('members', 'mail', 'nick', active => 'live');
COMMIT;
UPDATE members SET mail = 'a.longer.one@example.com';
SELECT id = :id AS is_same, email FROM accounts;
DROP TABLE members;

DROP VIEW people;
DROP DOMAIN flag;
DROP EXTENSION mailroom;
