-- Status: one row about the worker, the queues and the transports of a database.
--
-- Read by people and by monitoring (mailroom_monitor), which may not read addresses, contents or tokens. Invariant: the
-- cost does not grow with a backlog: each count stops at 10000. In a session that asks again, it does not grow with the
-- rows that an old snapshot keeps in the indexes either (I4).

-- For roles that may not read tokens.
CREATE VIEW @extschema@._token_ages AS
SELECT t.id, t.created_at
FROM @extschema@.tokens t;
COMMENT ON VIEW @extschema@._token_ages IS 'Internal. When each token was created, without its secret.';

CREATE FUNCTION @extschema@._mail_transports() RETURNS SETOF text
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET jit = off
AS $$
DECLARE
    -- The empty name, whose mail clients deliver, is the first of all.
    after text := '';
    known text;
    other text;
BEGIN
    RETURN NEXT after;
    FOR known IN
        SELECT k.name
        FROM (
            SELECT @extschema@._default_transport() COLLATE "C"
            UNION
            SELECT r.transport FROM @extschema@.routes r
            UNION
            SELECT r.fallback FROM @extschema@.routes r
            UNION
            SELECT t.name FROM @extschema@.mailroom_transports t
            UNION
            -- The end: greater than each name.
            SELECT '~'
        ) k (name)
        WHERE k.name <> ''
        ORDER BY k.name
    LOOP
        -- Names between two known ones may have been valid when mail was inserted. Entries of known ones are not looked at.
        LOOP
            SELECT o.transport
            INTO other
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport > after COLLATE "C"
              AND o.transport < known COLLATE "C"
            ORDER BY o.transport
            LIMIT 1;
            EXIT WHEN NOT FOUND;
            RETURN NEXT other;
            after := other;
        END LOOP;
        EXIT WHEN known = '~';
        RETURN NEXT known;
        after := known;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._mail_transports() IS
    'Internal. The transports that may have scheduled mail: those that new mail may name, and others with mail of before.';

CREATE FUNCTION @extschema@._live_mail(
    moment timestamptz,
    row_limit integer,
    OUT scheduled integer,
    OUT due_since timestamptz,
    OUT claimed integer
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
    of_transport text;
    memory text;
    start text;
    span record;
    seen record;
    number_seen integer;
    -- Priorities with rows before their position.
    behind smallint[];
    next_piece boolean;
BEGIN
    scheduled := 0;
    claimed := 0;
    -- NULL for claims, which are ordered by the end of their lease instead of send_at.
    FOR of_transport IN SELECT t.name FROM @extschema@._mail_transports() t (name) UNION ALL SELECT NULL LOOP
        -- This session's positions for status: each before the first live row, as dead ones stay in the index while an
        -- old snapshot is held. What is before them is looked at as for claims.
        memory := CASE WHEN of_transport IS NULL THEN 'status: claims' ELSE 'status of ' || of_transport END;
        start := CASE WHEN @extschema@._is_restoring() THEN 'sweep' ELSE @extschema@._due_begin(memory, false) END;
        IF @extschema@._due_may_sweep(memory, false) THEN
            start := 'sweep';
        END IF;
        number_seen := 0;
        behind := '{}';
        next_piece := true;
        FOR span IN
            SELECT true AS is_piece, p.priority, p.send_at, p.id, p.until_send_at, p.until_id
            FROM @extschema@._due_pieces(memory, false) p
            WHERE start = 'piece'
            UNION ALL
            SELECT false, p.priority, p.send_at, p.id, 'infinity', 9223372036854775807
            FROM @extschema@._due_positions(memory, false) p
            WHERE start <> 'sweep'
            UNION ALL
            SELECT false, l.priority, l.send_at, l.id, 'infinity', 9223372036854775807
            FROM @extschema@._due_priorities(
                of_transport, false,
                CASE WHEN start <> 'sweep' THEN ARRAY(SELECT k.priority FROM @extschema@._due_positions(memory, false) k) END
            ) l
            WHERE of_transport IS NOT NULL
            UNION ALL
            SELECT false, 0::smallint, '-infinity', 0, 'infinity', 9223372036854775807
            WHERE of_transport IS NULL
              AND start = 'sweep'
        LOOP
            CONTINUE WHEN span.is_piece AND NOT next_piece;
            -- The first row in any case: the next position is before it.
            IF of_transport IS NULL THEN
                SELECT count(*)::integer AS found, min(s.claimed_until) AS first
                INTO seen
                FROM (
                    SELECT o.claimed_until
                    FROM @extschema@.outbox o
                    WHERE o.state = 'claimed'
                      AND o.claimed_until > span.send_at
                      AND o.claimed_until <= span.until_send_at
                    ORDER BY o.claimed_until
                    LIMIT greatest(row_limit - claimed, 1)
                ) s;
                claimed := least(claimed + seen.found, row_limit);
            ELSE
                SELECT count(*)::integer AS found, min(s.send_at) AS first
                INTO seen
                FROM (
                    SELECT o.send_at
                    FROM @extschema@.outbox o
                    WHERE o.state = 'scheduled'
                      AND o.transport = of_transport COLLATE "C"
                      AND o.priority = span.priority
                      AND (o.send_at, o.id) > (span.send_at, span.id)
                      AND (o.send_at, o.id) <= (span.until_send_at, span.until_id)
                    ORDER BY o.priority, o.send_at, o.id
                    LIMIT greatest(row_limit - scheduled, 1)
                ) s;
                scheduled := least(scheduled + seen.found, row_limit);
                due_since := least(due_since, CASE WHEN seen.first <= moment THEN seen.first END);
            END IF;
            number_seen := number_seen + seen.found;
            IF NOT span.is_piece THEN
                PERFORM @extschema@._due_note(
                    memory, false, span.priority, least(seen.first - interval '1 us', moment), 9223372036854775807,
                    start = 'sweep', CASE WHEN start = 'sweep' THEN false END
                )
                WHERE span.priority <> ALL (behind);
                CONTINUE;
            END IF;
            next_piece := @extschema@._due_note_piece(memory, false, span.priority, span.until_send_at, span.until_id, false);
            IF seen.found > 0 THEN
                PERFORM @extschema@._due_put_back(memory, false, span.priority, seen.first - interval '1 us', 9223372036854775807);
                behind := behind || span.priority;
            END IF;
        END LOOP;
        -- A claim may look at 8 pages for each mail that it finds, and this at one.
        PERFORM @extschema@._due_end(memory, false, start = 'sweep', number_seen / 8, 0);
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._live_mail(timestamptz, integer) IS
    'Internal. How many mails are scheduled and claimed, each counted up to the limit, and since when the oldest due one is due.';

CREATE FUNCTION @extschema@.mailroom_status(
    OUT worker_pid integer,
    OUT since timestamptz,
    OUT paused boolean,
    OUT last_batch_at timestamptz,
    OUT waiting integer,
    OUT oldest_waiting interval,
    OUT scheduled integer,
    OUT oldest_due interval,
    OUT claimed integer,
    OUT failed_in_24_h integer,
    OUT more boolean,
    OUT errors_in_a_row integer,
    OUT next_wake_at timestamptz,
    OUT next_wake_for text,
    OUT transport_state text,
    OUT transport_reason text,
    OUT next_probe_at timestamptz,
    OUT ambiguous bigint,
    OUT transports_error text,
    OUT budget text,
    OUT redirect_to text
)
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
    SELECT
        w.pid,
        w.since,
        EXISTS (SELECT FROM @extschema@.pauses),
        w.last_batch_at,
        least(c.waiting, 10000),
        (
            SELECT now() - to_timestamp(min(t.created_at))
            FROM generate_series(0, 1) l (lane)
            CROSS JOIN LATERAL (
                SELECT p.token_id AS id
                FROM @extschema@.pending p
                WHERE p.lane = l.lane
                ORDER BY p.lane, p.token_id
                LIMIT 1
            ) lowest
            JOIN @extschema@._token_ages t USING (id)
        ),
        least(m.scheduled, 10000),
        now() - m.due_since,
        least(m.claimed, 10000),
        least(c.failed, 10000),
        greatest(c.waiting, m.scheduled, m.claimed, c.failed) > 10000,
        w.failures,
        w.next_wake_at,
        w.next_wake_for,
        t.state,
        t.reason,
        t.next_probe_at,
        t.ambiguous,
        (SELECT min(e.transports_error) FROM @extschema@.deliverers e),
        (SELECT b.reason FROM @extschema@._budget(1) b),
        @extschema@._redirect_setting()
    FROM (
        -- Each count is bounded, however long the backlog is.
        SELECT
            (SELECT count(*)::integer FROM (SELECT FROM @extschema@.pending LIMIT 10001) l) AS waiting,
            (
                SELECT count(*)::integer
                FROM (
                    SELECT
                    FROM @extschema@.outbox o
                    WHERE o.state = 'error'
                      AND o.ended_at > now() - interval '24 hours'
                    LIMIT 10001
                ) l
            ) AS failed
        -- Counted once, not for each use of a count.
        OFFSET 0
    ) c
    CROSS JOIN @extschema@._live_mail(now(), 10001) m
    LEFT JOIN @extschema@._worker_report() w ON true
    CROSS JOIN (
        -- The worst state of all transports, and the ambiguous messages of all.
        SELECT
            max(p.state)::text AS state,
            (array_agg(format('%s: %s', p.name, p.reason) ORDER BY p.state DESC, p.since) FILTER (WHERE p.state <> 'healthy'))[1] AS reason,
            min(p.next_probe_at) AS next_probe_at,
            sum(p.ambiguous)::bigint AS ambiguous
        FROM @extschema@.mailroom_transports p
    ) t
$$;
COMMENT ON FUNCTION @extschema@.mailroom_status() IS
    'Returns one row about this database: its worker, waiting tokens, mails by state, transports, budgets and mailroom.redirect_to. Each count stops at 10000, and more tells whether one did.';
