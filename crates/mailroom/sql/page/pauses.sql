-- The pause of the worker, if there is one, for monitor: since when, and who paused it; is_copy if the worker did, in a copy of a database.
SELECT
    to_char(p.since, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS since,
    extract(epoch FROM now() - p.since)::float8 AS age,
    p.paused_by::text AS paused_by,
    p.paused_by = 'mailroom_collector' AS is_copy
FROM @extschema@.pauses p
WHERE p.job_type = 'mailroom'
