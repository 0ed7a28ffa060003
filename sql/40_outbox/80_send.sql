-- Sending: any message into the outbox, in the caller's transaction, and out of it again before it is claimed.
--
-- Everything runs with the caller's rights, who therefore is outbox.enqueued_by, and reaches the outbox through two
-- views: _new_mail takes new mail, _own_mail has mail of one's own making that nobody has claimed. Invariants: an
-- item_key is in one live row at most, whoever races; all reasons against a message are given before anything is written.

CREATE TYPE @extschema@._message AS (
    ordinal integer,
    message_id uuid,
    is_repeatable boolean,
    recipients text[],
    cc text[],
    bcc text[],
    subject text,
    body_text text,
    body_html text,
    kind text,
    data jsonb,
    send_at timestamptz,
    expires_at timestamptz,
    priority integer,
    item_key text,
    group_key text,
    max_attempts integer,
    on_conflict text,
    transport text
);
COMMENT ON TYPE @extschema@._message IS
    'Internal. The arguments of mailroom_send, whether message_id is one of them, and its place in a bulk from 0, -1 for a single one.';

CREATE FUNCTION @extschema@._is_own(enqueued_by name) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    -- As for ownership anywhere in PostgreSQL. A role that is gone is nobody's.
    SELECT coalesce(pg_has_role(to_regrole(quote_ident(enqueued_by)), 'USAGE'), false)
        OR pg_has_role('mailroom_support', 'USAGE')
        OR pg_has_role('mailroom_admin', 'USAGE')
$$;
COMMENT ON FUNCTION @extschema@._is_own(name) IS
    'Internal. Whether the current user has the rights of the role that enqueued a mail, or those of mailroom_support or mailroom_admin.';

CREATE FUNCTION @extschema@._address_list(list text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN btrim(list, E' \t') = '' THEN ARRAY[]::text[]
    ELSE ARRAY(
        SELECT btrim(u.address, E' \t') FROM unnest(string_to_array(list, ',')) WITH ORDINALITY u (address, place) ORDER BY u.place
    )
END;
COMMENT ON FUNCTION @extschema@._address_list(text) IS
    'Internal. The addresses of a list as in a mail header (RFC 5322, 3.4), separated by commas, which no address of ours holds; empty for NULL.';

CREATE FUNCTION @extschema@._json_address_list(list jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE jsonb_typeof(list)
    WHEN 'array' THEN ARRAY(SELECT u.address FROM jsonb_array_elements_text(list) WITH ORDINALITY u (address, place) ORDER BY u.place)
    ELSE @extschema@._address_list(list #>> '{}')
END;
COMMENT ON FUNCTION @extschema@._json_address_list(jsonb) IS
    'Internal. The addresses of a JSON array, or of a list in a JSON string; empty for null.';

-- What a message may be, for the functions, which give the reason, and for the view, which only refuses. Bodies in
-- SQL's own form, so that they are part of the statement that asks.
CREATE FUNCTION @extschema@._recipients_problem(recipients text[], cc text[], bcc text[]) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(
    CASE
        WHEN coalesce(cardinality(recipients), 0) = 0 THEN 'recipients is empty'
        WHEN cardinality(recipients) + cardinality(cc) + cardinality(bcc) > 50 THEN format(
            'recipients, cc and bcc have %s addresses, at most 50 are allowed',
            cardinality(recipients) + cardinality(cc) + cardinality(bcc)
        )
    END,
    'recipients' || @extschema@._addresses_problem(recipients),
    'cc' || @extschema@._addresses_problem(cc),
    'bcc' || @extschema@._addresses_problem(bcc)
);
COMMENT ON FUNCTION @extschema@._recipients_problem(text[], text[], text[]) IS
    'Internal. Why a message cannot be sent to these; NULL when it can.';

CREATE FUNCTION @extschema@._message_problem(
    subject text,
    body_text text,
    body_html text,
    kind text,
    data jsonb,
    send_at timestamptz,
    expires_at timestamptz,
    priority integer,
    item_key text,
    group_key text,
    max_attempts integer
) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN subject = '' THEN 'subject is empty'
    WHEN octet_length(subject) > 998
        THEN format('subject has %s octets, at most 998 are allowed', octet_length(subject))
    WHEN subject ~ E'[\\u0001-\\u001F\\u007F]'
        OR (getdatabaseencoding() = 'UTF8' AND subject ~ E'[\\u0080-\\u009F\\u2028\\u2029]')
        THEN 'subject contains a control character'
    WHEN body_text = '' THEN 'body_text is empty'
    WHEN body_html = '' THEN 'body_html is empty'
    WHEN kind = '' THEN 'kind is empty'
    WHEN kind IN ('activation', 'password_recovery')
        THEN format('kind "%s" is reserved for mail with a token', kind)
    WHEN jsonb_typeof(data) <> 'object' THEN format('data is a JSON %s, not an object', jsonb_typeof(data))
    WHEN octet_length(data::text) > 1048576
        THEN format('data has %s octets as JSON, at most 1048576 are allowed', octet_length(data::text))
    WHEN coalesce(octet_length(subject), 0)::bigint + coalesce(octet_length(body_text), 0)
        + coalesce(octet_length(body_html), 0) + octet_length(data::text) > @extschema@._max_message_size()
        THEN format(
            'it has %s octets, at most %s are allowed',
            coalesce(octet_length(subject), 0)::bigint + coalesce(octet_length(body_text), 0)
                + coalesce(octet_length(body_html), 0) + octet_length(data::text),
            @extschema@._max_message_size()
        )
    WHEN NOT isfinite(send_at) THEN 'send_at is infinite'
    WHEN NOT isfinite(expires_at) THEN 'expires_at is infinite'
    WHEN expires_at <= send_at THEN 'expires_at is not after send_at'
    WHEN priority NOT BETWEEN -100 AND 100
        THEN format('priority is %s, not between -100 and 100', priority)
    WHEN item_key = '' THEN 'item_key is empty'
    WHEN char_length(item_key) > 255
        THEN format('item_key has %s characters, at most 255 are allowed', char_length(item_key))
    WHEN group_key = '' THEN 'group_key is empty'
    WHEN char_length(group_key) > 255
        THEN format('group_key has %s characters, at most 255 are allowed', char_length(group_key))
    WHEN max_attempts NOT BETWEEN 1 AND 1000
        THEN format('max_attempts is %s, not between 1 and 1000', max_attempts)
END;
COMMENT ON FUNCTION @extschema@._message_problem(text, text, text, text, jsonb, timestamptz, timestamptz, integer, text, text, integer) IS
    'Internal. Why such a message cannot be scheduled, whoever gets it; NULL when it can.';

CREATE FUNCTION @extschema@._words_problem(subject text, body_text text, body_html text, kind text, data jsonb) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN subject IS NOT NULL AND (body_text IS NOT NULL OR body_html IS NOT NULL) THEN NULL
    WHEN (SELECT t.locale FROM @extschema@._template(kind, data ->> 'locale') t) IS NULL THEN format(
        '%s is missing, and there is no template for kind "%s" in locale %s',
        CASE WHEN subject IS NULL THEN 'subject' ELSE 'the body' END,
        kind, array_to_string(@extschema@._locales(data ->> 'locale'), ' or ')
    )
END;
COMMENT ON FUNCTION @extschema@._words_problem(text, text, text, text, jsonb) IS
    'Internal. Why there is nothing to say in such a message; NULL when there is.';

-- What an application may do to the outbox, whatever it runs: columns by grants, rows by these two. One is for INSERT
-- and the other for UPDATE, because ON CONFLICT DO UPDATE needs both rights on one relation, and would reach and lock
-- rows that the condition hides. A row cannot come back from cancelled, because ended_at is not among the columns.
CREATE VIEW @extschema@._new_mail WITH (security_barrier) AS
SELECT
    o.id, o.message_id, o.kind, o.recipients, o.cc, o.bcc, o.subject, o.body_text, o.body_html, o.data, o.priority,
    o.send_at, o.expires_at, o.max_attempts, o.item_key, o.group_key, o.transport
FROM @extschema@.outbox o
WHERE o.state = 'scheduled'
  AND o.token_id IS NULL
  AND @extschema@._is_own(o.enqueued_by)
  AND (o.transport = '' OR o.transport = @extschema@._default_transport() OR @extschema@._knows_transport(o.transport::text))
  AND @extschema@._recipients_problem(o.recipients::text[], o.cc::text[], o.bcc::text[]) IS NULL
  AND @extschema@._message_problem(
      o.subject::text, o.body_text::text, o.body_html::text, o.kind::text, o.data::jsonb, o.send_at, o.expires_at,
      o.priority::integer, o.item_key, o.group_key, o.max_attempts
  ) IS NULL
  AND @extschema@._words_problem(o.subject::text, o.body_text::text, o.body_html::text, o.kind::text, o.data::jsonb) IS NULL
WITH CASCADED CHECK OPTION;
COMMENT ON VIEW @extschema@._new_mail IS
    'Internal. Where mail of the current user''s making comes into the outbox.';

CREATE VIEW @extschema@._own_mail WITH (security_barrier) AS
SELECT o.id, o.state, o.send_at, o.expires_at, o.last_error, o.item_key, o.updated_at
FROM @extschema@.outbox o
WHERE o.state IN ('scheduled', 'cancelled')
  AND (o.token_id IS NOT NULL OR o.kind NOT IN ('activation', 'password_recovery'))
  AND @extschema@._is_own(o.enqueued_by)
  AND isfinite(o.send_at)
  AND (o.expires_at > o.send_at) IS NOT FALSE
WITH CASCADED CHECK OPTION;
COMMENT ON VIEW @extschema@._own_mail IS
    'Internal. Mail of the current user''s making that is scheduled or was cancelled.';

CREATE FUNCTION @extschema@._live(keys text[])
RETURNS TABLE (item_key text, id bigint, state @extschema@.outbox_state, enqueued_by name)
    LANGUAGE sql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
    SELECT o.item_key, o.id, o.state, o.enqueued_by
    FROM @extschema@.outbox o
    WHERE o.item_key = ANY (keys)
      AND o.state IN ('scheduled', 'claimed')
$$;
COMMENT ON FUNCTION @extschema@._live(text[]) IS
    'Internal. Who holds these keys. Keys are shared by all, so this looks beyond the caller''s own mail.';

CREATE FUNCTION @extschema@._scheduled(message_ids uuid[])
RETURNS TABLE (message_id uuid, id bigint, enqueued_by name)
    LANGUAGE sql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
    SELECT o.message_id, o.id, o.enqueued_by
    FROM @extschema@.outbox o
    WHERE o.message_id = ANY (message_ids)
$$;
COMMENT ON FUNCTION @extschema@._scheduled(uuid[]) IS
    'Internal. Which mails have these message_ids, whoever scheduled them.';

CREATE FUNCTION @extschema@._refuse(ordinal integer, code text, what text, reason text, remedy text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = code,
        MESSAGE = CASE WHEN ordinal < 0 THEN 'message' ELSE format('messages[%s]', ordinal) END || ' cannot be scheduled'
            || coalesce(': ' || what, ''),
        DETAIL = reason,
        HINT = coalesce(remedy, E'Its arguments are explained by \\df+ mailroom_send.');
END;
$$;
COMMENT ON FUNCTION @extschema@._refuse(integer, text, text, text, text) IS
    'Internal. Raises the error of a message that is not taken.';

CREATE FUNCTION @extschema@._insert_mail(messages @extschema@._message[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    ids bigint[];
BEGIN
    WITH routed AS MATERIALIZED (
        SELECT d.kind, @extschema@._route(d.kind) AS transport
        FROM (SELECT DISTINCT m.kind FROM unnest(messages) m WHERE m.transport IS NULL) d
    ), put AS (
        INSERT INTO @extschema@._new_mail (
            message_id, kind, recipients, cc, bcc, subject, body_text, body_html, data,
            priority, send_at, expires_at, max_attempts, item_key, group_key, transport
        )
        SELECT
            m.message_id, m.kind, m.recipients, m.cc, m.bcc, m.subject, m.body_text, m.body_html, m.data,
            m.priority, m.send_at, m.expires_at, m.max_attempts, m.item_key, m.group_key, coalesce(m.transport, r.transport)
        FROM unnest(messages) m
        LEFT JOIN routed r ON r.kind = m.kind
        ORDER BY m.ordinal
        RETURNING id, message_id
    )
    SELECT array_agg(p.id ORDER BY m.ordinal)
    INTO ids
    FROM put p
    JOIN unnest(messages) m USING (message_id);
    RETURN ids;
END;
$$;
COMMENT ON FUNCTION @extschema@._insert_mail(@extschema@._message[]) IS
    'Internal. Puts these messages into the outbox and returns their ids by ordinal. Errors: 23505 when an item_key is taken.';

CREATE FUNCTION @extschema@._submit(messages @extschema@._message[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    todo @extschema@._message[] := messages;
    bad record;
    repeatable uuid[];
    keys text[];
    holders jsonb;
    replaced bigint[];
    chosen @extschema@._message[];
    violated text;
    done integer[] := ARRAY[]::integer[];
    ids bigint[] := ARRAY[]::bigint[];
    rounds integer := 0;
BEGIN
    SELECT m.ordinal, r.reason, r.remedy
    INTO bad
    FROM unnest(messages) m
    CROSS JOIN LATERAL (
        SELECT
            1,
            @extschema@._recipients_problem(m.recipients, m.cc, m.bcc),
            CASE
                WHEN cardinality(m.recipients) > 0 AND cardinality(m.recipients) + cardinality(m.cc) + cardinality(m.bcc) <= 50
                    THEN 'An address is local@domain, without a name; several are separated by commas.'
            END
        UNION ALL
        SELECT
            2,
            coalesce(
                @extschema@._message_problem(
                    m.subject, m.body_text, m.body_html, m.kind, m.data, m.send_at, m.expires_at, m.priority, m.item_key,
                    m.group_key, m.max_attempts
                ),
                CASE
                    WHEN m.on_conflict NOT IN ('error', 'ignore', 'replace')
                        THEN format('on_conflict is "%s", not error, ignore or replace', m.on_conflict)
                END
            ),
            NULL
        UNION ALL
        SELECT
            3,
            CASE WHEN NOT @extschema@._knows_transport(m.transport) THEN format('there is no transport "%s"', m.transport) END,
            'Transports are listed in mailroom_transports and in routes; leave it out for that of the kind.'
        WHERE m.transport IS NOT NULL
        UNION ALL
        SELECT
            4,
            @extschema@._words_problem(m.subject, m.body_text, m.body_html, m.kind, m.data),
            'Pass subject and body_text or body_html, or insert a row into templates.'
    ) r (place, reason, remedy)
    WHERE r.reason IS NOT NULL
    ORDER BY m.ordinal, r.place
    LIMIT 1;
    IF FOUND THEN
        PERFORM @extschema@._refuse(bad.ordinal, '22023'::text, NULL::text, bad.reason, bad.remedy);
    END IF;

    LOOP
        repeatable := ARRAY(SELECT m.message_id FROM unnest(todo) m WHERE m.is_repeatable);
        IF cardinality(repeatable) > 0 THEN
            SELECT m.ordinal, m.message_id, s.id
            INTO bad
            FROM unnest(todo) m
            JOIN @extschema@._scheduled(repeatable) s USING (message_id)
            WHERE NOT @extschema@._is_own(s.enqueued_by)
            ORDER BY m.ordinal
            LIMIT 1;
            IF FOUND THEN
                PERFORM @extschema@._refuse(
                    bad.ordinal, '42501'::text, format('message_id %s is taken by another role', bad.message_id),
                    format('It is that of mail %s.', bad.id),
                    'Use another message_id.'::text
                );
            END IF;
            SELECT done || coalesce(array_agg(m.ordinal), '{}'), ids || coalesce(array_agg(s.id), '{}')
            INTO done, ids
            FROM unnest(todo) m
            JOIN @extschema@._scheduled(repeatable) s USING (message_id);
            todo := ARRAY(SELECT m FROM unnest(todo) m WHERE m.ordinal <> ALL (done));
        END IF;
        keys := ARRAY(SELECT DISTINCT m.item_key FROM unnest(todo) m WHERE m.item_key IS NOT NULL);
        IF cardinality(keys) > 0 THEN
            holders := (SELECT jsonb_agg(l) FROM @extschema@._live(keys) l);
        END IF;
        IF holders IS NOT NULL THEN
            SELECT m.ordinal, m.item_key, m.on_conflict, l.id, @extschema@._is_own(l.enqueued_by) AS own
            INTO bad
            FROM unnest(todo) m
            JOIN jsonb_to_recordset(holders) l (item_key text, id bigint, state text, enqueued_by name) USING (item_key)
            WHERE m.on_conflict = 'error'
               OR (m.on_conflict = 'replace' AND (l.state = 'claimed' OR NOT @extschema@._is_own(l.enqueued_by)))
            ORDER BY m.ordinal
            LIMIT 1;
            IF FOUND AND bad.on_conflict = 'error' THEN
                PERFORM @extschema@._refuse(
                    bad.ordinal, '23505'::text, format('item_key "%s" is taken', bad.item_key),
                    format('Mail %s has it and is still to be sent.', bad.id),
                    'Pass on_conflict => ''ignore'' to leave that mail as it is, or ''replace'' to send this one instead.'::text
                );
            ELSIF FOUND AND NOT bad.own THEN
                PERFORM @extschema@._refuse(
                    bad.ordinal, '42501'::text, format('item_key "%s" is taken by another role', bad.item_key),
                    format('Mail %s has it and is still to be sent.', bad.id),
                    'Use another item_key, or the role that scheduled the mail.'::text
                );
            ELSIF FOUND THEN
                PERFORM @extschema@._refuse(
                    bad.ordinal, '55006'::text, format('item_key "%s" is being sent', bad.item_key),
                    format('Mail %s has it and is claimed.', bad.id),
                    'Try again when that mail has been sent, or use another item_key.'::text
                );
            END IF;

            SELECT done || coalesce(array_agg(m.ordinal), '{}'), ids || coalesce(array_agg(l.id), '{}')
            INTO done, ids
            FROM unnest(todo) m
            JOIN jsonb_to_recordset(holders) l (item_key text, id bigint) USING (item_key)
            WHERE m.on_conflict = 'ignore'
              -- Unless the mail it would leave as it is is about to be replaced.
              AND NOT EXISTS (SELECT FROM unnest(todo) r WHERE r.item_key = m.item_key AND r.on_conflict = 'replace');

            replaced := ARRAY(
                SELECT DISTINCT l.id
                FROM unnest(todo) m
                JOIN jsonb_to_recordset(holders) l (item_key text, id bigint) USING (item_key)
                WHERE m.on_conflict = 'replace'
            );
            IF cardinality(replaced) > 0 THEN
                -- By id, so that two sessions which replace the same mails do not wait for each other in turn.
                PERFORM
                FROM @extschema@._own_mail o
                WHERE o.id = ANY (replaced)
                ORDER BY o.id
                FOR UPDATE;
                UPDATE @extschema@._own_mail o
                SET state = 'cancelled',
                    last_error = 'replaced by ' || current_user
                WHERE o.id = ANY (replaced)
                  AND o.state = 'scheduled';
            END IF;
        END IF;

        IF cardinality(keys) = 0 AND cardinality(repeatable) = 0 THEN
            done := done || ARRAY(SELECT m.ordinal FROM unnest(todo) m ORDER BY m.ordinal);
            ids := ids || @extschema@._insert_mail(todo);
        ELSE
            -- Of several with one key or one message_id the first; the next round finds it there.
            chosen := ARRAY(
                SELECT c.message
                FROM (
                    SELECT
                        m AS message, m.ordinal,
                        m.item_key IS NULL OR row_number() OVER (PARTITION BY m.item_key ORDER BY m.ordinal) = 1 AS has_key,
                        row_number() OVER (PARTITION BY m.message_id ORDER BY m.ordinal) = 1 AS has_message_id
                    FROM unnest(todo) m
                    WHERE NOT EXISTS (SELECT FROM unnest(done) d WHERE d = m.ordinal)
                ) c
                WHERE c.has_key
                  AND c.has_message_id
                ORDER BY c.ordinal
            );
            BEGIN
                -- Keys that another session takes at this moment are waited for here, as for any unique key. Not by
                -- ON CONFLICT: through a view, it finds no partial index before the minor releases of August 2024.
                ids := ids || @extschema@._insert_mail(chosen);
                done := done || ARRAY(SELECT m.ordinal FROM unnest(chosen) m ORDER BY m.ordinal);
            EXCEPTION
                WHEN unique_violation THEN
                    GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME;
                    IF violated NOT IN ('outbox_live_item_key', 'outbox_message_id_key') THEN
                        RAISE;
                    ELSIF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
                        -- Each key that this transaction can see taken was seen to above.
                        RAISE serialization_failure USING
                            MESSAGE = 'could not serialize access due to concurrent update',
                            DETAIL = 'An item_key or a message_id was taken after this transaction began.',
                            HINT = 'Try the transaction again.';
                    END IF;
            END;
        END IF;

        EXIT WHEN cardinality(done) = cardinality(messages);
        rounds := rounds + 1;
        IF rounds >= 100 THEN
            RAISE object_in_use USING
                MESSAGE = 'messages cannot be scheduled: an item_key is held by mail that cannot be replaced',
                HINT = 'Use another item_key, or cancel that mail first.';
        END IF;
        -- What is left found its key taken: look again who has it.
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

CREATE FUNCTION @extschema@.mailroom_cancel(id bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    -- A row that somebody is claiming at this moment is left to them rather than waited for.
    UPDATE @extschema@._own_mail o
    SET state = 'cancelled',
        last_error = 'cancelled by ' || current_user
    WHERE o.id = (
        SELECT s.id
        FROM @extschema@._own_mail s
        WHERE s.id = mailroom_cancel.id
          AND s.state = 'scheduled'
        FOR UPDATE SKIP LOCKED
    );
    RETURN FOUND;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_cancel(bigint) IS
    'Cancels a mail that nobody has claimed. False, and nothing changes, when there is none with this id, when it is claimed, has ended or is in the hands of another transaction, or when another role scheduled it (mailroom_support and mailroom_admin may cancel any). Does not wait.';

CREATE FUNCTION @extschema@.mailroom_cancel_item(item_key text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce(
        (SELECT @extschema@.mailroom_cancel(l.id) FROM @extschema@._live(ARRAY[mailroom_cancel_item.item_key]) l),
        false
    );
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_cancel_item(text) IS
    'As mailroom_cancel, for the mail that is still to be sent and has this item_key.';

CREATE FUNCTION @extschema@.mailroom_reschedule(id bigint, send_at timestamptz) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    expiry timestamptz;
BEGIN
    IF mailroom_reschedule.send_at IS NULL OR NOT isfinite(mailroom_reschedule.send_at) THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'send_at is not a time',
            DETAIL = format('It is %s.', coalesce(mailroom_reschedule.send_at::text, 'null')),
            HINT = 'Use mailroom_cancel for a mail that is not to be sent at all.';
    END IF;
    SELECT s.expires_at
    INTO expiry
    FROM @extschema@._own_mail s
    WHERE s.id = mailroom_reschedule.id
      AND s.state = 'scheduled'
    FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF expiry <= mailroom_reschedule.send_at THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'mail cannot be rescheduled',
            DETAIL = format('It expires at %s, which is not after %s.', expiry, mailroom_reschedule.send_at),
            HINT = 'Pass an earlier time, or cancel the mail and schedule another.';
    END IF;
    UPDATE @extschema@._own_mail o
    SET send_at = mailroom_reschedule.send_at,
        updated_at = now()
    WHERE o.id = mailroom_reschedule.id;
    PERFORM @extschema@._mail_due(mailroom_reschedule.send_at);
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_reschedule(bigint, timestamptz) IS
    'Sets the time before which a mail is not sent, for mail that nobody has claimed. False as for mailroom_cancel. Does not wait. Error: 22023 when send_at is no time or not before the mail expires.';

CREATE FUNCTION @extschema@.mailroom_reschedule_item(item_key text, send_at timestamptz) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce(
        (
            SELECT @extschema@.mailroom_reschedule(l.id, mailroom_reschedule_item.send_at)
            FROM @extschema@._live(ARRAY[mailroom_reschedule_item.item_key]) l
        ),
        false
    );
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_reschedule_item(text, timestamptz) IS
    'As mailroom_reschedule, for the mail that is still to be sent and has this item_key.';
