-- Secrets of mail: who may read them, and that they are removed when a mail ends (I7).
--
-- The trigger ends also what an administrator ends by hand; the extension's own statements leave it nothing to do.
-- Claims read the secrets through the view. Invariant: a row in a final state has no secrets.

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
    AFTER INSERT OR UPDATE OF state, secrets ON @extschema@.outbox
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
