-- Jobs: how far hand-out has come, and the articles' own query, which reads on from there.
--
-- Written by 20_dequeue.sql and 30_collect.sql, which note in a sequence what they took, and by UPDATE jobs: a client
-- that selects tokens behind last_seq and raises it to the last of them in the same statement. The trigger takes from
-- pending what that statement handed out, so that no other consumer hands it out again (I2). What the statement did not
-- see or did not select stays in pending (I1).

CREATE TYPE @extschema@.job_type AS ENUM ('mailroom');
COMMENT ON TYPE @extschema@.job_type IS 'The only job.';

-- A sequence, so that no consumer waits for another or leaves a dead row behind; ROLLBACK does not undo it.
CREATE SEQUENCE @extschema@._last_seq MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._last_seq IS 'Internal. The highest token id that mailroom_dequeue or mailroom_collect took.';

-- A row, so that ROLLBACK undoes it: the client looks only behind last_seq for what it has to do again.
CREATE TABLE @extschema@._jobs (
    job_type @extschema@.job_type NOT NULL,
    last_seq bigint NOT NULL,
    CONSTRAINT _jobs_pkey PRIMARY KEY (job_type)
);
COMMENT ON TABLE @extschema@._jobs IS 'Internal. The position to which UPDATE jobs raised each job.';

CREATE FUNCTION @extschema@._first_read(last_value bigint) RETURNS bigint
    LANGUAGE c STABLE STRICT
    AS 'MODULE_PATHNAME', '_first_read_wrapper';
COMMENT ON FUNCTION @extschema@._first_read(bigint) IS
    'Internal. The value with which this statement called it first. All that a statement reads in jobs agrees, although a sequence changes meanwhile.';

-- Subqueries, because an UPDATE locks rows of what a view reads from, and those of a sequence cannot be locked.
CREATE VIEW @extschema@.jobs AS
SELECT
    'mailroom'::@extschema@.job_type AS job_type,
    greatest(
        (SELECT @extschema@._first_read(s.last_value) FROM @extschema@._last_seq s),
        (SELECT j.last_seq FROM @extschema@._jobs j WHERE j.job_type = 'mailroom')
    ) AS last_seq;
COMMENT ON VIEW @extschema@.jobs IS
    'How far each job has progressed. A statement that selects tokens behind last_seq and raises it takes them from pending.';
COMMENT ON COLUMN @extschema@.jobs.last_seq IS
    'The highest token id that was taken, also by a call of mailroom_dequeue or mailroom_collect that was rolled back. What is left is what pending contains.';

CREATE FUNCTION @extschema@._note_progress(highest bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    -- A caller that sets enable_seqscan makes the scan look expensive enough for JIT compilation.
    SET jit = off
AS $$
BEGIN
    PERFORM setval('@extschema@._last_seq'::regclass, highest)
    FROM @extschema@._last_seq s
    WHERE s.last_value < highest;
END;
$$;
COMMENT ON FUNCTION @extschema@._note_progress(bigint) IS 'Internal. Advances jobs.last_seq.';

CREATE FUNCTION @extschema@._take_selected(selected bigint[], taken_before bigint, new_position bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
AS $$
DECLARE
    taken bigint := 0;
BEGIN
    PERFORM @extschema@._refuse_while_restoring();
    IF taken_before IS NULL THEN
        WITH found AS MATERIALIZED (
            SELECT p.ctid AS place
            FROM @extschema@.pending p
            WHERE p.lane IN (0, 1)
              AND p.token_id = ANY (_take_selected.selected)
            FOR UPDATE SKIP LOCKED
        )
        DELETE FROM @extschema@.pending p
        WHERE p.ctid = ANY (ARRAY(SELECT f.place FROM found f));
        GET DIAGNOSTICS taken = ROW_COUNT;
    ELSE
        -- Stays when the error rolls this transaction back: the next statement reads on behind it.
        PERFORM @extschema@._note_progress(taken_before);
    END IF;
    IF taken < cardinality(selected) THEN
        RAISE serialization_failure USING
            MESSAGE = 'could not take the tokens that this statement selected',
            DETAIL = 'Another transaction takes or has taken some of them.',
            HINT = 'Repeat the statement. Let one program at a time collect.';
    END IF;
    PERFORM @extschema@._took();
    INSERT INTO @extschema@._jobs AS j (job_type, last_seq)
    VALUES ('mailroom', new_position)
    ON CONFLICT (job_type) DO UPDATE
    SET last_seq = excluded.last_seq
    WHERE j.last_seq < excluded.last_seq;
END;
$$;
COMMENT ON FUNCTION @extschema@._take_selected(bigint[], bigint, bigint) IS
    'Internal. Deletes the rows of pending of these tokens and stores the position to which UPDATE jobs raises last_seq. A serialization failure if they are not all there, or if taken_before is not NULL: the highest of those that were taken before the statement began.';

-- STABLE, because such a function reads with the snapshot of the statement that fired the trigger: it finds the tokens
-- that this statement could select, and none that was committed since. It changes nothing; _take_selected does, which is
-- VOLATILE. With its owner's rights, because a role that may delete rows of pending may also lock the table.
CREATE FUNCTION @extschema@._jobs_update() RETURNS trigger
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
AS $$
DECLARE
    selected bigint[];
    taken_before bigint;
BEGIN
    IF NEW.job_type IS DISTINCT FROM OLD.job_type THEN
        RAISE feature_not_supported USING
            MESSAGE = 'only last_seq can be changed in jobs',
            DETAIL = 'There is one job.',
            HINT = 'Leave job_type as it is.';
    END IF;
    IF NEW.last_seq > OLD.last_seq THEN
        SELECT coalesce(array_agg(e.token_id), '{}'), max(e.token_id) FILTER (WHERE p.token_id IS NULL)
        INTO selected, taken_before
        FROM @extschema@._token_ends e
        LEFT JOIN @extschema@.pending p ON p.token_id = e.token_id AND p.lane IN (0, 1)
        WHERE e.token_id > OLD.last_seq
          AND e.token_id <= NEW.last_seq
          AND e.eligible;
        PERFORM @extschema@._take_selected(selected, taken_before, NEW.last_seq);
    ELSE
        -- It never goes back.
        NEW.last_seq := OLD.last_seq;
    END IF;
    RETURN NEW;
END;
$$;
COMMENT ON FUNCTION @extschema@._jobs_update() IS
    'Internal. Takes from pending the tokens that this statement found between the old and the new last_seq and that may be handed out.';

CREATE TRIGGER jobs_update
    INSTEAD OF UPDATE ON @extschema@.jobs
    FOR EACH ROW
    EXECUTE FUNCTION @extschema@._jobs_update();
