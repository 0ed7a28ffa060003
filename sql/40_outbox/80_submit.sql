-- Submitting: messages become rows of the outbox, in the caller's transaction.
--
-- mailroom_send and mailroom_send_many (90_send.sql) call _submit, which inserts through _new_mail and replaces through
-- _own_changes (70_own_mail.sql). Invariants: an item_key of a role is in one live row at most, also when sessions race for it;
-- every reason against a message is found before anything is written.

CREATE FUNCTION @extschema@._refuse(ordinal integer, code text, what text, reason text, remedy text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = code,
        MESSAGE = CASE WHEN ordinal < 0 THEN 'message' ELSE format('messages[%s]', ordinal) END || ' cannot be scheduled'
            || coalesce(': ' || what, ''),
        DETAIL = reason || '.',
        HINT = coalesce(remedy, 'The reference describes the arguments of mailroom_send.');
END;
$$;
COMMENT ON FUNCTION @extschema@._refuse(integer, text, text, text, text) IS
    'Internal. Raises the error for a message that cannot be scheduled.';

CREATE FUNCTION @extschema@._insert_mail(messages @extschema@._message[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ids bigint[];
BEGIN
    WITH routed AS MATERIALIZED (
        SELECT d.kind, @extschema@._route(d.kind) AS transport
        FROM (SELECT DISTINCT (m.mail).kind FROM unnest(messages) m WHERE m.transport IS NULL) d
    ), put AS (
        INSERT INTO @extschema@._new_mail
        SELECT (m.mail).*, coalesce(m.transport, r.transport)
        FROM unnest(messages) m
        LEFT JOIN routed r ON r.kind = (m.mail).kind
        ORDER BY m.ordinal
        RETURNING id, message_id
    )
    SELECT array_agg(p.id ORDER BY m.ordinal)
    INTO ids
    FROM unnest(messages) m
    -- A trigger of the application may have kept a row out.
    LEFT JOIN put p ON p.message_id = (m.mail).message_id;
    RETURN ids;
END;
$$;
COMMENT ON FUNCTION @extschema@._insert_mail(@extschema@._message[]) IS
    'Internal. Inserts these messages into the outbox and returns their ids by ordinal, NULL for one that a trigger of the application kept out; raises unique_violation if an item_key or a message_id is taken.';

-- Long because the rules of idempotency and of item_key decide together about each message, in rounds.
CREATE FUNCTION @extschema@._submit(messages @extschema@._message[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    todo @extschema@._message[] := messages;
    unknown @extschema@._message[] := messages;
    bad record;
    repeatable uuid[] := ARRAY(SELECT (m.mail).message_id FROM unnest(messages) m WHERE m.is_repeatable);
    known uuid[];
    keys text[];
    holders jsonb;
    replaced bigint[];
    chosen @extschema@._message[];
    violated text;
    done integer[] := ARRAY[]::integer[];
    ids bigint[] := ARRAY[]::bigint[];
    done_before integer;
    idle_rounds integer := 0;
BEGIN
    IF cardinality(repeatable) > 0 THEN
        -- A call that is repeated returns the id of its mail, even if it would be refused by now: because of the time, its
        -- template, or its transport.
        known := ARRAY(SELECT s.message_id FROM @extschema@._scheduled(repeatable) s);
        unknown := ARRAY(
            SELECT m
            FROM unnest(messages) m
            WHERE NOT m.is_repeatable
               OR NOT EXISTS (SELECT FROM unnest(known) k (message_id) WHERE k.message_id = (m.mail).message_id)
        );
    END IF;
    SELECT m.ordinal, r.code, r.reason, r.remedy
    INTO bad
    FROM unnest(unknown) m
    CROSS JOIN LATERAL (
        SELECT
            1,
            '22P02'::text,
            @extschema@._bad_address(m.mail),
            'An address is local@domain, without a name; several are separated by commas.'
        UNION ALL
        SELECT
            2,
            '22023'::text,
            coalesce(
                @extschema@._recipients_problem(m.mail),
                @extschema@._message_problem(m.mail),
                CASE
                    WHEN m.on_conflict NOT IN ('error', 'ignore', 'replace')
                        THEN format('on_conflict is "%s", not error, ignore or replace', m.on_conflict)
                END
            ),
            NULL
        UNION ALL
        SELECT
            3,
            '42704'::text,
            CASE WHEN NOT @extschema@._knows_transport(m.transport) THEN format('There is no transport "%s"', m.transport) END,
            'Transports are listed in mailroom_transports and in routes; leave it out for that of the kind.'
        WHERE m.transport IS NOT NULL
        UNION ALL
        SELECT
            4,
            'P0002'::text,
            @extschema@._contents_problem((m.mail).subject, (m.mail).body_text, (m.mail).body_html, (m.mail).kind, (m.mail).data),
            'Pass subject and body_text or body_html, or insert a row into templates.'
    ) r (place, code, reason, remedy)
    WHERE r.reason IS NOT NULL
    ORDER BY m.ordinal, r.place
    LIMIT 1;
    IF FOUND THEN
        PERFORM @extschema@._refuse(bad.ordinal, bad.code, NULL::text, bad.reason, bad.remedy);
    END IF;

    LOOP
        done_before := cardinality(done);
        repeatable := ARRAY(SELECT (m.mail).message_id FROM unnest(todo) m WHERE m.is_repeatable);
        IF cardinality(repeatable) > 0 THEN
            SELECT m.ordinal, (m.mail).message_id, s.id
            INTO bad
            FROM unnest(todo) m
            JOIN @extschema@._scheduled(repeatable) s ON s.message_id = (m.mail).message_id
            WHERE NOT @extschema@._is_callers_role(s.enqueued_by, current_user)
            ORDER BY m.ordinal
            LIMIT 1;
            IF FOUND THEN
                PERFORM @extschema@._refuse(
                    bad.ordinal, '42501'::text, format('message_id %s is taken by another role', bad.message_id),
                    format('It is that of mail %s', bad.id),
                    'Use another message_id.'::text
                );
            END IF;
            SELECT done || coalesce(array_agg(m.ordinal), '{}'), ids || coalesce(array_agg(s.id), '{}')
            INTO done, ids
            FROM unnest(todo) m
            JOIN @extschema@._scheduled(repeatable) s ON s.message_id = (m.mail).message_id;
            todo := ARRAY(SELECT m FROM unnest(todo) m WHERE m.ordinal <> ALL (done));
        END IF;
        keys := ARRAY(SELECT DISTINCT (m.mail).item_key FROM unnest(todo) m WHERE (m.mail).item_key IS NOT NULL);
        IF cardinality(keys) > 0 THEN
            holders := (SELECT jsonb_agg(k) FROM @extschema@._own_item_keys k WHERE k.item_key = ANY (keys));
        END IF;
        IF holders IS NOT NULL THEN
            -- A holder that has expired cannot be sent any more and gives the key up with each on_conflict.
            SELECT m.ordinal, (m.mail).item_key, m.on_conflict, l.id
            INTO bad
            FROM unnest(todo) m
            JOIN jsonb_to_recordset(holders) l (item_key text, id bigint, state text, has_expired boolean)
                ON l.item_key = (m.mail).item_key
            WHERE (m.on_conflict = 'error' AND NOT l.has_expired)
               OR (m.on_conflict = 'replace' AND l.state = 'claimed')
            ORDER BY m.ordinal
            LIMIT 1;
            IF FOUND AND bad.on_conflict = 'error' THEN
                PERFORM @extschema@._refuse(
                    bad.ordinal, '23505'::text, format('item_key "%s" is taken', bad.item_key),
                    format('Mail %s has it and is still to be sent', bad.id),
                    'Pass on_conflict => ''ignore'' to leave that mail as it is, or ''replace'' to send this one instead.'::text
                );
            ELSIF FOUND THEN
                PERFORM @extschema@._refuse(
                    bad.ordinal, '55006'::text, format('item_key "%s" is being sent', bad.item_key),
                    format('Mail %s has it and is claimed', bad.id),
                    'Try again when that mail has been sent, or use another item_key.'::text
                );
            END IF;

            SELECT done || coalesce(array_agg(m.ordinal), '{}'), ids || coalesce(array_agg(l.id), '{}')
            INTO done, ids
            FROM unnest(todo) m
            JOIN jsonb_to_recordset(holders) l (item_key text, id bigint, has_expired boolean) ON l.item_key = (m.mail).item_key
            WHERE m.on_conflict = 'ignore'
              AND NOT l.has_expired
              -- Unless the mail with the key is about to be replaced.
              AND NOT EXISTS (SELECT FROM unnest(todo) r WHERE (r.mail).item_key = (m.mail).item_key AND r.on_conflict = 'replace');

            replaced := ARRAY(
                SELECT DISTINCT l.id
                FROM unnest(todo) m
                JOIN jsonb_to_recordset(holders) l (item_key text, id bigint, has_expired boolean) ON l.item_key = (m.mail).item_key
                WHERE m.on_conflict = 'replace'
                   OR l.has_expired
            );
            IF replaced <> '{}' THEN
                -- If one of them was claimed or sent meanwhile, none is replaced, and the next round finds what is now.
                INSERT INTO @extschema@._own_changes (ids, change) VALUES (replaced, 'replace');
            END IF;
        END IF;

        IF cardinality(keys) = 0 AND cardinality(repeatable) = 0 THEN
            done := done || ARRAY(SELECT m.ordinal FROM unnest(todo) m ORDER BY m.ordinal);
            ids := ids || @extschema@._insert_mail(todo);
        ELSE
            -- The first of several messages with one item_key or message_id; the next round finds it.
            chosen := ARRAY(
                SELECT c.message
                FROM (
                    SELECT
                        m AS message, m.ordinal,
                        (m.mail).item_key IS NULL OR row_number() OVER (PARTITION BY (m.mail).item_key ORDER BY m.ordinal) = 1 AS has_key,
                        row_number() OVER (PARTITION BY (m.mail).message_id ORDER BY m.ordinal) = 1 AS has_message_id
                    FROM unnest(todo) m
                    WHERE NOT EXISTS (SELECT FROM unnest(done) d WHERE d = m.ordinal)
                ) c
                WHERE c.has_key
                  AND c.has_message_id
                ORDER BY c.ordinal
            );
            BEGIN
                -- INSERT waits here for a session that is taking the same key, as for any unique key. Not ON CONFLICT:
                -- through a view, it finds no partial index before the minor releases of August 2024.
                ids := ids || @extschema@._insert_mail(chosen);
                done := done || ARRAY(SELECT m.ordinal FROM unnest(chosen) m ORDER BY m.ordinal);
            EXCEPTION
                WHEN unique_violation THEN
                    GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME;
                    IF violated NOT IN ('outbox_live_item_key', 'outbox_message_id_key') THEN
                        RAISE;
                    ELSIF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
                        -- Keys whose holders this transaction can see were handled above.
                        RAISE serialization_failure USING
                            MESSAGE = 'could not serialize access due to concurrent update',
                            DETAIL = 'An item_key or a message_id was taken after this transaction began.',
                            HINT = 'Try the transaction again.';
                    END IF;
            END;
        END IF;

        EXIT WHEN cardinality(done) = cardinality(messages);
        -- Of several messages with one item_key, each round schedules the next. A round that schedules nothing found a
        -- key taken by another session, or by mail that stays.
        idle_rounds := CASE WHEN cardinality(done) > done_before THEN 0 ELSE idle_rounds + 1 END;
        IF idle_rounds >= 100 THEN
            RAISE object_in_use USING
                MESSAGE = 'messages cannot be scheduled',
                DETAIL = 'An item_key is held by mail that cannot be replaced.',
                HINT = 'Use another item_key, or cancel that mail first.';
        END IF;
        -- The rest found their keys taken: look for the holders again.
        todo := ARRAY(
            SELECT m
            FROM unnest(todo) m
            WHERE NOT EXISTS (SELECT FROM unnest(done) d WHERE d = m.ordinal)
        );
    END LOOP;
    RETURN ARRAY(SELECT i.id FROM unnest(done, ids) i (ordinal, id) ORDER BY i.ordinal);
END;
$$;
COMMENT ON FUNCTION @extschema@._submit(@extschema@._message[]) IS
    'Internal. Schedules these messages and returns their ids in the same order.';
