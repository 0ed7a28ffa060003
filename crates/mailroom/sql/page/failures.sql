-- The newest 10,000 errors of the last $1 text (an interval), in groups, the largest first, at most 100, for support.
-- outcome and response_code are those of the last attempt. outcome is NULL for mail that ended without one; such a group is retried
-- by kind alone, since a transport is that of an attempt. searched_to is set if there were more errors before that time.
WITH errors AS MATERIALIZED (
    SELECT o.id, o.kind, o.transport, o.failed_attempts, o.last_error, o.ended_at, o.recipients
    FROM @extschema@.outbox o
    WHERE o.state = 'error'
      AND o.ended_at > now() - $1::text::interval
      -- Always true, and the planner does not know it: it expects few rows and reads the index in its order, up to the limit.
      AND o.ended_at <= (SELECT 'infinity'::timestamptz)
    ORDER BY o.ended_at DESC
    LIMIT 10000
), failed AS MATERIALIZED (
    SELECT
        e.id, e.kind::text AS kind, coalesce(a.transport, e.transport)::text AS transport, a.outcome, a.response_code,
        left(coalesce(a.error, e.last_error), 120) AS error,
        -- Of the first recipient.
        substring((@extschema@._search_keys(e.recipients::text[]))[1] FROM '@(.*)$') AS domain,
        e.ended_at
    FROM errors e
    LEFT JOIN LATERAL (
        SELECT i.transport, i.outcome, i.response_code, i.error
        FROM @extschema@.outbox_attempts i
        WHERE i.outbox_id = e.id
          AND i.attempt = e.failed_attempts
        ORDER BY i.id DESC
        LIMIT 1
    ) a ON true
)
SELECT
    g.kind,
    g.transport,
    g.outcome::text AS outcome,
    g.response_code,
    g.error,
    sum(g.mails)::int4 AS mails,
    -- The most common domain of recipients, and how many of the mails went to it.
    (array_agg(g.domain ORDER BY g.mails DESC, g.domain))[1] AS domain,
    (array_agg(g.mails ORDER BY g.mails DESC, g.domain))[1]::int4 AS domain_mails,
    max(g.newest_id) AS newest_id,
    to_char(max(g.newest), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS newest,
    extract(epoch FROM now() - max(g.newest))::float8 AS age,
    CASE WHEN (SELECT count(*) FROM errors) = 10000 THEN (SELECT to_char(min(e.ended_at), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') FROM errors e) END AS searched_to
FROM (
    SELECT
        f.kind, f.transport, f.outcome, f.response_code, f.error, f.domain,
        count(*) AS mails, max(f.id) AS newest_id, max(f.ended_at) AS newest
    FROM failed f
    GROUP BY f.kind, f.transport, f.outcome, f.response_code, f.error, f.domain
) g
GROUP BY g.kind, g.transport, g.outcome, g.response_code, g.error
ORDER BY sum(g.mails) DESC, max(g.newest) DESC
LIMIT 100
