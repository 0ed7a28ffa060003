-- $1 more accounts, with names that no account has: none is numbered higher than the highest id.
INSERT INTO accounts (email, login)
SELECT format('user%s@example.com', base.id + i), format('user%s', base.id + i)
FROM (SELECT coalesce(max(id), 0) AS id FROM accounts) base, generate_series(1, $1::bigint) i
