-- The events of the mail with the id $1 int8 in order, with recipient and what the server replied, for support; at most 1,000.
SELECT
    e.type::text AS type,
    e.recipient,
    e.is_permanent,
    e.reason::text AS reason,
    e.status,
    e.detail,
    e.transport::text AS transport,
    to_char(e.occurred_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS occurred_at,
    to_char(e.received_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS received_at
FROM @extschema@.delivery_events e
WHERE e.outbox_id = $1::int8
ORDER BY e.occurred_at, e.id
LIMIT 1000
