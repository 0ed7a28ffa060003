-- Requests: an application asks for a link on behalf of an address, and learns nothing about the address.
--
-- mailroom_request_activation and mailroom_request_recovery write one row for any address and return; the worker calls
-- mailroom_answer_requests, which finds the accounts, applies the limits and deletes the rows. Invariants: the caller's
-- work is the same for every address and waits for no lock on an account. Any number of rows for one address is allowed,
-- because to look for earlier ones would take longer for some addresses; a thousand of them cost hardly more than one.

CREATE TABLE @extschema@.link_requests (
    id bigserial,
    action @extschema@.token_action NOT NULL,
    email text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT link_requests_pkey PRIMARY KEY (id)
) WITH (
    -- Rows live for milliseconds, as those of pending.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 100000
);
COMMENT ON TABLE @extschema@.link_requests IS
    'Internal. Links that were asked for, until mailroom_answer_requests has looked at them.';
COMMENT ON COLUMN @extschema@.link_requests.email IS
    'What was given, in lower case; empty when it cannot be an address.';

CREATE FUNCTION @extschema@._request_interval() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_request_interval_wrapper';
COMMENT ON FUNCTION @extschema@._request_interval() IS 'Internal. mailroom.request_interval in seconds.';

CREATE FUNCTION @extschema@._requests_per_hour() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_requests_per_hour_wrapper';
COMMENT ON FUNCTION @extschema@._requests_per_hour() IS 'Internal. mailroom.requests_per_hour.';

CREATE FUNCTION @extschema@._request(email text, action @extschema@.token_action) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO @extschema@.link_requests (action, email)
    VALUES (action, CASE WHEN char_length(email) <= 254 THEN @extschema@._fold(email) ELSE '' END);
    PERFORM @extschema@._announce(@extschema@._lane(action));
END;
$$;
COMMENT ON FUNCTION @extschema@._request(text, @extschema@.token_action) IS
    'Internal. Writes a request down, and has it looked at once it is committed.';

CREATE FUNCTION @extschema@.mailroom_request_activation(email text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM @extschema@._request(email, 'activation'::@extschema@.token_action);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_request_activation(text) IS
    'Asks for an activation link. Returns the same, after the same work, for any address. A provisioned account gets mail after COMMIT: its open link again, unless that was sent within mailroom.request_interval or links were mailroom.requests_per_hour times within the hour; a new one where none is open or the one that is has less than a third of its life left. No link ends by this.';

CREATE FUNCTION @extschema@.mailroom_request_recovery(email text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM @extschema@._request(email, 'password_recovery'::@extschema@.token_action);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_request_recovery(text) IS
    'Asks for a password recovery. Returns the same, after the same work, for any address. An active account gets mail after COMMIT: its open link again, unless that was sent within mailroom.request_interval or links were mailroom.requests_per_hour times within the hour; a new one where none is open or the one that is has less than a third of its life left. No link ends by this.';

CREATE FUNCTION @extschema@._answer_request(holder bigint, asked @extschema@.token_action) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stamp CONSTANT bigint := floor(extract(epoch FROM now()));
    sent record;
BEGIN
    -- No waiting: the account may be in the hands of a transaction that stays open for long.
    PERFORM FROM @extschema@.accounts a
    WHERE a.id = holder
      AND a.status = @extschema@._status_for(asked)
    FOR NO KEY UPDATE NOWAIT;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- What counts is the links that were sent, not how often somebody asked.
    SELECT
        (array_agg(t.id ORDER BY t.id DESC) FILTER (
            WHERE v.eligible AND NOT v.locked AND t.expires_at - stamp >= (t.expires_at - t.created_at) / 3
        ))[1] AS open,
        bool_or(v.eligible AND v.locked) AS locked,
        max(greatest(t.created_at, t.sent_again_at[cardinality(t.sent_again_at)])) AS latest,
        sum((t.created_at > stamp - 3600)::integer + (SELECT count(*) FROM unnest(t.sent_again_at) g (at) WHERE g.at > stamp - 3600))
            AS within_hour
    INTO sent
    FROM @extschema@.tokens t
    JOIN @extschema@._token_verdicts v ON v.token_id = t.id
    WHERE t.account = holder
      AND t.action = asked;
    -- A new one goes whatever was sent, so that whoever knows an address denies nobody their mail; unless five guesses
    -- were made with the one that is open.
    IF (sent.open IS NOT NULL OR sent.locked) AND sent.within_hour >= @extschema@._requests_per_hour() THEN
        PERFORM @extschema@._log_abuse('limited'::text, holder);
        RETURN false;
    ELSIF sent.open IS NULL THEN
        INSERT INTO @extschema@.tokens (account, action) VALUES (holder, asked);
        RETURN true;
    ELSIF sent.latest > stamp - @extschema@._request_interval()
        OR EXISTS (SELECT FROM @extschema@.pending p WHERE p.lane = @extschema@._lane(asked) AND p.token_id = sent.open)
        OR EXISTS (SELECT FROM @extschema@.outbox o WHERE o.token_id = sent.open AND o.state IN ('scheduled', 'claimed'))
    THEN
        -- It is on its way, or just came.
        RETURN false;
    END IF;
    PERFORM FROM @extschema@.tokens t WHERE t.id = sent.open FOR NO KEY UPDATE NOWAIT;
    UPDATE @extschema@.tokens t
    SET sent_again_at = ARRAY(SELECT g.at FROM unnest(t.sent_again_at) g (at) WHERE g.at > stamp - 3600) || stamp
    WHERE t.id = sent.open;
    INSERT INTO @extschema@.pending (lane, token_id) VALUES (@extschema@._announce(@extschema@._lane(asked)), sent.open);
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@._answer_request(bigint, @extschema@.token_action) IS
    'Internal. Has the open link of an account sent again, or gives it a new token where none is open or the one that is has less than a third of its life left; returns whether anything is sent. Errors: 55P03 when another transaction holds the account or the token.';

CREATE FUNCTION @extschema@._pick_requests(after bigint, looked integer) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
BEGIN
    RETURN ARRAY(
        SELECT r.id
        FROM @extschema@.link_requests r
        WHERE r.id > after
        ORDER BY r.id
        LIMIT looked
        FOR UPDATE SKIP LOCKED
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._pick_requests(bigint, integer) IS
    'Internal. Locks the oldest requests behind this id, up to so many, but for those that other transactions hold; returns their ids.';

CREATE FUNCTION @extschema@._requested(picked bigint[])
RETURNS TABLE (holder bigint, action @extschema@.token_action, requests bigint[])
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    -- One look at the key of accounts for each request, however many accounts there are: statistics of a queue say nothing.
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT r.id, r.action, r.email
        FROM @extschema@.link_requests r
        WHERE r.id = ANY (picked)
    )
    SELECT a.id, q.action, array_agg(q.id)
    FROM asked q
    JOIN @extschema@.accounts a ON a.email = q.email
    GROUP BY a.id, q.action
    -- One order for all, so that two who answer never wait for each other in a circle.
    ORDER BY a.id, q.action;
END;
$$;
COMMENT ON FUNCTION @extschema@._requested(bigint[]) IS
    'Internal. The accounts that these requests are for, each with what was asked for and the requests that did.';

CREATE FUNCTION @extschema@.mailroom_answer_requests(batch_limit integer DEFAULT NULL) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted CONSTANT integer := coalesce(batch_limit, @extschema@._batch_limit());
    -- Most of a flood is for strangers, or for one account: those cost next to nothing.
    looked CONSTANT integer := greatest(wanted, 1000);
    -- NULL for all. A request that commits late has a lower id than those that were answered by then.
    after bigint;
    picked bigint[];
    busy bigint[] := ARRAY[]::bigint[];
    -- Of accounts beyond the limit.
    left_over bigint[] := ARRAY[]::bigint[];
    asked record;
    answered integer := 0;
    made integer := 0;
    -- Before rows of requests are locked: TRUNCATE locks in this order.
    locked CONSTANT boolean := @extschema@._lock_sources(true);
BEGIN
    IF wanted < 1 THEN
        PERFORM @extschema@._refuse_batch_limit(wanted, NULL::text);
    END IF;
    PERFORM @extschema@._pass_gate();
    after := @extschema@._walk_begin('answers'::text);
    picked := @extschema@._pick_requests(coalesce(after, 0), looked);
    PERFORM @extschema@._walk_end('answers'::text, picked[cardinality(picked)]);
    FOR asked IN SELECT r.* FROM @extschema@._requested(picked) r
    LOOP
        IF answered >= wanted THEN
            left_over := left_over || asked.requests;
            CONTINUE;
        END IF;
        BEGIN
            answered := answered + 1;
            IF @extschema@._answer_request(asked.holder, asked.action) THEN
                made := made + 1;
            END IF;
        EXCEPTION
            WHEN lock_not_available THEN
                busy := busy || asked.requests;
                answered := answered - 1;
            WHEN OTHERS THEN
                IF NOT @extschema@._is_row_at_fault(SQLSTATE) THEN
                    RAISE;
                END IF;
                -- The message may quote what a constraint or trigger of somebody's own was given.
                RAISE WARNING USING
                    MESSAGE = 'mailroom could not answer a request',
                    DETAIL = format('Account %s, %s: SQLSTATE %s.', asked.holder, asked.action, SQLSTATE),
                    HINT = 'Look for triggers or constraints that were added to tokens.';
        END;
    END LOOP;
    DELETE FROM @extschema@.link_requests r
    WHERE r.id = ANY (ARRAY(SELECT p FROM unnest(picked) p EXCEPT SELECT k FROM unnest(busy || left_over) k));
    PERFORM @extschema@._walk_back('answers'::text, min(k) - 1) FROM unnest(busy || left_over) k;
    IF after IS NOT NULL AND cardinality(picked) < looked THEN
        -- The rest may be behind this session's position, too dear to look for just now.
        PERFORM @extschema@._announce_due(clock_timestamp() + interval '1 s');
    END IF;
    -- Whoever finds fewer tokens than were announced takes it that nothing is left; but most requests may
    -- become none. Not while all of them are busy: that would be asked for ever.
    IF left_over <> '{}' OR (cardinality(picked) = looked AND cardinality(busy) < looked) THEN
        PERFORM @extschema@._announce(0::smallint);
    END IF;
    RETURN made;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_answer_requests(integer) IS
    'Answers the oldest requests, those for up to batch_limit (default mailroom.batch_limit) accounts, and returns for how many a link is sent; the rest, for unknown addresses and accounts that are not eligible or had their share, came to nothing. Looks at 1000 requests, or batch_limit if that is more: several of an account are one, and strangers do not count. Requests for accounts that another transaction holds stay for the next time. The worker calls it; without a worker somebody else has to. It holds the accounts until COMMIT: commit at once. Errors: 22023 for a batch_limit below 1; 55000 while a dump is being restored.';
