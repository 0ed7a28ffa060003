-- Sends no more mail to the address $1 text, of the list $2 text (empty: all mail), until the time $3 text (NULL: for ever), for support: whether
-- it was not suppressed by hand before.
SELECT @extschema@.mailroom_suppress($1::text, $2::text, 'manual', $3::text::timestamptz) AS done
