-- Transports: what each deliverer can deliver through, and in which state it is.
--
-- A deliverer (the worker, or each mailroom send) publishes its transports; scheduling checks names against them,
-- people read mailroom_transports. Invariants: the rows of a deliverer are what it published last; those of one that is
-- gone are removed, by the next worker or by a purge. Only functions write them, so that no sender can lock the tables.

CREATE TYPE @extschema@.transport_state AS ENUM ('healthy', 'slowed', 'throttled', 'paused');
COMMENT ON TYPE @extschema@.transport_state IS
    'healthy: it takes mail at full rate; slowed: at a lower rate, which increases; throttled: it waits as the provider asked; paused: it sends only probes.';

CREATE TABLE @extschema@.transports (
    deliverer text,
    name @extschema@._transport,
    provider text NOT NULL,
    allow_from text[] NOT NULL DEFAULT '{}',
    max_message_size bigint,
    state @extschema@.transport_state NOT NULL DEFAULT 'healthy',
    reason text,
    since timestamptz NOT NULL DEFAULT now(),
    next_probe_at timestamptz,
    ambiguous bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT transports_pkey PRIMARY KEY (name, deliverer),
    CONSTRAINT transports_deliverer_must_not_be_empty CHECK (deliverer <> ''),
    CONSTRAINT transports_name_must_not_be_empty CHECK (name <> ''),
    CONSTRAINT transports_ambiguous_must_not_be_negative CHECK (ambiguous >= 0)
) WITH (fillfactor = 50);
COMMENT ON TABLE @extschema@.transports IS
    'The transports of each deliverer, as it published them last. See mailroom_transports.';
COMMENT ON COLUMN @extschema@.transports.deliverer IS 'The claimant that delivers through it.';
COMMENT ON COLUMN @extschema@.transports.provider IS 'The provider, as in the transports file.';
COMMENT ON COLUMN @extschema@.transports.allow_from IS
    'Sender addresses, or *@ and a domain, that from_address of a mail may have; by default the address of its own sender.';
COMMENT ON COLUMN @extschema@.transports.max_message_size IS
    'Octets that a mail may have as it is sent, encoded; NULL if no limit is known.';
COMMENT ON COLUMN @extschema@.transports.reason IS 'Why it is in that state; NULL while it is healthy.';
COMMENT ON COLUMN @extschema@.transports.since IS 'Since when it is in that state.';
COMMENT ON COLUMN @extschema@.transports.next_probe_at IS 'When the next probe is sent, if it waits.';
COMMENT ON COLUMN @extschema@.transports.ambiguous IS
    'Messages that may have been sent without a confirmation by the provider, since the deliverer started.';
COMMENT ON COLUMN @extschema@.transports.updated_at IS 'When its deliverer published it last.';

CREATE TABLE @extschema@.deliverers (
    name text,
    transports_error text,
    published_by name NOT NULL DEFAULT session_user,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT deliverers_pkey PRIMARY KEY (name),
    CONSTRAINT deliverers_name_must_not_be_empty CHECK (name <> '')
) WITH (fillfactor = 50);
COMMENT ON TABLE @extschema@.deliverers IS 'The deliverers: the worker of this database, and each mailroom send.';
COMMENT ON COLUMN @extschema@.deliverers.name IS 'The claimant.';
COMMENT ON COLUMN @extschema@.deliverers.transports_error IS
    'The error in its transports file, which keeps the earlier transports in force; NULL if there is none.';
COMMENT ON COLUMN @extschema@.deliverers.published_by IS 'The role that it logs in as; no other may publish for it.';
COMMENT ON COLUMN @extschema@.deliverers.updated_at IS 'When it published this last.';

CREATE VIEW @extschema@.mailroom_transports AS
SELECT
    t.name::text AS name, t.provider, t.deliverer, t.state, t.reason, t.since, t.next_probe_at, t.ambiguous, t.allow_from, t.max_message_size
FROM @extschema@.transports t;
COMMENT ON VIEW @extschema@.mailroom_transports IS
    'The transports of each deliverer, with state, reason and next probe, as the deliverer published them last.';

-- Long because it writes two tables, column by column.
CREATE FUNCTION @extschema@._publish_transports(deliverer text, transports jsonb, problem text DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    is_empty CONSTANT boolean := transports = '[]' AND problem IS NULL;
BEGIN
    IF starts_with(deliverer, 'mailroom worker/') AND NOT pg_has_role(session_user, 'mailroom_collector', 'MEMBER') THEN
        RAISE insufficient_privilege USING
            MESSAGE = 'permission denied to publish the transports of the worker',
            DETAIL = format('The deliverer is "%s".', deliverer),
            HINT = 'Use another name for the deliverer.';
    END IF;
    IF jsonb_typeof(transports) IS DISTINCT FROM 'array' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'transports must be a JSON array',
            DETAIL = format('It is %s.', coalesce('a JSON ' || jsonb_typeof(transports), 'NULL')),
            HINT = 'Pass an array of objects with name, provider, allow_from, max_message_size, state, reason, next_probe_at and ambiguous.';
    END IF;
    IF is_empty THEN
        DELETE FROM @extschema@.deliverers d
        WHERE d.name = _publish_transports.deliverer
          AND d.published_by = session_user;
    ELSE
        -- One statement, because another role may be publishing the same name.
        INSERT INTO @extschema@.deliverers AS d (name, transports_error)
        VALUES (deliverer, problem)
        ON CONFLICT ON CONSTRAINT deliverers_pkey DO UPDATE
            SET transports_error = EXCLUDED.transports_error,
                updated_at = clock_timestamp()
            WHERE d.published_by = session_user;
    END IF;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM @extschema@.deliverers d WHERE d.name = _publish_transports.deliverer) THEN
            RAISE insufficient_privilege USING
                MESSAGE = 'permission denied to publish the transports of another role',
                DETAIL = format('The deliverer is "%s".', deliverer),
                HINT = 'Use another name for the deliverer.';
        END IF;
        RETURN;
    END IF;
    DELETE FROM @extschema@.transports t
    WHERE t.deliverer = _publish_transports.deliverer
      AND t.name <> ALL (ARRAY(SELECT e.name FROM jsonb_to_recordset(_publish_transports.transports) e (name text) WHERE e.name IS NOT NULL));
    INSERT INTO @extschema@.transports AS t (deliverer, name, provider, allow_from, max_message_size, state, reason, since, next_probe_at, ambiguous, updated_at)
    SELECT
        _publish_transports.deliverer, e.name, e.provider, coalesce(e.allow_from, '{}'), e.max_message_size, coalesce(e.state, 'healthy'), e.reason,
        clock_timestamp(), to_timestamp(e.next_probe_at), coalesce(e.ambiguous, 0), clock_timestamp()
    FROM jsonb_to_recordset(_publish_transports.transports) e (
        name text, provider text, allow_from text[], max_message_size bigint, state @extschema@.transport_state, reason text,
        next_probe_at double precision, ambiguous bigint
    )
    ON CONFLICT ON CONSTRAINT transports_pkey DO UPDATE
        SET provider = EXCLUDED.provider,
            allow_from = EXCLUDED.allow_from,
            max_message_size = EXCLUDED.max_message_size,
            state = EXCLUDED.state,
            reason = EXCLUDED.reason,
            since = CASE t.state WHEN EXCLUDED.state THEN t.since ELSE EXCLUDED.since END,
            next_probe_at = EXCLUDED.next_probe_at,
            ambiguous = EXCLUDED.ambiguous,
            updated_at = EXCLUDED.updated_at;
END;
$$;
COMMENT ON FUNCTION @extschema@._publish_transports(text, jsonb, text) IS
    'Internal. Replaces the transports of a deliverer by an array of objects with name, provider, allow_from, max_message_size, state, reason, next_probe_at (epoch seconds) and ambiguous. An empty array removes the deliverer, unless its transports file has a problem.';

CREATE FUNCTION @extschema@._forget_workers() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM @extschema@.transports t WHERE starts_with(t.deliverer, 'mailroom worker/');
    DELETE FROM @extschema@.deliverers d WHERE starts_with(d.name, 'mailroom worker/');
END;
$$;
COMMENT ON FUNCTION @extschema@._forget_workers() IS 'Internal. Removes the transports of all workers of this database.';

CREATE FUNCTION @extschema@._forget_deliverers() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
<<local>>
DECLARE
    -- Deliverers publish every ten minutes.
    horizon CONSTANT timestamptz := clock_timestamp() - interval '1 hour';
    -- That the worker is there is known without it; the session id in its name ends with its process id.
    worker CONSTANT text := (SELECT '.' || to_hex(w.pid) FROM @extschema@._worker_report() w);
BEGIN
    DELETE FROM @extschema@.deliverers d
    WHERE d.ctid = ANY (ARRAY(
        SELECT f.ctid
        FROM @extschema@.deliverers f
        WHERE f.updated_at < local.horizon
          AND (starts_with(f.name, 'mailroom worker/') AND right(f.name, length(local.worker)) = local.worker) IS NOT TRUE
        FOR UPDATE SKIP LOCKED
    ));
    DELETE FROM @extschema@.transports t
    WHERE t.ctid = ANY (ARRAY(
        SELECT f.ctid
        FROM @extschema@.transports f
        WHERE f.updated_at < local.horizon
          AND NOT EXISTS (SELECT FROM @extschema@.deliverers d WHERE d.name = f.deliverer)
        FOR UPDATE SKIP LOCKED
    ));
END;
$$;
COMMENT ON FUNCTION @extschema@._forget_deliverers() IS
    'Internal. Removes the deliverers that have published nothing for an hour, except the worker of this database, and their transports.';

CREATE FUNCTION @extschema@._others_deliver(own_transports text[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    -- A variable, as in _next_wake.
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    IF own_transports = '{}' OR EXISTS (
        SELECT FROM @extschema@.deliverers d WHERE NOT starts_with(d.name, 'mailroom worker/')
    ) THEN
        RETURN true;
    END IF;
    IF own_transports IS NULL THEN
        RETURN NULL;
    END IF;
    -- From the end: dead entries of what was claimed are at the beginning.
    RETURN (
            SELECT true
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = ''
            ORDER BY o.priority DESC, o.send_at DESC, o.id DESC
            LIMIT 1
        ) IS NOT NULL
        OR EXISTS (
            -- Between the names of the worker's transports, whose mail may be any number of rows; ~ is after any name.
            SELECT
            FROM (
                SELECT
                    u.name COLLATE "C" AS low,
                    lead(u.name, 1, '~') OVER (ORDER BY u.name COLLATE "C") COLLATE "C" AS high
                FROM unnest(own_transports || ''::text) u (name)
            ) g
            CROSS JOIN LATERAL (
                SELECT
                FROM @extschema@.outbox o
                WHERE o.state = 'scheduled'
                  AND o.transport > g.low
                  AND o.transport < g.high
                LIMIT 1
            ) w
        )
        OR EXISTS (
            -- Claims that have expired were taken back before.
            SELECT
            FROM @extschema@.outbox o
            WHERE o.state = 'claimed'
              AND o.claimed_until > local.moment
              AND o.transport <> ALL (_others_deliver.own_transports)
        );
END;
$$;
COMMENT ON FUNCTION @extschema@._others_deliver(text[]) IS
    'Internal. Whether there are senders besides a worker with these transports: other deliverers, or clients, for mail of other transports is still to be sent. NULL if no transports are given, and there are no other deliverers: clients were not searched for.';
