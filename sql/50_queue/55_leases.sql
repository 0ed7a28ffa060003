-- Leases: claims expire, are extended and are released.
--
-- Claims take expired leases back first, the worker does so in between and, when it starts, at once for what an earlier
-- worker of the same database and timeline held; what another timeline holds may still be in the hands of the old
-- leader, so its leases are waited for. Senders extend and release. Invariants: an expired lease counts as a failed
-- attempt, and five in a row end the mail; a release does not count; neither waits for another session (I3).

-- Long because one statement judges, records and takes back the claims.
CREATE FUNCTION @extschema@._expire_claims(ctids tid[], moment timestamptz) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    -- The sort of its window function has a high cost estimate here, which would start JIT compilation.
    SET jit = off
AS $$
<<local>>
DECLARE
    locked tid[];
    taken integer;
    ended bigint;
    latest bigint;
    alone boolean;
BEGIN
    locked := ARRAY(
        SELECT o.ctid
        FROM @extschema@.outbox o
        WHERE o.ctid = ANY (_expire_claims.ctids)
          AND o.state::text = 'claimed'
          AND o.claimed_until <= _expire_claims.moment
        FOR NO KEY UPDATE SKIP LOCKED
    );
    WITH lapsed AS MATERIALIZED (
        SELECT
            o.ctid AS place, o.id, o.failed_attempts + 1 AS attempt, o.max_attempts, o.send_at, o.expires_at, o.batch, o.claimed_at,
            o.claimed_by, o.transport, r.in_a_row
        FROM @extschema@.outbox o
        CROSS JOIN LATERAL (
            SELECT count(*) + 1 AS in_a_row
            FROM @extschema@.outbox_attempts a
            WHERE a.outbox_id = o.id
              AND a.outcome = 'lease_expired'
              AND NOT EXISTS (
                  SELECT
                  FROM @extschema@.outbox_attempts s
                  WHERE s.outbox_id = o.id
                    AND s.outcome IN ('failed', 'ambiguous')
                    AND s.attempt > a.attempt
              )
        ) r
        WHERE o.ctid = ANY (local.locked)
    ), judged AS MATERIALIZED (
        SELECT
            l.place,
            l.attempt,
            CASE
                WHEN @extschema@._is_known_to_be_sent(l.id, l.attempt, l.batch) THEN 'sent'
                -- A mail that five senders in a row did not survive is not given to a sixth. After a retry it has five
                -- more.
                WHEN l.attempt >= l.max_attempts OR l.in_a_row % 5 = 0 THEN 'error'
                WHEN l.expires_at <= _expire_claims.moment THEN 'expired'
                ELSE 'scheduled'
            END::@extschema@.outbox_state AS next,
            -- Mails that are sent together again are due together.
            CASE WHEN l.batch IS NULL THEN w.again ELSE min(w.again) OVER (PARTITION BY l.batch) END AS again
        FROM lapsed l
        CROSS JOIN LATERAL (
            -- The first time at once: most often it was not the mail that ended the sender.
            SELECT CASE
                WHEN l.in_a_row % 5 = 1 THEN l.send_at
                ELSE @extschema@._due_again((l.in_a_row % 5)::integer, NULL::integer, NULL::interval, l.expires_at, _expire_claims.moment)
            END AS again
            OFFSET 0
        ) w
    ), changed AS (
        UPDATE @extschema@.outbox o
        SET state = j.next,
            send_at = CASE WHEN j.next = 'scheduled' THEN j.again ELSE o.send_at END,
            failed_attempts = j.attempt,
            last_error = CASE WHEN j.next <> 'sent' THEN 'lease expired' END,
            claimed_by = CASE WHEN j.next IN ('scheduled', 'sent') THEN NULL ELSE o.claimed_by END,
            claimed_at = CASE WHEN j.next IN ('scheduled', 'sent') THEN NULL ELSE o.claimed_at END,
            claimed_until = NULL,
            updated_at = _expire_claims.moment,
            ended_at = CASE WHEN j.next = 'scheduled' THEN NULL ELSE _expire_claims.moment END
        FROM judged j
        WHERE o.ctid = j.place
        RETURNING o.id, o.state
    ), taken_back AS (
        -- A trigger of the application may let the UPDATE do nothing.
        SELECT c.id, c.state FROM changed c WHERE c.state <> 'claimed'
    ), noted AS (
        INSERT INTO @extschema@._new_attempts (outbox_id, attempt, outcome, started_at, ended_at, claimant, transport, error)
        SELECT l.id, l.attempt, 'lease_expired', l.claimed_at, _expire_claims.moment, l.claimed_by, l.transport, 'lease expired'
        FROM taken_back t
        JOIN lapsed l ON l.id = t.id
    )
    SELECT count(*), count(*) FILTER (WHERE c.state = 'error'), max(c.id) FILTER (WHERE c.state = 'error')
    INTO taken, ended, latest
    FROM taken_back c;
    IF ended > 0 THEN
        PERFORM @extschema@._note_ended(ended, latest, 'the leases of its claims expired');
    END IF;
    RETURN taken;
EXCEPTION
    WHEN OTHERS THEN
        alone := @extschema@._passes_by(SQLSTATE, ctids);
        IF alone IS NULL THEN
            RAISE;
        ELSIF alone THEN
            RETURN 0;
        END IF;
        RETURN (SELECT sum(@extschema@._expire_claims(ARRAY[u.place], moment)) FROM unnest(ctids) u (place));
END;
$$;
COMMENT ON FUNCTION @extschema@._expire_claims(tid[], timestamptz) IS
    'Internal. Takes back these claims, whose lease has ended by this time; leaves those that others hold, and those that cannot be changed. Returns how many it took back.';

CREATE FUNCTION @extschema@._expire_leases(moment timestamptz, row_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET jit = off
AS $$
DECLARE
    start record;
    found record;
    taken integer;
BEGIN
    PERFORM @extschema@._scan_begin('leases'::text);
    SELECT s.at, s.id INTO start FROM @extschema@._scan_start('leases'::text, 0::smallint) s;
    SELECT
        array_agg(l.place) AS ctids, array_agg(l.claimed_until) AS ends, array_agg(l.id) AS ids,
        count(*) = _expire_leases.row_limit AS is_full
    INTO found
    FROM (
        SELECT o.ctid AS place, o.claimed_until, o.id
        FROM @extschema@.outbox o
        WHERE o.state = 'claimed'
          AND (o.claimed_until, o.id) > (start.at, start.id)
          AND o.claimed_until <= _expire_leases.moment
        ORDER BY o.claimed_until, o.id
        LIMIT _expire_leases.row_limit
    ) l;
    PERFORM @extschema@._scan_note(
        'leases'::text, 0::smallint,
        CASE WHEN found.is_full THEN found.ends[row_limit] ELSE moment END,
        CASE WHEN found.is_full THEN found.ids[row_limit] ELSE 9223372036854775807 END,
        found.is_full
    );
    PERFORM @extschema@._scan_end('leases'::text);
    IF found.ctids IS NULL THEN
        RETURN 0;
    END IF;
    taken := @extschema@._expire_claims(found.ctids, moment);
    IF taken < cardinality(found.ctids) THEN
        PERFORM @extschema@._announce_due(moment + CASE WHEN found.is_full THEN interval '1 s' ELSE interval '10 s' END);
    END IF;
    IF taken > 0 THEN
        PERFORM @extschema@._mail_due(moment, false, false);
    END IF;
    RETURN taken;
END;
$$;
COMMENT ON FUNCTION @extschema@._expire_leases(timestamptz, integer) IS
    'Internal. Takes back up to row_limit claims whose lease has ended by this time; each counts as a failed attempt, and the fifth in a row ends the mail. Returns how many.';

CREATE FUNCTION @extschema@._end_leases(ctids tid[], moment timestamptz) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    locked tid[];
    ended integer;
    alone boolean;
BEGIN
    locked := ARRAY(
        SELECT o.ctid FROM @extschema@.outbox o WHERE o.ctid = ANY (_end_leases.ctids) AND o.state::text = 'claimed' FOR NO KEY UPDATE SKIP LOCKED
    );
    -- As in _claim_batch.
    locked := ARRAY(SELECT l.place FROM unnest(locked) l (place) INTERSECT SELECT c.place FROM unnest(ctids) c (place));
    UPDATE @extschema@.outbox o SET claimed_until = _end_leases.moment WHERE o.ctid = ANY (local.locked);
    GET DIAGNOSTICS ended = ROW_COUNT;
    RETURN ended;
EXCEPTION
    WHEN OTHERS THEN
        alone := @extschema@._passes_by(SQLSTATE, ctids);
        IF alone IS NULL THEN
            RAISE;
        ELSIF alone THEN
            RETURN 0;
        END IF;
        RETURN (SELECT sum(@extschema@._end_leases(ARRAY[u.place], moment)) FROM unnest(ctids) u (place));
END;
$$;
COMMENT ON FUNCTION @extschema@._end_leases(tid[], timestamptz) IS
    'Internal. Ends the leases of these claims; leaves those that others hold, and those that cannot be changed. Returns how many it ended.';

CREATE FUNCTION @extschema@._expire_previous_claims(timeline text) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    mine CONSTANT text := 'mailroom worker/' || timeline || '/';
    moment CONSTANT timestamptz := clock_timestamp();
BEGIN
    -- What they published goes with them, on any timeline: there is one worker at a time.
    PERFORM @extschema@._forget_workers();
    RETURN @extschema@._end_leases(
        ARRAY(
            SELECT o.ctid
            FROM @extschema@.outbox o
            WHERE o.state = 'claimed'
              AND o.claimed_until > local.moment
              AND starts_with(o.claimed_by, local.mine)
        ),
        local.moment
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._expire_previous_claims(text) IS
    'Internal. Ends the leases of earlier workers of this database and timeline (hexadecimal) at once, and removes the transports of all earlier workers; returns the number of claims.';

CREATE FUNCTION @extschema@._set_lease_end(ids bigint[], claimant text, tries integer[], until timestamptz) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    who CONSTANT text := @extschema@._claimant(claimant);
    moment CONSTANT timestamptz := clock_timestamp();
    held bigint[];
    earlier boolean;
BEGIN
    PERFORM @extschema@._check_parallel(ids, VARIADIC ARRAY[cardinality(tries)]);
    -- A group is free once its claims have expired, so an expired claim of a group cannot be extended. Other sessions
    -- see the longer lease only after this transaction ends, which is why the group is locked, as in _free_groups; the
    -- clock is read after that.
    WITH held AS MATERIALIZED (
        SELECT
            h.place, h.claimed_until,
            CASE
                WHEN _set_lease_end.until IS NULL OR o.group_key IS NULL THEN true
                WHEN o.claimed_until > local.moment
                THEN @extschema@._try_lock_group(hashtextextended(o.group_key, 0))
                ELSE false
            END AS is_ours
        FROM (
            SELECT u.place, min(u.claimed_until) AS claimed_until
            FROM @extschema@._lock_claimed(_set_lease_end.ids, local.who, _set_lease_end.tries) u
            GROUP BY u.place
        ) h
        JOIN @extschema@.outbox o ON o.ctid = h.place
    ), changed AS (
        UPDATE @extschema@.outbox o
        SET state = CASE WHEN _set_lease_end.until IS NULL THEN 'scheduled' ELSE 'claimed' END::@extschema@.outbox_state,
            claimed_by = CASE WHEN _set_lease_end.until IS NULL THEN NULL ELSE o.claimed_by END,
            claimed_at = CASE WHEN _set_lease_end.until IS NULL THEN NULL ELSE o.claimed_at END,
            claimed_until = _set_lease_end.until,
            updated_at = local.moment
        FROM held h
        WHERE o.ctid = h.place
          AND h.is_ours
          AND (_set_lease_end.until IS NULL OR o.group_key IS NULL OR o.claimed_until > clock_timestamp())
        RETURNING o.id, h.claimed_until > _set_lease_end.until AS earlier
    )
    SELECT
        ARRAY(
            SELECT u.id
            FROM unnest(_set_lease_end.ids) WITH ORDINALITY u (id, item)
            WHERE EXISTS (SELECT FROM changed c WHERE c.id = u.id)
            ORDER BY u.item
        ),
        (SELECT bool_or(c.earlier) FROM changed c)
    INTO held, earlier;
    PERFORM @extschema@._mail_due(CASE WHEN until IS NULL THEN moment WHEN earlier THEN until END, false, false);
    RETURN held;
END;
$$;
COMMENT ON FUNCTION @extschema@._set_lease_end(bigint[], text, integer[], timestamptz) IS
    'Internal. Sets the lease end of claims, or releases them without counting an attempt if until is NULL; returns the ids of those that the claimant held.';

CREATE FUNCTION @extschema@.mailroom_release_many(
    ids bigint[],
    claimant text DEFAULT NULL,
    failed_attempts integer[] DEFAULT NULL
)
    RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    held bigint[];
    claimed_at timestamptz[];
    sizes integer[];
    released bigint[];
BEGIN
    IF EXISTS (SELECT FROM @extschema@.budgets) THEN
        SELECT
            array_agg(o.id), array_agg(o.claimed_at), array_agg(cardinality(o.recipients) + cardinality(o.cc) + cardinality(o.bcc))
        INTO held, claimed_at, sizes
        FROM (
            SELECT DISTINCT h.place
            FROM @extschema@._lock_claimed(mailroom_release_many.ids, @extschema@._claimant(mailroom_release_many.claimant), mailroom_release_many.failed_attempts) h
        ) u
        JOIN @extschema@.outbox o ON o.ctid = u.place;
    END IF;
    released := @extschema@._set_lease_end(ids, claimant, failed_attempts, NULL::timestamptz);
    -- Only now, since it is not undone if the release fails.
    IF held && released THEN
        PERFORM @extschema@._refund_budget(array_agg(h.claimed_at), array_agg(h.size))
        FROM unnest(held, claimed_at, sizes) h (id, claimed_at, size)
        WHERE h.id = ANY (released);
    END IF;
    RETURN released;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_release_many(bigint[], text, integer[]) IS
    'Returns claimed mails that were not tried to the queue, without counting an attempt. Returns the ids that were released; the claims of the others were lost.';

CREATE FUNCTION @extschema@.mailroom_release(id bigint, claimant text DEFAULT NULL, failed_attempts integer DEFAULT NULL) RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@.mailroom_release_many(ARRAY[id], claimant, ARRAY[failed_attempts]) <> '{}' $$;
COMMENT ON FUNCTION @extschema@.mailroom_release(bigint, text, integer) IS
    'Releases one claimed mail, as mailroom_release_many. Returns false if the claim was lost.';

CREATE FUNCTION @extschema@.mailroom_extend_many(
    ids bigint[],
    lease interval DEFAULT NULL,
    claimant text DEFAULT NULL,
    failed_attempts integer[] DEFAULT NULL
)
    RETURNS bigint[]
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@._set_lease_end(ids, claimant, failed_attempts, clock_timestamp() + @extschema@._lease_or_default(lease)) $$;
COMMENT ON FUNCTION @extschema@.mailroom_extend_many(bigint[], interval, text, integer[]) IS
    'Sets the end of claims to lease (default mailroom.lease) from now. Returns the ids that were extended; the claims of the others were lost.';

CREATE FUNCTION @extschema@.mailroom_extend(
    id bigint,
    lease interval DEFAULT NULL,
    claimant text DEFAULT NULL,
    failed_attempts integer DEFAULT NULL
)
    RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@.mailroom_extend_many(ARRAY[id], lease, claimant, ARRAY[failed_attempts]) <> '{}' $$;
COMMENT ON FUNCTION @extschema@.mailroom_extend(bigint, interval, text, integer) IS
    'Extends one claim, as mailroom_extend_many. Returns false if the claim was lost.';
