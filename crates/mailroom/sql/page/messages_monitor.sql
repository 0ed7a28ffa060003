-- The newest mails with an id below $1 int8 (NULL: any), in state $2, of kind $3, of transport $4 text (NULL: any), at most $5 int4, for monitor.
-- If there are as many, there may be more before the id of the last. Else it goes on before next_before, which is NULL if all was
-- searched; searched_to is the time back to which it was. With no mail, there is one row, whose id is NULL.
WITH walk AS MATERIALIZED (
    SELECT
        t.before,
        CASE WHEN num_nonnulls($2::text, $3::text, $4::text) = 0 THEN 0 ELSE greatest(t.before, 20000) - 20000 END AS low
    FROM (
        SELECT coalesce($1::int8, (SELECT o.id + 1 FROM @extschema@.outbox o ORDER BY o.id DESC LIMIT 1), 0)
    ) t (before)
)
SELECT
    m.id,
    m.state::text AS state,
    m.kind::text AS kind,
    m.transport::text AS transport,
    to_char(m.created_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS created_at,
    extract(epoch FROM now() - m.created_at)::float8 AS age,
    to_char(m.send_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS send_at,
    to_char(m.ended_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS ended_at,
    m.failed_attempts,
    left(m.last_error, 300) AS last_error,
    m.token_id IS NOT NULL OR m.kind IN ('activation', 'password_recovery') AS has_link,
    n.next_before,
    CASE
        WHEN n.next_before IS NOT NULL
        THEN (SELECT to_char(o.created_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') FROM @extschema@.outbox o WHERE o.id >= w.low ORDER BY o.id LIMIT 1)
    END AS searched_to
FROM walk w
-- Past ids that no mail has.
CROSS JOIN LATERAL (SELECT (SELECT o.id + 1 FROM @extschema@.outbox o WHERE o.id < w.low ORDER BY o.id DESC LIMIT 1) AS next_before OFFSET 0) n
LEFT JOIN LATERAL (
    SELECT
        o.id, o.state, o.kind, o.transport, o.created_at, o.send_at, o.ended_at, o.failed_attempts, o.last_error, o.token_id
    FROM @extschema@.outbox o
    WHERE o.id >= w.low
      AND o.id < w.before
      -- As text, so that no index of a state fits.
      AND ($2::text IS NULL OR o.state::text = $2::text)
      AND ($3::text IS NULL OR o.kind = $3::text)
      AND ($4::text IS NULL OR o.transport = $4::text)
    ORDER BY o.id DESC
    LIMIT $5::int4
) m ON true
ORDER BY m.id DESC
