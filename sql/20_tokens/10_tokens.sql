-- Tokens: the single-use secrets behind the links.
--
-- Written by the triggers on accounts (20_lifecycle.sql), by requests for a link (70_requests.sql) and by applications;
-- read when a token is handed out (30_pending/) or redeemed (60_redeem.sql). Invariants: secret and code are random;
-- the id of a token never changes; tokens are deleted with their account. Times are epoch seconds.

CREATE TYPE @extschema@.token_action AS ENUM ('activation', 'password_recovery');
COMMENT ON TYPE @extschema@.token_action IS 'What redeeming a token does.';

CREATE FUNCTION @extschema@._random_secret() RETURNS bytea
    LANGUAGE c VOLATILE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_random_secret_wrapper';
COMMENT ON FUNCTION @extschema@._random_secret() IS 'Internal. 32 bytes from the server''s strong random source.';

CREATE FUNCTION @extschema@._random_code() RETURNS text
    LANGUAGE c VOLATILE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_random_code_wrapper';
COMMENT ON FUNCTION @extschema@._random_code() IS
    'Internal. Five decimal digits, uniform over 00000 to 99999, from the server''s strong random source.';

CREATE FUNCTION @extschema@._activation_ttl() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_activation_ttl_wrapper';
COMMENT ON FUNCTION @extschema@._activation_ttl() IS 'Internal. The setting mailroom.activation_ttl in seconds.';

CREATE FUNCTION @extschema@._recovery_ttl() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_recovery_ttl_wrapper';
COMMENT ON FUNCTION @extschema@._recovery_ttl() IS 'Internal. The setting mailroom.recovery_ttl in seconds.';

CREATE FUNCTION @extschema@._ttl(action @extschema@.token_action) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE action WHEN 'activation' THEN @extschema@._activation_ttl() ELSE @extschema@._recovery_ttl() END;
COMMENT ON FUNCTION @extschema@._ttl(@extschema@.token_action) IS
    'Internal. The lifetime in seconds of a new token for this action.';

CREATE TABLE @extschema@.tokens (
    id bigserial,
    action @extschema@.token_action NOT NULL,
    secret bytea NOT NULL DEFAULT @extschema@._random_secret(),
    code text NOT NULL DEFAULT @extschema@._random_code(),
    account bigint NOT NULL,
    expires_at bigint NOT NULL,
    consumed_at bigint,
    created_at bigint NOT NULL DEFAULT @extschema@._epoch(),
    revoked_at bigint,
    wrong_codes smallint NOT NULL DEFAULT 0,
    sent_again_at bigint[] NOT NULL DEFAULT '{}',
    CONSTRAINT tokens_pkey PRIMARY KEY (id),
    CONSTRAINT tokens_secret_key UNIQUE (secret),
    CONSTRAINT tokens_account_fkey FOREIGN KEY (account) REFERENCES @extschema@.accounts (id) ON DELETE CASCADE
    -- Free space for the consumed version of a row: it stays on its page, and no index entry is added.
) WITH (fillfactor = 80);
COMMENT ON TABLE @extschema@.tokens IS
    'One row for each link. A new token is mailed at COMMIT; UPDATE consumed_at to consume it.';
COMMENT ON COLUMN @extschema@.tokens.action IS
    'activation for provisioned accounts, password_recovery for active ones.';
COMMENT ON COLUMN @extschema@.tokens.secret IS '32 random bytes; useless without the signing key, see mailroom_sign.';
COMMENT ON COLUMN @extschema@.tokens.code IS 'Five decimal digits that must accompany a password_recovery token.';
COMMENT ON COLUMN @extschema@.tokens.expires_at IS
    'Epoch seconds; by default mailroom.activation_ttl or mailroom.recovery_ttl from now.';
COMMENT ON COLUMN @extschema@.tokens.consumed_at IS 'Epoch seconds; NULL while the token is not consumed.';
COMMENT ON COLUMN @extschema@.tokens.created_at IS 'Epoch seconds.';
COMMENT ON COLUMN @extschema@.tokens.revoked_at IS
    'Epoch seconds; set when the token ends unused: another token of the account was redeemed, the account was suspended or changed its address, or mailroom_revoke was called.';
COMMENT ON COLUMN @extschema@.tokens.wrong_codes IS 'Number of wrong codes given with this token; five lock it.';
COMMENT ON COLUMN @extschema@.tokens.sent_again_at IS
    'Epoch seconds at which its link was sent again on request, within the last hour of such requests.';

-- Used by the foreign key when an account is deleted.
CREATE INDEX tokens_account ON @extschema@.tokens (account);

CREATE FUNCTION @extschema@._tokens_add_expiry() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.expires_at := @extschema@._epoch() + @extschema@._ttl(NEW.action);
    RETURN NEW;
END;
$$;
COMMENT ON FUNCTION @extschema@._tokens_add_expiry() IS
    'Internal. Sets expires_at if it is NULL: a default cannot depend on another column.';

-- Fires before tokens_check, because triggers fire in the order of their names.
CREATE TRIGGER tokens_add_expiry
    BEFORE INSERT ON @extschema@.tokens
    FOR EACH ROW
    WHEN (NEW.expires_at IS NULL)
    EXECUTE FUNCTION @extschema@._tokens_add_expiry();
-- As a default would apply, also during replication.
ALTER TABLE @extschema@.tokens ENABLE ALWAYS TRIGGER tokens_add_expiry;

CREATE FUNCTION @extschema@._tokens_check() RETURNS trigger
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_tokens_check_wrapper';
COMMENT ON FUNCTION @extschema@._tokens_check() IS
    'Internal. Rejects an invalid token with a check violation and the name of the rule.';

CREATE TRIGGER tokens_check
    BEFORE INSERT OR UPDATE ON @extschema@.tokens
    FOR EACH ROW
    EXECUTE FUNCTION @extschema@._tokens_check();

CREATE FUNCTION @extschema@._tokens_keep_id() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE feature_not_supported USING
        MESSAGE = 'the id of a token cannot be changed',
        DETAIL = 'Rows of pending and outbox refer to the token by its id.',
        HINT = 'Insert a new token instead.';
END;
$$;
COMMENT ON FUNCTION @extschema@._tokens_keep_id() IS 'Internal. Rejects a change of a token''s id.';

-- Not UPDATE OF id: a trigger of the application may have changed it.
CREATE TRIGGER tokens_keep_id
    BEFORE UPDATE ON @extschema@.tokens
    FOR EACH ROW
    WHEN (NEW.id <> OLD.id)
    EXECUTE FUNCTION @extschema@._tokens_keep_id();
