-- The outbox: the public record, one row a mail, complete when it is inserted.
--
-- mailroom_collect and mailroom_send fill it; senders claim and settle its rows (50_queue/). Invariants: a token is live
-- in at most one row; a row in a final state has its time and, if it failed, its reason; a signed token, a code or a link
-- is only in the column secrets, and only while the row is still to be sent (I7). Each row is updated twice in its life,
-- so whatever every update would pay for (constraints, triggers, indexes) is kept away from it. The state enum is in
-- 05_library.sql, because 20_tokens/40_eligibility.sql uses it.

-- Constraints of a domain are looked at when a value comes in, those of a table at each update of its rows.
CREATE DOMAIN @extschema@._addresses AS text[]
    CONSTRAINT outbox_addresses_must_not_be_null_or_empty CHECK (VALUE IS NULL OR ('' <> ALL (VALUE)) IS TRUE)
    CONSTRAINT outbox_addresses_must_not_exceed_64_kb CHECK (cardinality(VALUE) = 0 OR octet_length(VALUE::text) <= 65536)
    CONSTRAINT outbox_addresses_must_not_contain_control_characters CHECK (cardinality(VALUE) = 0 OR VALUE::text !~ E'[\\u0001-\\u001F\\u007F]');
COMMENT ON DOMAIN @extschema@._addresses IS 'Internal. Mail addresses, none of them null or empty, without control characters.';

CREATE DOMAIN @extschema@._recipients AS @extschema@._addresses
    CONSTRAINT outbox_recipients_must_not_be_empty CHECK (cardinality(VALUE) > 0);
COMMENT ON DOMAIN @extschema@._recipients IS 'Internal. At least one mail address.';

-- Few enough that a claim can look at each.
CREATE DOMAIN @extschema@._priority AS smallint
    CONSTRAINT outbox_priority_must_be_from_minus_100_to_100 CHECK (VALUE BETWEEN -100 AND 100);
COMMENT ON DOMAIN @extschema@._priority IS 'Internal. How urgent a mail is, from -100 to 100; smaller goes first.';

CREATE DOMAIN @extschema@._kind AS text
    CONSTRAINT outbox_kind_must_not_be_empty CHECK (VALUE <> '');
COMMENT ON DOMAIN @extschema@._kind IS 'Internal. What sort of mail it is.';

-- Compared byte by byte: it is the first column of the indexes that claims use.
CREATE DOMAIN @extschema@._transport AS text COLLATE "C"
    CONSTRAINT outbox_transport_must_be_empty_or_a_name CHECK (VALUE = '' OR VALUE ~ '^[a-z][a-z0-9_-]{0,62}$');
COMMENT ON DOMAIN @extschema@._transport IS 'Internal. The name of a transport; empty for mail that clients deliver.';

CREATE DOMAIN @extschema@._variables AS jsonb
    CONSTRAINT outbox_data_must_be_an_object CHECK (jsonb_typeof(VALUE) = 'object')
    CONSTRAINT outbox_data_must_not_exceed_1_mb CHECK (octet_length(VALUE::text) <= 1048576);
COMMENT ON DOMAIN @extschema@._variables IS 'Internal. A JSON object of bounded size.';

CREATE DOMAIN @extschema@._one_line AS text
    CONSTRAINT outbox_subject_must_not_exceed_998_octets CHECK (octet_length(VALUE) <= 998)
    CONSTRAINT outbox_subject_must_be_one_line CHECK (
        VALUE !~ E'[\\u0001-\\u001F\\u007F]'
        -- The numbers of other characters in other encodings.
        AND (getdatabaseencoding() <> 'UTF8' OR VALUE !~ E'[\\u0080-\\u009F\\u2028\\u2029]')
    );
COMMENT ON DOMAIN @extschema@._one_line IS 'Internal. Text without control characters, as long as a line of a mail may be.';

-- What mailroom.max_message_size can be set to at most: it bounds what an application sends, this what anybody writes.
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
COMMENT ON FUNCTION @extschema@._max_attempts() IS 'Internal. mailroom.max_attempts.';

CREATE FUNCTION @extschema@._urgent_priority() RETURNS smallint
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_urgent_priority_wrapper';
COMMENT ON FUNCTION @extschema@._urgent_priority() IS
    'Internal. -10: mail of this priority or less is urgent, as password recoveries are.';

-- What indexes are made of comes first, and of that what is never null and of one length: each update compares
-- these columns, and finds those behind a text or a null only by going through all that is before them.
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
    -- Room for the entries of a mail's three versions: a page that is full looks for what it can throw out first.
    CONSTRAINT outbox_pkey PRIMARY KEY (id) WITH (fillfactor = 33),
    CONSTRAINT outbox_message_id_key UNIQUE (message_id) WITH (fillfactor = 33),
    CONSTRAINT outbox_failed_attempts_must_not_be_negative CHECK (failed_attempts >= 0),
    CONSTRAINT outbox_max_attempts_must_be_positive CHECK (max_attempts > 0),
    CONSTRAINT outbox_claim_must_have_claimant_and_end CHECK (
        CASE state
            WHEN 'claimed' THEN claimed_by IS NOT NULL AND claimed_at IS NOT NULL AND claimed_until IS NOT NULL
            WHEN 'scheduled' THEN claimed_until IS NULL
            ELSE true
        END
    ),
    CONSTRAINT outbox_live_row_must_not_have_ended
        CHECK (ended_at IS NULL OR (state <> 'scheduled' AND state <> 'claimed')),
    CONSTRAINT outbox_error_must_have_a_reason
        CHECK (last_error IS NOT NULL OR state <> 'error' OR token_id IS NOT NULL)
) WITH (
    -- A page has room for the new versions of its rows: they stay where they are, and less of them is logged.
    fillfactor = 50,
    -- Finished rows stay for days. Vacuum by what was written since, not by the table's size.
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 50000
);
COMMENT ON TABLE @extschema@.outbox IS 'One row a mail: what to send, to whom, when, and what became of it.';
COMMENT ON COLUMN @extschema@.outbox.message_id IS
    'Stays the same over all attempts: the idempotency key for providers and receivers. Unless the application gave one, a UUID of version 7 (RFC 9562).';
COMMENT ON COLUMN @extschema@.outbox.kind IS 'activation, password_recovery, or a name of the application''s own.';
COMMENT ON COLUMN @extschema@.outbox.token_id IS 'tokens.id of token mail; the token may be gone meanwhile.';
COMMENT ON COLUMN @extschema@.outbox.account_id IS 'accounts.id of token mail; the account may be gone meanwhile.';
COMMENT ON COLUMN @extschema@.outbox.recipients IS 'Addresses of the To header, at least one.';
COMMENT ON COLUMN @extschema@.outbox.data IS
    'Variables for the template. mailroom_claim returns them together with those in secrets.';
COMMENT ON COLUMN @extschema@.outbox.secrets IS
    'Token mail that is still to be sent: token (signed, 86 characters), code, and link when mailroom.link_base_url is set. NULL in all other rows, and from the moment that a row ends.';
COMMENT ON COLUMN @extschema@.outbox.priority IS 'From -100 to 100, smaller goes first; 0 is normal, recovery mail is -10.';
COMMENT ON COLUMN @extschema@.outbox.transport IS
    'The transport that delivers it; empty: clients do, by mailroom_claim. Of a row that is inserted without one, the transport of the first of routes that matches its kind, else mailroom.transport.';
COMMENT ON COLUMN @extschema@.outbox.send_at IS 'Not before this time.';
COMMENT ON COLUMN @extschema@.outbox.expires_at IS 'Of no use after this time; NULL for never.';
COMMENT ON COLUMN @extschema@.outbox.failed_attempts IS 'Sends that were tried and did not succeed, or may not have.';
COMMENT ON COLUMN @extschema@.outbox.max_attempts IS 'After this many attempts the row ends as error.';
COMMENT ON COLUMN @extschema@.outbox.ambiguous_attempts IS
    'Attempts of which their sender does not know whether the provider took the mail.';
COMMENT ON COLUMN @extschema@.outbox.ambiguous_alone IS
    'Whether the mail had the request to itself in one of those: a provider that recognises repeated requests recognises it only if it goes alone again.';
COMMENT ON COLUMN @extschema@.outbox.last_error IS 'Why the latest attempt failed, or why the row ended unsent.';
COMMENT ON COLUMN @extschema@.outbox.claimed_by IS
    'Who is sending it; of a row that has ended, whoever tried last. NULL while it is scheduled.';
COMMENT ON COLUMN @extschema@.outbox.claimed_at IS 'When claimed_by claimed it.';
COMMENT ON COLUMN @extschema@.outbox.claimed_until IS
    'When the claim lapses unless it is settled; NULL unless it is claimed.';
COMMENT ON COLUMN @extschema@.outbox.item_key IS 'The application''s own key; unique among live rows.';
COMMENT ON COLUMN @extschema@.outbox.group_key IS 'Rows of one group are handed to one sender at a time.';
COMMENT ON COLUMN @extschema@.outbox.enqueued_by IS 'The role that put the row here.';
COMMENT ON COLUMN @extschema@.outbox.provider_id IS 'The provider''s own id for the accepted mail.';
COMMENT ON COLUMN @extschema@.outbox.batch IS
    'The request with several mails that it was in when nobody knew what became of it, of a provider that recognises a request by all of its mails: those with the same value are sent together again.';
COMMENT ON COLUMN @extschema@.outbox.ended_at IS 'When a final state was reached.';

-- The order in which due rows of a transport are claimed. Partial, so that finished rows weigh nothing; transport comes
-- first, so that rows of transports that are not claimed cost a claim of others nothing.
CREATE INDEX outbox_due ON @extschema@.outbox (transport, priority, send_at, id) WHERE state = 'scheduled';
-- Claims that lapsed.
CREATE INDEX outbox_lease ON @extschema@.outbox (claimed_until) WHERE state = 'claimed';
-- What a purge deletes, and what people look for.
CREATE INDEX outbox_ended ON @extschema@.outbox (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX outbox_failed ON @extschema@.outbox (ended_at) WHERE state = 'error';
-- Whether a later mail of a token, or of an item, failed as well.
CREATE INDEX outbox_failed_again ON @extschema@.outbox (token_id, item_key)
    WHERE state = 'error' AND (token_id IS NOT NULL OR item_key IS NOT NULL);
CREATE INDEX outbox_provider_id ON @extschema@.outbox (provider_id) WHERE provider_id IS NOT NULL;
-- What is seldom the case comes first in a predicate: each update asks for all of them.
-- A token is live in one row at most (I2); also finds the mail of a token that goes.
CREATE UNIQUE INDEX outbox_live_token ON @extschema@.outbox (token_id)
    WHERE token_id IS NOT NULL AND state IN ('scheduled', 'claimed');
CREATE UNIQUE INDEX outbox_live_item_key ON @extschema@.outbox (item_key)
    WHERE item_key IS NOT NULL AND state IN ('scheduled', 'claimed');
-- Groups: the order in which they are claimed, their rows, and whether somebody holds one, whatever waits in it.
CREATE INDEX outbox_group_due ON @extschema@.outbox (transport, priority, send_at, id)
    WHERE state = 'scheduled' AND group_key IS NOT NULL;
CREATE INDEX outbox_group_rows ON @extschema@.outbox (group_key, transport, priority, send_at, id)
    WHERE state = 'scheduled' AND group_key IS NOT NULL;
-- Who holds a group is asked without its state, so that no other index will do: not that of all claims, which has their
-- dead entries, too.
CREATE INDEX outbox_group_held ON @extschema@.outbox (group_key, claimed_until)
    WHERE claimed_until IS NOT NULL AND group_key IS NOT NULL;
