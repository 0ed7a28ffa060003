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

CREATE FUNCTION @extschema@._has_attachments(mail bigint, attachments jsonb) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT NOT EXISTS (
        SELECT
        FROM (
            SELECT t.position, t.filename, t.content_type, t.content_id, t.file_id, t.digest
            FROM @extschema@.outbox_attachments t
            WHERE t.outbox_id = $1
        ) a
        FULL JOIN (
            SELECT
                e.ordinality, e.value ->> 'filename' AS filename, e.value ->> 'content_id' AS content_id,
                @extschema@._content_type(e.value ->> 'filename', e.value ->> 'content_type') AS content_type,
                e.value ->> 'file_id' AS file_id,
                coalesce(
                    sha256(@extschema@._decoded(e.value ->> 'content')),
                    (SELECT f.digest FROM @extschema@.outbox_files f WHERE f.id::text = e.value ->> 'file_id')
                ) AS digest
            FROM jsonb_array_elements(CASE jsonb_typeof($2) WHEN 'array' THEN $2 ELSE '[]' END) WITH ORDINALITY e
        ) g ON g.ordinality = a.position
        WHERE (a.filename, a.content_type, a.content_id) IS DISTINCT FROM (g.filename, g.content_type, g.content_id)
           -- The file may have been deleted since.
           OR (a.digest = g.digest OR a.file_id::text = g.file_id) IS NOT TRUE
    )
$$;
COMMENT ON FUNCTION @extschema@._has_attachments(bigint, jsonb) IS
    'Internal. Whether a mail has these attachments, by names, types and contents.';

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
    IF octet_length(problem[2]) > 0 THEN
        PERFORM @extschema@._refuse(message.ordinal, problem[1], NULL::text, problem[2], problem[3]);
    END IF;
    message.transport := coalesce(message.transport, @extschema@._route(mail.kind));
    IF mail.from_address IS NOT NULL AND NOT @extschema@._may_send_from(message.transport, mail.from_address) THEN
        PERFORM @extschema@._refuse(
            message.ordinal, '42501'::text, NULL::text,
            format('from_address is not allowed by allow_from of transport "%s"', message.transport),
            'Add the address, or *@ and its domain, to allow_from in the transports file, or use another transport.'::text
        );
    END IF;
    IF message.attachments IS NOT NULL THEN
        PERFORM @extschema@._check_attachments(message);
    ELSIF octet_length(mail.body_text) > 1000000 OR octet_length(mail.body_html) > 1000000 THEN
        -- No provider's limit is that low; with attachments, it is asked for when their sizes are known.
        PERFORM @extschema@._refuse_size(
            message.ordinal, message.transport,
            @extschema@._encoded_size(
                coalesce(octet_length(mail.subject), 0)::bigint,
                coalesce(octet_length(mail.body_text), 0)::bigint + coalesce(octet_length(mail.body_html), 0), 0::bigint
            )
        );
    END IF;
    RETURN message;
END;
$$;
COMMENT ON FUNCTION @extschema@._checked(@extschema@._message) IS
    'Internal. The message with its transport; raises the reason for which it cannot be scheduled, apart from its keys.';

CREATE FUNCTION @extschema@._insert_mail(messages @extschema@._message[]) RETURNS TABLE (id bigint, message_id uuid)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
    INSERT INTO @extschema@._new_mail AS n
    SELECT (m.mail).*, m.transport
    FROM unnest(messages) m
    RETURNING n.id, n.message_id;
END;
$$;
COMMENT ON FUNCTION @extschema@._insert_mail(@extschema@._message[]) IS
    'Internal. Inserts these messages into the outbox and returns a row for each but those that a trigger of the application kept out; raises unique_violation if an item_key or a message_id is taken.';

CREATE FUNCTION @extschema@._insert_with_attachments(messages @extschema@._message[]) RETURNS TABLE (id bigint, message_id uuid)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ids bigint[];
    message_ids uuid[];
    is_lost boolean;
BEGIN
    SELECT array_agg(i.id), array_agg(i.message_id) INTO ids, message_ids FROM @extschema@._insert_mail(messages) i;
    IF EXISTS (SELECT FROM unnest(messages) m WHERE m.attachments IS NOT NULL) THEN
        WITH given AS MATERIALIZED (
            SELECT
                m.ordinal, i.id AS mail, a.ordinality AS position, a.value - 'content'::text AS attachment,
                @extschema@._decoded(a.value ->> 'content') AS content
            FROM unnest(messages) m
            JOIN unnest(ids, message_ids) i (id, message_id) ON i.message_id = (m.mail).message_id
            CROSS JOIN LATERAL jsonb_array_elements(m.attachments) WITH ORDINALITY a
        ), hashed AS MATERIALIZED (
            SELECT g.ordinal, g.mail, g.position, g.attachment, g.content, sha256(g.content) AS digest
            FROM given g
        ), stored AS (
            -- What is given several times is stored once.
            INSERT INTO @extschema@._new_files AS f (content)
            SELECT DISTINCT ON (h.digest) h.content
            FROM hashed h
            WHERE h.content IS NOT NULL
            RETURNING f.id, f.digest
        ), attached AS (
            INSERT INTO @extschema@._new_attachments AS n (mail, ordinal, attachments)
            SELECT
                h.mail, h.ordinal,
                jsonb_agg(CASE WHEN s.id IS NULL THEN h.attachment ELSE h.attachment || jsonb_build_object('file_id', s.id) END ORDER BY h.position)
            FROM hashed h
            LEFT JOIN stored s ON s.digest = h.digest
            GROUP BY h.mail, h.ordinal
            -- Set by a trigger, which does not fire while session_replication_role is replica.
            RETURNING n.caller IS NOT NULL AS done
        )
        -- A trigger of the application may keep a mail out, but not give it another message_id.
        SELECT
            (SELECT count(*) FROM attached a WHERE a.done) < (SELECT count(DISTINCT h.mail) FROM hashed h)
            OR EXISTS (
                SELECT FROM unnest(message_ids) i (message_id)
                WHERE NOT EXISTS (SELECT FROM unnest(messages) m WHERE (m.mail).message_id = i.message_id)
            )
        INTO is_lost;
        IF is_lost THEN
            PERFORM @extschema@._refuse_lost((SELECT min(m.ordinal) FROM unnest(messages) m WHERE m.attachments IS NOT NULL));
        END IF;
    END IF;
    RETURN QUERY SELECT u.* FROM unnest(ids, message_ids) u;
END;
$$;
COMMENT ON FUNCTION @extschema@._insert_with_attachments(@extschema@._message[]) IS
    'Internal. As _insert_mail; stores the files of these messages and attaches them.';

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

CREATE TYPE @extschema@._decision AS (
    ordinal integer, leader integer, holder bigint, fault text, item_key text, message_id uuid
);
COMMENT ON TYPE @extschema@._decision IS
    'Internal. What becomes of the message with this ordinal: the id of its mail is that of the message leader, which is to be inserted, or else holder, which is there. What is wrong is role, message_id, double, item_key or claimed.';

CREATE FUNCTION @extschema@._decided(messages @extschema@._message[]) RETURNS SETOF @extschema@._decision
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
            first_value(m.mail) OVER same_id AS original_mail,
            first_value(m.attachments) OVER same_id IS NOT DISTINCT FROM m.attachments AS has_attachments_of_original
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
                CASE
                    WHEN NOT t.has_attachments_of_original
                        OR @extschema@._contents(t.mail) IS DISTINCT FROM @extschema@._contents(t.original_mail) THEN 'message_id'
                END
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
    'Internal. What becomes of each of these messages, whose message_ids are not in the outbox; holder is the live mail that has the item_key.';

CREATE FUNCTION @extschema@._refuse_keys(decisions @extschema@._decision[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    bad @extschema@._decision;
BEGIN
    SELECT d.* INTO bad FROM unnest(decisions) d WHERE d.fault IS NOT NULL ORDER BY d.ordinal LIMIT 1;
    CASE bad.fault
        WHEN 'role' THEN
            PERFORM @extschema@._refuse(
                bad.ordinal, '42501'::text, format('message_id %s is taken by another role', bad.message_id),
                format('It is that of mail %s', bad.holder),
                'Use another message_id.'::text
            );
        WHEN 'message_id' THEN
            PERFORM @extschema@._refuse(
                bad.ordinal, '23505'::text, format('message_id %s is taken', bad.message_id),
                CASE WHEN bad.holder IS NULL THEN 'Another of these messages' ELSE format('Mail %s', bad.holder) END
                    || ' has it, with other addresses, subject, bodies, attachments, kind or data',
                'Use another message_id, or repeat the call with the same contents.'::text
            );
        WHEN 'double' THEN
            PERFORM @extschema@._refuse(
                bad.ordinal, '23505'::text, format('item_key "%s" is taken', bad.item_key),
                'Another of these messages has it'::text,
                'Pass on_conflict => ''ignore'' to schedule the first of them, or ''replace'' to schedule the last.'::text
            );
        WHEN 'item_key' THEN
            PERFORM @extschema@._refuse(
                bad.ordinal, '23505'::text, format('item_key "%s" is taken', bad.item_key),
                format('Mail %s has it and is still to be sent', bad.holder),
                'Pass on_conflict => ''ignore'' to leave that mail as it is, or ''replace'' to send this one instead.'::text
            );
        WHEN 'claimed' THEN
            PERFORM @extschema@._refuse(
                bad.ordinal, '55006'::text, format('item_key "%s" is being sent', bad.item_key),
                format('Mail %s has it and is claimed', bad.holder),
                'Try again when that mail has been sent, or use another item_key.'::text
            );
        ELSE
            -- Nothing is wrong.
    END CASE;
END;
$$;
COMMENT ON FUNCTION @extschema@._refuse_keys(@extschema@._decision[]) IS
    'Internal. Raises the error for the first message whose message_id or item_key is taken, if there is one.';

-- Long because a key that another session takes meanwhile has all decided again.
CREATE FUNCTION @extschema@._submit(messages @extschema@._message[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    -- As in _decided.
    SET enable_nestloop = off
    SET jit = off
AS $$
DECLARE
    todo @extschema@._message[];
    decisions @extschema@._decision[];
    replaced bigint[];
    ids bigint[];
    message_ids uuid[];
    violated text;
BEGIN
    IF NOT EXISTS (SELECT FROM unnest(messages) m WHERE m.is_repeatable OR (m.mail).item_key IS NOT NULL) THEN
        todo := ARRAY(SELECT @extschema@._checked(m) FROM unnest(messages) m ORDER BY m.ordinal);
        RETURN ARRAY(
            SELECT i.id
            FROM unnest(todo) m
            -- A trigger of the application may keep a row out.
            LEFT JOIN @extschema@._insert_with_attachments(todo) i ON i.message_id = (m.mail).message_id
            ORDER BY m.ordinal
        );
    END IF;
    FOR turn IN 1 .. 100 LOOP
        -- A call that is repeated returns the id of its mail, even if it would be refused by now: because of the time, its
        -- template, or its transport.
        decisions := ARRAY(
            SELECT ROW(
                s.ordinal, NULL, s.id,
                CASE
                    WHEN NOT @extschema@._is_callers_role(s.enqueued_by, current_user) THEN 'role'
                    WHEN NOT s.is_same THEN 'message_id'
                END,
                NULL, s.message_id
            )::@extschema@._decision
            FROM @extschema@._scheduled(messages) s
        );
        PERFORM @extschema@._refuse_keys(decisions);
        todo := ARRAY(
            SELECT CASE turn WHEN 1 THEN @extschema@._checked(m) ELSE m END
            FROM unnest(messages) m
            WHERE NOT EXISTS (SELECT FROM unnest(decisions) d WHERE d.ordinal = m.ordinal)
            ORDER BY m.ordinal
        );
        decisions := decisions || ARRAY(SELECT d FROM @extschema@._decided(todo) d);
        PERFORM @extschema@._refuse_keys(decisions);
        replaced := ARRAY(SELECT d.holder FROM unnest(decisions) d WHERE d.leader IS NOT NULL AND d.holder IS NOT NULL);
        BEGIN
            IF replaced <> '{}' THEN
                -- If one of them was claimed or sent meanwhile, none is replaced, and the INSERT finds its key taken or free.
                INSERT INTO @extschema@._own_changes (ids, change) VALUES (replaced, 'replace');
            END IF;
            -- INSERT waits here for a session that is taking the same key, as for any unique key.
            SELECT array_agg(i.id), array_agg(i.message_id)
            INTO ids, message_ids
            FROM @extschema@._insert_with_attachments(ARRAY(
                SELECT m FROM unnest(todo) m JOIN unnest(decisions) d ON d.ordinal = m.ordinal AND d.leader = m.ordinal ORDER BY m.ordinal
            )) i;
            RETURN ARRAY(
                SELECT CASE WHEN d.leader IS NULL THEN d.holder ELSE i.id END
                FROM unnest(decisions) d
                LEFT JOIN unnest(todo) m ON m.ordinal = d.leader
                LEFT JOIN unnest(ids, message_ids) i (id, message_id) ON i.message_id = (m.mail).message_id
                ORDER BY d.ordinal
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
