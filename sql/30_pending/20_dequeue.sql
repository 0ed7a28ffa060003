-- Dequeue: tokens leave pending, signed, into the caller's hands.
--
-- A consumer deletes the rows that it takes in its own transaction and skips those that others have locked: ROLLBACK
-- returns them (I1), two consumers never hold the same one (I2) or wait for each other (I3). What needs
-- no other rights runs with the caller's; 90_privileges/ names the callers. Sequential scans are disabled because statistics of a queue mean
-- nothing: it may be empty or hold a million rows a moment later. Plans are generic for the same reason, and because
-- planning a batch again costs half as much as taking it.

-- With its owner's rights, because a role that may delete rows may also lock the table.
-- Long because the scan that may follow is the same statement.
CREATE FUNCTION @extschema@._delete_pending(wanted integer) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
<<local>>
DECLARE
    sweep boolean;
    part bigint[];
    picked bigint[] := ARRAY[]::bigint[];
    urgent_high bigint;
    normal_high bigint;
BEGIN
    PERFORM @extschema@._refuse_while_restoring();
    sweep := @extschema@._scan_begin('pending'::text);
    LOOP
        WITH urgent AS MATERIALIZED (
            SELECT p.ctid AS place
            FROM @extschema@.pending p
            WHERE p.lane = 0
              AND p.token_id > (SELECT s.id FROM @extschema@._scan_start('pending'::text, 0::smallint) s)
            ORDER BY p.lane, p.token_id
            LIMIT _delete_pending.wanted - cardinality(local.picked)
            FOR UPDATE SKIP LOCKED
        ), normal AS MATERIALIZED (
            SELECT p.ctid AS place
            FROM @extschema@.pending p
            WHERE p.lane = 1
              AND p.token_id > (SELECT s.id FROM @extschema@._scan_start('pending'::text, 1::smallint) s)
            ORDER BY p.lane, p.token_id
            LIMIT _delete_pending.wanted - cardinality(local.picked) - (SELECT count(*) FROM urgent)
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

        PERFORM @extschema@._scan_note('pending'::text, n.lane, '-infinity'::timestamptz, n.high, false)
        FROM (VALUES (0::smallint, urgent_high), (1::smallint, normal_high)) n (lane, high)
        WHERE n.high IS NOT NULL;
        PERFORM @extschema@._scan_end('pending'::text);
        picked := picked || part;
        -- Too few rows after this session's position say nothing about those before it; look there before reporting an
        -- empty queue.
        EXIT WHEN sweep OR cardinality(picked) >= wanted;
        sweep := true;
        PERFORM @extschema@._scan_sweep('pending'::text);
    END LOOP;
    IF picked <> '{}' THEN
        PERFORM @extschema@._took();
    END IF;
    RETURN picked;
END;
$$;
COMMENT ON FUNCTION @extschema@._delete_pending(integer) IS
    'Internal. Deletes up to the given number of rows of pending, urgent ones first, then by token id, and returns their token ids. Fewer than wanted means that only rows that other transactions have locked are left.';

CREATE FUNCTION @extschema@._mask_secrets(error text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- An expression: a statement would have the text as a parameter (I7).
    RETURN left(
        regexp_replace(regexp_replace(left(error, 100000), '[A-Za-z0-9_-]{86}', '[token]', 'g'), E'\\m[0-9]{5}\\M', '[code]', 'g'),
        4000
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._mask_secrets(text) IS
    'Internal. The text of an error, which may quote a mail, without what could be a token or a code; at most 4000 characters.';

CREATE FUNCTION @extschema@._mask_error(error text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- An address of an account has neither spaces nor control characters, but may have any other.
    RETURN regexp_replace(@extschema@._mask_secrets(error), E'[^\\u0001-\\u0020]+@[^\\u0001-\\u0020]+', '[address]', 'g');
END;
$$;
COMMENT ON FUNCTION @extschema@._mask_error(text) IS
    'Internal. As _mask_secrets, and without words that could be an address.';

CREATE FUNCTION @extschema@._record_unusable(ended bigint[], unspeakable bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    problem CONSTANT text := 'email or login contains a character the line protocol cannot carry';
BEGIN
    INSERT INTO @extschema@.outbox
        (kind, transport, token_id, account_id, recipients, data, state, expires_at, last_error, ended_at)
    SELECT
        v.action::text,
        -- As in _insert_outbox, each route is asked for once.
        CASE v.action
            WHEN 'activation' THEN (SELECT @extschema@._route('activation'::text))
            ELSE (SELECT @extschema@._route('password_recovery'::text))
        END,
        v.token_id, v.account_id,
        ARRAY[@extschema@._visible(v.email::text)], jsonb_build_object('login', v.login),
        coalesce(v.final, 'error'), v.expires_at, coalesce(v.reason, problem), now()
    FROM @extschema@._token_verdicts v
    WHERE v.token_id = ANY (ended || unspeakable);
EXCEPTION
    WHEN OTHERS THEN
        IF NOT @extschema@._may_pass_by(SQLSTATE) THEN
            RAISE;
        END IF;
        PERFORM @extschema@._insert_outbox_one_by_one(ended);
        PERFORM @extschema@._fail_token(u.id, '22023'::text, problem) FROM unnest(unspeakable) u (id);
END;
$$;
COMMENT ON FUNCTION @extschema@._record_unusable(bigint[], bigint[]) IS
    'Internal. Records tokens that are not handed out: those that have ended, and those that the line protocol cannot carry. One at a time if the application''s constraints or triggers refuse one of them.';

CREATE FUNCTION @extschema@._dequeue(batch_limit integer, forbidden text)
RETURNS TABLE (token_id bigint, action @extschema@.token_action, email text, login text, secret text, code text)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    wanted CONSTANT integer := coalesce(batch_limit, @extschema@._batch_limit());
    asked integer;
    got integer := 0;
    part integer;
    picked bigint[];
    ended bigint[];
    unspeakable bigint[];
    highest bigint;
BEGIN
    IF wanted < 1 THEN
        PERFORM @extschema@._refuse_batch_limit(wanted, NULL::text);
    END IF;
    -- Before rows of the queue are locked: TRUNCATE locks in this order.
    PERFORM @extschema@._lock_accounts_and_tokens(true);
    LOOP
        asked := wanted - got;
        picked := @extschema@._delete_pending(asked);
        EXIT WHEN cardinality(picked) = 0;
        highest := greatest(highest, (SELECT max(p) FROM unnest(picked) p));
        SELECT
            coalesce(array_agg(v.token_id) FILTER (WHERE NOT v.eligible), '{}'),
            coalesce(array_agg(v.token_id) FILTER (WHERE v.eligible AND position(forbidden IN v.email || v.login) > 0), '{}')
        INTO ended, unspeakable
        FROM @extschema@._token_verdicts v
        WHERE v.token_id = ANY (picked);
        IF ended || unspeakable <> '{}' THEN
            PERFORM @extschema@._record_unusable(ended, unspeakable);
        END IF;
        -- All but those that were recorded, so that a token that has expired in between does not get lost.
        RETURN QUERY
        SELECT
            v.token_id, v.action, v.email, v.login,
            @extschema@._sign(v.action::text, v.secret::bytea, v.code::text), v.code
        FROM @extschema@._token_verdicts v
        WHERE v.token_id = ANY (picked)
          AND v.token_id <> ALL (ended || unspeakable)
        ORDER BY v.action DESC, v.token_id;
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
    'Internal. As mailroom_dequeue, but a row whose email or login contains the forbidden character ends as error.';

CREATE FUNCTION @extschema@.mailroom_dequeue(batch_limit integer DEFAULT NULL)
RETURNS TABLE (action @extschema@.token_action, email text, login text, secret text, code text)
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT d.action, d.email, d.login, d.secret, d.code
    FROM @extschema@._dequeue(batch_limit, NULL::text) d
$$;
COMMENT ON FUNCTION @extschema@.mailroom_dequeue(integer) IS
    'Hands out up to batch_limit signed tokens (default mailroom.batch_limit), password recoveries first, then by id; ROLLBACK returns them. Fewer rows than asked for means that the queue is empty.';

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
    'Returns the batch of mailroom_dequeue as one line: action,email,login,secret,code,..., with action 1 for activation and 2 for password_recovery. NULL means that the queue is empty.';
