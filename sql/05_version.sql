-- The session of the script, and versions: of the library that the server has loaded, and of the SQL of this database.
--
-- The other files of sql/ follow in the order of their numbers (src/install.rs). Names of internal objects begin with
-- an underscore. A function whose body is in the library is declared by hand beside the concept that uses it, so that
-- its volatility, strictness and argument names are written where a reader looks for them. Until 90_privileges/, only
-- the owner of the extension may call anything.
--
-- Between the installation of new files, the restart of the server and ALTER EXTENSION the versions differ.
-- Administrators, `mailroom check` and upgrade scripts read them. Invariant: these functions and their symbols stay in
-- every later version, because the first statement of each upgrade script calls the _require_library of the version that
-- it upgrades.

-- For the whole script, of which this file is the first: operators and functions are PostgreSQL's own, even if
-- the extension's schema contains others of the same name, and every name of ours is qualified.
SET LOCAL search_path TO pg_catalog, pg_temp;

-- Servers since August 2023 refuse these names themselves (CVE-2023-39417): such a name could end the quotes around it
-- below.
DO $$
BEGIN
    IF EXISTS (
        SELECT
        FROM pg_extension e
        JOIN pg_namespace n ON n.oid = e.extnamespace
        WHERE e.extname = 'mailroom'
          AND n.nspname ~ E'["$''\\\\]'
    ) THEN
        RAISE invalid_parameter_value USING
            MESSAGE = E'invalid character in extension "mailroom" schema: must not contain any of ""$''\\"',
            DETAIL = 'The install script quotes the name, and such a character could end the quotes.',
            HINT = 'Install the extension into a schema whose name has none of these characters.';
    END IF;
END;
$$;

CREATE FUNCTION @extschema@._library_version() RETURNS text
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_library_version_wrapper';
COMMENT ON FUNCTION @extschema@._library_version() IS 'Internal. The version of the library that this session runs.';

CREATE FUNCTION @extschema@._require_library(version text) RETURNS void
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_require_library_wrapper';
COMMENT ON FUNCTION @extschema@._require_library(text) IS
    'Internal. Raises an error if this session runs a library older than this version; each script of the extension calls it first.';

-- Here too: after new files were installed, and before the restart, the library has no function that is new.
SELECT @extschema@._require_library(e.extversion)
FROM pg_extension e
WHERE e.extname = 'mailroom';

CREATE FUNCTION @extschema@.mailroom_version(OUT library text, OUT sql text)
    LANGUAGE sql STABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT @extschema@._library_version(), e.extversion
    FROM pg_extension e
    WHERE e.extname = 'mailroom'
$$;
COMMENT ON FUNCTION @extschema@.mailroom_version() IS
    'Returns the version of the library that this session runs, and that of the extension in this database.';
