-- The mail with the id $1 int8 for support: what the outbox says of it, without its contents, and what became of its link.
SELECT
    o.message_id::text AS message_id,
    o.state::text AS state,
    o.kind::text AS kind,
    o.transport::text AS transport,
    o.fallback_from::text AS fallback_from,
    o.priority::int4 AS priority,
    o.account_id,
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
    o.last_error,
    o.subject::text AS subject,
    o.recipients::text[] AS recipients,
    o.cc::text[] AS cc,
    o.bcc::text[] AS bcc,
    o.reply_to::text[] AS reply_to,
    o.item_key,
    o.group_key,
    o.enqueued_by::text AS enqueued_by,
    o.provider_id,
    o.attachment_bytes,
    CASE WHEN t.consumed_at IS NOT NULL THEN to_char(to_timestamp(least(greatest(t.consumed_at, 0), 253402300799)), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') END AS link_used_at,
    -- As it is now: the address may have changed since.
    a.email AS account_email,
    a.status::text AS account_status
FROM @extschema@.outbox o
LEFT JOIN LATERAL (
    SELECT i.consumed_at
    FROM @extschema@.tokens i
    WHERE i.id = o.token_id
    OFFSET 0
) t ON true
LEFT JOIN LATERAL (
    SELECT c.email, c.status
    FROM @extschema@.accounts c
    WHERE c.id = o.account_id
    OFFSET 0
) a ON true
WHERE o.id = $1::int8
