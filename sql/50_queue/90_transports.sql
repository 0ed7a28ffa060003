-- Transports at work: mail that waits for one goes to another, and deliverers publish what they have.
--
-- mailroom_admin moves all mail of a transport (mailroom_reroute); a deliverer moves what routes allow it to, while a
-- transport is paused (_fall_back). Invariants: a row that another transaction holds stays, and is not waited for
-- (I3); what may have been sent through one transport never goes to another by itself (I2).

CREATE VIEW @extschema@.mailroom_transports AS
SELECT
    t.name::text AS name, t.provider, t.deliverer, t.state, t.reason, t.since, t.next_probe_at, t.ambiguous, t.allow_from
FROM @extschema@.transports t;
COMMENT ON VIEW @extschema@.mailroom_transports IS
    'The transports of each deliverer: in which state, why and since when, when a paused one is tried next, and how many messages may have been sent without the provider saying so. As each deliverer published it last; a worker that starts removes what earlier workers of its database left.';

CREATE FUNCTION @extschema@._publish_transports(deliverer text, transports jsonb, problem text DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF jsonb_typeof(transports) IS DISTINCT FROM 'array' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'transports is not a JSON array',
            HINT = 'Pass an array of objects with name, provider, allow_from, state, reason, next_probe_at and ambiguous.';
    END IF;
    IF transports = '[]' AND problem IS NULL THEN
        DELETE FROM @extschema@.deliverers d WHERE d.name = deliverer;
    ELSE
        INSERT INTO @extschema@.deliverers (name, transports_error)
        VALUES (deliverer, problem)
        ON CONFLICT ON CONSTRAINT deliverers_pkey DO UPDATE
            SET transports_error = EXCLUDED.transports_error,
                updated_at = clock_timestamp();
    END IF;
    DELETE FROM @extschema@.transports t
    WHERE t.deliverer = _publish_transports.deliverer
      AND t.name <> ALL (ARRAY(SELECT e.name FROM jsonb_to_recordset(_publish_transports.transports) e (name text) WHERE e.name IS NOT NULL));
    INSERT INTO @extschema@.transports AS t (deliverer, name, provider, allow_from, state, reason, since, next_probe_at, ambiguous, updated_at)
    SELECT
        _publish_transports.deliverer, e.name, e.provider, coalesce(e.allow_from, '{}'), coalesce(e.state, 'healthy'), e.reason,
        clock_timestamp(), to_timestamp(e.next_probe_at), coalesce(e.ambiguous, 0), clock_timestamp()
    FROM jsonb_to_recordset(_publish_transports.transports) e (
        name text, provider text, allow_from text[], state @extschema@.transport_state, reason text,
        next_probe_at double precision, ambiguous bigint
    )
    ON CONFLICT ON CONSTRAINT transports_pkey DO UPDATE
        SET provider = EXCLUDED.provider,
            allow_from = EXCLUDED.allow_from,
            state = EXCLUDED.state,
            reason = EXCLUDED.reason,
            since = CASE t.state WHEN EXCLUDED.state THEN t.since ELSE EXCLUDED.since END,
            next_probe_at = EXCLUDED.next_probe_at,
            ambiguous = EXCLUDED.ambiguous,
            updated_at = EXCLUDED.updated_at;
END;
$$;
COMMENT ON FUNCTION @extschema@._publish_transports(text, jsonb, text) IS
    'Internal. Makes these the transports that a deliverer has: an array of objects with name, provider, allow_from, state, reason, next_probe_at in epoch seconds, and ambiguous; an empty one withdraws them all, unless there is a problem with its transports file to be told. Errors: 22023 unless it is an array; those of the table transports.';

CREATE FUNCTION @extschema@.mailroom_reroute(from_transport text, to_transport text) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
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
            -- It may have been one when the mail was written.
            OR EXISTS (SELECT FROM @extschema@.outbox o WHERE o.state = 'scheduled' AND o.transport = from_transport COLLATE "C")
        ) THEN coalesce(from_transport, 'null')
    END;
    IF unknown IS NOT NULL THEN
        RAISE invalid_parameter_value USING
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
          AND o.transport = from_transport COLLATE "C"
        FOR UPDATE SKIP LOCKED
    ), changed AS (
        UPDATE @extschema@.outbox o
        SET transport = to_transport,
            updated_at = clock_timestamp()
        WHERE o.ctid = ANY (ARRAY(SELECT l.place FROM locked l))
        RETURNING o.send_at
    )
    SELECT count(*), min(c.send_at) INTO moved, earliest FROM changed c;
    PERFORM @extschema@._mail_due(earliest);
    RETURN moved;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_reroute(text, text) IS
    'Has another transport deliver what is scheduled for one, announces it, and returns how many mails were moved; leaves out what another transaction holds just now, without waiting, and what is claimed. Errors: 22023 unless both are known, or empty for clients, and differ.';

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
    -- Where something is sorted all the same, that counts as dear.
    SET jit = off
AS $$
DECLARE
    -- Rows looked at in one call: those that stay may be any number.
    patience integer := least(1000 + 2 * wanted::bigint, 1000000);
    moved integer := 0;
    lane integer;
    after_send_at timestamptz;
    after_id bigint;
    seen record;
BEGIN
    -- From where this session's last call ended.
    SELECT c.priority, c.send_at, c.id INTO lane, after_send_at, after_id FROM @extschema@._fallback_cursor(of_transport) c;
    LOOP
        IF after_id IS NULL THEN
            SELECT o.priority, '-infinity'::timestamptz, 0::bigint
            INTO lane, after_send_at, after_id
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = of_transport COLLATE "C"
              AND o.priority > coalesce(lane, -32769)
            ORDER BY o.priority, o.send_at, o.id
            LIMIT 1;
            EXIT WHEN NOT FOUND;
        END IF;
        WITH looked AS MATERIALIZED (
            SELECT o.ctid AS place, o.send_at, o.id, o.kind, o.ambiguous_attempts, o.batch
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = of_transport COLLATE "C"
              AND o.priority = lane
              AND (o.send_at, o.id) > (after_send_at, after_id)
              AND o.send_at <= moment
            ORDER BY o.priority, o.send_at, o.id
            LIMIT patience
        ), carried AS MATERIALIZED (
            SELECT k.kind
            FROM (SELECT DISTINCT l.kind FROM looked l) k
            CROSS JOIN LATERAL (
                SELECT r.fallback, r.fallback_after
                FROM @extschema@.routes r
                WHERE r.transport = of_transport COLLATE "C"
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
            -- What may have been sent is not sent by another: what was ambiguous, what is to be asked for again in the
            -- same request, and what was in the hands of a deliverer that died.
            WHERE l.ambiguous_attempts = 0
              AND l.batch IS NULL
              AND NOT EXISTS (
                  SELECT
                  FROM @extschema@.outbox_attempts a
                  WHERE a.outbox_id = l.id
                    AND a.outcome IN ('ambiguous', 'lease_expired')
              )
            ORDER BY l.send_at, l.id
            LIMIT wanted - moved
        ), locked AS MATERIALIZED (
            SELECT o.ctid AS place
            FROM @extschema@.outbox o
            WHERE o.ctid = ANY (ARRAY(SELECT c.place FROM chosen c))
              AND o.state = 'scheduled'
              AND o.ambiguous_attempts = 0
              AND o.batch IS NULL
            FOR UPDATE SKIP LOCKED
        ), changed AS (
            UPDATE @extschema@.outbox o
            SET transport = to_transport,
                updated_at = moment
            WHERE o.ctid = ANY (ARRAY(SELECT l.place FROM locked l))
            RETURNING o.id
        ), came_to AS (
            -- Up to the last one that was chosen, if that is as many as wanted; else up to the last one.
            (SELECT c.send_at, c.id FROM chosen c WHERE (SELECT count(*) FROM chosen) = wanted - moved ORDER BY c.send_at DESC, c.id DESC LIMIT 1)
            UNION ALL
            (SELECT l.send_at, l.id FROM looked l WHERE (SELECT count(*) FROM chosen) < wanted - moved ORDER BY l.send_at DESC, l.id DESC LIMIT 1)
        )
        SELECT (SELECT count(*) FROM changed)::integer AS moved, (SELECT count(*) FROM looked)::integer AS looked, t.send_at, t.id
        INTO seen
        FROM (SELECT) one
        LEFT JOIN came_to t ON true;
        moved := moved + seen.moved;
        after_send_at := seen.send_at;
        after_id := seen.id;
        IF moved < wanted AND seen.looked < patience THEN
            -- All of this priority.
            after_id := NULL;
        END IF;
        patience := patience - seen.looked;
        EXIT WHEN moved >= wanted OR patience <= 0;
    END LOOP;
    -- The next call begins at the beginning if this one came to the end.
    PERFORM @extschema@._fallback_note(of_transport, CASE WHEN after_id IS NOT NULL THEN lane::smallint END, after_send_at, after_id);
    RETURN moved;
END;
$$;
COMMENT ON FUNCTION @extschema@._fall_back_from(text, text, interval, integer, timestamptz) IS
    'Internal. Moves up to so many due rows of one transport that has been paused for that long to another, as far as routes allow it; looks at a bounded number of rows, from where the last call of this session ended. Returns how many were moved.';

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
              AND r.fallback = to_transport COLLATE "C"
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
    'Internal. Moves up to batch_limit due mails of transports that have been paused for so long to one that works, transport by transport in the order of claims, where the first route of their transport that matches their kind names that one as its fallback and has waited fallback_after; never mail that may have been sent, nor what another transaction holds. Returns how many were moved; error: 22023 for a batch_limit below 1.';
