-- Unsubscribing: a link for each list and address, and what a click does.
--
-- A claim puts the link into the mails of a list (50_queue/45_batch.sql), as RFC 8058 has it; the application's route, or
-- `mailroom receive`, calls mailroom_unsubscribe when it is posted to, never for a GET, which scanners of mail send. The
-- link does not expire: it is signed with the key file, and a key that leaves the file ends its links. Invariant: who has
-- no link of an address cannot unsubscribe it.

CREATE FUNCTION @extschema@._unsubscribe_url(list text, mailbox text) RETURNS text
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_unsubscribe_url_wrapper';
COMMENT ON FUNCTION @extschema@._unsubscribe_url(text, text) IS
    'Internal. The link by which this mailbox unsubscribes from a list; NULL without mailroom.link_base_url, or if one of the two is not valid.';

CREATE FUNCTION @extschema@._is_unsubscribe_url(url text) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_is_unsubscribe_url_wrapper';
COMMENT ON FUNCTION @extschema@._is_unsubscribe_url(text) IS
    'Internal. Whether the headers of RFC 8058 can have this URL: it begins with https:// and is not too long.';

CREATE FUNCTION @extschema@._unsubscriber(token text) RETURNS text[]
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_unsubscriber_wrapper';
COMMENT ON FUNCTION @extschema@._unsubscriber(text) IS
    'Internal. The list and the address of a token that one of the keys signed; NULL for any other.';

CREATE FUNCTION @extschema@.mailroom_unsubscribe_url(address text, list text) RETURNS text
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    url text;
BEGIN
    PERFORM @extschema@._check_suppression(ARRAY[address], list);
    IF list = '' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'list must not be empty',
            DETAIL = 'A link unsubscribes from one list.',
            HINT = 'Pass the list as mailroom_send has it.';
    END IF;
    url := @extschema@._unsubscribe_url(list, address);
    IF url IS NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'there is no URL to begin the link with',
            DETAIL = 'mailroom.link_base_url is not set.',
            HINT = 'Set it to the https URL of the application.';
    END IF;
    RETURN url;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_unsubscribe_url(text, text) IS
    'Returns the link by which this address unsubscribes from a list: mailroom.link_base_url and /unsubscribe?token=..., for mail that mailroom does not send. The link does not expire.';

CREATE FUNCTION @extschema@.mailroom_unsubscribe(token text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- An expression: a statement would have the token as a parameter (I7).
    who CONSTANT text[] := @extschema@._unsubscriber(token);
BEGIN
    IF who IS NULL THEN
        RETURN false;
    END IF;
    PERFORM @extschema@._suppress(ARRAY[who[2]], who[1], 'unsubscribed'::@extschema@.suppression_reason, NULL::timestamptz);
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_unsubscribe(text) IS
    'Unsubscribes the address of a link from its list, token being what the link has behind token=; returns false for a token that no key signed. Call it for POST only, because scanners of mail follow links; repeating it does no harm.';
