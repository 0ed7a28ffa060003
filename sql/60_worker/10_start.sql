-- The worker of a database: how it is started, woken and looked at.
--
-- Shared memory holds what these functions tell and change (src/shared_memory/); no table does. Invariant: no
-- step of the worker is reserved for it: any member of mailroom_collector may call the same functions.

CREATE FUNCTION @extschema@._request_worker() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_request_worker_wrapper';
COMMENT ON FUNCTION @extschema@._request_worker() IS
    'Internal. Asks the launcher, when this transaction commits, for a worker in this database.';

CREATE FUNCTION @extschema@._recheck_at_commit() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_recheck_at_commit_wrapper';
COMMENT ON FUNCTION @extschema@._recheck_at_commit() IS
    'Internal. Makes the worker look at everything when this transaction commits.';

CREATE FUNCTION @extschema@._search_at_commit() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_search_at_commit_wrapper';
COMMENT ON FUNCTION @extschema@._search_at_commit() IS
    'Internal. Makes the worker search, when this transaction commits, for tokens and mail that were not announced.';

CREATE FUNCTION @extschema@._worker_report(
    OUT pid integer,
    OUT since timestamptz,
    OUT last_batch_at timestamptz,
    OUT failures integer,
    OUT next_wake_at timestamptz,
    OUT next_wake_for text,
    OUT problem text
) RETURNS SETOF record
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_worker_report_wrapper';
COMMENT ON FUNCTION @extschema@._worker_report() IS
    'Internal. The state of the worker of this database; if there is none, all NULL but the reason why no worker can be started, with the remedy.';

CREATE FUNCTION @extschema@._wake_worker() RETURNS boolean
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_wake_worker_wrapper';
COMMENT ON FUNCTION @extschema@._wake_worker() IS 'Internal. As mailroom_wake_worker.';

CREATE FUNCTION @extschema@.mailroom_wake_worker() RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO @extschema@._new_actions (action) VALUES ('woken');
    RETURN @extschema@._wake_worker();
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_wake_worker() IS
    'Makes the worker of this database, and senders that listen on outbox_due, look at everything and probe paused transports now. Returns whether there is a worker.';

SELECT @extschema@._request_worker();
