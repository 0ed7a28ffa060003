-- Batches: what the worker looks at, how it takes a batch, and its record of them.
--
-- The worker calls the three functions; job_runs is for people. Invariant: a batch is one transaction that ends in one
-- row of job_runs, unless there was nothing to do.

CREATE TYPE @extschema@.job_trigger AS ENUM ('limit', 'timeout', 'urgent', 'poll');
COMMENT ON TYPE @extschema@.job_trigger IS
    'Why a batch was taken: batch_limit tokens waited, the oldest waited for batch_timeout, one was urgent, or it was found without a wake-up.';

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
COMMENT ON TABLE @extschema@.job_runs IS 'One row for each batch of the worker.';
COMMENT ON COLUMN @extschema@.job_runs.started_at IS 'When the worker began the batch.';
COMMENT ON COLUMN @extschema@.job_runs.duration IS 'From then until its statements were done, without the commit.';
COMMENT ON COLUMN @extschema@.job_runs.collected IS 'Tokens that became scheduled rows of outbox.';
COMMENT ON COLUMN @extschema@.job_runs.skipped IS 'Tokens that were no longer eligible or could not be signed.';
COMMENT ON COLUMN @extschema@.job_runs.trigger IS
    'Why the batch was taken: limit, timeout, urgent, or poll (found without a wake-up).';
COMMENT ON COLUMN @extschema@.job_runs.error IS
    'Why the batch failed and was rolled back, with its SQLSTATE; NULL if it succeeded.';

-- What a batch writes. Without the id: see 85_columns.sql.
CREATE VIEW @extschema@._new_job_runs AS
SELECT r.job_type, r.started_at, r.duration, r.collected, r.skipped, r.trigger, r.error
FROM @extschema@.job_runs r;
COMMENT ON VIEW @extschema@._new_job_runs IS 'Internal. Takes new rows of job_runs.';

CREATE FUNCTION @extschema@._pending_summary(batch_limit integer, OUT waiting integer, OUT urgent boolean, OUT paused boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
<<local>>
DECLARE
    sweep boolean;
    first_request CONSTANT bigint := @extschema@._scan_next_id('answers'::text);
BEGIN
    PERFORM @extschema@._refuse_while_restoring();
    sweep := @extschema@._scan_begin('pending'::text);
    LOOP
        SELECT count(*), coalesce(bool_or(w.lane = 0), false)
        INTO waiting, urgent
        FROM (
            (
                SELECT p.lane
                FROM @extschema@.pending p
                WHERE p.lane = 0
                  AND p.token_id > (SELECT s.id FROM @extschema@._scan_start('pending'::text, 0::smallint) s)
                ORDER BY p.lane, p.token_id
                LIMIT _pending_summary.batch_limit
            )
            UNION ALL
            (
                SELECT p.lane
                FROM @extschema@.pending p
                WHERE p.lane = 1
                  AND p.token_id > (SELECT s.id FROM @extschema@._scan_start('pending'::text, 1::smallint) s)
                ORDER BY p.lane, p.token_id
                LIMIT _pending_summary.batch_limit
            )
        ) w;
        PERFORM @extschema@._scan_end('pending'::text);
        -- As in _delete_pending: look before this session's position before reporting that little waits.
        EXIT WHEN sweep OR waiting >= batch_limit;
        sweep := true;
        PERFORM @extschema@._scan_sweep('pending'::text);
    END LOOP;
    -- Requests that were not announced, or were locked when their turn came.
    IF EXISTS (SELECT FROM @extschema@.link_requests r WHERE r.id > local.first_request) THEN
        waiting := waiting + 1;
        urgent := true;
    END IF;
    paused := EXISTS (SELECT FROM @extschema@.pauses);
END;
$$;
COMMENT ON FUNCTION @extschema@._pending_summary(integer) IS
    'Internal. How many tokens wait, counted up to the limit in each lane, whether one is urgent, and whether the worker is paused.';

CREATE FUNCTION @extschema@._maintain_outbox(OUT next_due timestamptz, OUT more boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- This also tells senders that there is mail for them.
    more := @extschema@._expire_leases(clock_timestamp(), 1000) = 1000;
    next_due := @extschema@._next_wake();
END;
$$;
COMMENT ON FUNCTION @extschema@._maintain_outbox() IS
    'Internal. Maintains the outbox for the worker: takes expired claims back. Returns when the next message becomes due or the next claim expires, and whether there is more to do at once.';

CREATE FUNCTION @extschema@._run_batch(batch_limit integer, trigger text, OUT collected integer, OUT skipped integer)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    started CONSTANT timestamptz := clock_timestamp();
    -- Before rows of the queue are locked: TRUNCATE locks in this order.
    locked CONSTANT boolean := @extschema@._lock_accounts_and_tokens(true);
BEGIN
    collected := 0;
    skipped := 0;
    -- The worker's last look at pauses was some time ago.
    IF EXISTS (SELECT FROM @extschema@.pauses) THEN
        RETURN;
    END IF;
    SELECT c.collected, c.skipped
    INTO collected, skipped
    FROM @extschema@._collect(batch_limit, 10 * batch_limit) c;
    IF collected + skipped > 0 THEN
        INSERT INTO @extschema@._new_job_runs (started_at, duration, collected, skipped, trigger)
        VALUES (started, clock_timestamp() - started, collected, skipped, trigger::@extschema@.job_trigger);
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._run_batch(integer, text) IS
    'Internal. Takes one batch of the worker and records it in job_runs; does nothing while the worker is paused.';
