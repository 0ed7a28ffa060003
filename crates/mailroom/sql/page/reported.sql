-- The types of the events of each mail among the ids $1 int8[], for monitor.
SELECT
    h.outbox_id AS id,
    array_agg(DISTINCT h.outcome) AS types
FROM @extschema@.outbox_history h
WHERE h.outbox_id = ANY ($1::int8[])
  -- Among mail that was sent, what is no attempt is an event, or an act of an operator, whose names are others.
  AND h.attempt IS NULL
GROUP BY h.outbox_id
