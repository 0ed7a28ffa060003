-- Hand-out: from pending to a signed token, in a caller's hands or in the outbox.
--
-- A consumer deletes the rows of pending that it takes, stepping over those that others have, in its own transaction: a
-- rollback returns them (I1), two consumers never hold the same one (I2) and never wait for each other (I3).
-- Everything here runs with the caller's rights; 90_privileges.sql names the callers. The planner is kept from
-- sequential scans because statistics of a queue say nothing: it may hold nothing or a million rows a moment later. For
-- the same reason one plan does for all calls: planning a batch again would cost half as much as taking it.

CREATE FUNCTION @extschema@.mailroom_sign(action @extschema@.token_action, secret bytea, code text DEFAULT NULL) RETURNS text
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'mailroom_sign_wrapper';
COMMENT ON FUNCTION @extschema@.mailroom_sign(@extschema@.token_action, bytea, text) IS
    'The signed token, 86 characters: base64url without padding of secret and HMAC-SHA256(key, "/activate" || secret) or (key, "/recover" || secret || code). secret: 32 bytes. code: five digits, needed for password_recovery only. Errors: 22004 when an argument is missing, 22023 when it has the wrong shape; 58P01 and F0000 when there is no good key file.';

CREATE FUNCTION @extschema@.mailroom_verify(token text, action @extschema@.token_action, code text DEFAULT NULL) RETURNS boolean
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'mailroom_verify_wrapper';
COMMENT ON FUNCTION @extschema@.mailroom_verify(text, @extschema@.token_action, text) IS
    'Whether one of the keys signed this token for this action, for password_recovery together with this code. Looks at no table: says nothing of expiry or use, and counts no wrong code; mailroom_redeem does. False for anything malformed or NULL, in constant time for anything well-formed. Errors: 58P01 and F0000 when there is no good key file.';

CREATE FUNCTION @extschema@._status_for(action @extschema@.token_action) RETURNS @extschema@.account_status
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE action
    WHEN 'activation' THEN 'provisioned'::@extschema@.account_status
    ELSE 'active'::@extschema@.account_status
END;
COMMENT ON FUNCTION @extschema@._status_for(@extschema@.token_action) IS
    'Internal. The status that an account must have to get or to redeem a token for this action.';

CREATE TYPE @extschema@._verdict AS ENUM
    ('eligible', 'consumed', 'token_expired', 'account_not_eligible', 'revoked', 'malformed_secret', 'malformed_code');
COMMENT ON TYPE @extschema@._verdict IS 'Internal. Whether a token may be handed out and redeemed, and why not.';

-- What would become of a token if it were handed out or redeemed now: the one place that knows who is eligible. Locks
-- on it (_lock_sources) are taken in the order of its tables.
CREATE VIEW @extschema@._token_verdicts AS
SELECT
    t.id AS token_id,
    t.action,
    t.secret,
    t.code,
    -- Five guesses of 100,000 codes.
    t.wrong_codes >= 5 AS locked,
    t.account AS account_id,
    a.email,
    a.login,
    -- A token may be good for ever; the calendar ends here with the year 9999.
    to_timestamp(least(greatest(t.expires_at, 0), 253402300799)) AS expires_at,
    v.verdict,
    v.verdict = 'eligible' AS eligible,
    CASE v.verdict
        WHEN 'eligible' THEN NULL
        WHEN 'token_expired' THEN 'expired'::@extschema@.outbox_state
        WHEN 'malformed_secret' THEN 'error'
        WHEN 'malformed_code' THEN 'error'
        ELSE 'cancelled'
    END AS final,
    CASE v.verdict
        WHEN 'consumed' THEN 'token was consumed before it was handed out'
        WHEN 'token_expired' THEN 'token expired before it was handed out'
        WHEN 'account_not_eligible' THEN 'account is ' || a.status::text
        WHEN 'revoked' THEN 'token was revoked before it was handed out'
        WHEN 'malformed_secret' THEN 'secret is not 32 bytes'
        WHEN 'malformed_code' THEN 'code is not five digits'
    END AS reason
FROM @extschema@.accounts a
JOIN @extschema@.tokens t ON t.account = a.id
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN t.consumed_at IS NOT NULL THEN 'consumed'::@extschema@._verdict
        WHEN t.expires_at <= extract(epoch FROM clock_timestamp()) THEN 'token_expired'
        WHEN a.status <> @extschema@._status_for(t.action) THEN 'account_not_eligible'
        WHEN t.revoked_at IS NOT NULL THEN 'revoked'
        WHEN octet_length(t.secret) <> 32 THEN 'malformed_secret'
        -- As cheap as can be said of every token: a pattern would cost ten times as much.
        WHEN octet_length(t.code) <> 5 OR translate(t.code, '0123456789', '') <> '' THEN 'malformed_code'
        ELSE 'eligible'
    END AS verdict
) v;
COMMENT ON VIEW @extschema@._token_verdicts IS
    'Internal. Tokens with what a mail needs, whether they may be handed out and redeemed, and if not, how their mail ends and why.';

-- For those who send what was signed, and see no secret of other tokens.
CREATE VIEW @extschema@._token_ends AS
SELECT v.token_id, v.eligible, v.final, v.reason
FROM @extschema@._token_verdicts v;
COMMENT ON VIEW @extschema@._token_ends IS
    'Internal. Whether the mail of a token may be sent, and if not, how it ends and why.';

CREATE FUNCTION @extschema@._lock_sources(waiting boolean) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF waiting THEN
        LOCK TABLE @extschema@._token_ends IN ACCESS SHARE MODE;
        RETURN true;
    END IF;
    BEGIN
        LOCK TABLE @extschema@._token_ends IN ACCESS SHARE MODE NOWAIT;
        RETURN true;
    EXCEPTION
        WHEN lock_not_available THEN
            RETURN false;
    END;
END;
$$;
COMMENT ON FUNCTION @extschema@._lock_sources(boolean) IS
    'Internal. Locks accounts and tokens, in this order, for reading until this transaction ends; false when they are not to be had, without waiting if so asked. Callers that hold rows of requests, pending or outbox must not wait for them: TRUNCATE holds them and wants the others.';

CREATE FUNCTION @extschema@._printable(address text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$ SELECT regexp_replace(address, E'[\\u0001-\\u001F\\u007F]', '?', 'g') $$;
COMMENT ON FUNCTION @extschema@._printable(text) IS
    'Internal. An address as the outbox can hold it in a row that is not sent: a question mark for each control character.';

CREATE FUNCTION @extschema@._pick(wanted integer) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    sweep boolean := @extschema@._scan_begin();
    part bigint[];
    picked bigint[] := ARRAY[]::bigint[];
    urgent_high bigint;
    normal_high bigint;
BEGIN
    LOOP
        WITH urgent AS MATERIALIZED (
            SELECT p.ctid AS place
            FROM @extschema@.pending p
            WHERE p.lane = 0
              AND p.token_id > CASE WHEN sweep THEN 0 ELSE @extschema@._scan_position(0::smallint) END
            ORDER BY p.lane, p.token_id
            LIMIT wanted - cardinality(picked)
            FOR UPDATE SKIP LOCKED
        ), normal AS MATERIALIZED (
            SELECT p.ctid AS place
            FROM @extschema@.pending p
            WHERE p.lane = 1
              AND p.token_id > CASE WHEN sweep THEN 0 ELSE @extschema@._scan_position(1::smallint) END
            ORDER BY p.lane, p.token_id
            LIMIT wanted - cardinality(picked) - (SELECT count(*) FROM urgent)
            FOR UPDATE SKIP LOCKED
        ), taken AS (
            DELETE FROM @extschema@.pending p
            WHERE p.ctid = ANY (ARRAY(SELECT place FROM urgent UNION ALL SELECT place FROM normal))
            RETURNING p.lane, p.token_id
        )
        SELECT
            coalesce(array_agg(token_id ORDER BY lane, token_id), '{}'),
            max(token_id) FILTER (WHERE lane = 0),
            max(token_id) FILTER (WHERE lane = 1)
        INTO part, urgent_high, normal_high
        FROM taken;

        PERFORM @extschema@._scan_end(sweep, urgent_high, normal_high);
        picked := picked || part;
        -- Too few above this session's position says nothing about what lies below it: look there before
        -- anybody is told that the queue is empty.
        EXIT WHEN sweep OR cardinality(picked) >= wanted;
        sweep := true;
    END LOOP;
    RETURN picked;
END;
$$;
COMMENT ON FUNCTION @extschema@._pick(integer) IS
    'Internal. Deletes up to so many rows of pending, urgent first, then by token id, and returns their token ids. Fewer than wanted: nothing is left but what other transactions hold.';

CREATE FUNCTION @extschema@._note_progress(highest bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM setval('@extschema@._last_seq'::regclass, highest)
    FROM @extschema@._last_seq s
    WHERE s.last_value < highest;
END;
$$;
COMMENT ON FUNCTION @extschema@._note_progress(bigint) IS
    'Internal. Advances jobs.last_seq.';

CREATE FUNCTION @extschema@._dequeue(batch_limit integer, forbidden text)
RETURNS TABLE (token_id bigint, action @extschema@.token_action, email text, login text, secret text, code text)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    wanted CONSTANT integer := coalesce(batch_limit, @extschema@._batch_limit());
    asked integer;
    got integer := 0;
    part integer;
    picked bigint[];
    highest bigint;
BEGIN
    IF wanted < 1 THEN
        PERFORM @extschema@._refuse_batch_limit(wanted, NULL::text);
    END IF;
    -- Before rows of the queue are: TRUNCATE locks in this order.
    PERFORM @extschema@._lock_sources(true);
    LOOP
        asked := wanted - got;
        picked := @extschema@._pick(asked);
        EXIT WHEN cardinality(picked) = 0;
        highest := greatest(highest, (SELECT max(p) FROM unnest(picked) p));
        -- One statement judges, records and returns, so that a token which expires in between cannot fall
        -- through.
        RETURN QUERY
        WITH judged AS MATERIALIZED (
            SELECT
                v.*,
                forbidden IS NOT NULL AND position(forbidden IN v.email || v.login) > 0 AS unspeakable
            FROM @extschema@._token_verdicts v
            WHERE v.token_id = ANY (picked)
        ), routed AS MATERIALIZED (
            SELECT d.action, @extschema@._route(d.action::text) AS transport
            FROM (SELECT DISTINCT j.action FROM judged j WHERE NOT j.eligible OR j.unspeakable) d
        ), recorded AS (
            INSERT INTO @extschema@.outbox
                (kind, transport, token_id, account_id, recipients, data, state, expires_at, last_error, ended_at)
            SELECT
                j.action::text, (SELECT r.transport FROM routed r WHERE r.action = j.action), j.token_id, j.account_id, ARRAY[@extschema@._printable(j.email::text)],
                jsonb_build_object('login', j.login),
                coalesce(j.final, 'error'), j.expires_at,
                coalesce(j.reason, 'email or login contains a character the line protocol cannot carry'),
                now()
            FROM judged j
            WHERE NOT j.eligible OR j.unspeakable
        )
        SELECT
            j.token_id, j.action, j.email, j.login,
            @extschema@._sign(j.action::text, j.secret::bytea, j.code::text), j.code
        FROM judged j
        WHERE j.eligible AND NOT j.unspeakable
        ORDER BY j.action DESC, j.token_id;
        GET DIAGNOSTICS part = ROW_COUNT;
        got := got + part;
        EXIT WHEN got >= wanted OR cardinality(picked) < asked;
    END LOOP;
    IF highest IS NOT NULL THEN
        PERFORM @extschema@._note_progress(highest);
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._dequeue(integer, text) IS
    'Internal. mailroom_dequeue; rows whose email or login contains the forbidden character end as error.';

CREATE FUNCTION @extschema@.mailroom_dequeue(batch_limit integer DEFAULT NULL)
RETURNS TABLE (action @extschema@.token_action, email text, login text, secret text, code text)
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT d.action, d.email, d.login, d.secret, d.code
    FROM @extschema@._dequeue(batch_limit, NULL::text) d
$$;
COMMENT ON FUNCTION @extschema@.mailroom_dequeue(integer) IS
    'Hands out up to batch_limit (default mailroom.batch_limit) tokens, password recoveries first, then by id; secret is the signed token. ROLLBACK returns them. Tokens that expired, were consumed or whose account is not eligible are not handed out and do not count: they end in outbox with the reason. Fewer rows than asked for: the queue is empty. Errors: 22023 for a batch_limit below 1; 58P01 and F0000 when there is no good key file; 55000 while a dump is being restored.';

CREATE FUNCTION @extschema@.mailroom_dequeue_line(batch_limit integer DEFAULT NULL) RETURNS text
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(
        concat_ws(',', CASE d.action WHEN 'activation' THEN 1 ELSE 2 END, d.email, d.login, d.secret, d.code),
        ',' ORDER BY d.action DESC, d.token_id
    )
    FROM @extschema@._dequeue(batch_limit, ','::text) d
$$;
COMMENT ON FUNCTION @extschema@.mailroom_dequeue_line(integer) IS
    'The batch of mailroom_dequeue as one line: action,email,login,secret,code and so on, action 1 for activation and 2 for password_recovery; NULL when the queue is empty. A token whose email or login contains a comma ends in outbox as error: it would shift every field after it. Errors: 22023 for a batch_limit below 1; 58P01 and F0000 when there is no good key file; 55000 while a dump is being restored.';

CREATE FUNCTION @extschema@._enqueue(tokens bigint[], OUT collected integer, OUT skipped integer)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    WITH routed AS MATERIALIZED (
        SELECT a.action, @extschema@._route(a.action::text) AS transport
        FROM unnest(enum_range(NULL::@extschema@.token_action)) a (action)
    ), put AS (
        INSERT INTO @extschema@.outbox
            (message_id, kind, transport, token_id, account_id, recipients, data, secrets, priority, state, expires_at, last_error, ended_at)
        SELECT
            @extschema@._message_id(), v.action::text, (SELECT r.transport FROM routed r WHERE r.action = v.action), v.token_id, v.account_id, ARRAY[v.email],
            jsonb_build_object('login', v.login),
            -- Signed here, so that no signed token is a variable or a parameter of anything (I7).
            CASE WHEN v.eligible THEN @extschema@._secrets(v.action::text, v.secret, v.code) END,
            CASE v.action WHEN 'password_recovery' THEN @extschema@._urgent_priority() ELSE 0 END,
            coalesce(v.final, 'scheduled'), v.expires_at, v.reason,
            CASE WHEN NOT v.eligible THEN now() END
        FROM @extschema@._token_verdicts v
        WHERE v.token_id = ANY (tokens)
        ORDER BY v.action DESC, v.token_id
        RETURNING state
    )
    SELECT count(*) FILTER (WHERE state = 'scheduled') INTO collected FROM put;
    -- Tokens that are gone altogether count as skipped too.
    skipped := cardinality(tokens) - collected;
END;
$$;
COMMENT ON FUNCTION @extschema@._enqueue(bigint[]) IS
    'Internal. Writes the outbox rows of these tokens: signed and scheduled, or final with the reason.';

CREATE FUNCTION @extschema@._enqueue_singly(
    tokens bigint[],
    OUT collected integer,
    OUT skipped integer,
    OUT failed bigint[],
    OUT states text[],
    OUT reasons text[]
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    one bigint;
    part record;
BEGIN
    collected := 0;
    skipped := 0;
    failed := '{}';
    states := '{}';
    reasons := '{}';
    FOREACH one IN ARRAY tokens LOOP
        BEGIN
            SELECT e.collected, e.skipped INTO part FROM @extschema@._enqueue(ARRAY[one]) e;
            collected := collected + part.collected;
            skipped := skipped + part.skipped;
        EXCEPTION
            WHEN OTHERS THEN
                IF NOT @extschema@._is_row_at_fault(SQLSTATE) THEN
                    RAISE;
                END IF;
                IF EXISTS (SELECT FROM @extschema@._token_verdicts v WHERE v.token_id = one AND v.eligible) THEN
                    failed := failed || one;
                    states := states || SQLSTATE::text;
                    reasons := reasons || SQLERRM;
                ELSE
                    -- It is of no use any more, so there is nothing to wait for.
                    PERFORM @extschema@._give_up(one, SQLSTATE, SQLERRM);
                    skipped := skipped + 1;
                END IF;
        END;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._enqueue_singly(bigint[]) IS
    'Internal. As _enqueue, a token at a time; returns those that failed, each with its SQLSTATE and reason.';

CREATE FUNCTION @extschema@._give_up(failed bigint, failed_with text, failed_for text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    address text;
BEGIN
    -- The address itself may be what is refused; then the account tells whose mail it was.
    FOREACH address IN ARRAY ARRAY[NULL, '?'] LOOP
        BEGIN
            INSERT INTO @extschema@.outbox
                (kind, token_id, account_id, recipients, state, expires_at, last_error, ended_at)
            SELECT
                v.action::text, v.token_id, v.account_id,
                ARRAY[coalesce(address, @extschema@._printable(v.email::text))], 'error', v.expires_at,
                format('%s (SQLSTATE %s)', failed_for, failed_with), now()
            FROM @extschema@._token_verdicts v
            WHERE v.token_id = failed;
            RETURN;
        EXCEPTION
            WHEN OTHERS THEN
                IF address IS NOT NULL OR NOT @extschema@._is_row_at_fault(SQLSTATE) THEN
                    RAISE;
                END IF;
        END;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._give_up(bigint, text, text) IS
    'Internal. Ends a token that cannot be written to the outbox as an error row with the reason (I8).';

CREATE FUNCTION @extschema@._collect(
    batch_limit integer,
    skip_limit integer,
    OUT collected integer,
    OUT skipped integer
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted CONSTANT integer := coalesce(batch_limit, @extschema@._batch_limit());
    -- So many failures without a single success are enough to tell that it is not the rows.
    patience CONSTANT integer := 1000;
    asked integer;
    picked bigint[];
    highest bigint;
    part record;
    failed bigint[] := ARRAY[]::bigint[];
    states text[] := ARRAY[]::text[];
    reasons text[] := ARRAY[]::text[];
BEGIN
    IF wanted < 1 THEN
        PERFORM @extschema@._refuse_batch_limit(wanted, NULL::text);
    END IF;
    collected := 0;
    skipped := 0;
    LOOP
        asked := wanted - collected;
        picked := @extschema@._pick(asked);
        EXIT WHEN cardinality(picked) = 0;
        highest := greatest(highest, (SELECT max(p) FROM unnest(picked) p));
        BEGIN
            SELECT e.collected, e.skipped INTO part FROM @extschema@._enqueue(picked) e;
            collected := collected + part.collected;
            skipped := skipped + part.skipped;
        EXCEPTION
            WHEN OTHERS THEN
                IF NOT @extschema@._is_row_at_fault(SQLSTATE) THEN
                    RAISE;
                END IF;
                SELECT e.* INTO part FROM @extschema@._enqueue_singly(picked) e;
                failed := failed || part.failed;
                states := states || part.states;
                reasons := reasons || part.reasons;
                collected := collected + part.collected;
                skipped := skipped + part.skipped;
        END;
        EXIT WHEN collected >= wanted
            OR cardinality(picked) < asked
            OR skipped >= skip_limit
            OR cardinality(failed) >= patience;
    END LOOP;
    -- Bad rows are passed over until a good one shows that there is a difference. Where none does, it is not
    -- the rows: then all of this is rolled back, to be tried again.
    IF collected = 0 AND cardinality(failed) > 1 THEN
        RAISE EXCEPTION USING
            ERRCODE = states[1],
            MESSAGE = reasons[1],
            DETAIL = format('None of %s tokens could be written to the outbox.', cardinality(failed)),
            HINT = 'Look for triggers or constraints that were added to the outbox.';
    END IF;
    FOR i IN 1 .. cardinality(failed) LOOP
        PERFORM @extschema@._give_up(failed[i], states[i], reasons[i]);
        skipped := skipped + 1;
    END LOOP;
    IF highest IS NOT NULL THEN
        PERFORM @extschema@._note_progress(highest);
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._collect(integer, integer) IS
    'Internal. mailroom_collect; gives up early once so many tokens were skipped (NULL: never), so that one transaction stays short.';

CREATE FUNCTION @extschema@.mailroom_collect(batch_limit integer DEFAULT NULL) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Before rows of the queue are: TRUNCATE locks in this order.
    PERFORM @extschema@._lock_sources(true);
    RETURN (SELECT c.collected FROM @extschema@._collect(batch_limit, NULL::integer) c);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_collect(integer) IS
    'Moves up to batch_limit (default mailroom.batch_limit) tokens from pending to signed rows of outbox and returns how many became scheduled. Tokens that are no longer eligible become final rows with the reason and do not count. Fewer than asked for: the queue is empty. Errors: 22023 for a batch_limit below 1; 58P01 and F0000 when there is no good key file; 55000 while a dump is being restored.';
