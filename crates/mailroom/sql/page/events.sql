-- The events of the mail with the id $1 int8 in order, with recipient and what the server replied, for support; the first 1,000.
SELECT
    e.type::text AS type,
    e.recipient,
    e.reason::text AS reason,
    e.status,
    e.detail,
    to_char(e.occurred_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS occurred_at
FROM @extschema@.delivery_events e
WHERE e.outbox_id = $1::int8
ORDER BY e.occurred_at, e.id
LIMIT 1000
