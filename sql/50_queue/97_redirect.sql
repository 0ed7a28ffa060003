-- mailroom.redirect_to: all mail goes to one address instead of its recipients, for development.
--
-- Each claim of a deliverer asks for it. ALTER DATABASE ... SET takes effect at once, also in sessions that began
-- before: without that they would have the value only from their next connection on, and until then mail would go to
-- real people. The setting has no check hook: a server that loads the library later would drop a value that fails it,
-- and send.

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
    'Internal. The setting mailroom.redirect_to, even if it is not an address; NULL if it is empty.';

CREATE FUNCTION @extschema@._redirect_to() RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    address CONSTANT text := @extschema@._redirect_setting();
BEGIN
    IF NOT @extschema@._is_address(address) THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'mailroom.redirect_to is not a mail address',
            DETAIL = 'No mail is delivered until the setting is an address or empty.',
            HINT = 'Set it to one address without a name, by ALTER DATABASE or ALTER SYSTEM, or reset it.';
    END IF;
    RETURN address;
END;
$$;
COMMENT ON FUNCTION @extschema@._redirect_to() IS
    'Internal. The address that all mail is sent to instead of its recipients, or NULL; raises an error if mailroom.redirect_to is not an address.';
