SELECT cardinality(_release_within_budget($1, $2, $3))
