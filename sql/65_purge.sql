-- Retention: finished mails, their attempts and the diary go when nobody needs them any more.
--
-- In small batches, each a short transaction, by whoever calls mailroom_purge: the worker, pg_cron, a
-- person. There is no index for it, which every settle would pay for: the primary key is walked from the
-- oldest row to the first ones that are too young, from where the session's last batch ended.

CREATE FUNCTION @extschema@._purge(batch_limit integer, OUT purged integer, OUT more boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
DECLARE
    horizon CONSTANT timestamptz := clock_timestamp() - make_interval(secs => @extschema@._retention());
    seen record;
    runs integer;
    stale integer;
BEGIN
    PERFORM @extschema@._pass_gate();
    -- Those that nobody answers: the worker is paused, or there is none. First, for TRUNCATE locks in this order.
    DELETE FROM @extschema@.requests r
    WHERE r.id = ANY (ARRAY(
        SELECT q.id
        FROM (SELECT i.id, i.requested_at FROM @extschema@.requests i ORDER BY i.id LIMIT batch_limit FOR UPDATE SKIP LOCKED) q
        WHERE q.requested_at < horizon
    ));
    GET DIAGNOSTICS stale = ROW_COUNT;
    SELECT count(*) AS rows, max(w.id) AS last, coalesce(bool_and(w.created_at >= horizon), true) AS young,
        array_agg(w.id) FILTER (WHERE w.ended_at < horizon) AS old
    INTO seen
    FROM (
        SELECT o.id, o.created_at, o.ended_at
        FROM @extschema@.outbox o
        WHERE o.id > @extschema@._purge_position()
        ORDER BY o.id
        LIMIT batch_limit
    ) w;
    -- A row that somebody is at may be on its way back to scheduled.
    WITH gone AS (
        DELETE FROM @extschema@.outbox o
        WHERE o.id IN (
            SELECT f.id
            FROM @extschema@.outbox f
            WHERE f.id = ANY (seen.old)
              AND f.ended_at < horizon
            FOR UPDATE SKIP LOCKED
        )
        RETURNING o.id
    ), forgotten AS (
        DELETE FROM @extschema@.attempts a
        WHERE a.outbox IN (SELECT g.id FROM gone g)
    )
    SELECT count(*) INTO purged FROM gone;
    -- Those whose mail was deleted otherwise, or settled late after it was purged.
    DELETE FROM @extschema@.attempts a
    WHERE a.id = ANY (ARRAY(
        SELECT w.id
        FROM (SELECT i.id, i.outbox, i.ended_at FROM @extschema@.attempts i ORDER BY i.id LIMIT batch_limit) w
        WHERE w.ended_at < horizon
          AND NOT EXISTS (SELECT FROM @extschema@.outbox o WHERE o.id = w.outbox)
    ));
    DELETE FROM @extschema@.job_runs r
    WHERE r.id = ANY (ARRAY(
        SELECT j.id
        FROM (SELECT i.id, i.started_at FROM @extschema@.job_runs i ORDER BY i.id LIMIT batch_limit) j
        WHERE j.started_at < horizon
    ));
    GET DIAGNOSTICS runs = ROW_COUNT;
    purged := purged + runs + stale;
    -- What was made after the horizon cannot have ended before it.
    more := NOT seen.young AND seen.rows = batch_limit;
    PERFORM @extschema@._purge_note(CASE WHEN more THEN seen.last ELSE 0 END);
    more := more OR runs = batch_limit OR stale = batch_limit;
END;
$$;
COMMENT ON FUNCTION @extschema@._purge(integer) IS
    'Internal. Looks at up to so many rows of outbox, of job_runs and of requests, from where the session''s last call ended, and deletes those that ended longer ago than mailroom.retention. Returns how many it deleted and whether there are more to look at; if not, the next call starts over.';

CREATE FUNCTION @extschema@.mailroom_purge(batch_limit integer DEFAULT 1000, OUT purged integer, OUT more boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (batch_limit < 1) IS NOT FALSE THEN
        PERFORM @extschema@._refuse_batch_limit(batch_limit, 'Leave it out for 1000.'::text);
    END IF;
    SELECT p.purged, p.more INTO purged, more FROM @extschema@._purge(batch_limit) p;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_purge(integer) IS
    'Deletes mails, with their attempts, and rows of job_runs that ended longer ago than mailroom.retention, and requests that nobody answered for as long, looking at batch_limit of each. Returns how many it deleted, and whether to call it again for the rest, each call in a transaction of its own. Errors: 22023 for a batch_limit below 1; 55000 while a dump is being restored.';
