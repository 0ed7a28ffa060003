-- mailroom.redirect_to: all mail goes to one address instead of its recipients, for development.
--
-- Each claim of a deliverer asks for it. ALTER DATABASE ... SET takes effect at once, also in sessions that began before:
-- without that they would have the value only from their next connection on, and until then mail would go to real people.
-- The setting has no check hook: a server that loads the library later would drop a value that fails it, and send.

-- mailroom.redirect_to is asked for with each claim. What was set for the database counts at once, also in sessions that
-- began before: they have it only from their next connection on, and until then mail would go to real people. The
-- setting has no check of its own: a server that loads the library later would drop a value that fails it, and send.

CREATE FUNCTION @extschema@._redirect_setting() RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT nullif(coalesce(
        (
            SELECT substr(c.entry, strpos(c.entry, '=') + 1)
            FROM pg_db_role_setting d
            CROSS JOIN LATERAL unnest(d.setconfig) c (entry)
            WHERE d.setrole = 0
              AND d.setdatabase IN (0::oid, (SELECT b.oid FROM pg_database b WHERE b.datname = current_database()))
              AND starts_with(lower(c.entry), 'mailroom.redirect_to=')
            ORDER BY d.setdatabase DESC
            LIMIT 1
        ),
        current_setting('mailroom.redirect_to', true)
    ), '')
$$;
COMMENT ON FUNCTION @extschema@._redirect_setting() IS
    'Internal. mailroom.redirect_to as it is set, also if it is not an address; NULL when it is empty.';

CREATE FUNCTION @extschema@._redirect_to() RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    address CONSTANT text := @extschema@._redirect_setting();
BEGIN
    IF address IS NOT NULL AND @extschema@._addresses_problem(ARRAY[address]) IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'mailroom.redirect_to is not a mail address',
            DETAIL = 'No mail is delivered until it is one, or empty.',
            HINT = 'ALTER DATABASE or ALTER SYSTEM ... SET mailroom.redirect_to to one address, without a name, or RESET it.';
    END IF;
    RETURN address;
END;
$$;
COMMENT ON FUNCTION @extschema@._redirect_to() IS
    'Internal. The address that all mail goes to instead of its recipients; NULL when it goes to these. Errors: 22023 when mailroom.redirect_to is no address.';
