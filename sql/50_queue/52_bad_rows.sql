-- Bad rows: a row that cannot be changed holds up no other (I8).
--
-- A constraint or a trigger of the application may refuse the change that a claim is, the end of a mail or of a lease, or the
-- move to a fallback. The statement that changes a batch fails then, and with it the transaction. So the session then changes
-- each row in a subtransaction of its own, and passes by those that fail, for a minute after the last failure
-- (src/outbox/bad_rows.rs). They stay as they are. This session does not look at them again for a minute, or until it has found
-- nothing else of their transport, so that ten thousand of them hide no other.

CREATE FUNCTION @extschema@._begin_changes() RETURNS boolean
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_begin_changes_wrapper';
COMMENT ON FUNCTION @extschema@._begin_changes() IS
    'Internal. Begins to change rows of the outbox; returns whether to change them one at a time, because this session failed to in the last minute.';

CREATE FUNCTION @extschema@._end_changes() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_end_changes_wrapper';
COMMENT ON FUNCTION @extschema@._end_changes() IS 'Internal. Ends what _begin_changes began: the rows were changed.';

CREATE FUNCTION @extschema@._note_bad_row(id bigint, transport text, failed_with text) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_note_bad_row_wrapper';
COMMENT ON FUNCTION @extschema@._note_bad_row(bigint, text, text) IS
    'Internal. Records that a row of the outbox, of this transport, could not be changed, with this SQLSTATE; warns at most once a minute.';

CREATE FUNCTION @extschema@._bad_rows(transport text) RETURNS bigint[]
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_bad_rows_wrapper';
COMMENT ON FUNCTION @extschema@._bad_rows(text) IS
    'Internal. outbox.id of the rows of this transport that this session could not change in the last minute.';

CREATE FUNCTION @extschema@._forget_bad_rows(transport text) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_forget_bad_rows_wrapper';
COMMENT ON FUNCTION @extschema@._forget_bad_rows(text) IS
    'Internal. Has this session try the rows of this transport again that it could not change.';

CREATE FUNCTION @extschema@._claim_one_by_one(ctids tid[], claimant text, moment timestamptz, term interval, row_limit integer)
    RETURNS SETOF @extschema@.claimed_mail
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    one tid;
    mail @extschema@.claimed_mail;
    claimed integer := 0;
BEGIN
    FOREACH one IN ARRAY ARRAY(
        SELECT o.ctid FROM @extschema@.outbox o WHERE o.ctid = ANY (_claim_one_by_one.ctids) ORDER BY o.priority, o.send_at, o.id
    ) LOOP
        EXIT WHEN claimed = row_limit;
        <<change>>
        BEGIN
            mail := NULL;
            SELECT c.* INTO mail FROM @extschema@._claim_rows(ARRAY[one], claimant, moment, term) c;
        EXCEPTION
            WHEN OTHERS THEN
                IF NOT @extschema@._may_pass_by(SQLSTATE) THEN
                    RAISE;
                END IF;
                mail := NULL;
                PERFORM @extschema@._note_bad_row(o.id, o.transport, change.sqlstate) FROM @extschema@.outbox o WHERE o.ctid = local.one;
        END;
        -- Not in the block: what a block has returned remains if it fails.
        IF mail.id IS NOT NULL THEN
            RETURN NEXT mail;
            claimed := claimed + 1;
        END IF;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._claim_one_by_one(tid[], text, timestamptz, interval, integer) IS
    'Internal. As _claim_rows, in the order of claims, but passes by rows that cannot be changed, and claims row_limit at most (NULL: all).';

CREATE FUNCTION @extschema@._end_useless_one_by_one(doomed tid[], moment timestamptz) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    one tid;
    kept boolean := false;
BEGIN
    FOREACH one IN ARRAY doomed LOOP
        <<change>>
        BEGIN
            PERFORM @extschema@._end_useless(ARRAY[one], moment);
        EXCEPTION
            WHEN OTHERS THEN
                IF NOT @extschema@._may_pass_by(SQLSTATE) THEN
                    RAISE;
                END IF;
                kept := true;
                PERFORM @extschema@._note_bad_row(o.id, o.transport, change.sqlstate) FROM @extschema@.outbox o WHERE o.ctid = local.one;
        END;
    END LOOP;
    IF kept THEN
        PERFORM @extschema@._announce_due(moment + interval '1 s');
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._end_useless_one_by_one(tid[], timestamptz) IS
    'Internal. As _end_useless, but passes by rows that cannot be changed.';
