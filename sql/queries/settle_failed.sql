SELECT mailroom_mark_error_many(
    $1, $2,
    ARRAY(SELECT make_interval(secs => u.seconds) FROM pg_catalog.unnest($3) WITH ORDINALITY u (seconds, item) ORDER BY u.item),
    $4, $5, $6, $7, $8, $9, $10::uuid[], $11
)
