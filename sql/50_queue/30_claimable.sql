-- Claimable mail: which locked rows a claim may have, and which end instead.
--
-- Claims (40_select_due.sql, 60_groups.sql) call _filter_claimable with rows that they locked. Invariants: a row whose token is no
-- longer good, or that has expired, ends here with its reason and without its secrets; a claim never waits for a
-- session that has locked accounts or tokens exclusively.

CREATE FUNCTION @extschema@._end_useless(doomed tid[], moment timestamptz) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    WITH judged AS MATERIALIZED (
        SELECT
            o.ctid AS place,
            CASE
                WHEN o.expires_at <= _end_useless.moment THEN 'expired'
                WHEN v.token_id IS NULL THEN 'cancelled'
                ELSE v.final
            END AS final,
            CASE
                WHEN o.expires_at <= _end_useless.moment THEN 'expired before it was sent'
                WHEN v.token_id IS NULL THEN 'token was deleted'
                ELSE v.reason
            END AS reason
        FROM @extschema@.outbox o
        LEFT JOIN LATERAL (SELECT e.* FROM @extschema@._token_ends e WHERE e.token_id = o.token_id OFFSET 0) v ON true
        WHERE o.ctid = ANY (_end_useless.doomed)
    )
    UPDATE @extschema@.outbox o
    SET state = j.final,
        secrets = NULL,
        last_error = j.reason,
        updated_at = _end_useless.moment,
        ended_at = _end_useless.moment
    FROM judged j
    WHERE o.ctid = j.place
      AND j.final IS NOT NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._end_useless(tid[], timestamptz) IS
    'Internal. Ends these locked rows, which have expired or whose token is no longer good.';

-- Long because it judges rows by their tokens and by their groups.
CREATE FUNCTION @extschema@._filter_claimable(
    candidates tid[],
    moment timestamptz,
    group_limit integer,
    OUT ctids tid[],
    OUT groups integer,
    OUT held text[],
    OUT over boolean,
    OUT later boolean
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    doomed tid[];
    keys text[];
    open record;
BEGIN
    -- A session with an exclusive lock on these tables may wait for the rows that are locked here, as TRUNCATE does. So
    -- nothing here waits: token mail, and mail that would end, is left for a later call.
    later := NOT @extschema@._lock_accounts_and_tokens(false);
    IF later THEN
        candidates := ARRAY(
            SELECT o.ctid
            FROM @extschema@.outbox o
            WHERE o.ctid = ANY (_filter_claimable.candidates)
              AND o.token_id IS NULL
              AND (o.expires_at <= _filter_claimable.moment) IS NOT TRUE
        );
    ELSE
        -- Mail that can no longer be used ends, whether or not its group is held.
        doomed := ARRAY(
            SELECT o.ctid
            FROM @extschema@.outbox o
            LEFT JOIN LATERAL (SELECT e.eligible FROM @extschema@._token_ends e WHERE e.token_id = o.token_id OFFSET 0) v ON true
            WHERE o.ctid = ANY (_filter_claimable.candidates)
              AND (o.expires_at <= _filter_claimable.moment OR (o.token_id IS NOT NULL AND v.eligible IS NOT TRUE))
        );
        IF doomed <> '{}' THEN
            IF @extschema@._begin_changes() THEN
                PERFORM @extschema@._end_useless_one_by_one(doomed, moment);
            ELSE
                PERFORM @extschema@._end_useless(doomed, moment);
            END IF;
            PERFORM @extschema@._end_changes();
            candidates := ARRAY(SELECT c.place FROM unnest(candidates) c (place) WHERE c.place <> ALL (doomed));
        END IF;
    END IF;
    SELECT
        coalesce(array_agg(o.ctid) FILTER (WHERE o.group_key IS NULL), '{}'),
        array_agg(o.group_key ORDER BY o.priority, o.send_at, o.id) FILTER (WHERE o.group_key IS NOT NULL)
    INTO ctids, keys
    FROM (
        SELECT w.ctid, w.group_key, w.priority, w.send_at, w.id
        FROM @extschema@.outbox w
        WHERE w.ctid = ANY (_filter_claimable.candidates)
        -- Kept apart, so that no index is scanned for the order of the keys.
        OFFSET 0
    ) o;

    groups := 0;
    over := false;
    IF keys IS NOT NULL THEN
        SELECT f.* INTO open FROM @extschema@._free_groups(keys, group_limit) f;
        groups := cardinality(open.free);
        over := open.over;
        held := ARRAY(SELECT DISTINCT k FROM unnest(keys) k WHERE k <> ALL (open.free));
        ctids := ctids || ARRAY(
            SELECT o.ctid
            FROM @extschema@.outbox o
            WHERE o.ctid = ANY (_filter_claimable.candidates)
              AND o.group_key = ANY (open.free)
        );
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._filter_claimable(tid[], timestamptz, integer) IS
    'Internal. Ends those of the locked rows that can no longer be sent. Returns the others whose group is free, the number of their groups, the groups that are held, whether there are more than group_limit groups, and whether token mail was left out because its tables are locked.';
