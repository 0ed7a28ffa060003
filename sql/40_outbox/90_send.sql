-- Sending: the functions with which an application schedules mail.
--
-- They turn arguments or JSON into messages (60_message.sql) and submit them (80_submit.sql). Invariant: the two take the
-- same arguments by the same names, with the same defaults.

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
    transport text DEFAULT NULL
) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (@extschema@._submit(ARRAY[ROW(
        -1, coalesce(message_id, @extschema@._message_id()), message_id IS NOT NULL,
        @extschema@._address_list(recipients), @extschema@._address_list(cc), @extschema@._address_list(bcc),
        subject, body_text, body_html,
        coalesce(kind, 'message'), coalesce(data, '{}'), coalesce(send_at, now()), expires_at, coalesce(priority, 0),
        item_key, group_key, coalesce(max_attempts, @extschema@._max_attempts()), coalesce(on_conflict, 'error'), transport
    )::@extschema@._message]))[1];
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_send(text, text, text, text, text, text, text, jsonb, timestamptz, timestamptz, integer, text, text, integer, text, uuid, text) IS
    'Schedules a mail in the caller''s transaction and returns outbox.id. recipients, cc, bcc: lists as in a mail header of plain addresses local@domain, separated by commas, at most 50 in all. A subject, or both bodies, that are not given come from the template for kind when the mail is claimed, with the variables in data. kind: default message. send_at: default now. expires_at: of no use after this time. priority: from -100 to 100, default 0, smaller goes first. max_attempts: default mailroom.max_attempts. item_key: unique among mail still to be sent; on_conflict says what happens when it is taken: error (default), ignore (returns the id of the mail that has it) or replace (cancels that mail, then schedules this one with an id of its own). message_id: of your own makes the call repeatable, because a mail that was scheduled with it before is left as it is and its id returned, for as long as mailroom.retention keeps it. transport: a name in mailroom_transports, routes or mailroom.transport, or empty for clients; default: that of the first of routes that matches kind, else mailroom.transport. Errors: 22023 with the reason in DETAIL; 23505 when item_key is taken; for replace, 55006 when the mail that has it is claimed; 42501 when another role scheduled that mail, or one with this message_id. Waits for a transaction that is taking, replacing or (for replace) claiming the same item_key, or taking the same message_id.';

CREATE FUNCTION @extschema@._parse_messages(messages jsonb) RETURNS @extschema@._message[]
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(ROW(
        r.ordinality - 1, coalesce(r.message_id, @extschema@._message_id()), r.message_id IS NOT NULL,
        @extschema@._json_address_list(r.recipients), @extschema@._json_address_list(r.cc), @extschema@._json_address_list(r.bcc),
        r.subject, r.body_text, r.body_html,
        coalesce(r.kind, 'message'), coalesce(r.data, '{}'), coalesce(r.send_at, now()), r.expires_at,
        coalesce(r.priority, 0), r.item_key, r.group_key, coalesce(r.max_attempts, @extschema@._max_attempts()),
        coalesce(r.on_conflict, 'error'), r.transport
    )::@extschema@._message ORDER BY r.ordinality)
    FROM ROWS FROM (jsonb_to_recordset(messages) AS (
        recipients jsonb, subject text, body_text text, body_html text, cc jsonb, bcc jsonb,
        kind text, data jsonb, send_at timestamptz, expires_at timestamptz, priority integer, item_key text,
        group_key text, max_attempts integer, on_conflict text, message_id uuid, transport text
    )) WITH ORDINALITY r
$$;
COMMENT ON FUNCTION @extschema@._parse_messages(jsonb) IS
    'Internal. The elements of an array of objects as messages. Errors of class 22 when a value has the wrong type.';

CREATE FUNCTION @extschema@.mailroom_send_many(messages jsonb) RETURNS TABLE (id bigint)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    names CONSTANT text[] := '{recipients,subject,body_text,body_html,cc,bcc,kind,data,send_at,expires_at,priority,item_key,group_key,max_attempts,on_conflict,message_id,transport}'::text[];
    bad record;
    parsed @extschema@._message[];
    reason text;
BEGIN
    IF jsonb_typeof(messages) IS DISTINCT FROM 'array' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'messages is not a JSON array',
            HINT = 'Pass an array of objects with the names of the arguments of mailroom_send.';
    END IF;
    IF messages = '[]' THEN
        RETURN;
    END IF;
    SELECT (e.ordinality - 1)::integer AS ordinal, p.reason
    INTO bad
    FROM jsonb_array_elements(messages) WITH ORDINALITY e
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN jsonb_typeof(e.value) <> 'object' THEN format('it is a JSON %s, not an object', jsonb_typeof(e.value))
            WHEN e.value - names <> '{}'
                THEN format('there is no argument "%s"', (SELECT min(k) FROM jsonb_object_keys(e.value - names) k))
            ELSE (
                SELECT min(format('%s is a JSON %s, not a string or an array of strings', f.name, jsonb_typeof(e.value -> f.name)))
                FROM unnest('{recipients,cc,bcc}'::text[]) f (name)
                WHERE jsonb_typeof(e.value -> f.name) NOT IN ('string', 'array', 'null')
                   OR jsonb_path_exists(e.value -> f.name, 'strict $[*] ? (@.type() != "string" && @.type() != "null")', '{}', true)
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
            -- Only now that one is known to be bad they are looked at one by one.
            FOR i IN 0 .. jsonb_array_length(messages) - 1 LOOP
                BEGIN
                    PERFORM @extschema@._parse_messages(jsonb_build_array(messages -> i));
                EXCEPTION
                    WHEN data_exception THEN
                        GET STACKED DIAGNOSTICS reason = MESSAGE_TEXT;
                        PERFORM @extschema@._refuse(i, '22023'::text, NULL::text, reason, NULL::text);
                END;
            END LOOP;
            RAISE;
    END;
    RETURN QUERY SELECT u FROM unnest(@extschema@._submit(parsed)) u;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_send_many(jsonb) IS
    'Schedules many mails at once, all or none, and returns their ids in the order of the array: one object a mail, with the names of the arguments of mailroom_send; address lists may be arrays of strings, too. JSON null is as good as leaving it out. Errors: as mailroom_send, for the first bad element, which is named as in messages[3], counting from 0. Two calls that take the same item_keys in different order can end in a deadlock error, as with any unique key.';
