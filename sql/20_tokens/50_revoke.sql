-- Revoking: tokens end unused, and the mail that carries them with them.
--
-- mailroom_revoke, the triggers of 20_lifecycle.sql and the deletion of tokens come here. Invariants: locks are taken
-- on the account and then on its tokens; a transaction above READ COMMITTED fails rather than miss a token that was
-- committed after its snapshot; pending and outbox are read with SKIP LOCKED, so that nothing waits for a
-- sender's open transaction: what a sender holds at this moment is judged again by the next claim.

CREATE FUNCTION @extschema@._withdraw_mail(ended bigint[], reason text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    -- For an empty array, the planner accepts any partial index, and scans all of it.
    IF ended = '{}' THEN
        RETURN;
    END IF;
    -- A row that a sender is claiming or has claimed is skipped, so that nothing waits for the sender's open
    -- transaction. It may be sent, with a link that no longer works; if it returns to scheduled instead, the next claim
    -- ends it.
    UPDATE @extschema@.outbox
    SET state = 'cancelled',
        last_error = _withdraw_mail.reason,
        secrets = NULL,
        updated_at = now(),
        ended_at = now()
    -- Not by ctid: a row that is locked in a newer version than the snapshot has would not be found by it.
    WHERE id = ANY (ARRAY(
        SELECT o.id
        FROM @extschema@.outbox o
        WHERE o.token_id = ANY (_withdraw_mail.ended)
          -- For the index of live tokens; as text, since o.state = 'scheduled' would fit other indexes as well.
          AND o.state IN ('scheduled', 'claimed')
          AND o.state::text = 'scheduled'
        FOR NO KEY UPDATE SKIP LOCKED
    ));
END;
$$;
COMMENT ON FUNCTION @extschema@._withdraw_mail(bigint[], text) IS
    'Internal. Cancels the scheduled mail of these tokens and removes its secrets, except rows that a sender has locked.';

CREATE FUNCTION @extschema@._open_tokens(holders bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    RETURN ARRAY(
        SELECT t.id
        FROM @extschema@.tokens t
        WHERE t.account = ANY (_open_tokens.holders)
          AND t.consumed_at IS NULL
          AND t.revoked_at IS NULL
          AND t.expires_at > @extschema@._epoch()
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._open_tokens(bigint[]) IS
    'Internal. The open tokens of these accounts. STABLE, so that it reads with the snapshot of its caller.';

CREATE FUNCTION @extschema@._committed_open_tokens(reader regprocedure, holders bigint[]) RETURNS bigint[]
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_committed_open_tokens_wrapper';
COMMENT ON FUNCTION @extschema@._committed_open_tokens(regprocedure, bigint[]) IS
    'Internal. What reader, which is _open_tokens, returns with what was committed after the transaction''s snapshot.';

CREATE FUNCTION @extschema@._refuse_unseen_tokens(holders bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable') THEN
        RETURN;
    END IF;
    IF EXISTS (
        SELECT
        FROM unnest(@extschema@._committed_open_tokens('@extschema@._open_tokens(bigint[])'::regprocedure, holders)) c (id)
        WHERE NOT EXISTS (SELECT FROM @extschema@.tokens t WHERE t.id = c.id)
    ) THEN
        RAISE serialization_failure USING
            MESSAGE = 'could not serialize access due to concurrent update',
            DETAIL = 'A token of the account was created after this transaction began, and would stay open.',
            HINT = 'Try the transaction again.';
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._refuse_unseen_tokens(bigint[]) IS
    'Internal. Raises a serialization failure if these accounts have open tokens that the transaction''s snapshot does not contain.';

CREATE FUNCTION @extschema@._revoke_tokens(holders bigint[], actions @extschema@.token_action[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    stamp CONSTANT bigint := floor(extract(epoch FROM now()));
    ended bigint[];
BEGIN
    PERFORM @extschema@._refuse_unseen_tokens(holders);
    WITH revoked AS (
        UPDATE @extschema@.tokens t
        SET revoked_at = local.stamp
        WHERE t.account = ANY (_revoke_tokens.holders)
          AND t.action = ANY (_revoke_tokens.actions)
          AND t.consumed_at IS NULL
          AND t.revoked_at IS NULL
          AND t.expires_at > local.stamp
        RETURNING t.id
    )
    SELECT array_agg(r.id) INTO ended FROM revoked r;
    IF ended IS NOT NULL THEN
        PERFORM @extschema@._withdraw_mail(ended, 'token was revoked'::text);
    END IF;
    RETURN coalesce(cardinality(ended), 0);
END;
$$;
COMMENT ON FUNCTION @extschema@._revoke_tokens(bigint[], @extschema@.token_action[]) IS
    'Internal. Revokes the open tokens of these accounts, cancels their mail and returns how many there were. The caller must hold locks on the accounts.';

CREATE FUNCTION @extschema@.mailroom_revoke(account bigint) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    links integer;
BEGIN
    PERFORM FROM @extschema@.accounts a WHERE a.id = mailroom_revoke.account FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    links := @extschema@._revoke_tokens(ARRAY[account], '{activation,password_recovery}'::@extschema@.token_action[]);
    IF links > 0 AND @extschema@._is_operator() THEN
        INSERT INTO @extschema@._new_actions (action, detail)
        VALUES ('links_ended', jsonb_build_object('account', mailroom_revoke.account, 'links', local.links));
    END IF;
    RETURN links;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_revoke(bigint) IS
    'Ends all open links of an account, for example after its password was changed, and cancels their scheduled mail. Returns the number of links.';

CREATE FUNCTION @extschema@._tokens_withdraw() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    -- SKIP LOCKED: a consumer that holds a row, or the next one, checks the token itself, and deleting an account must
    -- not wait for either.
    DELETE FROM @extschema@.pending
    WHERE ctid = ANY (ARRAY(
        SELECT p.place
        FROM old_tokens t
        CROSS JOIN LATERAL (
            SELECT w.ctid AS place
            FROM @extschema@.pending w
            WHERE w.lane IN (0, 1)
              AND w.token_id = t.id
            OFFSET 0
            FOR UPDATE SKIP LOCKED
        ) p
    ));
    IF FOUND THEN
        PERFORM @extschema@._took();
    END IF;
    PERFORM @extschema@._withdraw_mail(ARRAY(SELECT id FROM old_tokens), 'token was deleted'::text);
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._tokens_withdraw() IS
    'Internal. Removes deleted tokens from pending and cancels their scheduled mail.';

CREATE TRIGGER tokens_withdraw
    AFTER DELETE ON @extschema@.tokens
    REFERENCING OLD TABLE AS old_tokens
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._tokens_withdraw();

CREATE FUNCTION @extschema@._tokens_withdraw_all() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM @extschema@.pending;
    PERFORM @extschema@._took();
    -- After RESTART IDENTITY new ids are lower than this session's position in pending.
    PERFORM @extschema@._scan_back('pending'::text, l.lane, '-infinity'::timestamptz, 0::bigint) FROM (VALUES (0::smallint), (1::smallint)) l (lane);
    UPDATE @extschema@.outbox
    SET state = 'cancelled',
        last_error = 'token was deleted',
        secrets = NULL,
        claimed_until = NULL,
        updated_at = now(),
        ended_at = now()
    WHERE state IN ('scheduled', 'claimed')
      AND token_id IS NOT NULL;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._tokens_withdraw_all() IS
    'Internal. Empties pending and cancels all token mail on TRUNCATE: RESTART IDENTITY would give the ids to other tokens.';

CREATE TRIGGER tokens_withdraw_all
    AFTER TRUNCATE ON @extschema@.tokens
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._tokens_withdraw_all();
