-- Settling failures: the claimant of a mail says that an attempt failed.
--
-- claimed -> error or expired, or back to scheduled for another attempt after a back-off. The rules of 70_settle.sql
-- hold. Invariants: every failed attempt is a row of outbox_attempts; a permanent failure, or the last of max_attempts,
-- ends the mail, unless a fallback only could not carry it; so do events that tell what became of an ambiguous one; error texts are cleaned of addresses, tokens and codes before a statement sees them (I7).

-- Exponential back-off with full jitter: uniform from 0 rather than around a mean, because mails that failed together,
-- as in an outage of a provider, would otherwise return together.
CREATE FUNCTION @extschema@._backoff(attempts integer, attempts_left integer, time_left interval) RETURNS double precision
    LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN random() * least(
    CASE
        -- The attempts that are left must last until it expires: on average, each wait is half as long as this.
        WHEN time_left <= interval '1 hour'
            THEN greatest(60, CASE WHEN attempts_left IS NOT NULL THEN 2 * extract(epoch FROM time_left) / greatest(attempts_left, 1) END)::double precision
        ELSE 3600
    END,
    2 ^ least(greatest(attempts, 1), 20)
);
COMMENT ON FUNCTION @extschema@._backoff(integer, integer, interval) IS
    'Internal. Seconds to wait after this many failed attempts of a mail with this many attempts (NULL: any number) and this time (NULL: unlimited) left: uniform between 0 and 1 s doubled with each attempt, at most an hour; in its last hour at most a minute, or what makes its attempts last.';

-- The last attempt comes shortly before the mail expires.
CREATE FUNCTION @extschema@._due_again(
    attempts integer,
    attempts_left integer,
    wait interval,
    expires_at timestamptz,
    moment timestamptz
) RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN least(
    moment + greatest(
        make_interval(secs => @extschema@._backoff(attempts, attempts_left, CASE WHEN isfinite(expires_at) THEN expires_at - moment END)),
        wait
    ),
    CASE WHEN expires_at - interval '5 s' > moment THEN expires_at - interval '5 s' ELSE expires_at END
);
COMMENT ON FUNCTION @extschema@._due_again(integer, integer, interval, timestamptz, timestamptz) IS
    'Internal. When a mail that failed at this moment is due again: after _backoff, and not before the given wait (NULL: none), but 5 s before it expires at the latest.';

-- Long because it has eleven arrays, and one statement that decides about each mail.
CREATE FUNCTION @extschema@.mailroom_mark_error_many(
    ids bigint[],
    errors text[],
    retry_after interval[] DEFAULT NULL,
    permanent boolean[] DEFAULT NULL,
    response_codes integer[] DEFAULT NULL,
    claimant text DEFAULT NULL,
    failed_attempts integer[] DEFAULT NULL,
    ambiguous boolean[] DEFAULT NULL,
    alone boolean[] DEFAULT NULL,
    batches uuid[] DEFAULT NULL,
    recipient_refused boolean[] DEFAULT NULL
)
    RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    who CONSTANT text := @extschema@._claimant(claimant);
    moment CONSTANT timestamptz := clock_timestamp();
    late integer[];
    earliest timestamptz;
    refused bigint[];
BEGIN
    -- A sender may quote the mail. What could be a token or a code is removed before any statement has it as a
    -- parameter (I7), and the text is cut to a length that bounds the work.
    FOR item IN coalesce(array_lower(errors, 1), 1) .. coalesce(array_upper(errors, 1), 0) LOOP
        errors[item] := @extschema@._mask_secrets(errors[item]);
    END LOOP;
    PERFORM @extschema@._check_parallel(
        ids, VARIADIC ARRAY[
            cardinality(errors), cardinality(retry_after), cardinality(permanent), cardinality(response_codes),
            cardinality(failed_attempts), cardinality(ambiguous), cardinality(alone), cardinality(batches),
            cardinality(recipient_refused)
        ]
    );
    -- Places are counted from 1, and the subscripts of an array may start elsewhere.
    IF 1 <> ANY (ARRAY[
        array_lower(errors, 1), array_lower(retry_after, 1), array_lower(permanent, 1), array_lower(response_codes, 1),
        array_lower(ambiguous, 1), array_lower(alone, 1), array_lower(batches, 1), array_lower(recipient_refused, 1)
    ]) THEN
        errors := errors[:];
        retry_after := retry_after[:];
        permanent := permanent[:];
        response_codes := response_codes[:];
        ambiguous := ambiguous[:];
        alone := alone[:];
        batches := batches[:];
        recipient_refused := recipient_refused[:];
    END IF;
    WITH held AS MATERIALIZED (
        SELECT h.place, min(h.item) AS item
        FROM @extschema@._lock_claimed(ids, who, failed_attempts) h
        GROUP BY h.place
    ), judged AS MATERIALIZED (
        SELECT
            h.place, h.item, o.id, o.failed_attempts + 1 AS attempt, o.claimed_at, o.transport,
            -- Mails that are sent together again are due together.
            CASE
                WHEN mailroom_mark_error_many.batches[h.item] IS NULL THEN w.again
                ELSE min(w.again) OVER (PARTITION BY mailroom_mark_error_many.batches[h.item])
            END AS again,
            coalesce(mailroom_mark_error_many.ambiguous[h.item], false) AS is_ambiguous,
            coalesce(mailroom_mark_error_many.alone[h.item], true) AS was_alone,
            coalesce(@extschema@._redact(mailroom_mark_error_many.errors[h.item], o.id), 'no reason given') AS error,
            r.returns,
            CASE
                WHEN p.next IS NOT NULL THEN p.next::text
                WHEN (mailroom_mark_error_many.permanent[h.item] OR o.failed_attempts + 1 >= o.max_attempts) AND NOT r.returns THEN 'error'
                WHEN o.expires_at <= local.moment THEN 'expired'
                ELSE 'scheduled'
            END::@extschema@.outbox_state AS next
        FROM held h
        JOIN @extschema@.outbox o ON o.ctid = h.place
        -- What a fallback cannot carry goes back to its own transport: no server has refused it.
        CROSS JOIN LATERAL (
            SELECT coalesce(
                mailroom_mark_error_many.permanent[h.item]
                    AND mailroom_mark_error_many.response_codes[h.item] IS NULL
                    AND mailroom_mark_error_many.ambiguous[h.item] IS NOT TRUE
                    AND o.fallback_from <> o.transport,
                false
            ) AS returns
        ) r
        CROSS JOIN LATERAL (
            SELECT @extschema@._due_again(
                o.failed_attempts + 1,
                o.max_attempts - o.failed_attempts - 1,
                CASE WHEN mailroom_mark_error_many.retry_after[h.item] > interval '30 days' THEN interval '30 days' ELSE mailroom_mark_error_many.retry_after[h.item] END,
                o.expires_at, local.moment
            ) AS again
            OFFSET 0
        ) w
        -- The webhook may have told before the sender gave up waiting.
        CROSS JOIN LATERAL (
            SELECT CASE
                -- A batch is repeated as a whole, which its provider recognises, so its members stay together.
                WHEN mailroom_mark_error_many.batches[h.item] IS NOT NULL THEN NULL
                WHEN mailroom_mark_error_many.ambiguous[h.item] THEN @extschema@._proven_state(o.id, o.claimed_at)
                -- An earlier attempt may have been it.
                WHEN o.failed_attempts > 0 THEN @extschema@._proven_state(o.id, NULL::timestamptz)
            END AS next
            OFFSET 0
        ) p
    ), noted AS (
        INSERT INTO @extschema@._new_attempts (
            outbox_id, attempt, outcome, started_at, ended_at, claimant, transport, response_code, error
        )
        SELECT
            j.id, j.attempt,
            CASE WHEN j.is_ambiguous THEN 'ambiguous' ELSE 'failed' END::@extschema@.attempt_outcome,
            j.claimed_at, moment, who, j.transport, response_codes[j.item], j.error
        FROM judged j
    ), settled AS (
        UPDATE @extschema@.outbox o
        SET state = j.next,
            send_at = CASE WHEN j.next = 'scheduled' THEN j.again ELSE o.send_at END,
            transport = CASE WHEN j.returns THEN o.fallback_from ELSE o.transport END,
            failed_attempts = j.attempt,
            ambiguous_attempts = o.ambiguous_attempts + j.is_ambiguous::integer,
            ambiguous_alone = o.ambiguous_alone OR (j.is_ambiguous AND j.was_alone),
            batch = CASE WHEN j.next = 'scheduled' THEN mailroom_mark_error_many.batches[j.item] END,
            last_error = CASE WHEN j.next <> 'sent' THEN j.error END,
            claimed_by = CASE WHEN j.next IN ('scheduled', 'sent') THEN NULL ELSE o.claimed_by END,
            claimed_at = CASE WHEN j.next IN ('scheduled', 'sent') THEN NULL ELSE o.claimed_at END,
            claimed_until = NULL,
            updated_at = local.moment,
            ended_at = CASE WHEN j.next = 'scheduled' THEN NULL ELSE local.moment END
        FROM judged j
        WHERE o.ctid = j.place
        RETURNING o.id, o.state, o.send_at, o.group_key
    )
    SELECT
        ARRAY(
            SELECT u.item
            FROM unnest(ids) WITH ORDINALITY u (id, item)
            WHERE NOT EXISTS (SELECT FROM settled s WHERE s.id = u.id)
        ),
        (SELECT min(CASE WHEN s.group_key IS NULL THEN s.send_at ELSE moment END) FROM settled s
            WHERE s.state = 'scheduled' OR s.group_key IS NOT NULL),
        ARRAY(
            SELECT u.id
            FROM unnest(mailroom_mark_error_many.ids, mailroom_mark_error_many.recipient_refused) u (id, refused)
            WHERE u.refused
              AND EXISTS (SELECT FROM settled s WHERE s.id = u.id AND s.state <> 'sent')
        )
    INTO late, earliest, refused;
    PERFORM @extschema@._mail_due(earliest, false, false);
    IF refused <> '{}' THEN
        PERFORM @extschema@._record_refused_mails(refused);
    END IF;
    RETURN @extschema@._record_late(ids, late, who, failed_attempts, errors, response_codes, 'failed'::text);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_mark_error_many(bigint[], text[], interval[], boolean[], integer[], text, integer[], boolean[], boolean[], uuid[], boolean[]) IS
    'Records for claimed mails that an attempt failed; each is scheduled again after a back-off, or ends as error or expired, or by events as sent; recipient_refused says that all its recipients were refused for their mailboxes, which suppresses them. Returns the ids that are settled, as mailroom_mark_sent_many.';

CREATE FUNCTION @extschema@.mailroom_mark_error(
    id bigint,
    error text,
    retry_after interval DEFAULT NULL,
    permanent boolean DEFAULT false,
    response_code integer DEFAULT NULL,
    claimant text DEFAULT NULL,
    failed_attempts integer DEFAULT NULL,
    ambiguous boolean DEFAULT false,
    alone boolean DEFAULT true,
    recipient_refused boolean DEFAULT false
)
    RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Not an SQL function, which would have the error as a parameter of a statement (I7).
    RETURN @extschema@.mailroom_mark_error_many(
        ARRAY[id], ARRAY[error], ARRAY[retry_after], ARRAY[permanent], ARRAY[response_code], claimant, ARRAY[failed_attempts],
        ARRAY[ambiguous], ARRAY[alone], NULL::uuid[], ARRAY[recipient_refused]
    ) <> '{}';
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_mark_error(bigint, text, interval, boolean, integer, text, integer, boolean, boolean, boolean) IS
    'Records for one claimed mail that an attempt failed, as mailroom_mark_error_many. Returns false if the claim was lost.';
