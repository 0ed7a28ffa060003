-- The newest mails with an id below $1 int8 (NULL: any), in state $2, of kind $3, of transport $4 text (NULL: any), at most $5 int4, for monitor.
-- If there are as many, there may be more before the id of the last. Else it goes on before next_before, which is NULL if all was
-- searched; searched_to is the time back to which it was. With no mail, there is one row, whose id is NULL.
-- Filters search 20,000 ids at a time; failed mail is found by its index, unless it is more than 9,000, and then in 11,000 ids at a time.
WITH failed AS MATERIALIZED (
    SELECT o.id, o.kind, o.transport
    FROM @extschema@.outbox o
    WHERE $2::text = 'error'
      AND o.state = 'error'
      -- Always true, and the planner does not know it: it expects few rows and reads the index in its order, up to the limit.
      AND o.ended_at >= (SELECT '-infinity'::timestamptz)
      AND o.ended_at <= (SELECT 'infinity'::timestamptz)
    ORDER BY o.ended_at DESC
    LIMIT 9000
), walk AS MATERIALIZED (
    SELECT t.before, s.by_index, CASE WHEN s.by_index OR num_nonnulls($2::text, $3::text, $4::text) = 0 THEN 0 ELSE greatest(t.before, s.ids) - s.ids END AS low
    FROM (
        SELECT coalesce($1::int8, (SELECT o.id + 1 FROM @extschema@.outbox o ORDER BY o.id DESC LIMIT 1), 0)
    ) t (before)
    CROSS JOIN (
        SELECT $2::text IS NOT DISTINCT FROM 'error' AND count(*) < 9000, CASE WHEN $2::text = 'error' THEN 11000 ELSE 20000 END
        FROM failed f
    ) s (by_index, ids)
), found AS MATERIALIZED (
    (
        SELECT f.id
        FROM failed f
        CROSS JOIN walk w
        WHERE w.by_index
          AND f.id < w.before
          AND ($3::text IS NULL OR f.kind = $3::text)
          AND ($4::text IS NULL OR f.transport = $4::text)
        ORDER BY f.id DESC
        LIMIT $5::int4
    )
    UNION ALL
    SELECT o.id
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT i.id
        FROM @extschema@.outbox i
        WHERE i.id >= w.low
          AND i.id < w.before
          AND NOT w.by_index
          -- As text, so that no index of a state fits.
          AND ($2::text IS NULL OR i.state::text = $2::text)
          AND ($3::text IS NULL OR i.kind = $3::text)
          AND ($4::text IS NULL OR i.transport = $4::text)
        ORDER BY i.id DESC
        LIMIT $5::int4
    ) o
)
SELECT
    m.id,
    m.state::text AS state,
    m.kind::text AS kind,
    m.transport::text AS transport,
    to_char(m.created_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS created_at,
    to_char(m.send_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS send_at,
    to_char(m.ended_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS ended_at,
    m.failed_attempts,
    left(m.last_error, 300) AS last_error,
    n.next_before,
    CASE
        WHEN n.next_before IS NOT NULL
        THEN (SELECT to_char(o.created_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') FROM @extschema@.outbox o WHERE o.id >= w.low ORDER BY o.id LIMIT 1)
    END AS searched_to
FROM walk w
-- Past ids that no mail has.
CROSS JOIN LATERAL (SELECT (SELECT o.id + 1 FROM @extschema@.outbox o WHERE o.id < w.low ORDER BY o.id DESC LIMIT 1) AS next_before OFFSET 0) n
LEFT JOIN (
    SELECT
        o.id, o.state, o.kind, o.transport, o.created_at, o.send_at, o.ended_at, o.failed_attempts, o.last_error
    FROM found f
    JOIN @extschema@.outbox o ON o.id = ANY (ARRAY[f.id])
) m ON true
ORDER BY m.id DESC
