-- The mail with the id $1 int8 for monitor: state, times and error, without addresses, subject and contents.
SELECT
    o.message_id::text AS message_id,
    o.state::text AS state,
    o.kind::text AS kind,
    o.transport::text AS transport,
    o.fallback_from::text AS fallback_from,
    o.priority::int4 AS priority,
    -- Whether it has a link, and cannot be sent again, cancelled or rescheduled.
    o.token_id IS NOT NULL OR o.kind IN ('activation', 'password_recovery') AS has_link,
    to_char(o.created_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS created_at,
    to_char(o.send_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS send_at,
    to_char(o.expires_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS expires_at,
    o.claimed_by,
    to_char(o.claimed_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS claimed_at,
    to_char(o.ended_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS ended_at,
    o.failed_attempts,
    o.ambiguous_attempts,
    o.max_attempts,
    o.last_error
FROM @extschema@.outbox o
WHERE o.id = $1::int8
