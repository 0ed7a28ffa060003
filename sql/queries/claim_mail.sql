SELECT
    c.id, c.failed_attempts AS attempts,
    coalesce(octet_length(c.body_text), 0)::bigint + coalesce(octet_length(c.body_html), 0) + octet_length(c.data::text) + 1024 AS size,
    c.message_id::text, c.kind::text, c.recipients::text[], c.cc::text[], c.bcc::text[], c.reply_to::text[], c.subject::text,
    c.body_text, c.body_html, c.data::text, extract(epoch FROM c.created_at)::bigint AS created_at,
    extract(epoch FROM c.expires_at)::double precision AS expires_at,
    c.ambiguous_alone, c.ambiguous_attempts, c.priority::integer, (extract(epoch FROM c.send_at) * 1000000)::bigint AS send_at,
    c.group_key, c.batch::text, (SELECT _redirect_to()) AS "mailroom.redirect_to"
FROM mailroom_claim($1, NULL::interval, $2, $3) c
WHERE NOT EXISTS (SELECT FROM pauses)
