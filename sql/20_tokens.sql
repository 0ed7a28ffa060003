-- Tokens: the single-use secrets behind the links.
--
-- Written by the triggers on accounts and by whoever asks for a recovery; read when a token is handed out
-- or redeemed. Invariants: a provisioned account gets an activation token in the transaction that made it;
-- consuming an activation token activates a provisioned account; tokens go with their account.
-- Times are epoch seconds.

CREATE TYPE @extschema@.token_action AS ENUM ('activation', 'password_recovery');
COMMENT ON TYPE @extschema@.token_action IS 'What redeeming a token allows.';

CREATE TABLE @extschema@.tokens (
    id bigserial,
    action @extschema@.token_action NOT NULL,
    secret bytea NOT NULL DEFAULT @extschema@._random_secret(),
    code text NOT NULL DEFAULT @extschema@._random_code(),
    account bigint NOT NULL,
    expires_at bigint NOT NULL DEFAULT floor(extract(epoch FROM now()))::bigint + @extschema@._token_ttl(),
    consumed_at bigint,
    created_at bigint NOT NULL DEFAULT floor(extract(epoch FROM now())),
    revoked_at bigint,
    wrong_codes smallint NOT NULL DEFAULT 0,
    CONSTRAINT tokens_pkey PRIMARY KEY (id),
    -- Scans of pending start above 0.
    CONSTRAINT tokens_id_must_be_positive CHECK (id > 0),
    CONSTRAINT tokens_secret_key UNIQUE (secret),
    CONSTRAINT tokens_account_fkey FOREIGN KEY (account) REFERENCES @extschema@.accounts (id) ON DELETE CASCADE,
    CONSTRAINT tokens_secret_must_be_32_bytes CHECK (octet_length(secret) = 32),
    CONSTRAINT tokens_code_must_be_five_digits CHECK (code ~ '^[0-9]{5}$'),
    CONSTRAINT tokens_expiry_must_follow_creation CHECK (expires_at > created_at),
    CONSTRAINT tokens_wrong_codes_must_not_be_negative CHECK (wrong_codes >= 0)
);
COMMENT ON TABLE @extschema@.tokens IS
    'One row a link. A new token is mailed at COMMIT; set consumed_at to use it up.';
COMMENT ON COLUMN @extschema@.tokens.action IS 'activation for provisioned accounts, password_recovery for active ones.';
COMMENT ON COLUMN @extschema@.tokens.secret IS
    '32 random bytes; no use to a reader without the signing key, see mailroom_sign.';
COMMENT ON COLUMN @extschema@.tokens.code IS
    'Five decimal digits that must accompany a password_recovery token.';
COMMENT ON COLUMN @extschema@.tokens.expires_at IS 'Epoch seconds; mailroom.token_ttl after creation by default.';
COMMENT ON COLUMN @extschema@.tokens.consumed_at IS 'Epoch seconds; NULL while the token is unused.';
COMMENT ON COLUMN @extschema@.tokens.created_at IS 'Epoch seconds.';
COMMENT ON COLUMN @extschema@.tokens.revoked_at IS
    'Epoch seconds; NULL unless a newer request, a redeemed sibling, a suspension or a change of the address ended it unused.';
COMMENT ON COLUMN @extschema@.tokens.wrong_codes IS
    'Wrong codes given with this token, five of which lock it. Counted in place: a ROLLBACK does not take them back.';

-- The foreign key looks tokens up by account when an account goes.
CREATE INDEX tokens_account ON @extschema@.tokens (account);

CREATE FUNCTION @extschema@._accounts_issue_activation() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF @extschema@._restores() THEN
        RETURN NULL;
    END IF;
    INSERT INTO @extschema@.tokens (account, action)
    SELECT id, 'activation'
    FROM new_accounts
    WHERE status = 'provisioned';
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._accounts_issue_activation() IS
    'Internal. Gives each new provisioned account its activation token.';

-- AFTER and per statement: one execution for a COPY of any size, and a row that ON CONFLICT turned away is
-- not among the new ones.
CREATE TRIGGER accounts_issue_activation
    AFTER INSERT ON @extschema@.accounts
    REFERENCING NEW TABLE AS new_accounts
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._accounts_issue_activation();

CREATE FUNCTION @extschema@._tokens_activate_account() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
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
    'Internal. Activates the provisioned account whose activation token was consumed.';

CREATE TRIGGER tokens_activate_account
    AFTER UPDATE OF consumed_at ON @extschema@.tokens
    FOR EACH ROW
    WHEN (NEW.action = 'activation' AND OLD.consumed_at IS NULL AND NEW.consumed_at IS NOT NULL)
    EXECUTE FUNCTION @extschema@._tokens_activate_account();

CREATE FUNCTION @extschema@._tokens_keep_id() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE feature_not_supported USING
        MESSAGE = 'the id of a token cannot be changed',
        DETAIL = 'It is in the queue and in the outbox under its id.',
        HINT = 'Insert a new token instead.';
END;
$$;
COMMENT ON FUNCTION @extschema@._tokens_keep_id() IS 'Internal. Refuses a new id for a token.';

CREATE TRIGGER tokens_keep_id
    BEFORE UPDATE OF id ON @extschema@.tokens
    FOR EACH ROW
    WHEN (OLD.id <> NEW.id)
    EXECUTE FUNCTION @extschema@._tokens_keep_id();
