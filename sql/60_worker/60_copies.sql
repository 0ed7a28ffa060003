-- Copies: a database that was made with CREATE DATABASE ... TEMPLATE does not send the mail of the original.
--
-- The worker calls _pause_if_copied before anything else; nothing else writes the table. Invariant: the worker sends no mail
-- twice because its database was copied. The table is in no dump, so that a restored database is not a copy.

CREATE TABLE @extschema@._database_identity (
    database oid NOT NULL,
    CONSTRAINT _database_identity_pkey PRIMARY KEY (database)
);
COMMENT ON TABLE @extschema@._database_identity IS 'Internal. One row: the database that the worker served last.';
COMMENT ON COLUMN @extschema@._database_identity.database IS 'pg_database.oid';

CREATE FUNCTION @extschema@._pause_if_copied(here oid, since xid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    life CONSTANT integer := age(since);
BEGIN
    IF EXISTS (SELECT FROM @extschema@._database_identity h WHERE h.database = _pause_if_copied.here) THEN
        RETURN false;
    END IF;
    DELETE FROM @extschema@._database_identity;
    INSERT INTO @extschema@._database_identity (database) VALUES (here);
    -- Rows older than the copy belong to the original too; later ones are the copy's own.
    IF NOT EXISTS (SELECT FROM @extschema@.pending p WHERE age(p.xmin) > local.life)
        AND NOT EXISTS (SELECT FROM @extschema@.link_requests r WHERE age(r.xmin) > local.life)
        AND NOT EXISTS (SELECT FROM @extschema@.outbox o WHERE o.state = 'scheduled' AND age(o.xmin) > local.life)
        AND NOT EXISTS (SELECT FROM @extschema@.outbox o WHERE o.state = 'claimed' AND age(o.xmin) > local.life)
    THEN
        RETURN false;
    END IF;
    -- The copy may contain a pause of the original.
    INSERT INTO @extschema@.pauses (paused_by)
    VALUES ('mailroom_collector')
    ON CONFLICT (job_type) DO UPDATE
        SET since = EXCLUDED.since,
            paused_by = EXCLUDED.paused_by;
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@._pause_if_copied(oid, xid) IS
    'Internal. Pauses the worker, once, if this database is a copy with mail, tokens or requests of the original; here and since are oid and xmin of its row in pg_database. Returns whether it did.';

SELECT @extschema@._pause_if_copied(d.oid, d.xmin)
FROM pg_catalog.pg_database d
WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database();
