-- The suppressions for support, one row for each address and list, the newest first, at most $4 int4: of the address $1 text, also those that have ended
-- (NULL: all in force); those after the row with cursor_at $2, cursor_address $3 and list $5 text (NULL: from the newest on). reasons, sinces, untils
-- (empty: no end), bounces and ended have an element for each reason; since and until are the latest of them, and in_force is of any.
SELECT
    s.address,
    s.list,
    g.reasons,
    g.sinces,
    g.untils,
    g.bounces,
    g.ended,
    g.in_force,
    to_char(s.since, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS since,
    to_char(g.until, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS until,
    -- Exact, for the next page.
    to_char(s.since, 'YYYY-MM-DD HH24:MI:SS.USTZH:TZM') AS cursor_at,
    s.address AS cursor_address
FROM @extschema@.suppressions s
CROSS JOIN LATERAL (
    SELECT
        array_agg(r.reason::text ORDER BY r.reason) AS reasons,
        array_agg(to_char(r.since, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') ORDER BY r.reason) AS sinces,
        array_agg(coalesce(to_char(r.until, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM'), '') ORDER BY r.reason) AS untils,
        array_agg(r.bounces::text ORDER BY r.reason) AS bounces,
        array_agg(((r.until > now()) IS FALSE)::text ORDER BY r.reason) AS ended,
        bool_or((r.until > now()) IS NOT FALSE) AS in_force,
        CASE WHEN bool_or(r.until IS NULL) THEN NULL ELSE max(r.until) END AS until
    FROM @extschema@.suppressions r
    WHERE r.address = s.address
      AND r.list = s.list
      AND ($1::text IS NOT NULL OR (r.until > now()) IS NOT FALSE)
) g
WHERE ($1::text IS NULL OR s.address = @extschema@.mailroom_address_key($1::text))
  AND ($1::text IS NOT NULL OR (s.until > now()) IS NOT FALSE)
  AND ($2::text IS NULL OR (s.since, s.address, s.list) < ($2::text::timestamptz, $3::text COLLATE "C", coalesce($5::text, '') COLLATE "C"))
  -- The newest reason stands for its address and list.
  AND NOT EXISTS (
      SELECT
      FROM @extschema@.suppressions n
      WHERE n.address = s.address
        AND n.list = s.list
        AND (n.since, n.reason) > (s.since, s.reason)
        AND ($1::text IS NOT NULL OR (n.until > now()) IS NOT FALSE)
      OFFSET 0
  )
ORDER BY s.since DESC, s.address DESC, s.list DESC
LIMIT $4::int4
