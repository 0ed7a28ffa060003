-- Requests: an application asks for a link on behalf of an address, and learns nothing about the address.
--
-- mailroom_request_activation and mailroom_request_recovery write one row for any address and return; the worker calls
-- mailroom_answer_requests, which finds the accounts, applies the limits and deletes the rows. Invariants: the caller's
-- work is the same for every address and waits for no lock on an account. Any number of rows for one address is
-- allowed, because to look for earlier ones would take longer for some addresses; a thousand of them cost hardly more
-- than one.

CREATE TABLE @extschema@.link_requests (
    id bigserial,
    action @extschema@.token_action NOT NULL,
    email text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT link_requests_pkey PRIMARY KEY (id)
) WITH (
    -- Rows live for milliseconds, like those of pending.
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 100000
);
COMMENT ON TABLE @extschema@.link_requests IS
    'Internal. Requests for links that mailroom_answer_requests has not processed yet.';
COMMENT ON COLUMN @extschema@.link_requests.email IS
    'The key of the given address, see mailroom_address_key; empty for what is no address.';

CREATE FUNCTION @extschema@._request_interval() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_request_interval_wrapper';
COMMENT ON FUNCTION @extschema@._request_interval() IS 'Internal. The setting mailroom.request_interval in seconds.';

CREATE FUNCTION @extschema@._requests_per_hour() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_requests_per_hour_wrapper';
COMMENT ON FUNCTION @extschema@._requests_per_hour() IS 'Internal. The setting mailroom.requests_per_hour.';

CREATE FUNCTION @extschema@._request(email text, action @extschema@.token_action) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF email IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'email must not be null',
            DETAIL = 'A link is requested for an address.',
            HINT = 'Pass what the person typed: for text that is no address, nothing is sent.';
    END IF;
    INSERT INTO @extschema@.link_requests (action, email)
    VALUES (action, coalesce(@extschema@.mailroom_address_key(email), ''));
    PERFORM @extschema@._announce_request(@extschema@._lane(action));
END;
$$;
COMMENT ON FUNCTION @extschema@._request(text, @extschema@.token_action) IS
    'Internal. Stores a request and wakes the worker at COMMIT.';

CREATE FUNCTION @extschema@.mailroom_request_activation(email text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM @extschema@._request(email, 'activation'::@extschema@.token_action);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_request_activation(text) IS
    'Requests an activation link for an address; the result and the work are the same for every address. A provisioned account gets its open link again after COMMIT, within mailroom.request_interval and mailroom.requests_per_hour, or a new one if none is open.';

CREATE FUNCTION @extschema@.mailroom_request_recovery(email text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM @extschema@._request(email, 'password_recovery'::@extschema@.token_action);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_request_recovery(text) IS
    'Requests a password recovery for an address; the result and the work are the same for every address. An active account gets its open link again after COMMIT, within mailroom.request_interval and mailroom.requests_per_hour, or a new one if none is open.';

-- Long because each reason to send nothing has a condition.
CREATE FUNCTION @extschema@._answer_request(holder bigint, asked @extschema@.token_action) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    stamp CONSTANT bigint := floor(extract(epoch FROM now()));
    sent record;
BEGIN
    -- NOWAIT: another transaction may hold the account for a long time.
    PERFORM FROM @extschema@.accounts a
    WHERE a.id = _answer_request.holder
      AND a.status = @extschema@._status_for(_answer_request.asked)
    FOR NO KEY UPDATE NOWAIT;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The limits count the links that were sent, not the requests.
    SELECT
        (array_agg(t.id ORDER BY t.id DESC) FILTER (
            WHERE v.eligible AND NOT v.locked AND t.expires_at - local.stamp >= (t.expires_at - t.created_at) / 3
        ))[1] AS open,
        bool_or(v.eligible AND v.locked) AS locked,
        -- Not in the future: the clock may have been set back since.
        max(greatest(
            CASE WHEN t.created_at <= local.stamp THEN t.created_at END,
            (SELECT max(g.at) FROM unnest(t.sent_again_at) g (at) WHERE g.at <= local.stamp)
        )) AS latest,
        sum(
            (t.created_at > local.stamp - 3600 AND t.created_at <= local.stamp)::integer
                + (SELECT count(*) FROM unnest(t.sent_again_at) g (at) WHERE g.at > local.stamp - 3600 AND g.at <= local.stamp)
        ) AS within_hour
    INTO sent
    FROM @extschema@.tokens t
    CROSS JOIN LATERAL (SELECT w.* FROM @extschema@._token_verdicts w WHERE w.token_id = t.id OFFSET 0) v
    WHERE t.account = _answer_request.holder
      AND t.action = _answer_request.asked;
    -- A new link is sent in spite of the limits, so that requests by others cannot keep mail from the owner of an
    -- address; unless the open token is locked by five wrong codes.
    IF (sent.open IS NOT NULL OR sent.locked) AND sent.within_hour >= @extschema@._requests_per_hour() THEN
        PERFORM @extschema@._log_abuse('limited'::text, holder);
        RETURN false;
    ELSIF sent.open IS NULL THEN
        INSERT INTO @extschema@.tokens (account, action) VALUES (holder, asked);
        RETURN true;
    ELSIF sent.latest > stamp - @extschema@._request_interval()
        OR EXISTS (SELECT FROM @extschema@.pending p WHERE p.lane = @extschema@._lane(_answer_request.asked) AND p.token_id = sent.open)
        OR EXISTS (SELECT FROM @extschema@.outbox o WHERE o.token_id = sent.open AND o.state IN ('scheduled', 'claimed'))
    THEN
        -- It is on its way, or was sent recently.
        RETURN false;
    END IF;
    PERFORM FROM @extschema@.tokens t WHERE t.id = sent.open FOR NO KEY UPDATE NOWAIT;
    UPDATE @extschema@.tokens t
    SET sent_again_at = ARRAY(SELECT g.at FROM unnest(t.sent_again_at) g (at) WHERE g.at > local.stamp - 3600) || local.stamp
    WHERE t.id = sent.open;
    INSERT INTO @extschema@.pending (lane, token_id) VALUES (@extschema@._announce(@extschema@._lane(asked)), sent.open);
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@._answer_request(bigint, @extschema@.token_action) IS
    'Internal. Sends the open link of an account again, or creates a new token if none is open or the open one has less than a third of its lifetime left; returns whether mail is sent. Raises lock_not_available if another transaction holds the account or the token.';

CREATE FUNCTION @extschema@._lock_requests(after bigint, looked integer) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET jit = off
AS $$
BEGIN
    RETURN ARRAY(
        SELECT r.id
        FROM @extschema@.link_requests r
        WHERE r.id > _lock_requests.after
        ORDER BY r.id
        LIMIT _lock_requests.looked
        FOR UPDATE SKIP LOCKED
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._lock_requests(bigint, integer) IS
    'Internal. Locks the oldest requests after this id, up to the given number, skips those that other transactions hold, and returns their ids.';

CREATE FUNCTION @extschema@._requested(picked bigint[], wanted integer)
RETURNS TABLE (holder bigint, action @extschema@.token_action, requests bigint[])
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    -- One index lookup for each request, independent of the number of accounts: statistics of a queue mean nothing.
    SET enable_seqscan = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT r.id, r.action, r.email
        FROM @extschema@.link_requests r
        WHERE r.id = ANY (_requested.picked)
    )
    SELECT a.id, q.action, array_agg(q.id)
    FROM asked q
    CROSS JOIN LATERAL (SELECT s.id FROM @extschema@.accounts s WHERE s.email = q.email OFFSET 0) a
    GROUP BY a.id, q.action
    -- Those that asked first; among them the same order in all sessions, so that two that answer requests cannot deadlock.
    ORDER BY row_number() OVER (ORDER BY min(q.id)) > wanted, a.id, q.action;
END;
$$;
COMMENT ON FUNCTION @extschema@._requested(bigint[], integer) IS
    'Internal. The accounts that these requests are for, each with the action and the ids of its requests: as many as wanted that asked first, then the others.';

-- Long because what becomes of each request is decided in one loop.
CREATE FUNCTION @extschema@.mailroom_answer_requests(batch_limit integer DEFAULT NULL) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    wanted CONSTANT integer := coalesce(batch_limit, @extschema@._batch_limit());
    -- Most of a flood is for unknown addresses, or for one account; those cost almost nothing.
    looked CONSTANT integer := greatest(wanted, 1000);
    -- NULL for all. A request that commits late can have a lower id than requests that were answered before.
    after bigint;
    seen bigint;
    picked bigint[];
    -- One for each account that another transaction holds.
    busy bigint[] := ARRAY[]::bigint[];
    stayed integer;
    -- Requests of accounts beyond the limit.
    left_over bigint[] := ARRAY[]::bigint[];
    asked record;
    answered integer := 0;
    made integer := 0;
    -- Before rows of link_requests are locked: TRUNCATE locks in this order.
    locked CONSTANT boolean := @extschema@._lock_accounts_and_tokens(true);
BEGIN
    IF wanted < 1 THEN
        PERFORM @extschema@._refuse_batch_limit(wanted, NULL::text);
    END IF;
    PERFORM @extschema@._refuse_while_restoring();
    after := @extschema@._walk_begin('answers'::text);
    seen := coalesce(after, 0);
    -- Behind requests for accounts that are held there may be others: go on for a while.
    FOR round IN 1..10 LOOP
        picked := @extschema@._lock_requests(seen, looked);
        seen := coalesce(picked[cardinality(picked)], seen);
        stayed := cardinality(busy);
        FOR asked IN SELECT r.* FROM @extschema@._requested(picked, wanted - answered) r
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
                    -- The others are answered with it.
                    busy := busy || asked.requests[1];
                    answered := answered - 1;
                WHEN OTHERS THEN
                    IF NOT @extschema@._may_pass_by(SQLSTATE) THEN
                        RAISE;
                    END IF;
                    -- The message may quote values from a constraint or trigger of the application.
                    RAISE WARNING USING
                        MESSAGE = 'mailroom could not answer a request',
                        DETAIL = format('Account %s, %s: SQLSTATE %s.', asked.holder, asked.action, SQLSTATE),
                        HINT = 'Look for triggers or constraints that were added to tokens.';
            END;
        END LOOP;
        DELETE FROM @extschema@.link_requests r
        WHERE r.id = ANY (ARRAY(SELECT p FROM unnest(local.picked) p EXCEPT SELECT k FROM unnest(local.busy || local.left_over) k));
        stayed := cardinality(busy) - stayed;
        EXIT WHEN cardinality(picked) < looked OR left_over <> '{}' OR stayed < looked / 2;
    END LOOP;
    PERFORM @extschema@._walk_end('answers'::text, CASE WHEN seen > coalesce(after, 0) THEN seen END);
    PERFORM @extschema@._walk_back('answers'::text, min(k) - 1) FROM unnest(busy || left_over) k;
    IF after IS NOT NULL AND cardinality(picked) < looked THEN
        -- Other requests may be before this session's position, where looking is too expensive now.
        PERFORM @extschema@._announce_due(clock_timestamp() + interval '1 s');
    END IF;
    -- A caller that finds fewer tokens than were announced assumes that nothing is left, but most requests may create
    -- none; so announce that there is more. Not if all of them are busy: that would repeat without end.
    IF left_over <> '{}' OR (cardinality(picked) = looked AND stayed < looked) THEN
        PERFORM @extschema@._announce_request(0::smallint);
    END IF;
    RETURN made;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_answer_requests(integer) IS
    'Processes requests for up to batch_limit accounts (default mailroom.batch_limit) and returns the number of links that will be sent. The worker calls it; without a worker a client must, and should commit at once because it locks the accounts.';
