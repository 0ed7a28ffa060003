-- Routes: which transport delivers which mail.
--
-- mailroom_admin writes routes; everything that schedules mail asks _route, and claims of a paused transport its
-- fallback (50_queue/95_reroute.sql). Invariants: the transport of a mail is resolved once, when its row is written, by
-- one rule for every writer; a changed route concerns later rows only.

CREATE TABLE @extschema@.routes (
    position integer,
    kind_pattern text COLLATE "C" NOT NULL,
    transport @extschema@._transport NOT NULL,
    fallback @extschema@._transport,
    fallback_after interval NOT NULL DEFAULT '30 s',
    CONSTRAINT routes_pkey PRIMARY KEY (position),
    CONSTRAINT routes_kind_pattern_must_not_be_empty CHECK (kind_pattern <> ''),
    -- LIKE would raise an error for it, and so would every INSERT of mail.
    CONSTRAINT routes_kind_pattern_must_not_end_with_its_escape CHECK (kind_pattern !~ E'(^|[^\\\\])(\\\\\\\\)*\\\\$'),
    CONSTRAINT routes_transport_must_not_be_empty CHECK (transport <> ''),
    CONSTRAINT routes_fallback_must_not_be_empty CHECK (fallback <> ''),
    CONSTRAINT routes_fallback_must_be_another_transport CHECK (fallback <> transport),
    CONSTRAINT routes_fallback_after_must_not_be_negative CHECK (fallback_after >= interval '0')
);
COMMENT ON TABLE @extschema@.routes IS
    'Which transport delivers mail of which kind: the first row by position whose kind_pattern matches. A change affects later mail only; mailroom_reroute moves scheduled mail.';
COMMENT ON COLUMN @extschema@.routes.position IS 'Smaller comes first.';
COMMENT ON COLUMN @extschema@.routes.kind_pattern IS 'A LIKE pattern for outbox.kind; % matches all.';
COMMENT ON COLUMN @extschema@.routes.transport IS 'The transport of new mail of such a kind, unless it names its own.';
COMMENT ON COLUMN @extschema@.routes.fallback IS
    'The transport that takes over while the transport is paused; NULL for none. It never gets mail that may have been sent.';
COMMENT ON COLUMN @extschema@.routes.fallback_after IS
    'How long the transport must have been paused before the fallback takes over.';

CREATE FUNCTION @extschema@._default_transport() RETURNS text
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_default_transport_wrapper';
COMMENT ON FUNCTION @extschema@._default_transport() IS 'Internal. The setting mailroom.transport.';

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
    'Internal. The transport of new mail of a kind: that of the first matching route, else mailroom.transport.';

CREATE FUNCTION @extschema@._knows_transport(wanted text) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- One query after the other: this runs for each row of a bulk, and most often the first answer is enough.
    IF wanted COLLATE "C" IN ('', @extschema@._default_transport()) THEN
        RETURN true;
    END IF;
    PERFORM FROM @extschema@.routes r WHERE r.transport = _knows_transport.wanted COLLATE "C" OR r.fallback = _knows_transport.wanted COLLATE "C" LIMIT 1;
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM @extschema@.transports t WHERE t.name = _knows_transport.wanted COLLATE "C" LIMIT 1;
    RETURN FOUND;
END;
$$;
COMMENT ON FUNCTION @extschema@._knows_transport(text) IS
    'Internal. Whether mail may name this transport: it is empty, mailroom.transport, in routes, or published by a deliverer.';

CREATE FUNCTION @extschema@._allows_sender(patterns text[], mailbox text) RETURNS boolean
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_allows_sender_wrapper';
COMMENT ON FUNCTION @extschema@._allows_sender(text[], text) IS
    'Internal. Whether one of these patterns, an address or *@ and a domain, allows the address of this mailbox.';

CREATE FUNCTION @extschema@._may_send_from(transport text, from_address text) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF from_address IS NULL OR transport = '' THEN
        RETURN true;
    END IF;
    RETURN (
        SELECT coalesce(bool_or(@extschema@._allows_sender(t.allow_from, _may_send_from.from_address)), true)
        FROM @extschema@.transports t
        WHERE t.name = _may_send_from.transport COLLATE "C"
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._may_send_from(text, text) IS
    'Internal. Whether allow_from of this transport, as any deliverer published it, allows this sender; true if none published it or clients deliver.';

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
    'Internal. Sets the transport of a row that is inserted without one.';

-- For rows that are inserted by hand; the extension's own statements set the transport.
CREATE TRIGGER outbox_route
    BEFORE INSERT ON @extschema@.outbox
    FOR EACH ROW
    WHEN (NEW.transport IS NULL)
    EXECUTE FUNCTION @extschema@._outbox_route();
-- Also in an apply worker, and with session_replication_role = replica.
ALTER TABLE @extschema@.outbox ENABLE ALWAYS TRIGGER outbox_route;
