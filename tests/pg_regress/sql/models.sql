-- What ORMs make of a model of accounts with all nine columns, for a member of mailroom_app: they name every column when
-- they insert and read. Only defaults go into those that decide something.

SET client_min_messages = error;
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
SELECT mailroom_pause();
\pset format unaligned
CREATE ROLE mail_shop IN ROLE mailroom_app;
SET ROLE mail_shop;

-- SQLAlchemy: one row with defaults of the model; several rows.
PREPARE sqlalchemy AS
INSERT INTO accounts (email, status, login, created_at, status_changed_at, activated_at, suspended_at, unsuspended_at)
VALUES ($1::VARCHAR, $2, $3::VARCHAR, $4::BIGINT, $5::BIGINT, $6::BIGINT, $7::BIGINT, $8::BIGINT) RETURNING accounts.id;
EXECUTE sqlalchemy('sqlalchemy@example.com', 'provisioned', 'sqlalchemy', 1700000000, NULL, NULL, NULL, NULL);
PREPARE sqlalchemy_many AS
INSERT INTO accounts (email, login) SELECT p0::VARCHAR, p1::VARCHAR FROM (VALUES ($1, $2, 0), ($3, $4, 1)) AS imp_sen(p0, p1, sen_counter)
ORDER BY sen_counter RETURNING accounts.id, accounts.id AS id__1;
EXECUTE sqlalchemy_many('sqlalchemy.2@example.com', 'sqlalchemy 2', 'sqlalchemy.3@example.com', 'sqlalchemy 3');
SELECT accounts.id, accounts.email, accounts.status, accounts.login, accounts.created_at, accounts.status_changed_at,
    accounts.activated_at, accounts.suspended_at, accounts.unsuspended_at
FROM accounts
WHERE accounts.id = 1;

-- Django: all columns but the id; by get_or_create; by bulk_create that ignores conflicts; and with db_default.
INSERT INTO "accounts" ("email", "status", "login", "created_at", "status_changed_at", "activated_at", "suspended_at", "unsuspended_at") VALUES ('django@example.com', 'provisioned', 'django', 1700000000, NULL, NULL, NULL, NULL) RETURNING "accounts"."id";
SELECT "accounts"."id", "accounts"."email", "accounts"."status", "accounts"."login", "accounts"."created_at", "accounts"."status_changed_at", "accounts"."activated_at", "accounts"."suspended_at", "accounts"."unsuspended_at" FROM "accounts" WHERE "accounts"."email" = 'django@example.com' LIMIT 21;
INSERT INTO "accounts" ("email", "status", "login", "created_at", "status_changed_at", "activated_at", "suspended_at", "unsuspended_at") VALUES ('Django@example.com', 'provisioned', 'django', 1700000000, NULL, NULL, NULL, NULL) ON CONFLICT DO NOTHING;
INSERT INTO "accounts" ("email", "status", "login", "created_at", "status_changed_at", "activated_at", "suspended_at", "unsuspended_at") VALUES ('django.5@example.com', DEFAULT, 'django 5', DEFAULT, NULL, NULL, NULL, NULL) RETURNING "accounts"."id", "accounts"."status";

-- Drizzle, Sequelize, TypeORM, Prisma.
PREPARE drizzle AS
insert into "accounts" ("id", "email", "status", "login", "created_at", "status_changed_at", "activated_at", "suspended_at", "unsuspended_at") values (default, $1, default, $2, default, default, default, default, default) returning "id", "email", "status", "login", "status_changed_at", "activated_at", "suspended_at", "unsuspended_at";
EXECUTE drizzle('drizzle@example.com', 'drizzle');
PREPARE sequelize AS
INSERT INTO "accounts" ("id","email","login","created_at") VALUES (DEFAULT,$1,$2,$3) RETURNING "id","email","status","login","created_at","status_changed_at","activated_at","suspended_at","unsuspended_at";
EXECUTE sequelize('sequelize@example.com', 'sequelize', 1700000000);
PREPARE typeorm AS
INSERT INTO "accounts"("email", "status", "login", "created_at", "status_changed_at", "activated_at", "suspended_at", "unsuspended_at") VALUES ($1, DEFAULT, $2, DEFAULT, DEFAULT, DEFAULT, DEFAULT, DEFAULT) RETURNING "id", "status", "created_at" IS NOT NULL;
EXECUTE typeorm('typeorm@example.com', 'typeorm');
PREPARE prisma AS
INSERT INTO "public"."accounts" ("email","status","login") VALUES ($1,CAST($2::text AS "public"."account_status"),$3) RETURNING "public"."accounts"."id", "public"."accounts"."email", "public"."accounts"."status"::text;
EXECUTE prisma('prisma@example.com', 'provisioned', 'prisma');
DEALLOCATE ALL;

-- Other values are refused by the name of the column.
INSERT INTO accounts (email, login, status) VALUES ('cheat@example.com', 'cheat', 'active');
INSERT INTO accounts (email, login, status) VALUES ('cheat@example.com', 'cheat', 'suspended');
INSERT INTO accounts (id, email, login) VALUES (1000000, 'cheat@example.com', 'cheat');
INSERT INTO accounts (email, login, status_changed_at, activated_at, suspended_at, unsuspended_at) VALUES ('cheat@example.com', 'cheat', 1, 2, 3, 4);
INSERT INTO accounts (email, login, activated_at) VALUES ('fair@example.com', 'fair', NULL), ('cheat@example.com', 'cheat', 0);
COPY accounts (email, status, login) FROM stdin;
cheat@example.com	active	cheat
\.
-- What mailroom_app may not do otherwise.
UPDATE accounts SET activated_at = 1 WHERE login = 'django';
INSERT INTO accounts (email, login) VALUES ('django@example.com', 'x') ON CONFLICT (email) DO UPDATE SET login = 'x';
SELECT FROM accounts FOR UPDATE;
DELETE FROM accounts;
RESET ROLE;
-- For a column of the application, its grants decide.
ALTER TABLE accounts ADD COLUMN password_hash text;
SET ROLE mail_shop;
SELECT password_hash FROM accounts;
INSERT INTO accounts (email, login, password_hash) VALUES ('hash@example.com', 'hash', 'x');
RESET ROLE;
GRANT INSERT (password_hash) ON accounts TO mail_shop;
SET ROLE mail_shop;
INSERT INTO accounts (email, login, password_hash) VALUES ('hash@example.com', 'hash', 'x');
INSERT INTO accounts (email, login, password_hash, status) VALUES ('cheat@example.com', 'cheat', 'x', 'active');
RESET ROLE;
SELECT count(*), min(status), max(status), count(activated_at) FROM accounts;
-- Each of them gets its mail.
SELECT count(*) FROM pending;

DROP OWNED BY mail_shop;
DROP ROLE mail_shop;
DROP EXTENSION mailroom;
