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
    PERFORM @extschema@._announce(@extschema@._lane(action), true);
    IF @extschema@._is_operator() THEN
        INSERT INTO @extschema@._new_actions (action, detail) VALUES ('link_requested', jsonb_build_object('action', _request.action));
    END IF;
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
    'Requests an activation link for an address; the result and the work are the same for every address. A provisioned account gets its open link again after COMMIT, or a new one if none is open, within mailroom.request_interval and mailroom.requests_per_hour.';

CREATE FUNCTION @extschema@.mailroom_request_recovery(email text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM @extschema@._request(email, 'password_recovery'::@extschema@.token_action);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_request_recovery(text) IS
    'Requests a password recovery for an address; the result and the work are the same for every address. After COMMIT an active account gets its open link again, or a new one if none is open, and a provisioned account its activation link, within mailroom.request_interval and mailroom.requests_per_hour.';

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
    wanted @extschema@.token_action;
    sent record;
BEGIN
    -- A person who asks for a new password before the account was activated can activate it instead. NOWAIT: another
    -- transaction may hold the account for a long time.
    SELECT CASE WHEN a.status = 'provisioned' THEN 'activation' ELSE _answer_request.asked END
    INTO wanted
    FROM @extschema@.accounts a
    WHERE a.id = _answer_request.holder
      AND a.status IN (@extschema@._status_for(_answer_request.asked), 'provisioned')
    FOR NO KEY UPDATE NOWAIT;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- The limits count the mails, not the requests, and those of links that have ended too.
    SELECT
        (array_agg(t.id ORDER BY t.id DESC) FILTER (
            WHERE v.eligible AND NOT v.locked AND t.expires_at - local.stamp >= (t.expires_at - t.created_at) / 3
        ))[1] AS open,
        max(m.at) AS latest,
        count(*) FILTER (WHERE m.at > local.stamp - 3600) AS within_hour
    INTO sent
    FROM @extschema@.tokens t
    CROSS JOIN LATERAL (SELECT w.* FROM @extschema@._token_verdicts w WHERE w.token_id = t.id OFFSET 0) v
    -- Not those in the future: the clock may have been set back since.
    LEFT JOIN LATERAL unnest(t.created_at || t.sent_again_at) m (at) ON m.at <= local.stamp
    WHERE t.account = _answer_request.holder
      AND t.action = local.wanted;
    -- A burst, and then one mail each 3600 / requests_per_hour seconds: requests by others cannot flood the mailbox of
    -- an address, and keep no link from its owner for longer than that.
    IF sent.within_hour >= @extschema@._requests_per_hour()
        AND (local.stamp - sent.latest) * @extschema@._requests_per_hour() < 3600
    THEN
        PERFORM @extschema@._log_abuse('limited'::text, holder);
        RETURN false;
    ELSIF sent.open IS NULL THEN
        INSERT INTO @extschema@.tokens (account, action) VALUES (holder, wanted);
        RETURN true;
    ELSIF sent.latest > stamp - @extschema@._request_interval()
        OR EXISTS (SELECT FROM @extschema@.pending p WHERE p.lane = @extschema@._lane(local.wanted) AND p.token_id = sent.open)
        OR EXISTS (SELECT FROM @extschema@.outbox o WHERE o.token_id = sent.open AND o.state IN ('scheduled', 'claimed'))
    THEN
        -- It is on its way, or was sent recently.
        RETURN false;
    END IF;
    PERFORM FROM @extschema@.tokens t WHERE t.id = sent.open FOR NO KEY UPDATE NOWAIT;
    UPDATE @extschema@.tokens t
    SET sent_again_at = ARRAY(SELECT g.at FROM unnest(t.sent_again_at) g (at) WHERE g.at > local.stamp - 3600) || local.stamp
    WHERE t.id = sent.open;
    INSERT INTO @extschema@.pending (lane, token_id) VALUES (@extschema@._announce(@extschema@._lane(wanted), false), sent.open);
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@._answer_request(bigint, @extschema@.token_action) IS
    'Internal. Within the limits, sends the open link of an account again, or creates a new token if none is open or the open one has less than a third of its lifetime left; returns whether mail is sent. Raises lock_not_available if another transaction holds the account or the token.';

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
    -- A request that commits late can have a lower id than requests that were answered before.
    is_sweep boolean;
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
    is_sweep := @extschema@._scan_begin('answers'::text);
    after := (SELECT s.id FROM @extschema@._scan_start('answers'::text, 0::smallint) s);
    seen := after;
    -- Behind requests for locked accounts there may be others: look up to ten times.
    FOR look IN 1..10 LOOP
        picked := @extschema@._lock_requests(seen, looked);
        PERFORM @extschema@._scan_end('answers'::text);
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
    IF seen > after THEN
        PERFORM @extschema@._scan_note('answers'::text, 0::smallint, '-infinity'::timestamptz, seen, false);
    END IF;
    PERFORM @extschema@._scan_back('answers'::text, 0::smallint, '-infinity'::timestamptz, min(k) - 1) FROM unnest(busy || left_over) k;
    IF NOT is_sweep AND cardinality(picked) < looked THEN
        -- Other requests may be before this session's position, where looking is too expensive now.
        PERFORM @extschema@._announce_due(clock_timestamp() + interval '1 s');
    END IF;
    -- A caller that finds fewer tokens than were announced assumes that nothing is left, but most requests may create
    -- none; so announce that there is more. Not if all of them are busy: that would repeat without end.
    IF left_over <> '{}' OR (cardinality(picked) = looked AND stayed < looked) THEN
        PERFORM @extschema@._announce(0::smallint, true);
    END IF;
    RETURN made;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_answer_requests(integer) IS
    'Processes requests for up to batch_limit accounts (default mailroom.batch_limit) and returns the number of links that will be sent. The worker calls it; without a worker a client must, and should commit at once because it locks the accounts.';
