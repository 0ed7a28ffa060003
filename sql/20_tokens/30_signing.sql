-- Signing: the wire format of tokens, and the key file.
--
-- The library signs and verifies (src/tokens/); the key file is written by CREATE EXTENSION and mailroom_rotate_key.
-- Invariants: a key never enters SQL text, a setting, the log or an error; _sign, _secrets and _verify are for those
-- who hand tokens out, mailroom_sign is for mailroom_admin alone (I7).

CREATE FUNCTION @extschema@._sign(action text, secret bytea, code text) RETURNS text
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_sign_wrapper';
COMMENT ON FUNCTION @extschema@._sign(text, bytea, text) IS 'Internal. The signed token, 86 characters.';

CREATE FUNCTION @extschema@.mailroom_sign(action @extschema@.token_action, secret bytea, code text DEFAULT NULL) RETURNS text
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'mailroom_sign_wrapper';
COMMENT ON FUNCTION @extschema@.mailroom_sign(@extschema@.token_action, bytea, text) IS
    'Returns the signed token, 86 characters: base64url of the secret and an HMAC-SHA256 over action, secret and, for password_recovery, code.';

CREATE FUNCTION @extschema@._verify(token text, action text, code text) RETURNS boolean
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_verify_wrapper';
COMMENT ON FUNCTION @extschema@._verify(text, text, text) IS
    'Internal. Whether one of the keys signed this token for this action.';

CREATE FUNCTION @extschema@.mailroom_verify(token text, action @extschema@.token_action, code text DEFAULT NULL) RETURNS boolean
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'mailroom_verify_wrapper';
COMMENT ON FUNCTION @extschema@.mailroom_verify(text, @extschema@.token_action, text) IS
    'Tests whether one of the keys signed this token for this action and, for password_recovery, this code. It reads no table: expiry, use and wrong codes are checked by mailroom_redeem only.';

CREATE FUNCTION @extschema@._secrets(action text, secret bytea, code text) RETURNS jsonb
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_secrets_wrapper';
COMMENT ON FUNCTION @extschema@._secrets(text, bytea, text) IS
    'Internal. The value of outbox.secrets for a token: token (signed), code for a password_recovery, and link if mailroom.link_base_url is set.';

CREATE FUNCTION @extschema@._create_key_file() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_create_key_file_wrapper';
COMMENT ON FUNCTION @extschema@._create_key_file() IS
    'Internal. Creates the key file with a new random key and mode 0600, unless there is one.';

CREATE FUNCTION @extschema@.mailroom_rotate_key() RETURNS integer
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', 'mailroom_rotate_key_wrapper';
COMMENT ON FUNCTION @extschema@.mailroom_rotate_key() IS
    'Adds a new random key, which signs from now on, to the key file; the old keys still verify. Returns the number of keys in the file.';
