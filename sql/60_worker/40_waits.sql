-- Waits: why a mail has not been sent yet.
--
-- A view for people, without addresses and contents. Invariant: each scheduled row has one reason, the first that would
-- have to go away before the others matter.

CREATE VIEW @extschema@.outbox_waits AS
WITH heads AS MATERIALIZED (
    SELECT DISTINCT ON (o.transport)
        o.transport,
        cardinality(o.recipients) + cardinality(o.cc) + cardinality(o.bcc) AS size
    FROM @extschema@.outbox o
    WHERE o.state = 'scheduled'
      AND o.send_at <= now()
    ORDER BY o.transport, o.priority, o.send_at, o.id
), ways AS MATERIALIZED (
    -- NULL if any of the deliverers takes mail through it.
    SELECT
        t.name,
        CASE
            WHEN bool_or(t.state IN ('healthy', 'slowed')) THEN NULL
            WHEN bool_or(t.state = 'throttled') THEN 'its transport is throttled'
            ELSE 'its transport is paused'
        END AS reason,
        min(t.next_probe_at) AS until
    FROM @extschema@.transports t
    GROUP BY t.name
)
SELECT
    o.id AS outbox_id,
    o.kind,
    o.priority,
    o.send_at,
    o.failed_attempts,
    CASE
        WHEN o.send_at > now() AND o.failed_attempts > 0 THEN 'next try after a failure'
        WHEN o.send_at > now() THEN 'not due yet'
        WHEN p.paused AND o.transport <> '' THEN 'the worker is paused'
        WHEN o.transport <> '' AND w.name IS NULL THEN 'no deliverer has its transport'
        WHEN w.reason IS NOT NULL THEN w.reason
        WHEN o.group_key IS NOT NULL AND EXISTS (
            SELECT
            FROM @extschema@.outbox h
            WHERE h.claimed_until IS NOT NULL
              AND h.group_key = o.group_key
        ) THEN 'a mail of its group is being sent'
        WHEN s.room = 0 THEN b.reason
        WHEN s.size > s.largest THEN (SELECT f.reason FROM @extschema@._budget(s.size) f)
        -- Without budgets it is NULL, and heads must not be read, which is as long as the backlog.
        WHEN coalesce(s.largest, 2147483647) < 2147483647 AND (SELECT h.size FROM heads h WHERE h.transport = o.transport) > s.largest
            THEN 'a mail before it waits for a budget'
        ELSE 'due'
    END AS reason,
    CASE
        WHEN o.send_at > now() THEN o.send_at
        WHEN o.transport <> '' AND w.name IS NULL THEN NULL
        WHEN w.reason IS NOT NULL AND NOT p.paused THEN w.until
        WHEN s.room > 0 AND s.size > s.largest THEN (
            SELECT CASE WHEN s.is_urgent THEN f.urgent_frees_at ELSE f.frees_at END
            FROM @extschema@._budget(s.size) f
        )
        WHEN s.is_urgent THEN b.urgent_frees_at
        ELSE b.frees_at
    END AS until
FROM @extschema@.outbox o
LEFT JOIN ways w ON w.name = o.transport
CROSS JOIN @extschema@._budget(1) b
CROSS JOIN LATERAL (
    SELECT
        u.is_urgent,
        cardinality(o.recipients) + cardinality(o.cc) + cardinality(o.bcc) AS size,
        CASE WHEN u.is_urgent THEN b.urgent_room ELSE b.room END AS room,
        CASE WHEN u.is_urgent THEN b.urgent_largest ELSE b.largest END AS largest
    FROM (SELECT o.priority <= @extschema@._urgent_priority()) u (is_urgent)
) s
CROSS JOIN (SELECT EXISTS (SELECT FROM @extschema@.pauses) AS paused) p
WHERE o.state = 'scheduled';
COMMENT ON VIEW @extschema@.outbox_waits IS
    'Why each scheduled mail has not been sent yet, and until when at least: for a paused or throttled transport, its next probe. A pause applies to the worker and to mailroom send, not to other clients.';
