-- Groups: one claimant at a time holds mail of a group_key.
--
-- A group is held while a claim of any of its rows is in force, which is asked once for each call and group, under the
-- lock of that group. Invariants: two claimants never hold rows of one group (I2), and neither waits for the other
-- (I3); rows of held groups are stepped over without looking at the claims again, and are counted, so that they hide
-- nothing that comes after them (I4).

CREATE FUNCTION @extschema@._try_lock_group(hash bigint) RETURNS boolean
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_try_lock_group_wrapper';
COMMENT ON FUNCTION @extschema@._try_lock_group(bigint) IS
    'Internal. Locks a group, by hashtextextended(group_key, 0), until the transaction ends; false if another session holds the lock.';

CREATE FUNCTION @extschema@._held_groups(candidates text[], moment timestamptz) RETURNS text[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    -- Expired claims hold nothing, so a search skips only claims, dead ones too, that were made within a lease. One
    -- index search for each group, independent of statistics: OFFSET 0 keeps the subquery, and only outbox_group_held
    -- fits it.
    RETURN ARRAY(
        SELECT c.group_key
        FROM (SELECT DISTINCT u.group_key FROM unnest(candidates) u (group_key) WHERE u.group_key IS NOT NULL) c
        WHERE EXISTS (
            SELECT
            FROM @extschema@.outbox o
            WHERE o.group_key = c.group_key
              AND o.claimed_until > _held_groups.moment
            OFFSET 0
        )
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._held_groups(text[], timestamptz) IS
    'Internal. Those of the groups that have a claim in force at this time.';

CREATE FUNCTION @extschema@._free_groups(candidates text[], row_limit integer, OUT free text[], OUT over boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    held text[] := @extschema@._held_groups(candidates, clock_timestamp());
    wanted text[];
BEGIN
    wanted := ARRAY(
        SELECT c.group_key
        FROM unnest(candidates) WITH ORDINALITY c (group_key, number)
        WHERE c.group_key <> ALL (held)
        GROUP BY c.group_key
        ORDER BY min(c.number)
        LIMIT row_limit + 1
    );
    over := cardinality(wanted) > row_limit;
    -- A claimant holds the lock of a group until its claim is committed or rolled back. The next holder queries the
    -- claims again, in a new statement, whose snapshot contains what the previous holder committed: one statement that
    -- locks and queries could see an older state.
    wanted := ARRAY(
        SELECT w.group_key
        FROM unnest(wanted[:row_limit]) w (group_key)
        WHERE @extschema@._try_lock_group(hashtextextended(w.group_key, 0))
    );
    held := @extschema@._held_groups(wanted, clock_timestamp());
    free := ARRAY(SELECT w.group_key FROM unnest(wanted) w (group_key) WHERE w.group_key <> ALL (held));
END;
$$;
COMMENT ON FUNCTION @extschema@._free_groups(text[], integer) IS
    'Internal. Locks the first row_limit of the groups and returns those without a claim in force, and whether there are more; no other session can claim them before the transaction ends. Requires READ COMMITTED.';

CREATE FUNCTION @extschema@._lock_group_due(wanted text, of_transports text[], moment timestamptz, row_limit integer) RETURNS tid[]
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
    SELECT array_agg(s.place)
    FROM (
        SELECT l.place
        FROM unnest(of_transports) t (transport)
        CROSS JOIN LATERAL (
            SELECT o.ctid AS place, o.priority, o.send_at, o.id
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.group_key = _lock_group_due.wanted
              AND o.transport = t.transport COLLATE "C"
              AND o.send_at <= _lock_group_due.moment
              AND o.id NOT IN (SELECT unnest(@extschema@._bad_rows(b.name)) FROM unnest(_lock_group_due.of_transports) b (name))
            ORDER BY o.priority, o.send_at, o.id
            LIMIT _lock_group_due.row_limit
            FOR NO KEY UPDATE OF o SKIP LOCKED
        ) l
        ORDER BY l.priority, l.send_at, l.id
        LIMIT row_limit
    ) s
$$;
COMMENT ON FUNCTION @extschema@._lock_group_due(text, text[], timestamptz, integer) IS
    'Internal. Locks the first due rows of a group in these transports, up to row_limit (NULL: all), and returns their ctids; NULL if there are none.';

-- Long because rows are returned from within its loop, as in mailroom_claim.
CREATE FUNCTION @extschema@.mailroom_claim_group(
    batch_limit integer DEFAULT NULL,
    lease interval DEFAULT NULL,
    claimant text DEFAULT NULL,
    group_key text DEFAULT NULL,
    transports text[] DEFAULT NULL
)
    RETURNS SETOF @extschema@.claimed_mail
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    wanted text := mailroom_claim_group.group_key;
    candidates text[] := ARRAY[wanted];
    term CONSTANT interval := @extschema@._lease_or_default(lease);
    moment CONSTANT timestamptz := clock_timestamp();
    names CONSTANT text[] := @extschema@._transports(transports);
    of_transport text;
    took_back boolean;
    careful boolean;
    first tid[] := '{}'::tid[];
    judged record;
    -- NULL without budgets.
    gathered integer;
    shares record;
    claimed integer := 0;
BEGIN
    IF batch_limit < 1 THEN
        PERFORM @extschema@._refuse_batch_limit(batch_limit, 'Leave it out for all that is due of the group.'::text);
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE feature_not_supported USING
            MESSAGE = 'groups can be claimed only in a READ COMMITTED transaction',
            DETAIL = format('This transaction is %s and cannot see claims that were committed after it began.', upper(current_setting('transaction_isolation') COLLATE "C")),
            HINT = 'Use BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    IF wanted IS NULL THEN
        PERFORM @extschema@._refuse_while_restoring();
        took_back := @extschema@._expire_leases(moment, 1000) > 0;
        careful := @extschema@._begin_changes();
        FOREACH of_transport IN ARRAY names LOOP
            -- The first group may have nothing but bad rows. Then the next ones are needed.
            first := first || (
                SELECT g.ctids
                FROM @extschema@._select_due(of_transport, true, 32767, CASE WHEN careful THEN 100 ELSE 1 END, moment, took_back) g
            );
            EXIT WHEN first <> '{}' AND NOT careful;
        END LOOP;
        PERFORM @extschema@._end_changes();
        -- Read first, so that no index is scanned for the order of the keys.
        WITH due AS MATERIALIZED (
            SELECT o.group_key, array_position(local.names, o.transport::text COLLATE "C") AS place, o.priority, o.send_at, o.id
            FROM @extschema@.outbox o
            WHERE o.ctid = ANY (local.first)
        )
        SELECT coalesce(array_agg(k.group_key ORDER BY k.place, k.priority, k.send_at, k.id), '{}'::text[])
        INTO candidates
        FROM (
            SELECT DISTINCT ON (d.group_key) d.group_key, d.place, d.priority, d.send_at, d.id
            FROM due d
            ORDER BY d.group_key, d.place, d.priority, d.send_at, d.id
        ) k;
    ELSE
        PERFORM @extschema@._refuse_while_restoring();
        PERFORM @extschema@._expire_leases(moment, 1000);
        -- Before its rows are locked: there may be many, and another session may be about to claim them.
        IF (SELECT f.free = '{}' FROM @extschema@._free_groups(ARRAY[wanted], 1) f) THEN
            RETURN;
        END IF;
    END IF;
    <<of_groups>>
    FOREACH wanted IN ARRAY candidates LOOP
        FOR round IN 1 .. 100 LOOP
            careful := @extschema@._begin_changes();
            -- So many bad rows may be in front of others.
            first := @extschema@._lock_group_due(
                wanted, names, moment, CASE WHEN careful AND batch_limit < 100 THEN 100 ELSE batch_limit END
            );
            EXIT WHEN first IS NULL;
            SELECT j.* INTO judged FROM @extschema@._filter_claimable(first, moment, 1) j;
            IF judged.later OR careful AND cardinality(judged.ctids) < cardinality(first) THEN
                PERFORM @extschema@._announce_due(moment + interval '1 s');
            ELSIF cardinality(judged.ctids) < cardinality(first) AND coalesce(judged.held, '{}') = '{}' THEN
                -- Some rows ended instead, and there may be others after them.
                CONTINUE;
            END IF;
            EXIT WHEN judged.ctids = '{}';
            IF EXISTS (SELECT FROM @extschema@.budgets) THEN
                gathered := cardinality(judged.ctids);
                SELECT b.* INTO shares FROM @extschema@._within_budgets(judged.ctids) b;
                judged.ctids := shares.ctids;
                IF shares.beyond <> '{}' THEN
                    PERFORM @extschema@._wait_for_budgets(shares.beyond, true);
                END IF;
                EXIT of_groups WHEN judged.ctids = '{}';
            END IF;
            PERFORM @extschema@._claimed(moment + term);
            RETURN QUERY
            SELECT c.* FROM @extschema@._claim_rows(judged.ctids, @extschema@._claimant(claimant), moment, term) c WHERE NOT careful
            UNION ALL
            SELECT c.* FROM @extschema@._claim_one_by_one(judged.ctids, @extschema@._claimant(claimant), moment, term, batch_limit) c WHERE careful;
            GET DIAGNOSTICS claimed = ROW_COUNT;
            IF gathered IS NOT NULL AND claimed < cardinality(judged.ctids) THEN
                PERFORM @extschema@._refund_unclaimed(shares.ids, moment);
            END IF;
            -- Unless none of them could be rendered.
            EXIT WHEN claimed > 0 OR careful OR judged.later OR cardinality(judged.ctids) < gathered;
        END LOOP;
        -- There are others only while rows are changed one at a time.
        EXIT WHEN claimed > 0;
    END LOOP;
    IF cardinality(candidates) > 1 THEN
        -- The locks of the other groups have kept them from other sessions.
        PERFORM @extschema@._announce_due(moment + interval '1 s');
    END IF;
    IF careful AND claimed = 0 AND (candidates = '{}' OR mailroom_claim_group.group_key IS NOT NULL) THEN
        PERFORM @extschema@._forget_bad_rows(n.name) FROM unnest(names) n (name);
    END IF;
    PERFORM @extschema@._end_changes();
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_claim_group(integer, interval, text, text, text[]) IS
    'Claims the due mails of one group, of group_key or else of the free group that is next, up to batch_limit (default: all), and returns them by priority, send_at and id. Settle each as after mailroom_claim; the group is held until the last one is settled or its lease ends.';
