-- Sends no more mail to the address $1 text, of the list $2 text (empty: all mail), until the time $3 text (NULL: for ever), for support: whether
-- it was not suppressed by hand before; NULL if that time has passed, and nothing was done. until is that time.
SELECT
    CASE WHEN ($3::text::timestamptz <= now()) IS NOT TRUE THEN @extschema@.mailroom_suppress($1::text, $2::text, 'manual'::@extschema@.suppression_reason, $3::text::timestamptz) END::text AS done,
    to_char($3::text::timestamptz, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS until
