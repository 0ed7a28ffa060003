-- Redeem: what an application does with the link of a mail. GET peeks, POST redeems.
--
-- Both lend rights (90_privileges.sql) to mailroom_app, which sees no token, secret or code. Invariants: a
-- token is redeemed once, whoever else tries at the same time; a link that was forged, used, revoked, that
-- expired, or whose account is not eligible gives the same answer after the same work; only a genuine link
-- that is still good takes a lock. Locks are taken in one order, the account's row and then its tokens',
-- here, in requests and behind a change of the account.

CREATE FUNCTION @extschema@._withdraw_mail(ended bigint[], reason text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    -- What somebody is claiming at this moment, or has claimed, is passed by: it may go out, with a link that
    -- is dead; if it comes back instead, the next claim judges it again. Nobody waits for a sender's open
    -- transaction.
    UPDATE @extschema@.outbox
    SET state = 'cancelled',
        last_error = reason,
        data = data - '{token,code,link}'::text[],
        updated_at = now(),
        ended_at = now()
    WHERE id IN (
        SELECT o.id
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.token = ANY (ended)
        FOR UPDATE SKIP LOCKED
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._withdraw_mail(bigint[], text) IS
    'Internal. Cancels the scheduled mail of these tokens and takes the secrets out of it, but for what a sender is taking.';

CREATE FUNCTION @extschema@._revoke_tokens(holders bigint[], actions @extschema@.token_action[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stamp CONSTANT bigint := floor(extract(epoch FROM now()));
    ended bigint[];
BEGIN
    WITH revoked AS (
        UPDATE @extschema@.tokens t
        SET revoked_at = stamp
        WHERE t.account = ANY (holders)
          AND t.action = ANY (actions)
          AND t.consumed_at IS NULL
          AND t.revoked_at IS NULL
          AND t.expires_at > stamp
        RETURNING t.id
    )
    SELECT array_agg(r.id) INTO ended FROM revoked r;
    IF ended IS NOT NULL THEN
        PERFORM @extschema@._withdraw_mail(ended, 'token was revoked'::text);
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._revoke_tokens(bigint[], @extschema@.token_action[]) IS
    'Internal. Ends the open tokens of these accounts, and the mail that carries them. The caller holds the accounts locked.';

-- Most changes of an account end nothing, which is seen without a statement.
CREATE FUNCTION @extschema@._accounts_revoke_tokens() RETURNS trigger
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_accounts_revoke_tokens_wrapper';
COMMENT ON FUNCTION @extschema@._accounts_revoke_tokens() IS
    'Internal. Has _revoke_tokens_of_changed do its work if an account was suspended or got another address. Errors: 39P01 on another table.';

CREATE FUNCTION @extschema@._revoke_tokens_of_changed() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    holders bigint[];
BEGIN
    SELECT array_agg(n.id)
    INTO holders
    FROM new_accounts n
    JOIN old_accounts o ON o.id = n.id
    WHERE n.email <> o.email
       OR (n.status = 'suspended' AND o.status <> 'suspended');
    IF holders IS NOT NULL THEN
        PERFORM @extschema@._revoke_tokens(holders, '{activation,password_recovery}'::@extschema@.token_action[]);
    END IF;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._revoke_tokens_of_changed() IS
    'Internal. The part of _accounts_revoke_tokens that takes statements: ends the open tokens of accounts that are suspended or get another address: their links are in somebody else''s mailbox, or in the wrong hands.';

CREATE TRIGGER accounts_revoke_tokens
    AFTER UPDATE ON @extschema@.accounts
    REFERENCING OLD TABLE AS old_accounts NEW TABLE AS new_accounts
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._accounts_revoke_tokens();

CREATE FUNCTION @extschema@._judge_link(link text) RETURNS @extschema@.tokens
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_judge_link_wrapper';
COMMENT ON FUNCTION @extschema@._judge_link(text) IS
    'Internal. The token behind a link that is genuine and good, as the statement sees it; NULL otherwise, after the same work. Errors: 58P01, 42501, F0000 and 58030 when there is no good key file; XX000 when tokens or accounts are not as they were made.';

CREATE FUNCTION @extschema@.mailroom_peek(token text, OUT outcome text, OUT action @extschema@.token_action)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    judged @extschema@.tokens;
BEGIN
    judged := @extschema@._judge_link(token);
    action := judged.action;
    outcome := CASE
        WHEN judged.id IS NULL THEN 'invalid'
        WHEN judged.action = 'activation' THEN 'ok'
        -- As in mailroom_redeem.
        WHEN judged.wrong_codes >= 5 THEN 'locked'
        ELSE 'code_required'
    END;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_peek(text) IS
    'What mailroom_redeem would say of a link without a code, changing nothing: mail scanners open links. outcome: ok, code_required, locked, or invalid for all else; action is NULL when invalid. Errors: 58P01 and F0000 when there is no good key file.';

CREATE FUNCTION @extschema@.mailroom_redeem(
    token text,
    code text DEFAULT NULL,
    OUT outcome text,
    OUT account bigint,
    OUT action @extschema@.token_action
)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    stamp CONSTANT bigint := floor(extract(epoch FROM now()));
    given CONSTANT text := nullif(code, '');
    -- Of 100,000 codes; as in mailroom_peek.
    guesses CONSTANT smallint := 5;
    judged @extschema@.tokens;
    place tid;
    used boolean;
    waiting bigint[];
BEGIN
    outcome := 'invalid';
    judged := @extschema@._judge_link(token);
    IF judged.id IS NULL THEN
        RETURN;
    END IF;
    IF judged.action = 'password_recovery' AND (judged.wrong_codes >= guesses OR given IS NULL) THEN
        outcome := CASE WHEN judged.wrong_codes >= guesses THEN 'locked' ELSE 'code_required' END;
        action := judged.action;
        RETURN;
    END IF;

    -- One at a time from here on, the rows being locked in the order in which they are named; what was seen before may
    -- be so no longer. Who is eligible is as in _handout.
    SELECT t.ctid
    INTO place
    FROM @extschema@.accounts a
    JOIN @extschema@.tokens t ON t.account = a.id
    WHERE t.id = judged.id
      AND t.account = judged.account
      AND t.action = judged.action
      AND t.consumed_at IS NULL
      AND t.revoked_at IS NULL
      AND t.expires_at > extract(epoch FROM clock_timestamp())
      AND a.status = CASE judged.action
          WHEN 'activation' THEN 'provisioned'::@extschema@.account_status
          ELSE 'active'::@extschema@.account_status
      END
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    action := judged.action;
    IF judged.action = 'password_recovery' THEN
        -- All that may fail or be cancelled comes before the code is looked at, right or wrong: whoever could tell the
        -- two by how a call fails would guess without being counted. How many guesses are left is seen under the same
        -- lock, since others may have guessed while this session waited.
        outcome := @extschema@._try_code(place, judged.id, judged.code, given, guesses);
        IF outcome IS DISTINCT FROM 'ok' THEN
            RETURN;
        END IF;
    END IF;

    -- A recovery ends everything that is open: whoever needed it cannot vouch for the rest.
    WITH closed AS (
        UPDATE @extschema@.tokens t
        SET consumed_at = CASE WHEN t.id = judged.id THEN stamp END,
            revoked_at = CASE WHEN t.id <> judged.id THEN stamp END
        WHERE t.account = judged.account
          AND t.consumed_at IS NULL
          AND t.revoked_at IS NULL
          AND (t.action = judged.action OR judged.action = 'password_recovery')
          AND (t.id = judged.id OR t.expires_at > stamp)
        RETURNING t.id
    )
    -- Most mail has been sent when its link comes back.
    SELECT bool_or(c.id = judged.id), array_agg(o.token) FILTER (WHERE o.token IS NOT NULL)
    INTO used, waiting
    FROM closed c
    LEFT JOIN @extschema@.outbox o ON o.token = c.id AND o.state = 'scheduled';
    IF waiting IS NOT NULL THEN
        PERFORM @extschema@._withdraw_mail(waiting, 'token was used or revoked'::text);
    END IF;
    -- Somebody's own trigger kept it as it was.
    IF used IS NOT TRUE THEN
        outcome := 'invalid';
        action := NULL;
        RETURN;
    END IF;
    outcome := 'ok';
    account := judged.account;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_redeem(text, text) IS
    'Uses a link up, once; an activation activates the account. code: the five digits, for a password_recovery. One row: outcome ok with account and action; code_required, wrong_code or locked (the fifth wrong code, and from then on) with the action; invalid with neither for links that are forged, unknown, used, revoked, expired, or whose account is not eligible. COMMIT makes it final; ROLLBACK takes it back, but not a wrong code. Ends the account''s other open tokens of the action, a recovery all of them, and cancels their scheduled mail; what a sender has claimed already may still go out. Errors: 58P01 and F0000 when there is no good key file, 40001 above READ COMMITTED.';
