-- Purging mail: _purge (50_purge.sql) calls _purge_mails for each batch.
--
-- Invariant: mail that cannot be deleted, because a foreign key or a trigger of the application refuses, is passed by
-- with its attempts, and everything else is deleted. A batch is one statement; only if it fails is it repeated one mail
-- at a time. So where nothing refuses, this costs a subtransaction.

CREATE FUNCTION @extschema@._may_keep_mail() RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    -- The extension has no trigger for DELETE, and each foreign key to the table is one.
    RETURN EXISTS (
        SELECT
        FROM pg_trigger t
        WHERE t.tgrelid = '@extschema@.outbox'::regclass
          AND t.tgtype::integer & 8 <> 0
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._may_keep_mail() IS
    'Internal. Whether a foreign key or a trigger of the application may keep mail from being deleted.';

CREATE FUNCTION @extschema@._check_outbox_now() RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    names CONSTANT text := (
        SELECT string_agg(DISTINCT format('%I.%I', n.nspname, c.conname), ', ')
        FROM pg_trigger t
        JOIN pg_constraint c ON c.oid = t.tgconstraint
        JOIN pg_namespace n ON n.oid = c.connamespace
        WHERE t.tgrelid = '@extschema@.outbox'::regclass
          AND t.tginitdeferred
    );
BEGIN
    IF names IS NOT NULL THEN
        EXECUTE 'SET CONSTRAINTS ' || names || ' IMMEDIATE';
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._check_outbox_now() IS
    'Internal. Until the transaction ends, has deferred foreign keys to the outbox checked by each statement: COMMIT could pass nothing by.';

-- The position of purges of single mails, for all sessions.
CREATE SEQUENCE @extschema@._purged_mails MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._purged_mails IS
    'Internal. The outbox.id that the current round of purges has reached that delete one mail at a time.';

CREATE FUNCTION @extschema@._purge_mails_one_by_one(
    horizon timestamptz,
    after timestamptz,
    row_limit integer,
    OUT purged integer,
    OUT more boolean,
    OUT last timestamptz,
    OUT passed timestamptz
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    -- A sequence can only be scanned, which looks dear enough for JIT compilation then.
    SET jit = off
AS $$
DECLARE
    reached bigint;
    looked record;
    one record;
    next timestamptz;
    deleted bigint;
BEGIN
    PERFORM @extschema@._check_outbox_now();
    IF after = '-infinity' THEN
        -- The mails that ended first may be the same that could not be deleted before, any number of them and all ended
        -- at one time. So by id, from where the last purge of any session ended.
        reached := (SELECT s.last_value FROM @extschema@._purged_mails s);
        SELECT
            array_agg(w.place) FILTER (WHERE w.is_old) AS places, array_agg(w.ended_at) FILTER (WHERE w.is_old) AS ends, max(w.id) AS id,
            -- Mail that was inserted later cannot have ended before.
            count(*) = row_limit AND bool_or(w.created_at < horizon) AS more
        INTO looked
        FROM (
            SELECT o.ctid AS place, o.id, o.created_at, o.ended_at, o.ended_at < horizon AND o.created_at < horizon AS is_old
            FROM @extschema@.outbox o
            WHERE o.id > reached
            ORDER BY o.id
            LIMIT row_limit
        ) w;
        more := coalesce(looked.more, false);
        PERFORM setval('@extschema@._purged_mails'::regclass, CASE WHEN more THEN looked.id ELSE 0 END);
    ELSE
        FOR round IN 1 .. 2 LOOP
            SELECT
                array_agg(w.place) AS places, array_agg(w.ended_at) AS ends, count(*) >= row_limit AS more,
                date_trunc('milliseconds', min(w.ended_at)) AS first, date_trunc('milliseconds', max(w.ended_at)) AS last
            INTO looked
            FROM (
                SELECT o.ctid AS place, o.ended_at
                FROM @extschema@.outbox o
                WHERE o.ended_at >= after
                  AND o.ended_at < least(next, horizon)
                  AND o.created_at < horizon
                ORDER BY o.ended_at
                LIMIT CASE WHEN next IS NULL THEN row_limit END
            ) w;
            EXIT WHEN NOT looked.more OR looked.first < looked.last;
            -- Positions are whole milliseconds, and this one has too many mails: all of them at once.
            next := looked.first + interval '1 ms';
        END LOOP;
        more := looked.more;
        last := CASE WHEN more THEN coalesce(next, looked.last) ELSE horizon END;
    END IF;
    purged := 0;
    FOR one IN SELECT u.place, u.ended_at FROM unnest(looked.places, looked.ends) u (place, ended_at) LOOP
        BEGIN
            WITH old AS MATERIALIZED (
                SELECT o.ctid AS place, o.id
                FROM @extschema@.outbox o
                WHERE o.ctid = ANY (ARRAY[one.place])
                  AND o.ended_at < horizon
                FOR UPDATE SKIP LOCKED
            ), gone AS (
                DELETE FROM @extschema@.outbox o
                WHERE o.ctid = ANY (ARRAY(SELECT d.place FROM old d))
            ), forgotten AS (
                DELETE FROM @extschema@.outbox_attempts a
                WHERE a.outbox_id = ANY (ARRAY(SELECT d.id FROM old d))
            )
            SELECT count(*) INTO deleted FROM old d;
            purged := purged + deleted;
            IF deleted = 0 THEN
                passed := least(passed, one.ended_at);
            END IF;
        EXCEPTION
            WHEN OTHERS THEN
                IF NOT @extschema@._is_row_at_fault(SQLSTATE) THEN
                    RAISE;
                END IF;
        END;
    END LOOP;
    IF after > '-infinity' THEN
        -- What is locked is looked at again, at once only if there was progress.
        more := more AND (purged > 0 OR passed IS NULL);
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._purge_mails_one_by_one(timestamptz, timestamptz, integer) IS
    'Internal. As _purge_mails, but passes by mails that cannot be deleted; after is -infinity for a walk from the beginning. Also returns the time up to which the mails were looked at, NULL in such a walk, and the earliest end of those that were locked.';

CREATE FUNCTION @extschema@._purge_mails(horizon timestamptz, row_limit integer, OUT purged integer, OUT more boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
DECLARE
    after CONSTANT timestamptz := coalesce(to_timestamp(@extschema@._walk_begin('outbox'::text) / 1000.0), '-infinity');
    last timestamptz;
    passed timestamptz;
    refused boolean := false;
BEGIN
    BEGIN
        WITH looked AS MATERIALIZED (
            SELECT o.ctid AS place, o.id, o.ended_at
            FROM @extschema@.outbox o
            WHERE o.ended_at >= after
              AND o.ended_at < horizon
              -- A role that can set ended_at cannot make a mail look old.
              AND o.created_at < horizon
            ORDER BY o.ended_at
            LIMIT row_limit
        ), old AS MATERIALIZED (
            -- A locked row may be on its way back to scheduled.
            SELECT o.ctid AS place, o.id
            FROM @extschema@.outbox o
            WHERE o.ctid = ANY (ARRAY(SELECT l.place FROM looked l))
              AND o.ended_at < horizon
            FOR UPDATE SKIP LOCKED
        ), gone AS (
            DELETE FROM @extschema@.outbox o
            WHERE o.ctid = ANY (ARRAY(SELECT d.place FROM old d))
        ), forgotten AS (
            DELETE FROM @extschema@.outbox_attempts a
            WHERE a.outbox_id = ANY (ARRAY(SELECT d.id FROM old d))
        )
        SELECT
            count(d.id), count(*) = row_limit AND count(d.id) > 0, CASE WHEN count(*) = row_limit THEN max(l.ended_at) ELSE horizon END,
            min(l.ended_at) FILTER (WHERE d.id IS NULL)
        INTO purged, more, last, passed
        FROM looked l
        LEFT JOIN old d ON d.id = l.id;
        IF purged > 0 THEN
            PERFORM @extschema@._check_outbox_now();
        END IF;
    EXCEPTION
        WHEN OTHERS THEN
            -- The worker's statements may defer nothing, which is insufficient_privilege.
            IF NOT (@extschema@._is_row_at_fault(SQLSTATE) OR SQLSTATE = '42501') THEN
                RAISE;
            END IF;
            refused := true;
    END;
    IF refused THEN
        SELECT p.purged, p.more, p.last, p.passed
        INTO purged, more, last, passed
        FROM @extschema@._purge_mails_one_by_one(horizon, after, least(row_limit, 1000)) p;
    END IF;
    -- In whole milliseconds, so that rows that ended in the same millisecond are looked at again. A walk by id leaves the
    -- position as it is.
    PERFORM @extschema@._walk_end(
        'outbox'::text,
        CASE WHEN last IS NOT NULL THEN floor(extract(epoch FROM greatest(coalesce(passed, last), 'epoch')) * 1000)::bigint END
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._purge_mails(timestamptz, integer) IS
    'Internal. Deletes up to row_limit mails that ended before this time, oldest end first, with their attempts; if that fails, one by one. Returns how many, and whether there may be more.';
