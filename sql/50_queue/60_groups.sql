-- Groups: one claimant at a time holds mail of a group_key.
--
-- A group is busy while a claim of any of its rows is in force, which is asked once for each call and group, under the
-- lock of that group. Invariants: two claimants never hold rows of one group (I2), and neither waits for the other
-- (I3); rows of busy groups are stepped over without looking at the claims again, and are counted, so that they hide
-- nothing that comes after them (I4).

CREATE FUNCTION @extschema@._try_lock_group(hash bigint) RETURNS boolean
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_try_lock_group_wrapper';
COMMENT ON FUNCTION @extschema@._try_lock_group(bigint) IS
    'Internal. Locks a group, by hashtextextended(group_key, 0), until the transaction ends; false if another session holds the lock.';

CREATE FUNCTION @extschema@._busy_groups(candidates text[], moment timestamptz) RETURNS text[]
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
        FROM (SELECT DISTINCT u.group_key FROM unnest(_busy_groups.candidates) u (group_key) WHERE u.group_key IS NOT NULL) c
        WHERE EXISTS (
            SELECT
            FROM @extschema@.outbox o
            WHERE o.group_key = c.group_key
              AND o.claimed_until > _busy_groups.moment
            OFFSET 0
        )
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._busy_groups(text[], timestamptz) IS
    'Internal. Those of the groups that have a claim in force at this time.';

CREATE FUNCTION @extschema@._free_groups(candidates text[]) RETURNS text[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    busy text[] := @extschema@._busy_groups(candidates, clock_timestamp());
    locked text[];
BEGIN
    locked := ARRAY(
        SELECT DISTINCT c.group_key FROM unnest(candidates) c (group_key) WHERE c.group_key NOT IN (SELECT b.group_key FROM unnest(busy) b (group_key))
    );
    -- A claimant holds the lock of a group until its claim is committed or rolled back. The next holder queries the
    -- claims again, in a new statement, whose snapshot contains what the previous holder committed: one statement that
    -- locks and queries could see an older state.
    locked := ARRAY(
        SELECT c.group_key FROM unnest(locked) c (group_key) WHERE @extschema@._try_lock_group(hashtextextended(c.group_key, 0))
    );
    busy := @extschema@._busy_groups(locked, clock_timestamp());
    RETURN ARRAY(SELECT l.group_key FROM unnest(locked) l (group_key) WHERE l.group_key <> ALL (busy));
END;
$$;
COMMENT ON FUNCTION @extschema@._free_groups(text[]) IS
    'Internal. Locks these groups and returns those without a claim in force; no other session can claim them before the transaction ends. Requires READ COMMITTED.';

CREATE FUNCTION @extschema@._look_at_group(
    wanted text,
    of_transports text[],
    after_priority smallint,
    after_send_at timestamptz,
    after_id bigint,
    moment timestamptz,
    row_limit integer,
    OUT ctids tid[], OUT priorities smallint[], OUT send_ats timestamptz[], OUT ids bigint[], OUT looked integer
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    SELECT array_agg(g.place), array_agg(g.priority), array_agg(g.send_at), array_agg(g.id), count(*)
    INTO ctids, priorities, send_ats, ids, looked
    FROM (
        SELECT l.place, l.priority, l.send_at, l.id
        FROM unnest(_look_at_group.of_transports) t (transport)
        CROSS JOIN LATERAL (
            SELECT o.ctid AS place, o.priority::smallint AS priority, o.send_at, o.id
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.group_key = _look_at_group.wanted
              AND o.transport = t.transport COLLATE "C"
              AND o.send_at <= _look_at_group.moment
              AND (o.priority, o.send_at, o.id) > (_look_at_group.after_priority, _look_at_group.after_send_at, _look_at_group.after_id)
            ORDER BY o.priority, o.send_at, o.id
            LIMIT _look_at_group.row_limit
        ) l
        ORDER BY l.priority, l.send_at, l.id
        LIMIT _look_at_group.row_limit
    ) g;
END;
$$;
COMMENT ON FUNCTION @extschema@._look_at_group(text, text[], smallint, timestamptz, bigint, timestamptz, integer) IS
    'Internal. The first due rows of a group in these transports after a position, in the order of claims.';

-- Long because rows are returned from within its loop, as in mailroom_claim.
CREATE FUNCTION @extschema@._claim_group(wanted text, names text[], claimant text, moment timestamptz, term interval, batch_limit integer)
    RETURNS SETOF @extschema@.claimed_mail
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    budgeted CONSTANT boolean := EXISTS (SELECT FROM @extschema@.budgets);
    refused_before CONSTANT bigint := @extschema@._refused();
    after_priority smallint := -32768;
    after_send_at timestamptz := '-infinity'::timestamptz;
    after_id bigint := 0;
    asked integer;
    seen record;
    judged record;
    shares record;
    fits boolean := true;
    claimed integer;
BEGIN
    LOOP
        asked := least(batch_limit, 1000);
        SELECT l.*
        INTO seen
        FROM @extschema@._look_at_group(wanted, names, after_priority, after_send_at, after_id, moment, asked) l;
        EXIT WHEN seen.looked = 0;
        after_priority := seen.priorities[seen.looked];
        after_send_at := seen.send_ats[seen.looked];
        after_id := seen.ids[seen.looked];
        SELECT j.* INTO judged FROM @extschema@._judge(seen.ctids, moment) j;
        IF judged.doomed <> '{}' THEN
            PERFORM @extschema@._end_useless(judged.doomed, moment);
        END IF;
        IF judged.later THEN
            PERFORM @extschema@._announce_due(moment + interval '1 s');
        END IF;
        IF budgeted AND judged.ctids <> '{}' THEN
            SELECT b.* INTO shares FROM @extschema@._within_budgets(judged.ctids) b;
            judged.ctids := shares.ctids;
            fits := shares.beyond = '{}';
            IF NOT fits THEN
                PERFORM @extschema@._wait_for_budgets(shares.beyond, NULL::text);
            END IF;
        END IF;
        IF judged.ctids <> '{}' THEN
            PERFORM @extschema@._claimed(moment + term);
            RETURN QUERY
            SELECT m.* FROM @extschema@._claim_batch(judged.ctids, false, claimant, moment, term, NULL::integer) m;
            GET DIAGNOSTICS claimed = ROW_COUNT;
            IF budgeted AND claimed < cardinality(judged.ctids) THEN
                PERFORM @extschema@._refund_unclaimed(shares.ids, claimant, moment);
            END IF;
            batch_limit := batch_limit - claimed;
        END IF;
        EXIT WHEN batch_limit <= 0 OR NOT fits OR seen.looked < asked OR @extschema@._refused() - refused_before >= 1000;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._claim_group(text, text[], text, timestamptz, interval, integer) IS
    'Internal. Claims the due mails of a group that the caller has locked, up to batch_limit (NULL: all), and returns them as _claim_rows.';

-- Long because groups are looked for until one has a mail that can be claimed.
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
DECLARE
    who CONSTANT text := @extschema@._claimant(claimant);
    term CONSTANT interval := @extschema@._lease_or_default(lease);
    moment CONSTANT timestamptz := clock_timestamp();
    names CONSTANT text[] := @extschema@._transports(transports);
    of_transport text;
    scan text;
    is_sweep boolean;
    rest double precision;
    row_limit bigint := 10000;
    group_limit integer := 256;
    found_at timestamptz;
    candidate record;
    first text;
    tried text[] := '{}'::text[];
    stops boolean;
    refused bigint;
    refused_before CONSTANT bigint := @extschema@._refused();
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
    PERFORM @extschema@._refuse_while_restoring();
    PERFORM @extschema@._expire_leases(moment, 1000);
    IF group_key IS NOT NULL THEN
        IF @extschema@._free_groups(ARRAY[group_key]) <> '{}' THEN
            RETURN QUERY SELECT m.* FROM @extschema@._claim_group(group_key, names, who, moment, term, batch_limit) m;
        END IF;
        RETURN;
    END IF;
    FOREACH of_transport IN ARRAY names LOOP
        scan := 'groups ' || of_transport;
        is_sweep := @extschema@._scan_begin(scan);
        LOOP
            SELECT l.*
            INTO candidate
            FROM @extschema@._look_for_due(scan, is_sweep, of_transport, true, 32767, 1, moment, tried, row_limit, group_limit) l;
            rest := @extschema@._scan_end(scan);
            found_at := clock_timestamp();
            refused := @extschema@._refused();
            row_limit := candidate.row_limit;
            group_limit := candidate.group_limit;
            IF candidate.doomed <> '{}' THEN
                PERFORM @extschema@._end_useless(candidate.doomed, moment);
            END IF;
            EXIT WHEN candidate.ctids = '{}';
            first := (SELECT o.group_key FROM @extschema@.outbox o WHERE o.ctid = candidate.ctids[1]);
            RETURN QUERY SELECT m.* FROM @extschema@._claim_group(first, names, who, moment, term, batch_limit) m;
            IF FOUND THEN
                IF tried <> '{}' THEN
                    -- The locks of these groups have kept them from other sessions.
                    PERFORM @extschema@._announce_due(moment + interval '1 s');
                END IF;
                RETURN;
            END IF;
            IF @extschema@._refused() > refused THEN
                PERFORM @extschema@._scan_spend(scan, extract(epoch FROM clock_timestamp() - found_at)::double precision);
            ELSIF EXISTS (SELECT FROM @extschema@.budgets) THEN
                -- The first mail of the group does not fit, and the worker looks again when it may.
                RETURN;
            END IF;
            -- Another group is needed, as this one has nothing but rows that stay.
            tried := tried || first;
            EXIT WHEN row_limit <= 0 OR group_limit <= 0 OR @extschema@._refused() - refused_before >= 1000;
        END LOOP;
        refused := @extschema@._refused() - refused_before;
        stops := row_limit <= 0 OR group_limit <= 0 OR refused >= 1000;
        PERFORM @extschema@._end_claim(scan, is_sweep, rest, stops, candidate.is_cut_off, refused, moment);
        EXIT WHEN stops;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_claim_group(integer, interval, text, text, text[]) IS
    'Claims the due mails of one group, of group_key or else of the free group that is next, up to batch_limit (default: all), and returns them by priority, send_at and id. Settle each as after mailroom_claim; the group is held until the last one is settled or its lease ends.';
