-- Schedules the mail with the id $1 int8 again, for support: whether it could. Mail with a link takes admin.
SELECT @extschema@.mailroom_retry($1::int8) AS done
