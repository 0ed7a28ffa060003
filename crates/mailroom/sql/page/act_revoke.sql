-- Ends the open links of the account with the id $1 int8, for support: how many.
SELECT @extschema@.mailroom_revoke($1::int8) AS links
