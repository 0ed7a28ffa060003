INSERT INTO @extschema@.pending (lane, token)
SELECT CASE action WHEN 'password_recovery' THEN 0 ELSE 1 END, id
FROM new_tokens
WHERE consumed_at IS NULL
