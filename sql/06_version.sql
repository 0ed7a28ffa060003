-- Versions: of the library that the server has loaded, and of the SQL of this database.
--
-- Between the installation of new files, the restart of the server and ALTER EXTENSION the two differ.
-- Administrators, `mailroom check` and upgrade scripts read them. Invariant: these functions and their symbols stay in
-- every later version, because the first statement of each upgrade script calls the _require_library of the version that
-- it upgrades.

CREATE FUNCTION @extschema@._library_version() RETURNS text
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_library_version_wrapper';
COMMENT ON FUNCTION @extschema@._library_version() IS 'Internal. The version of the library that this session runs.';

CREATE FUNCTION @extschema@._require_library(version text) RETURNS void
    LANGUAGE c STABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_require_library_wrapper';
COMMENT ON FUNCTION @extschema@._require_library(text) IS
    'Internal. Raises an error if this session runs a library older than this version; each upgrade script calls it first.';

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
