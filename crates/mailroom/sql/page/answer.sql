-- One row for support, "did she get it?", about the address $1 text and its last mail, whose id is $2 int8 (NULL: none).
-- address is NULL if $1 is no address; the other columns are NULL where there is no such thing. open_links are actions, and
-- open_links_until when each ends. The event is the one of that mail about this address that counts most.
SELECT
    k.address,
    o.id,
    o.state::text AS state,
    o.kind::text AS kind,
    o.claimed_by,
    o.transport::text AS transport,
    o.subject::text AS subject,
    to_char(o.send_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS send_at,
    to_char(o.claimed_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS claimed_at,
    to_char(o.ended_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS ended_at,
    CASE WHEN isfinite(coalesce(o.ended_at, o.created_at)) THEN extract(epoch FROM now() - coalesce(o.ended_at, o.created_at))::float8 END AS age,
    o.last_error,
    e.type::text AS event,
    e.reason::text AS event_reason,
    e.status AS event_status,
    to_char(e.occurred_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS event_at,
    -- Whether the transport of the mail has ever reported an event, as far as its latest 10,000 tell.
    CASE
        WHEN o.transport IS NOT NULL THEN EXISTS (
            SELECT
            FROM (
                SELECT v.transport, v.type
                FROM @extschema@.delivery_events v
                ORDER BY v.id DESC
                LIMIT 10000
            ) v
            WHERE v.transport = o.transport
              -- These two mailroom records itself, too.
              AND v.type NOT IN ('suppressed', 'rejected')
        )
    END AS has_events,
    CASE WHEN t.consumed_at IS NOT NULL THEN to_char(to_timestamp(least(greatest(t.consumed_at, 0), 253402300799)), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') END AS link_used_at,
    s.reason::text AS suppressed_for,
    s.list AS suppressed_on,
    to_char(s.since, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS suppressed_since,
    to_char(s.until, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS suppressed_until,
    a.id AS account_id,
    a.status::text AS account_status,
    a.login AS account_login,
    CASE WHEN a.created_at IS NOT NULL THEN to_char(to_timestamp(least(greatest(a.created_at, 0), 253402300799)), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') END AS account_created_at,
    CASE WHEN a.activated_at IS NOT NULL THEN to_char(to_timestamp(least(greatest(a.activated_at, 0), 253402300799)), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') END AS account_activated_at,
    CASE WHEN a.suspended_at IS NOT NULL THEN to_char(to_timestamp(least(greatest(a.suspended_at, 0), 253402300799)), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') END AS account_suspended_at,
    coalesce(l.actions, '{}') AS open_links,
    coalesce(l.expire, '{}') AS open_links_until
FROM (SELECT @extschema@.mailroom_address_key($1::text)) k (address)
LEFT JOIN @extschema@.outbox o ON o.id = $2::int8
LEFT JOIN LATERAL (
    SELECT d.type, d.reason, d.status, d.occurred_at
    FROM @extschema@.delivery_events d
    WHERE d.outbox_id = o.id
      AND d.type <> 'accepted'
      -- Of an event that names no recipient, the mail must have no other.
      AND (d.recipient = k.address COLLATE "C" OR (d.recipient IS NULL AND cardinality(o.recipients) + cardinality(o.cc) + cardinality(o.bcc) = 1))
    -- What counts more first, as pages/message/reported.rs has it.
    ORDER BY
        array_position('{bounced,complained,unsubscribed,delivered,rejected,failed,suppressed,deferred}'::text[], d.type::text),
        d.occurred_at DESC, d.id DESC
    LIMIT 1
) e ON true
LEFT JOIN LATERAL (
    SELECT i.consumed_at
    FROM @extschema@.tokens i
    WHERE i.id = o.token_id
    OFFSET 0
) t ON true
LEFT JOIN LATERAL (
    SELECT p.reason, p.list, p.since, p.until
    FROM @extschema@.suppressions p
    WHERE p.address = k.address
      AND (p.until > now()) IS NOT FALSE
    -- Of all mail, before that of a list.
    ORDER BY p.list, p.since DESC
    LIMIT 1
) s ON true
LEFT JOIN LATERAL (
    SELECT c.id, c.status, c.login, c.created_at, c.activated_at, c.suspended_at
    FROM @extschema@.accounts c
    WHERE c.email = k.address
    OFFSET 0
) a ON true
LEFT JOIN LATERAL (
    SELECT
        array_agg(i.action::text ORDER BY i.id DESC) AS actions,
        array_agg(CASE WHEN i.expires_at IS NOT NULL THEN to_char(to_timestamp(least(greatest(i.expires_at, 0), 253402300799)), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') END ORDER BY i.id DESC) AS expire
    FROM @extschema@.tokens i
    WHERE i.account = a.id
      AND i.consumed_at IS NULL
      AND i.revoked_at IS NULL
      AND i.expires_at > extract(epoch FROM now())
      AND a.status = @extschema@._status_for(i.action)
) l ON true
