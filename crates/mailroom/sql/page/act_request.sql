-- Sends a new link for the action $1 text (activation or password_recovery) to the account with the address $2 text, for support: one
-- row, also if there is no such account; none for another action.
SELECT @extschema@.mailroom_request_activation($2::text)::text AS done
WHERE $1::text = 'activation'
UNION ALL
SELECT @extschema@.mailroom_request_recovery($2::text)::text
WHERE $1::text = 'password_recovery'
