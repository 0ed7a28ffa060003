-- Due mail: when messages become due, and who is told.
--
-- Every function that schedules, returns or claims mail calls _mail_due with the time at which it needs attention. With
-- a worker that takes no lock: the worker is told at COMMIT, sleeps until the earliest time, and notifies other
-- senders on the writers' behalf, unless it delivers all mail itself. Without one the transaction itself sends NOTIFY, and a sender asks mailroom_next_due
-- how long to wait.

CREATE FUNCTION @extschema@._mail_due(due timestamptz) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_mail_due_wrapper';
COMMENT ON FUNCTION @extschema@._mail_due(timestamptz) IS
    'Internal. At COMMIT, tells the worker of this database, or the sessions that listen on outbox_due, that a message becomes due or a claim expires at this time.';

CREATE FUNCTION @extschema@._announce_due(due timestamptz) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_announce_due_wrapper';
COMMENT ON FUNCTION @extschema@._announce_due(timestamptz) IS 'Internal. As _mail_due, but tells only the worker.';

CREATE FUNCTION @extschema@._urgent_mail_due() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_urgent_mail_due_wrapper';
COMMENT ON FUNCTION @extschema@._urgent_mail_due() IS
    'Internal. As _mail_due, says that the message that it announces is urgent: a paused transport is probed with it.';

CREATE FUNCTION @extschema@._mail_for_clients() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_mail_for_clients_wrapper';
COMMENT ON FUNCTION @extschema@._mail_for_clients() IS
    'Internal. Says of a message that _mail_due announces next that the worker does not have its transport: the worker tells the sessions that listen on outbox_due.';

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
        -- Row by row: these functions keep the earliest time, and an aggregate takes longer to start than they to run.
        PERFORM
            CASE
                WHEN n.transport <> ALL (ARRAY(
                    SELECT t.name::text FROM @extschema@.transports t WHERE starts_with(t.deliverer, 'mailroom worker/')
                ))
                THEN @extschema@._mail_for_clients()
            END,
            @extschema@._mail_due(n.send_at),
            CASE WHEN n.priority <= @extschema@._urgent_priority() AND n.send_at <= now() THEN @extschema@._urgent_mail_due() END
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
    -- lease. So if the search is expensive, it is made in a twentieth of the time only.
    IF @extschema@._walk_begin('next_lapse'::text) IS NULL THEN
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
    PERFORM @extschema@._walk_end('next_lapse'::text, NULL::bigint);
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
            @extschema@._next_lapse(moment)
        ),
        'infinity'
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._next_wake() IS
    'Internal. When, from now on, the next message of any transport becomes due or the next claim expires, or when to ask again; NULL for never.';

CREATE FUNCTION @extschema@._first_due(
    of_transport text,
    of_priority smallint,
    after_send_at timestamptz,
    after_id bigint,
    moment timestamptz
) RETURNS timestamptz
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET jit = off
AS $$
DECLARE
    looked record;
    held text[];
BEGIN
    SELECT array_agg(w.send_at) AS send_ats, array_agg(w.group_key) AS keys, bool_and(w.group_key IS NULL) AS single
    INTO looked
    FROM (
        SELECT o.send_at, o.group_key
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.transport = _first_due.of_transport COLLATE "C"
          AND o.priority = _first_due.of_priority
          AND (o.send_at, o.id) > (_first_due.after_send_at, _first_due.after_id)
          AND o.send_at <= _first_due.moment
        ORDER BY o.priority, o.send_at, o.id
        LIMIT 100
    ) w;
    IF looked.single IS NOT FALSE THEN
        RETURN looked.send_ats[1];
    END IF;
    held := @extschema@._held_groups(looked.keys, moment);
    RETURN coalesce(
        (
            SELECT min(u.send_at)
            FROM unnest(looked.send_ats, looked.keys) u (send_at, group_key)
            WHERE u.group_key IS NULL OR u.group_key <> ALL (held)
        ),
        -- There are more rows after these.
        CASE WHEN cardinality(looked.keys) = 100 THEN moment END
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._first_due(text, smallint, timestamptz, bigint, timestamptz) IS
    'Internal. Since when the first mail after this position is due, of this transport and priority and not in a held group; NULL if there is none.';

CREATE FUNCTION @extschema@._transports(named text[]) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
    -- A caller that sets enable_sort makes the sort look dear enough for JIT compilation.
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

-- Long because claims, due mail and later mail are asked for in turn, and the first answer ends it.
CREATE FUNCTION @extschema@.mailroom_next_due(transports text[] DEFAULT NULL) RETURNS timestamptz
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_sort = off
    SET jit = off
AS $$
<<local>>
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    of_transport text;
    sweep boolean;
    span record;
    due timestamptz;
    later timestamptz;
    wake timestamptz;
BEGIN
    -- Expired claims, from this session's position.
    SELECT o.claimed_until
    INTO due
    FROM @extschema@.outbox o
    WHERE o.state = 'claimed'
      AND o.claimed_until > @extschema@._leases_from()
      AND o.claimed_until <= local.moment
    ORDER BY o.claimed_until
    LIMIT 1;
    IF FOUND THEN
        RETURN due;
    END IF;
    FOREACH of_transport IN ARRAY @extschema@._transports(transports) LOOP
        sweep := @extschema@._due_may_sweep(of_transport, false);
        FOR span IN
            SELECT s.priority, s.send_at, s.id, f.send_at AS first, f.group_key
            FROM (
                SELECT l.priority, l.send_at, l.id FROM @extschema@._due_priorities(of_transport, false, false) l WHERE sweep
                UNION ALL
                SELECT p.priority, p.send_at, p.id FROM @extschema@._due_positions(of_transport, false) p WHERE NOT sweep
            ) s
            CROSS JOIN LATERAL (
                SELECT o.send_at, o.group_key
                FROM @extschema@.outbox o
                WHERE o.state = 'scheduled'
                  AND o.transport = local.of_transport COLLATE "C"
                  AND o.priority = s.priority
                  AND (o.send_at, o.id) > (s.send_at, s.id)
                ORDER BY o.priority, o.send_at, o.id
                LIMIT 1
            ) f
        LOOP
            IF span.first > moment THEN
                wake := least(wake, span.first);
                CONTINUE;
            END IF;
            due := CASE
                WHEN span.group_key IS NULL THEN span.first
                ELSE @extschema@._first_due(of_transport, span.priority, span.send_at, span.id, moment)
            END;
            IF due IS NOT NULL THEN
                -- Another mail may have been due for longer, but one is enough.
                RETURN due;
            END IF;
            -- The groups of all that is due are held.
            SELECT o.send_at
            INTO later
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = local.of_transport COLLATE "C"
              AND o.priority = span.priority
              AND o.send_at > local.moment
            ORDER BY o.priority, o.send_at, o.id
            LIMIT 1;
            wake := least(wake, later);
        END LOOP;
        IF NOT sweep THEN
            -- Claims find what is before the positions, piece by piece.
            wake := least(wake, moment + interval '200 ms');
        END IF;
    END LOOP;
    RETURN nullif(least(wake, @extschema@._next_lapse(moment)), 'infinity');
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_next_due(text[]) IS
    'Returns when to call mailroom_claim next with these transports (default: mail that clients deliver): a past time if mail is due, NULL if there is nothing to wait for. Senders that wait also LISTEN on outbox_due.';
