-- Claimable mail: which due rows a claim may have, and which end instead.
--
-- Claims (40_look.sql, 60_groups.sql) call _judge with rows that they found, and _end_useless with those that cannot be sent.
-- Invariants: a row whose token is no longer good, or that has expired, ends here with its reason and without its
-- secrets; a claim never waits for a session that has locked accounts or tokens exclusively; a row that an application
-- does not let change holds up no other (I8).

CREATE FUNCTION @extschema@._note_refused(id bigint, failed_with text) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_note_refused_wrapper';
COMMENT ON FUNCTION @extschema@._note_refused(bigint, text) IS
    'Internal. Counts a row of the outbox that a constraint or a trigger of the application does not let change, with this SQLSTATE; warns at most once a minute.';

CREATE FUNCTION @extschema@._refused() RETURNS bigint
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_refused_wrapper';
COMMENT ON FUNCTION @extschema@._refused() IS 'Internal. The number of rows that _note_refused has counted in this session.';

-- Each function that changes rows of the outbox, of claims, ends, leases and moves, changes them in one subtransaction, which also
-- locks them: a row that one transaction locks and its subtransaction changes needs a MultiXact. If that fails, it calls itself for each row,
-- and this function decides what becomes of a row that fails alone.
CREATE FUNCTION @extschema@._passes_by(failed_with text, places tid[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    IF NOT @extschema@._may_pass_by(failed_with) THEN
        RETURN NULL;
    END IF;
    IF cardinality(places) = 1 THEN
        PERFORM @extschema@._note_refused(o.id, _passes_by.failed_with) FROM @extschema@.outbox o WHERE o.ctid = ANY (_passes_by.places);
    END IF;
    RETURN cardinality(places) = 1;
END;
$$;
COMMENT ON FUNCTION @extschema@._passes_by(text, tid[]) IS
    'Internal. What to do after a change of these rows failed with this SQLSTATE: true to leave the only one of them, false to change them one at a time, NULL to raise the error.';

CREATE FUNCTION @extschema@._is_known_to_be_sent(mail bigint, failed_attempts integer, batch uuid) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A mail that was not tried has no events, and a batch that its provider recognises is repeated as a whole.
    RETURN failed_attempts > 0 AND batch IS NULL AND coalesce(@extschema@._proven_state(mail, NULL::timestamptz) = 'sent', false);
END;
$$;
COMMENT ON FUNCTION @extschema@._is_known_to_be_sent(bigint, integer, uuid) IS
    'Internal. Whether an event proves that a mail with this many failed attempts, in this batch, was sent.';

CREATE FUNCTION @extschema@._end_useless(doomed tid[], moment timestamptz) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
<<local>>
DECLARE
    locked tid[];
    alone boolean;
BEGIN
    locked := ARRAY(
        SELECT o.ctid FROM @extschema@.outbox o WHERE o.ctid = ANY (_end_useless.doomed) AND o.state::text = 'scheduled' FOR NO KEY UPDATE SKIP LOCKED
    );
    WITH judged AS MATERIALIZED (
        SELECT
            o.ctid AS place,
            CASE
                WHEN s.is_sent THEN 'sent'
                WHEN o.expires_at <= _end_useless.moment THEN 'expired'
                WHEN o.token_id IS NOT NULL AND v.token_id IS NULL THEN 'cancelled'
                ELSE v.final
            END AS final,
            CASE
                WHEN s.is_sent THEN NULL
                WHEN o.expires_at <= _end_useless.moment THEN 'expired before it was sent'
                WHEN v.token_id IS NULL THEN 'token was deleted'
                ELSE v.reason
            END AS reason
        FROM @extschema@.outbox o
        LEFT JOIN LATERAL (SELECT e.* FROM @extschema@._token_ends e WHERE e.token_id = o.token_id OFFSET 0) v ON true
        CROSS JOIN LATERAL (SELECT @extschema@._is_known_to_be_sent(o.id, o.failed_attempts, o.batch) AS is_sent OFFSET 0) s
        WHERE o.ctid = ANY (local.locked)
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
EXCEPTION
    WHEN OTHERS THEN
        alone := @extschema@._passes_by(SQLSTATE, doomed);
        IF alone IS NULL THEN
            RAISE;
        ELSIF NOT alone THEN
            PERFORM @extschema@._end_useless(ARRAY[u.place], moment) FROM unnest(doomed) u (place);
        END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._end_useless(tid[], timestamptz) IS
    'Internal. Ends these scheduled rows, which have expired, whose token is no longer good, or which were sent after all; leaves those that others hold, and those that cannot be changed.';

CREATE FUNCTION @extschema@._judge(
    candidates tid[],
    moment timestamptz,
    OUT ctids tid[],
    OUT doomed tid[],
    OUT later boolean
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    ctids := candidates;
    doomed := '{}';
    -- A session with an exclusive lock on these tables may be about to lock rows of the outbox, as TRUNCATE does. So
    -- nothing here waits: token mail, and mail that would end, is left for a later call.
    later := NOT @extschema@._lock_accounts_and_tokens(false);
    IF later THEN
        ctids := ARRAY(
            SELECT c.place
            FROM unnest(_judge.candidates) WITH ORDINALITY c (place, number)
            JOIN @extschema@.outbox o ON o.ctid = c.place
            WHERE o.token_id IS NULL
              AND (o.expires_at <= _judge.moment) IS NOT TRUE
              AND NOT @extschema@._is_known_to_be_sent(o.id, o.failed_attempts, o.batch)
            ORDER BY c.number
        );
        RETURN;
    END IF;
    doomed := ARRAY(
        SELECT o.ctid
        FROM @extschema@.outbox o
        LEFT JOIN LATERAL (SELECT e.eligible FROM @extschema@._token_ends e WHERE e.token_id = o.token_id OFFSET 0) v ON true
        WHERE o.ctid = ANY (_judge.candidates)
          AND (
              o.expires_at <= _judge.moment
              OR (o.token_id IS NOT NULL AND v.eligible IS NOT TRUE)
              OR @extschema@._is_known_to_be_sent(o.id, o.failed_attempts, o.batch)
          )
    );
    IF doomed <> '{}' THEN
        ctids := ARRAY(
            SELECT c.place
            FROM unnest(candidates) WITH ORDINALITY c (place, number)
            WHERE c.place NOT IN (SELECT d.place FROM unnest(doomed) d (place))
            ORDER BY c.number
        );
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._judge(tid[], timestamptz) IS
    'Internal. Which of these due rows can be sent, in the same order, and which have to end; and whether token mail was left out of both because its tables are locked.';
