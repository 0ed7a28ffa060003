-- Receiving: a request that a provider posted to the application's webhook.
--
-- The application calls mailroom_receive with the request as it came and answers 200 once the transaction is committed.
-- Invariants: nothing is read before it is verified; no request of a stranger is an error; the headers, which may have a
-- password, are in no parameter of a nested statement (I7).

CREATE TYPE @extschema@.receive_outcome AS ENUM ('recorded', 'duplicate', 'ignored', 'confirm', 'forged', 'stale', 'malformed');
COMMENT ON TYPE @extschema@.receive_outcome IS
    'recorded: there were news; duplicate: none; ignored: nothing that matters here; confirm: a GET of confirm_url begins the subscription; forged: not proven to be the provider''s; stale: too old; malformed: not what the provider sends.';

CREATE FUNCTION @extschema@._receive(transport text, database text, headers text, body bytea) RETURNS text
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_receive_wrapper';
COMMENT ON FUNCTION @extschema@._receive(text, text, text, bytea) IS
    'Internal. What this request to the webhook of a transport is, verified by the secrets of mailroom.transports_file, as JSON: outcome, and events or confirm_url.';

CREATE FUNCTION @extschema@.mailroom_receive(
    transport text,
    headers jsonb,
    body bytea,
    OUT outcome @extschema@.receive_outcome,
    OUT recorded integer,
    OUT confirm_url text
)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    received jsonb;
    known integer;
BEGIN
    IF transport IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'transport must not be null',
            DETAIL = 'Each transport has its secret for events.',
            HINT = 'Pass the name of a table [transports.NAME] of the transports file.';
    END IF;
    -- An expression: a statement would have the headers as a parameter (I7).
    received := @extschema@._receive(transport, current_database()::text, coalesce(headers, '{}')::text, coalesce(body, ''))::jsonb;
    recorded := 0;
    confirm_url := received ->> 'confirm_url';
    IF received ? 'events' THEN
        SELECT r.known, r.recorded
        INTO known, recorded
        FROM @extschema@._record_events(mailroom_receive.transport, received -> 'events') r;
        outcome := (CASE WHEN recorded > 0 THEN 'recorded' WHEN known > 0 THEN 'duplicate' ELSE 'ignored' END)::@extschema@.receive_outcome;
    ELSE
        outcome := (received ->> 'outcome')::@extschema@.receive_outcome;
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_receive(text, jsonb, bytea) IS
    'Verifies a request that a provider posted to a webhook and records its events: headers as an object of strings, body as the bytes that came. Answer 401 to forged, 400 to stale and malformed, else 200 after the commit. Returns the outcome, how many events were news, and for confirm the URL to get.';
