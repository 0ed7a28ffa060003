-- As many accounts, each with an open link, and the same tokens in a plain table; the queue is not what is measured.
DROP TABLE IF EXISTS links, plain_tokens;
TRUNCATE accounts CASCADE;
INSERT INTO accounts (email, login, status)
SELECT i || '@example.com', i, 'active'
FROM generate_series(1, $count) i;
INSERT INTO tokens (account, action)
SELECT id, 'password_recovery' FROM accounts;
TRUNCATE pending;
CREATE TABLE links AS
SELECT row_number() OVER (ORDER BY hashint8(id)) AS n, secret, code, mailroom_sign(action, secret, code) AS link
FROM tokens;
ALTER TABLE links ADD PRIMARY KEY (n);
CREATE TABLE plain_tokens WITH (fillfactor = 80) AS
SELECT id, action::text, secret, code, account, to_timestamp(expires_at) AS expires_at, NULL::timestamptz AS consumed_at
FROM tokens;
ALTER TABLE plain_tokens ADD PRIMARY KEY (id), ADD UNIQUE (secret);
CREATE INDEX ON plain_tokens (account);
VACUUM (ANALYZE) accounts, tokens, links, plain_tokens;
CHECKPOINT;
