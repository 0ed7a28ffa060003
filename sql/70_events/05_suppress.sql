-- What events and answers say about addresses, and what a claim left out.
--
-- _record_events (10_record.sql) calls _suppress_by_events with what is new, settles (50_queue/) _record_refused, claims
-- _record_suppressed. Invariants: what the provider says stops or lifts mail to an address by itself; a claim waits for no
-- session that changes suppressions, and a settle for 100 ms at most (I3).

CREATE FUNCTION @extschema@._bounce_term(bounces integer) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
-- Mailbox providers have refused existing mailboxes for days, so the first bounce says little.
RETURN CASE bounces WHEN 1 THEN interval '3 days' WHEN 2 THEN interval '30 days' ELSE interval '365 days' END;
COMMENT ON FUNCTION @extschema@._bounce_term(integer) IS
    'Internal. For how long an address is suppressed that has bounced this many times.';

-- Long because one statement decides what each event means for its address.
CREATE FUNCTION @extschema@._suppress_by_events(events bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
AS $$
BEGIN
    -- In one order, so that two sessions do not wait for each other in a circle.
    PERFORM
    FROM @extschema@.suppressions s
    WHERE s.address = ANY (ARRAY(SELECT e.recipient FROM @extschema@.delivery_events e WHERE e.id = ANY (_suppress_by_events.events)))
    ORDER BY s.address, s.list, s.reason
    FOR UPDATE;
    -- What comes while the address is suppressed was on its way before.
    INSERT INTO @extschema@.suppressions AS s (address, list, reason, bounces, event_id, since, until)
    SELECT DISTINCT ON (n.address, n.list, n.reason)
        n.address, n.list, n.reason, (n.reason = 'bounced')::integer, n.id, n.since,
        CASE WHEN n.reason = 'bounced' THEN n.since + @extschema@._bounce_term(1) END
    FROM (
        SELECT
            e.id, e.recipient AS address, r.reason, greatest(least(e.occurred_at, clock_timestamp()), m.created_at) AS since,
            CASE r.reason WHEN 'unsubscribed' THEN m.list ELSE '' END COLLATE "C" AS list
        FROM @extschema@.delivery_events e
        LEFT JOIN LATERAL (
            -- A mail that was purged has none.
            SELECT o.created_at, o.list
            FROM @extschema@.outbox o
            WHERE o.id = e.outbox_id
            OFFSET 0
        ) m ON true
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN e.type = 'bounced' AND e.is_permanent THEN 'bounced'
                -- It was refused before it was sent, by the relay, or because it bounced before.
                WHEN e.type = 'rejected' AND e.is_permanent AND e.reason IN ('bounced', 'invalid') THEN 'bounced'
                WHEN e.type = 'complained' THEN 'complained'
                WHEN e.type = 'unsubscribed' THEN 'unsubscribed'
            END::@extschema@.suppression_reason AS reason
            OFFSET 0
        ) r
        WHERE e.id = ANY (_suppress_by_events.events)
          AND r.reason IS NOT NULL
          AND e.recipient = @extschema@.mailroom_address_key(e.recipient)
    ) n
    WHERE n.list IS NOT NULL
    ORDER BY n.address, n.list, n.reason, n.since DESC
    ON CONFLICT ON CONSTRAINT suppressions_pkey DO UPDATE
    SET bounces = s.bounces + CASE WHEN s.until <= EXCLUDED.since THEN EXCLUDED.bounces ELSE 0 END,
        event_id = EXCLUDED.event_id,
        since = CASE WHEN s.reason = 'bounced' OR s.until <= EXCLUDED.since THEN greatest(s.since, EXCLUDED.since) ELSE s.since END,
        until = CASE
            WHEN s.reason <> 'bounced' THEN NULL
            WHEN s.until <= EXCLUDED.since THEN EXCLUDED.since + @extschema@._bounce_term(s.bounces + 1)
            ELSE s.until
        END;
    -- One that has ended counts with the next bounce: a server may take mail first, and return it later.
    DELETE FROM @extschema@.suppressions s
    USING @extschema@.delivery_events e
    WHERE e.id = ANY (_suppress_by_events.events)
      AND e.type = 'delivered'
      AND s.address = e.recipient
      AND s.reason = 'bounced'
      AND s.since < e.occurred_at
      AND (s.until > clock_timestamp()) IS NOT FALSE;
END;
$$;
COMMENT ON FUNCTION @extschema@._suppress_by_events(bigint[]) IS
    'Internal. Suppresses the addresses of these delivery_events that bounced, complained or unsubscribed, and lifts suppressions by a bounce where mail was delivered after it.';

CREATE FUNCTION @extschema@._record_refused(mails bigint[], addresses text[], errors text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
    SET lock_timeout = '100ms'
AS $$
DECLARE
    ids bigint[];
BEGIN
    WITH refused AS MATERIALIZED (
        SELECT DISTINCT ON (o.id, k.address) o.id, o.transport, k.address, coalesce(r.error, o.last_error) AS error
        FROM unnest(_record_refused.mails, _record_refused.addresses, _record_refused.errors) r (mail, address, error)
        JOIN @extschema@.outbox o ON o.id = ANY (ARRAY[r.mail])
        -- Of the mail's own addresses only: a sender suppresses no others.
        CROSS JOIN LATERAL unnest(@extschema@._search_keys(o.recipients::text[] || o.cc::text[] || o.bcc::text[])) k (address)
        WHERE k.address = (@extschema@._search_keys(ARRAY[r.address]))[1]
          AND (o.failed_attempts > 0 OR o.state::text = 'sent')
        ORDER BY o.id, k.address
    ), news AS (
        INSERT INTO @extschema@.delivery_events (
            event_key, outbox_id, transport, type, is_permanent, reason, recipient, status, occurred_at
        )
        SELECT
            gen_random_uuid(), f.id, f.transport, 'rejected', true, 'bounced', f.address,
            substring(f.error FROM '5\.[0-9]{1,3}\.[0-9]{1,3}'), clock_timestamp()
        FROM refused f
        RETURNING delivery_events.id
    )
    SELECT array_agg(n.id) INTO ids FROM news n;
    IF ids IS NOT NULL THEN
        PERFORM @extschema@._suppress_by_events(ids);
    END IF;
EXCEPTION
    WHEN OTHERS THEN
        -- Another session has just written this address, or the application does not let it be written. The mail is settled all the same.
        IF SQLSTATE <> '55P03' AND NOT @extschema@._may_pass_by(SQLSTATE) THEN
            RAISE;
        ELSIF cardinality(mails) > 1 THEN
            PERFORM @extschema@._record_refused(ARRAY[u.mail], ARRAY[u.address], ARRAY[u.error])
            FROM unnest(mails, addresses, errors) u (mail, address, error);
        END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._record_refused(bigint[], text[], text[]) IS
    'Internal. Records that the server or provider refused these addresses of mails for their mailbox, with its error (NULL: the last one of the mail), and suppresses them; leaves out what would wait for another session, or fails.';

CREATE FUNCTION @extschema@._record_refused_mails(mails bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    PERFORM @extschema@._record_refused(array_agg(o.id), array_agg(k.address), array_agg(NULL::text))
    FROM @extschema@.outbox o
    CROSS JOIN LATERAL unnest(@extschema@._search_keys(o.recipients::text[] || o.cc::text[] || o.bcc::text[])) k (address)
    WHERE o.id = ANY (_record_refused_mails.mails)
      -- The mail was not sent to these.
      AND NOT EXISTS (
          SELECT
          FROM @extschema@._suppressed_recipients x
          WHERE x.place = o.ctid
            AND x.address = k.address
          OFFSET 0
      )
    HAVING count(*) > 0;
END;
$$;
COMMENT ON FUNCTION @extschema@._record_refused_mails(bigint[]) IS
    'Internal. As _record_refused, for all addresses that each of these mails was sent to.';

CREATE FUNCTION @extschema@._record_suppressed(places tid[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
AS $$
    INSERT INTO @extschema@.delivery_events (event_key, outbox_id, transport, type, reason, recipient, occurred_at)
    SELECT
        gen_random_uuid(), r.outbox_id, r.transport, 'suppressed',
        (CASE min(r.reason)
            WHEN 'bounced' THEN 'bounced'
            WHEN 'complained' THEN 'spam'
            WHEN 'unsubscribed' THEN 'unsubscribed'
            ELSE 'other'
        END)::@extschema@.reject_reason,
        r.address, clock_timestamp()
    FROM @extschema@._suppressed_recipients r
    WHERE r.place = ANY (_record_suppressed.places)
      -- A mail that is claimed again tells it once.
      AND NOT EXISTS (
          SELECT
          FROM @extschema@.delivery_events e
          WHERE e.outbox_id = r.outbox_id
            AND e.type = 'suppressed'
            AND e.recipient = r.address COLLATE "C"
            AND e.received_at >= r.since
          OFFSET 0
      )
    GROUP BY r.outbox_id, r.transport, r.address
$$;
COMMENT ON FUNCTION @extschema@._record_suppressed(tid[]) IS
    'Internal. Records which recipients of these rows, which are about to be claimed, are left out, as events of the type suppressed.';
