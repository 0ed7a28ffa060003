SELECT coalesce(pg_catalog.cardinality(mailroom_release_many(
    pg_catalog.array_agg(o.id), $1, pg_catalog.array_agg(o.failed_attempts)
)), 0)
FROM outbox o
WHERE o.state = 'claimed'
  AND o.claimed_by = $1
  AND o.claimed_until > clock_timestamp()
  AND o.id <> ALL ($2)
HAVING count(*) > 0
