SELECT _fall_back(
    $1, $2,
    ARRAY(SELECT make_interval(secs => u.seconds) FROM pg_catalog.unnest($3) WITH ORDINALITY u (seconds, item) ORDER BY u.item),
    $4
)
