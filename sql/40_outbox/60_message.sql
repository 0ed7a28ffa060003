-- Messages: what may be scheduled, and for which reason something may not.
--
-- The functions that schedule (80_submit.sql) ask for the reason; the view of 70_own_mail.sql only refuses. Nothing
-- here reads or writes a table but templates. The bodies are in standard SQL form, so that they become part of the
-- statement that asks.

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
    'Internal. The arguments of mailroom_send, whether message_id is one of them, and the message''s place in a bulk from 0, or -1 for a single one.';

CREATE FUNCTION @extschema@._address_list(list text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN btrim(list, E' \t') = '' THEN ARRAY[]::text[]
    ELSE ARRAY(
        SELECT btrim(u.address, E' \t') FROM unnest(string_to_array(list, ',')) WITH ORDINALITY u (address, place) ORDER BY u.place
    )
END;
COMMENT ON FUNCTION @extschema@._address_list(text) IS
    'Internal. The addresses of a list as in a mail header (RFC 5322, 3.4), separated by commas, which no address contains; empty for NULL.';

CREATE FUNCTION @extschema@._json_address_list(list jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE jsonb_typeof(list)
    WHEN 'array' THEN ARRAY(SELECT u.address FROM jsonb_array_elements_text(list) WITH ORDINALITY u (address, place) ORDER BY u.place)
    ELSE @extschema@._address_list(list #>> '{}')
END;
COMMENT ON FUNCTION @extschema@._json_address_list(jsonb) IS
    'Internal. The addresses of a JSON array, or of a list in a JSON string; empty for null.';

CREATE FUNCTION @extschema@._addresses_problem(addresses text[]) RETURNS text
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_addresses_problem_wrapper';
COMMENT ON FUNCTION @extschema@._addresses_problem(text[]) IS
    'Internal. Why the first invalid element is not a mail address, beginning with its subscript as in [2]; NULL if all are valid.';

CREATE FUNCTION @extschema@._max_message_size() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_max_message_size_wrapper';
COMMENT ON FUNCTION @extschema@._max_message_size() IS 'Internal. The setting mailroom.max_message_size in octets.';

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
    'Internal. Why a message cannot be sent to these recipients; NULL if it can.';

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
            'It has %s octets, at most %s are allowed',
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
    'Internal. Why such a message cannot be scheduled, apart from its recipients; NULL if it can.';

CREATE FUNCTION @extschema@._contents_problem(subject text, body_text text, body_html text, kind text, data jsonb) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN subject IS NOT NULL AND (body_text IS NOT NULL OR body_html IS NOT NULL) THEN NULL
    WHEN (SELECT t.locale FROM @extschema@._template(kind, data ->> 'locale') t) IS NULL THEN format(
        '%s is missing, and there is no template for kind "%s" in locale %s',
        CASE WHEN subject IS NULL THEN 'subject' ELSE 'The body' END,
        kind, array_to_string(@extschema@._locales(data ->> 'locale'), ' or ')
    )
END;
COMMENT ON FUNCTION @extschema@._contents_problem(text, text, text, text, jsonb) IS
    'Internal. Why a message has no subject or body, from itself or a template; NULL if it has both.';
