-- Pausing: the worker of a database stops taking batches and claiming mail.
--
-- mailroom_admin pauses and resumes; the worker reads the table, and writes it when its database is a copy
-- (60_copies.sql). Invariant: a pause outlasts restarts, failover and restore, being a row.

CREATE TABLE @extschema@.pauses (
    job_type @extschema@.job_type NOT NULL DEFAULT 'mailroom',
    since timestamptz NOT NULL DEFAULT now(),
    paused_by name NOT NULL DEFAULT session_user,
    CONSTRAINT pauses_pkey PRIMARY KEY (job_type)
);
COMMENT ON TABLE @extschema@.pauses IS 'One row while the worker is paused, see mailroom_pause().';
COMMENT ON COLUMN @extschema@.pauses.paused_by IS
    'The user who paused it; mailroom_collector if the worker paused itself because the database is a copy.';

CREATE FUNCTION @extschema@.mailroom_pause() RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO @extschema@.pauses DEFAULT VALUES ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO @extschema@._new_actions (action) VALUES ('paused');
    PERFORM @extschema@._recheck_at_commit();
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_pause() IS
    'Pauses the worker of this database from COMMIT on, over restarts, until mailroom_resume(); it finishes what it has begun. Returns false if it was paused already.';

CREATE FUNCTION @extschema@.mailroom_resume() RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM @extschema@.pauses WHERE job_type = 'mailroom';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO @extschema@._new_actions (action) VALUES ('resumed');
    PERFORM @extschema@._recheck_at_commit();
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_resume() IS
    'Ends a pause of the worker, including one that the worker began itself in a copy of a database. Returns false if there was none.';
