-- Recording events: once each, with the mail that they are about, whose doubt they settle.
--
-- mailroom_receive (20_receive.sql) verifies what a provider posts; mailroom_report takes what another program has verified.
-- Invariants: an event that cannot be the provider's, or that is not about mail of this database, is not recorded; nothing
-- waits for a session that holds the mail; a secret is in no parameter of a statement (I7).

-- Long because rows are locked, changed and, if that fails, passed by in one block.
CREATE FUNCTION @extschema@._settle_by_events(mails bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    locked tid[];
    of_groups boolean;
    alone boolean;
BEGIN
    -- The session that holds one asks for events when it settles it, and the next claim does. A batch is repeated as a whole, which its provider
    -- recognises, so its members stay together.
    locked := ARRAY(
        SELECT o.ctid
        FROM @extschema@.outbox o
        WHERE o.id = ANY (_settle_by_events.mails)
          AND o.failed_attempts > 0
          AND (o.state::text IN ('error', 'expired', 'suppressed') OR o.state::text = 'scheduled' AND o.batch IS NULL)
        FOR NO KEY UPDATE SKIP LOCKED
    );
    IF locked = '{}' THEN
        RETURN;
    END IF;
    WITH proven AS MATERIALIZED (
        -- Of those that give it up, only what this transaction recorded: mailroom_retry may have come after the others.
        SELECT o.ctid AS place, @extschema@._proven_state(o.id, now()) AS next
        FROM @extschema@.outbox o
        WHERE o.ctid = ANY (local.locked)
    ), settled AS (
        UPDATE @extschema@.outbox o
        SET state = p.next,
            secrets = NULL,
            last_error = CASE p.next WHEN 'error' THEN 'the provider reported that it gave up' END,
            claimed_by = NULL,
            claimed_at = NULL,
            batch = NULL,
            updated_at = local.moment,
            ended_at = local.moment
        FROM proven p
        WHERE o.ctid = p.place
          AND (p.next = 'sent' OR p.next = 'error' AND o.state = 'scheduled')
        RETURNING o.group_key
    )
    SELECT bool_or(s.group_key IS NOT NULL) INTO of_groups FROM settled s;
    IF of_groups THEN
        PERFORM @extschema@._mail_due(moment, false, false);
    END IF;
EXCEPTION
    WHEN OTHERS THEN
        -- A row that an application does not let change keeps no event from being recorded (I8).
        alone := @extschema@._passes_by(SQLSTATE, locked);
        IF alone IS NULL THEN
            RAISE;
        ELSIF NOT alone THEN
            PERFORM @extschema@._settle_by_events(ARRAY[u.mail]) FROM unnest(mails) u (mail);
        END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._settle_by_events(bigint[]) IS
    'Internal. Ends those of these mails whose events prove what became of an attempt: as sent, or as error. Leaves those that others hold.';

-- Long because one statement finds the mail, judges and records.
CREATE FUNCTION @extschema@._record_events(transport text, events jsonb, OUT known integer, OUT recorded integer)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
AS $$
<<local>>
DECLARE
    mails bigint[];
    concerning bigint[];
BEGIN
    WITH reported AS MATERIALIZED (
        SELECT DISTINCT ON (e.event_key) e.*
        FROM jsonb_to_recordset(_record_events.events) AS e (
            event_key uuid, type @extschema@.event_type, is_permanent boolean, reason @extschema@.reject_reason, recipient text,
            outbox_id bigint, message_id uuid, provider_id text, status text, detail text, occurred_at timestamptz, is_proven boolean
        )
        ORDER BY e.event_key
    ), found AS MATERIALIZED (
        SELECT
            r.event_key, r.type, r.is_permanent, r.reason, r.recipient, r.message_id, r.status, r.detail, r.occurred_at, r.is_proven,
            m.id AS mail, m.state, m.addresses
        FROM reported r
        LEFT JOIN LATERAL (
            SELECT
                o.id, o.state,
                ARRAY(
                    SELECT DISTINCT k.address
                    FROM unnest(@extschema@._search_keys(o.recipients::text[] || o.cc::text[] || o.bcc::text[])) k (address)
                ) AS addresses
            FROM @extschema@.outbox o
            -- outbox_id alone proves nothing: it can be guessed.
            WHERE o.id = ANY (
                CASE
                    WHEN r.message_id IS NOT NULL THEN ARRAY(
                        SELECT b.id
                        FROM @extschema@.outbox b
                        WHERE b.message_id = r.message_id
                          AND b.id = coalesce(r.outbox_id, b.id)
                    )
                    WHEN r.provider_id IS NOT NULL THEN ARRAY(
                        SELECT b.id
                        FROM @extschema@.outbox b
                        WHERE b.provider_id = r.provider_id
                          AND b.transport = _record_events.transport COLLATE "C"
                        LIMIT 1
                    )
                END
            )
        ) m ON true
    ), judged AS MATERIALIZED (
        SELECT
            f.event_key, f.mail, f.type, f.is_permanent, f.reason, f.status, f.detail, f.occurred_at,
            -- What any recipient of a mail could say concerns no other recipient of it.
            f.is_proven OR cardinality(f.addresses) = 1 AS counts,
            coalesce(f.recipient, CASE WHEN cardinality(f.addresses) = 1 THEN f.addresses[1] END) AS recipient
        FROM found f
        WHERE CASE
            -- An account at a provider may be that of other programs too. What says that an address takes no mail counts
            -- for mail that was purged as well.
            WHEN f.mail IS NULL THEN f.is_proven AND f.message_id IS NOT NULL AND f.recipient IS NOT NULL
                AND (f.is_permanent OR f.type IN ('complained', 'unsubscribed'))
            -- Nothing follows from it but that doubt is settled.
            ELSE (f.is_proven OR f.recipient = ANY (f.addresses)) AND (f.type <> 'accepted' OR f.state <> 'sent')
        END
    ), news AS (
        -- In one order, so that two reports of the same events do not wait for each other in a circle.
        INSERT INTO @extschema@.delivery_events (
            event_key, outbox_id, transport, type, is_permanent, reason, recipient, status, detail, occurred_at
        )
        SELECT
            j.event_key, j.mail, _record_events.transport, j.type, j.is_permanent, j.reason, j.recipient, j.status, j.detail,
            j.occurred_at
        FROM judged j
        ORDER BY j.event_key
        ON CONFLICT ON CONSTRAINT delivery_events_event_key_key DO NOTHING
        RETURNING delivery_events.id, delivery_events.event_key, delivery_events.type
    )
    -- Of repeated events too: the session that settled the mail may not have seen the first one yet.
    SELECT
        count(*), (SELECT count(*) FROM news), array_agg(DISTINCT j.mail) FILTER (WHERE j.mail IS NOT NULL),
        (
            SELECT array_agg(n.id)
            FROM news n
            JOIN judged c ON c.event_key = n.event_key
            WHERE c.counts
              AND n.type IN ('delivered', 'bounced', 'rejected', 'complained', 'unsubscribed')
        )
    INTO known, recorded, mails, concerning
    FROM judged j;
    IF concerning IS NOT NULL THEN
        PERFORM @extschema@._suppress_by_events(concerning);
    END IF;
    -- Most often it was known that the mail was sent.
    IF EXISTS (
        SELECT
        FROM @extschema@.outbox o
        WHERE o.id = ANY (local.mails)
          AND o.failed_attempts > 0
          AND o.state::text IN ('scheduled', 'error', 'expired', 'suppressed')
    ) THEN
        PERFORM @extschema@._settle_by_events(mails);
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._record_events(text, jsonb) IS
    'Internal. Records these events of a transport, which _receive or _read_report has read, and settles mail by them. Returns how many are about mail of this database, and how many of them were news.';

CREATE FUNCTION @extschema@._read_report(transport text, events text) RETURNS text
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_read_report_wrapper';
COMMENT ON FUNCTION @extschema@._read_report(text, text) IS
    'Internal. The events of a report as _record_events takes them; raises an error for one that cannot be read.';

CREATE FUNCTION @extschema@.mailroom_report(transport text, events jsonb) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    read jsonb;
BEGIN
    -- The transport need not be known: a deliverer that has ended has withdrawn its own, and their events come later.
    IF transport IS NULL OR events IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = format('%s must not be null', CASE WHEN transport IS NULL THEN 'transport' ELSE 'events' END),
            DETAIL = 'Events belong to the transport that sent the mail.',
            HINT = 'Pass the name of the transport, which is empty for mail that clients deliver, and an array of events.';
    END IF;
    BEGIN
        PERFORM transport::@extschema@._transport;
    EXCEPTION
        WHEN check_violation THEN
            RAISE invalid_parameter_value USING
                MESSAGE = 'this is no name of a transport',
                DETAIL = 'A name has small letters, digits, - and _, a letter first, 63 of them at most.',
                HINT = 'Pass the name of a table [transports.NAME] of the transports file.';
    END;
    -- An expression: a statement would have links and codes of a detail as a parameter (I7).
    read := @extschema@._read_report(transport, events::text)::jsonb;
    RETURN (SELECT r.recorded FROM @extschema@._record_events(mailroom_report.transport, read) r);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_report(text, jsonb) IS
    'Records what a provider reported about mail, for a caller that has verified it: an array of at most 1000 objects with type, event_id, message_id, outbox_id, provider_id, recipient, is_permanent, reason, status, detail, occurred_at. Without event_id it counts only with message_id and a recipient of that mail. Returns how many were news.';
