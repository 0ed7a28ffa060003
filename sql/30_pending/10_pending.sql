-- Pending: the narrow queue of tokens that nobody was handed yet, and the figure of how far it got.
--
-- A trigger on tokens fills it, whoever hands tokens out deletes from it (50_handout.sql). Invariant I1
-- rests on it: a token that was committed has its row here until the transaction that took it commits.
-- There is no foreign key: a row whose token is gone is harmless, and the check would make a consumer's
-- open transaction and the deletion of an account wait for each other.

CREATE DOMAIN @extschema@._lane AS smallint
    CONSTRAINT pending_lane_is_urgent_or_normal CHECK (VALUE BETWEEN 0 AND 1);
COMMENT ON DOMAIN @extschema@._lane IS 'Internal. 0: urgent; 1: normal.';

CREATE TABLE @extschema@.pending (
    lane @extschema@._lane NOT NULL,
    token_id bigint NOT NULL,
    -- The order of hand-out is the order of this index: one lane after the other, each by token id.
    CONSTRAINT pending_pkey PRIMARY KEY (lane, token_id)
) WITH (
    -- Rows live for seconds. Vacuum by number, whatever the table's size was when it was last analysed.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 100000
);
COMMENT ON TABLE @extschema@.pending IS 'Internal. Tokens that wait to be handed out; rows go when they are.';
COMMENT ON COLUMN @extschema@.pending.lane IS '0: urgent (password recovery); 1: normal.';
COMMENT ON COLUMN @extschema@.pending.token_id IS 'tokens.id';

CREATE FUNCTION @extschema@._lane(action @extschema@.token_action) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE action WHEN 'password_recovery' THEN 0::smallint ELSE 1::smallint END;
COMMENT ON FUNCTION @extschema@._lane(@extschema@.token_action) IS 'Internal. The lane of tokens for this action.';

CREATE FUNCTION @extschema@._tokens_enqueue() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Of tokens that come from a dump the queue does, too.
    INSERT INTO @extschema@.pending (lane, token_id)
    SELECT @extschema@._announce(@extschema@._lane(n.action)), n.id
    FROM new_tokens n
    WHERE n.consumed_at IS NULL
      AND NOT @extschema@._restores();
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._tokens_enqueue() IS
    'Internal. Queues new tokens and has the worker, or the sessions that listen on mailroom.channel, woken at COMMIT.';

CREATE TRIGGER tokens_enqueue
    AFTER INSERT ON @extschema@.tokens
    REFERENCING NEW TABLE AS new_tokens
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._tokens_enqueue();

CREATE TYPE @extschema@.job_type AS ENUM ('mailroom');
COMMENT ON TYPE @extschema@.job_type IS 'The one job there is.';

-- A sequence, so that no hand-out waits for another or leaves a dead row behind; it knows no ROLLBACK.
CREATE SEQUENCE @extschema@._last_seq MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._last_seq IS 'Internal. jobs.last_seq.';

CREATE VIEW @extschema@.jobs AS
SELECT 'mailroom'::@extschema@.job_type AS job_type, s.last_value AS last_seq
FROM @extschema@._last_seq s;
COMMENT ON VIEW @extschema@.jobs IS 'How far each job got, for people to look at.';
COMMENT ON COLUMN @extschema@.jobs.last_seq IS
    'The highest token id that was taken to be handed out, be it by a transaction that was rolled back. A figure only: what is left is what is in pending.';

CREATE FUNCTION @extschema@._refuse_batch_limit(batch_limit integer, hint text)
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE invalid_parameter_value USING
        MESSAGE = 'batch_limit must be at least 1',
        DETAIL = format('It is %s.', coalesce(batch_limit::text, 'NULL')),
        HINT = coalesce(hint, 'Leave it out to use mailroom.batch_limit.');
END;
$$;
COMMENT ON FUNCTION @extschema@._refuse_batch_limit(integer, text) IS
    'Internal. Refuses a batch_limit that the caller found to be below 1. Error: 22023.';
