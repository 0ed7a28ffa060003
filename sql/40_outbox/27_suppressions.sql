-- Suppressions: addresses to which no mail is sent, with the reason and an end.
--
-- Events and answers of providers suppress and lift by themselves (70_events/10_record.sql); people and applications do it
-- by the functions below; claims leave such addresses out (50_queue/45_batch.sql). A bounce suppresses for three days
-- first, because mailbox providers have refused existing mailboxes for days. Invariants: an address has one row for each
-- list and reason, by its key; each reason ends by itself.

CREATE TYPE @extschema@.suppression_reason AS ENUM ('bounced', 'complained', 'unsubscribed', 'manual');
COMMENT ON TYPE @extschema@.suppression_reason IS
    'bounced: its server refused mail to the address for good; complained: the recipient called mail spam, which stops all but token mail; unsubscribed: the recipient wants no more of a list; manual: a person or a program decided it.';

CREATE FUNCTION @extschema@._list_problem(list text) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_list_problem_wrapper';
COMMENT ON FUNCTION @extschema@._list_problem(text) IS
    'Internal. Why this is no name of a list: it is empty, has more than 128 octets or a control character; NULL if it is one.';

CREATE TABLE @extschema@.suppressions (
    address text COLLATE "C" NOT NULL,
    list text COLLATE "C" NOT NULL DEFAULT '',
    reason @extschema@.suppression_reason NOT NULL,
    bounces integer NOT NULL DEFAULT 0,
    event_id bigint,
    since timestamptz NOT NULL DEFAULT now(),
    until timestamptz,
    CONSTRAINT suppressions_pkey PRIMARY KEY (address, list, reason),
    CONSTRAINT suppressions_address_must_be_a_key CHECK (address = @extschema@.mailroom_address_key(address) COLLATE "C"),
    CONSTRAINT suppressions_list_must_be_empty_or_a_list CHECK (list = '' OR @extschema@._list_problem(list) IS NULL),
    CONSTRAINT suppressions_since_must_be_finite CHECK (isfinite(since))
);
COMMENT ON TABLE @extschema@.suppressions IS
    'Addresses to which no mail is sent, one row for each address, list and reason; see mailroom_suppress. A row that has ended is kept for a year, because a further bounce suppresses for longer.';
COMMENT ON COLUMN @extschema@.suppressions.address IS 'The key of the address, see mailroom_address_key.';
COMMENT ON COLUMN @extschema@.suppressions.list IS 'The list, see outbox.list; empty for all mail.';
COMMENT ON COLUMN @extschema@.suppressions.reason IS 'Why.';
COMMENT ON COLUMN @extschema@.suppressions.bounces IS
    'How many times it bounced, at least once each time that it was not suppressed: 3 days for the first, then 30, then 365.';
COMMENT ON COLUMN @extschema@.suppressions.event_id IS 'delivery_events.id of the latest event that suppressed it; NULL without one.';
COMMENT ON COLUMN @extschema@.suppressions.since IS
    'When it was suppressed, or bounced last. A delivery after that lifts a suppression by a bounce.';
COMMENT ON COLUMN @extschema@.suppressions.until IS 'When it ends; NULL for never.';

-- The newest first, for people.
CREATE INDEX suppressions_since ON @extschema@.suppressions (since, address);
-- For the purge.
CREATE INDEX suppressions_until ON @extschema@.suppressions (until) WHERE until IS NOT NULL;

CREATE VIEW @extschema@._suppressions_in_force AS
SELECT s.address, s.list, s.reason, s.since
FROM @extschema@.suppressions s
WHERE (s.until > clock_timestamp()) IS NOT FALSE;
COMMENT ON VIEW @extschema@._suppressions_in_force IS 'Internal. The suppressions that have not ended.';

CREATE FUNCTION @extschema@._without(mailboxes text[], keys text[]) RETURNS text[]
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_without_wrapper';
COMMENT ON FUNCTION @extschema@._without(text[], text[]) IS
    'Internal. Those of these mailboxes whose addresses have none of these keys.';

CREATE FUNCTION @extschema@._check_suppression(addresses text[], list text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    bad record;
    broken text;
BEGIN
    IF addresses IS NULL OR list IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = format('%s must not be null', CASE WHEN addresses IS NULL THEN 'addresses' ELSE 'list' END),
            DETAIL = 'A suppression has an address, and a list, which is empty for all mail.',
            HINT = 'Pass an array of addresses, and the list as mailroom_send has it.';
    END IF;
    SELECT u.number, u.address
    INTO bad
    FROM unnest(_check_suppression.addresses) WITH ORDINALITY u (address, number)
    WHERE @extschema@.mailroom_address_key(u.address) IS NULL
    ORDER BY u.number
    LIMIT 1;
    IF FOUND THEN
        RAISE invalid_text_representation USING
            MESSAGE = CASE WHEN cardinality(addresses) = 1 THEN 'address' ELSE format('addresses[%s]', bad.number) END || ' is not a mail address',
            DETAIL = coalesce('It is "' || left(@extschema@._visible(bad.address), 64) || '".', 'It is null.'),
            HINT = 'An address is local@domain, without a name, quotes and blanks.';
    END IF;
    broken := @extschema@._list_problem(list);
    IF list <> '' AND broken IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'list is not valid',
            DETAIL = format('It %s.', broken),
            HINT = 'Pass the list as mailroom_send has it, at most 128 octets.';
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._check_suppression(text[], text) IS
    'Internal. Raises an error for what is no address, or no list; an empty list passes.';

CREATE FUNCTION @extschema@._suppress(addresses text[], list text, reason @extschema@.suppression_reason, until timestamptz) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    suppressed integer;
BEGIN
    -- In one order, so that two sessions do not wait for each other in a circle.
    WITH given AS MATERIALIZED (
        SELECT DISTINCT @extschema@.mailroom_address_key(u.address) COLLATE "C" AS address
        FROM unnest(_suppress.addresses) u (address)
        ORDER BY 1
    ), known AS MATERIALIZED (
        SELECT g.address, EXISTS (
            SELECT
            FROM @extschema@._suppressions_in_force s
            WHERE s.address = g.address
              AND s.list = _suppress.list
              AND s.reason = _suppress.reason
            OFFSET 0
        ) AS is_suppressed
        FROM given g
    ), written AS (
        INSERT INTO @extschema@.suppressions AS s (address, list, reason, bounces, since, until)
        SELECT k.address, _suppress.list, _suppress.reason, (_suppress.reason = 'bounced')::integer, clock_timestamp(), _suppress.until
        FROM known k
        ORDER BY k.address
        ON CONFLICT ON CONSTRAINT suppressions_pkey DO UPDATE
        SET since = CASE WHEN s.until <= clock_timestamp() THEN clock_timestamp() ELSE s.since END,
            -- Never shorter: that is what mailroom_unsuppress is for.
            until = CASE WHEN s.until <= clock_timestamp() OR s.until < EXCLUDED.until OR EXCLUDED.until IS NULL THEN EXCLUDED.until ELSE s.until END
    )
    SELECT count(*) INTO suppressed FROM known k WHERE NOT k.is_suppressed;
    IF suppressed > 0 AND @extschema@._is_operator() THEN
        INSERT INTO @extschema@._new_actions (action, detail)
        VALUES ('suppressed', jsonb_build_object('list', _suppress.list, 'reason', _suppress.reason, 'addresses', local.suppressed));
    END IF;
    RETURN suppressed;
END;
$$;
COMMENT ON FUNCTION @extschema@._suppress(text[], text, @extschema@.suppression_reason, timestamptz) IS
    'Internal. Suppresses these addresses, which are valid, for a list (empty: all mail) until a time (NULL: for ever). Returns how many were not.';

CREATE FUNCTION @extschema@._suppress_on_list(addresses text[], list text, reason @extschema@.suppression_reason, until timestamptz) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (list = '') IS NOT FALSE THEN
        RAISE insufficient_privilege USING
            MESSAGE = 'permission denied to suppress all mail to an address',
            DETAIL = 'An application suppresses mail of a list.',
            HINT = 'Pass list, or become a member of mailroom_support.';
    END IF;
    RETURN @extschema@._suppress(addresses, list, reason, until);
END;
$$;
COMMENT ON FUNCTION @extschema@._suppress_on_list(text[], text, @extschema@.suppression_reason, timestamptz) IS
    'Internal. As _suppress, for applications: of a list only.';

CREATE FUNCTION @extschema@.mailroom_suppress_many(
    addresses text[],
    list text DEFAULT '',
    reason @extschema@.suppression_reason DEFAULT 'manual',
    until timestamptz DEFAULT NULL
)
    RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF reason IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'reason must not be null',
            DETAIL = 'A suppression has an address, a list, which is empty for all mail, and a reason.',
            HINT = 'Leave it out for manual.';
    END IF;
    PERFORM @extschema@._check_suppression(addresses, list);
    IF list = '' AND has_function_privilege('@extschema@._suppress(text[], text, @extschema@.suppression_reason, timestamptz)', 'EXECUTE') THEN
        RETURN @extschema@._suppress(addresses, list, reason, until);
    END IF;
    -- Of a list; for all mail it says why not.
    RETURN @extschema@._suppress_on_list(addresses, list, reason, until);
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_suppress_many(text[], text, @extschema@.suppression_reason, timestamptz) IS
    'Sends no more mail to these addresses: of a list, or all if it is empty, for which the caller must be a member of mailroom_support; until a time, or for ever. Returns how many were not suppressed for this reason before; of the others, a later end counts.';

CREATE FUNCTION @extschema@.mailroom_suppress(
    address text,
    list text DEFAULT '',
    reason @extschema@.suppression_reason DEFAULT 'manual',
    until timestamptz DEFAULT NULL
)
    RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT @extschema@.mailroom_suppress_many(ARRAY[address], list, reason, until) = 1
$$;
COMMENT ON FUNCTION @extschema@.mailroom_suppress(text, text, @extschema@.suppression_reason, timestamptz) IS
    'Sends no more mail to an address, as mailroom_suppress_many. Returns false if it was suppressed for this reason before.';

CREATE FUNCTION @extschema@.mailroom_unsuppress(address text, list text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    DELETE FROM @extschema@.suppressions s
    WHERE s.address = @extschema@.mailroom_address_key(mailroom_unsuppress.address)
      AND s.list = coalesce(mailroom_unsuppress.list, s.list);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO @extschema@._new_actions (action, detail)
    VALUES ('unsuppressed', jsonb_strip_nulls(jsonb_build_object('list', mailroom_unsuppress.list)));
    RETURN true;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_unsuppress(text, text) IS
    'Lifts the suppressions of an address for a list (empty: those for all mail; default: all); returns false if there were none. It sends nothing by itself: use mailroom_retry for mail that was suppressed.';

CREATE FUNCTION @extschema@.mailroom_suppressed(address text, list text DEFAULT '') RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
    SELECT EXISTS (
        SELECT
        FROM @extschema@._suppressions_in_force s
        WHERE s.address = @extschema@.mailroom_address_key(mailroom_suppressed.address)
          AND s.list IN ('', mailroom_suppressed.list)
    )
$$;
COMMENT ON FUNCTION @extschema@.mailroom_suppressed(text, text) IS
    'Whether mail of this list (empty: of none) to this address is left out at present. Mail with a token goes to an address whose only suppression is a complaint.';

-- What a claim leaves out. Volatile, so that it sees what was lifted meanwhile.
CREATE VIEW @extschema@._suppressed_recipients AS
SELECT o.ctid AS place, o.id AS outbox_id, o.transport, k.address, s.reason, s.since
FROM @extschema@.outbox o
CROSS JOIN LATERAL unnest(@extschema@._search_keys(o.recipients::text[] || o.cc::text[] || o.bcc::text[])) k (address)
JOIN @extschema@._suppressions_in_force s ON s.address = k.address COLLATE "C"
WHERE s.list IN ('', o.list COLLATE "C")
  -- A complaint must not keep people out of their accounts.
  AND (s.reason <> 'complained' OR o.token_id IS NULL)
  -- A batch that may have been sent is repeated as it was: without one of its mails, the provider would take the others for new.
  AND o.batch IS NULL;
COMMENT ON VIEW @extschema@._suppressed_recipients IS
    'Internal. The addresses of each mail, as keys, to which it is not sent at present, and why.';
