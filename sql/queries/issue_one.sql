INSERT INTO @extschema@.tokens (account, action, secret, code, expires_at, created_at)
VALUES ($1, 'activation', $2, $3, $4, $5)
