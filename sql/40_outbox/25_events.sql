-- Events: what providers report about mail after they took it.
--
-- 70_events/ records them; a purge deletes them (60_worker/50_purge.sql), people read them in outbox_history. Invariants: an
-- event is recorded once; rows are only added, so the order in which events come does not matter; a mail that an event proves
-- to have been taken is not sent again.

CREATE TYPE @extschema@.event_type AS ENUM (
    'accepted', 'delivered', 'deferred', 'bounced', 'rejected', 'complained', 'unsubscribed', 'failed', 'suppressed'
);
COMMENT ON TYPE @extschema@.event_type IS
    'accepted: the provider took the mail; delivered: the recipient''s server did; deferred: not yet; bounced: it refused; rejected: the provider, or the server that mailroom gave it to, refused to take it; complained: the recipient called it spam; unsubscribed: the recipient wants no more; failed: the provider could not process it; suppressed: it was not sent to this address, by mailroom or the provider.';

CREATE TYPE @extschema@.reject_reason AS ENUM ('invalid', 'bounced', 'timed_out', 'blocked', 'spam', 'unsubscribed', 'other');
COMMENT ON TYPE @extschema@.reject_reason IS
    'invalid: the address is none; bounced: its server refused mail to it; timed_out: no server took it in time; blocked: a rule of the provider or of the server; spam: the recipient called mail spam; unsubscribed: the recipient wants no more; other.';

CREATE TABLE @extschema@.delivery_events (
    id bigserial,
    event_key uuid NOT NULL,
    outbox_id bigint,
    transport @extschema@._transport NOT NULL,
    type @extschema@.event_type NOT NULL,
    is_permanent boolean NOT NULL DEFAULT false,
    reason @extschema@.reject_reason,
    recipient text COLLATE "C",
    status text,
    detail text,
    occurred_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT delivery_events_pkey PRIMARY KEY (id),
    CONSTRAINT delivery_events_event_key_key UNIQUE (event_key),
    CONSTRAINT delivery_events_received_at_must_be_finite CHECK (isfinite(received_at)),
    CONSTRAINT delivery_events_texts_must_not_exceed_4000_octets CHECK (
        greatest(octet_length(recipient), octet_length(status), octet_length(detail)) <= 4000
    )
);
COMMENT ON TABLE @extschema@.delivery_events IS
    'What providers reported about mail after they took it, one row an event, as mailroom_receive and mailroom_report recorded it. Purged after mailroom.retention.';
COMMENT ON COLUMN @extschema@.delivery_events.event_key IS
    'By which an event that is reported twice is recognised: 128 bits of a SHA-256 of transport, the provider''s id, recipient and type.';
COMMENT ON COLUMN @extschema@.delivery_events.outbox_id IS
    'outbox.id; NULL if the mail was purged before the event came.';
COMMENT ON COLUMN @extschema@.delivery_events.transport IS 'The transport whose provider reported it.';
COMMENT ON COLUMN @extschema@.delivery_events.type IS 'What happened.';
COMMENT ON COLUMN @extschema@.delivery_events.is_permanent IS
    'Whether it is about the address rather than this mail, so that further mail to it is futile.';
COMMENT ON COLUMN @extschema@.delivery_events.reason IS 'Why the mail did not reach the recipient; NULL if the provider does not say.';
COMMENT ON COLUMN @extschema@.delivery_events.recipient IS
    'Whose event it is, as mailroom_address_key writes the address; NULL if the provider does not say.';
COMMENT ON COLUMN @extschema@.delivery_events.status IS
    'The enhanced status code of the recipient''s server (RFC 3463), as 5.1.1; NULL if none is known.';
COMMENT ON COLUMN @extschema@.delivery_events.detail IS
    'What the server replied, or the provider says, at most 1000 characters; links and codes are masked, addresses are not.';
COMMENT ON COLUMN @extschema@.delivery_events.occurred_at IS 'When it happened, as the provider says.';
COMMENT ON COLUMN @extschema@.delivery_events.received_at IS 'When it was recorded.';

-- For counts of the last day.
CREATE INDEX delivery_events_trouble ON @extschema@.delivery_events (type, received_at)
    WHERE type IN ('bounced', 'complained', 'suppressed');
CREATE INDEX delivery_events_outbox_id ON @extschema@.delivery_events (outbox_id);

CREATE FUNCTION @extschema@._proves_sending(type @extschema@.event_type) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
-- A provider that says anything else of a mail has taken it.
RETURN type NOT IN ('rejected', 'failed', 'suppressed');
COMMENT ON FUNCTION @extschema@._proves_sending(@extschema@.event_type) IS
    'Internal. Whether an event of this type proves that the provider took the mail.';

CREATE FUNCTION @extschema@._proven_state(mail bigint, since timestamptz) RETURNS @extschema@.outbox_state
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    -- A plan that was made while the table was small must not read all of it later.
    SET enable_seqscan = off
    SET jit = off
AS $$
    SELECT CASE
        WHEN bool_or(@extschema@._proves_sending(e.type)) THEN 'sent'
        WHEN bool_or(e.type IN ('rejected', 'failed') AND e.received_at >= _proven_state.since) THEN 'error'
    END::@extschema@.outbox_state
    FROM @extschema@.delivery_events e
    WHERE e.outbox_id = _proven_state.mail
$$;
COMMENT ON FUNCTION @extschema@._proven_state(bigint, timestamptz) IS
    'Internal. What the events of a mail prove that became of an attempt whose outcome is unknown: sent, or error if the provider gave it up since this time (NULL: that is not asked); NULL if they prove nothing.';
