-- The address in the text $1, with or without a name, as suppressions have it, for support; NULL if it is none.
SELECT coalesce(@extschema@.mailroom_address_key($1::text), (@extschema@._search_keys(ARRAY[$1::text]))[1]) AS address
