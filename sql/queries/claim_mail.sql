SELECT
    c.id, c.failed_attempts AS attempts,
    -- A failed attempt is followed by one that is due 5 s before the mail expires at the latest; see mailroom_mark_error_many.
    c.failed_attempts + 1 >= c.max_attempts OR coalesce(c.expires_at - interval '5 s' <= clock_timestamp(), false) AS is_last_attempt,
    c.failed_attempts + 1 >= c.max_attempts AS ends_as_error,
    -- In the sender's memory, at most: an address with its name has up to 900 octets.
    coalesce(octet_length(c.body_text::text), 0)::bigint + coalesce(octet_length(c.body_html::text), 0) + octet_length(c.data::text) + 2048
        + coalesce(octet_length(c.headers::text), 0) + coalesce(c.attachment_bytes, 0)
        + 1000 * (cardinality(c.recipients) + cardinality(c.cc) + cardinality(c.bcc) + cardinality(c.reply_to)) AS size,
    c.message_id::text, c.kind::text, c.recipients::text[], c.cc::text[], c.bcc::text[], c.reply_to::text[],
    c.from_address::text, c.headers::text, c.unsubscribe_url, c.attachment_bytes::bigint, c.subject::text,
    c.body_text::text, c.body_html::text, c.data::text, CASE WHEN isfinite(c.created_at) THEN date_part('epoch', c.created_at)::bigint ELSE 0 END AS created_at,
    extract(epoch FROM c.created_at)::text AS created_at_text,
    CASE WHEN isfinite(c.expires_at) THEN date_part('epoch', c.expires_at)::bigint END AS expires_at, c.account_id,
    -- By this clock, since that of the sender may be another one.
    date_part('epoch', nullif(c.expires_at, 'infinity'::timestamptz)) - date_part('epoch', clock_timestamp()) AS expires_in,
    CASE WHEN c.failed_attempts > 0 THEN date_part('epoch', clock_timestamp())
        - date_part('epoch', coalesce(_first_attempt_at(c.id), CASE WHEN isfinite(c.created_at) THEN c.created_at END)) END AS age,
    CASE WHEN c.failed_attempts > 0 THEN c.ambiguous_attempts > 0 OR _may_have_arrived(c.id) ELSE false END AS may_have_arrived,
    c.ambiguous_alone, c.ambiguous_attempts, c.priority::integer, CASE WHEN isfinite(c.send_at) THEN (date_part('epoch', c.send_at) * 1000000::double precision)::bigint ELSE 0 END AS send_at,
    c.group_key, c.batch::text, coalesce(c.fallback_from <> c.transport, false) AS fell_back, (SELECT _redirect_to()) AS "mailroom.redirect_to"
FROM mailroom_claim($1, make_interval(secs => $4), $2, $3) c
WHERE NOT EXISTS (SELECT FROM pauses)
    -- Before the claim: if the setting is wrong, the claim is rolled back, but what it took from the budgets is not.
    AND (SELECT true FROM _redirect_to() r)
