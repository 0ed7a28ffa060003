-- What happened to the mail with the id $1 int8, in order, for monitor: attempts, its end, events of the provider, actions of operators; at most 1,000.
SELECT
    h.attempt,
    h.outcome,
    to_char(h.started_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS started_at,
    to_char(h.ended_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS ended_at,
    extract(epoch FROM h.duration)::float8 AS duration,
    -- The sender of an attempt, or the operator.
    h.claimant,
    h.transport::text AS transport,
    h.response_code,
    h.error,
    h.provider_id
FROM @extschema@.outbox_history h
WHERE h.outbox_id = $1::int8
ORDER BY coalesce(h.ended_at, h.started_at), h.attempt
LIMIT 1000
