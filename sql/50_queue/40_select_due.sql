-- Selecting due mail: which rows a claim locks, and in which order it looks for them.
--
-- Rows are locked with SKIP LOCKED in the order of claims, from the session's cursor (20_cursors.sql) and, when that
-- finds too few, from the beginning. Rows of groups that another claimant holds are stepped over (60_groups.sql).
-- Invariants: no claimant waits for another (I3); the number of rows that one call looks at is bounded, and the next
-- calls go on from there (I4).

-- Long because it has the scan twice, as a partial index is used only for a constant condition.
CREATE FUNCTION @extschema@._lock_due_skipping_groups(
    of_transport text,
    of_groups boolean,
    held text[],
    look integer,
    of_priority smallint,
    after_send_at timestamptz,
    after_id bigint,
    until_send_at timestamptz,
    until_id bigint,
    wanted integer,
    moment timestamptz,
    OUT ctids tid[],
    OUT needs_check boolean,
    OUT looked integer,
    OUT last_send_at timestamptz,
    OUT last_id bigint,
    OUT more boolean
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    bad CONSTANT bigint[] := @extschema@._bad_rows(of_transport);
    seen record;
    busy text[];
    passed integer[];
    last integer;
BEGIN
    -- Not locked: most of them may belong to held groups, and users must be able to cancel those.
    IF of_groups THEN
        SELECT
            array_agg(w.place) AS ctids,
            array_agg(w.send_at) AS send_ats,
            array_agg(w.id) AS ids,
            array_agg(w.group_key) AS keys
        INTO seen
        FROM (
            SELECT o.ctid AS place, o.send_at, o.id, o.group_key
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = _lock_due_skipping_groups.of_transport COLLATE "C"
              AND o.group_key IS NOT NULL
              AND o.priority = _lock_due_skipping_groups.of_priority
              AND (o.send_at, o.id) > (_lock_due_skipping_groups.after_send_at, _lock_due_skipping_groups.after_id)
              AND (o.send_at, o.id) <= (_lock_due_skipping_groups.until_send_at, _lock_due_skipping_groups.until_id)
              AND o.id NOT IN (SELECT unnest(local.bad))
            ORDER BY o.priority, o.send_at, o.id
            LIMIT _lock_due_skipping_groups.look
        ) w;
    ELSE
        SELECT
            array_agg(w.place) AS ctids,
            array_agg(w.send_at) AS send_ats,
            array_agg(w.id) AS ids,
            array_agg(w.group_key) AS keys
        INTO seen
        FROM (
            SELECT o.ctid AS place, o.send_at, o.id, o.group_key
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = _lock_due_skipping_groups.of_transport COLLATE "C"
              AND o.priority = _lock_due_skipping_groups.of_priority
              AND (o.send_at, o.id) > (_lock_due_skipping_groups.after_send_at, _lock_due_skipping_groups.after_id)
              AND (o.send_at, o.id) <= (_lock_due_skipping_groups.until_send_at, _lock_due_skipping_groups.until_id)
              AND o.id NOT IN (SELECT unnest(local.bad))
            ORDER BY o.priority, o.send_at, o.id
            LIMIT _lock_due_skipping_groups.look
        ) w;
    END IF;
    looked := coalesce(cardinality(seen.ctids), 0);
    more := looked = look;
    -- Also look at the claims, because finding out group by group that others hold them is slow.
    busy := @extschema@._held_groups(seen.keys, moment);
    passed := ARRAY(
        SELECT u.number::integer
        FROM unnest(seen.keys) WITH ORDINALITY u (key, number)
        WHERE u.key IS NULL
           OR (u.key <> ALL (held) AND u.key <> ALL (busy))
        ORDER BY u.number
        LIMIT wanted
    );
    last := looked;
    IF cardinality(passed) = wanted THEN
        last := passed[wanted];
        more := more OR last < looked;
    END IF;
    last_send_at := seen.send_ats[last];
    last_id := seen.ids[last];
    needs_check := true;
    SELECT array_agg(s.place)
    INTO ctids
    FROM (
        SELECT o.ctid AS place
        FROM @extschema@.outbox o
        WHERE o.ctid = ANY (ARRAY(SELECT seen.ctids[p] FROM unnest(local.passed) p))
          -- As text, since o.state = 'scheduled' could be answered by a scan of outbox_due as well.
          AND o.state::text = 'scheduled'
        FOR NO KEY UPDATE OF o SKIP LOCKED
    ) s;
END;
$$;
COMMENT ON FUNCTION @extschema@._lock_due_skipping_groups(text, boolean, text[], integer, smallint, timestamptz, bigint, timestamptz, bigint, integer, timestamptz) IS
    'Internal. Looks at rows of one transport and priority between two positions, in the order of claims, and locks those that belong to none of the held groups. Returns their ctids, the position that it reached, and whether there may be more.';

-- Long because the passes of one scan share their limits and positions.
CREATE FUNCTION @extschema@._select_due(
    of_transport text,
    of_groups boolean,
    last_priority integer,
    wanted integer,
    moment timestamptz,
    took_back boolean,
    OUT ctids tid[],
    OUT in_order boolean
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    -- A sort that happens nevertheless has a high cost estimate, which would start JIT compilation.
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
<<local>>
DECLARE
    -- Number of rows to look at in one call. Rows that cannot be claimed do not count against the limit, and there may
    -- be any number of them; the transaction stays short nevertheless.
    row_budget bigint := 10000 + 2 * wanted::bigint;
    -- The part of it for one priority, so that less urgent mail gets its turn.
    share bigint;
    -- Number of group locks held at a time, out of the server's max_locks_per_transaction * max_connections.
    group_limit CONSTANT integer := 256;
    groups integer := group_limit;
    -- Groups that were found to be held; NULL for all groups. A group lock helps only if later statements see what was
    -- committed meanwhile.
    held text[] := CASE WHEN current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN '{}'::text[] END;
    look integer := 32;
    bad CONSTANT bigint[] := @extschema@._bad_rows(of_transport);
    start text := @extschema@._due_begin(of_transport, of_groups);
    sweep boolean := start = 'sweep';
    again boolean := false;
    span record;
    picked record;
    judged record;
    more boolean;
    unfinished boolean;
    broken_off boolean := false;
    over boolean := false;
    next_piece boolean := true;
    -- Seconds until a scan may look before its positions again.
    rest double precision;
BEGIN
    ctids := '{}';
    in_order := true;
    IF took_back AND last_priority >= 32767 AND @extschema@._due_may_sweep(of_transport, of_groups) THEN
        -- The rows that were taken back are before this session's position.
        sweep := true;
    END IF;
    <<passes>>
    LOOP
        FOR span IN
            -- A piece of what is before this session's positions,
            SELECT true AS is_piece, p.priority, p.send_at, p.id, p.until_send_at, p.until_id
            FROM @extschema@._due_pieces(of_transport, of_groups, last_priority::smallint) p
            WHERE start = 'piece'
            UNION ALL
            -- what follows them,
            SELECT false, p.priority, p.send_at, p.id, moment, 9223372036854775807
            FROM @extschema@._due_positions(of_transport, of_groups) p
            WHERE NOT sweep
              AND p.priority <= last_priority
            UNION ALL
            -- and priorities without one; or, in a sweep, all priorities, from where the last sweep stopped up to what
            -- the first pass looked at.
            SELECT
                false,
                l.priority,
                CASE WHEN b.is_behind THEN p.paused_send_at ELSE l.send_at END,
                CASE WHEN b.is_behind THEN p.paused_id ELSE l.id END,
                CASE WHEN again THEN least(moment, p.send_at) ELSE moment END,
                CASE WHEN again AND p.id IS NOT NULL THEN p.id ELSE 9223372036854775807 END
            FROM @extschema@._due_priorities(of_transport, of_groups, NOT sweep) l
            LEFT JOIN @extschema@._due_positions(of_transport, of_groups) p ON p.priority = l.priority
            CROSS JOIN LATERAL (SELECT (p.paused_send_at, p.paused_id) > (l.send_at, l.id)) b (is_behind)
            WHERE (sweep OR start = 'piece')
              AND l.priority <= last_priority
            ORDER BY 1 DESC, 2
        LOOP
            CONTINUE WHEN span.is_piece AND NOT next_piece;
            share := greatest(row_budget / 2, 100);
            unfinished := false;
            more := false;
            WHILE (span.send_at, span.id) < (span.until_send_at, span.until_id) LOOP
                IF held = '{}' AND NOT of_groups THEN
                    SELECT
                        array_agg(s.place) AS ctids,
                        bool_or(s.needs_check) AS needs_check,
                        count(*)::integer AS looked,
                        max(s.send_at) AS last_send_at,
                        (array_agg(s.id))[count(*)::integer] AS last_id,
                        count(*) = wanted - cardinality(ctids) AS more
                    INTO picked
                    FROM (
                        SELECT
                            o.ctid AS place,
                            o.send_at,
                            o.id,
                            o.token_id IS NOT NULL OR o.group_key IS NOT NULL OR o.expires_at <= _select_due.moment
                                OR o.subject IS NULL OR (o.body_text IS NULL AND o.body_html IS NULL) AS needs_check
                        FROM @extschema@.outbox o
                        WHERE o.state = 'scheduled'
                          AND o.transport = _select_due.of_transport COLLATE "C"
                          AND o.priority = span.priority
                          AND (o.send_at, o.id) > (span.send_at, span.id)
                          AND (o.send_at, o.id) <= (span.until_send_at, span.until_id)
                          AND o.id NOT IN (SELECT unnest(local.bad))
                        ORDER BY o.priority, o.send_at, o.id
                        LIMIT _select_due.wanted - cardinality(_select_due.ctids)
                        FOR NO KEY UPDATE OF o SKIP LOCKED
                    ) s;
                ELSE
                    SELECT p.*
                    INTO picked
                    FROM @extschema@._lock_due_skipping_groups(
                        of_transport, of_groups, held, least(look, share)::integer, span.priority, span.send_at, span.id,
                        span.until_send_at, span.until_id, wanted - cardinality(ctids), moment
                    ) p;
                    look := least(2 * look, 1000);
                END IF;
                more := picked.looked > 0 AND picked.more;
                EXIT WHEN picked.looked = 0;
                IF picked.ctids IS NULL THEN
                    NULL;
                ELSIF picked.needs_check THEN
                    SELECT j.* INTO judged FROM @extschema@._filter_claimable(picked.ctids, moment, groups) j;
                    ctids := ctids || judged.ctids;
                    in_order := false;
                    -- The next call looks at these rows again.
                    over := judged.over;
                    EXIT WHEN over;
                    groups := groups - judged.groups;
                    held := held || judged.held;
                    IF judged.later THEN
                        -- This may be most of what is due, and is scanned row by row if few are wanted.
                        broken_off := true;
                        row_budget := least(row_budget, 1000);
                    END IF;
                ELSE
                    in_order := in_order AND ctids = '{}';
                    ctids := ctids || picked.ctids;
                END IF;
                span.send_at := picked.last_send_at;
                span.id := picked.last_id;
                row_budget := row_budget - picked.looked;
                share := share - picked.looked;
                EXIT WHEN cardinality(ctids) >= wanted OR NOT more;
                unfinished := row_budget <= 0 OR share <= 0;
                EXIT WHEN unfinished;
            END LOOP;
            IF span.is_piece THEN
                unfinished := unfinished OR over OR more;
                next_piece := @extschema@._due_note_piece(
                    of_transport, of_groups, span.priority,
                    CASE WHEN unfinished THEN span.send_at ELSE span.until_send_at END,
                    CASE WHEN unfinished THEN span.id ELSE span.until_id END,
                    unfinished
                );
            ELSE
                -- Everything was scanned. The next scan skips what this one skipped after the last row, except rows of
                -- the last 10 s, whose transactions may have taken long to commit.
                IF NOT (more OR over) AND span.until_send_at = moment AND span.send_at < moment - interval '10 s' THEN
                    span.send_at := moment - interval '10 s';
                END IF;
                -- After a sweep that found enough, the next scan continues here; otherwise rows that were found before
                -- the position do not move it.
                PERFORM @extschema@._due_note(
                    of_transport, of_groups, span.priority, span.send_at, span.id,
                    sweep AND (over OR cardinality(ctids) >= wanted), CASE WHEN sweep THEN unfinished END
                );
            END IF;
            broken_off := broken_off OR unfinished;
            EXIT passes WHEN row_budget <= 0 OR over OR cardinality(ctids) >= wanted;
        END LOOP;
        EXIT passes WHEN sweep OR NOT @extschema@._due_may_sweep(of_transport, of_groups);
        sweep := true;
        again := true;
    END LOOP;
    -- Whether it was a sweep of all priorities.
    rest := @extschema@._due_end(of_transport, of_groups, sweep AND last_priority >= 32767, cardinality(ctids), group_limit - groups);
    -- Tell senders to look again: there may be rows before this session's position that are too expensive to look for
    -- now, or more than one call looks at.
    IF over AND ctids <> '{}' THEN
        PERFORM @extschema@._announce_due(moment);
    ELSIF cardinality(ctids) < wanted AND NOT sweep THEN
        PERFORM @extschema@._announce_due(clock_timestamp() + make_interval(secs => greatest(0.1, rest)));
    ELSIF over OR broken_off AND cardinality(ctids) < wanted THEN
        PERFORM @extschema@._announce_due(moment + interval '1 s');
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._select_due(text, boolean, integer, integer, timestamptz, boolean) IS
    'Internal. Locks up to the wanted number of due and claimable rows of a transport, or of its groups, up to a priority (32767: all), in the order of claims, and ends those that can no longer be sent. Returns their ctids, and whether they are in that order and complete: without secrets, and with subject and body of their own.';
