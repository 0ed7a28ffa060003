-- Looking for due mail: the rows that a claim tries to lock, in the order of claims.
--
-- Rows are looked at from the session's positions, or from the beginning (20_cursors.sql). No row is locked here: users must be
-- able to cancel what is not claimed, and a lock belongs to the subtransaction that changes the row (30_claimable.sql).
-- Rows of busy groups are stepped over (60_groups.sql). Invariant: the number of rows that one call
-- looks at is bounded, and the next calls go on from there (I4).

-- Long because it has the query twice, as a partial index is used only for a constant condition.
CREATE FUNCTION @extschema@._look_at_due(
    of_transport text,
    of_groups boolean,
    of_priority smallint,
    after_send_at timestamptz,
    after_id bigint,
    moment timestamptz,
    row_limit bigint,
    OUT ctids tid[], OUT send_ats timestamptz[], OUT ids bigint[], OUT group_keys text[], OUT is_plain boolean, OUT looked integer
)
    LANGUAGE plpgsql
    -- Its callers disable the plans that do not suit it.
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF of_groups THEN
        SELECT array_agg(w.place), array_agg(w.send_at), array_agg(w.id), array_agg(w.group_key), false, count(*)
        INTO ctids, send_ats, ids, group_keys, is_plain, looked
        FROM (
            SELECT o.ctid AS place, o.send_at, o.id, o.group_key
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = _look_at_due.of_transport COLLATE "C"
              AND o.group_key IS NOT NULL
              AND o.priority = _look_at_due.of_priority
              AND (o.send_at, o.id) > (_look_at_due.after_send_at, _look_at_due.after_id)
              AND o.send_at <= _look_at_due.moment
            ORDER BY o.priority, o.send_at, o.id
            LIMIT _look_at_due.row_limit
        ) w;
    ELSE
        SELECT
            array_agg(w.place), array_agg(w.send_at), array_agg(w.id), array_agg(w.group_key), bool_and(w.is_plain), count(*)
        INTO ctids, send_ats, ids, group_keys, is_plain, looked
        FROM (
            SELECT
                o.ctid AS place, o.send_at, o.id, o.group_key,
                o.token_id IS NULL AND o.group_key IS NULL AND o.list IS NULL AND o.failed_attempts = 0 AND (o.expires_at <= _look_at_due.moment) IS NOT TRUE
                    AND o.subject IS NOT NULL AND (o.body_text IS NOT NULL OR o.body_html IS NOT NULL) AS is_plain
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = _look_at_due.of_transport COLLATE "C"
              AND o.priority = _look_at_due.of_priority
              AND (o.send_at, o.id) > (_look_at_due.after_send_at, _look_at_due.after_id)
              AND o.send_at <= _look_at_due.moment
            ORDER BY o.priority, o.send_at, o.id
            LIMIT _look_at_due.row_limit
        ) w;
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._look_at_due(text, boolean, smallint, timestamptz, bigint, timestamptz, bigint) IS
    'Internal. The first due rows of a transport, or of its groups, and a priority after a position, in the order of claims; and whether all are complete: in no group and of no list, without secrets, not tried before, and with subject and body of their own.';

-- Long because the priorities of one look share its limits.
CREATE FUNCTION @extschema@._look_for_due(
    scan text,
    is_sweep boolean,
    of_transport text,
    of_groups boolean,
    last_priority integer,
    wanted integer,
    moment timestamptz,
    left_out text[],
    INOUT row_limit bigint,
    INOUT group_limit integer,
    OUT ctids tid[], OUT doomed tid[], OUT is_plain boolean, OUT is_full boolean, OUT is_cut_off boolean
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    -- A group lock helps only if later statements see what was committed meanwhile.
    with_groups CONSTANT boolean := current_setting('transaction_isolation') IN ('read committed', 'read uncommitted');
    span record;
    seen record;
    judged record;
    share bigint;
    asked bigint;
    ahead bigint;
    needed integer;
    grouped boolean;
    busy text[];
    free text[];
    ended boolean;
    passed integer[];
    last integer;
BEGIN
    ctids := '{}';
    doomed := '{}';
    is_plain := true;
    is_full := false;
    is_cut_off := false;
    FOR span IN
        SELECT r.part, r.after_send_at, r.after_id
        FROM @extschema@._due_ranges(scan, is_sweep, of_transport, of_groups) r
        WHERE r.part <= last_priority
    LOOP
        -- So that less urgent mail gets its turn.
        share := greatest(row_limit / 2, 100);
        ahead := wanted - cardinality(ctids);
        LOOP
            asked := least(ahead, share, 1000);
            needed := wanted - cardinality(ctids);
            SELECT l.*
            INTO seen
            FROM @extschema@._look_at_due(of_transport, of_groups, span.part, span.after_send_at, span.after_id, moment, asked) l;
            EXIT WHEN seen.looked = 0;
            IF seen.is_plain THEN
                last := least(seen.looked, needed);
                ctids := ctids || seen.ctids[:last];
            ELSE
                is_plain := false;
                -- Claims are asked for once for each group, because finding out row by row that others hold it is slow.
                grouped := array_remove(seen.group_keys, NULL) <> '{}';
                IF grouped THEN
                    busy := @extschema@._busy_groups(seen.group_keys, moment) || left_out;
                    needed := least(needed, group_limit);
                END IF;
                passed := ARRAY(
                    SELECT k.number::integer
                    FROM unnest(seen.group_keys) WITH ORDINALITY k (group_key, number)
                    WHERE k.group_key IS NULL
                       OR (with_groups AND k.group_key NOT IN (SELECT b.group_key FROM unnest(busy) b (group_key)))
                    ORDER BY k.number
                    LIMIT needed
                );
                last := CASE WHEN cardinality(passed) = needed THEN passed[needed] ELSE seen.looked END;
                IF grouped THEN
                    free := @extschema@._free_groups(ARRAY(SELECT seen.group_keys[p.number] FROM unnest(passed) p (number)));
                    group_limit := group_limit - cardinality(free);
                END IF;
                SELECT j.*
                INTO judged
                FROM @extschema@._judge(
                    ARRAY(
                        SELECT seen.ctids[p.number]
                        FROM unnest(passed) p (number)
                        WHERE seen.group_keys[p.number] IS NULL
                           OR seen.group_keys[p.number] IN (SELECT f.group_key FROM unnest(free) f (group_key))
                        ORDER BY p.number
                    ),
                    moment
                ) j;
                ctids := ctids || judged.ctids;
                doomed := doomed || judged.doomed;
                IF judged.later THEN
                    -- This may be most of what is due.
                    is_cut_off := true;
                    row_limit := least(row_limit, 1000);
                END IF;
                ahead := greatest(2 * ahead, 32);
            END IF;
            span.after_send_at := seen.send_ats[last];
            span.after_id := seen.ids[last];
            row_limit := row_limit - seen.looked;
            share := share - seen.looked;
            is_full := cardinality(ctids) >= wanted OR group_limit <= 0;
            EXIT WHEN is_full OR share <= 0 OR (seen.looked < asked AND last = seen.looked);
        END LOOP;
        ended := NOT is_full AND (seen.looked = 0 OR (seen.looked < asked AND last = seen.looked));
        IF ended THEN
            -- There is no more, so that the next scan skips all that this one stepped over.
            span.after_send_at := moment;
            span.after_id := 9223372036854775807;
        END IF;
        is_cut_off := is_cut_off OR NOT (is_full OR ended);
        PERFORM @extschema@._scan_note(scan, span.part, span.after_send_at, span.after_id, NOT (is_full OR ended));
        EXIT WHEN is_full OR row_limit <= 0;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._look_for_due(text, boolean, text, boolean, integer, integer, timestamptz, text[], bigint, integer) IS
    'Internal. Continues a scan: the next due rows of a transport, or of its groups, up to a priority (32767: all), as many as wanted, in the order of claims, that can be sent and are in no group that is left out or busy, and those that have to end. Locks their groups, and lowers the limits by what it looked at and locked.';
