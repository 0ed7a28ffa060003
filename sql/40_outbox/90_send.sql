-- Sending: the functions with which an application schedules mail.
--
-- They turn arguments or JSON into messages (60_message.sql) and submit them (80_submit.sql). Invariant: the two take
-- the same arguments by the same names, with the same defaults.

-- A new argument comes last: applications may pass arguments by position.
CREATE FUNCTION @extschema@.mailroom_send(
    recipients text,
    subject text DEFAULT NULL,
    body_text text DEFAULT NULL,
    body_html text DEFAULT NULL,
    cc text DEFAULT NULL,
    bcc text DEFAULT NULL,
    kind text DEFAULT NULL,
    data jsonb DEFAULT NULL,
    send_at timestamptz DEFAULT NULL,
    expires_at timestamptz DEFAULT NULL,
    priority integer DEFAULT NULL,
    item_key text DEFAULT NULL,
    group_key text DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    on_conflict text DEFAULT NULL,
    message_id uuid DEFAULT NULL,
    transport text DEFAULT NULL,
    reply_to text DEFAULT NULL,
    from_address text DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    unsubscribe_url text DEFAULT NULL,
    attachments jsonb DEFAULT NULL,
    list text DEFAULT NULL
) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    message @extschema@._message := ROW(
        -1, mailroom_send.message_id IS NOT NULL, coalesce(mailroom_send.on_conflict, 'error'), mailroom_send.transport,
        nullif(nullif(mailroom_send.attachments, 'null'), '[]'), ROW(
            @extschema@._address_list(mailroom_send.recipients), @extschema@._address_list(mailroom_send.cc),
            @extschema@._address_list(mailroom_send.bcc), @extschema@._address_list(mailroom_send.reply_to),
            mailroom_send.subject, mailroom_send.body_text, mailroom_send.body_html,
            coalesce(mailroom_send.kind, 'message'), coalesce(mailroom_send.data, '{}'),
            coalesce(mailroom_send.send_at, now()), mailroom_send.expires_at, coalesce(mailroom_send.priority, 0),
            coalesce(mailroom_send.max_attempts, @extschema@._max_attempts()), mailroom_send.item_key, mailroom_send.group_key,
            coalesce(mailroom_send.message_id, @extschema@._message_id()), mailroom_send.from_address,
            mailroom_send.headers, mailroom_send.unsubscribe_url, mailroom_send.list
        )::@extschema@._mail
    );
BEGIN
    IF mailroom_send.item_key IS NULL AND mailroom_send.message_id IS NULL AND message.attachments IS NULL THEN
        RETURN (SELECT i.id FROM @extschema@._insert_mail(ARRAY[@extschema@._checked(message)]) i);
    END IF;
    RETURN (@extschema@._submit(ARRAY[message]))[1];
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_send IS
    'Schedules a mail in the caller''s transaction and returns its outbox.id. Pass the subject and body, or a kind whose template renders them from data.';

CREATE FUNCTION @extschema@._parse_messages(messages jsonb) RETURNS @extschema@._message[]
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(ROW(
        e.ordinality - 1, e.value ->> 'message_id' IS NOT NULL, coalesce(e.value ->> 'on_conflict', 'error'), e.value ->> 'transport',
        nullif(nullif(e.value -> 'attachments', 'null'), '[]'),
        jsonb_populate_record(
            d.mail,
            jsonb_build_object('message_id', @extschema@._message_id())
                || CASE
                    WHEN jsonb_path_exists(e.value, '$.* ? (@ == null)')
                    THEN (SELECT coalesce(jsonb_object_agg(g.key, g.value), '{}') FROM jsonb_each(e.value - 'attachments'::text) g WHERE g.value <> 'null')
                    ELSE e.value - 'attachments'::text
                END
                || (
                    SELECT coalesce(jsonb_object_agg(f.name, to_jsonb(@extschema@._address_list(e.value ->> f.name))), '{}')
                    FROM unnest(d.lists) f (name)
                    WHERE jsonb_typeof(e.value -> f.name) = 'string'
                )
        )
    )::@extschema@._message ORDER BY e.ordinality)
    FROM (
        -- The defaults of mailroom_send.
        SELECT
            f.lists,
            jsonb_populate_record(
                NULL::@extschema@._mail,
                (SELECT jsonb_object_agg(l.name, '[]'::jsonb) FROM unnest(f.lists) l (name))
                    || jsonb_build_object(
                        'kind', 'message', 'data', '{}'::jsonb, 'send_at', now(), 'priority', 0,
                        'max_attempts', @extschema@._max_attempts()
                    )
            ) AS mail
        FROM (SELECT @extschema@._address_fields()) f (lists)
        OFFSET 0
    ) d
    CROSS JOIN jsonb_array_elements(messages) WITH ORDINALITY e
$$;
COMMENT ON FUNCTION @extschema@._parse_messages(jsonb) IS
    'Internal. The elements of a JSON array of objects as messages; raises an error of class 22 if a value has the wrong type.';

-- Long because it says which element is wrong, and why.
CREATE FUNCTION @extschema@.mailroom_send_many(messages jsonb) RETURNS TABLE (id bigint)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    names text[];
    -- Those whose values are strings.
    strings text[];
    lists CONSTANT text[] := @extschema@._address_fields();
    bad record;
    parsed @extschema@._message[];
    reason text;
BEGIN
    IF jsonb_typeof(messages) IS DISTINCT FROM 'array' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'messages must be a JSON array',
            DETAIL = format('It is %s.', coalesce('a JSON ' || jsonb_typeof(messages), 'NULL')),
            HINT = 'Pass an array of objects with the names of the arguments of mailroom_send.';
    END IF;
    IF messages = '[]' THEN
        RETURN;
    END IF;
    -- Of the extension's mailroom_send: there may be others of this name.
    SELECT
        array_agg(a.name ORDER BY a.place),
        array_agg(a.name) FILTER (WHERE a.type IN ('text'::regtype, 'timestamptz'::regtype, 'uuid'::regtype) AND a.name <> ALL (lists))
    INTO names, strings
    FROM pg_proc p
    JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
    JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND e.oid = d.refobjid
    CROSS JOIN LATERAL unnest(p.proargnames, p.proargtypes::oid[]) WITH ORDINALITY a (name, type, place)
    WHERE p.proname = 'mailroom_send'
      AND e.extname = 'mailroom';
    SELECT (e.ordinality - 1)::integer AS ordinal, p.reason
    INTO bad
    FROM jsonb_array_elements(messages) WITH ORDINALITY e
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN jsonb_typeof(e.value) <> 'object' THEN format('It is a JSON %s, not an object', jsonb_typeof(e.value))
            WHEN e.value - names <> '{}'
                THEN format('There is no argument "%s"', (SELECT min(k) FROM jsonb_object_keys(e.value - names) k))
            ELSE (
                SELECT min(format(
                    '%s is a JSON %s, not a string%s', f.key, jsonb_typeof(f.value),
                    CASE WHEN f.key = ANY (lists) THEN ' or an array of strings' END
                ))
                FROM jsonb_each(e.value) f
                WHERE (f.key = ANY (strings) AND jsonb_typeof(f.value) NOT IN ('string', 'null'))
                   OR (
                       f.key = ANY (lists)
                       AND (
                           jsonb_typeof(f.value) NOT IN ('string', 'array', 'null')
                           OR jsonb_path_exists(f.value, 'strict $[*] ? (@.type() != "string" && @.type() != "null")', '{}', true)
                       )
                   )
            )
        END
    ) p (reason)
    WHERE p.reason IS NOT NULL
    ORDER BY e.ordinality
    LIMIT 1;
    IF FOUND THEN
        PERFORM @extschema@._refuse(bad.ordinal, '22023'::text, NULL::text, bad.reason, 'The names are ' || array_to_string(names, ', ') || '.');
    END IF;
    BEGIN
        parsed := @extschema@._parse_messages(messages);
    EXCEPTION
        WHEN data_exception THEN
            -- One message is known to be invalid now, so they are tried one by one.
            FOR i IN 0 .. jsonb_array_length(messages) - 1 LOOP
                BEGIN
                    PERFORM @extschema@._parse_messages(jsonb_build_array(messages -> i));
                EXCEPTION
                    WHEN data_exception THEN
                        GET STACKED DIAGNOSTICS reason = MESSAGE_TEXT;
                        reason := upper(left(reason, 1)) || substr(reason, 2);
                        PERFORM @extschema@._refuse(i, '22023'::text, NULL::text, reason, NULL::text);
                END;
            END LOOP;
            RAISE;
    END;
    RETURN QUERY SELECT u FROM unnest(@extschema@._submit(parsed)) u;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_send_many(jsonb) IS
    'Schedules many mails, all or none, and returns their ids in the order of the array. Each element is an object with the arguments of mailroom_send by name.';
