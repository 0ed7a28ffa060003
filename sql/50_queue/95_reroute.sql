-- Rerouting: scheduled mail changes its transport.
--
-- mailroom_admin moves all mail of a transport (mailroom_reroute); a deliverer moves what routes allow it to, while a
-- transport is paused (_fall_back). Invariants: a row that another transaction holds stays and is not waited for (I3);
-- mail that may have been sent through one transport never goes to another on its own (I2).

CREATE FUNCTION @extschema@.mailroom_reroute(from_transport text, to_transport text) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    -- Scans of the small tables of transports look dear enough for JIT compilation then.
    SET jit = off
AS $$
DECLARE
    unknown text;
    moved bigint;
    earliest timestamptz;
BEGIN
    unknown := CASE
        WHEN to_transport IS NULL OR NOT @extschema@._knows_transport(to_transport) THEN coalesce(to_transport, 'null')
        WHEN from_transport IS NULL OR NOT (
            @extschema@._knows_transport(from_transport)
            -- The name may have been valid when the mail was inserted.
            OR EXISTS (SELECT FROM @extschema@.outbox o WHERE o.state = 'scheduled' AND o.transport = mailroom_reroute.from_transport COLLATE "C")
        ) THEN coalesce(from_transport, 'null')
    END;
    IF unknown IS NOT NULL THEN
        RAISE undefined_object USING
            MESSAGE = 'mail cannot be rerouted',
            DETAIL = format('There is no transport "%s".', unknown),
            HINT = 'Transports are listed in mailroom_transports and in routes.';
    END IF;
    IF from_transport = to_transport COLLATE "C" THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'mail cannot be rerouted',
            DETAIL = format('Both transports are "%s".', to_transport),
            HINT = 'Name the transport that the mail waits for, and then another.';
    END IF;
    WITH locked AS MATERIALIZED (
        SELECT o.ctid AS place
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.transport = mailroom_reroute.from_transport COLLATE "C"
        FOR NO KEY UPDATE SKIP LOCKED
    ), changed AS (
        UPDATE @extschema@.outbox o
        SET transport = mailroom_reroute.to_transport,
            fallback_from = NULL,
            updated_at = clock_timestamp()
        WHERE o.ctid = ANY (ARRAY(SELECT l.place FROM locked l))
        RETURNING o.send_at
    )
    SELECT count(*), min(c.send_at) INTO moved, earliest FROM changed c;
    IF moved > 0 THEN
        PERFORM @extschema@._mail_due(earliest);
        -- Clients may deliver it from now on.
        PERFORM @extschema@._search_at_commit();
    END IF;
    RETURN moved;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_reroute(text, text) IS
    'Moves the scheduled mail of one transport to another and returns how many there were. Claimed mail, and rows that another transaction has locked or changed meanwhile, stay.';

CREATE FUNCTION @extschema@._fallback_cursor(transport text, OUT priority smallint, OUT send_at timestamptz, OUT id bigint)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_fallback_cursor_wrapper';
COMMENT ON FUNCTION @extschema@._fallback_cursor(text) IS
    'Internal. The row after which this session continues to look for mail of a paused transport that may fall back; no row for the beginning.';

CREATE FUNCTION @extschema@._fallback_note(transport text, priority smallint, send_at timestamptz, id bigint) RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_fallback_note_wrapper';
COMMENT ON FUNCTION @extschema@._fallback_note(text, smallint, timestamptz, bigint) IS
    'Internal. Records the row that the look has reached; NULLs for the end.';

CREATE FUNCTION @extschema@._move(ctids tid[], to_transport text, moment timestamptz) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    careful boolean;
    part tid[];
    changed integer;
    moved integer := 0;
BEGIN
    IF ctids = '{}' THEN
        RETURN 0;
    END IF;
    careful := @extschema@._begin_changes();
    FOR part IN
        SELECT array_agg(u.place)
        FROM unnest(ctids) WITH ORDINALITY u (place, number)
        GROUP BY CASE WHEN careful THEN u.number END
    LOOP
        <<change>>
        BEGIN
            UPDATE @extschema@.outbox o
            SET transport = _move.to_transport,
                -- Mail that is back at its own transport because the fallback is paused may fall back again.
                fallback_from = nullif(coalesce(o.fallback_from, o.transport), _move.to_transport COLLATE "C"),
                updated_at = _move.moment
            WHERE o.ctid = ANY (local.part);
            GET DIAGNOSTICS changed = ROW_COUNT;
            moved := moved + changed;
        EXCEPTION
            WHEN OTHERS THEN
                IF NOT careful OR NOT @extschema@._may_pass_by(SQLSTATE) THEN
                    RAISE;
                END IF;
                PERFORM @extschema@._note_bad_row(o.id, o.transport, change.sqlstate) FROM @extschema@.outbox o WHERE o.ctid = ANY (local.part);
        END;
    END LOOP;
    PERFORM @extschema@._end_changes();
    RETURN moved;
END;
$$;
COMMENT ON FUNCTION @extschema@._move(tid[], text, timestamptz) IS
    'Internal. Moves these locked rows to a fallback, but passes by those that cannot be changed once that has failed. Returns how many were moved.';

-- Long because the scan keeps a position for each priority.
CREATE FUNCTION @extschema@._fall_back_from(
    of_transport text,
    to_transport text,
    paused_for interval,
    wanted integer,
    moment timestamptz
) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    -- A sort that happens nevertheless has a high cost estimate, which would start JIT compilation.
    SET jit = off
AS $$
<<local>>
DECLARE
    -- Number of rows to look at in one call: there may be any number that stay.
    row_budget integer := least(1000 + 2 * wanted::bigint, 1000000);
    moved integer := 0;
    of_priority integer;
    after_send_at timestamptz;
    after_id bigint;
    seen record;
BEGIN
    -- From where this session's last call for these two ended.
    SELECT c.priority, c.send_at, c.id INTO of_priority, after_send_at, after_id FROM @extschema@._fallback_cursor(of_transport || ' ' || to_transport) c;
    LOOP
        IF after_id IS NULL THEN
            SELECT o.priority, '-infinity'::timestamptz, 0::bigint
            INTO of_priority, after_send_at, after_id
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = _fall_back_from.of_transport COLLATE "C"
              AND o.priority > coalesce(local.of_priority, -32769)
            ORDER BY o.priority, o.send_at, o.id
            LIMIT 1;
            EXIT WHEN NOT FOUND;
        END IF;
        WITH looked AS MATERIALIZED (
            SELECT o.ctid AS place, o.send_at, o.id, o.kind, o.ambiguous_attempts, o.batch, o.fallback_from
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = _fall_back_from.of_transport COLLATE "C"
              AND o.priority = local.of_priority
              AND (o.send_at, o.id) > (local.after_send_at, local.after_id)
              AND o.send_at <= _fall_back_from.moment
            ORDER BY o.priority, o.send_at, o.id
            LIMIT local.row_budget
        ), carried AS MATERIALIZED (
            SELECT k.kind
            FROM (SELECT DISTINCT l.kind FROM looked l) k
            CROSS JOIN LATERAL (
                SELECT r.fallback, r.fallback_after
                FROM @extschema@.routes r
                WHERE r.transport = _fall_back_from.of_transport COLLATE "C"
                  AND k.kind LIKE r.kind_pattern COLLATE "C"
                ORDER BY r.position
                LIMIT 1
            ) f
            WHERE f.fallback = to_transport COLLATE "C"
              AND f.fallback_after <= paused_for
        ), chosen AS MATERIALIZED (
            SELECT l.place, l.send_at, l.id
            FROM looked l
            JOIN carried c ON c.kind = l.kind
            -- Mail that may have been sent stays: ambiguous mail, mail that must be sent again in the same request, and
            -- mail that a crashed deliverer held.
            WHERE l.ambiguous_attempts = 0
              AND l.batch IS NULL
              -- So does mail that a fallback could not carry.
              AND l.fallback_from IS DISTINCT FROM of_transport COLLATE "C"
              AND NOT EXISTS (
                  SELECT
                  FROM @extschema@.outbox_attempts a
                  WHERE a.outbox_id = ANY (ARRAY[l.id])
                    AND a.outcome IN ('ambiguous', 'lease_expired')
              )
            ORDER BY l.send_at, l.id
            LIMIT wanted - moved
        ), locked AS MATERIALIZED (
            SELECT o.ctid AS place
            FROM @extschema@.outbox o
            WHERE o.ctid = ANY (ARRAY(SELECT c.place FROM chosen c))
              -- As text, as in _lock_due_skipping_groups.
              AND o.state::text = 'scheduled'
              AND o.ambiguous_attempts = 0
              AND o.batch IS NULL
            FOR NO KEY UPDATE SKIP LOCKED
        ), came_to AS (
            -- Up to the last chosen row if that is as many as wanted; else up to the last one.
            (SELECT c.send_at, c.id FROM chosen c WHERE (SELECT count(*) FROM chosen) = wanted - moved ORDER BY c.send_at DESC, c.id DESC LIMIT 1)
            UNION ALL
            (SELECT l.send_at, l.id FROM looked l WHERE (SELECT count(*) FROM chosen) < wanted - moved ORDER BY l.send_at DESC, l.id DESC LIMIT 1)
        )
        SELECT
            ARRAY(SELECT l.place FROM locked l) AS places,
            (SELECT count(*) FROM looked)::integer AS looked,
            (SELECT count(*) FROM chosen) = wanted - moved AS is_full,
            t.send_at,
            t.id
        INTO seen
        FROM (SELECT) one
        LEFT JOIN came_to t ON true;
        moved := moved + @extschema@._move(seen.places, to_transport, moment);
        after_send_at := seen.send_at;
        after_id := seen.id;
        IF NOT seen.is_full AND seen.looked < row_budget THEN
            -- This priority is done.
            after_id := NULL;
        END IF;
        row_budget := row_budget - seen.looked;
        EXIT WHEN moved >= wanted OR row_budget <= 0;
    END LOOP;
    -- If this call reached the end, the next one starts at the beginning.
    PERFORM @extschema@._fallback_note(of_transport || ' ' || to_transport, CASE WHEN after_id IS NOT NULL THEN of_priority::smallint END, after_send_at, after_id);
    RETURN moved;
END;
$$;
COMMENT ON FUNCTION @extschema@._fall_back_from(text, text, interval, integer, timestamptz) IS
    'Internal. Moves up to the wanted number of due rows of one transport that has been paused for this time to another, as routes allow; looks at a bounded number of rows, from where this session''s last call ended. Returns how many were moved.';

CREATE FUNCTION @extschema@._fall_back(
    to_transport text,
    from_transports text[],
    paused_for interval[],
    batch_limit integer
) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    moved integer := 0;
    source record;
BEGIN
    IF (batch_limit < 1) IS NOT FALSE THEN
        PERFORM @extschema@._refuse_batch_limit(batch_limit, 'Pass how many mails to move at most.'::text);
    END IF;
    FOR source IN
        SELECT f.name, f.paused_for
        FROM unnest(from_transports, _fall_back.paused_for) WITH ORDINALITY f (name, paused_for, place)
        WHERE EXISTS (
            SELECT
            FROM @extschema@.routes r
            WHERE r.transport = f.name COLLATE "C"
              AND r.fallback = _fall_back.to_transport COLLATE "C"
              AND r.fallback_after <= f.paused_for
        )
        ORDER BY f.place
    LOOP
        moved := moved + @extschema@._fall_back_from(source.name, to_transport, source.paused_for, batch_limit - moved, moment);
        EXIT WHEN moved >= batch_limit;
    END LOOP;
    IF moved > 0 THEN
        PERFORM @extschema@._mail_due(moment);
    END IF;
    RETURN moved;
END;
$$;
COMMENT ON FUNCTION @extschema@._fall_back(text, text[], interval[], integer) IS
    'Internal. Moves up to batch_limit due mails of paused transports to one that works, where the route of their kind names it as fallback and fallback_after has passed. Returns how many were moved; mail that may have been sent, and locked rows, stay.';
