SELECT cardinality(mailroom_extend($1, NULL, $2, $3))
