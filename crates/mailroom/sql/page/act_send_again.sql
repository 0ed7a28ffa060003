-- Schedules a copy of the mail with the id $1 int8, for support: its id, or NULL if there is no such mail.
SELECT @extschema@.mailroom_send_again($1::int8) AS id
