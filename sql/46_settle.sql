-- Settling: what became of a claimed mail, said by whoever claimed it.
--
-- claimed -> sent | error | expired, or back to scheduled for another try. Invariants: only the holder
-- settles; whoever comes after its lease was taken back changes nothing and is put on record, because its
-- mail may go out twice (I2); no settle waits for another session (I3). The number of attempts, as the claim
-- returned it, tells two claims of one claimant apart.

-- Exponential back-off with full jitter: uniform from 0 on rather than around a mean, because mails that failed together,
-- as when a provider was away, would otherwise come back together.
CREATE FUNCTION @extschema@._backoff(attempts integer) RETURNS double precision
    LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN random() * least(3600, 5 * 2 ^ (least(greatest(attempts, 1), 20) - 1));
COMMENT ON FUNCTION @extschema@._backoff(integer) IS
    'Internal. Seconds to wait after so many failed attempts: uniform between 0 and 5 s doubled with each attempt, 1 hour at most.';

CREATE FUNCTION @extschema@._held(
    ids bigint[],
    claimant text,
    tries integer[]
)
    RETURNS TABLE (place tid, item integer, claimed_until timestamptz)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    -- SKIP LOCKED: a claim that another session is about to take back is lost already.
    RETURN QUERY
    SELECT o.ctid, u.item::integer, o.claimed_until
    FROM unnest(ids) WITH ORDINALITY u (id, item)
    JOIN @extschema@.outbox o ON o.id = u.id
    WHERE o.claimed_until IS NOT NULL
      AND o.claimed_by = claimant
      AND o.attempts = coalesce(tries[u.item], o.attempts)
    FOR UPDATE OF o SKIP LOCKED;
END;
$$;
COMMENT ON FUNCTION @extschema@._held(bigint[], text, integer[]) IS
    'Internal. Locks those of the rows that the claimant holds, whether or not its lease has lapsed; returns each with its subscript in ids and the end of its lease.';

CREATE FUNCTION @extschema@._check_parallel(ids bigint[], VARIADIC cardinalities integer[]) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF cardinality(ids) <> ANY (cardinalities) THEN
        RAISE array_subscript_error USING
            MESSAGE = 'arrays must have as many elements as ids',
            DETAIL = format('There are %s ids, and arrays of %s.', cardinality(ids), array_to_string(cardinalities, ', ')),
            HINT = 'Leave an array out, or put NULLs into it.';
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._check_parallel(bigint[], integer[]) IS
    'Internal. Refuses arrays of another length than ids; NULLs pass. Errors: 2202E.';

CREATE FUNCTION @extschema@._redact(error text, addresses text[]) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    clean text := error;
    address text;
BEGIN
    FOREACH address IN ARRAY addresses LOOP
        clean := replace(clean, address, '[address]');
    END LOOP;
    RETURN left(clean, 1000);
END;
$$;
COMMENT ON FUNCTION @extschema@._redact(text, text[]) IS
    'Internal. What a sender says went wrong, as far as others may read it: without these addresses, and 1000 characters at most.';

CREATE FUNCTION @extschema@._note_late(
    ids bigint[],
    items integer[],
    claimant text,
    tries integer[],
    errors text[],
    statuses integer[],
    verb text
)
    RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    lost CONSTANT bigint[] := ARRAY(SELECT ids[u.item] FROM unnest(items) u (item) ORDER BY u.item);
BEGIN
    IF items = '{}' THEN
        RETURN ARRAY[]::bigint[];
    END IF;
    INSERT INTO @extschema@.attempts (outbox, attempt, outcome, ended_at, claimant, status, error)
    SELECT
        o.id, tries[u.item] + 1, 'late', clock_timestamp(), claimant,
        statuses[u.item],
        @extschema@._redact(errors[u.item], (o.recipients || o.cc || o.bcc)::text[])
    FROM unnest(items) u (item)
    JOIN @extschema@.outbox o ON o.id = ids[u.item];
    RAISE LOG USING
        MESSAGE = format('mailroom: "%s" settled %s mails as %s that it does not hold', claimant, cardinality(lost), verb),
        DETAIL = format('The first has id %s. They may go out twice.', lost[1]);
    RETURN lost;
END;
$$;
COMMENT ON FUNCTION @extschema@._note_late(bigint[], integer[], text, integer[], text[], integer[], text) IS
    'Internal. Records and logs settles that came too late, given by their subscripts in ids; returns their ids.';

CREATE FUNCTION @extschema@.mailroom_mark_sent(
    ids bigint[],
    provider_ids text[] DEFAULT NULL,
    claimant text DEFAULT NULL,
    attempts integer[] DEFAULT NULL
)
    RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    who CONSTANT text := @extschema@._claimant(claimant);
    moment CONSTANT timestamptz := clock_timestamp();
    settled bigint;
    grouped boolean;
    late integer[];
BEGIN
    PERFORM @extschema@._check_parallel(ids, VARIADIC ARRAY[cardinality(provider_ids), cardinality(attempts)]);
    -- Nobody else touches a claim before its lease has ended, so these wait for nobody. A row with a lease is
    -- claimed; its state is not asked for, lest a partial index look better than the primary key.
    -- Most batches are all alike but for the ids, which is cheaper by far.
    IF coalesce(num_nonnulls(VARIADIC provider_ids), 0) = 0 AND (attempts IS NULL OR attempts[1] = ALL (attempts)) THEN
        WITH done AS (
            UPDATE @extschema@.outbox o
            SET state = 'sent',
                secrets = NULL,
                claimed_until = NULL,
                updated_at = moment,
                ended_at = moment
            WHERE o.id = ANY (ids)
              AND o.claimed_by = who
              AND o.claimed_until > moment
              AND o.attempts = coalesce(mailroom_mark_sent.attempts[1], o.attempts)
            RETURNING o.group_key
        )
        SELECT count(*), count(d.group_key) > 0 INTO settled, grouped FROM done d;
    ELSE
        WITH done AS (
            UPDATE @extschema@.outbox o
            SET state = 'sent',
                secrets = NULL,
                provider_id = u.provider_id,
                claimed_until = NULL,
                updated_at = moment,
                ended_at = moment
            -- A subscript into an array of texts goes through all that is before it.
            FROM unnest(ids, provider_ids, mailroom_mark_sent.attempts) u (id, provider_id, tries)
            WHERE o.id = u.id
              AND o.claimed_by = who
              AND o.claimed_until > moment
              AND o.attempts = coalesce(u.tries, o.attempts)
            RETURNING o.group_key
        )
        SELECT count(*), count(d.group_key) > 0 INTO settled, grouped FROM done d;
    END IF;
    IF grouped THEN
        -- The rest of the group can be claimed now.
        PERFORM @extschema@._mail_due(moment);
    END IF;
    IF settled = cardinality(ids) THEN
        RETURN ARRAY[]::bigint[];
    END IF;
    -- The lease has ended, and nobody has taken the claim back yet: then nobody else will send it.
    WITH held AS MATERIALIZED (
        SELECT h.place, h.item FROM @extschema@._held(ids, who, attempts) h
    )
    UPDATE @extschema@.outbox o
    SET state = 'sent',
        secrets = NULL,
        provider_id = provider_ids[h.item],
        claimed_until = NULL,
        updated_at = moment,
        ended_at = moment
    FROM held h
    WHERE o.ctid = h.place;
    -- Saying so again is no news: the answer to the first time may have been lost.
    late := ARRAY(
        SELECT u.item
        FROM unnest(ids) WITH ORDINALITY u (id, item)
        WHERE NOT EXISTS (
            SELECT
            FROM @extschema@.outbox o
            WHERE o.id = u.id
              AND o.state = 'sent'
              AND o.claimed_by = who
              AND o.attempts = coalesce(mailroom_mark_sent.attempts[u.item], o.attempts)
        )
    );
    RETURN @extschema@._note_late(ids, late, who, attempts, NULL::text[], NULL::integer[], 'sent'::text);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_mark_sent(bigint[], text[], text, integer[]) IS
    'Ends claimed mails as sent, with the provider''s ids for them. claimant: as given to mailroom_claim. attempts: outbox.attempts as the claim returned it, for claimants whose name outlives a lease; NULL to leave it out. Returns the ids whose claim was lost, {} when all went well: those may go out twice; each is put on record in attempts and logged, and nothing else changes. Saying it twice does no harm. Errors: 2202E when the arrays differ in length.';

CREATE FUNCTION @extschema@.mailroom_mark_sent(
    id bigint,
    provider_id text DEFAULT NULL,
    claimant text DEFAULT NULL,
    attempt integer DEFAULT NULL
)
    RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@.mailroom_mark_sent(ARRAY[id], ARRAY[provider_id], claimant, ARRAY[attempt]) = '{}' $$;
COMMENT ON FUNCTION @extschema@.mailroom_mark_sent(bigint, text, text, integer) IS
    'Ends one claimed mail as sent; false when the claim was lost. As the form for arrays.';

CREATE FUNCTION @extschema@.mailroom_mark_error(
    ids bigint[],
    errors text[],
    retry_after interval[] DEFAULT NULL,
    permanent boolean[] DEFAULT NULL,
    statuses integer[] DEFAULT NULL,
    claimant text DEFAULT NULL,
    attempts integer[] DEFAULT NULL,
    ambiguous boolean[] DEFAULT NULL,
    alone boolean[] DEFAULT NULL
)
    RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    who CONSTANT text := @extschema@._claimant(claimant);
    moment CONSTANT timestamptz := clock_timestamp();
    late integer[];
    earliest timestamptz;
BEGIN
    -- A sender may quote the mail. What could be a token or a code goes before any statement has it as a parameter (I7),
    -- and what nobody reads to the end before anything that takes time is done with it.
    FOR item IN coalesce(array_lower(errors, 1), 1) .. coalesce(array_upper(errors, 1), 0) LOOP
        errors[item] := regexp_replace(
            regexp_replace(left(errors[item], 4000), '[A-Za-z0-9_-]{86}', '[token]', 'g'), E'\\m[0-9]{5}\\M', '[code]', 'g'
        );
    END LOOP;
    PERFORM @extschema@._check_parallel(
        ids, VARIADIC ARRAY[
            cardinality(errors), cardinality(retry_after), cardinality(permanent), cardinality(statuses),
            cardinality(attempts), cardinality(ambiguous), cardinality(alone)
        ]
    );
    WITH held AS MATERIALIZED (
        SELECT h.place, min(h.item) AS item
        FROM @extschema@._held(ids, who, attempts) h
        GROUP BY h.place
    ), judged AS MATERIALIZED (
        SELECT
            h.place, h.item, o.id, o.attempts + 1 AS attempt, o.claimed_at, w.again,
            coalesce(ambiguous[h.item], false) AS is_ambiguous,
            coalesce(alone[h.item], true) AS was_alone,
            coalesce(@extschema@._redact(errors[h.item], (o.recipients || o.cc || o.bcc)::text[]), 'no reason given') AS error,
            CASE
                WHEN permanent[h.item] OR o.attempts + 1 >= o.max_attempts THEN 'error'
                WHEN w.again >= o.expires_at THEN 'expired'
                ELSE 'scheduled'
            END::@extschema@.outbox_state AS next
        FROM held h
        JOIN @extschema@.outbox o ON o.ctid = h.place
        CROSS JOIN LATERAL (
            SELECT moment + greatest(
                make_interval(secs => @extschema@._backoff(o.attempts + 1)), CASE WHEN retry_after[h.item] > interval '30 days' THEN interval '30 days' ELSE retry_after[h.item] END
            ) AS again
            OFFSET 0
        ) w
    ), noted AS (
        INSERT INTO @extschema@.attempts (outbox, attempt, outcome, started_at, ended_at, claimant, status, error)
        SELECT
            j.id, j.attempt,
            CASE WHEN j.is_ambiguous THEN 'ambiguous' ELSE 'failed' END::@extschema@.attempt_outcome,
            j.claimed_at, moment, who, statuses[j.item], j.error
        FROM judged j
    ), settled AS (
        UPDATE @extschema@.outbox o
        SET state = j.next,
            send_at = CASE WHEN j.next = 'scheduled' THEN j.again ELSE o.send_at END,
            attempts = j.attempt,
            ambiguous_attempts = o.ambiguous_attempts + j.is_ambiguous::integer,
            ambiguous_alone = o.ambiguous_alone OR (j.is_ambiguous AND j.was_alone),
            last_error = j.error,
            claimed_by = CASE WHEN j.next = 'scheduled' THEN NULL ELSE o.claimed_by END,
            claimed_at = CASE WHEN j.next = 'scheduled' THEN NULL ELSE o.claimed_at END,
            claimed_until = NULL,
            updated_at = moment,
            ended_at = CASE WHEN j.next = 'scheduled' THEN NULL ELSE moment END
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
            WHERE s.state = 'scheduled' OR s.group_key IS NOT NULL)
    INTO late, earliest;
    PERFORM @extschema@._mail_due(earliest);
    RETURN @extschema@._note_late(ids, late, who, attempts, errors, statuses, 'failed'::text);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_mark_error(bigint[], text[], interval[], boolean[], integer[], text, integer[], boolean[], boolean[]) IS
    'Records for claimed mails that an attempt to send them failed. Each is tried again after a random time of up to 5 s, doubled with each attempt up to 1 hour, and not before retry_after, of which 30 days count; it ends as error when permanent or when it was the last of max_attempts, and as expired when the next try would come after expires_at. errors: for people. statuses: the provider''s answers. ambiguous: it is not known whether the provider took the mail; alone: it had the request to itself (default), and not with others. claimant, attempts, result and errors as for mailroom_mark_sent.';

CREATE FUNCTION @extschema@.mailroom_mark_error(
    id bigint,
    error text,
    retry_after interval DEFAULT NULL,
    permanent boolean DEFAULT false,
    status integer DEFAULT NULL,
    claimant text DEFAULT NULL,
    attempt integer DEFAULT NULL,
    ambiguous boolean DEFAULT false,
    alone boolean DEFAULT true
)
    RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Not in SQL, which would have the error as a parameter of a statement (I7).
    RETURN @extschema@.mailroom_mark_error(
        ARRAY[id], ARRAY[error], ARRAY[retry_after], ARRAY[permanent], ARRAY[status], claimant, ARRAY[attempt],
        ARRAY[ambiguous], ARRAY[alone]
    ) = '{}';
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_mark_error(bigint, text, interval, boolean, integer, text, integer, boolean, boolean) IS
    'Records for one claimed mail that an attempt to send it failed; false when the claim was lost. As the form for arrays.';

CREATE FUNCTION @extschema@._hold_until(ids bigint[], claimant text, tries integer[], until timestamptz) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    who CONSTANT text := @extschema@._claimant(claimant);
    moment CONSTANT timestamptz := clock_timestamp();
    lost bigint[];
    earlier boolean;
BEGIN
    PERFORM @extschema@._check_parallel(ids, VARIADIC ARRAY[cardinality(tries)]);
    -- A group is free once its claims have lapsed, so those are not to be had again. Until this transaction ends nobody
    -- else sees the longer lease, hence the group's lock, as in _free_groups; then the clock is asked, not before.
    WITH held AS MATERIALIZED (
        SELECT
            h.place, h.claimed_until,
            CASE
                WHEN until IS NULL OR o.group_key IS NULL THEN true
                WHEN o.claimed_until > moment
                THEN @extschema@._try_lock_group(hashtextextended(o.group_key, 0))
                ELSE false
            END AS is_ours
        FROM (
            SELECT u.place, min(u.claimed_until) AS claimed_until
            FROM @extschema@._held(ids, who, tries) u
            GROUP BY u.place
        ) h
        JOIN @extschema@.outbox o ON o.ctid = h.place
    ), changed AS (
        UPDATE @extschema@.outbox o
        SET state = CASE WHEN until IS NULL THEN 'scheduled' ELSE 'claimed' END::@extschema@.outbox_state,
            claimed_by = CASE WHEN until IS NULL THEN NULL ELSE o.claimed_by END,
            claimed_at = CASE WHEN until IS NULL THEN NULL ELSE o.claimed_at END,
            claimed_until = until,
            updated_at = moment
        FROM held h
        WHERE o.ctid = h.place
          AND h.is_ours
          AND (until IS NULL OR o.group_key IS NULL OR o.claimed_until > clock_timestamp())
        RETURNING o.id, h.claimed_until > until AS earlier
    )
    SELECT
        ARRAY(
            SELECT u.id
            FROM unnest(ids) WITH ORDINALITY u (id, item)
            WHERE NOT EXISTS (SELECT FROM changed c WHERE c.id = u.id)
            ORDER BY u.item
        ),
        (SELECT bool_or(c.earlier) FROM changed c)
    INTO lost, earlier;
    PERFORM @extschema@._mail_due(CASE WHEN until IS NULL THEN moment WHEN earlier THEN until END);
    RETURN lost;
END;
$$;
COMMENT ON FUNCTION @extschema@._hold_until(bigint[], text, integer[], timestamptz) IS
    'Internal. Has claims end at another time, or now and without an attempt if until is NULL. Returns the ids whose claim was lost.';

CREATE FUNCTION @extschema@.mailroom_release(
    ids bigint[],
    claimant text DEFAULT NULL,
    attempts integer[] DEFAULT NULL
)
    RETURNS bigint[]
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@._hold_until(ids, claimant, attempts, NULL::timestamptz) $$;
COMMENT ON FUNCTION @extschema@.mailroom_release(bigint[], text, integer[]) IS
    'Gives claimed mails back that were not tried, to their place in the queue; it does not count as an attempt. claimant and attempts as for mailroom_mark_sent. Returns the ids whose claim was lost, {} when all went well. Errors: 2202E when the arrays differ in length.';

CREATE FUNCTION @extschema@.mailroom_release(id bigint, claimant text DEFAULT NULL, attempt integer DEFAULT NULL) RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@.mailroom_release(ARRAY[id], claimant, ARRAY[attempt]) = '{}' $$;
COMMENT ON FUNCTION @extschema@.mailroom_release(bigint, text, integer) IS
    'Gives one claimed mail back; false when the claim was lost. As the form for arrays.';

CREATE FUNCTION @extschema@.mailroom_extend(
    ids bigint[],
    lease interval DEFAULT NULL,
    claimant text DEFAULT NULL,
    attempts integer[] DEFAULT NULL
)
    RETURNS bigint[]
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@._hold_until(ids, claimant, attempts, clock_timestamp() + @extschema@._term(lease)) $$;
COMMENT ON FUNCTION @extschema@.mailroom_extend(bigint[], interval, text, integer[]) IS
    'Lets claims end lease (default mailroom.lease) from now, later or earlier than before. A claim of a row of a group must not have lapsed. claimant, attempts and result as for mailroom_release. Errors: 22023 for a lease that is not positive; 2202E when the arrays differ in length.';

CREATE FUNCTION @extschema@.mailroom_extend(
    id bigint,
    lease interval DEFAULT NULL,
    claimant text DEFAULT NULL,
    attempt integer DEFAULT NULL
)
    RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@.mailroom_extend(ARRAY[id], lease, claimant, ARRAY[attempt]) = '{}' $$;
COMMENT ON FUNCTION @extschema@.mailroom_extend(bigint, interval, text, integer) IS
    'Lets one claim end lease from now; false when it was lost. As the form for arrays.';

CREATE FUNCTION @extschema@._redrive(ids bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    redriven integer;
BEGIN
    -- The number of attempts never goes back, being what tells one claim from another; there are as many
    -- again instead.
    UPDATE @extschema@.outbox o
    SET state = 'scheduled',
        send_at = clock_timestamp(),
        max_attempts = CASE
            WHEN o.attempts < o.max_attempts THEN o.max_attempts
            ELSE o.attempts + least(o.max_attempts, 1000)
        END,
        claimed_by = NULL,
        claimed_at = NULL,
        updated_at = clock_timestamp(),
        ended_at = NULL
    WHERE o.id = ANY (ids)
      AND o.state = 'error'
      AND o.token IS NULL
      AND (o.expires_at > clock_timestamp()) IS NOT FALSE;
    GET DIAGNOSTICS redriven = ROW_COUNT;
    IF redriven > 0 THEN
        PERFORM @extschema@._mail_due(now());
    END IF;
    RETURN redriven;
END;
$$;
COMMENT ON FUNCTION @extschema@._redrive(bigint[]) IS
    'Internal. Puts these rows back from error to scheduled, due now; returns how many could be.';

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
          AND o.token IS NOT NULL
    ) THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'a token mail cannot be tried again',
            DETAIL = 'Its signed token is gone since it ended.',
            HINT = 'Insert a new token for the account.';
    END IF;
    RETURN @extschema@._redrive(ARRAY[id]) = 1;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_retry(bigint) IS
    'Puts a mail that ended as error back to be sent now, with max_attempts more attempts if it had used up its own. False when it is not in state error or has expired. Errors: 55000 for token mail, whose token is gone; 23505 when another live row has its item_key.';

CREATE FUNCTION @extschema@.mailroom_retry(
    kind text DEFAULT NULL,
    outcome @extschema@.attempt_outcome DEFAULT NULL,
    status integer DEFAULT NULL,
    since timestamptz DEFAULT NULL,
    row_limit integer DEFAULT 1000
)
    RETURNS integer
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT @extschema@._redrive(ARRAY(
        SELECT o.id
        FROM @extschema@.outbox o
        WHERE o.state = 'error'
          AND o.token IS NULL
          AND (o.expires_at > clock_timestamp()) IS NOT FALSE
          AND (mailroom_retry.kind IS NULL OR o.kind = mailroom_retry.kind)
          AND (
              (mailroom_retry.outcome IS NULL AND mailroom_retry.status IS NULL)
              OR EXISTS (
                  SELECT
                  FROM @extschema@.attempts a
                  WHERE a.outbox = o.id
                    AND a.attempt = o.attempts
                    AND (mailroom_retry.outcome IS NULL OR a.outcome = mailroom_retry.outcome)
                    AND (mailroom_retry.status IS NULL OR a.status = mailroom_retry.status)
              )
          )
          AND (since IS NULL OR o.ended_at >= since)
          AND (
              o.item_key IS NULL
              OR NOT EXISTS (
                  SELECT
                  FROM @extschema@.outbox l
                  WHERE l.item_key = o.item_key
                    AND (l.state IN ('scheduled', 'claimed') OR (l.state = 'error' AND l.id > o.id))
              )
          )
        ORDER BY o.id
        LIMIT row_limit
        FOR UPDATE OF o SKIP LOCKED
    ))
$$;
COMMENT ON FUNCTION @extschema@.mailroom_retry(text, @extschema@.attempt_outcome, integer, timestamptz, integer) IS
    'Puts up to row_limit mails that ended as error back to be sent now, oldest first: of one kind, whose last attempt had this outcome and this status of the provider''s, that ended since then; NULL for any. Leaves out token mail, what has expired, and what has a newer row of the same item_key. Returns how many. Reads all of outbox.';
