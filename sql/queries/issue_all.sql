INSERT INTO @extschema@.tokens (account, action)
SELECT id, 'activation'
FROM new_accounts
WHERE status = 'provisioned'
