-- Settling: the claimant of a mail says that it was sent.
--
-- claimed -> sent here; failures are in 72_settle_error.sql, releases in 55_leases.sql. Invariants: only the holder of
-- a claim settles it; a settle that comes after its lease was taken back changes nothing and is recorded, because the
-- mail may go out twice (I2); no settle waits for another session (I3). failed_attempts, as the claim returned it,
-- tells two claims of one claimant apart.

CREATE FUNCTION @extschema@._lock_claimed(
    ids bigint[],
    claimant text,
    tries integer[]
)
    RETURNS TABLE (place tid, item integer, claimed_until timestamptz)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    -- SKIP LOCKED: a claim that another session is taking back is lost.
    RETURN QUERY
    SELECT o.ctid, u.item::integer, o.claimed_until
    -- In parallel, because the subscripts of an array need not start at 1.
    FROM unnest(ids, tries) WITH ORDINALITY u (id, tries, item)
    -- Not o.id = u.id, which could be joined in the order of ids, from one end of the outbox to the other.
    JOIN @extschema@.outbox o ON o.id = ANY (ARRAY[u.id])
    WHERE o.claimed_until IS NOT NULL
      AND o.claimed_by = _lock_claimed.claimant
      AND o.failed_attempts = coalesce(u.tries, o.failed_attempts)
    FOR NO KEY UPDATE OF o SKIP LOCKED;
END;
$$;
COMMENT ON FUNCTION @extschema@._lock_claimed(bigint[], text, integer[]) IS
    'Internal. Locks those of the rows that the claimant holds, even if the lease has ended; returns each with its place in ids, from 1, and the end of its lease.';

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
    'Internal. Raises an error for arrays that differ in length from ids; NULL arrays pass.';

CREATE FUNCTION @extschema@._redact(error text, mail bigint) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    address text;
    rest text := error;
    clean text;
    place integer;
BEGIN
    FOREACH address IN ARRAY coalesce((SELECT a.addresses FROM @extschema@._mail_addresses a WHERE a.id = mail), '{}') LOOP
        clean := '';
        LOOP
            -- A quoted address may differ in case: in ASCII letters, independent of the locale.
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
COMMENT ON FUNCTION @extschema@._redact(text, bigint) IS
    'Internal. An error text as other roles may read it: without the addresses of this mail, at most 1000 characters.';

CREATE FUNCTION @extschema@._record_late(
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
    SET jit = off
AS $$
BEGIN
    IF items = '{}' THEN
        RETURN coalesce(ids, '{}');
    END IF;
    INSERT INTO @extschema@._new_attempts (outbox_id, attempt, outcome, ended_at, claimant, transport, response_code, error)
    SELECT
        o.id, u.tries + 1, 'late', clock_timestamp(), _record_late.claimant, o.transport, u.response_code,
        @extschema@._redact(u.error, o.id)
    FROM unnest(ids, tries, errors, response_codes) WITH ORDINALITY u (id, tries, error, response_code, item)
    JOIN @extschema@.outbox o ON o.id = ANY (ARRAY[u.id])
    WHERE u.item = ANY (_record_late.items);
    RAISE LOG USING
        MESSAGE = format('mailroom: "%s" settled %s mails as %s that it does not hold', claimant, cardinality(items), verb),
        DETAIL = format('The first has id %s. They may go out twice.', (ids[:])[items[1]]);
    RETURN ARRAY(
        SELECT u.id
        FROM unnest(ids) WITH ORDINALITY u (id, item)
        WHERE u.item <> ALL (items)
        ORDER BY u.item
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._record_late(bigint[], integer[], text, integer[], text[], integer[], text) IS
    'Internal. Records and logs settles that came too late, given by their places in ids, from 1; returns the other ids.';

-- Long because it settles the most frequent kind of batch in a cheaper statement than the others.
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
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
<<local>>
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
    -- Only its holder touches a claim before its lease has ended, so this waits for no other session. A row with a
    -- lease is claimed; the query does not name state, so that no partial index is preferred to the primary key. Most
    -- batches have no provider ids and the same number of attempts, which is much cheaper.
    IF coalesce(num_nonnulls(VARIADIC provider_ids), 0) = 0 AND (failed_attempts IS NULL OR failed_attempts[1] = ALL (failed_attempts)) THEN
        WITH done AS (
            UPDATE @extschema@.outbox o
            SET state = 'sent',
                secrets = NULL,
                claimed_until = NULL,
                updated_at = local.moment,
                ended_at = local.moment
            WHERE o.id = ANY (mailroom_mark_sent_many.ids)
              AND o.claimed_by = local.who
              AND o.claimed_until > local.moment
              AND o.failed_attempts = coalesce(mailroom_mark_sent_many.failed_attempts[1], o.failed_attempts)
            RETURNING o.group_key
        )
        SELECT count(*), count(d.group_key) > 0 INTO settled, grouped FROM done d;
    ELSE
        WITH done AS (
            UPDATE @extschema@.outbox o
            SET state = 'sent',
                secrets = NULL,
                provider_id = CASE WHEN octet_length(u.provider_id) <= 255 THEN u.provider_id END,
                claimed_until = NULL,
                updated_at = local.moment,
                ended_at = local.moment
            -- FROM unnest, because a subscript into an array of texts reads all elements before it.
            FROM unnest(mailroom_mark_sent_many.ids, mailroom_mark_sent_many.provider_ids, mailroom_mark_sent_many.failed_attempts) u (id, provider_id, tries)
            WHERE o.id = ANY (ARRAY[u.id])
              AND o.claimed_by = local.who
              AND o.claimed_until > local.moment
              AND o.failed_attempts = coalesce(u.tries, o.failed_attempts)
            RETURNING o.group_key
        )
        SELECT count(*), count(d.group_key) > 0 INTO settled, grouped FROM done d;
    END IF;
    IF grouped THEN
        -- The rest of the group can be claimed now.
        PERFORM @extschema@._mail_due(moment, false, false);
    END IF;
    IF settled < cardinality(ids) THEN
        -- The lease has ended, but the claim was not taken back: no other sender has the mail. Places are counted from
        -- 1, and the subscripts of an array may start elsewhere.
        provider_ids := provider_ids[:];
        WITH held AS MATERIALIZED (
            SELECT h.place, h.item FROM @extschema@._lock_claimed(ids, who, failed_attempts) h
        )
        UPDATE @extschema@.outbox o
        SET state = 'sent',
            secrets = NULL,
            provider_id = CASE WHEN octet_length(mailroom_mark_sent_many.provider_ids[h.item]) <= 255 THEN mailroom_mark_sent_many.provider_ids[h.item] END,
            claimed_until = NULL,
            updated_at = local.moment,
            ended_at = local.moment
        FROM held h
        WHERE o.ctid = h.place;
    END IF;
    IF coalesce(num_nonnulls(VARIADIC refused_recipients), 0) > 0 THEN
        INSERT INTO @extschema@._new_attempts (
            outbox_id, attempt, outcome, started_at, ended_at, claimant, transport, response_code, error, refused_recipients
        )
        SELECT DISTINCT ON (o.id)
            o.id, o.failed_attempts + 1, 'partial'::@extschema@.attempt_outcome, o.claimed_at, moment, who, o.transport,
            CASE WHEN r.refused -> 0 ->> 'response_code' ~ '^-?[0-9]{1,9}$' THEN (r.refused -> 0 ->> 'response_code')::integer END,
            format('recipients refused: %s', jsonb_array_length(r.refused)), r.refused
        FROM unnest(ids, mailroom_mark_sent_many.refused_recipients, mailroom_mark_sent_many.failed_attempts) u (id, refused, tries)
        -- The mail was sent, and an odd value must not undo that: what is no object in an array is left out.
        CROSS JOIN LATERAL (
            SELECT
                CASE
                    WHEN octet_length(u.refused::text) <= 16777216
                    THEN jsonb_path_query_array(u.refused, 'strict $[*] ? (@.type() == "object")', '{}', true)
                    ELSE '[{"error": "more than 16 MB of refused recipients"}]'
                END AS refused
            WHERE u.refused IS NOT NULL
            OFFSET 0
        ) r
        CROSS JOIN LATERAL (
            SELECT s.id, s.state, s.claimed_by, s.claimed_at, s.transport, s.failed_attempts FROM @extschema@.outbox s WHERE s.id = u.id OFFSET 0
        ) o
        WHERE r.refused <> '[]'
          AND o.state = 'sent'
          AND o.claimed_by = who
          AND o.failed_attempts = coalesce(u.tries, o.failed_attempts)
          -- A repeated call records nothing.
          AND NOT EXISTS (
              SELECT
              FROM @extschema@.outbox_attempts a
              WHERE a.outbox_id = o.id
                AND a.attempt = o.failed_attempts + 1
                AND a.outcome = 'partial'
              OFFSET 0
          );
        PERFORM @extschema@._record_refused(array_agg(a.outbox_id), array_agg(r.refused ->> 'recipient'), array_agg(r.refused ->> 'error'))
        FROM @extschema@.outbox_attempts a
        CROSS JOIN LATERAL jsonb_array_elements(a.refused_recipients) r (refused)
        WHERE a.outbox_id = ANY (mailroom_mark_sent_many.ids)
          AND a.outcome = 'partial'
          AND a.claimant = local.who
          AND a.ended_at = local.moment
          AND r.refused ->> 'recipient' <> ''
          AND r.refused -> 'is_permanent' = 'true'
        HAVING count(*) > 0;
    END IF;
    IF settled = cardinality(ids) THEN
        RETURN ids;
    END IF;
    -- A repeated call is not late: the answer to the first one may have been lost.
    late := ARRAY(
        SELECT u.item
        FROM unnest(ids, mailroom_mark_sent_many.failed_attempts) WITH ORDINALITY u (id, tries, item)
        WHERE NOT EXISTS (
            SELECT
            FROM @extschema@.outbox o
            WHERE o.id = ANY (ARRAY[u.id])
              AND o.state = 'sent'
              AND o.claimed_by = local.who
              AND o.failed_attempts = coalesce(u.tries, o.failed_attempts)
        )
    );
    RETURN @extschema@._record_late(ids, late, who, failed_attempts, NULL::text[], NULL::integer[], 'sent'::text);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_mark_sent_many(bigint[], text[], text, integer[], jsonb[]) IS
    'Ends claimed mails as sent; repeating it does no harm. Returns the ids that are settled; the claims of the others were lost, which is recorded in outbox_attempts because they may be sent twice.';

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
    'Ends one claimed mail as sent, as mailroom_mark_sent_many. Returns false if the claim was lost.';
