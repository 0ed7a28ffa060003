-- A batch in one plain statement: the same rows taken in the same order, the same columns filled, and text
-- of a signed token's length in its place. $limit is written in, so that the plan is made once and for it.
WITH taken AS (
    DELETE FROM pending
    WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM pending
        ORDER BY lane, token_id
        LIMIT $limit
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING token_id
)
INSERT INTO plain_outbox (transport, kind, token_id, account_id, recipients, data, priority, expires_at)
SELECT
    '',
    t.action::text,
    t.id,
    t.account,
    ARRAY[a.email],
    jsonb_build_object('login', a.login, 'token', rpad(encode(t.secret, 'hex'), 86, '0'), 'code', t.code),
    CASE t.action WHEN 'password_recovery' THEN -10 ELSE 0 END,
    to_timestamp(t.expires_at)
FROM taken
JOIN tokens t ON t.id = taken.token_id
JOIN accounts a ON a.id = t.account
WHERE t.consumed_at IS NULL
  AND t.expires_at > extract(epoch FROM clock_timestamp())
  AND a.status = CASE t.action WHEN 'activation' THEN 'provisioned'::account_status ELSE 'active'::account_status END
