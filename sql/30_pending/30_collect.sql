-- Collect: tokens leave pending and become signed rows of the outbox.
--
-- Called by the worker (60_worker/30_batch.sql) or any other member of mailroom_collector; takes rows as 20_dequeue.sql
-- does. Invariants: a token is signed inside the INSERT that stores it, so that no signed token is a variable or a
-- parameter (I7); a token that cannot be written ends as an error row with its reason, and the rest of its batch goes
-- on (I8).

CREATE FUNCTION @extschema@._insert_outbox(tokens bigint[], OUT collected integer, OUT skipped integer)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    WITH put AS (
        INSERT INTO @extschema@.outbox
            (message_id, kind, transport, token_id, account_id, recipients, data, secrets, priority, state, expires_at, last_error, ended_at)
        SELECT
            @extschema@._message_id(), v.action::text,
            -- Each route is asked for once, when the first such token comes.
            CASE v.action
                WHEN 'activation' THEN (SELECT @extschema@._route('activation'::text))
                ELSE (SELECT @extschema@._route('password_recovery'::text))
            END,
            v.token_id, v.account_id, ARRAY[CASE WHEN v.eligible THEN v.email ELSE @extschema@._visible(v.email) END],
            jsonb_build_object('login', v.login),
            -- Signed here, so that no signed token is a variable or a parameter (I7).
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
    -- Deleted tokens count as skipped too.
    skipped := cardinality(tokens) - collected;
END;
$$;
COMMENT ON FUNCTION @extschema@._insert_outbox(bigint[]) IS
    'Internal. Inserts the outbox rows of these tokens: signed and scheduled, or final with the reason. A token that has live mail violates its unique index.';

CREATE FUNCTION @extschema@._insert_outbox_one_by_one(
    tokens bigint[],
    OUT collected integer,
    OUT skipped integer,
    OUT failed bigint[],
    OUT states text[],
    OUT reasons text[]
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
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
            SELECT e.collected, e.skipped INTO part FROM @extschema@._insert_outbox(ARRAY[one]) e;
            collected := collected + part.collected;
            skipped := skipped + part.skipped;
        EXCEPTION
            WHEN OTHERS THEN
                IF NOT @extschema@._may_pass_by(SQLSTATE) THEN
                    RAISE;
                END IF;
                IF EXISTS (SELECT FROM @extschema@.outbox l WHERE l.token_id = local.one AND l.state IN ('scheduled', 'claimed')) THEN
                    -- Its mail was retried after the token became pending again: one mail with the link is enough.
                    skipped := skipped + 1;
                ELSIF EXISTS (SELECT FROM @extschema@._token_verdicts v WHERE v.token_id = one AND v.eligible) THEN
                    failed := failed || one;
                    states := states || SQLSTATE::text;
                    reasons := reasons || @extschema@._mask_error(SQLERRM);
                ELSE
                    -- The token can no longer be used, so it is not retried.
                    PERFORM @extschema@._fail_token(one, SQLSTATE, @extschema@._mask_error(SQLERRM));
                    skipped := skipped + 1;
                END IF;
        END;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._insert_outbox_one_by_one(bigint[]) IS
    'Internal. As _insert_outbox, one token at a time; also returns those that failed, each with its SQLSTATE and reason.';

CREATE FUNCTION @extschema@._fail_token(failed bigint, failed_with text, failed_for text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    address text;
BEGIN
    -- The address itself may be the reason for the error; the row then names only the account.
    FOREACH address IN ARRAY ARRAY[NULL, '?'] LOOP
        BEGIN
            INSERT INTO @extschema@.outbox
                (kind, token_id, account_id, recipients, state, expires_at, last_error, ended_at)
            SELECT
                v.action::text, v.token_id, v.account_id,
                ARRAY[coalesce(address, @extschema@._visible(v.email::text))], 'error', v.expires_at,
                format('%s (SQLSTATE %s)', failed_for, failed_with), now()
            FROM @extschema@._token_verdicts v
            WHERE v.token_id = failed;
            RETURN;
        EXCEPTION
            WHEN OTHERS THEN
                -- A token whose failure cannot be recorded is not dropped: all wait until the cause is removed (I1).
                IF address IS NOT NULL OR NOT @extschema@._may_pass_by(SQLSTATE) THEN
                    RAISE;
                END IF;
        END;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._fail_token(bigint, text, text) IS
    'Internal. Inserts the error row of a token that cannot be written to the outbox otherwise (I8).';

-- Long because failures are counted over all iterations, and judged after the last one.
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
    -- This many failures without a success show that the rows are not the cause.
    failure_limit CONSTANT integer := 1000;
    asked integer;
    picked bigint[];
    highest bigint;
    part record;
    failed bigint[] := ARRAY[]::bigint[];
    states text[] := ARRAY[]::text[];
    reasons text[] := ARRAY[]::text[];
    hint text;
BEGIN
    IF wanted < 1 THEN
        PERFORM @extschema@._refuse_batch_limit(wanted, NULL::text);
    END IF;
    collected := 0;
    skipped := 0;
    LOOP
        asked := wanted - collected;
        picked := @extschema@._delete_pending(asked);
        EXIT WHEN cardinality(picked) = 0;
        highest := greatest(highest, (SELECT max(p) FROM unnest(picked) p));
        BEGIN
            SELECT e.collected, e.skipped INTO part FROM @extschema@._insert_outbox(picked) e;
            collected := collected + part.collected;
            skipped := skipped + part.skipped;
        EXCEPTION
            WHEN OTHERS THEN
                IF NOT @extschema@._may_pass_by(SQLSTATE) THEN
                    RAISE;
                END IF;
                GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
                SELECT e.* INTO part FROM @extschema@._insert_outbox_one_by_one(picked) e;
                failed := failed || part.failed;
                states := states || part.states;
                reasons := reasons || part.reasons;
                collected := collected + part.collected;
                skipped := skipped + part.skipped;
        END;
        EXIT WHEN collected >= wanted
            OR cardinality(picked) < asked
            -- Those that failed need a good one, which tells what is the cause.
            OR (skipped >= skip_limit AND (cardinality(failed) = 0 OR collected > 0))
            OR cardinality(failed) >= failure_limit;
    END LOOP;
    -- Bad rows are skipped until a good one shows that the rows are the cause. If no row can be written, everything is
    -- rolled back and retried later.
    IF collected = 0 AND (cardinality(failed) > 1 OR NOT @extschema@._is_row_at_fault(states[1])) THEN
        RAISE EXCEPTION USING
            ERRCODE = states[1],
            MESSAGE = reasons[1],
            DETAIL = format('None of %s tokens could be written to the outbox.', cardinality(failed)),
            -- Of an unreadable key file, for example.
            HINT = coalesce(@extschema@._mask_error(nullif(hint, '')), 'Look for triggers, policies or constraints that were added to the outbox.');
    END IF;
    FOR i IN 1 .. cardinality(failed) LOOP
        PERFORM @extschema@._fail_token(failed[i], states[i], reasons[i]);
        skipped := skipped + 1;
    END LOOP;
    IF highest IS NOT NULL THEN
        PERFORM @extschema@._note_progress(highest);
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._collect(integer, integer) IS
    'Internal. As mailroom_collect, but stops once skip_limit tokens were skipped (NULL: never), so that one transaction stays short.';

CREATE FUNCTION @extschema@.mailroom_collect(batch_limit integer DEFAULT NULL) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Before rows of the queue are locked: TRUNCATE locks in this order.
    PERFORM @extschema@._lock_accounts_and_tokens(true);
    RETURN (SELECT c.collected FROM @extschema@._collect(batch_limit, NULL::integer) c);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_collect(integer) IS
    'Moves up to batch_limit tokens (default mailroom.batch_limit) from pending to the outbox, signed, and returns how many became scheduled. Fewer than asked for means that the queue is empty.';
