-- Rerouting: scheduled mail changes its transport.
--
-- mailroom_admin moves all mail of a transport (mailroom_reroute); a deliverer moves what routes allow it to, while a
-- transport is paused (_fall_back). Invariants: a row that another transaction holds stays and is not waited for (I3);
-- mail that may have been sent through one transport never goes to another on its own (I2).

CREATE FUNCTION @extschema@.mailroom_reroute(from_transport text, to_transport text) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    -- Scans of the small tables of transports look expensive enough for JIT compilation then.
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
        ) THEN coalesce(mailroom_reroute.from_transport, 'null')
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
        -- The provider that recognises a batch is no more asked.
        SET transport = mailroom_reroute.to_transport,
            batch = NULL,
            fallback_from = NULL,
            updated_at = clock_timestamp()
        WHERE o.ctid = ANY (ARRAY(SELECT l.place FROM locked l))
        RETURNING o.send_at
    )
    SELECT count(*), min(c.send_at) INTO moved, earliest FROM changed c;
    IF moved > 0 THEN
        PERFORM @extschema@._mail_due(earliest, false, false);
        -- Clients may deliver it from now on.
        PERFORM @extschema@._search_at_commit();
        INSERT INTO @extschema@._new_actions (action, detail)
        VALUES ('rerouted', jsonb_build_object('from', from_transport, 'to', to_transport, 'mails', moved));
    END IF;
    RETURN moved;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_reroute(text, text) IS
    'Moves the scheduled mail of one transport to another and returns how many there were. Claimed mail, and rows that another transaction has locked or changed meanwhile, stay.';

CREATE FUNCTION @extschema@._move(ctids tid[], to_transport text, moment timestamptz) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    locked tid[];
    moved integer;
    alone boolean;
BEGIN
    locked := ARRAY(
        SELECT o.ctid
        FROM @extschema@.outbox o
        WHERE o.ctid = ANY (_move.ctids)
          -- As text, so that no partial index is scanned.
          AND o.state::text = 'scheduled'
          AND o.ambiguous_attempts = 0
          AND o.batch IS NULL
        FOR NO KEY UPDATE SKIP LOCKED
    );
    -- As in _claim_batch.
    locked := ARRAY(SELECT l.place FROM unnest(locked) l (place) INTERSECT SELECT c.place FROM unnest(ctids) c (place));
    UPDATE @extschema@.outbox o
    SET transport = _move.to_transport,
        -- Mail that is back at its own transport because the fallback is paused may fall back again.
        fallback_from = nullif(coalesce(o.fallback_from, o.transport), _move.to_transport COLLATE "C"),
        updated_at = _move.moment
    WHERE o.ctid = ANY (local.locked);
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN moved;
EXCEPTION
    WHEN OTHERS THEN
        alone := @extschema@._passes_by(SQLSTATE, ctids);
        IF alone IS NULL THEN
            RAISE;
        ELSIF alone THEN
            RETURN 0;
        END IF;
        RETURN (SELECT sum(@extschema@._move(ARRAY[u.place], to_transport, moment)) FROM unnest(ctids) u (place));
END;
$$;
COMMENT ON FUNCTION @extschema@._move(tid[], text, timestamptz) IS
    'Internal. Moves these rows to a fallback; leaves those that others hold, and those that cannot be changed. Returns how many were moved.';

-- Long because one statement finds the rows, judges them and says how far it looked.
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
    -- A sort that happens anyway has a high cost estimate, which would start JIT compilation.
    SET jit = off
AS $$
<<local>>
DECLARE
    -- Which rows stay depends on both transports.
    scan CONSTANT text := 'fallback ' || of_transport || ' ' || to_transport;
    is_sweep CONSTANT boolean := @extschema@._scan_begin(scan);
    -- Number of rows to look at in each priority: there may be any number that stay.
    row_limit CONSTANT integer := least(1000 + 2 * wanted::bigint, 1000000);
    refused_before CONSTANT bigint := @extschema@._refused();
    moved integer := 0;
    span record;
    seen record;
    stops boolean;
BEGIN
    FOR span IN SELECT r.part, r.after_send_at, r.after_id FROM @extschema@._due_ranges(scan, is_sweep, of_transport, false) r LOOP
        LOOP
            WITH looked AS MATERIALIZED (
                SELECT o.ctid AS place, o.send_at, o.id, o.kind, o.ambiguous_attempts, o.batch, o.fallback_from
                FROM @extschema@.outbox o
                WHERE o.state = 'scheduled'
                  AND o.transport = _fall_back_from.of_transport COLLATE "C"
                  AND o.priority = span.part
                  AND (o.send_at, o.id) > (span.after_send_at, span.after_id)
                  AND o.send_at <= _fall_back_from.moment
                ORDER BY o.priority, o.send_at, o.id
                LIMIT local.row_limit
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
                WHERE f.fallback = _fall_back_from.to_transport COLLATE "C"
                  AND f.fallback_after <= _fall_back_from.paused_for
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
                LIMIT _fall_back_from.wanted - local.moved
            ), counted AS (
                SELECT
                    (SELECT count(*) FROM chosen) = _fall_back_from.wanted - local.moved AS is_full,
                    (SELECT count(*) FROM looked) = local.row_limit AS is_cut_off
            )
            SELECT
                ARRAY(SELECT c.place FROM chosen c) AS places, n.is_full, n.is_full OR n.is_cut_off AS has_more, e.send_at, e.id
            INTO seen
            FROM counted n
            LEFT JOIN LATERAL (
                -- Up to the last chosen row if that is as many as wanted; else up to the last one.
                SELECT l.send_at, l.id
                FROM looked l
                WHERE NOT n.is_full
                   OR (l.send_at, l.id) <= (SELECT c.send_at, c.id FROM chosen c ORDER BY c.send_at DESC, c.id DESC LIMIT 1)
                ORDER BY l.send_at DESC, l.id DESC
                LIMIT 1
            ) e ON true;
            IF seen.places <> '{}' THEN
                moved := moved + @extschema@._move(seen.places, to_transport, moment);
            END IF;
            stops := @extschema@._refused() - refused_before >= 1000;
            span.after_send_at := CASE WHEN seen.has_more THEN seen.send_at ELSE moment END;
            span.after_id := CASE WHEN seen.has_more THEN seen.id ELSE 9223372036854775807 END;
            PERFORM @extschema@._scan_note(
                scan, span.part, span.after_send_at, span.after_id, seen.has_more AND (stops OR NOT seen.is_full)
            );
            -- Rows that cannot be changed stay, and others are needed.
            EXIT WHEN moved >= wanted OR stops OR NOT seen.is_full;
        END LOOP;
        EXIT WHEN moved >= wanted OR stops;
    END LOOP;
    PERFORM @extschema@._scan_end(scan);
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
<<local>>
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
        FROM unnest(_fall_back.from_transports, _fall_back.paused_for) WITH ORDINALITY f (name, paused_for, place)
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
        PERFORM @extschema@._mail_due(moment, false, false);
    END IF;
    RETURN moved;
END;
$$;
COMMENT ON FUNCTION @extschema@._fall_back(text, text[], interval[], integer) IS
    'Internal. Moves up to batch_limit due mails of paused transports to one that works, where the route of their kind names it as fallback and fallback_after has passed. Returns how many were moved; mail that may have been sent, and locked rows, stay.';
