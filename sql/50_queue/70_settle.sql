-- Settling: what became of a claimed mail, said by whoever claimed it.
--
-- claimed -> sent | error | expired, or back to scheduled for another try. Invariants: only the holder
-- settles; whoever comes after its lease was taken back changes nothing and is put on record, because its
-- mail may go out twice (I2); no settle waits for another session (I3). The number of attempts, as the claim
-- returned it, tells two claims of one claimant apart.

-- Exponential back-off with full jitter: uniform from 0 on rather than around a mean, because mails that failed together,
-- as when a provider was away, would otherwise come back together.
CREATE FUNCTION @extschema@._backoff(attempts integer, time_left interval) RETURNS double precision
    LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN random() * least(
    CASE WHEN time_left <= interval '1 hour' THEN 60 ELSE 3600 END,
    2 ^ least(greatest(attempts, 1), 20)
);
COMMENT ON FUNCTION @extschema@._backoff(integer, interval) IS
    'Internal. Seconds to wait after so many failed attempts of a mail that has so much time left (NULL: any): uniform between 0 and 1 s doubled with each attempt, at most a minute in its last hour and otherwise an hour.';

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
      AND o.failed_attempts = coalesce(tries[u.item], o.failed_attempts)
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
    address text;
    rest text := error;
    clean text;
    place integer;
BEGIN
    FOREACH address IN ARRAY addresses LOOP
        clean := '';
        LOOP
            -- Whoever quotes an address may have changed the case of its letters: those of ASCII, whatever the locale.
            place := position(lower(address COLLATE "C") IN lower(rest COLLATE "C"));
            EXIT WHEN (place > 0 AND address <> '') IS NOT TRUE;
            clean := clean || left(rest, place - 1) || '[address]';
            rest := substr(rest, place + char_length(address));
        END LOOP;
        rest := clean || rest;
    END LOOP;
    RETURN left(rest, 1000);
END;
$$;
COMMENT ON FUNCTION @extschema@._redact(text, text[]) IS
    'Internal. What a sender says went wrong, as far as others may read it: without these addresses, and 1000 characters at most.';

CREATE FUNCTION @extschema@._without_late(
    ids bigint[],
    items integer[],
    claimant text,
    tries integer[],
    errors text[],
    response_codes integer[],
    verb text
)
    RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    IF items = '{}' THEN
        RETURN coalesce(ids, '{}');
    END IF;
    INSERT INTO @extschema@.outbox_attempts (outbox_id, attempt, outcome, ended_at, claimant, transport, response_code, error)
    SELECT
        o.id, tries[u.item] + 1, 'late', clock_timestamp(), claimant, o.transport,
        response_codes[u.item],
        @extschema@._redact(errors[u.item], (o.recipients || o.cc || o.bcc)::text[])
    FROM unnest(items) u (item)
    JOIN @extschema@.outbox o ON o.id = ids[u.item];
    RAISE LOG USING
        MESSAGE = format('mailroom: "%s" settled %s mails as %s that it does not hold', claimant, cardinality(items), verb),
        DETAIL = format('The first has id %s. They may go out twice.', ids[items[1]]);
    RETURN ARRAY(
        SELECT u.id
        FROM unnest(ids) WITH ORDINALITY u (id, item)
        WHERE u.item <> ALL (items)
        ORDER BY u.item
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._without_late(bigint[], integer[], text, integer[], text[], integer[], text) IS
    'Internal. Records and logs settles that came too late, given by their subscripts in ids; returns the other ids.';

CREATE FUNCTION @extschema@.mailroom_mark_sent_many(
    ids bigint[],
    provider_ids text[] DEFAULT NULL,
    claimant text DEFAULT NULL,
    failed_attempts integer[] DEFAULT NULL,
    refused_recipients jsonb[] DEFAULT NULL
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
    PERFORM @extschema@._check_parallel(ids, VARIADIC ARRAY[
        cardinality(provider_ids), cardinality(failed_attempts), cardinality(refused_recipients)
    ]);
    -- Nobody else touches a claim before its lease has ended, so these wait for nobody. A row with a lease is
    -- claimed; its state is not asked for, lest a partial index look better than the primary key.
    -- Most batches are all alike but for the ids, which is cheaper by far.
    IF coalesce(num_nonnulls(VARIADIC provider_ids), 0) = 0 AND (failed_attempts IS NULL OR failed_attempts[1] = ALL (failed_attempts)) THEN
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
              AND o.failed_attempts = coalesce(mailroom_mark_sent_many.failed_attempts[1], o.failed_attempts)
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
            FROM unnest(ids, provider_ids, mailroom_mark_sent_many.failed_attempts) u (id, provider_id, tries)
            WHERE o.id = u.id
              AND o.claimed_by = who
              AND o.claimed_until > moment
              AND o.failed_attempts = coalesce(u.tries, o.failed_attempts)
            RETURNING o.group_key
        )
        SELECT count(*), count(d.group_key) > 0 INTO settled, grouped FROM done d;
    END IF;
    IF grouped THEN
        -- The rest of the group can be claimed now.
        PERFORM @extschema@._mail_due(moment);
    END IF;
    IF settled < cardinality(ids) THEN
        -- The lease has ended, and the claim was not taken back yet: then no other sender has the mail.
        WITH held AS MATERIALIZED (
            SELECT h.place, h.item FROM @extschema@._held(ids, who, failed_attempts) h
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
    END IF;
    IF coalesce(num_nonnulls(VARIADIC refused_recipients), 0) > 0 THEN
        INSERT INTO @extschema@.outbox_attempts (
            outbox_id, attempt, outcome, started_at, ended_at, claimant, transport, response_code, error, refused_recipients
        )
        SELECT DISTINCT ON (o.id)
            o.id, o.failed_attempts + 1, 'partial'::@extschema@.attempt_outcome, o.claimed_at, moment, who, o.transport,
            (u.refused -> 0 ->> 'response_code')::integer, format('recipients refused: %s', jsonb_array_length(u.refused)), u.refused
        FROM unnest(ids, mailroom_mark_sent_many.refused_recipients, mailroom_mark_sent_many.failed_attempts) u (id, refused, tries)
        JOIN @extschema@.outbox o ON o.id = u.id
        WHERE u.refused IS NOT NULL
          AND o.state = 'sent'
          AND o.claimed_by = who
          AND o.failed_attempts = coalesce(u.tries, o.failed_attempts)
          -- Saying so again is no news.
          AND NOT EXISTS (
              SELECT
              FROM @extschema@.outbox_attempts a
              WHERE a.outbox_id = o.id
                AND a.attempt = o.failed_attempts + 1
                AND a.outcome = 'partial'
          );
    END IF;
    IF settled = cardinality(ids) THEN
        RETURN ids;
    END IF;
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
              AND o.failed_attempts = coalesce(mailroom_mark_sent_many.failed_attempts[u.item], o.failed_attempts)
        )
    );
    RETURN @extschema@._without_late(ids, late, who, failed_attempts, NULL::text[], NULL::integer[], 'sent'::text);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_mark_sent_many(bigint[], text[], text, integer[], jsonb[]) IS
    'Ends claimed mails as sent, with the provider''s ids for them. claimant: as given to mailroom_claim. failed_attempts: of each as the claim returned it, for claimants whose name outlives a lease; NULL to leave it out. refused_recipients: of a mail that did not go to all of its recipients the others, as outbox_attempts has them. Returns the ids that are settled, in the order given. The claim of the others was lost, and they may go out twice: each is put on record in outbox_attempts and logged, and nothing else changes. Saying it twice does no harm. Errors: 2202E when the arrays differ in length.';

CREATE FUNCTION @extschema@.mailroom_mark_sent(
    id bigint,
    provider_id text DEFAULT NULL,
    claimant text DEFAULT NULL,
    failed_attempts integer DEFAULT NULL,
    refused_recipients jsonb DEFAULT NULL
)
    RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT @extschema@.mailroom_mark_sent_many(
        ARRAY[id], ARRAY[provider_id], claimant, ARRAY[failed_attempts], ARRAY[refused_recipients]
    ) <> '{}'
$$;
COMMENT ON FUNCTION @extschema@.mailroom_mark_sent(bigint, text, text, integer, jsonb) IS
    'Ends one claimed mail as sent; false when the claim was lost. As mailroom_mark_sent_many.';

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
    batches uuid[] DEFAULT NULL
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
            cardinality(errors), cardinality(retry_after), cardinality(permanent), cardinality(response_codes),
            cardinality(failed_attempts), cardinality(ambiguous), cardinality(alone), cardinality(batches)
        ]
    );
    WITH held AS MATERIALIZED (
        SELECT h.place, min(h.item) AS item
        FROM @extschema@._held(ids, who, failed_attempts) h
        GROUP BY h.place
    ), judged AS MATERIALIZED (
        SELECT
            h.place, h.item, o.id, o.failed_attempts + 1 AS attempt, o.claimed_at, o.transport,
            -- What is to be sent together is due together.
            CASE
                WHEN batches[h.item] IS NULL THEN w.again
                ELSE min(w.again) OVER (PARTITION BY batches[h.item])
            END AS again,
            coalesce(ambiguous[h.item], false) AS is_ambiguous,
            coalesce(alone[h.item], true) AS was_alone,
            coalesce(@extschema@._redact(errors[h.item], (o.recipients || o.cc || o.bcc)::text[]), 'no reason given') AS error,
            CASE
                WHEN permanent[h.item] OR o.failed_attempts + 1 >= o.max_attempts THEN 'error'
                WHEN o.expires_at <= moment THEN 'expired'
                ELSE 'scheduled'
            END::@extschema@.outbox_state AS next
        FROM held h
        JOIN @extschema@.outbox o ON o.ctid = h.place
        CROSS JOIN LATERAL (
            SELECT moment + greatest(
                make_interval(secs => @extschema@._backoff(o.failed_attempts + 1, o.expires_at - moment)),
                CASE WHEN retry_after[h.item] > interval '30 days' THEN interval '30 days' ELSE retry_after[h.item] END
            ) AS at
            OFFSET 0
        ) b
        CROSS JOIN LATERAL (
            -- Whatever the wait, the last try comes shortly before the mail is of no use any more.
            SELECT CASE
                WHEN o.expires_at - interval '5 s' > moment THEN least(b.at, o.expires_at - interval '5 s')
                ELSE least(b.at, o.expires_at)
            END AS again
        ) w
    ), noted AS (
        INSERT INTO @extschema@.outbox_attempts (
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
            failed_attempts = j.attempt,
            ambiguous_attempts = o.ambiguous_attempts + j.is_ambiguous::integer,
            ambiguous_alone = o.ambiguous_alone OR (j.is_ambiguous AND j.was_alone),
            batch = CASE WHEN j.next = 'scheduled' THEN batches[j.item] END,
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
    RETURN @extschema@._without_late(ids, late, who, failed_attempts, errors, response_codes, 'failed'::text);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_mark_error_many(bigint[], text[], interval[], boolean[], integer[], text, integer[], boolean[], boolean[], uuid[]) IS
    'Records for claimed mails that an attempt to send them failed. Each is tried again after a random time of up to 2 s, doubled with each attempt up to 1 hour, or to a minute in the last hour before expires_at, and not before retry_after, of which 30 days count; but once more 5 s before expires_at. It ends as error when permanent or when it was the last of max_attempts, and as expired when expires_at is past. errors: for people. response_codes: the provider''s answers. ambiguous: it is not known whether the provider took the mail; alone: it had the request to itself (default), and not with others; batches: what names the request to be sent again as it was, whose mails are due together. claimant, failed_attempts, result and errors as for mailroom_mark_sent_many.';

CREATE FUNCTION @extschema@.mailroom_mark_error(
    id bigint,
    error text,
    retry_after interval DEFAULT NULL,
    permanent boolean DEFAULT false,
    response_code integer DEFAULT NULL,
    claimant text DEFAULT NULL,
    failed_attempts integer DEFAULT NULL,
    ambiguous boolean DEFAULT false,
    alone boolean DEFAULT true
)
    RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Not in SQL, which would have the error as a parameter of a statement (I7).
    RETURN @extschema@.mailroom_mark_error_many(
        ARRAY[id], ARRAY[error], ARRAY[retry_after], ARRAY[permanent], ARRAY[response_code], claimant, ARRAY[failed_attempts],
        ARRAY[ambiguous], ARRAY[alone], NULL::uuid[]
    ) <> '{}';
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_mark_error(bigint, text, interval, boolean, integer, text, integer, boolean, boolean) IS
    'Records for one claimed mail that an attempt to send it failed; false when the claim was lost. As mailroom_mark_error_many.';

CREATE FUNCTION @extschema@._hold_until(ids bigint[], claimant text, tries integer[], until timestamptz) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    who CONSTANT text := @extschema@._claimant(claimant);
    moment CONSTANT timestamptz := clock_timestamp();
    held bigint[];
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
            WHERE EXISTS (SELECT FROM changed c WHERE c.id = u.id)
            ORDER BY u.item
        ),
        (SELECT bool_or(c.earlier) FROM changed c)
    INTO held, earlier;
    PERFORM @extschema@._mail_due(CASE WHEN until IS NULL THEN moment WHEN earlier THEN until END);
    RETURN held;
END;
$$;
COMMENT ON FUNCTION @extschema@._hold_until(bigint[], text, integer[], timestamptz) IS
    'Internal. Has claims end at another time, or now and without an attempt if until is NULL. Returns the ids of those that were held.';

CREATE FUNCTION @extschema@.mailroom_release_many(
    ids bigint[],
    claimant text DEFAULT NULL,
    failed_attempts integer[] DEFAULT NULL
)
    RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
BEGIN
    IF EXISTS (SELECT FROM @extschema@.budgets) THEN
        PERFORM @extschema@._return_shares(
            array_agg(o.claimed_at), array_agg(cardinality(o.recipients) + cardinality(o.cc) + cardinality(o.bcc))
        )
        FROM (
            SELECT DISTINCT h.place
            FROM @extschema@._held(ids, @extschema@._claimant(claimant), failed_attempts) h
        ) u
        JOIN @extschema@.outbox o ON o.ctid = u.place
        HAVING count(*) > 0;
    END IF;
    RETURN @extschema@._hold_until(ids, claimant, failed_attempts, NULL::timestamptz);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_release_many(bigint[], text, integer[]) IS
    'Gives claimed mails back that were not tried, to their place in the queue, and what they took out of the budgets; it does not count as an attempt. claimant and failed_attempts as for mailroom_mark_sent_many. Returns the ids that were given back, in the order given; the claim of the others was lost. Errors: 2202E when the arrays differ in length.';

CREATE FUNCTION @extschema@.mailroom_release(id bigint, claimant text DEFAULT NULL, failed_attempts integer DEFAULT NULL) RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@.mailroom_release_many(ARRAY[id], claimant, ARRAY[failed_attempts]) <> '{}' $$;
COMMENT ON FUNCTION @extschema@.mailroom_release(bigint, text, integer) IS
    'Gives one claimed mail back; false when the claim was lost. As mailroom_release_many.';

CREATE FUNCTION @extschema@.mailroom_extend_many(
    ids bigint[],
    lease interval DEFAULT NULL,
    claimant text DEFAULT NULL,
    failed_attempts integer[] DEFAULT NULL
)
    RETURNS bigint[]
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@._hold_until(ids, claimant, failed_attempts, clock_timestamp() + @extschema@._term(lease)) $$;
COMMENT ON FUNCTION @extschema@.mailroom_extend_many(bigint[], interval, text, integer[]) IS
    'Lets claims end lease (default mailroom.lease) from now, later or earlier than before. A claim of a row of a group must not have lapsed. claimant, failed_attempts and result as for mailroom_release_many. Errors: 22023 for a lease that is not positive; 2202E when the arrays differ in length.';

CREATE FUNCTION @extschema@.mailroom_extend(
    id bigint,
    lease interval DEFAULT NULL,
    claimant text DEFAULT NULL,
    failed_attempts integer DEFAULT NULL
)
    RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT @extschema@.mailroom_extend_many(ARRAY[id], lease, claimant, ARRAY[failed_attempts]) <> '{}' $$;
COMMENT ON FUNCTION @extschema@.mailroom_extend(bigint, interval, text, integer) IS
    'Lets one claim end lease from now; false when it was lost. As mailroom_extend_many.';

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
