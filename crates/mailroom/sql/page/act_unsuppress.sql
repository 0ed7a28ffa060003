-- Lifts the suppressions of the address $1 text on the list $2 text (empty: of all mail; NULL: all of them), for support: whether there was one.
SELECT @extschema@.mailroom_unsuppress($1::text, $2::text) AS done
