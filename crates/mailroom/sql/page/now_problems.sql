-- The problems of the database for monitor, the critical ones first: mailroom_problems(), with since also as seconds ago.
SELECT
    p.severity,
    p.problem,
    p.subject,
    to_char(p.since, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS since,
    CASE WHEN isfinite(p.since) THEN extract(epoch FROM now() - p.since)::float8 END AS age,
    p.detail,
    p.hint
FROM @extschema@.mailroom_problems() p
ORDER BY p.severity, p.since, p.problem, p.subject
