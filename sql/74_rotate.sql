-- Rotation of the signing key, from SQL. The file and its rules are in src/keys.rs.

CREATE FUNCTION @extschema@.mailroom_rotate_key() RETURNS integer
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', 'mailroom_rotate_key_wrapper';
COMMENT ON FUNCTION @extschema@.mailroom_rotate_key() IS
    'Puts a new random key into the first line of the key file, where it signs for the whole cluster from now on, and keeps the others, which still verify; returns how many keys there are. The file is replaced in one step, not undone by ROLLBACK, and not copied to standbys. Superusers only. Errors: 42501; 58P01, F0000 and 58030 when the file is not good or cannot be replaced, which leaves it as it was.';
