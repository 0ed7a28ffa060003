-- One row for each transport that has scheduled mail ('' is mail that clients deliver), for monitor: how much is due, up to 10,000, and for how many seconds the first has been.
WITH waiting AS MATERIALIZED (
    SELECT t.transport, count(*) OVER () AS transports
    FROM @extschema@._scheduled_transports() t (transport)
)
SELECT
    w.transport::text AS transport,
    least(c.due, l.most)::int4 AS due,
    c.due > l.most AS more,
    extract(epoch FROM now() - o.send_at)::float8 AS oldest_due
FROM waiting w
-- 10,000 of each transport, fewer if there are more than five.
CROSS JOIN LATERAL (SELECT least(10000, 50000 / w.transports) AS most) l
CROSS JOIN LATERAL (
    SELECT count(*) AS due
    FROM (
        SELECT
        -- One search of outbox_due for each priority, which leaves out what is not due yet.
        FROM generate_series(-100, 100) p (priority)
        CROSS JOIN LATERAL (
            SELECT
            FROM @extschema@.outbox d
            WHERE d.state = 'scheduled'
              AND d.transport = w.transport
              AND d.priority = p.priority
              AND d.send_at <= now()
            ORDER BY d.priority, d.send_at, d.id
            LIMIT 10001
        ) d
        LIMIT l.most + 1
    ) d
) c
LEFT JOIN @extschema@._oldest_due() o ON o.transport = w.transport
ORDER BY c.due DESC, w.transport
