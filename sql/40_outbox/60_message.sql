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
    item_key text, group_key text, message_id uuid,
    from_address text, headers jsonb, unsubscribe_url text, list text
);
COMMENT ON COLUMN @extschema@.outbox.recipients IS
    'Addresses of the To header, at least one, each with or without a name, as in Ann Lee <ann@example.com>.';
COMMENT ON COLUMN @extschema@.outbox.cc IS 'Addresses of the Cc header, as recipients.';
COMMENT ON COLUMN @extschema@.outbox.bcc IS 'Addresses that get the mail unseen by the others, as recipients.';
COMMENT ON COLUMN @extschema@.outbox.reply_to IS 'Addresses of the Reply-To header, at most ten, as recipients; empty for answers to the sender.';
COMMENT ON COLUMN @extschema@.outbox.from_address IS
    'The sender, an address with or without a name that allow_from of the transport allows; NULL for the sender of the transport.';
COMMENT ON COLUMN @extschema@.outbox.headers IS 'Further headers, an object of strings; NULL for none.';
COMMENT ON COLUMN @extschema@.outbox.unsubscribe_url IS
    'The https URL of the headers List-Unsubscribe and List-Unsubscribe-Post (RFC 8058); NULL for that of list, or none.';
COMMENT ON COLUMN @extschema@.outbox.list IS
    'The list that the mail belongs to, from which its only recipient can unsubscribe; NULL for none.';
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
    'Internal. The columns of the outbox that an application sets, apart from transport. Columns of type text[] are lists of addresses, with or without names.';

CREATE TYPE @extschema@._message AS (
    ordinal integer, is_repeatable boolean, on_conflict text, transport text, attachments jsonb, mail @extschema@._mail
);
COMMENT ON TYPE @extschema@._message IS
    'Internal. A mail to schedule: its place in a bulk from 0, or -1 for a single one, whether its message_id was passed, and the other arguments of mailroom_send; transport is NULL for that of the kind, attachments for none.';

CREATE FUNCTION @extschema@._contents(mail @extschema@._mail) RETURNS @extschema@._mail
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ROW(
    ($1).recipients, ($1).cc, ($1).bcc, ($1).reply_to, ($1).subject, ($1).body_text, ($1).body_html, ($1).kind, ($1).data,
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, ($1).from_address, ($1).headers, ($1).unsubscribe_url, ($1).list
)::@extschema@._mail;
COMMENT ON FUNCTION @extschema@._contents(@extschema@._mail) IS
    'Internal. What must be the same when a call with a message_id is repeated: not times, priority and keys.';

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
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_address_list_wrapper';
COMMENT ON FUNCTION @extschema@._address_list(text) IS
    'Internal. The mailboxes of a list as in a mail header (RFC 5322, 3.4), which commas outside quotes separate, each as it is written; empty for NULL.';

CREATE FUNCTION @extschema@._bare_addresses(mailboxes text[]) RETURNS text[]
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_bare_addresses_wrapper';
COMMENT ON FUNCTION @extschema@._bare_addresses(text[]) IS
    'Internal. The addresses of these mailboxes, without names; an element that is none is returned as it is.';

CREATE FUNCTION @extschema@._message_problem(
    recipients text[], cc text[], bcc text[], reply_to text[],
    subject text, body_text text, body_html text, kind text, data_type text, data_octets integer,
    send_at timestamptz, expires_at timestamptz, priority integer, max_attempts integer,
    item_key text, group_key text, from_address text, headers text,
    unsubscribe_url text, list text, now timestamptz
) RETURNS text[]
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_message_problem_wrapper';
COMMENT ON FUNCTION @extschema@._message_problem IS
    'Internal. Why such a message cannot be scheduled, as SQLSTATE, reason and hint; NULL if it can, apart from its transport and template.';

CREATE FUNCTION @extschema@._mail_problem(mail @extschema@._mail) RETURNS text[]
    LANGUAGE sql STABLE PARALLEL SAFE
RETURN @extschema@._message_problem(
    ($1).recipients, ($1).cc, ($1).bcc, ($1).reply_to, ($1).subject, ($1).body_text, ($1).body_html, ($1).kind,
    jsonb_typeof(($1).data), octet_length(($1).data::text), ($1).send_at, ($1).expires_at, ($1).priority, ($1).max_attempts,
    ($1).item_key, ($1).group_key, ($1).from_address, ($1).headers::text, ($1).unsubscribe_url, ($1).list, now()
);
COMMENT ON FUNCTION @extschema@._mail_problem IS 'Internal. As _message_problem, of a whole mail.';

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
