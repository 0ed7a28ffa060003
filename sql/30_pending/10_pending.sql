-- Pending: the narrow queue of tokens that were not handed out yet.
--
-- A trigger on tokens fills it; hand-out (20_dequeue.sql, 30_collect.sql) deletes from it. Invariant I1 rests on it: a
-- committed token has its row here until the transaction that took it commits. There is no foreign key: a row whose
-- token was deleted is harmless, and the check would make a consumer's open transaction and the deletion of an account
-- wait for each other.

CREATE DOMAIN @extschema@._lane AS smallint
    CONSTRAINT pending_lane_is_urgent_or_normal CHECK (VALUE BETWEEN 0 AND 1);
COMMENT ON DOMAIN @extschema@._lane IS 'Internal. 0: urgent; 1: normal.';

CREATE TABLE @extschema@.pending (
    lane @extschema@._lane NOT NULL,
    token_id bigint NOT NULL,
    -- Tokens are handed out in the order of this index: by lane, then by token id.
    CONSTRAINT pending_pkey PRIMARY KEY (lane, token_id)
) WITH (
    -- Rows live for seconds. Vacuum by the number of dead rows, independent of the table's size at the last ANALYZE.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 100000
);
COMMENT ON TABLE @extschema@.pending IS
    'Internal. Tokens that were not handed out yet; a row is deleted when its token is.';
COMMENT ON COLUMN @extschema@.pending.lane IS '0: urgent (password recovery); 1: normal.';
COMMENT ON COLUMN @extschema@.pending.token_id IS 'tokens.id';

CREATE FUNCTION @extschema@._lane(action @extschema@.token_action) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE action WHEN 'password_recovery' THEN 0::smallint ELSE 1::smallint END;
COMMENT ON FUNCTION @extschema@._lane(@extschema@.token_action) IS 'Internal. The lane of tokens for this action.';

CREATE FUNCTION @extschema@._announce(lane smallint, is_request boolean) RETURNS smallint
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_announce_wrapper';
COMMENT ON FUNCTION @extschema@._announce(smallint, boolean) IS
    'Internal. Announces a row of pending, or a request whose link will be in this lane: to the worker at COMMIT, or by NOTIFY. Returns the lane.';

CREATE FUNCTION @extschema@._took() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_took_wrapper';
COMMENT ON FUNCTION @extschema@._took() IS
    'Internal. Wakes the worker if this transaction, which deleted rows of pending, is rolled back.';

CREATE FUNCTION @extschema@._tokens_enqueue() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Pending rows of tokens that come from a dump are in the dump too. As in _accounts_issue_activation.
    IF NOT @extschema@._is_restoring() THEN
        INSERT INTO @extschema@.pending (lane, token_id)
        SELECT @extschema@._announce(@extschema@._lane(n.action), false), n.id
        FROM new_tokens n
        WHERE n.consumed_at IS NULL;
    END IF;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._tokens_enqueue() IS
    'Internal. Inserts new tokens into pending and wakes the worker, or listening sessions, at COMMIT.';

CREATE TRIGGER tokens_enqueue
    AFTER INSERT ON @extschema@.tokens
    REFERENCING NEW TABLE AS new_tokens
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._tokens_enqueue();
