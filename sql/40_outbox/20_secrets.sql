-- Secrets of mail: who may read them, and that they are removed when a mail ends (I7).
--
-- The triggers watch what is written by hand, or changed by a trigger of the application; the extension's own statements
-- leave them nothing to do. Claims read the secrets through the view. Invariants: a row in a final state has no secrets;
-- a row with secrets has their token, by which dumps leave it out and claims and revocations find it.

CREATE VIEW @extschema@._mail_secrets AS
SELECT o.ctid AS place, o.secrets
FROM @extschema@.outbox o;
COMMENT ON VIEW @extschema@._mail_secrets IS
    'Internal. The secrets of each mail, for claims by roles that cannot read the column.';

CREATE FUNCTION @extschema@._outbox_end() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE @extschema@.outbox o
    SET secrets = NULL,
        last_error = CASE o.state WHEN 'error' THEN coalesce(o.last_error, 'no reason given') ELSE o.last_error END,
        claimed_until = NULL,
        updated_at = now(),
        ended_at = coalesce(o.ended_at, now())
    WHERE o.id = NEW.id;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._outbox_end() IS
    'Internal. Removes the secrets from a row that reaches a final state, and sets its times.';

-- A CHECK constraint would quote the secrets in the DETAIL of its error, and so in the server log. AFTER, because any
-- BEFORE UPDATE row trigger makes each update lock its row first, even if WHEN is false.
CREATE TRIGGER outbox_end
    AFTER INSERT OR UPDATE ON @extschema@.outbox
    FOR EACH ROW
    WHEN (
        NEW.state <> 'scheduled'
        AND NEW.state <> 'claimed'
        AND (
            NEW.ended_at IS NULL
            OR NEW.claimed_until IS NOT NULL
            OR NEW.secrets IS NOT NULL
            OR NEW.last_error IS NULL AND NEW.state = 'error'
        )
    )
    EXECUTE FUNCTION @extschema@._outbox_end();

CREATE FUNCTION @extschema@._outbox_keep_secrets() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE check_violation USING
        MESSAGE = 'mail with secrets must keep its token_id',
        DETAIL = format('It is mail %s.', NEW.id),
        HINT = 'Set secrets to NULL, too, or cancel the mail.',
        SCHEMA = TG_TABLE_SCHEMA,
        TABLE = TG_TABLE_NAME,
        CONSTRAINT = 'outbox_secrets_must_have_their_token';
END;
$$;
COMMENT ON FUNCTION @extschema@._outbox_keep_secrets() IS
    'Internal. Rejects mail with secrets that has no token, or gets that of another mail, without quoting the secrets.';

CREATE TRIGGER outbox_keep_secrets
    AFTER INSERT ON @extschema@.outbox
    FOR EACH ROW
    WHEN (NEW.secrets IS NOT NULL AND NEW.token_id IS NULL AND (NEW.state = 'scheduled' OR NEW.state = 'claimed'))
    EXECUTE FUNCTION @extschema@._outbox_keep_secrets();

CREATE TRIGGER outbox_keep_secrets_of_update
    AFTER UPDATE ON @extschema@.outbox
    FOR EACH ROW
    WHEN (
        NEW.secrets IS NOT NULL
        AND (NEW.token_id IS NULL OR NEW.token_id IS DISTINCT FROM OLD.token_id)
        -- outbox_end removes them otherwise.
        AND (NEW.state = 'scheduled' OR NEW.state = 'claimed')
    )
    EXECUTE FUNCTION @extschema@._outbox_keep_secrets();
