-- Claims: a sender makes due mail its own for the time of a lease.
--
-- A claim is committed before anything is sent (I5) and expires by the clock (55_leases.sql). 40_look.sql finds the rows and
-- 45_batch.sql changes them. Invariants: a row is claimed by one claimant at a time (I2); rows of a group are claimed only
-- while no other claim of it is in force.
-- Plans are generic: planning a batch again would cost as much as ten of its rows, and statistics of a queue mean
-- nothing.

CREATE FUNCTION @extschema@._session_id() RETURNS text
    LANGUAGE c STABLE
    AS 'MODULE_PATHNAME', '_session_id_wrapper';
COMMENT ON FUNCTION @extschema@._session_id() IS
    'Internal. The session id, as %c in log_line_prefix; not reused after a restart.';

CREATE FUNCTION @extschema@._lease() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_lease_wrapper';
COMMENT ON FUNCTION @extschema@._lease() IS 'Internal. The setting mailroom.lease in seconds.';

CREATE FUNCTION @extschema@._claimant(claimant text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF octet_length(claimant) > 1024 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'claimant must have at most 1024 octets',
            DETAIL = format('It has %s.', octet_length(claimant)),
            HINT = 'Leave it out for a name that is unique.';
    END IF;
    RETURN coalesce(claimant, session_user || '/' || @extschema@._session_id());
END;
$$;
COMMENT ON FUNCTION @extschema@._claimant(text) IS
    'Internal. The given name, or one for this session that no other session has or had.';

CREATE FUNCTION @extschema@._lease_or_default(lease interval) RETURNS interval
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    term CONSTANT interval := coalesce(lease, make_interval(secs => @extschema@._lease()));
BEGIN
    IF term <= interval '0' OR term > interval '1 year' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'lease must be positive and at most a year',
            DETAIL = format('It is %s.', term),
            HINT = 'Leave it out to use mailroom.lease.';
    END IF;
    RETURN term;
END;
$$;
COMMENT ON FUNCTION @extschema@._lease_or_default(interval) IS
    'Internal. The given lease, or mailroom.lease; raises an error unless it is positive.';

CREATE FUNCTION @extschema@._claimed(until timestamptz) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_claimed_wrapper';
COMMENT ON FUNCTION @extschema@._claimed(timestamptz) IS
    'Internal. Tells the worker when a lease ends, and makes the commit of this transaction synchronous.';

CREATE FUNCTION @extschema@._end_claim(
    scan text,
    is_sweep boolean,
    rest double precision,
    stops boolean,
    is_cut_off boolean,
    refused bigint,
    moment timestamptz
)
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF stops THEN
        -- The next sweep continues after the rows that this one reached, in the parts of which it did not reach the end.
        PERFORM @extschema@._scan_note(scan, p.part, p.at, p.id, true)
        FROM @extschema@._scan_parts(scan) p
        WHERE is_sweep
          AND p.at < moment;
        PERFORM @extschema@._scan_end(scan);
    END IF;
    -- There may be rows before this session's positions, or more than one call looks at. Rows that were refused may be let go
    -- later.
    PERFORM @extschema@._announce_due(clock_timestamp() + CASE
        WHEN NOT is_sweep THEN make_interval(secs => greatest(0.1, rest))
        WHEN stops OR is_cut_off THEN interval '1 s'
        WHEN refused > 0 THEN interval '10 s'
    END);
END;
$$;
COMMENT ON FUNCTION @extschema@._end_claim(text, boolean, double precision, boolean, boolean, bigint, timestamptz) IS
    'Internal. Ends the scan of a claim that got less than it wanted, stopped or was cut off: tells senders when to look again, if that may find more.';

-- Long because transports and budgets are gone through in one loop, and rows are returned from within.
CREATE FUNCTION @extschema@.mailroom_claim(
    batch_limit integer DEFAULT NULL,
    lease interval DEFAULT NULL,
    claimant text DEFAULT NULL,
    transports text[] DEFAULT NULL
)
    RETURNS SETOF @extschema@.claimed_mail
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    asked CONSTANT integer := coalesce(batch_limit, @extschema@._batch_limit());
    who CONSTANT text := @extschema@._claimant(claimant);
    term CONSTANT interval := @extschema@._lease_or_default(lease);
    moment CONSTANT timestamptz := clock_timestamp();
    names CONSTANT text[] := @extschema@._transports(transports);
    budgeted CONSTANT boolean := EXISTS (SELECT FROM @extschema@.budgets);
    room integer;
    urgent_room integer := 0;
    wanted integer := asked;
    total integer := 0;
    fits boolean := true;
    up_to integer;
    of_transport text;
    scan text;
    is_sweep boolean;
    rest double precision;
    look integer;
    row_limit bigint;
    group_limit integer;
    found_at timestamptz;
    found record;
    shares record;
    claimed integer;
    refused bigint;
    refused_before bigint;
    stops boolean;
    -- Whether other sessions hold some of what is due: nothing announces that they let it go.
    is_locked boolean;
BEGIN
    IF asked < 1 THEN
        PERFORM @extschema@._refuse_batch_limit(asked, NULL::text);
    END IF;
    IF budgeted THEN
        -- Each mail has at least one recipient.
        SELECT b.room, b.urgent_room INTO room, urgent_room FROM @extschema@._budget(1) b;
        wanted := least(wanted, room);
    END IF;
    IF wanted > 0 OR urgent_room > 0 THEN
        PERFORM @extschema@._refuse_while_restoring();
        PERFORM @extschema@._expire_leases(moment, 1000);
    END IF;
    -- First all mail; then urgent mail, from what the budgets reserve for it.
    FOREACH up_to IN ARRAY ARRAY[32767, @extschema@._urgent_priority()] LOOP
        IF up_to < 32767 THEN
            EXIT WHEN (urgent_room > room AND (wanted = 0 OR NOT fits)) IS NOT TRUE;
            wanted := least(asked, urgent_room) - total;
            fits := true;
        END IF;
        FOREACH of_transport IN ARRAY names LOOP
            EXIT WHEN wanted <= 0 OR NOT fits;
            scan := 'due ' || of_transport;
            is_sweep := @extschema@._scan_begin(scan);
            look := least(wanted, 1000);
            row_limit := 10000 + 2 * wanted::bigint;
            -- Of the server's max_locks_per_transaction * max_connections.
            group_limit := 256;
            refused_before := @extschema@._refused();
            is_locked := false;
            LOOP
                SELECT l.*
                INTO found
                FROM @extschema@._look_for_due(
                    scan, is_sweep, of_transport, false, up_to, look, moment, NULL::text[], row_limit, group_limit
                ) l;
                rest := @extschema@._scan_end(scan);
                found_at := clock_timestamp();
                refused := @extschema@._refused();
                row_limit := found.row_limit;
                group_limit := found.group_limit;
                IF found.doomed <> '{}' THEN
                    PERFORM @extschema@._end_useless(found.doomed, moment);
                END IF;
                IF budgeted AND found.ctids <> '{}' THEN
                    SELECT b.* INTO shares FROM @extschema@._within_budgets(found.ctids) b;
                    found.ctids := shares.ctids;
                    fits := shares.beyond = '{}';
                    IF NOT fits THEN
                        PERFORM @extschema@._wait_for_budgets(shares.beyond, scan);
                    END IF;
                END IF;
                claimed := 0;
                IF found.ctids <> '{}' THEN
                    PERFORM @extschema@._claimed(moment + term);
                    RETURN QUERY
                    SELECT m.* FROM @extschema@._claim_batch(found.ctids, found.is_plain, who, moment, term, wanted) m;
                    GET DIAGNOSTICS claimed = ROW_COUNT;
                    IF budgeted AND claimed < cardinality(found.ctids) THEN
                        PERFORM @extschema@._refund_unclaimed(shares.ids, who, moment);
                    END IF;
                END IF;
                IF @extschema@._refused() > refused THEN
                    -- Rows that stay are no better than dead ones.
                    PERFORM @extschema@._scan_spend(scan, extract(epoch FROM clock_timestamp() - found_at)::double precision);
                END IF;
                is_locked := is_locked OR claimed + @extschema@._refused() - refused < cardinality(found.ctids);
                wanted := wanted - claimed;
                total := total + claimed;
                refused := @extschema@._refused() - refused_before;
                -- So that the transaction stays short.
                stops := refused >= 1000 OR row_limit <= 0;
                EXIT WHEN wanted <= 0 OR NOT fits OR NOT found.is_full OR group_limit <= 0 OR stops;
                -- Others hold some of these rows, or took them. Look further ahead than is wanted.
                look := least(wanted + CASE WHEN budgeted THEN 0 ELSE 2 * cardinality(found.ctids) END, 1000 - refused);
            END LOOP;
            IF wanted <= 0 AND claimed < cardinality(found.ctids) THEN
                PERFORM @extschema@._put_back(scan, found.ctids);
            ELSIF wanted > 0 AND group_limit <= 0 THEN
                -- The next call may lock as many groups again.
                PERFORM @extschema@._announce_due(moment);
            ELSIF wanted > 0 AND fits THEN
                PERFORM @extschema@._end_claim(scan, is_sweep, rest, stops, found.is_cut_off OR is_locked, refused, moment);
            END IF;
        END LOOP;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_claim(integer, interval, text, text[]) IS
    'Claims up to batch_limit due mails (default mailroom.batch_limit) of these transports (default: mail that clients deliver) for lease, and returns them by transport, priority, send_at and id. Commit, send, then settle each with mailroom_mark_sent, mailroom_mark_error or mailroom_release.';
