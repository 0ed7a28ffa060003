-- What operators did, for support, the newest first, at most $3 int4: with an id below $1 int8, about the mail with the id $2 int8 (NULL: any).
SELECT
    a.id,
    to_char(a.at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS at,
    a.role::text AS role,
    a.action::text AS action,
    a.outbox_id,
    -- A JSON object.
    a.detail::text AS detail
FROM @extschema@.operator_actions a
WHERE ($1::int8 IS NULL OR a.id < $1::int8)
  AND ($2::int8 IS NULL OR a.outbox_id = $2::int8)
ORDER BY a.id DESC
LIMIT $3::int4
