-- Redeem: what an application does with the link of a mail. GET peeks, POST redeems.
--
-- Both run with the rights of mailroom_definer for mailroom_app, which sees no token, secret or code. Invariants: a
-- token is redeemed once; a link that is forged, used, revoked or expired, or whose account is not eligible, gives the
-- same answer after the same work; only a genuine link that is still good takes locks, on the account and then on its
-- tokens; a wrong code is counted by the caller's transaction. Neither link nor code is a parameter of a statement:
-- statements see only the 32 bytes of the secret.

CREATE FUNCTION @extschema@._link_secret(link text) RETURNS bytea
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_link_secret_wrapper';
COMMENT ON FUNCTION @extschema@._link_secret(text) IS
    'Internal. The 32 bytes of the secret in a signed token, without checking its signature; NULL for anything malformed.';

CREATE FUNCTION @extschema@._is_code(given text, code text) RETURNS boolean
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_is_code_wrapper';
COMMENT ON FUNCTION @extschema@._is_code(text, text) IS
    'Internal. Whether the given code equals the token''s, compared in constant time; false for a malformed code.';

CREATE FUNCTION @extschema@._log_abuse(what text, account bigint) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_log_abuse_wrapper';
COMMENT ON FUNCTION @extschema@._log_abuse(text, bigint) IS
    'Internal. Writes a LOG line that an account was locked (too many wrong codes) or limited (too many requests), at most one a minute of each kind.';

CREATE FUNCTION @extschema@._find_token_by_link(link text) RETURNS @extschema@._token_verdicts
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET enable_sort = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    wanted CONSTANT bytea := @extschema@._link_secret(link);
    judged @extschema@._token_verdicts;
    genuine boolean;
BEGIN
    IF wanted IS NULL THEN
        RETURN NULL;
    END IF;
    -- The row with this secret, or the next one, so that an unknown secret costs the same reading and verifying.
    SELECT v.*
    INTO judged
    FROM @extschema@._token_verdicts v
    WHERE v.secret >= wanted
    ORDER BY v.secret
    LIMIT 1;
    -- The signature of a recovery token covers its code, so the stored code is used here.
    genuine := @extschema@._verify(link, coalesce(judged.action::text, 'activation'), judged.code);
    IF genuine AND judged.secret = wanted AND judged.eligible THEN
        RETURN judged;
    END IF;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._find_token_by_link(text) IS
    'Internal. The token of a genuine and eligible link; NULL otherwise, after the same amount of work.';

CREATE FUNCTION @extschema@.mailroom_peek(token text, OUT outcome text, OUT action @extschema@.token_action)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    judged CONSTANT @extschema@._token_verdicts := @extschema@._find_token_by_link(token);
BEGIN
    action := judged.action;
    outcome := CASE
        WHEN judged.token_id IS NULL THEN 'invalid'
        WHEN judged.action = 'activation' THEN 'ok'
        WHEN judged.locked THEN 'locked'
        ELSE 'code_required'
    END;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_peek(text) IS
    'Returns what mailroom_redeem would return for a link without a code, and changes nothing, because mail scanners open links.';

-- Long because each outcome of a link is a branch, under one lock of the token.
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
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
<<local>>
DECLARE
    stamp CONSTANT bigint := floor(extract(epoch FROM now()));
    judged CONSTANT @extschema@._token_verdicts := @extschema@._find_token_by_link(token);
    is_recovery CONSTANT boolean := judged.action = 'password_recovery';
    now_judged record;
    used boolean;
    waiting bigint[];
BEGIN
    outcome := 'invalid';
    IF judged.token_id IS NULL THEN
        RETURN;
    END IF;
    IF is_recovery AND (judged.locked OR coalesce(code, '') = '') THEN
        outcome := CASE WHEN judged.locked THEN 'locked' ELSE 'code_required' END;
        action := judged.action;
        RETURN;
    END IF;

    -- Sessions that redeem the same token go on one at a time from here; the rows are locked in the order in which they
    -- are named. The view is queried again, because what it returned before may have changed.
    PERFORM
    FROM @extschema@.accounts a
    JOIN @extschema@.tokens t ON t.account = a.id
    WHERE t.id = judged.token_id
      AND a.id = judged.account_id
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT v.locked
    INTO now_judged
    FROM @extschema@._token_verdicts v
    WHERE v.token_id = judged.token_id
      AND v.account_id = judged.account_id
      AND v.action = judged.action
      AND v.eligible;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    action := judged.action;
    IF is_recovery AND now_judged.locked THEN
        outcome := 'locked';
        RETURN;
    END IF;
    IF is_recovery AND NOT @extschema@._is_code(code, judged.code) THEN
        UPDATE @extschema@.tokens t
        SET wrong_codes = t.wrong_codes + 1
        WHERE t.id = judged.token_id;
        IF NOT FOUND THEN
            -- A trigger of the application kept the old count; no code is checked then.
            outcome := 'invalid';
            action := NULL;
            RETURN;
        END IF;
        SELECT CASE WHEN v.locked THEN 'locked' ELSE 'wrong_code' END
        INTO outcome
        FROM @extschema@._token_verdicts v
        WHERE v.token_id = judged.token_id;
        IF outcome = 'locked' THEN
            PERFORM @extschema@._log_abuse('locked'::text, judged.account_id);
        END IF;
        RETURN;
    END IF;

    PERFORM @extschema@._refuse_unseen_tokens(ARRAY[judged.account_id]);
    -- A recovery ends all open tokens of the account: the person who lost access cannot vouch for the other links.
    WITH closed AS (
        UPDATE @extschema@.tokens t
        SET consumed_at = CASE WHEN t.id = judged.token_id THEN local.stamp END,
            revoked_at = CASE WHEN t.id <> judged.token_id THEN local.stamp END
        WHERE t.account = judged.account_id
          AND t.consumed_at IS NULL
          AND t.revoked_at IS NULL
          AND (t.action = judged.action OR local.is_recovery)
          AND (t.id = judged.token_id OR t.expires_at > local.stamp)
        RETURNING t.id
    )
    -- Most mail has been sent when its link is used.
    SELECT bool_or(c.id = judged.token_id), array_agg(o.token_id) FILTER (WHERE o.token_id IS NOT NULL)
    INTO used, waiting
    FROM closed c
    LEFT JOIN LATERAL (
        SELECT l.token_id FROM @extschema@.outbox l WHERE l.token_id = c.id AND l.state IN ('scheduled', 'claimed') OFFSET 0
    ) o ON true;
    IF waiting IS NOT NULL THEN
        PERFORM @extschema@._withdraw_mail(waiting, 'token was used or revoked'::text);
    END IF;
    -- A trigger of the application may have kept the old row.
    IF used IS NOT TRUE THEN
        outcome := 'invalid';
        action := NULL;
        RETURN;
    END IF;
    outcome := 'ok';
    account := judged.account_id;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_redeem(text, text) IS
    'Redeems a link once, with its code for a password_recovery; an activation activates the account. The outcome (ok, code_required, wrong_code, locked or invalid) is a value, and COMMIT is needed after a wrong code too.';
