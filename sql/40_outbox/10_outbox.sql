-- The outbox: the public record, one row a mail, complete when it is inserted.
--
-- mailroom_collect and mailroom_send fill it; senders claim and settle its rows (50_queue/). Invariants: a token is
-- live in at most one row; a row in a final state has its time and, if it failed, its reason; a signed token, a code or
-- a link is only in the column secrets, and only while the row is still to be sent (I7). Each row is updated twice in
-- its life, so constraints, triggers and indexes that every update would pay for are kept away from it. What the columns
-- of a row must be to each other is in 20_states.sql. The state enum is in 06_library.sql, because
-- 20_tokens/40_eligibility.sql uses it.

-- Constraints of a domain are checked when a value is assigned, those of a table at each update of a row; and an error of
-- the latter quotes the row, secrets and all.
CREATE DOMAIN @extschema@._addresses AS text[]
    CONSTRAINT outbox_addresses_must_have_one_dimension CHECK (array_ndims(VALUE) = 1)
    CONSTRAINT outbox_addresses_must_not_be_null_or_empty CHECK (VALUE IS NULL OR ('' <> ALL (VALUE)) IS TRUE)
    CONSTRAINT outbox_addresses_must_not_exceed_64_kb CHECK (cardinality(VALUE) = 0 OR octet_length(VALUE::text) <= 65536)
    CONSTRAINT outbox_addresses_must_not_contain_control_characters CHECK (cardinality(VALUE) = 0 OR @extschema@._line_problem(VALUE::text) IS NULL);
COMMENT ON DOMAIN @extschema@._addresses IS
    'Internal. Mail addresses, none of them null or empty, without control characters.';

CREATE DOMAIN @extschema@._from_address AS text
    CONSTRAINT outbox_from_address_must_not_exceed_1024_octets CHECK (octet_length(VALUE) <= 1024)
    CONSTRAINT outbox_from_address_must_be_one_line CHECK (@extschema@._line_problem(VALUE) IS NULL);
COMMENT ON DOMAIN @extschema@._from_address IS 'Internal. A mail address with or without a name, without control characters.';

CREATE DOMAIN @extschema@._recipients AS @extschema@._addresses
    CONSTRAINT outbox_recipients_must_not_be_empty CHECK (cardinality(VALUE) > 0);
COMMENT ON DOMAIN @extschema@._recipients IS 'Internal. At least one mail address.';

-- Few enough that a claim can look at each.
CREATE DOMAIN @extschema@._priority AS smallint
    CONSTRAINT outbox_priority_must_be_from_minus_100_to_100 CHECK (VALUE BETWEEN -100 AND 100);
COMMENT ON DOMAIN @extschema@._priority IS 'Internal. Order of claims, from -100 to 100; smaller goes first.';

CREATE DOMAIN @extschema@._kind AS text
    CONSTRAINT outbox_kind_must_not_be_empty CHECK (VALUE <> '')
    CONSTRAINT outbox_kind_must_not_exceed_255_characters CHECK (char_length(VALUE) <= 255)
    CONSTRAINT outbox_kind_must_not_contain_control_characters CHECK (@extschema@._line_problem(VALUE) IS NULL);
COMMENT ON DOMAIN @extschema@._kind IS 'Internal. The kind of a mail, which names its template.';

-- Compared byte by byte, because it is the first column of the indexes that claims use.
CREATE DOMAIN @extschema@._transport AS text COLLATE "C"
    CONSTRAINT outbox_transport_must_be_empty_or_a_name CHECK (VALUE = '' OR VALUE ~ '^[a-z][a-z0-9_-]{0,62}$');
COMMENT ON DOMAIN @extschema@._transport IS 'Internal. The name of a transport; empty for mail that clients deliver.';

CREATE DOMAIN @extschema@._variables AS jsonb
    CONSTRAINT outbox_data_must_be_an_object CHECK (jsonb_typeof(VALUE) = 'object')
    CONSTRAINT outbox_data_must_not_exceed_1_mb CHECK (octet_length(VALUE::text) <= 1048576);
COMMENT ON DOMAIN @extschema@._variables IS 'Internal. A JSON object of bounded size.';

CREATE DOMAIN @extschema@._one_line AS text
    CONSTRAINT outbox_subject_must_not_exceed_998_octets CHECK (octet_length(VALUE) <= 998)
    CONSTRAINT outbox_subject_must_be_one_line CHECK (@extschema@._line_problem(VALUE) IS NULL);
COMMENT ON DOMAIN @extschema@._one_line IS
    'Internal. Text without control characters, at most as long as a line of a mail.';

-- The upper bound of mailroom.max_message_size: that setting limits applications, this domain every writer.
CREATE DOMAIN @extschema@._body AS text
    CONSTRAINT outbox_body_must_not_exceed_100_mb CHECK (octet_length(VALUE) <= 104857600);
COMMENT ON DOMAIN @extschema@._body IS 'Internal. Text of bounded size.';

CREATE FUNCTION @extschema@._message_id() RETURNS uuid
    LANGUAGE c VOLATILE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_message_id_wrapper';
COMMENT ON FUNCTION @extschema@._message_id() IS
    'Internal. A UUID of version 7 (RFC 9562): the time in milliseconds and 74 bits from the server''s strong random source.';

CREATE FUNCTION @extschema@._max_attempts() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_max_attempts_wrapper';
COMMENT ON FUNCTION @extschema@._max_attempts() IS 'Internal. The setting mailroom.max_attempts.';

CREATE FUNCTION @extschema@._urgent_priority() RETURNS smallint
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_urgent_priority_wrapper';
COMMENT ON FUNCTION @extschema@._urgent_priority() IS
    'Internal. The priority -10: mail of this priority or less is urgent, as password recoveries are.';

CREATE FUNCTION @extschema@._search_keys(mailboxes text[]) RETURNS text[]
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_search_keys_wrapper';
COMMENT ON FUNCTION @extschema@._search_keys(text[]) IS
    'Internal. The addresses of these mailboxes as mailroom_address_key writes them; what is no mailbox is left out.';

-- Indexed columns come first, and among them those that are never null and of fixed length: each update compares these
-- columns, and has to skip over everything before a column that follows a text or a null.
CREATE TABLE @extschema@.outbox (
    id bigserial,
    message_id uuid NOT NULL DEFAULT @extschema@._message_id(),
    state @extschema@.outbox_state NOT NULL DEFAULT 'scheduled',
    priority @extschema@._priority NOT NULL DEFAULT 0,
    send_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    failed_attempts integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT @extschema@._max_attempts(),
    ambiguous_attempts integer NOT NULL DEFAULT 0,
    ambiguous_alone boolean NOT NULL DEFAULT false,
    claimed_until timestamptz,
    token_id bigint,
    account_id bigint,
    expires_at timestamptz,
    claimed_at timestamptz,
    ended_at timestamptz,
    transport @extschema@._transport NOT NULL,
    item_key text,
    group_key text,
    kind @extschema@._kind NOT NULL,
    recipients @extschema@._recipients NOT NULL,
    cc @extschema@._addresses NOT NULL DEFAULT '{}',
    bcc @extschema@._addresses NOT NULL DEFAULT '{}',
    reply_to @extschema@._addresses NOT NULL DEFAULT '{}',
    from_address @extschema@._from_address,
    headers jsonb,
    unsubscribe_url text,
    list text,
    attachment_bytes integer,
    subject @extschema@._one_line,
    body_text @extschema@._body,
    body_html @extschema@._body,
    data @extschema@._variables NOT NULL DEFAULT '{}',
    secrets jsonb,
    last_error text,
    claimed_by text,
    enqueued_by name NOT NULL DEFAULT current_user,
    provider_id text,
    batch uuid,
    fallback_from @extschema@._transport,
    -- Room for the entries of the three versions of a row: a full page is first searched for entries to remove.
    CONSTRAINT outbox_pkey PRIMARY KEY (id) WITH (fillfactor = 33),
    CONSTRAINT outbox_message_id_key UNIQUE (message_id) WITH (fillfactor = 33)
) WITH (
    -- Room on each page for the new versions of its rows: they stay there, and less WAL is written.
    fillfactor = 50,
    -- Finished rows stay for days. Vacuum by the number of rows written since, not by the table's size.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 50000
);
-- The columns that an application sets are described with their definition, in 60_message.sql.
COMMENT ON TABLE @extschema@.outbox IS 'One row for each mail: contents, recipients, time, and what became of it.';
COMMENT ON COLUMN @extschema@.outbox.token_id IS 'tokens.id of token mail; the token may have been deleted since.';
COMMENT ON COLUMN @extschema@.outbox.account_id IS
    'accounts.id of token mail; the account may have been deleted since.';
COMMENT ON COLUMN @extschema@.outbox.secrets IS
    'For token mail that is still to be sent: token (signed), code, and link if mailroom.link_base_url is set. NULL otherwise.';
COMMENT ON COLUMN @extschema@.outbox.transport IS
    'The transport that delivers it; empty if clients do, by mailroom_claim. Default: the transport of the first row of routes that matches kind, else mailroom.transport.';
COMMENT ON COLUMN @extschema@.outbox.failed_attempts IS 'Number of attempts that failed or whose outcome is unknown.';
COMMENT ON COLUMN @extschema@.outbox.ambiguous_attempts IS
    'Number of attempts after which it is not known whether the provider took the mail.';
COMMENT ON COLUMN @extschema@.outbox.ambiguous_alone IS
    'Whether the mail was alone in its request in an ambiguous attempt: a provider that deduplicates requests recognises it only if it is sent alone again.';
COMMENT ON COLUMN @extschema@.outbox.attachment_bytes IS
    'The size of its files together, see outbox_attachments; NULL without attachments.';
COMMENT ON COLUMN @extschema@.outbox.last_error IS
    'Why the last attempt failed, or why the row ended without being sent.';
COMMENT ON COLUMN @extschema@.outbox.claimed_by IS
    'The claimant that is sending it, or that tried last; NULL while it is scheduled.';
COMMENT ON COLUMN @extschema@.outbox.claimed_at IS 'When claimed_by claimed it.';
COMMENT ON COLUMN @extschema@.outbox.claimed_until IS
    'When the claim expires unless it is settled; NULL unless the row is claimed.';
COMMENT ON COLUMN @extschema@.outbox.enqueued_by IS 'The role that inserted the row.';
COMMENT ON COLUMN @extschema@.outbox.provider_id IS 'The id that the provider gave to the accepted mail; NULL if it has more than 255 octets.';
COMMENT ON COLUMN @extschema@.outbox.batch IS
    'The ambiguous request that the mail was part of, at a provider that deduplicates a request by its members. Mails with the same value are sent together again.';
COMMENT ON COLUMN @extschema@.outbox.fallback_from IS
    'The transport from which a fallback took the mail; NULL if none did. If it is transport, the mail has come back, because the fallback could not carry it, and waits there.';
COMMENT ON COLUMN @extschema@.outbox.ended_at IS 'When the row reached a final state.';

-- The order in which due rows of a transport are claimed. Partial, so that finished rows cost nothing; transport comes
-- first, so that rows of other transports cost nothing.
CREATE INDEX outbox_due ON @extschema@.outbox (transport, priority, send_at, id) WHERE state = 'scheduled';
-- Expired claims.
CREATE INDEX outbox_lease ON @extschema@.outbox (claimed_until, id) WHERE state = 'claimed';
-- For purges, and for people.
CREATE INDEX outbox_ended ON @extschema@.outbox (ended_at, id) WHERE ended_at IS NOT NULL;
-- Its condition keeps it from searches for one token or item, which outbox_failed_again answers.
CREATE INDEX outbox_failed ON @extschema@.outbox (ended_at) WHERE state = 'error' AND ended_at IS NOT NULL;
-- Whether a later mail of a token, or with the same item_key of its role, failed as well.
CREATE INDEX outbox_failed_again ON @extschema@.outbox (token_id, item_key, enqueued_by)
    WHERE state = 'error' AND (token_id IS NOT NULL OR item_key IS NOT NULL);
-- To whom mail went. Of ended mail, so that what is scheduled or claimed writes no entry; "C", because a key is its bytes.
CREATE INDEX outbox_addresses ON @extschema@.outbox USING gin (
    (@extschema@._search_keys(recipients::text[] || cc::text[] || bcc::text[])) COLLATE "C"
) WHERE ended_at IS NOT NULL;
CREATE INDEX outbox_provider_id ON @extschema@.outbox (provider_id) WHERE provider_id IS NOT NULL;
-- In the predicates, what is rarely true comes first: each update evaluates all of them. A token is live in one row at
-- most (I2); the index also finds the mail of a deleted token.
CREATE UNIQUE INDEX outbox_live_token ON @extschema@.outbox (token_id)
    WHERE token_id IS NOT NULL AND state IN ('scheduled', 'claimed');
CREATE UNIQUE INDEX outbox_live_item_key ON @extschema@.outbox (item_key, enqueued_by)
    WHERE item_key IS NOT NULL AND state IN ('scheduled', 'claimed');
-- Groups: the order in which they are claimed, their rows, and whether a claimant holds one.
CREATE INDEX outbox_group_due ON @extschema@.outbox (transport, priority, send_at, id)
    WHERE state = 'scheduled' AND group_key IS NOT NULL;
CREATE INDEX outbox_group_rows ON @extschema@.outbox (group_key, transport, priority, send_at, id)
    WHERE state = 'scheduled' AND group_key IS NOT NULL;
-- The query for the holder of a group does not name state, so that only this index fits it: not outbox_lease, which
-- contains dead entries of all claims.
CREATE INDEX outbox_group_held ON @extschema@.outbox (group_key, claimed_until)
    WHERE claimed_until IS NOT NULL AND group_key IS NOT NULL;
