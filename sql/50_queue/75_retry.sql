-- Retrying: mail that ended as error is scheduled again.
--
-- People and programs of mailroom_support, mailroom_sender's callers do not. Invariants: failed_attempts never decreases;
-- token mail is signed again inside the UPDATE that stores it, and only while its token is open (I7).

CREATE FUNCTION @extschema@._retry(ids bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    retried integer;
BEGIN
    -- The number of failed attempts never goes back, being what tells one claim from another; there are as many again
    -- instead.
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
    WHERE o.id = ANY (ARRAY(SELECT e.id FROM @extschema@.outbox e WHERE e.id = ANY (ids) AND e.state = 'error' FOR UPDATE SKIP LOCKED))
      AND o.token_id IS NULL
      AND (o.expires_at > clock_timestamp()) IS NOT FALSE;
    GET DIAGNOSTICS retried = ROW_COUNT;
    IF retried > 0 THEN
        PERFORM @extschema@._mail_due(now());
    END IF;
    RETURN retried;
END;
$$;
COMMENT ON FUNCTION @extschema@._retry(bigint[]) IS
    'Internal. Puts these rows back from error to scheduled, due now, but for token mail; returns how many could be.';

CREATE FUNCTION @extschema@._retry_tokens(ids bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
AS $$
DECLARE
    retried integer;
BEGIN
    -- Signed in the statement that stores it (I7). A token that is queued or in another mail is on its way already.
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
    WHERE o.id = ANY (ids)
      AND o.state = 'error'
      AND v.token_id = o.token_id
      AND v.eligible
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
            AND l.id = ANY (ids)
            AND l.id > o.id
      );
    GET DIAGNOSTICS retried = ROW_COUNT;
    IF retried > 0 THEN
        PERFORM @extschema@._mail_due(now());
    END IF;
    RETURN retried;
END;
$$;
COMMENT ON FUNCTION @extschema@._retry_tokens(bigint[]) IS
    'Internal. Signs the token mail among these anew, as far as its token is open, and puts it back from error to scheduled; returns how many could be.';

CREATE FUNCTION @extschema@.mailroom_retry(id bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (
        SELECT
        FROM @extschema@.outbox o
        WHERE o.id = mailroom_retry.id
          AND o.state = 'error'
          AND o.token_id IS NOT NULL
    ) THEN
        IF NOT has_function_privilege('@extschema@._secrets(text, bytea, text)', 'EXECUTE') THEN
            RAISE insufficient_privilege USING
                MESSAGE = 'permission denied to sign token mail anew',
                DETAIL = 'Its link ended with it.',
                HINT = 'Ask a member of mailroom_admin, or have a new link sent: mailroom_request_activation, mailroom_request_recovery.';
        END IF;
        IF @extschema@._retry_tokens(ARRAY[id]) = 0 THEN
            RAISE object_not_in_prerequisite_state USING
                MESSAGE = 'token mail cannot be tried again',
                DETAIL = 'Its token has ended, or is in another mail.',
                HINT = 'Have a new link sent: mailroom_request_activation, mailroom_request_recovery.';
        END IF;
        RETURN true;
    END IF;
    RETURN @extschema@._retry(ARRAY[id]) = 1;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_retry(bigint) IS
    'Puts a mail that ended as error back to be sent now, with max_attempts more attempts if it had used up its own; token mail is signed anew. False when it is not in state error or has expired. Errors: 55000 for mail of a token that has ended, 42501 for token mail unless the caller may sign, 23505 when another live row has its item_key.';

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
AS $$
DECLARE
    ids bigint[];
BEGIN
    IF num_nonnulls(kind, transport, outcome, response_code, since) = 0 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'mailroom_retry_failed needs a condition',
            DETAIL = 'Without one it would send all that ever failed, for whatever reason.',
            HINT = 'Pass kind, transport, outcome, response_code or since.';
    END IF;
    IF (batch_limit < 1) IS NOT FALSE THEN
        PERFORM @extschema@._refuse_batch_limit(batch_limit, 'Leave it out for 1000.'::text);
    END IF;
    ids := ARRAY(
        SELECT o.id
        FROM @extschema@.outbox o
        WHERE o.state = 'error'
          AND (o.expires_at > clock_timestamp()) IS NOT FALSE
          AND (mailroom_retry_failed.kind IS NULL OR o.kind = mailroom_retry_failed.kind)
          AND o.ended_at >= coalesce(since, '-infinity')
          -- It may have gone out.
          AND (o.ambiguous_attempts = 0 OR coalesce(mailroom_retry_failed.outcome = 'ambiguous', false))
          AND (
              num_nonnulls(mailroom_retry_failed.transport, mailroom_retry_failed.outcome, mailroom_retry_failed.response_code) = 0
              OR EXISTS (
                  SELECT
                  FROM @extschema@.outbox_attempts a
                  WHERE a.outbox_id = o.id
                    AND a.attempt = o.failed_attempts
                    AND (mailroom_retry_failed.transport IS NULL OR a.transport = mailroom_retry_failed.transport)
                    AND (mailroom_retry_failed.outcome IS NULL OR a.outcome = mailroom_retry_failed.outcome)
                    AND (mailroom_retry_failed.response_code IS NULL OR a.response_code = mailroom_retry_failed.response_code)
              )
          )
          AND (
              o.item_key IS NULL
              OR NOT (
                  EXISTS (
                      SELECT
                      FROM @extschema@.outbox l
                      WHERE l.item_key = o.item_key
                        AND l.state IN ('scheduled', 'claimed')
                  )
                  OR EXISTS (
                      SELECT
                      FROM @extschema@.outbox l
                      WHERE l.item_key = o.item_key
                        -- Mail of tokens has no item_key.
                        AND l.token_id IS NULL
                        AND l.state = 'error'
                        AND l.id > o.id
                  )
              )
          )
          AND (
              o.token_id IS NULL
              OR (
                  has_function_privilege('@extschema@._secrets(text, bytea, text)', 'EXECUTE')
                  AND EXISTS (SELECT FROM @extschema@._token_ends v WHERE v.token_id = o.token_id AND v.eligible)
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
        LIMIT batch_limit
    );
    RETURN @extschema@._retry(ids)
        + CASE
            WHEN EXISTS (SELECT FROM @extschema@.outbox o WHERE o.id = ANY (ids) AND o.token_id IS NOT NULL)
            THEN @extschema@._retry_tokens(ids)
            ELSE 0
        END;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_retry_failed(text, text, @extschema@.attempt_outcome, integer, timestamptz, integer) IS
    'Puts up to batch_limit mails that ended as error back to be sent now, those that ended first: of one kind, whose last attempt went by this transport and had this outcome and this response_code of the provider''s, that ended since then; NULL for any, but one condition there must be. Leaves out what has expired, mail of tokens that have ended (all token mail, unless the caller may sign), what has a newer row of the same item_key or token, and, unless asked for the outcome ambiguous, what may have gone out. Returns how many. Errors: 22023 without a condition or for a batch_limit below 1.';
