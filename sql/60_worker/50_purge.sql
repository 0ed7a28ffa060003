-- Purging: what ended longer ago than mailroom.retention is deleted.
--
-- The worker, pg_cron or a person calls mailroom_purge, in small batches, each a short transaction. Mail is found by an
-- index, oldest end first, as suppressions are; other rows by id, which is the order of time, up to the first that is too young. So a batch
-- without work costs one look at each table. Where deleted rows cannot be vacuumed yet because a session holds an old
-- snapshot, a session continues where its last batch ended (src/cursor). Deliverers that are gone are
-- forgotten by the way (50_queue/90_transports.sql).

CREATE FUNCTION @extschema@._retention() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_retention_wrapper';
COMMENT ON FUNCTION @extschema@._retention() IS 'Internal. The setting mailroom.retention in seconds.';

CREATE FUNCTION @extschema@._delete_rows(source text, places tid[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
    -- For rows of the application that refer to them.
    SET lock_timeout = '100ms'
AS $$
DECLARE
    deleted integer := 0;
BEGIN
    IF source = 'outbox' THEN
        WITH gone AS (
            DELETE FROM @extschema@.outbox o
            WHERE o.ctid = ANY (_delete_rows.places)
            RETURNING o.id, o.attachment_bytes
        ), attached AS (
            DELETE FROM @extschema@.outbox_attachments a
            WHERE a.outbox_id = ANY (ARRAY(SELECT g.id FROM gone g WHERE g.attachment_bytes IS NOT NULL))
        ), with_them AS (
            DELETE FROM @extschema@.outbox_attempts a
            WHERE a.outbox_id = ANY (ARRAY(SELECT g.id FROM gone g))
        )
        SELECT count(*) INTO deleted FROM gone;
    ELSIF source = 'outbox_files' THEN
        -- They are locked, so none can have been attached since this later snapshot was taken.
        DELETE FROM @extschema@.outbox_files f
        WHERE f.ctid = ANY (_delete_rows.places)
          AND NOT EXISTS (SELECT FROM @extschema@._needed_files n WHERE n.file_id = f.id OFFSET 0);
        GET DIAGNOSTICS deleted = ROW_COUNT;
    ELSIF cardinality(places) > 0 THEN
        EXECUTE 'DELETE FROM @extschema@.' || quote_ident(source) || ' WHERE ctid = ANY ($1)' USING places;
        GET DIAGNOSTICS deleted = ROW_COUNT;
    END IF;
    RETURN deleted;
EXCEPTION
    WHEN OTHERS THEN
        IF SQLSTATE <> '55P03' AND NOT @extschema@._may_pass_by(SQLSTATE) THEN
            RAISE;
        END IF;
        -- Rows to which rows refer that other transactions hold (55P03) stay for the next cycle, a hundred at a time, because each
        -- try takes time.
        IF cardinality(places) = 1 OR (SQLSTATE = '55P03' AND cardinality(places) <= 100) THEN
            RETURN 0;
        END IF;
        -- The application does not let one of them go. In tenths, few statements find it among many, and not many more
        -- than one for each row are needed if it lets none go.
        RETURN (
            SELECT sum(@extschema@._delete_rows(source, t.places))::integer
            FROM (
                SELECT array_agg(u.place) AS places
                FROM unnest(places) WITH ORDINALITY u (place, number)
                GROUP BY u.number * 10 / (cardinality(places) + 1)
            ) t
        );
END;
$$;
COMMENT ON FUNCTION @extschema@._delete_rows(text, tid[]) IS
    'Internal. Deletes these locked rows of a table, mails with their attempts and attachments, of files those that no mail needs, but skips those that a foreign key or a trigger of the application does not let it delete. Returns how many.';

-- The positions of purges are those of all sessions: sessions without memory get past rows that stay. A cycle ends where
-- there are no more rows, and the next one starts at the first row. The worker purges all the time, so it begins a cycle
-- once an hour, and continues at its end until then: rows that stay would keep it busy.
CREATE SEQUENCE @extschema@._purged_outbox MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._purged_outbox IS
    'Internal. The outbox.id of the last mail that stayed in the current cycle of purges.';

-- Long because the position of the cycle depends on what was looked at and on what stayed of it.
CREATE FUNCTION @extschema@._purge_mails(
    horizon timestamptz,
    row_limit integer,
    OUT purged integer,
    OUT more boolean
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    -- A sort that happens anyway has a high cost estimate, which would start JIT compilation.
    SET jit = off
AS $$
<<local>>
DECLARE
    cycle CONSTANT bigint := coalesce(pg_sequence_last_value('@extschema@._purged_outbox'::regclass), 0);
    sweep CONSTANT boolean := @extschema@._scan_begin('purge outbox'::text);
    walked CONSTANT timestamptz := (SELECT s.at FROM @extschema@._scan_start('purge outbox'::text, 0::smallint) s);
    after record;
    mark record;
    last timestamptz;
    passed timestamptz;
    looked_at tid[];
    places tid[];
    stayed bigint;
BEGIN
    SELECT walked AS ended_at, '-9223372036854775808'::bigint AS id INTO after;
    IF cycle <> 0 THEN
        -- By id alone, so that only the primary key fits.
        SELECT o.ended_at, o.id INTO mark FROM @extschema@.outbox o WHERE o.id = local.cycle;
        -- If that mail is gone, or is to be sent again, the cycle starts at the first mail.
        IF mark.ended_at >= walked THEN
            after := mark;
        END IF;
    END IF;
    WITH looked AS MATERIALIZED (
        SELECT o.ctid AS place, o.id, o.ended_at
        FROM @extschema@.outbox o
        WHERE (o.ended_at, o.id) > (after.ended_at, after.id)
          AND o.ended_at < _purge_mails.horizon
          -- A role that can set ended_at cannot make a mail look old.
          AND o.created_at < _purge_mails.horizon
        ORDER BY o.ended_at, o.id
        LIMIT _purge_mails.row_limit
    ), old AS MATERIALIZED (
        -- A locked row may be on its way back to scheduled.
        SELECT o.ctid AS place, o.id
        FROM @extschema@.outbox o
        WHERE o.ctid = ANY (ARRAY(SELECT l.place FROM looked l))
          AND o.ended_at < _purge_mails.horizon
        FOR UPDATE SKIP LOCKED
    )
    SELECT
        array_agg(l.place), array_agg(d.place) FILTER (WHERE d.id IS NOT NULL), count(*) = row_limit,
        CASE WHEN count(*) = row_limit THEN max(l.ended_at) ELSE horizon END, min(l.ended_at) FILTER (WHERE d.id IS NULL)
    INTO looked_at, places, more, last, passed
    FROM looked l
    LEFT JOIN old d ON d.id = l.id;
    PERFORM @extschema@._scan_end('purge outbox'::text);
    purged := @extschema@._delete_rows('outbox'::text, places);
    -- Materialized, so that they are sorted, and not looked for in an index of all that ended.
    WITH left_over AS MATERIALIZED (
        SELECT o.ended_at, o.id
        FROM @extschema@.outbox o
        WHERE o.ctid = ANY (local.looked_at)
          AND o.ended_at < _purge_mails.horizon
    )
    SELECT l.id INTO stayed FROM left_over l ORDER BY l.ended_at DESC, l.id DESC LIMIT 1;
    IF FOUND THEN
        PERFORM setval('@extschema@._purged_outbox'::regclass, greatest(stayed, 0::bigint));
    END IF;
    -- Rows that ended at the same time are looked at again.
    PERFORM @extschema@._scan_note(
        'purge outbox'::text, 0::smallint, coalesce(passed, last), '-9223372036854775808'::bigint, false
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._purge_mails(timestamptz, integer) IS
    'Internal. Deletes up to row_limit mails that ended before this time, oldest end first, with their attempts, but skips those that must stay. Returns how many, and whether there are more to look at.';

CREATE SEQUENCE @extschema@._purged_tokens MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._purged_tokens IS
    'Internal. The tokens.id that the current cycle of purges has reached.';

CREATE SEQUENCE @extschema@._purged_link_requests MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._purged_link_requests IS
    'Internal. The link_requests.id that the current cycle of purges has reached.';

CREATE SEQUENCE @extschema@._purged_outbox_attempts MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._purged_outbox_attempts IS
    'Internal. The outbox_attempts.id that the current cycle of purges has reached.';

CREATE SEQUENCE @extschema@._purged_outbox_attachments MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._purged_outbox_attachments IS
    'Internal. The outbox_attachments.id that the current cycle of purges has reached.';

CREATE SEQUENCE @extschema@._purged_outbox_files MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._purged_outbox_files IS
    'Internal. The outbox_files.id that the current cycle of purges has reached.';

CREATE SEQUENCE @extschema@._purged_delivery_events MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._purged_delivery_events IS
    'Internal. The delivery_events.id that the current cycle of purges has reached.';

CREATE SEQUENCE @extschema@._purged_operator_actions MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._purged_operator_actions IS
    'Internal. The operator_actions.id that the current cycle of purges has reached.';

CREATE SEQUENCE @extschema@._purged_job_runs MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._purged_job_runs IS
    'Internal. The job_runs.id that the current cycle of purges has reached.';

CREATE FUNCTION @extschema@._purge_by_id(
    source text,
    began text,
    ended text[],
    horizon text,
    soon text,
    row_limit integer,
    OUT purged integer,
    OUT more boolean
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    reached CONSTANT regclass := '@extschema@.' || quote_ident('_purged_' || source);
    cycle CONSTANT bigint := coalesce(pg_sequence_last_value(reached), 0);
    scan CONSTANT text := 'purge ' || source;
    sweep CONSTANT boolean := @extschema@._scan_begin(scan);
    after CONSTANT bigint := greatest((SELECT s.id FROM @extschema@._scan_start(scan, 0::smallint) s), cycle);
    last bigint;
    places tid[];
    -- Of up to three columns.
    end_of_row CONSTANT text := format('least(t.%I, t.%I, t.%I)', ended[1], coalesce(ended[2], ended[1]), coalesce(ended[3], ended[1]));
BEGIN
    EXECUTE 'WITH looked AS MATERIALIZED (SELECT t.ctid AS place, t.id,'
        -- A row from the future must not keep those behind it: the clock may have been wrong.
        || format(' t.%1$I < %2$L OR t.%1$I > %3$L AS is_past,', began, horizon, soon)
        || ' ' || end_of_row || ' < ' || quote_literal(horizon) || ' AS has_ended'
        || ' FROM @extschema@.' || quote_ident(source) || ' t WHERE t.id > $1 ORDER BY t.id LIMIT $2)'
        || ' SELECT ARRAY(SELECT t.ctid FROM @extschema@.' || quote_ident(source) || ' t'
        || ' WHERE t.ctid = ANY (ARRAY(SELECT l.place FROM looked l WHERE l.has_ended))'
        || ' AND ' || end_of_row || ' < ' || quote_literal(horizon)
        -- The attempts of a mail tell whether it may have been sent, for as long as it is kept.
        || CASE
            WHEN source IN ('outbox_attempts', 'outbox_attachments')
                THEN ' AND NOT EXISTS (SELECT FROM @extschema@.outbox o WHERE o.id = t.outbox_id OFFSET 0)'
            WHEN source = 'outbox_files'
                THEN ' AND NOT EXISTS (SELECT FROM @extschema@._needed_files n WHERE n.file_id = t.id OFFSET 0)'
            ELSE ''
        END
        || ' FOR UPDATE OF t SKIP LOCKED),'
        || ' max(l.id) FILTER (WHERE l.is_past), count(*) FILTER (WHERE l.is_past) = $2 FROM looked l'
    INTO places, last, more
    USING after, row_limit;
    PERFORM @extschema@._scan_end(scan);
    purged := @extschema@._delete_rows(source, places);
    PERFORM setval(reached, last);
    PERFORM @extschema@._scan_note(scan, 0::smallint, '-infinity'::timestamptz, last, false);
END;
$$;
COMMENT ON FUNCTION @extschema@._purge_by_id(text, text, text[], text, text, integer) IS
    'Internal. Looks at up to row_limit rows of this table, in the order of id, that began before the first time by one column, or after the second, and deletes those that ended before the first by the earliest of others, but skips those that must stay. Returns how many, and whether there are more to look at.';

CREATE FUNCTION @extschema@._purge_suppressions(row_limit integer, OUT purged integer, OUT more boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    -- A constant, so that the index finds them.
    horizon CONSTANT timestamptz := clock_timestamp() - interval '1 year';
    places tid[];
BEGIN
    places := ARRAY(
        SELECT s.ctid
        FROM @extschema@.suppressions s
        WHERE s.until < local.horizon
        ORDER BY s.until
        LIMIT _purge_suppressions.row_limit
        FOR UPDATE SKIP LOCKED
    );
    purged := @extschema@._delete_rows('suppressions'::text, places);
    more := purged = row_limit;
END;
$$;
COMMENT ON FUNCTION @extschema@._purge_suppressions(integer) IS
    'Internal. Deletes up to row_limit suppressions that ended more than a year ago. Returns how many, and whether there may be more.';

-- Long because each table has its horizon.
CREATE FUNCTION @extschema@._purge(batch_limit integer, starts_over boolean, OUT purged integer, OUT more boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    horizon CONSTANT timestamptz := clock_timestamp() - make_interval(secs => @extschema@._retention());
    -- In ISO 8601, which does not depend on DateStyle.
    moment CONSTANT text := to_json(horizon) #>> '{}';
    -- The limit of links an hour is counted from an account's tokens.
    seconds CONSTANT text := floor(extract(epoch FROM least(horizon, clock_timestamp() - interval '1 hour')));
    hour_ago CONSTANT text := to_json(clock_timestamp() - interval '1 hour') #>> '{}';
    soon CONSTANT text := to_json(clock_timestamp() + interval '1 hour') #>> '{}';
    soon_seconds CONSTANT text := floor(extract(epoch FROM clock_timestamp() + interval '1 hour'));
    requests record;
    mails record;
    tokens record;
    attempts record;
    attached record;
    files record;
    events record;
    lifted record;
    actions record;
    runs record;
BEGIN
    PERFORM @extschema@._refuse_while_restoring();
    -- TRUNCATE locks in this order: accounts and tokens, then requests, then the outbox.
    PERFORM @extschema@._lock_accounts_and_tokens(true);
    -- Requests that were never answered, because the worker is paused or does not run.
    SELECT p.*
    INTO requests
    FROM @extschema@._purge_by_id('link_requests'::text, 'requested_at'::text, ARRAY['requested_at'], moment, soon, batch_limit) p;
    SELECT p.* INTO mails FROM @extschema@._purge_mails(horizon, batch_limit) p;
    -- A token that was created later cannot have ended before.
    SELECT p.*
    INTO tokens
    FROM @extschema@._purge_by_id('tokens'::text, 'created_at'::text, ARRAY['expires_at', 'consumed_at', 'revoked_at'], seconds, soon_seconds, batch_limit) p;
    -- Attempts of mail that was deleted otherwise, or that was settled after its purge. Another purge may be deleting
    -- them with their mail, and may be about to wait for rows of this one.
    SELECT p.*
    INTO attempts
    FROM @extschema@._purge_by_id('outbox_attempts'::text, 'ended_at'::text, ARRAY['ended_at'], moment, soon, batch_limit) p;
    SELECT p.*
    INTO attached
    FROM @extschema@._purge_by_id('outbox_attachments'::text, 'created_at'::text, ARRAY['created_at'], moment, soon, batch_limit) p;
    -- With an older snapshot it could not be seen who attached one meanwhile. Few at a time, since they may be large.
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        SELECT p.*
        INTO files
        FROM @extschema@._purge_by_id('outbox_files'::text, 'created_at'::text, ARRAY['created_at'], hour_ago, soon, least(batch_limit, 50)) p;
    ELSE
        SELECT 0 AS purged, false AS more INTO files;
    END IF;
    SELECT p.*
    INTO events
    FROM @extschema@._purge_by_id('delivery_events'::text, 'received_at'::text, ARRAY['received_at'], moment, soon, batch_limit) p;
    SELECT p.*
    INTO actions
    FROM @extschema@._purge_by_id('operator_actions'::text, 'at'::text, ARRAY['at'], moment, soon, batch_limit) p;
    SELECT p.*
    INTO runs
    FROM @extschema@._purge_by_id('job_runs'::text, 'started_at'::text, ARRAY['started_at'], moment, soon, batch_limit) p;
    SELECT p.* INTO lifted FROM @extschema@._purge_suppressions(batch_limit) p;
    purged := requests.purged + mails.purged + tokens.purged + files.purged + events.purged + lifted.purged + actions.purged + runs.purged;
    more := requests.more OR mails.more OR tokens.more OR attempts.more OR attached.more OR files.more OR events.more OR lifted.more OR actions.more OR runs.more;
    -- Not one table before the others, or a caller that repeats the call as long as there is more would never end.
    IF starts_over AND NOT more THEN
        PERFORM setval(r, 0)
        FROM unnest('{_purged_outbox,_purged_tokens,_purged_link_requests,_purged_outbox_attempts,_purged_outbox_attachments,_purged_outbox_files,_purged_delivery_events,_purged_operator_actions,_purged_job_runs}'::text[]) u (name)
        CROSS JOIN LATERAL (SELECT ('@extschema@.' || quote_ident(u.name))::regclass) s (r)
        WHERE pg_sequence_last_value(r) <> 0;
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._purge(integer, boolean) IS
    'Internal. Deletes up to batch_limit rows of each table that ended longer ago than mailroom.retention; when there are no more, the next call may start over with the first row. Returns how many, and whether there are more.';

CREATE FUNCTION @extschema@.mailroom_purge(batch_limit integer DEFAULT 1000, OUT purged integer, OUT more boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (batch_limit < 1) IS NOT FALSE THEN
        PERFORM @extschema@._refuse_batch_limit(batch_limit, 'Leave it out for 1000.'::text);
    END IF;
    -- A row to which a deferred foreign key of the application refers would fail the purge at COMMIT.
    SET CONSTRAINTS ALL IMMEDIATE;
    SELECT p.purged, p.more INTO purged, more FROM @extschema@._purge(batch_limit, true) p;
    PERFORM @extschema@._forget_deliverers();
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_purge(integer) IS
    'Deletes up to batch_limit rows of each table that ended longer ago than mailroom.retention. Returns how many, not counting attempts and attachments, and in more whether to call it again, in another transaction.';
