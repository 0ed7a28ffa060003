-- Submitting: messages become rows of the outbox, in the caller's transaction.
--
-- mailroom_send and mailroom_send_many (90_send.sql) call _checked and _insert_mail; _submit does both for messages with an
-- item_key or a message_id of the caller's, and decides what becomes of those whose key is taken. New mail goes through
-- _new_mail, what it replaces through _own_changes (70_own_mail.sql). Invariants: an item_key of a role is in one live row
-- at most, also when sessions race for it; every reason against a message is found before anything is written.

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

CREATE FUNCTION @extschema@._checked(message @extschema@._message) RETURNS @extschema@._message
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    mail CONSTANT @extschema@._mail := message.mail;
    problem CONSTANT text[] := coalesce(
        @extschema@._mail_problem(mail),
        CASE
            WHEN message.on_conflict NOT IN ('error', 'ignore', 'replace')
                THEN ARRAY['22023', format('on_conflict is "%s", not error, ignore or replace', message.on_conflict), NULL]
            WHEN message.transport IS NOT NULL AND NOT @extschema@._knows_transport(message.transport)
                THEN ARRAY[
                    '42704', format('There is no transport "%s"', message.transport),
                    'Transports are listed in mailroom_transports and in routes; leave it out for that of the kind.'
                ]
            WHEN mail.subject IS NULL OR (mail.body_text IS NULL AND mail.body_html IS NULL)
                THEN array_replace(
                    ARRAY[
                        'P0002', @extschema@._contents_problem(mail.subject, mail.body_text, mail.body_html, mail.kind, mail.data),
                        'Pass subject and body_text or body_html, or insert a row into templates.'
                    ],
                    NULL, ''
                )
        END
    );
BEGIN
    IF problem[2] <> '' THEN
        PERFORM @extschema@._refuse(message.ordinal, problem[1], NULL::text, problem[2], problem[3]);
    END IF;
    RETURN message;
END;
$$;
COMMENT ON FUNCTION @extschema@._checked(@extschema@._message) IS
    'Internal. The message itself; raises the reason for which it cannot be scheduled, apart from its keys.';

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
        SELECT (m.mail).*, coalesce(m.transport, (SELECT r.transport FROM routed r WHERE r.kind = (m.mail).kind))
        FROM unnest(messages) m
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
    'Internal. Inserts these messages, which are in the order of ordinal, into the outbox and returns their ids, NULL for one that a trigger of the application kept out; raises unique_violation if an item_key or a message_id is taken.';

CREATE FUNCTION @extschema@._item_key_holders(keys text[])
RETURNS TABLE (item_key text, id bigint, is_claimed boolean, has_expired boolean)
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
    SELECT h.item_key, h.id, h.state = 'claimed', h.has_expired
    FROM @extschema@._own_item_keys h
    WHERE h.item_key = ANY ($1)
$$;
COMMENT ON FUNCTION @extschema@._item_key_holders(text[]) IS
    'Internal. The live mails of the current user with these item_keys.';

CREATE FUNCTION @extschema@._decided(messages @extschema@._message[])
RETURNS TABLE (ordinal integer, leader integer, holder bigint, problem text, item_key text, message_id uuid)
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    -- A join of two arrays, of which there are no statistics, could take quadratic time.
    SET enable_nestloop = off
    SET jit = off
AS $$
    WITH todo AS MATERIALIZED (
        SELECT
            m.ordinal, m.on_conflict, (m.mail).item_key, (m.mail).message_id, m.mail,
            first_value(m.ordinal) OVER same_id AS original,
            first_value(m.mail) OVER same_id AS original_mail
        FROM unnest($1) m
        WINDOW same_id AS (PARTITION BY (m.mail).message_id ORDER BY m.ordinal)
    ), keys AS MATERIALIZED (
        SELECT
            t.item_key,
            min(t.ordinal) AS earliest,
            max(t.ordinal) FILTER (WHERE t.on_conflict = 'replace') AS replacing
        FROM todo t
        WHERE t.item_key IS NOT NULL
          AND t.ordinal = t.original
        GROUP BY t.item_key
    )
    SELECT
        t.ordinal,
        CASE
            WHEN t.item_key IS NULL THEN t.original
            -- The last one that replaces counts.
            ELSE coalesce(k.replacing, CASE WHEN h.id IS NULL OR h.has_expired THEN k.earliest END)
        END,
        h.id,
        CASE
            WHEN t.ordinal <> t.original THEN
                CASE WHEN @extschema@._contents(t.mail) IS DISTINCT FROM @extschema@._contents(t.original_mail) THEN 'message_id' END
            WHEN t.on_conflict = 'error' AND t.ordinal <> k.earliest THEN 'double'
            -- A holder that has expired cannot be sent any more and gives the key up with each on_conflict.
            WHEN t.on_conflict = 'error' AND NOT h.has_expired THEN 'item_key'
            WHEN t.on_conflict = 'replace' AND h.is_claimed THEN 'claimed'
        END,
        t.item_key,
        t.message_id
    FROM todo t
    LEFT JOIN keys k ON k.item_key = t.item_key
    LEFT JOIN @extschema@._item_key_holders(ARRAY(SELECT u.item_key FROM keys u)) h ON h.item_key = t.item_key
    ORDER BY t.ordinal
$$;
COMMENT ON FUNCTION @extschema@._decided(@extschema@._message[]) IS
    'Internal. For each of these messages, by ordinal: the message that is scheduled for it, if any, the live mail that has its item_key, and what is wrong: message_id, double, item_key or claimed.';

-- Long because what is wrong with a key has an error of its own.
CREATE FUNCTION @extschema@._refuse_key(ordinal integer, problem text, holder bigint, item_key text, message_id uuid) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    CASE problem
        WHEN 'role' THEN
            PERFORM @extschema@._refuse(
                ordinal, '42501'::text, format('message_id %s is taken by another role', message_id),
                format('It is that of mail %s', holder),
                'Use another message_id.'::text
            );
        WHEN 'message_id' THEN
            PERFORM @extschema@._refuse(
                ordinal, '23505'::text, format('message_id %s is taken', message_id),
                coalesce(format('Mail %s', holder), 'Another of these messages')
                    || ' has it, with other addresses, subject, bodies, kind or data',
                'Use another message_id, or repeat the call with the same contents.'::text
            );
        WHEN 'double' THEN
            PERFORM @extschema@._refuse(
                ordinal, '23505'::text, format('item_key "%s" is taken', item_key),
                'Another of these messages has it'::text,
                'Pass on_conflict => ''ignore'' to schedule the first of them, or ''replace'' to schedule the last.'::text
            );
        WHEN 'item_key' THEN
            PERFORM @extschema@._refuse(
                ordinal, '23505'::text, format('item_key "%s" is taken', item_key),
                format('Mail %s has it and is still to be sent', holder),
                'Pass on_conflict => ''ignore'' to leave that mail as it is, or ''replace'' to send this one instead.'::text
            );
        WHEN 'claimed' THEN
            PERFORM @extschema@._refuse(
                ordinal, '55006'::text, format('item_key "%s" is being sent', item_key),
                format('Mail %s has it and is claimed', holder),
                'Try again when that mail has been sent, or use another item_key.'::text
            );
    END CASE;
END;
$$;
COMMENT ON FUNCTION @extschema@._refuse_key(integer, text, bigint, text, uuid) IS
    'Internal. Raises the error for a message whose message_id or item_key is taken.';

-- Long because a key that another session takes meanwhile has all decided again.
CREATE FUNCTION @extschema@._submit(messages @extschema@._message[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_nestloop = off
    SET jit = off
AS $$
DECLARE
    -- The messages that were scheduled before, by message_id.
    known integer[];
    known_ids bigint[];
    -- What was decided about the others.
    todo @extschema@._message[];
    ordinals integer[];
    leaders integer[];
    holders bigint[];
    chosen integer[];
    replaced bigint[];
    problems bigint;
    bad record;
    ids bigint[];
    violated text;
BEGIN
    IF NOT EXISTS (SELECT FROM unnest(messages) m WHERE m.is_repeatable OR (m.mail).item_key IS NOT NULL) THEN
        RETURN @extschema@._insert_mail(ARRAY(SELECT @extschema@._checked(m) FROM unnest(messages) m));
    END IF;
    FOR turn IN 1 .. 100 LOOP
        SELECT s.ordinal, CASE WHEN p.is_callers THEN 'message_id' ELSE 'role' END AS problem, s.id, s.message_id
        INTO bad
        FROM @extschema@._scheduled(messages) s
        CROSS JOIN LATERAL (SELECT @extschema@._is_callers_role(s.enqueued_by, current_user)) p (is_callers)
        WHERE NOT (s.is_same AND p.is_callers)
        ORDER BY s.ordinal
        LIMIT 1;
        IF FOUND THEN
            PERFORM @extschema@._refuse_key(bad.ordinal, bad.problem, bad.id, NULL::text, bad.message_id);
        END IF;
        -- A call that is repeated returns the id of its mail, even if it would be refused by now: because of the time, its
        -- template, or its transport.
        SELECT array_agg(s.ordinal), array_agg(s.id) INTO known, known_ids FROM @extschema@._scheduled(messages) s;
        todo := ARRAY(
            SELECT CASE turn WHEN 1 THEN @extschema@._checked(m) ELSE m END
            FROM unnest(messages) m
            WHERE NOT EXISTS (SELECT FROM unnest(known) k (ordinal) WHERE k.ordinal = m.ordinal)
            ORDER BY m.ordinal
        );
        SELECT
            array_agg(d.ordinal), array_agg(d.leader), array_agg(d.holder) , array_agg(d.ordinal) FILTER (WHERE d.leader = d.ordinal),
            array_agg(DISTINCT d.holder) FILTER (WHERE d.leader IS NOT NULL AND d.holder IS NOT NULL), count(d.problem)
        INTO ordinals, leaders, holders, chosen, replaced, problems
        FROM @extschema@._decided(todo) d;
        IF problems > 0 THEN
            SELECT d.* INTO bad FROM @extschema@._decided(todo) d WHERE d.problem IS NOT NULL ORDER BY d.ordinal LIMIT 1;
            CONTINUE WHEN NOT FOUND;
            PERFORM @extschema@._refuse_key(bad.ordinal, bad.problem, bad.holder, bad.item_key, bad.message_id);
        END IF;
        BEGIN
            IF replaced IS NOT NULL THEN
                -- If one of them was claimed or sent meanwhile, none is replaced, and the INSERT finds its key taken or free.
                INSERT INTO @extschema@._own_changes (ids, change) VALUES (replaced, 'replace');
            END IF;
            IF chosen IS NOT NULL THEN
                -- INSERT waits here for a session that is taking the same key, as for any unique key.
                ids := @extschema@._insert_mail(ARRAY(
                    SELECT m FROM unnest(todo) m JOIN unnest(chosen) c (ordinal) ON c.ordinal = m.ordinal ORDER BY m.ordinal
                ));
            END IF;
            RETURN ARRAY(
                SELECT coalesce(k.id, CASE WHEN d.leader IS NULL THEN d.holder ELSE p.id END)
                FROM unnest(messages) m
                LEFT JOIN unnest(known, known_ids) k (ordinal, id) ON k.ordinal = m.ordinal
                LEFT JOIN unnest(ordinals, leaders, holders) d (ordinal, leader, holder) ON d.ordinal = m.ordinal
                LEFT JOIN unnest(chosen, ids) p (ordinal, id) ON p.ordinal = d.leader
                ORDER BY m.ordinal
            );
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
    END LOOP;
    RAISE object_in_use USING
        MESSAGE = 'messages cannot be scheduled',
        DETAIL = 'An item_key is held by mail that cannot be replaced.',
        HINT = 'Use another item_key, or cancel that mail first.';
END;
$$;
COMMENT ON FUNCTION @extschema@._submit(@extschema@._message[]) IS
    'Internal. Schedules these messages, of which some may have keys, and returns their ids in the same order.';
