-- Tokens follow their accounts, and accounts their tokens.
--
-- Triggers on accounts write tokens, a trigger on tokens activates accounts. Invariants: an account gets an activation
-- token in the transaction that makes it provisioned; consuming an activation token activates a provisioned account; an
-- account that is suspended, becomes provisioned again or changes its address loses its open tokens.

CREATE FUNCTION @extschema@._accounts_issue_activation() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Tokens of accounts that come from a dump are in the dump too. The statement is not even planned then: with
    -- row_security = off it fails beside policies.
    IF NOT @extschema@._is_restoring() THEN
        INSERT INTO @extschema@.tokens (account, action, expires_at)
        SELECT n.id, 'activation', @extschema@._epoch() + @extschema@._activation_ttl()
        FROM new_accounts n
        WHERE n.status = 'provisioned';
    END IF;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._accounts_issue_activation() IS
    'Internal. Creates the activation tokens of new provisioned accounts.';

-- AFTER and FOR EACH STATEMENT: one execution for a COPY of any size, and rows skipped by ON CONFLICT are not in the
-- transition table.
CREATE TRIGGER accounts_issue_activation
    AFTER INSERT ON @extschema@.accounts
    REFERENCING NEW TABLE AS new_accounts
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._accounts_issue_activation();

CREATE FUNCTION @extschema@._tokens_activate_account() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    UPDATE @extschema@.accounts
    SET status = 'active'
    WHERE id = NEW.account
      AND status = 'provisioned';
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._tokens_activate_account() IS
    'Internal. Activates the provisioned account of a consumed activation token.';

CREATE TRIGGER tokens_activate_account
    AFTER UPDATE OF consumed_at ON @extschema@.tokens
    FOR EACH ROW
    WHEN (OLD.consumed_at IS NULL AND NEW.consumed_at IS NOT NULL AND NEW.action = 'activation')
    EXECUTE FUNCTION @extschema@._tokens_activate_account();

CREATE FUNCTION @extschema@._accounts_revoke_tokens() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    holders bigint[];
    provisioned bigint[];
BEGIN
    -- No join: its plan would be that of the session's first call, perhaps for one account, and would take quadratic
    -- time for many.
    SELECT array_agg(c.id), array_agg(c.id) FILTER (WHERE c.status = 'provisioned')
    INTO holders, provisioned
    FROM (
        SELECT u.id, max(u.status) AS status
        FROM (
            SELECT o.id, o.email, o.status AS was, NULL::@extschema@.account_status AS status FROM old_accounts o
            UNION ALL
            SELECT n.id, n.email, NULL, n.status FROM new_accounts n
        ) u
        GROUP BY u.id
        HAVING min(u.email) <> max(u.email)
            OR (max(u.status) IN ('suspended', 'provisioned') AND max(u.status) <> max(u.was))
    ) c;
    IF holders IS NOT NULL THEN
        PERFORM @extschema@._revoke_tokens(holders, '{activation,password_recovery}'::@extschema@.token_action[]);
    END IF;
    -- A person who corrects an address before it was verified, or whose suspension ends before it was, does not have to
    -- request another link.
    IF provisioned IS NOT NULL AND NOT @extschema@._is_restoring() THEN
        INSERT INTO @extschema@.tokens (account, action, expires_at)
        SELECT p.id, 'activation', @extschema@._epoch() + @extschema@._activation_ttl()
        FROM unnest(provisioned) p (id)
        ORDER BY p.id;
    END IF;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._accounts_revoke_tokens() IS
    'Internal. Revokes the open tokens of accounts that are suspended, become provisioned or change their address. Those that are provisioned then get an activation token.';

CREATE TRIGGER accounts_revoke_tokens
    AFTER UPDATE ON @extschema@.accounts
    REFERENCING OLD TABLE AS old_accounts NEW TABLE AS new_accounts
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._accounts_revoke_tokens();
