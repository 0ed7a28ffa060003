-- Problems: what of a database needs a person, in one row each.
--
-- Read by people, by monitoring (mailroom_monitor) and by mailroom check (mailroom_sender), which may not read the tables: the
-- function lends its owner's rights, tells counts and reasons, and writes nothing. Invariants: a database where all goes well
-- has no row; each rule has a fixed threshold and is here once; the cost does not grow with a backlog.

-- Long because each rule is a query.
CREATE FUNCTION @extschema@.mailroom_problems(
    OUT severity text,
    OUT problem text,
    OUT subject text,
    OUT since timestamptz,
    OUT detail text,
    OUT hint text
) RETURNS SETOF record
    LANGUAGE sql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET jit = off
AS $$
    WITH status AS MATERIALIZED (
        SELECT
            s.worker_pid, s.worker_problem, s.paused, s.waiting, now() - s.oldest_waiting AS waiting_since, s.errors_in_a_row, s.budget,
            s.redirect_to,
            -- A batch may wait for as long to fill.
            s.oldest_waiting > interval '1 minute' + coalesce(current_setting('mailroom.batch_timeout', true), '0')::interval AS is_late
        FROM @extschema@.mailroom_status() s
    ), live AS MATERIALIZED (
        -- Deliverers publish every ten minutes; that the worker is there is known without it.
        SELECT d.name, d.transports_error
        FROM @extschema@.deliverers d
        CROSS JOIN status s
        WHERE CASE
            WHEN starts_with(d.name, 'mailroom worker/') THEN s.worker_pid IS NOT NULL
            ELSE d.updated_at > now() - interval '20 minutes'
        END
    ), ways AS MATERIALIZED (
        SELECT
            t.name, min(t.state) AS best, max(t.state) AS worst,
            CASE min(t.state) WHEN max(t.state) THEN max(t.since) ELSE min(t.since) FILTER (WHERE t.state > 'slowed') END AS since,
            (array_agg(t.reason ORDER BY t.state DESC, t.since))[1] AS reason,
            min(t.next_probe_at) AS next_probe_at
        FROM @extschema@.transports t
        JOIN live l ON l.name = t.deliverer
        GROUP BY t.name
    ), due AS MATERIALIZED (
        SELECT
            d.transport, d.send_at, d.send_at < now() - interval '5 minutes' AS is_late,
            format('mails that wait: %s', (
                SELECT CASE WHEN count(*) > 1000 THEN 'more than 1000' ELSE count(*)::text END
                FROM (
                    SELECT o.send_at
                    FROM @extschema@.outbox o
                    WHERE o.state = 'scheduled'
                      AND o.transport = d.transport
                    LIMIT 1001
                ) f
                WHERE f.send_at <= now()
            )) AS mails
        FROM @extschema@._oldest_due() d
    )
    SELECT
        CASE WHEN s.is_late OR EXISTS (SELECT FROM due d WHERE d.is_late AND d.transport <> '') THEN 'critical' ELSE 'warning' END AS severity,
        'no_deliverer' AS problem,
        NULL::text AS subject,
        least(CASE WHEN s.is_late THEN s.waiting_since END, (SELECT min(d.send_at) FROM due d WHERE d.transport <> '')) AS since,
        'There is no worker, and no mailroom send.' AS detail,
        coalesce('For the worker: ' || s.worker_problem || '.', 'The log of the server says why the worker ended or does not start.') AS hint
    FROM status s
    WHERE s.worker_pid IS NULL
      AND NOT EXISTS (SELECT FROM live)
      AND NOT pg_is_in_recovery()
      -- Otherwise clients deliver all mail.
      AND (
          s.is_late
          OR @extschema@._default_transport() <> ''
          OR EXISTS (SELECT FROM due d WHERE d.transport <> '')
          OR EXISTS (SELECT FROM @extschema@.routes r WHERE r.transport <> '')
      )
    UNION ALL
    SELECT
        'critical', 'tokens_too_old', NULL, s.waiting_since, format('Tokens, and requests for links, that wait: %s.', s.waiting),
        CASE
            WHEN s.worker_pid IS NULL THEN 'No worker collects them; mailroom send does as a member of mailroom_collector.'
            ELSE 'The latest rows of job_runs, and the log of the server, say why the worker does not collect them.'
        END
    FROM status s
    WHERE s.is_late
      AND NOT s.paused
    UNION ALL
    SELECT
        'critical', CASE WHEN d.transport = '' OR w.name IS NOT NULL THEN 'due_too_old' ELSE 'no_transport' END, d.transport::text, d.send_at,
        CASE
            WHEN d.transport = '' THEN 'Mail for clients is late: ' || d.mails || '.'
            WHEN w.name IS NULL THEN format('No deliverer has transport "%s": %s.', d.transport, d.mails)
            ELSE format('Mail of transport "%s" is late: %s.', d.transport, d.mails)
        END,
        CASE
            WHEN d.transport = '' THEN 'Clients deliver it with mailroom_claim; mailroom_reroute moves it to a transport.'
            WHEN w.name IS NULL THEN 'Add it to the transports file and reload, or move the mail with mailroom_reroute.'
            ELSE 'outbox_waits says why each mail waits.'
        END
    FROM due d
    CROSS JOIN status s
    LEFT JOIN ways w ON w.name = d.transport
    WHERE d.is_late
      AND (d.transport = '' OR NOT s.paused AND EXISTS (SELECT FROM live))
      -- What is slow or stopped on purpose has rows of its own.
      AND (w.best < 'throttled') IS NOT FALSE
      AND s.budget IS NULL
    UNION ALL
    SELECT
        CASE WHEN w.best = 'paused' AND d.send_at IS NOT NULL THEN 'critical' ELSE 'warning' END,
        'transport_' || w.worst, w.name::text, w.since,
        format('Transport "%s" is %s%s: %s%s.', w.name, w.worst, CASE WHEN w.best < w.worst THEN ' at a deliverer' END, w.reason, '; ' || d.mails),
        coalesce(
            'The next probe goes at ' || to_char(w.next_probe_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC.',
            'mailroom_transports has the state at each deliverer.'
        )
    FROM ways w
    LEFT JOIN due d ON d.transport = w.name
    WHERE w.worst = 'paused'
       OR (w.worst = 'throttled' AND w.since < now() - interval '30 minutes')
    UNION ALL
    SELECT
        CASE WHEN p.since < now() - interval '30 minutes' THEN 'critical' ELSE 'warning' END, 'paused', p.paused_by::text, p.since,
        CASE p.paused_by
            WHEN 'mailroom_collector' THEN 'The worker paused itself: this database is a copy, with mail of the original.'
            ELSE format('The worker was paused by %s.', p.paused_by)
        END,
        'mailroom_resume() has it go on.'
    FROM @extschema@.pauses p
    UNION ALL
    SELECT
        'critical', 'worker_errors', NULL, NULL, format('The last %s batches of the worker failed.', s.errors_in_a_row),
        'The latest rows of job_runs have the error.'
    FROM status s
    WHERE s.errors_in_a_row >= 3
    UNION ALL
    SELECT
        'warning', 'transports_file', l.name, NULL, 'The transports file cannot be used, and what was read before stays in force: ' || l.transports_error,
        'Correct the file and reload.'
    FROM live l
    WHERE l.transports_error IS NOT NULL
    UNION ALL
    SELECT
        'warning', 'budget_nearly_spent', b.period::text, b.since, format('%s of %s recipients of this %s are claimed.', b.spent, b.amount, b.period),
        'Mail over the budget waits until ' || to_char(b.until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC, or until the row of budgets is raised.'
    FROM @extschema@.mailroom_budgets b
    WHERE b.period > 'minute'
      AND b.spent >= 0.9 * b.amount
    UNION ALL
    -- Without the address: monitors read this, and show it on screens.
    SELECT
        'warning', 'redirected', NULL, NULL, 'All mail goes to one address instead of its recipients: mailroom.redirect_to is set.',
        'Reset mailroom.redirect_to, unless this database is for development.'
    FROM status s
    WHERE s.redirect_to IS NOT NULL
    UNION ALL
    SELECT
        'warning', 'versions_differ', NULL, NULL, format('The library is version %s, the extension in this database %s.', v.library, v.sql),
        'Update the extension, or restart the server to have it load the library that is installed.'
    FROM @extschema@.mailroom_version() v
    WHERE v.library <> v.sql
    UNION ALL
    SELECT
        'warning', 'purge_behind', NULL, m.ended_at + make_interval(secs => @extschema@._retention()),
        'Mail that ended longer ago than mailroom.retention has not been deleted for a day.',
        'The worker calls mailroom_purge, or a job of yours; rows of yours that refer to mail keep it.'
    FROM (
        SELECT now() - make_interval(secs => @extschema@._retention()) - interval '1 day', pg_sequence_last_value('@extschema@._purged_outbox'::regclass)
        OFFSET 0
    ) p (horizon, stayed)
    -- Mail that an application keeps is before what the current cycle of purges has looked at.
    LEFT JOIN LATERAL (SELECT r.ended_at, r.id FROM @extschema@.outbox r WHERE r.id = p.stayed OFFSET 0) c ON true
    CROSS JOIN LATERAL (
        SELECT o.ended_at
        FROM @extschema@.outbox o
        WHERE (o.ended_at, o.id) > (coalesce(c.ended_at, '-infinity'), coalesce(c.id, 0))
          AND o.ended_at < p.horizon
          AND o.created_at < p.horizon
        ORDER BY o.ended_at, o.id
        LIMIT 1
    ) m
    ORDER BY 1, 4, 2, 3
$$;
COMMENT ON FUNCTION @extschema@.mailroom_problems() IS
    'Returns one row for each problem of this database: critical if mail is not sent because of it, else warning, since when if that is known, and a remedy. None if all is well.';
