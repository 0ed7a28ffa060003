-- The newest mails with an id below $2 int8 (NULL: any) that the text $1 names, at most $3 int4, for support. Columns and cursor as in messages.
-- By id, with commas or without, by a message_id anywhere in the text, by provider_id, with angle brackets or without, and by item_key of waiting mail exactly; by item_key and
-- group_key of all mail in 20,000 ids at a time.
WITH walk AS MATERIALIZED (
    SELECT t.before, greatest(t.before, 20000) - 20000 AS low
    FROM (
        SELECT coalesce($2::int8, (SELECT o.id + 1 FROM @extschema@.outbox o ORDER BY o.id DESC LIMIT 1), 0)
    ) t (before)
), found AS MATERIALIZED (
    SELECT o.id
    FROM @extschema@.outbox o
    WHERE o.id = CASE WHEN btrim($1::text) ~ '^([0-9]{1,18}|[0-9]{1,3}(,[0-9]{3}){1,5})$' THEN replace($1::text, ',', '')::int8 END
      AND $2::int8 IS NULL
    UNION
    SELECT o.id
    FROM @extschema@.outbox o
    WHERE o.message_id = substring($1::text FROM '[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}')::uuid
      AND $2::int8 IS NULL
    UNION
    (
        SELECT o.id
        FROM @extschema@.outbox o
        WHERE o.provider_id = ANY (ARRAY[btrim($1::text), btrim($1::text, ' <>'), '<' || btrim($1::text, ' <>') || '>'])
          AND $2::int8 IS NULL
        LIMIT $3::int4
    )
    UNION
    (
        SELECT o.id
        FROM @extschema@.outbox o
        WHERE o.item_key = btrim($1::text)
          AND o.state IN ('scheduled', 'claimed')
          AND $2::int8 IS NULL
        LIMIT $3::int4
    )
    UNION
    (
        SELECT o.id
        FROM walk w
        CROSS JOIN LATERAL (
            SELECT i.id
            FROM @extschema@.outbox i
            WHERE i.id >= w.low
              AND i.id < w.before
              -- As an array, so that no index of keys fits.
              AND btrim($1::text) = ANY (ARRAY[i.item_key, i.group_key])
            ORDER BY i.id DESC
            LIMIT $3::int4
        ) o
    )
)
SELECT
    m.id,
    m.state::text AS state,
    m.kind::text AS kind,
    m.transport::text AS transport,
    m.subject::text AS subject,
    m.recipients::text[] AS recipients,
    m.cc::text[] AS cc,
    m.bcc::text[] AS bcc,
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
CROSS JOIN LATERAL (SELECT (SELECT o.id + 1 FROM @extschema@.outbox o WHERE o.id < w.low ORDER BY o.id DESC LIMIT 1) AS next_before OFFSET 0) n
LEFT JOIN (
    SELECT
        o.id, o.state, o.kind, o.transport, o.subject, o.recipients, o.cc, o.bcc, o.created_at, o.send_at, o.ended_at,
        o.failed_attempts, o.last_error
    FROM (
        SELECT f.id
        FROM found f
        ORDER BY f.id DESC
        LIMIT $3::int4
    ) f
    JOIN @extschema@.outbox o ON o.id = ANY (ARRAY[f.id])
) m ON true
ORDER BY m.id DESC
