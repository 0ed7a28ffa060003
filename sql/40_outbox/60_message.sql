-- Messages: what may be scheduled, and for which reason something may not.
--
-- _mail is the definition of what an application may set: the view that takes new mail, its INSERT, its column grants
-- and the reading of JSON follow from it. The functions that schedule (80_submit.sql) ask for the reason; the view of
-- 70_own_mail.sql only refuses. Nothing here reads or writes a table but templates. The bodies are in standard SQL form,
-- so that they become part of the statement that asks.

CREATE TYPE @extschema@._mail AS (
    recipients text[], cc text[], bcc text[], reply_to text[],
    subject text, body_text text, body_html text, kind text, data jsonb,
    send_at timestamptz, expires_at timestamptz, priority integer, max_attempts integer,
    item_key text, group_key text, message_id uuid
);
COMMENT ON COLUMN @extschema@.outbox.recipients IS 'Addresses of the To header, at least one.';
COMMENT ON COLUMN @extschema@.outbox.reply_to IS 'Addresses of the Reply-To header, at most ten; empty for answers to the sender.';
COMMENT ON COLUMN @extschema@.outbox.kind IS
    'activation, password_recovery, or a name of the application''s; names the template.';
COMMENT ON COLUMN @extschema@.outbox.data IS
    'Variables for the template. mailroom_claim returns them merged with those in secrets.';
COMMENT ON COLUMN @extschema@.outbox.send_at IS 'The mail is not sent before this time.';
COMMENT ON COLUMN @extschema@.outbox.expires_at IS 'The mail is not sent after this time; NULL for no limit.';
COMMENT ON COLUMN @extschema@.outbox.priority IS
    'From -100 to 100, smaller goes first; 0 is normal, -10 and less is urgent.';
COMMENT ON COLUMN @extschema@.outbox.max_attempts IS 'Number of attempts after which the row ends as error.';
COMMENT ON COLUMN @extschema@.outbox.item_key IS 'Key of the application''s own; unique among the live rows of a role.';
COMMENT ON COLUMN @extschema@.outbox.group_key IS 'Rows of one group are claimed by one sender at a time.';
COMMENT ON COLUMN @extschema@.outbox.message_id IS
    'Idempotency key for providers and recipients, the same over all attempts. A UUID of version 7 (RFC 9562) unless the application passed one.';
COMMENT ON TYPE @extschema@._mail IS
    'Internal. The columns of the outbox that an application sets, apart from transport. Columns of type text[] are lists of addresses.';

CREATE TYPE @extschema@._message AS (
    ordinal integer, is_repeatable boolean, on_conflict text, transport text, mail @extschema@._mail
);
COMMENT ON TYPE @extschema@._message IS
    'Internal. A mail to schedule: its place in a bulk from 0, or -1 for a single one, whether its message_id was passed, and the other arguments of mailroom_send; transport is NULL for that of the kind.';

CREATE FUNCTION @extschema@._address_fields() RETURNS text[]
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(a.attname::text ORDER BY a.attnum)
    FROM pg_attribute a
    WHERE a.attrelid = '@extschema@._mail'::regclass
      AND a.atttypid = 'text[]'::regtype
$$;
COMMENT ON FUNCTION @extschema@._address_fields() IS 'Internal. The lists of addresses among the columns of _mail.';

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

CREATE FUNCTION @extschema@._addresses_problem(addresses text[]) RETURNS text
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_addresses_problem_wrapper';
COMMENT ON FUNCTION @extschema@._addresses_problem(text[]) IS
    'Internal. Why the first invalid element is not a mail address, beginning with its subscript as in [2]; NULL if all are valid.';

CREATE FUNCTION @extschema@._max_message_size() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_max_message_size_wrapper';
COMMENT ON FUNCTION @extschema@._max_message_size() IS 'Internal. The setting mailroom.max_message_size in octets.';

CREATE FUNCTION @extschema@._recipients_problem(mail @extschema@._mail) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN coalesce(cardinality(mail.recipients), 0) = 0 THEN 'recipients is empty'
    WHEN cardinality(mail.recipients) + cardinality(mail.cc) + cardinality(mail.bcc) > 50 THEN format(
        'recipients, cc and bcc have %s addresses, at most 50 are allowed',
        cardinality(mail.recipients) + cardinality(mail.cc) + cardinality(mail.bcc)
    )
    WHEN cardinality(mail.reply_to) > 10
        THEN format('reply_to has %s addresses, at most 10 are allowed', cardinality(mail.reply_to))
END;
COMMENT ON FUNCTION @extschema@._recipients_problem IS
    'Internal. Why a message cannot be sent to as many recipients; NULL if it can.';

CREATE FUNCTION @extschema@._bad_address(mail @extschema@._mail) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(
    'recipients' || @extschema@._addresses_problem(mail.recipients),
    'cc' || @extschema@._addresses_problem(mail.cc),
    'bcc' || @extschema@._addresses_problem(mail.bcc),
    'reply_to' || @extschema@._addresses_problem(mail.reply_to)
);
COMMENT ON FUNCTION @extschema@._bad_address IS
    'Internal. Which address of a message is not valid, and why; NULL if all are.';

CREATE FUNCTION @extschema@._message_problem(mail @extschema@._mail) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN mail.subject = '' THEN 'subject is empty'
    WHEN octet_length(mail.subject) > 998
        THEN format('subject has %s octets, at most 998 are allowed', octet_length(mail.subject))
    WHEN @extschema@._line_problem(mail.subject) IS NOT NULL THEN 'subject ' || @extschema@._line_problem(mail.subject)
    WHEN mail.body_text = '' THEN 'body_text is empty'
    WHEN mail.body_html = '' THEN 'body_html is empty'
    WHEN mail.kind = '' THEN 'kind is empty'
    WHEN char_length(mail.kind) > 255
        THEN format('kind has %s characters, at most 255 are allowed', char_length(mail.kind))
    WHEN @extschema@._line_problem(mail.kind) IS NOT NULL THEN 'kind ' || @extschema@._line_problem(mail.kind)
    WHEN mail.kind IN ('activation', 'password_recovery')
        THEN format('kind "%s" is reserved for mail with a token', mail.kind)
    WHEN jsonb_typeof(mail.data) <> 'object' THEN format('data is a JSON %s, not an object', jsonb_typeof(mail.data))
    WHEN octet_length(mail.data::text) > 1048576
        THEN format('data has %s octets as JSON, at most 1048576 are allowed', octet_length(mail.data::text))
    WHEN coalesce(octet_length(mail.subject), 0)::bigint + coalesce(octet_length(mail.body_text), 0)
        + coalesce(octet_length(mail.body_html), 0) + octet_length(mail.data::text) > @extschema@._max_message_size()
        THEN format(
            'It has %s octets, at most %s are allowed',
            coalesce(octet_length(mail.subject), 0)::bigint + coalesce(octet_length(mail.body_text), 0)
                + coalesce(octet_length(mail.body_html), 0) + octet_length(mail.data::text),
            @extschema@._max_message_size()
        )
    WHEN NOT isfinite(mail.send_at) THEN 'send_at is infinite'
    WHEN NOT isfinite(mail.expires_at) THEN 'expires_at is infinite'
    WHEN mail.expires_at <= mail.send_at THEN 'expires_at is not after send_at'
    WHEN mail.expires_at <= now() THEN 'expires_at is past'
    WHEN mail.priority NOT BETWEEN -100 AND 100
        THEN format('priority is %s, not between -100 and 100', mail.priority)
    WHEN mail.item_key = '' THEN 'item_key is empty'
    WHEN char_length(mail.item_key) > 255
        THEN format('item_key has %s characters, at most 255 are allowed', char_length(mail.item_key))
    WHEN mail.group_key = '' THEN 'group_key is empty'
    WHEN char_length(mail.group_key) > 255
        THEN format('group_key has %s characters, at most 255 are allowed', char_length(mail.group_key))
    WHEN mail.max_attempts NOT BETWEEN 1 AND 1000
        THEN format('max_attempts is %s, not between 1 and 1000', mail.max_attempts)
END;
COMMENT ON FUNCTION @extschema@._message_problem IS
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
