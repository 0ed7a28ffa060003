-- The suppressions for support, the newest first, at most $4 int4: of the address $1 text, also those that have ended (NULL: all in force); those after
-- the row with cursor_at $2 and cursor_address $3 text (NULL: from the newest on).
SELECT
    s.address,
    s.list,
    s.reason::text AS reason,
    s.bounces,
    s.event_id,
    to_char(s.since, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS since,
    extract(epoch FROM now() - s.since)::float8 AS age,
    to_char(s.until, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS until,
    (s.until > now()) IS NOT FALSE AS in_force,
    -- Exact, for the next page.
    to_char(s.since, 'YYYY-MM-DD HH24:MI:SS.USTZH:TZM') AS cursor_at,
    s.address AS cursor_address
FROM @extschema@.suppressions s
WHERE ($1::text IS NULL OR s.address = @extschema@.mailroom_address_key($1::text))
  AND ($1::text IS NOT NULL OR (s.until > now()) IS NOT FALSE)
  AND ($2::text IS NULL OR (s.since, s.address) < ($2::text::timestamptz, $3::text COLLATE "C"))
ORDER BY s.since DESC, s.address DESC, s.list, s.reason
LIMIT $4::int4
