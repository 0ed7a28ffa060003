-- Requests: somebody asks for a link, and nobody learns whether there is such an account.
--
-- The application's call writes down what was asked for and returns. Who that is, whether they may, and
-- whether they asked too often is found out later by mailroom_answer_requests, which the worker calls. So
-- the caller's work is one row for every address there is, it waits for no lock on an account, and the
-- limits are applied out of its sight. Answered requests are deleted, whatever the answer was. Any number of rows for
-- one address is allowed: to look for earlier ones would take longer for some addresses than for others. But they are
-- worked off faster than they come, for a thousand of them cost hardly more than one.

CREATE TABLE @extschema@.requests (
    id bigserial,
    action @extschema@.token_action NOT NULL,
    email text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT requests_pkey PRIMARY KEY (id)
) WITH (
    -- Rows live for milliseconds, as those of pending.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 100000
);
COMMENT ON TABLE @extschema@.requests IS
    'Internal. Links that were asked for, until mailroom_answer_requests has looked at them.';
COMMENT ON COLUMN @extschema@.requests.email IS
    'What was given, in lower case; empty when it cannot be an address.';

CREATE FUNCTION @extschema@._request(email text, action @extschema@.token_action) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO @extschema@.requests (action, email)
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
    'Asks for a new activation link. Returns the same, after the same work, for any address. A provisioned account gets its mail after COMMIT, unless it had one within mailroom.request_interval or mailroom.requests_per_hour of them within the hour; its older links end.';

CREATE FUNCTION @extschema@.mailroom_request_recovery(email text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM @extschema@._request(email, 'password_recovery'::@extschema@.token_action);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_request_recovery(text) IS
    'Asks for a password recovery. Returns the same, after the same work, for any address. An active account gets its mail after COMMIT, unless it had one within mailroom.request_interval or mailroom.requests_per_hour of them within the hour; its older recovery links end.';

CREATE FUNCTION @extschema@._answer_request(holder bigint, asked @extschema@.token_action) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stamp CONSTANT bigint := floor(extract(epoch FROM now()));
BEGIN
    -- No waiting: the account may be in the hands of a transaction that stays open for long.
    PERFORM FROM @extschema@.accounts a
    WHERE a.id = holder
      AND a.status = @extschema@._status_for(asked)
    FOR NO KEY UPDATE NOWAIT;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- What counts is the mail that was made, not how often somebody asked.
    PERFORM FROM @extschema@.tokens t
    WHERE t.account = holder
      AND t.action = asked
    HAVING max(t.created_at) > stamp - @extschema@._request_interval()
        OR count(*) FILTER (WHERE t.created_at > stamp - 3600) >= @extschema@._requests_per_hour();
    IF FOUND THEN
        RETURN false;
    END IF;
    PERFORM FROM @extschema@.tokens t
    WHERE t.account = holder
      AND t.action = asked
      AND t.consumed_at IS NULL
      AND t.revoked_at IS NULL
    FOR NO KEY UPDATE NOWAIT;
    PERFORM @extschema@._revoke_tokens(ARRAY[holder], ARRAY[asked]);
    INSERT INTO @extschema@.tokens (account, action) VALUES (holder, asked);
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@._answer_request(bigint, @extschema@.token_action) IS
    'Internal. Gives an account a new token in the place of its older ones, if it may have one; returns whether. Errors: 55P03 when another transaction holds the account or one of the tokens.';

CREATE FUNCTION @extschema@._pick_requests(looked integer) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
BEGIN
    RETURN ARRAY(
        SELECT r.id
        FROM @extschema@.requests r
        ORDER BY r.id
        LIMIT looked
        FOR UPDATE SKIP LOCKED
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._pick_requests(integer) IS
    'Internal. Locks the oldest requests, up to so many, but for those that other transactions hold; returns their ids.';

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
        FROM @extschema@.requests r
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
    picked := @extschema@._pick_requests(looked);
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
    DELETE FROM @extschema@.requests r
    WHERE r.id = ANY (ARRAY(SELECT p FROM unnest(picked) p EXCEPT SELECT k FROM unnest(busy || left_over) k));
    -- Whoever finds fewer tokens than were announced takes it that nothing is left; but most requests may
    -- become none. Not while all of them are busy: that would be asked for ever.
    IF left_over <> '{}' OR (cardinality(picked) = looked AND cardinality(busy) < looked) THEN
        PERFORM @extschema@._announce(0::smallint);
    END IF;
    RETURN made;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_answer_requests(integer) IS
    'Answers the oldest requests, those for up to batch_limit (default mailroom.batch_limit) accounts, and returns how many tokens they became; the rest, for unknown addresses and accounts that are not eligible or had their share, came to nothing. Looks at 1000 requests, or batch_limit if that is more: several of an account are one, and strangers do not count. Requests for accounts that another transaction holds stay for the next time. The worker calls it; without a worker somebody else has to. It holds the accounts until COMMIT: commit at once. Errors: 22023 for a batch_limit below 1; 55000 while a dump is being restored.';
