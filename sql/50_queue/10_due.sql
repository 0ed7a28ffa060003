-- Due mail: when messages become due, and who is told.
--
-- Every function that schedules, returns or claims mail calls _mail_due with the time at which it needs attention. With
-- a worker that takes no lock: the worker is told at COMMIT, sleeps until the earliest time, and notifies other
-- senders on the writers' behalf, unless it delivers all mail itself. Without one the transaction itself sends NOTIFY, and a sender asks mailroom_next_due
-- how long to wait.

CREATE FUNCTION @extschema@._mail_due(due timestamptz, is_urgent boolean, is_for_clients boolean) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_mail_due_wrapper';
COMMENT ON FUNCTION @extschema@._mail_due(timestamptz, boolean, boolean) IS
    'Internal. At COMMIT, tells the worker of this database, or the sessions that listen on outbox_due, that a message becomes due or a claim expires at this time; whether it is urgent, so that a paused transport is probed with it, and whether the worker does not have its transport.';

CREATE FUNCTION @extschema@._announce_due(due timestamptz) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_announce_due_wrapper';
COMMENT ON FUNCTION @extschema@._announce_due(timestamptz) IS 'Internal. As _mail_due, but tells only the worker.';

-- Rows that were scheduled for later, or postponed. Most mail is due when it is inserted and never enters this index,
-- so a search from now on skips no dead entries.
CREATE INDEX outbox_timer ON @extschema@.outbox (send_at) WHERE state = 'scheduled' AND send_at > created_at;

CREATE FUNCTION @extschema@._outbox_announce() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- As in _accounts_issue_activation.
    IF NOT @extschema@._is_restoring() THEN
        -- Row by row: the function keeps the earliest time, and an aggregate takes longer to start than it to run.
        PERFORM @extschema@._mail_due(
            n.send_at,
            n.priority <= @extschema@._urgent_priority() AND n.send_at <= now(),
            n.transport <> ALL (ARRAY(
                SELECT t.name::text FROM @extschema@.transports t WHERE starts_with(t.deliverer, 'mailroom worker/')
            ))
        )
        FROM new_mail n
        WHERE n.state = 'scheduled';
    END IF;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._outbox_announce() IS 'Internal. Announces new mail of all writers.';

CREATE TRIGGER outbox_announce
    AFTER INSERT ON @extschema@.outbox
    REFERENCING NEW TABLE AS new_mail
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._outbox_announce();
-- Mail that a trigger inserts in an apply worker is announced too.
ALTER TABLE @extschema@.outbox ENABLE ALWAYS TRIGGER outbox_announce;

CREATE FUNCTION @extschema@._next_lapse(moment timestamptz) RETURNS timestamptz
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    lapse timestamptz;
BEGIN
    -- While a session holds an old snapshot, there may be an entry for each mail that was settled within the time of a
    -- lease. So the search is a sweep of its own.
    IF @extschema@._scan_begin('next lapse'::text) THEN
        SELECT o.claimed_until
        INTO lapse
        FROM @extschema@.outbox o
        WHERE o.state = 'claimed'
          AND o.claimed_until > _next_lapse.moment
        ORDER BY o.claimed_until
        LIMIT 1;
    ELSE
        lapse := moment + interval '1 s';
    END IF;
    PERFORM @extschema@._scan_end('next lapse'::text);
    RETURN lapse;
END;
$$;
COMMENT ON FUNCTION @extschema@._next_lapse(timestamptz) IS
    'Internal. When the next claim expires after this time, or when to ask again; NULL if there is none.';

CREATE FUNCTION @extschema@._next_wake() RETURNS timestamptz
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    -- A variable, because an index is not used for a comparison with a volatile function.
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    RETURN nullif(
        least(
            (
                SELECT o.send_at
                FROM @extschema@.outbox o
                WHERE o.state = 'scheduled'
                  AND o.send_at > o.created_at
                  AND o.send_at > local.moment
                ORDER BY o.send_at
                LIMIT 1
            ),
            @extschema@._next_lapse(local.moment)
        ),
        'infinity'
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._next_wake() IS
    'Internal. When, from now on, the next message of any transport becomes due or the next claim expires, or when to ask again; NULL for never.';

CREATE FUNCTION @extschema@._transports(named text[]) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
    -- A caller that sets enable_sort makes the sort look expensive enough for JIT compilation.
    SET jit = off
AS $$
BEGIN
    RETURN CASE
        WHEN named IS NULL THEN ARRAY['']
        ELSE ARRAY(
            SELECT u.name
            FROM unnest(named) WITH ORDINALITY u (name, place)
            WHERE u.name IS NOT NULL
            GROUP BY u.name
            ORDER BY min(u.place)
        )
    END;
END;
$$;
COMMENT ON FUNCTION @extschema@._transports(text[]) IS
    'Internal. The transports to claim from, each once, in the order given; for NULL the empty name, whose mail clients deliver.';

-- Long because claims, due mail and later mail are asked for in turn.
CREATE FUNCTION @extschema@.mailroom_next_due(transports text[] DEFAULT NULL) RETURNS timestamptz
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
    moment CONSTANT timestamptz := clock_timestamp();
    start record;
    of_transport text;
    scan text;
    is_sweep boolean;
    span record;
    seen record;
    busy text[];
    due timestamptz;
    later timestamptz;
    wake timestamptz;
    rest double precision;
BEGIN
    -- Expired claims, from this session's position.
    SELECT s.at, s.id INTO start FROM @extschema@._scan_start('leases'::text, 0::smallint) s;
    SELECT o.claimed_until
    INTO due
    FROM @extschema@.outbox o
    WHERE o.state = 'claimed'
      AND (o.claimed_until, o.id) > (start.at, start.id)
      AND o.claimed_until <= local.moment
    ORDER BY o.claimed_until, o.id
    LIMIT 1;
    FOREACH of_transport IN ARRAY @extschema@._transports(transports) LOOP
        EXIT WHEN due IS NOT NULL;
        scan := 'due ' || of_transport;
        is_sweep := @extschema@._scan_begin(scan);
        FOR span IN SELECT r.part, r.after_send_at, r.after_id FROM @extschema@._due_ranges(scan, is_sweep, of_transport, false) r LOOP
            SELECT l.*
            INTO seen
            FROM @extschema@._look_at_due(of_transport, false, span.part, span.after_send_at, span.after_id, moment, 100::bigint) l;
            busy := @extschema@._busy_groups(seen.group_keys, moment);
            due := coalesce(
                (
                    SELECT min(u.send_at)
                    FROM unnest(seen.send_ats, seen.group_keys) u (send_at, group_key)
                    WHERE u.group_key IS NULL OR u.group_key <> ALL (busy)
                ),
                -- There are more rows after these.
                CASE WHEN seen.looked = 100 THEN moment END
            );
            -- Another mail may have been due for longer, but one is enough.
            EXIT WHEN due IS NOT NULL;
            SELECT o.send_at
            INTO later
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = local.of_transport COLLATE "C"
              AND o.priority = span.part
              AND o.send_at > local.moment
            ORDER BY o.priority, o.send_at, o.id
            LIMIT 1;
            wake := least(wake, later);
        END LOOP;
        rest := @extschema@._scan_end(scan);
        IF NOT is_sweep THEN
            -- There may be rows before the positions.
            wake := least(wake, moment + make_interval(secs => greatest(0.1, rest)));
        END IF;
    END LOOP;
    RETURN coalesce(due, nullif(least(wake, @extschema@._next_lapse(moment)), 'infinity'));
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_next_due(text[]) IS
    'Returns when to call mailroom_claim next with these transports (default: mail that clients deliver): a past time if mail is due, NULL if there is nothing to wait for. Senders that wait also LISTEN on outbox_due. Due mail that mailroom_claim does not return is locked by others: wait a second.';
