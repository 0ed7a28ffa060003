-- Sends the mail with the id $1 int8 at the time $2 text, in the time zone of the session unless it names one, for support: whether it could.
SELECT @extschema@.mailroom_reschedule($1::int8, $2::text::timestamptz) AS done
