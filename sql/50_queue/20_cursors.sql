-- Cursors: where a session's next scan for due mail starts.
--
-- The library keeps them for each session, transport and priority (src/outbox/due.rs); _select_due (40_select_due.sql) reads and
-- writes them, and so does _due_priorities for priorities without one. Invariant: a cursor is a hint. What lies behind it
-- is looked at in pieces, or by a sweep, within bounds that keep the cost of a call flat (I4).

CREATE FUNCTION @extschema@._due_begin(transport text, groups boolean) RETURNS text
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_begin_wrapper';
COMMENT ON FUNCTION @extschema@._due_begin(text, boolean) IS
    'Internal. Begins a scan for due mail of a transport, or for its groups: sweep if it must look at everything, positions if it may start at the cursors, piece if it must also look at a piece of what is before them.';

CREATE FUNCTION @extschema@._due_may_sweep(transport text, groups boolean) RETURNS boolean
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_may_sweep_wrapper';
COMMENT ON FUNCTION @extschema@._due_may_sweep(text, boolean) IS
    'Internal. Whether a scan that found too little may look at everything.';

CREATE FUNCTION @extschema@._due_positions(
    transport text,
    groups boolean,
    OUT priority smallint,
    OUT send_at timestamptz,
    OUT id bigint,
    OUT paused_send_at timestamptz,
    OUT paused_id bigint
)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_positions_wrapper';
COMMENT ON FUNCTION @extschema@._due_positions(text, boolean) IS
    'Internal. Where this session''s scan of each priority starts, urgent ones first, and where its last sweep stopped; only a hint.';

CREATE FUNCTION @extschema@._due_pieces(
    transport text,
    groups boolean,
    last_priority smallint,
    OUT priority smallint,
    OUT send_at timestamptz,
    OUT id bigint,
    OUT until_send_at timestamptz,
    OUT until_id bigint
)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_pieces_wrapper';
COMMENT ON FUNCTION @extschema@._due_pieces(text, boolean, smallint) IS
    'Internal. The next piece of each priority, up to the last one given, that this scan should look at before its positions, from where the last one ended; only a hint.';

CREATE FUNCTION @extschema@._due_note_piece(
    transport text, groups boolean, priority smallint, send_at timestamptz, id bigint, unfinished boolean
) RETURNS boolean
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_note_piece_wrapper';
COMMENT ON FUNCTION @extschema@._due_note_piece(text, boolean, smallint, timestamptz, bigint, boolean) IS
    'Internal. Records how far a piece was scanned and whether it is unfinished; returns whether to scan the next one.';

CREATE FUNCTION @extschema@._due_note(
    transport text, groups boolean, priority smallint, send_at timestamptz, id bigint, back boolean, unfinished boolean
) RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_due_note_wrapper';
COMMENT ON FUNCTION @extschema@._due_note(text, boolean, smallint, timestamptz, bigint, boolean, boolean) IS
    'Internal. Records how far a priority was scanned, whether the next scan continues there even if an earlier one got further, and whether the next sweep does.';

CREATE FUNCTION @extschema@._due_put_back(transport text, groups boolean, priority smallint, send_at timestamptz, id bigint)
    RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_put_back_wrapper';
COMMENT ON FUNCTION @extschema@._due_put_back(text, boolean, smallint, timestamptz, bigint) IS
    'Internal. Makes this session''s next scan of a priority start after this row at the latest, because rows after it were found but not claimed.';

CREATE FUNCTION @extschema@._due_end(transport text, groups boolean, swept boolean, mails integer, mail_groups integer)
    RETURNS double precision
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_end_wrapper';
COMMENT ON FUNCTION @extschema@._due_end(text, boolean, boolean, integer, integer) IS
    'Internal. Ends a scan for due mail that found this many mails of this many groups; what it recorded becomes this session''s positions. Returns the seconds until a scan may look before its positions again.';

-- Long because it has the search twice, as a partial index is used only for a constant condition.
CREATE FUNCTION @extschema@._due_priorities(of_transport text, of_groups boolean, unknown boolean)
RETURNS TABLE (priority smallint, send_at timestamptz, id bigint)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET jit = off
AS $$
<<local>>
DECLARE
    known smallint[] := '{}'::smallint[];
    -- The priorities between these two are searched.
    after integer := -101;
    before integer;
    first integer;
BEGIN
    IF unknown THEN
        -- In order.
        known := ARRAY(SELECT p.priority FROM @extschema@._due_positions(of_transport, of_groups) p);
    END IF;
    FOREACH before IN ARRAY known || 101::smallint LOOP
        WHILE after + 1 < before LOOP
            IF of_groups THEN
                SELECT o.priority, o.send_at, o.id - 1
                INTO priority, send_at, id
                FROM @extschema@.outbox o
                WHERE o.state = 'scheduled'
                  AND o.transport = _due_priorities.of_transport COLLATE "C"
                  AND o.group_key IS NOT NULL
                  AND o.priority > local.after
                  AND o.priority < local.before
                ORDER BY o.priority, o.send_at, o.id
                LIMIT 1;
            ELSE
                SELECT o.priority, o.send_at, o.id - 1
                INTO priority, send_at, id
                FROM @extschema@.outbox o
                WHERE o.state = 'scheduled'
                  AND o.transport = _due_priorities.of_transport COLLATE "C"
                  AND o.priority > local.after
                  AND o.priority < local.before
                ORDER BY o.priority, o.send_at, o.id
                LIMIT 1;
            END IF;
            first := CASE WHEN FOUND THEN priority ELSE before END;
            IF first < before THEN
                RETURN NEXT;
            END IF;
            IF unknown THEN
                -- Recorded at once, even if this scan ends before it comes to them: the dead entries that were skipped
                -- here are skipped once only.
                IF first < before THEN
                    PERFORM @extschema@._due_note(of_transport, of_groups, priority, send_at, id, false, NULL::boolean);
                END IF;
                FOR unused IN after + 1 .. first - 1 LOOP
                    priority := unused;
                    -- As for a priority whose rows were all scanned: a transaction may take 10 s to commit.
                    send_at := now() - interval '10 s';
                    id := 9223372036854775807;
                    RETURN NEXT;
                    PERFORM @extschema@._due_note(of_transport, of_groups, priority, send_at, id, false, NULL::boolean);
                END LOOP;
            END IF;
            after := first;
        END LOOP;
        after := before;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._due_priorities(text, boolean, boolean) IS
    'Internal. The priorities of a transport, or of its groups, that have scheduled rows, each with the position before its first row. If unknown, only those without a cursor, and also those without rows; their positions are recorded.';
