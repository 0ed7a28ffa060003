-- Cursors: where a session's scans start.
--
-- The library keeps a position for each scan and each of its parts (src/cursor/scan.rs). A scan calls _scan_begin, looks at
-- rows from _scan_start or _scan_parts, calls _scan_note for each part and _scan_end when it has looked, before it works on
-- what it found. Invariant: a position is a hint. Rows before it are found by sweeps, which start at the beginning and take
-- at most a twentieth of the time (I4).

CREATE FUNCTION @extschema@._scan_begin(scan text) RETURNS boolean
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_scan_begin_wrapper';
COMMENT ON FUNCTION @extschema@._scan_begin(text) IS
    'Internal. Begins a scan; returns whether it is a sweep.';

CREATE FUNCTION @extschema@._scan_sweep(scan text) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_scan_sweep_wrapper';
COMMENT ON FUNCTION @extschema@._scan_sweep(text) IS
    'Internal. Begins a scan that is a sweep, however much time sweeps have taken.';

CREATE FUNCTION @extschema@._scan_parts(scan text, OUT part smallint, OUT at timestamptz, OUT id bigint)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_scan_parts_wrapper';
COMMENT ON FUNCTION @extschema@._scan_parts(text) IS
    'Internal. The parts that a scan knows, in order, and where it starts in each: all parts, or in a sweep those that it came to.';

CREATE FUNCTION @extschema@._scan_start(scan text, part smallint, OUT at timestamptz, OUT id bigint)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_scan_start_wrapper';
COMMENT ON FUNCTION @extschema@._scan_start(text, smallint) IS
    'Internal. Where a scan starts in one part.';

CREATE FUNCTION @extschema@._scan_next_id(scan text) RETURNS bigint
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_scan_next_id_wrapper';
COMMENT ON FUNCTION @extschema@._scan_next_id(text) IS
    'Internal. The id after which the next scan will start in part 0.';

CREATE FUNCTION @extschema@._scan_note(scan text, part smallint, at timestamptz, id bigint, cut_off boolean) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_scan_note_wrapper';
COMMENT ON FUNCTION @extschema@._scan_note(text, smallint, timestamptz, bigint, boolean) IS
    'Internal. Records how far a scan got in one part. If a limit of its own cut it off there, the next sweep continues there.';

CREATE FUNCTION @extschema@._scan_end(scan text) RETURNS double precision
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_scan_end_wrapper';
COMMENT ON FUNCTION @extschema@._scan_end(text) IS
    'Internal. Says that a scan has looked, so that what follows does not count as its time. Returns the seconds until a scan may sweep; 0 if this one did.';

CREATE FUNCTION @extschema@._scan_spend(scan text, seconds double precision) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_scan_spend_wrapper';
COMMENT ON FUNCTION @extschema@._scan_spend(text, double precision) IS
    'Internal. Counts more time as that of a sweep.';

CREATE FUNCTION @extschema@._scan_back(scan text, part smallint, at timestamptz, id bigint) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_scan_back_wrapper';
COMMENT ON FUNCTION @extschema@._scan_back(text, smallint, timestamptz, bigint) IS
    'Internal. Makes this session''s next scan start here at the latest in this part, because rows after it were not taken.';

CREATE FUNCTION @extschema@._put_back(scan text, places tid[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    PERFORM @extschema@._scan_back(_put_back.scan, f.priority, f.send_at, f.id - 1)
    FROM (
        SELECT DISTINCT ON (o.priority) o.priority::smallint AS priority, o.send_at, o.id
        FROM @extschema@.outbox o
        WHERE o.ctid = ANY (_put_back.places)
          AND o.state::text = 'scheduled'
        ORDER BY o.priority, o.send_at, o.id
    ) f;
END;
$$;
COMMENT ON FUNCTION @extschema@._put_back(text, tid[]) IS
    'Internal. Makes this session''s next scan for due mail begin with these rows, which it found and did not claim.';

-- Long because it has the search twice, as a partial index is used only for a constant condition.
CREATE FUNCTION @extschema@._due_ranges(
    scan text,
    is_sweep boolean,
    of_transport text,
    of_groups boolean,
    OUT part smallint,
    OUT after_send_at timestamptz,
    OUT after_id bigint
)
    RETURNS SETOF record
    LANGUAGE plpgsql
    -- Its callers disable the plans that do not suit it.
    SET search_path = pg_catalog, pg_temp
AS $$
<<local>>
DECLARE
    known record;
    reached integer := -32769;
    searches boolean;
BEGIN
    FOR known IN SELECT p.part, p.at, p.id FROM @extschema@._scan_parts(scan) p LOOP
        part := known.part;
        after_send_at := known.at;
        after_id := known.id;
        RETURN NEXT;
        reached := part;
    END LOOP;
    -- A sweep looks for priorities, and so does a scan that knows none. What it steps over before the first row of one, it
    -- steps over once.
    searches := is_sweep OR NOT FOUND;
    WHILE searches LOOP
        IF of_groups THEN
            SELECT o.priority, o.send_at, o.id - 1
            INTO part, after_send_at, after_id
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = _due_ranges.of_transport COLLATE "C"
              AND o.group_key IS NOT NULL
              AND o.priority > local.reached
            ORDER BY o.priority, o.send_at, o.id
            LIMIT 1;
        ELSE
            SELECT o.priority, o.send_at, o.id - 1
            INTO part, after_send_at, after_id
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.transport = _due_ranges.of_transport COLLATE "C"
              AND o.priority > local.reached
            ORDER BY o.priority, o.send_at, o.id
            LIMIT 1;
        END IF;
        EXIT WHEN NOT FOUND;
        reached := part;
        -- Unless an earlier sweep was cut off behind that row.
        SELECT s.at, s.id INTO known FROM @extschema@._scan_start(scan, part) s;
        IF (known.at, known.id) > (after_send_at, after_id) THEN
            after_send_at := known.at;
            after_id := known.id;
        END IF;
        RETURN NEXT;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._due_ranges(text, boolean, text, boolean) IS
    'Internal. Where a scan for mail of a transport, or for its groups, starts in each priority, urgent ones first: in those that it knows, and in a sweep in all that have scheduled rows.';
