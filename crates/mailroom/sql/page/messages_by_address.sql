-- The newest mails to the address $1 text with an id below $2 int8 (NULL: any), at most $3 int4, for support. Columns and cursor as in messages.
-- Ended mail is found by the index; an address that has more than 4,000 is searched for in 15,000 ids at a time. Of the
-- waiting mail, the first 20,000 are searched, and more_waiting tells that there are more.
WITH hits AS MATERIALIZED (
    -- Without an order, so that the primary key does not fit.
    SELECT o.id
    FROM @extschema@.outbox o
    WHERE @extschema@._search_keys(o.recipients::text[] || o.cc::text[] || o.bcc::text[]) COLLATE "C" @> ARRAY[@extschema@.mailroom_address_key($1::text)]
      AND o.ended_at IS NOT NULL
    LIMIT 4001
), walk AS MATERIALIZED (
    SELECT t.is_long, t.before, CASE WHEN t.is_long THEN greatest(t.before, 15000) - 15000 ELSE 0 END AS low
    FROM (
        SELECT
            (SELECT count(*) FROM hits) > 4000,
            coalesce($2::int8, (SELECT o.id + 1 FROM @extschema@.outbox o ORDER BY o.id DESC LIMIT 1), 0)
    ) t (is_long, before)
), live AS MATERIALIZED (
    (
        SELECT o.id, @extschema@._search_keys(o.recipients::text[] || o.cc::text[] || o.bcc::text[]) COLLATE "C" @> ARRAY[@extschema@.mailroom_address_key($1::text)] AS is_hit
        FROM @extschema@.outbox o
        WHERE o.state = 'claimed'
          -- Always true, and the planner does not know it: it expects few rows and reads the index in its order, up to the limit.
          AND o.claimed_until >= (SELECT '-infinity'::timestamptz)
          AND o.claimed_until <= (SELECT 'infinity'::timestamptz)
          AND NOT (SELECT w.is_long FROM walk w)
        ORDER BY o.claimed_until, o.id
        LIMIT 1000
    )
    UNION ALL
    (
        SELECT o.id, @extschema@._search_keys(o.recipients::text[] || o.cc::text[] || o.bcc::text[]) COLLATE "C" @> ARRAY[@extschema@.mailroom_address_key($1::text)] AS is_hit
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          -- As above.
          AND o.transport >= (SELECT ''::text)
          AND o.transport <= (SELECT '~'::text)
          AND o.priority >= (SELECT -100)
          AND o.priority <= (SELECT 100)
          AND NOT (SELECT w.is_long FROM walk w)
        ORDER BY o.transport, o.priority, o.send_at, o.id
        LIMIT 19000
    )
), found AS MATERIALIZED (
    SELECT h.id FROM hits h CROSS JOIN walk w WHERE NOT w.is_long
    UNION
    SELECT l.id FROM live l WHERE l.is_hit
    UNION
    -- Mail with a link, however much waits before it.
    SELECT o.id
    FROM @extschema@.accounts a
    CROSS JOIN LATERAL (SELECT t.id FROM @extschema@.tokens t WHERE t.account = a.id OFFSET 0) t
    CROSS JOIN LATERAL (
        SELECT o.id
        FROM @extschema@.outbox o
        WHERE o.token_id = t.id
          AND o.state IN ('scheduled', 'claimed')
        OFFSET 0
    ) o
    WHERE a.email = @extschema@.mailroom_address_key($1::text)
    UNION
    SELECT o.id
    FROM walk w
    CROSS JOIN LATERAL (
        SELECT i.id, i.recipients, i.cc, i.bcc
        FROM @extschema@.outbox i
        WHERE i.id >= w.low
          AND i.id < w.before
        OFFSET 0
    ) o
    WHERE w.is_long
      AND @extschema@._search_keys(o.recipients::text[] || o.cc::text[] || o.bcc::text[]) COLLATE "C" @> ARRAY[@extschema@.mailroom_address_key($1::text)]
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
    END AS searched_to,
    (SELECT count(*) FROM live) >= 19000 AS more_waiting
FROM walk w
CROSS JOIN LATERAL (SELECT (SELECT o.id + 1 FROM @extschema@.outbox o WHERE o.id < w.low ORDER BY o.id DESC LIMIT 1) AS next_before OFFSET 0) n
LEFT JOIN LATERAL (
    SELECT
        o.id, o.state, o.kind, o.transport, o.subject, o.recipients, o.cc, o.bcc, o.created_at, o.send_at, o.ended_at,
        o.failed_attempts, o.last_error
    FROM (
        SELECT f.id
        FROM found f
        WHERE f.id < w.before
        ORDER BY f.id DESC
        LIMIT $3::int4
    ) f
    JOIN @extschema@.outbox o ON o.id = ANY (ARRAY[f.id])
) m ON true
ORDER BY m.id DESC
