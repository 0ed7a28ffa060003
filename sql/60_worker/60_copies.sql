-- Copies: a database that was made with CREATE DATABASE ... TEMPLATE does not send the mail of the original.
--
-- The worker calls _move_in before anything else; nothing else writes the table. Invariant: the worker sends no mail twice
-- because its database was copied. The table is in no dump, so that a restored database is not a copy.

CREATE TABLE @extschema@._home (
    database oid NOT NULL,
    CONSTRAINT _home_pkey PRIMARY KEY (database)
);
COMMENT ON TABLE @extschema@._home IS 'Internal. One row: the database that the worker last served.';
COMMENT ON COLUMN @extschema@._home.database IS 'pg_database.oid';

CREATE FUNCTION @extschema@._move_in(here oid, since xid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    life CONSTANT integer := age(since);
BEGIN
    IF EXISTS (SELECT FROM @extschema@._home h WHERE h.database = here) THEN
        RETURN false;
    END IF;
    DELETE FROM @extschema@._home;
    INSERT INTO @extschema@._home (database) VALUES (here);
    -- What is older than the copy is the original's, too; what came later is the copy's own.
    IF NOT EXISTS (SELECT FROM @extschema@.pending p WHERE age(p.xmin) > life)
        AND NOT EXISTS (SELECT FROM @extschema@.link_requests r WHERE age(r.xmin) > life)
        AND NOT EXISTS (SELECT FROM @extschema@.outbox o WHERE o.state = 'scheduled' AND age(o.xmin) > life)
        AND NOT EXISTS (SELECT FROM @extschema@.outbox o WHERE o.state = 'claimed' AND age(o.xmin) > life)
    THEN
        RETURN false;
    END IF;
    -- A pause may have come along, for another reason.
    INSERT INTO @extschema@.pauses (paused_by)
    VALUES ('mailroom_collector')
    ON CONFLICT (job_type) DO UPDATE
        SET since = EXCLUDED.since,
            paused_by = EXCLUDED.paused_by;
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@._move_in(oid, xid) IS
    'Internal. Before the worker does anything in this database, whose row in pg_database is of that transaction: pauses the worker, once, if the database is a copy and has mail of the original, tokens or requests that wait there. Returns whether it did.';

SELECT @extschema@._move_in(d.oid, d.xmin)
FROM pg_catalog.pg_database d
WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database();
