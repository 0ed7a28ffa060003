-- Pending: the narrow queue of tokens that were not handed out yet.
--
-- A trigger on tokens fills it; hand-out (20_dequeue.sql, 30_collect.sql) deletes from it. Invariant I1 rests on it: a
-- committed token has its row here until the transaction that took it commits. There is no foreign key: a row whose token
-- was deleted is harmless, and the check would make a consumer's open transaction and the deletion of an account wait
-- for each other.

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

CREATE FUNCTION @extschema@._announce(lane smallint) RETURNS smallint
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_announce_wrapper';
COMMENT ON FUNCTION @extschema@._announce(smallint) IS
    'Internal. Has the worker of this database, or the sessions that listen on mailroom.channel, told at COMMIT of a row that was queued in this lane. Returns the lane.';

CREATE FUNCTION @extschema@._took() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_took_wrapper';
COMMENT ON FUNCTION @extschema@._took() IS
    'Internal. Has the worker look again if this transaction, which took rows of pending, is rolled back.';

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
