-- As many accounts, each with an open link of this action; the queue is not what is measured.
DROP TABLE IF EXISTS links;
TRUNCATE accounts CASCADE;
INSERT INTO accounts (email, login, status)
SELECT i || '@example.com', i, CASE '$action' WHEN 'activation' THEN 'provisioned' ELSE 'active' END::account_status
FROM generate_series(1, $count) i;
INSERT INTO tokens (account, action)
SELECT id, 'password_recovery' FROM accounts WHERE status = 'active';
TRUNCATE pending;
CREATE TABLE links AS
SELECT row_number() OVER (ORDER BY hashint8(id)) AS n, secret, code, mailroom_sign(action, secret, code) AS link
FROM tokens;
ALTER TABLE links ADD PRIMARY KEY (n);
VACUUM (ANALYZE) accounts, tokens, links;
CHECKPOINT;
