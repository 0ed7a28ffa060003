-- Cancels the mail with the id $1 int8, for support: whether it could.
SELECT @extschema@.mailroom_cancel($1::int8) AS done
