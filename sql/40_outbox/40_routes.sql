-- Routes: which transport delivers which mail.
--
-- mailroom_admin writes routes; the deliverers write deliverers and transports (49_transports.sql), each what it has. Invariants: the
-- transport of a mail is resolved once, when its row is written, by one rule (_route), for
-- every writer; a changed route concerns later rows only.

CREATE TABLE @extschema@.routes (
    position integer,
    kind_pattern text COLLATE "C" NOT NULL,
    transport @extschema@._transport NOT NULL,
    fallback @extschema@._transport,
    fallback_after interval NOT NULL DEFAULT '30 s',
    CONSTRAINT routes_pkey PRIMARY KEY (position),
    CONSTRAINT routes_kind_pattern_must_not_be_empty CHECK (kind_pattern <> ''),
    -- LIKE would refuse it, and with it each mail.
    CONSTRAINT routes_kind_pattern_must_not_end_with_its_escape CHECK (kind_pattern !~ E'(^|[^\\\\])(\\\\\\\\)*\\\\$'),
    CONSTRAINT routes_transport_must_not_be_empty CHECK (transport <> ''),
    CONSTRAINT routes_fallback_must_not_be_empty CHECK (fallback <> ''),
    CONSTRAINT routes_fallback_must_be_another_transport CHECK (fallback <> transport),
    CONSTRAINT routes_fallback_after_must_not_be_negative CHECK (fallback_after >= interval '0')
);
COMMENT ON TABLE @extschema@.routes IS
    'Which transport delivers mail of which kind: the first row by position whose kind_pattern matches. A changed route concerns later mail; mailroom_reroute moves mail that waits.';
COMMENT ON COLUMN @extschema@.routes.position IS 'Smaller comes first.';
COMMENT ON COLUMN @extschema@.routes.kind_pattern IS 'A pattern for outbox.kind as of LIKE: % matches all.';
COMMENT ON COLUMN @extschema@.routes.transport IS 'The transport of new mail of such a kind that does not name its own.';
COMMENT ON COLUMN @extschema@.routes.fallback IS
    'The transport that takes mail over whose transport is paused; NULL for none. Never mail that may have been sent already.';
COMMENT ON COLUMN @extschema@.routes.fallback_after IS 'For how long the transport must have been paused before that.';

CREATE TYPE @extschema@.transport_state AS ENUM ('healthy', 'slowed', 'throttled', 'paused');
COMMENT ON TYPE @extschema@.transport_state IS
    'healthy: it takes mail at full rate; slowed: at a lower rate, which grows; throttled: it waits as the provider asked; paused: it sends a probe now and then.';

CREATE TABLE @extschema@.transports (
    deliverer text,
    name @extschema@._transport,
    provider text NOT NULL,
    allow_from text[] NOT NULL DEFAULT '{}',
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
    'What each deliverer has for transports, as it published them last. See mailroom_transports.';
COMMENT ON COLUMN @extschema@.transports.deliverer IS 'The claimant that delivers through it.';
COMMENT ON COLUMN @extschema@.transports.provider IS 'Who runs it, as in the transports file.';
COMMENT ON COLUMN @extschema@.transports.allow_from IS 'The addresses, or patterns of them, that it may send from; empty for its own alone.';
COMMENT ON COLUMN @extschema@.transports.reason IS 'Why it is in that state; NULL while it is healthy.';
COMMENT ON COLUMN @extschema@.transports.since IS 'Since when it is in that state.';
COMMENT ON COLUMN @extschema@.transports.next_probe_at IS 'When the next message is tried through it, if it waits.';
COMMENT ON COLUMN @extschema@.transports.ambiguous IS
    'Messages that may have been sent without the provider saying so, since the deliverer started.';
COMMENT ON COLUMN @extschema@.transports.updated_at IS 'When its deliverer published it last.';

CREATE TABLE @extschema@.deliverers (
    name text,
    transports_error text,
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT deliverers_pkey PRIMARY KEY (name),
    CONSTRAINT deliverers_name_must_not_be_empty CHECK (name <> '')
) WITH (fillfactor = 50);
COMMENT ON TABLE @extschema@.deliverers IS 'Who delivers: the worker of this database, and each mailroom send.';
COMMENT ON COLUMN @extschema@.deliverers.name IS 'The claimant.';
COMMENT ON COLUMN @extschema@.deliverers.transports_error IS
    'What is wrong with its transports file, so that the transports that were read before are in force; NULL for nothing.';
COMMENT ON COLUMN @extschema@.deliverers.updated_at IS 'When it published this last.';

CREATE FUNCTION @extschema@._route(kind text) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce(
        (
            SELECT r.transport
            FROM @extschema@.routes r
            WHERE _route.kind LIKE r.kind_pattern COLLATE "C"
            ORDER BY r.position
            LIMIT 1
        ),
        @extschema@._default_transport()
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._route(text) IS
    'Internal. The transport of new mail of a kind: that of the first route which matches, else mailroom.transport.';

CREATE FUNCTION @extschema@._knows_transport(wanted text) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- One question after the other: it is asked for each row of a bulk, and the first answer is enough.
    IF wanted COLLATE "C" IN ('', @extschema@._default_transport()) THEN
        RETURN true;
    END IF;
    PERFORM FROM @extschema@.routes r WHERE r.transport = wanted COLLATE "C" OR r.fallback = wanted COLLATE "C" LIMIT 1;
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM @extschema@.transports t WHERE t.name = wanted COLLATE "C" LIMIT 1;
    RETURN FOUND;
END;
$$;
COMMENT ON FUNCTION @extschema@._knows_transport(text) IS
    'Internal. Whether mail may name this transport: it is empty, mailroom.transport, in routes, or published by a deliverer.';

CREATE FUNCTION @extschema@._outbox_route() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.transport := @extschema@._route(NEW.kind::text);
    RETURN NEW;
END;
$$;
COMMENT ON FUNCTION @extschema@._outbox_route() IS
    'Internal. Resolves the transport of a row that is inserted without one.';

-- For rows that are written by hand: what the extension writes has its transport.
CREATE TRIGGER outbox_route
    BEFORE INSERT ON @extschema@.outbox
    FOR EACH ROW
    WHEN (NEW.transport IS NULL)
    EXECUTE FUNCTION @extschema@._outbox_route();
-- Also in an apply worker, and in a session that loads rows as a replica does.
ALTER TABLE @extschema@.outbox ENABLE ALWAYS TRIGGER outbox_route;
