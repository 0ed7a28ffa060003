-- Gathering: which due mails a claim gets, and how it finds them.
--
-- Rows are locked with SKIP LOCKED in the order of claims, from where the session's last scan ended (a hint, see
-- src/due.rs) and, when that finds too few, from the beginning. What cannot be sent any more is ended on the way; rows
-- of groups that somebody holds are stepped over (47_groups.sql). Invariants: no claimant waits for another (I3); how much one
-- call looks at is bounded, and what it did not come to is come to by the next ones (I4).

CREATE FUNCTION @extschema@._judge(
    candidates tid[],
    moment timestamptz,
    group_limit integer,
    OUT places tid[],
    OUT groups integer,
    OUT held text[],
    OUT later boolean
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    keys text[];
    free text[];
BEGIN
    -- Whoever has these tables to himself may want the rows that are locked here, as TRUNCATE does. So nobody waits: what
    -- has a token, or is to be ended, is left for another time.
    later := NOT @extschema@._lock_sources(false);
    IF later THEN
        candidates := ARRAY(
            SELECT o.ctid
            FROM @extschema@.outbox o
            WHERE o.ctid = ANY (candidates)
              AND o.token_id IS NULL
              AND (o.expires_at <= moment) IS NOT TRUE
        );
    ELSE
        -- What is of no use any more, whatever group it is in.
        WITH doomed AS MATERIALIZED (
            SELECT
                o.ctid AS place,
                CASE
                    WHEN o.expires_at <= moment THEN 'expired'
                    WHEN v.token_id IS NULL THEN 'cancelled'
                    ELSE v.final
                END AS final,
                CASE
                    WHEN o.expires_at <= moment THEN 'expired before it was sent'
                    WHEN v.token_id IS NULL THEN 'token was deleted'
                    ELSE v.reason
                END AS reason
            FROM @extschema@.outbox o
            LEFT JOIN @extschema@._token_ends v ON v.token_id = o.token_id
            WHERE o.ctid = ANY (candidates)
              AND (o.expires_at <= moment OR (o.token_id IS NOT NULL AND v.eligible IS NOT TRUE))
        ), ended AS (
            UPDATE @extschema@.outbox o
            SET state = d.final,
                secrets = NULL,
                last_error = d.reason,
                updated_at = moment,
                ended_at = moment
            FROM doomed d
            WHERE o.ctid = d.place
        )
        SELECT coalesce(array_agg(c.place), '{}')
        INTO candidates
        FROM unnest(candidates) c (place)
        WHERE c.place NOT IN (SELECT d.place FROM doomed d);
    END IF;
    SELECT
        coalesce(array_agg(o.ctid) FILTER (WHERE o.group_key IS NULL), '{}'),
        array_agg(DISTINCT o.group_key) FILTER (WHERE o.group_key IS NOT NULL)
    INTO places, keys
    FROM @extschema@.outbox o
    WHERE o.ctid = ANY (candidates);

    groups := 0;
    IF keys IS NOT NULL THEN
        free := @extschema@._free_groups(keys, group_limit);
        groups := cardinality(free);
        held := ARRAY(SELECT k FROM unnest(keys) k WHERE k <> ALL (free));
        places := places || ARRAY(
            SELECT o.ctid
            FROM @extschema@.outbox o
            WHERE o.ctid = ANY (candidates)
              AND o.group_key = ANY (free)
        );
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._judge(tid[], timestamptz, integer) IS
    'Internal. Ends those of the locked rows that cannot be sent any more; returns the places of those that can and whose group is free, of how many groups they are, the groups that are not, and whether mail of tokens was left out because the tables behind it are locked.';

CREATE FUNCTION @extschema@._next_due(
    of_groups boolean,
    after_priority integer,
    OUT priority smallint,
    OUT send_at timestamptz,
    OUT id bigint
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
#variable_conflict use_column
BEGIN
    IF of_groups THEN
        SELECT o.priority, o.send_at, o.id - 1
        INTO priority, send_at, id
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.group_key IS NOT NULL
          AND o.priority > after_priority
        ORDER BY o.priority, o.send_at, o.id
        LIMIT 1;
    ELSE
        SELECT o.priority, o.send_at, o.id - 1
        INTO priority, send_at, id
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.priority > after_priority
        ORDER BY o.priority, o.send_at, o.id
        LIMIT 1;
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._next_due(boolean, integer) IS
    'Internal. The next priority behind this one that anything is scheduled for, of groups or at all, and the position just before its first row; NULLs if there is none.';

CREATE FUNCTION @extschema@._pick_due(
    lane smallint,
    after_send_at timestamptz,
    after_id bigint,
    until_send_at timestamptz,
    until_id bigint,
    wanted integer,
    moment timestamptz,
    OUT places tid[],
    OUT special boolean,
    OUT seen integer,
    OUT last_send_at timestamptz,
    OUT last_id bigint,
    OUT more boolean
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
DECLARE
    ids bigint[];
BEGIN
    SELECT
        array_agg(s.place),
        bool_or(s.special),
        max(s.send_at),
        array_agg(s.id)
    INTO places, special, last_send_at, ids
    FROM (
        SELECT
            o.ctid AS place,
            o.send_at,
            o.id,
            o.token_id IS NOT NULL OR o.group_key IS NOT NULL OR o.expires_at <= moment
                OR o.subject IS NULL OR (o.body_text IS NULL AND o.body_html IS NULL) AS special
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.priority = lane
          AND (o.send_at, o.id) > (after_send_at, after_id)
          AND (o.send_at, o.id) <= (until_send_at, until_id)
        ORDER BY o.priority, o.send_at, o.id
        LIMIT wanted
        FOR UPDATE OF o SKIP LOCKED
    ) s;
    seen := coalesce(cardinality(places), 0);
    last_id := ids[seen];
    more := seen = wanted;
END;
$$;
COMMENT ON FUNCTION @extschema@._pick_due(smallint, timestamptz, bigint, timestamptz, bigint, integer, timestamptz) IS
    'Internal. Locks up to so many rows of one priority behind a position and up to another, in the order of claims. Returns their places, whether any of them has to be judged, how many rows it looked at, the last one''s position, and whether there may be more.';

CREATE FUNCTION @extschema@._pick_past(
    of_groups boolean,
    held text[],
    look integer,
    lane smallint,
    after_send_at timestamptz,
    after_id bigint,
    until_send_at timestamptz,
    until_id bigint,
    wanted integer,
    OUT places tid[],
    OUT special boolean,
    OUT seen integer,
    OUT last_send_at timestamptz,
    OUT last_id bigint,
    OUT more boolean
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
AS $$
DECLARE
    looked record;
    passed integer[];
BEGIN
    -- Not locked, for most of them may be of groups that somebody holds: a person may cancel those meanwhile.
    IF of_groups THEN
        SELECT
            array_agg(w.place) AS places,
            array_agg(w.send_at) AS send_ats,
            array_agg(w.id) AS ids,
            array_agg((w.group_key <> ALL (held)) IS TRUE) AS free
        INTO looked
        FROM (
            SELECT o.ctid AS place, o.send_at, o.id, o.group_key
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.group_key IS NOT NULL
              AND o.priority = lane
              AND (o.send_at, o.id) > (after_send_at, after_id)
              AND (o.send_at, o.id) <= (until_send_at, until_id)
            ORDER BY o.priority, o.send_at, o.id
            LIMIT look
        ) w;
    ELSE
        SELECT
            array_agg(w.place) AS places,
            array_agg(w.send_at) AS send_ats,
            array_agg(w.id) AS ids,
            array_agg(w.group_key IS NULL OR (w.group_key <> ALL (held)) IS TRUE) AS free
        INTO looked
        FROM (
            SELECT o.ctid AS place, o.send_at, o.id, o.group_key
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.priority = lane
              AND (o.send_at, o.id) > (after_send_at, after_id)
              AND (o.send_at, o.id) <= (until_send_at, until_id)
            ORDER BY o.priority, o.send_at, o.id
            LIMIT look
        ) w;
    END IF;
    seen := coalesce(cardinality(looked.places), 0);
    more := seen = look;
    passed := ARRAY(
        SELECT u.number::integer
        FROM unnest(looked.free) WITH ORDINALITY u (free, number)
        WHERE u.free
        ORDER BY u.number
        LIMIT wanted
    );
    IF cardinality(passed) = wanted THEN
        more := more OR passed[wanted] < seen;
        seen := passed[wanted];
    END IF;
    last_send_at := looked.send_ats[seen];
    last_id := looked.ids[seen];
    special := true;
    SELECT array_agg(s.place)
    INTO places
    FROM (
        SELECT o.ctid AS place
        FROM @extschema@.outbox o
        WHERE o.ctid = ANY (ARRAY(SELECT looked.places[p] FROM unnest(passed) p))
          AND o.state = 'scheduled'
        FOR UPDATE OF o SKIP LOCKED
    ) s;
END;
$$;
COMMENT ON FUNCTION @extschema@._pick_past(boolean, text[], integer, smallint, timestamptz, bigint, timestamptz, bigint, integer) IS
    'Internal. As _pick_due, for rows of groups or for all, past the rows of the groups named, or of all groups if held is NULL; looks at so many rows at most.';

CREATE FUNCTION @extschema@._gather(
    of_groups boolean,
    last_priority integer,
    wanted integer,
    moment timestamptz,
    OUT places tid[],
    OUT in_order boolean
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    -- Rows looked at in one call. What cannot be claimed does not count against the limit, and there may be
    -- any number of it; one transaction stays short all the same.
    patience bigint := 10000 + 2 * wanted::bigint;
    -- Of those, the part of one priority: what is less urgent gets its turn.
    share bigint;
    -- Locks of groups held at a time, of the server's max_locks_per_transaction * max_connections.
    groups integer := 256;
    -- Groups that were found not to be free; NULL for all. The lock on a group is of use only to those who then
    -- see what was committed meanwhile.
    held text[] := CASE WHEN current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN '{}'::text[] END;
    sweep boolean := @extschema@._due_begin(of_groups);
    -- Where the scan of each known priority starts, and the one that is being scanned.
    known record;
    number integer;
    after_priority integer;
    lane record;
    until_send_at timestamptz;
    until_id bigint;
    picked record;
    judged record;
    again boolean := false;
    unfinished boolean;
    broken_off boolean := false;
BEGIN
    places := '{}';
    in_order := true;
    IF last_priority >= 32767 THEN
        IF @extschema@._take_back(moment, 1000) > 0 THEN
            -- They are behind this session's position.
            sweep := true;
        END IF;
    END IF;
    SELECT
        coalesce(array_agg(p.priority), '{}') AS priorities,
        coalesce(array_agg(p.send_at), '{}') AS send_ats,
        coalesce(array_agg(p.id), '{}') AS ids,
        coalesce(array_agg(p.paused_send_at), '{}') AS paused_send_ats,
        coalesce(array_agg(p.paused_id), '{}') AS paused_ids
    INTO known
    FROM @extschema@._due_positions(of_groups) p;
    <<passes>>
    LOOP
        number := 0;
        after_priority := NULL;
        <<lanes>>
        LOOP
            until_send_at := moment;
            until_id := 9223372036854775807;
            IF sweep THEN
                SELECT n.priority, n.send_at, n.id
                INTO lane
                FROM @extschema@._next_due(of_groups, coalesce(after_priority, -32769)) n;
                EXIT lanes WHEN (lane.priority <= last_priority) IS NOT TRUE;
                after_priority := lane.priority;
                number := array_position(known.priorities, lane.priority);
                IF number IS NULL THEN
                    PERFORM @extschema@._due_note(of_groups, false, lane.priority, lane.send_at, lane.id);
                ELSE
                    IF again THEN
                        -- What lies above the position was looked at in the pass before, and may be locked by us.
                        until_send_at := least(moment, known.send_ats[number]);
                        until_id := known.ids[number];
                    END IF;
                    IF (known.paused_send_ats[number], known.paused_ids[number]) > (lane.send_at, lane.id) THEN
                        lane.send_at := known.paused_send_ats[number];
                        lane.id := known.paused_ids[number];
                    END IF;
                END IF;
            ELSE
                number := number + 1;
                EXIT lanes WHEN (known.priorities[number] <= last_priority) IS NOT TRUE;
                SELECT known.priorities[number] AS priority, known.send_ats[number] AS send_at, known.ids[number] AS id
                INTO lane;
            END IF;
            patience := patience - 1;
            share := greatest(patience / 2, 100);
            unfinished := false;
            WHILE (lane.send_at, lane.id) < (until_send_at, until_id) LOOP
                IF held = '{}' AND NOT of_groups THEN
                    SELECT p.*
                    INTO picked
                    FROM @extschema@._pick_due(
                        lane.priority, lane.send_at, lane.id, until_send_at, until_id, wanted - cardinality(places), moment
                    ) p;
                ELSE
                    SELECT p.*
                    INTO picked
                    FROM @extschema@._pick_past(
                        of_groups, held, least(share, 1000)::integer,
                        lane.priority, lane.send_at, lane.id, until_send_at, until_id, wanted - cardinality(places)
                    ) p;
                END IF;
                EXIT WHEN picked.seen = 0;
                IF picked.places IS NULL THEN
                    NULL;
                ELSIF picked.special THEN
                    SELECT j.* INTO judged FROM @extschema@._judge(picked.places, moment, groups) j;
                    groups := groups - judged.groups;
                    held := CASE WHEN groups > 0 THEN held || judged.held END;
                    in_order := false;
                    places := places || judged.places;
                    IF judged.later THEN
                        -- It may be most of what is due, and is looked at row by row when few are wanted.
                        broken_off := true;
                        patience := least(patience, 1000);
                    END IF;
                ELSE
                    in_order := in_order AND places = '{}';
                    places := places || picked.places;
                END IF;
                lane.send_at := picked.last_send_at;
                lane.id := picked.last_id;
                patience := patience - picked.seen;
                share := share - picked.seen;
                -- A sweep that found enough has the next scan go on from here; else what it finds behind the
                -- position leaves the position where it is.
                PERFORM @extschema@._due_note(
                    of_groups, sweep AND cardinality(places) >= wanted, lane.priority, lane.send_at, lane.id
                );
                EXIT WHEN cardinality(places) >= wanted OR NOT picked.more;
                unfinished := patience <= 0 OR share <= 0;
                EXIT WHEN unfinished;
            END LOOP;
            broken_off := broken_off OR unfinished;
            IF sweep AND (unfinished OR known.paused_send_ats[number] IS NOT NULL) THEN
                PERFORM @extschema@._due_pause(
                    of_groups, lane.priority, CASE WHEN unfinished THEN lane.send_at END, CASE WHEN unfinished THEN lane.id END
                );
            END IF;
            EXIT lanes WHEN patience <= 0 OR cardinality(places) >= wanted;
        END LOOP;
        -- A sweep of all priorities, if it was one.
        PERFORM @extschema@._due_end(of_groups, sweep AND last_priority >= 32767);
        EXIT passes WHEN sweep
            OR cardinality(places) >= wanted
            OR patience <= 0
            OR NOT @extschema@._due_may_sweep(of_groups);
        sweep := true;
        again := true;
    END LOOP;
    IF (broken_off OR NOT sweep) AND cardinality(places) < wanted THEN
        -- Something may lie behind this session's position, too dear to look for just now, or beyond what one call
        -- looks at: have senders told to look again.
        PERFORM @extschema@._announce_due(moment + interval '1 s');
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._gather(boolean, integer, integer, timestamptz) IS
    'Internal. Locks up to so many due rows that can be claimed, of groups only or any, up to a priority (32767: all), in the order of claims; ends those that are of no use any more. Returns their places, and whether these are known to be in that order and complete: without secrets, and with subject and body of their own.';
