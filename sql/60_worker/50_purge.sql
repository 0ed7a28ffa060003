-- Purging: what ended longer ago than mailroom.retention is deleted.
--
-- The worker, pg_cron or a person calls mailroom_purge, in small batches, each a short transaction. Mail is found by an
-- index, oldest end first; other rows by id, which is the order of time, up to the first that is too young. So a batch
-- without work costs one look at each table. Where deleted rows cannot be vacuumed yet because a session holds an old
-- snapshot, a session goes on from where its last batch ended (src/outbox/upkeep.rs). Deliverers that are gone are
-- forgotten by the way (50_queue/90_transports.sql).

CREATE FUNCTION @extschema@._retention() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_retention_wrapper';
COMMENT ON FUNCTION @extschema@._retention() IS 'Internal. The setting mailroom.retention in seconds.';

CREATE FUNCTION @extschema@._walk_begin(name text) RETURNS bigint
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_walk_begin_wrapper';
COMMENT ON FUNCTION @extschema@._walk_begin(text) IS
    'Internal. Begins a walk with this name over rows that are deleted or settled meanwhile: the key after which this session has to look; NULL for all.';

CREATE FUNCTION @extschema@._walk_from(name text) RETURNS bigint
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_walk_from_wrapper';
COMMENT ON FUNCTION @extschema@._walk_from(text) IS
    'Internal. Where the next walk with this name begins; NULL for the beginning.';

CREATE FUNCTION @extschema@._walk_end(name text, key bigint) RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_walk_end_wrapper';
COMMENT ON FUNCTION @extschema@._walk_end(text, bigint) IS
    'Internal. Ends a walk at this key; NULL if there were no rows.';

CREATE FUNCTION @extschema@._walk_back(name text, key bigint) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_walk_back_wrapper';
COMMENT ON FUNCTION @extschema@._walk_back(text, bigint) IS
    'Internal. Makes the next walk look after this key again, because some rows that this one saw remain.';

CREATE FUNCTION @extschema@._delete_mails(places tid[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    WITH gone AS (
        DELETE FROM @extschema@.outbox o
        WHERE o.ctid = ANY (places)
        RETURNING o.id
    )
    DELETE FROM @extschema@.outbox_attempts a
    WHERE a.outbox_id = ANY (ARRAY(SELECT g.id FROM gone g));
    RETURN true;
EXCEPTION
    WHEN OTHERS THEN
        IF NOT @extschema@._is_row_at_fault(SQLSTATE) THEN
            RAISE;
        END IF;
        RETURN false;
END;
$$;
COMMENT ON FUNCTION @extschema@._delete_mails(tid[]) IS
    'Internal. Deletes these locked mails with their attempts; returns false, and deletes none, if a foreign key or a trigger of the application refuses.';

-- The positions of purges are those of all sessions: sessions without memory get past rows that stay. A round ends where
-- there are no more rows, and the next one begins anew.
CREATE SEQUENCE @extschema@._purged_outbox MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._purged_outbox IS
    'Internal. The outbox.id of the last mail that stayed in the current round of purges.';

CREATE FUNCTION @extschema@._purge_mails(horizon timestamptz, row_limit integer, OUT purged integer, OUT more boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
DECLARE
    round CONSTANT bigint := coalesce(pg_sequence_last_value('@extschema@._purged_outbox'::regclass), 0);
    walked CONSTANT timestamptz := coalesce(to_timestamp(@extschema@._walk_begin('outbox'::text) / 1000.0), '-infinity');
    after record;
    last timestamptz;
    passed timestamptz;
    looked_at tid[];
    places tid[];
BEGIN
    -- If that mail is gone, or is to be sent again, the round begins anew.
    SELECT o.ended_at, o.id INTO after FROM @extschema@.outbox o WHERE o.id = round AND o.ended_at >= walked;
    IF NOT FOUND THEN
        SELECT walked AS ended_at, '-9223372036854775808'::bigint AS id INTO after;
    END IF;
    WITH looked AS MATERIALIZED (
        SELECT o.ctid AS place, o.id, o.ended_at
        FROM @extschema@.outbox o
        WHERE (o.ended_at, o.id) > (after.ended_at, after.id)
          AND o.ended_at < horizon
          -- A role that can set ended_at cannot make a mail look old.
          AND o.created_at < horizon
        ORDER BY o.ended_at, o.id
        LIMIT row_limit
    ), old AS MATERIALIZED (
        -- A locked row may be on its way back to scheduled.
        SELECT o.ctid AS place, o.id
        FROM @extschema@.outbox o
        WHERE o.ctid = ANY (ARRAY(SELECT l.place FROM looked l))
          AND o.ended_at < horizon
        FOR UPDATE SKIP LOCKED
    )
    SELECT
        array_agg(l.place), array_agg(d.place) FILTER (WHERE d.id IS NOT NULL), count(d.id), count(*) = row_limit,
        CASE WHEN count(*) = row_limit THEN max(l.ended_at) ELSE horizon END, min(l.ended_at) FILTER (WHERE d.id IS NULL)
    INTO looked_at, places, purged, more, last, passed
    FROM looked l
    LEFT JOIN old d ON d.id = l.id;
    IF NOT @extschema@._delete_mails(places) THEN
        -- The application does not let one of them go: the others go one by one.
        purged := (SELECT count(*) FROM unnest(places) u (place) WHERE @extschema@._delete_mails(ARRAY[u.place]));
    END IF;
    IF more THEN
        PERFORM setval('@extschema@._purged_outbox'::regclass, greatest(w.id, 0::bigint))
        FROM (
            SELECT o.id
            FROM @extschema@.outbox o
            WHERE o.ctid = ANY (looked_at)
              AND o.ended_at < horizon
            ORDER BY o.ended_at DESC, o.id DESC
            LIMIT 1
        ) w;
    ELSIF round <> 0 THEN
        PERFORM setval('@extschema@._purged_outbox'::regclass, 0);
    END IF;
    -- In whole milliseconds, so that rows that ended in the same millisecond are looked at again.
    PERFORM @extschema@._walk_end('outbox'::text, floor(extract(epoch FROM greatest(coalesce(passed, last), 'epoch')) * 1000)::bigint);
END;
$$;
COMMENT ON FUNCTION @extschema@._purge_mails(timestamptz, integer) IS
    'Internal. Deletes up to row_limit mails that ended before this time, oldest end first, with their attempts, but passes by those that the application does not let go. Returns how many, and whether there are more to look at.';

CREATE SEQUENCE @extschema@._purged_tokens MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._purged_tokens IS
    'Internal. The tokens.id that the current round of purges has reached.';

CREATE FUNCTION @extschema@._purge_tokens(horizon bigint, row_limit integer, OUT purged integer, OUT more boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    -- A sequence can only be scanned, which looks dear enough for JIT compilation then.
    SET jit = off
AS $$
DECLARE
    round CONSTANT bigint := (SELECT s.last_value FROM @extschema@._purged_tokens s);
    after CONSTANT bigint := greatest(@extschema@._walk_begin('tokens'::text), round);
    last bigint;
BEGIN
    WITH looked AS MATERIALIZED (
        SELECT t.ctid AS place, t.id, t.created_at, t.expires_at
        FROM @extschema@.tokens t
        WHERE t.id > after
        ORDER BY t.id
        LIMIT row_limit
    ), gone AS (
        DELETE FROM @extschema@.tokens t
        WHERE t.ctid = ANY (ARRAY(
            SELECT o.ctid
            FROM @extschema@.tokens o
            WHERE o.ctid = ANY (ARRAY(SELECT l.place FROM looked l WHERE l.expires_at < horizon))
              AND o.expires_at < horizon
            FOR UPDATE SKIP LOCKED
        ))
        RETURNING t.id
    )
    SELECT
        (SELECT count(*) FROM gone),
        -- A token that was created later cannot have expired before.
        max(l.id) FILTER (WHERE l.created_at < horizon),
        count(*) FILTER (WHERE l.created_at < horizon) = row_limit
    INTO purged, last, more
    FROM looked l;
    IF more THEN
        PERFORM setval('@extschema@._purged_tokens'::regclass, last);
    ELSIF round <> 0 THEN
        PERFORM setval('@extschema@._purged_tokens'::regclass, 0);
    END IF;
    PERFORM @extschema@._walk_end('tokens'::text, last);
END;
$$;
COMMENT ON FUNCTION @extschema@._purge_tokens(bigint, integer) IS
    'Internal. Looks at up to row_limit tokens and deletes those that expired before this time (epoch seconds). Returns how many, and whether there are more to look at.';

-- Long because it has one step for each table, in the order of their locks.
CREATE FUNCTION @extschema@._purge(batch_limit integer, OUT purged integer, OUT more boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    horizon CONSTANT timestamptz := clock_timestamp() - make_interval(secs => @extschema@._retention());
    -- The limit of links an hour is counted from an account's tokens.
    hour_ago CONSTANT timestamptz := clock_timestamp() - interval '1 hour';
    mails record;
    tokens record;
    after bigint;
    ids bigint[];
BEGIN
    PERFORM @extschema@._refuse_while_restoring();
    -- TRUNCATE locks in this order: accounts and tokens, then requests, then the outbox.
    PERFORM @extschema@._lock_accounts_and_tokens(true);
    -- Requests that were never answered, because the worker is paused or does not run.
    after := coalesce(@extschema@._walk_begin('link_requests'::text), 0);
    ids := ARRAY(
        SELECT w.id
        FROM (
            SELECT r.id, r.requested_at
            FROM @extschema@.link_requests r
            WHERE r.id > after
            ORDER BY r.id
            LIMIT batch_limit
        ) w
        WHERE w.requested_at < horizon
    );
    DELETE FROM @extschema@.link_requests r
    WHERE r.id = ANY (ARRAY(SELECT q.id FROM @extschema@.link_requests q WHERE q.id = ANY (ids) FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS purged = ROW_COUNT;
    PERFORM @extschema@._walk_end('link_requests'::text, ids[cardinality(ids)]);
    more := cardinality(ids) = batch_limit;

    SELECT p.* INTO mails FROM @extschema@._purge_mails(horizon, batch_limit) p;
    SELECT p.*
    INTO tokens
    FROM @extschema@._purge_tokens(floor(extract(epoch FROM least(horizon, hour_ago)))::bigint, batch_limit) p;
    purged := purged + mails.purged + tokens.purged;
    more := more OR mails.more OR tokens.more;

    -- Attempts of mail that is still to be sent, of mail that was deleted otherwise, or that was settled after its
    -- purge.
    after := coalesce(@extschema@._walk_begin('outbox_attempts'::text), 0);
    ids := ARRAY(
        SELECT w.id
        FROM (
            SELECT a.id, a.ended_at
            FROM @extschema@.outbox_attempts a
            WHERE a.id > after
            ORDER BY a.id
            LIMIT batch_limit
        ) w
        WHERE w.ended_at < horizon
    );
    -- Another purge may be deleting them with their mail, and may be about to wait for rows of this one.
    DELETE FROM @extschema@.outbox_attempts a
    WHERE a.id = ANY (ARRAY(SELECT f.id FROM @extschema@.outbox_attempts f WHERE f.id = ANY (ids) FOR UPDATE SKIP LOCKED));
    PERFORM @extschema@._walk_end('outbox_attempts'::text, ids[cardinality(ids)]);
    more := more OR cardinality(ids) = batch_limit;

    after := coalesce(@extschema@._walk_begin('job_runs'::text), 0);
    ids := ARRAY(
        SELECT w.id
        FROM (
            SELECT j.id, j.started_at
            FROM @extschema@.job_runs j
            WHERE j.id > after
            ORDER BY j.id
            LIMIT batch_limit
        ) w
        WHERE w.started_at < horizon
    );
    DELETE FROM @extschema@.job_runs j WHERE j.id = ANY (ids);
    PERFORM @extschema@._walk_end('job_runs'::text, ids[cardinality(ids)]);
    purged := purged + cardinality(ids);
    more := more OR cardinality(ids) = batch_limit;
END;
$$;
COMMENT ON FUNCTION @extschema@._purge(integer) IS
    'Internal. Deletes up to batch_limit rows of each table that ended longer ago than mailroom.retention. Returns how many, and whether there are more.';

CREATE FUNCTION @extschema@.mailroom_purge(batch_limit integer DEFAULT 1000, OUT purged integer, OUT more boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (batch_limit < 1) IS NOT FALSE THEN
        PERFORM @extschema@._refuse_batch_limit(batch_limit, 'Leave it out for 1000.'::text);
    END IF;
    SELECT p.purged, p.more INTO purged, more FROM @extschema@._purge(batch_limit) p;
    PERFORM @extschema@._forget_deliverers();
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_purge(integer) IS
    'Deletes up to batch_limit rows of each table that ended longer ago than mailroom.retention. Returns how many, and in more whether to call it again, in another transaction.';
