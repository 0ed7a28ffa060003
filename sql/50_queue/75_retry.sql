-- Retrying: mail that ended as error, or was suppressed, is scheduled again.
--
-- People and programs of mailroom_support, mailroom_sender's callers do not. Invariants: failed_attempts never
-- decreases; token mail is signed again inside the UPDATE that stores it, and only while its token is open (I7).

CREATE FUNCTION @extschema@._retry(ids bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    retried integer;
BEGIN
    -- failed_attempts never decreases, because it tells one claim from another; max_attempts is raised instead.
    UPDATE @extschema@.outbox o
    SET state = 'scheduled',
        send_at = clock_timestamp(),
        max_attempts = CASE
            WHEN o.failed_attempts < o.max_attempts THEN o.max_attempts
            ELSE o.failed_attempts + least(o.max_attempts, 1000)
        END,
        claimed_by = NULL,
        claimed_at = NULL,
        updated_at = clock_timestamp(),
        ended_at = NULL
    WHERE o.id = ANY (ARRAY(
        SELECT e.id
        FROM @extschema@.outbox e
        WHERE e.id = ANY (_retry.ids)
          -- As text, since e.state = 'error' could be answered by a scan of outbox_failed as well.
          AND e.state::text IN ('error', 'suppressed')
        FOR NO KEY UPDATE SKIP LOCKED
    ))
      AND o.token_id IS NULL
      AND (o.expires_at > clock_timestamp()) IS NOT FALSE;
    GET DIAGNOSTICS retried = ROW_COUNT;
    IF retried > 0 THEN
        PERFORM @extschema@._mail_due(now(), false, false);
        -- Clients may deliver it.
        PERFORM @extschema@._search_at_commit();
    END IF;
    RETURN retried;
END;
$$;
COMMENT ON FUNCTION @extschema@._retry(bigint[]) IS
    'Internal. Returns these rows from error or suppressed to scheduled, due now, except token mail; returns how many there were.';

-- Long because one query names all that keeps a token from being sent again.
CREATE FUNCTION @extschema@._retry_tokens(ids bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
AS $$
<<local>>
DECLARE
    -- As long as its token is locked, no request puts the token into pending: a collector would wait for this row.
    locked CONSTANT bigint[] := ARRAY(
        SELECT t.id
        FROM @extschema@.tokens t
        WHERE t.id = ANY (ARRAY(SELECT o.token_id FROM @extschema@.outbox o WHERE o.id = ANY (_retry_tokens.ids) AND o.token_id IS NOT NULL))
        FOR NO KEY UPDATE SKIP LOCKED
    );
    retried integer;
BEGIN
    -- Signed in the statement that stores it (I7). A token that is pending or in another live mail is skipped.
    UPDATE @extschema@.outbox o
    SET state = 'scheduled',
        secrets = @extschema@._secrets(v.action::text, v.secret, v.code),
        send_at = clock_timestamp(),
        max_attempts = CASE
            WHEN o.failed_attempts < o.max_attempts THEN o.max_attempts
            ELSE o.failed_attempts + least(o.max_attempts, 1000)
        END,
        claimed_by = NULL,
        claimed_at = NULL,
        updated_at = clock_timestamp(),
        ended_at = NULL
    FROM @extschema@._token_verdicts v
    WHERE o.id = ANY (_retry_tokens.ids)
      AND o.state::text IN ('error', 'suppressed')
      AND o.token_id = ANY (local.locked)
      AND v.token_id = o.token_id
      AND v.eligible
      AND NOT v.locked
      AND NOT EXISTS (SELECT FROM @extschema@.pending p WHERE p.lane IN (0, 1) AND p.token_id = o.token_id OFFSET 0)
      AND NOT EXISTS (
          SELECT
          FROM @extschema@.outbox l
          WHERE l.token_id = o.token_id
            AND l.state IN ('scheduled', 'claimed')
      )
      AND NOT EXISTS (
          SELECT
          FROM @extschema@.outbox l
          WHERE l.token_id = o.token_id
            AND l.id <> o.id
            AND l.id = ANY (_retry_tokens.ids)
            AND l.id > o.id
      );
    GET DIAGNOSTICS retried = ROW_COUNT;
    IF retried > 0 THEN
        PERFORM @extschema@._mail_due(now(), false, false);
        -- Clients may deliver it.
        PERFORM @extschema@._search_at_commit();
    END IF;
    RETURN retried;
END;
$$;
COMMENT ON FUNCTION @extschema@._retry_tokens(bigint[]) IS
    'Internal. Signs the token mail among these again if its token is open, and returns it from error or suppressed to scheduled; returns how many there were.';

CREATE FUNCTION @extschema@.mailroom_retry(id bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    violated text;
    taken record;
BEGIN
    IF EXISTS (
        SELECT
        FROM @extschema@.outbox o
        WHERE o.id = mailroom_retry.id
          AND o.state::text IN ('error', 'suppressed')
          AND o.token_id IS NOT NULL
    ) THEN
        IF NOT has_function_privilege('@extschema@._retry_tokens(bigint[])', 'EXECUTE') THEN
            RAISE insufficient_privilege USING
                MESSAGE = 'permission denied to sign token mail',
                DETAIL = 'The link was removed when the mail ended, and only a new signature can replace it.',
                HINT = 'Ask a member of mailroom_admin, or send a new link by mailroom_request_activation or mailroom_request_recovery.';
        END IF;
        IF @extschema@._retry_tokens(ARRAY[id]) = 0 THEN
            RAISE object_not_in_prerequisite_state USING
                MESSAGE = 'token mail cannot be retried',
                DETAIL = 'The token has ended or was locked by wrong codes, is in another mail, is about to be mailed again, or is in use by another transaction.',
                HINT = 'Send a new link by mailroom_request_activation or mailroom_request_recovery.';
        END IF;
    ELSIF @extschema@._retry(ARRAY[id]) = 0 THEN
        RETURN false;
    END IF;
    INSERT INTO @extschema@._new_actions (action, outbox_id) VALUES ('retried', mailroom_retry.id);
    RETURN true;
EXCEPTION
    WHEN unique_violation THEN
        GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME;
        IF violated <> 'outbox_live_item_key' THEN
            RAISE;
        END IF;
        -- A mail that another session scheduled meanwhile may not be visible yet.
        SELECT o.item_key, l.id AS holder
        INTO taken
        FROM @extschema@.outbox o
        LEFT JOIN @extschema@.outbox l ON l.item_key = o.item_key AND l.enqueued_by = o.enqueued_by AND l.state IN ('scheduled', 'claimed')
        WHERE o.id = mailroom_retry.id;
        RAISE unique_violation USING
            MESSAGE = format('item_key "%s" is taken', taken.item_key),
            DETAIL = coalesce('Mail ' || taken.holder, 'Another mail') || ' has it and is still to be sent.',
            HINT = format('Cancel %s first, or wait until it has been sent.', coalesce('mail ' || taken.holder, 'that mail'));
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_retry(bigint) IS
    'Schedules a mail that ended as error or suppressed again, due now; token mail is signed again. Returns false if it is in another state, has expired, or is locked by another transaction; token mail raises an error instead.';

-- Long because it asks for all conditions in one query.
CREATE FUNCTION @extschema@._retryable(
    kind text,
    transport text,
    outcome @extschema@.attempt_outcome,
    response_code integer,
    since timestamptz,
    batch_limit integer
)
    RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    RETURN ARRAY(
        SELECT o.id
        FROM @extschema@.outbox o
        WHERE o.state = 'error'
          AND (o.expires_at > clock_timestamp()) IS NOT FALSE
          AND (_retryable.kind IS NULL OR o.kind = _retryable.kind)
          AND o.ended_at >= coalesce(_retryable.since, '-infinity')
          -- Otherwise it may have been sent.
          AND (
              coalesce(_retryable.outcome IN ('ambiguous', 'lease_expired'), false)
              OR (
                  o.ambiguous_attempts = 0
                  AND NOT EXISTS (
                      SELECT
                      FROM @extschema@.outbox_attempts a
                      WHERE a.outbox_id = o.id
                        AND a.outcome = 'lease_expired'
                  )
              )
          )
          AND (
              num_nonnulls(_retryable.transport, _retryable.outcome, _retryable.response_code) = 0
              OR EXISTS (
                  SELECT
                  FROM @extschema@.outbox_attempts a
                  WHERE a.outbox_id = o.id
                    AND a.attempt = o.failed_attempts
                    AND (_retryable.transport IS NULL OR a.transport = _retryable.transport)
                    AND (_retryable.outcome IS NULL OR a.outcome = _retryable.outcome)
                    AND (_retryable.response_code IS NULL OR a.response_code = _retryable.response_code)
              )
          )
          AND (
              o.item_key IS NULL
              OR NOT (
                  EXISTS (
                      SELECT
                      FROM @extschema@.outbox l
                      WHERE l.item_key = o.item_key
                        AND l.enqueued_by = o.enqueued_by
                        AND l.state IN ('scheduled', 'claimed')
                  )
                  OR EXISTS (
                      SELECT
                      FROM @extschema@.outbox l
                      WHERE l.item_key = o.item_key
                        AND l.enqueued_by = o.enqueued_by
                        -- Token mail has no item_key.
                        AND l.token_id IS NULL
                        AND l.state = 'error'
                        AND l.id > o.id
                  )
              )
          )
          AND (
              o.token_id IS NULL
              OR (
                  has_function_privilege('@extschema@._retry_tokens(bigint[])', 'EXECUTE')
                  AND EXISTS (SELECT FROM @extschema@._token_ends v WHERE v.token_id = o.token_id AND v.eligible AND NOT v.locked)
                  AND NOT EXISTS (SELECT FROM @extschema@.pending p WHERE p.lane IN (0, 1) AND p.token_id = o.token_id OFFSET 0)
                  AND NOT EXISTS (
                      SELECT
                      FROM @extschema@.outbox l
                      WHERE l.token_id = o.token_id
                        AND l.state IN ('scheduled', 'claimed')
                  )
                  AND NOT EXISTS (
                      SELECT
                      FROM @extschema@.outbox l
                      WHERE l.token_id = o.token_id
                        AND l.state = 'error'
                        AND l.id > o.id
                  )
              )
          )
        ORDER BY o.ended_at
        LIMIT _retryable.batch_limit
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._retryable(text, text, @extschema@.attempt_outcome, integer, timestamptz, integer) IS
    'Internal. The mails that mailroom_retry_failed would schedule again with these arguments, for a count before.';

-- Long because a key that another session takes meanwhile has each mail tried by itself.
CREATE FUNCTION @extschema@.mailroom_retry_failed(
    kind text DEFAULT NULL,
    transport text DEFAULT NULL,
    outcome @extschema@.attempt_outcome DEFAULT NULL,
    response_code integer DEFAULT NULL,
    since timestamptz DEFAULT NULL,
    batch_limit integer DEFAULT 1000
)
    RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    ids bigint[];
    one bigint;
    retried integer := 0;
    violated text;
BEGIN
    IF num_nonnulls(kind, transport, outcome, response_code, since) = 0 THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'mailroom_retry_failed needs a condition',
            DETAIL = 'Without a condition it would retry all mail that has ever failed.',
            HINT = 'Pass kind, transport, outcome, response_code or since.';
    END IF;
    IF (batch_limit < 1) IS NOT FALSE THEN
        PERFORM @extschema@._refuse_batch_limit(batch_limit, 'Leave it out for 1000.'::text);
    END IF;
    ids := @extschema@._retryable(kind, transport, outcome, response_code, since, batch_limit);
    -- For an empty array, the planner accepts any partial index, and scans all of it.
    IF ids = '{}' THEN
        RETURN 0;
    END IF;
    BEGIN
        retried := @extschema@._retry(ids);
    EXCEPTION
        WHEN unique_violation THEN
            GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME;
            IF violated <> 'outbox_live_item_key' THEN
                RAISE;
            END IF;
            -- Another session has just scheduled mail with one of the keys.
            FOREACH one IN ARRAY ids LOOP
                BEGIN
                    retried := retried + @extschema@._retry(ARRAY[one]);
                EXCEPTION
                    WHEN unique_violation THEN
                        NULL;
                END;
            END LOOP;
    END;
    -- A statement of its own, since those who cannot sign may not call it.
    IF EXISTS (SELECT FROM @extschema@.outbox o WHERE o.id = ANY (local.ids) AND o.token_id IS NOT NULL) THEN
        retried := retried + @extschema@._retry_tokens(ids);
    END IF;
    IF retried > 0 THEN
        INSERT INTO @extschema@._new_actions (action, detail)
        VALUES (
            'retried',
            jsonb_strip_nulls(jsonb_build_object(
                'kind', mailroom_retry_failed.kind, 'transport', mailroom_retry_failed.transport, 'outcome', mailroom_retry_failed.outcome,
                'response_code', mailroom_retry_failed.response_code, 'since', mailroom_retry_failed.since, 'mails', local.retried
            ))
        );
    END IF;
    RETURN retried;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_retry_failed(text, text, @extschema@.attempt_outcome, integer, timestamptz, integer) IS
    'Schedules up to batch_limit mails that ended as error again, those that ended first; at least one condition is required. Mail that may have been sent is left out unless outcome is ambiguous or lease_expired.';
