-- States: what the columns of a mail must be to each other, and that secrets are removed when it ends (I7).
--
-- The triggers watch what is written by hand, or changed by a trigger of the application; the extension's own statements
-- leave them nothing to do. Claims read the secrets through the view. Invariants: a live row has no end; a claimed row,
-- and no other, has a lease, and says whose and since when; a row in a final state has no secrets, and a reason if it
-- failed; a row with secrets has their token, by which dumps leave it out and claims and revocations find it; a sender
-- writes no link, schedules no mail again that has ended, and writes no times but those of a claim or a settlement.
-- The numbers of attempts are checked here as well: with a domain, an array of them would be of another type than the
-- functions take.

CREATE VIEW @extschema@._mail_secrets AS
SELECT o.ctid AS place, o.secrets
FROM @extschema@.outbox o;
COMMENT ON VIEW @extschema@._mail_secrets IS
    'Internal. The secrets of each mail, for claims by roles that cannot read the column.';

-- Long because each rule has an error of its own.
CREATE FUNCTION @extschema@._outbox_check() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    live CONSTANT boolean := NEW.state < 'sent';
    -- Not current_user, which is the owner of this function.
    caller CONSTANT name := coalesce(nullif(current_setting('role'), 'none'), session_user);
    rule text;
BEGIN
    IF least(NEW.failed_attempts, NEW.ambiguous_attempts) < 0
        -- What updates lead to can be restored.
        OR greatest(NEW.failed_attempts, NEW.ambiguous_attempts) > (CASE TG_OP WHEN 'INSERT' THEN 2000000000 ELSE 1000000 END)
        AND coalesce(greatest(NEW.failed_attempts - OLD.failed_attempts, NEW.ambiguous_attempts - OLD.ambiguous_attempts), 2) > 1
    THEN
        rule := 'outbox_attempts_must_be_within_bounds';
    ELSIF NEW.max_attempts <= 0 THEN
        rule := 'outbox_max_attempts_must_be_positive';
    ELSIF octet_length(NEW.last_error) > 16384 THEN
        rule := 'outbox_last_error_must_not_exceed_16384_octets';
    ELSIF octet_length(NEW.claimed_by) > 1024 THEN
        rule := 'outbox_claimed_by_must_not_exceed_1024_octets';
    ELSIF octet_length(NEW.provider_id) > 1024 THEN
        rule := 'outbox_provider_id_must_not_exceed_1024_octets';
    ELSIF live AND NEW.ended_at IS NOT NULL THEN
        rule := 'outbox_live_row_must_not_have_ended';
    ELSIF live
        AND ((NEW.state = 'claimed') = (NEW.claimed_until IS NULL)
            OR NEW.claimed_until IS NOT NULL AND (NEW.claimed_by IS NULL OR NEW.claimed_at IS NULL))
    THEN
        rule := 'outbox_claim_must_have_claimant_and_end';
    ELSIF live AND NEW.secrets IS NOT NULL AND (NEW.token_id = OLD.token_id) IS NOT TRUE THEN
        rule := 'outbox_secrets_must_have_their_token';
    ELSIF live AND (NEW.secrets IS DISTINCT FROM OLD.secrets OR OLD.ended_at IS NOT NULL) THEN
        RAISE insufficient_privilege USING
            MESSAGE = 'permission denied to write secrets or to schedule mail that has ended',
            DETAIL = format('It is mail %s. A role that claims and settles mail may do neither.', NEW.id),
            HINT = 'Use mailroom_retry, or become a member of mailroom_admin.';
    ELSIF TG_OP = 'UPDATE'
        AND (
            NEW.ended_at IS DISTINCT FROM OLD.ended_at
                AND (NEW.ended_at < statement_timestamp() - interval '5 minutes' OR NEW.ended_at > clock_timestamp() + interval '5 minutes')
            OR NOT isfinite(NEW.claimed_at)
            OR NEW.claimed_until IS DISTINCT FROM OLD.claimed_until
                AND (NEW.claimed_until = '-infinity' OR NEW.claimed_until > now() + interval '400 days')
            OR NEW.send_at IS DISTINCT FROM OLD.send_at
                AND (NEW.send_at = '-infinity' OR NEW.send_at > now() + interval '400 days')
        )
        AND NOT has_table_privilege(caller, TG_RELID, 'DELETE')
        -- Not in an apply worker, whose rows are those of another server.
        AND current_setting('session_replication_role') <> 'replica'
    THEN
        RAISE insufficient_privilege USING
            MESSAGE = 'permission denied to set such times',
            DETAIL = format('It is mail %s. A role that claims and settles mail ends it now, and claims or postpones it for a year at most.', NEW.id),
            HINT = 'Set ended_at to clock_timestamp(), or leave it out.';
    ELSIF NEW.state = 'error' AND NEW.last_error IS NULL AND NEW.token_id IS NULL THEN
        rule := 'outbox_error_must_have_a_reason';
    END IF;
    IF rule IS NOT NULL THEN
        RAISE check_violation USING
            MESSAGE = format('new row for relation "outbox" violates check constraint "%s"', rule),
            DETAIL = format('It is mail %s, which is %s.', NEW.id, NEW.state),
            HINT = CASE rule
                WHEN 'outbox_live_row_must_not_have_ended' THEN 'Set ended_at to NULL, or use mailroom_retry.'
                WHEN 'outbox_claim_must_have_claimant_and_end' THEN 'Set claimed_until, claimed_by and claimed_at with the state, or use mailroom_claim and mailroom_release.'
                WHEN 'outbox_secrets_must_have_their_token' THEN 'Set secrets to NULL, too, or cancel the mail.'
                WHEN 'outbox_error_must_have_a_reason' THEN 'Set last_error.'
                WHEN 'outbox_last_error_must_not_exceed_16384_octets' THEN 'Store the beginning only.'
                WHEN 'outbox_claimed_by_must_not_exceed_1024_octets' THEN 'Use a shorter name.'
                WHEN 'outbox_provider_id_must_not_exceed_1024_octets' THEN 'Leave it out.'
                ELSE 'Set failed_attempts and ambiguous_attempts to 0 or more and to 1000000 at most, and max_attempts to 1 or more.'
            END,
            SCHEMA = TG_TABLE_SCHEMA,
            TABLE = TG_TABLE_NAME,
            CONSTRAINT = rule;
    END IF;
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
COMMENT ON FUNCTION @extschema@._outbox_check() IS
    'Internal. Rejects a row whose columns contradict its state or part secrets from their token, and a change that a sender may not make, with an error that does not quote it. Removes the secrets from a row that reaches a final state, and sets its times.';

-- One condition each, because each statement compiles it again, as it would each CHECK constraint. AFTER, because any
-- BEFORE UPDATE row trigger makes each update lock its row first, even if WHEN is false.
CREATE TRIGGER outbox_check
    AFTER INSERT ON @extschema@.outbox
    FOR EACH ROW
    WHEN (
        (NEW.state < 'sent') <> (NEW.ended_at IS NULL)
        OR (NEW.state = 'claimed') = (NEW.claimed_until IS NULL)
        OR NEW.claimed_until IS NOT NULL AND (NEW.claimed_by IS NULL OR NEW.claimed_at IS NULL)
        OR NEW.secrets IS NOT NULL AND (NEW.ended_at IS NOT NULL OR NEW.token_id IS NULL)
        OR NEW.last_error IS NULL AND NEW.state = 'error'
        OR least(NEW.failed_attempts, NEW.ambiguous_attempts) < 0
        OR greatest(NEW.failed_attempts, NEW.ambiguous_attempts) > 2000000000
        OR NEW.max_attempts <= 0
        OR octet_length(NEW.last_error) > 16384
        OR greatest(octet_length(NEW.claimed_by), octet_length(NEW.provider_id)) > 1024
    )
    EXECUTE FUNCTION @extschema@._outbox_check();

CREATE TRIGGER outbox_check_update
    AFTER UPDATE ON @extschema@.outbox
    FOR EACH ROW
    WHEN (
        (NEW.state < 'sent') <> (NEW.ended_at IS NULL)
        OR (NEW.state = 'claimed') = (NEW.claimed_until IS NULL)
        OR NEW.claimed_until IS NOT NULL AND (NEW.claimed_by IS NULL OR NEW.claimed_at IS NULL)
        OR NEW.secrets IS NOT NULL AND (NEW.ended_at IS NOT NULL OR (NEW.token_id = OLD.token_id) IS NOT TRUE)
        OR NEW.last_error IS NULL AND NEW.state = 'error'
        OR least(NEW.failed_attempts, NEW.ambiguous_attempts) < 0
        -- A further attempt is always counted.
        OR greatest(NEW.failed_attempts, NEW.ambiguous_attempts) > 1000000
            AND greatest(NEW.failed_attempts - OLD.failed_attempts, NEW.ambiguous_attempts - OLD.ambiguous_attempts) > 1
        OR NEW.max_attempts <= 0
        OR octet_length(NEW.last_error) > 16384
        OR greatest(octet_length(NEW.claimed_by), octet_length(NEW.provider_id)) > 1024
        -- A sender may update these columns, but only to remove secrets and to end mail. Who may delete a mail may do more.
        OR (
            NEW.secrets IS NOT NULL AND NEW.secrets IS DISTINCT FROM OLD.secrets
            OR OLD.ended_at IS NOT NULL AND NEW.ended_at IS NULL
            OR NEW.ended_at IS DISTINCT FROM OLD.ended_at
                -- A settlement takes its time before it may have to wait for a lock.
                AND (NEW.ended_at < statement_timestamp() - interval '5 minutes' OR NEW.ended_at > clock_timestamp() + interval '5 minutes')
            OR NOT isfinite(NEW.claimed_at)
            OR NEW.claimed_until IS DISTINCT FROM OLD.claimed_until
                AND (NEW.claimed_until = '-infinity' OR NEW.claimed_until > now() + interval '400 days')
            OR NEW.send_at IS DISTINCT FROM OLD.send_at
                AND (NEW.send_at = '-infinity' OR NEW.send_at > now() + interval '400 days')
        )
        AND NOT has_table_privilege('@extschema@.outbox'::regclass, 'DELETE')
    )
    EXECUTE FUNCTION @extschema@._outbox_check();
-- Also in an apply worker, and with session_replication_role = replica, as constraints.
ALTER TABLE @extschema@.outbox ENABLE ALWAYS TRIGGER outbox_check;
ALTER TABLE @extschema@.outbox ENABLE ALWAYS TRIGGER outbox_check_update;
