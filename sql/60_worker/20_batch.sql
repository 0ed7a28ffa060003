-- The worker's side: what it looks at, how it takes a batch, and its diary.
--
-- Nothing here is reserved for the worker: any member of mailroom_collector may call it, and a server without
-- the worker runs on mailroom_collect alone.

CREATE TYPE @extschema@.job_trigger AS ENUM ('limit', 'timeout', 'urgent', 'poll');
COMMENT ON TYPE @extschema@.job_trigger IS
    'Why a batch went: batch_limit tokens waited, the oldest waited for batch_timeout, one was urgent, or it was found without a wake-up.';

CREATE TABLE @extschema@.job_runs (
    id bigserial,
    job_type @extschema@.job_type NOT NULL DEFAULT 'mailroom',
    started_at timestamptz NOT NULL,
    duration interval NOT NULL,
    collected integer NOT NULL DEFAULT 0,
    skipped integer NOT NULL DEFAULT 0,
    trigger @extschema@.job_trigger NOT NULL,
    error text,
    CONSTRAINT job_runs_pkey PRIMARY KEY (id),
    CONSTRAINT job_runs_counts_must_not_be_negative CHECK (collected >= 0 AND skipped >= 0)
);
COMMENT ON TABLE @extschema@.job_runs IS 'One row a batch of the worker.';
COMMENT ON COLUMN @extschema@.job_runs.started_at IS 'When the worker began to take the batch.';
COMMENT ON COLUMN @extschema@.job_runs.duration IS 'From then until its statements were done, without the commit.';
COMMENT ON COLUMN @extschema@.job_runs.collected IS 'Tokens that became scheduled rows of outbox.';
COMMENT ON COLUMN @extschema@.job_runs.skipped IS 'Tokens that were no longer eligible or could not be signed.';
COMMENT ON COLUMN @extschema@.job_runs.trigger IS
    'Why the batch went: limit, timeout, urgent, or poll (found without a wake-up).';
COMMENT ON COLUMN @extschema@.job_runs.error IS 'Why the batch failed, with its SQLSTATE; it was rolled back. NULL when it went well.';

-- A row is a pause; a table, so that it outlasts restarts, failover and restore.
CREATE TABLE @extschema@.pauses (
    job_type @extschema@.job_type NOT NULL DEFAULT 'mailroom',
    since timestamptz NOT NULL DEFAULT now(),
    paused_by name NOT NULL DEFAULT session_user,
    CONSTRAINT pauses_pkey PRIMARY KEY (job_type)
);
COMMENT ON TABLE @extschema@.pauses IS 'A row while the worker is paused, see mailroom_pause().';
COMMENT ON COLUMN @extschema@.pauses.paused_by IS
    'The user who paused it; mailroom_collector where the worker did so itself, since the database is a copy of another.';

CREATE FUNCTION @extschema@.mailroom_pause() RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO @extschema@.pauses DEFAULT VALUES ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM @extschema@._recheck_at_commit();
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_pause() IS
    'Pauses the worker of this database from COMMIT on, over restarts, until mailroom_resume(): it begins no batch and claims no mail after that, however urgent; what it had begun by then it finishes. Never waits for it. Tokens go on waiting; clients may still take them. Returns false when it was paused already.';

CREATE FUNCTION @extschema@.mailroom_resume() RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM @extschema@.pauses WHERE job_type = 'mailroom';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM @extschema@._recheck_at_commit();
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_resume() IS
    'Ends a pause of the worker, be it that of mailroom_pause() or one that it began itself in a copy of a database. Returns false when there was none.';

-- Ages without secrets, for those who may not read tokens.
CREATE VIEW @extschema@._token_ages AS
SELECT t.id, t.created_at
FROM @extschema@.tokens t;
COMMENT ON VIEW @extschema@._token_ages IS 'Internal. When tokens were made.';

CREATE FUNCTION @extschema@._scheduled_transports() RETURNS SETOF @extschema@._transport
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET jit = off
AS $$
    -- From one to the next, a look at each.
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
COMMENT ON FUNCTION @extschema@._scheduled_transports() IS 'Internal. The transports that mail is scheduled for.';

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
    OUT redirect_to text
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
            SELECT now() - to_timestamp(min(t.created_at))
            FROM generate_series(0, 1) l (lane)
            CROSS JOIN LATERAL (
                SELECT p.token_id AS id
                FROM @extschema@.pending p
                WHERE p.lane = l.lane
                ORDER BY p.lane, p.token_id
                LIMIT 1
            ) lowest
            JOIN @extschema@._token_ages t USING (id)
        ),
        least(c.scheduled, 10000),
        (
            SELECT now() - min(first.send_at)
            FROM @extschema@._scheduled_transports() t (transport)
            -- Each priority that there can be.
            CROSS JOIN generate_series(-100, 100) p (priority)
            CROSS JOIN LATERAL (
                SELECT o.send_at
                FROM @extschema@.outbox o
                WHERE o.state = 'scheduled'
                  AND o.transport = t.transport
                  AND o.priority = p.priority
                  AND o.send_at <= now()
                ORDER BY o.priority, o.send_at, o.id
                LIMIT 1
            ) first
        ),
        least(c.claimed, 10000),
        least(c.failed, 10000),
        greatest(c.waiting, c.scheduled, c.claimed, c.failed) > 10000,
        w.failures,
        w.next_wake_at,
        w.next_wake_for,
        t.state,
        t.reason,
        t.next_probe_at,
        t.ambiguous,
        (SELECT min(e.transports_error) FROM @extschema@.deliverers e),
        (SELECT b.reason FROM @extschema@._budget(1) b),
        @extschema@._redirect_setting()
    FROM (
        -- No count of a backlog, however long it is.
        SELECT
            (SELECT count(*)::integer FROM (SELECT FROM @extschema@.pending LIMIT 10001) l) AS waiting,
            (SELECT count(*)::integer FROM (SELECT FROM @extschema@.outbox o WHERE o.state = 'scheduled' LIMIT 10001) l) AS scheduled,
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
            ) AS failed
    ) c
    LEFT JOIN @extschema@._worker_report() w ON true
    CROSS JOIN (
        -- The one that is worst off, and what may have been sent through any.
        SELECT
            max(p.state)::text AS state,
            (array_agg(format('%s: %s', p.name, p.reason) ORDER BY p.state DESC, p.since) FILTER (WHERE p.state <> 'healthy'))[1] AS reason,
            min(p.next_probe_at) AS next_probe_at,
            sum(p.ambiguous)::bigint AS ambiguous
        FROM @extschema@.mailroom_transports p
    ) t
$$;
COMMENT ON FUNCTION @extschema@.mailroom_status() IS
    'One row: the worker of this database (NULL without one), since when, whether paused, its latest batch, how many tokens wait and the age of the oldest; how many mails are scheduled and since when the oldest of them is due, how many are claimed, and how many ended as error within 24 hours (each count stops at 10000, and more says whether one would go on); failures in a row, and when and why it wakes next; then the state of the transport that is worst off (see mailroom_transports), why, when one is tried next, and how many mails may have been sent without their provider saying so; what is wrong with the transports file; which budget is spent, if one is; and the address that all mail goes to instead of its recipients (mailroom.redirect_to).';

CREATE FUNCTION @extschema@._waiting(batch_limit integer, OUT waiting integer, OUT urgent boolean, OUT paused boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    sweep boolean := @extschema@._scan_begin();
    first_request CONSTANT bigint := coalesce(@extschema@._walk_from('answers'::text), 0);
BEGIN
    LOOP
        SELECT count(*), coalesce(bool_or(w.lane = 0), false)
        INTO waiting, urgent
        FROM (
            (
                SELECT p.lane
                FROM @extschema@.pending p
                WHERE p.lane = 0
                  AND p.token_id > CASE WHEN sweep THEN 0 ELSE @extschema@._scan_position(0::smallint) END
                ORDER BY p.lane, p.token_id
                LIMIT batch_limit
            )
            UNION ALL
            (
                SELECT p.lane
                FROM @extschema@.pending p
                WHERE p.lane = 1
                  AND p.token_id > CASE WHEN sweep THEN 0 ELSE @extschema@._scan_position(1::smallint) END
                ORDER BY p.lane, p.token_id
                LIMIT batch_limit
            )
        ) w;
        PERFORM @extschema@._scan_end(sweep, NULL::bigint, NULL::bigint);
        -- As in _pick: nobody is told that there is little before what lies below was looked at.
        EXIT WHEN sweep OR waiting >= batch_limit;
        sweep := true;
    END LOOP;
    -- Requests that were not announced, or were not to be had when their turn came.
    IF EXISTS (SELECT FROM @extschema@.link_requests r WHERE r.id > first_request) THEN
        waiting := waiting + 1;
        urgent := true;
    END IF;
    paused := EXISTS (SELECT FROM @extschema@.pauses);
END;
$$;
COMMENT ON FUNCTION @extschema@._waiting(integer) IS
    'Internal. How many tokens wait, counted no further than the limit in each lane, whether one is urgent, and whether the worker is paused.';

CREATE FUNCTION @extschema@._tend(tell boolean, OUT next_due timestamptz, OUT more boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Which tells senders by itself that there is mail for them again.
    more := @extschema@._take_back(clock_timestamp(), 1000) = 1000;
    IF tell THEN
        PERFORM @extschema@._mail_due(now());
    END IF;
    next_due := @extschema@._next_wake();
END;
$$;
COMMENT ON FUNCTION @extschema@._tend(boolean) IS
    'Internal. Looks after the outbox for the worker: takes lapsed claims back and tells senders that mail is due; returns when a message becomes due or a claim lapses next, and whether there is more to do at once.';

CREATE FUNCTION @extschema@._run_batch(batch_limit integer, trigger text, OUT collected integer, OUT skipped integer)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    started CONSTANT timestamptz := clock_timestamp();
    -- Before rows of the queue are: TRUNCATE locks in this order.
    locked CONSTANT boolean := @extschema@._lock_sources(true);
BEGIN
    collected := 0;
    skipped := 0;
    -- Whoever calls looked for a pause some time ago.
    IF EXISTS (SELECT FROM @extschema@.pauses) THEN
        RETURN;
    END IF;
    SELECT c.collected, c.skipped
    INTO collected, skipped
    FROM @extschema@._collect(batch_limit, 10 * batch_limit) c;
    IF collected + skipped > 0 THEN
        INSERT INTO @extschema@.job_runs (started_at, duration, collected, skipped, trigger)
        VALUES (started, clock_timestamp() - started, collected, skipped, trigger::@extschema@.job_trigger);
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._run_batch(integer, text) IS 'Internal. One batch of the worker, recorded in job_runs; nothing while it is paused.';

SELECT @extschema@._create_key_file();
SELECT @extschema@._request_worker();
