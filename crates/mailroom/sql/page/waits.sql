-- Why each scheduled mail among the ids $1 int8[] waits, and until when at least (NULL: not known), for monitor.
SELECT
    w.outbox_id AS id,
    w.reason,
    to_char(w.until, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS until,
    CASE WHEN isfinite(w.until) THEN extract(epoch FROM w.until - now())::float8 END AS until_in
FROM @extschema@.outbox_waits w
WHERE w.outbox_id = ANY ($1::int8[])
