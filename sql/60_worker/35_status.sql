-- Status: one row about the worker, the queues and the transports of a database.
--
-- Read by people and by monitoring (mailroom_monitor), which may not read addresses, contents or tokens. Invariant: the
-- cost does not grow with a backlog: each count stops at 10000.

-- For roles that may not read tokens.
CREATE VIEW @extschema@._token_ages AS
SELECT t.id, greatest(t.created_at, t.sent_again_at[cardinality(t.sent_again_at)]) AS asked_at
FROM @extschema@.tokens t;
COMMENT ON VIEW @extschema@._token_ages IS 'Internal. When each token was created, or last asked for again, without its secret.';

CREATE FUNCTION @extschema@._scheduled_transports() RETURNS SETOF @extschema@._transport
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET jit = off
AS $$
    -- One index search for each transport.
    WITH RECURSIVE found AS (
        (
            SELECT o.transport
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
            ORDER BY o.transport
            LIMIT 1
        )
        UNION ALL
        SELECT n.transport
        FROM found f
        CROSS JOIN LATERAL (
            SELECT o.transport
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport > f.transport
            ORDER BY o.transport
            LIMIT 1
        ) n
    )
    SELECT f.transport FROM found f
$$;
COMMENT ON FUNCTION @extschema@._scheduled_transports() IS 'Internal. The transports that have scheduled mail.';

CREATE FUNCTION @extschema@._oldest_due() RETURNS TABLE (transport @extschema@._transport, send_at timestamptz)
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET jit = off
AS $$
    SELECT t.transport, min(first.send_at)
    FROM @extschema@._scheduled_transports() t (transport)
    -- Every possible priority.
    CROSS JOIN generate_series(-100, 100) p (priority)
    CROSS JOIN LATERAL (
        SELECT greatest(o.send_at, 'epoch') AS send_at
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.transport = t.transport
          AND o.priority = p.priority
          AND o.send_at <= now()
        ORDER BY o.priority, o.send_at, o.id
        LIMIT 1
    ) first
    GROUP BY t.transport
$$;
COMMENT ON FUNCTION @extschema@._oldest_due() IS
    'Internal. The transports that have due mail, and since when the first of it is due.';

-- Long because it has one column for each fact.
CREATE FUNCTION @extschema@.mailroom_status(
    OUT worker_pid integer,
    OUT since timestamptz,
    OUT paused boolean,
    OUT last_batch_at timestamptz,
    OUT waiting integer,
    OUT oldest_waiting interval,
    OUT scheduled integer,
    OUT oldest_due interval,
    OUT claimed integer,
    OUT failed_in_24_h integer,
    OUT more boolean,
    OUT errors_in_a_row integer,
    OUT next_wake_at timestamptz,
    OUT next_wake_for text,
    OUT transport_state text,
    OUT transport_reason text,
    OUT next_probe_at timestamptz,
    OUT ambiguous bigint,
    OUT transports_error text,
    OUT budget text,
    OUT redirect_to text,
    OUT worker_problem text,
    OUT bounced_in_24_h integer,
    OUT complained_in_24_h integer,
    OUT suppressed_in_24_h integer
)
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
    SELECT
        w.pid,
        w.since,
        EXISTS (SELECT FROM @extschema@.pauses),
        w.last_batch_at,
        least(c.waiting, 10000),
        (
            SELECT now() - min(a.since)
            FROM (
                SELECT to_timestamp(least(greatest(t.asked_at, 0), 253402300799)) AS since
                FROM generate_series(0, 1) l (lane)
                -- Not only the lowest id: a link that is sent again is a token of before.
                CROSS JOIN LATERAL (
                    SELECT p.token_id AS id
                    FROM @extschema@.pending p
                    WHERE p.lane = l.lane
                    ORDER BY p.lane, p.token_id
                    LIMIT 1000
                ) first
                -- OFFSET 0 keeps the subquery, one index search for each: a join reads all tokens where statistics are stale.
                CROSS JOIN LATERAL (
                    SELECT g.asked_at
                    FROM @extschema@._token_ages g
                    WHERE g.id = first.id
                    OFFSET 0
                ) t
                UNION ALL
                (SELECT r.requested_at FROM @extschema@.link_requests r ORDER BY r.id LIMIT 1)
            ) a
        ),
        least(c.scheduled, 10000),
        now() - CASE
            -- All of them were read for the count.
            WHEN c.scheduled <= 10000 THEN c.first_due
            ELSE (SELECT min(d.send_at) FROM @extschema@._oldest_due() d)
        END,
        least(c.claimed, 10000),
        least(c.failed, 10000),
        greatest(c.waiting, c.scheduled, c.claimed, c.failed, c.bounced, c.complained, c.suppressed) > 10000,
        w.failures,
        w.next_wake_at,
        w.next_wake_for,
        t.state,
        t.reason,
        t.next_probe_at,
        t.ambiguous,
        (SELECT min(e.transports_error) FROM @extschema@.deliverers e),
        (SELECT b.reason FROM @extschema@._budget(1) b),
        @extschema@._redirect_setting(),
        w.problem,
        least(c.bounced, 10000),
        least(c.complained, 10000),
        least(c.suppressed, 10000)
    FROM (
        -- Each count is bounded, however long the backlog is.
        SELECT
            (
                SELECT count(*)::integer
                FROM (
                    (SELECT FROM @extschema@.pending LIMIT 10001)
                    UNION ALL
                    (SELECT FROM @extschema@.link_requests LIMIT 10001)
                ) l
            ) AS waiting,
            m.scheduled,
            m.first_due,
            (SELECT count(*)::integer FROM (SELECT FROM @extschema@.outbox o WHERE o.state = 'claimed' LIMIT 10001) l) AS claimed,
            (
                SELECT count(*)::integer
                FROM (
                    SELECT
                    FROM @extschema@.outbox o
                    WHERE o.state = 'error'
                      AND o.ended_at > now() - interval '24 hours'
                    LIMIT 10001
                ) l
            ) AS failed,
            (
                SELECT count(*)::integer
                FROM (
                    SELECT
                    FROM @extschema@.delivery_events e
                    WHERE e.type = 'bounced'
                      AND e.received_at > now() - interval '24 hours'
                    LIMIT 10001
                ) l
            ) AS bounced,
            (
                SELECT count(*)::integer
                FROM (
                    SELECT
                    FROM @extschema@.delivery_events e
                    WHERE e.type = 'complained'
                      AND e.received_at > now() - interval '24 hours'
                    LIMIT 10001
                ) l
            ) AS complained,
            (
                SELECT count(*)::integer
                FROM (
                    SELECT
                    FROM @extschema@.delivery_events e
                    WHERE e.type = 'suppressed'
                      AND e.received_at > now() - interval '24 hours'
                    LIMIT 10001
                ) l
            ) AS suppressed
        FROM (
            SELECT count(*)::integer AS scheduled, min(greatest(l.send_at, 'epoch')) FILTER (WHERE l.send_at <= now()) AS first_due
            FROM (SELECT o.send_at FROM @extschema@.outbox o WHERE o.state = 'scheduled' LIMIT 10001) l
        ) m
        -- Not pulled up: each count would be taken for each use of it.
        OFFSET 0
    ) c
    CROSS JOIN @extschema@._worker_report() w
    CROSS JOIN (
        -- The worst state of all transports, and the ambiguous messages of all.
        SELECT
            max(p.state)::text AS state,
            (array_agg(format('%s: %s', p.name, p.reason) ORDER BY p.state DESC, p.since) FILTER (WHERE p.state <> 'healthy'))[1] AS reason,
            min(p.next_probe_at) AS next_probe_at,
            sum(p.ambiguous)::bigint AS ambiguous
        FROM @extschema@.mailroom_transports p
    ) t
$$;
COMMENT ON FUNCTION @extschema@.mailroom_status() IS
    'Returns one row about this database: its worker or why it has none, waiting tokens and requests, mails by state, events of a day, transports, budgets and mailroom.redirect_to. Each count stops at 10000, and more tells whether one did.';
