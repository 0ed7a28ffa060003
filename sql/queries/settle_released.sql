SELECT cardinality(mailroom_release($1, $2, $3))
