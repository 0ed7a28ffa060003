-- Signing: the wire format of tokens, and the key file.
--
-- The library signs and verifies (src/signing.rs); the key file is written by CREATE EXTENSION and mailroom_rotate_key.
-- Invariants: a key never enters SQL text, a setting, the log or an error; _sign, _secrets and _verify are for those who
-- hand tokens out, mailroom_sign is for mailroom_admin alone (I7).

CREATE FUNCTION @extschema@._sign(action text, secret bytea, code text) RETURNS text
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_sign_wrapper';
COMMENT ON FUNCTION @extschema@._sign(text, bytea, text) IS
    'Internal. The signed token, 86 characters. Errors as mailroom_sign.';

CREATE FUNCTION @extschema@.mailroom_sign(action @extschema@.token_action, secret bytea, code text DEFAULT NULL) RETURNS text
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'mailroom_sign_wrapper';
COMMENT ON FUNCTION @extschema@.mailroom_sign(@extschema@.token_action, bytea, text) IS
    'The signed token, 86 characters: base64url without padding of secret and HMAC-SHA256(key, "/activate" || secret) or (key, "/recover" || secret || code). secret: 32 bytes. code: five digits, needed for password_recovery only. Errors: 22004 when an argument is missing, 22023 when it has the wrong shape; 58P01 and F0000 when there is no good key file.';

CREATE FUNCTION @extschema@._verify(token text, action text, code text) RETURNS boolean
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_verify_wrapper';
COMMENT ON FUNCTION @extschema@._verify(text, text, text) IS
    'Internal. Whether one of the keys signed this token for this action.';

CREATE FUNCTION @extschema@.mailroom_verify(token text, action @extschema@.token_action, code text DEFAULT NULL) RETURNS boolean
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', 'mailroom_verify_wrapper';
COMMENT ON FUNCTION @extschema@.mailroom_verify(text, @extschema@.token_action, text) IS
    'Whether one of the keys signed this token for this action, for password_recovery together with this code. Looks at no table: says nothing of expiry or use, and counts no wrong code; mailroom_redeem does. False for anything malformed or NULL, in constant time for anything well-formed. Errors: 58P01 and F0000 when there is no good key file.';

CREATE FUNCTION @extschema@._secrets(action text, secret bytea, code text) RETURNS jsonb
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_secrets_wrapper';
COMMENT ON FUNCTION @extschema@._secrets(text, bytea, text) IS
    'Internal. outbox.secrets of a token''s mail: token (signed), for a password_recovery code, and, when mailroom.link_base_url is set, link. Errors as mailroom_sign.';

CREATE FUNCTION @extschema@._create_key_file() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_create_key_file_wrapper';
COMMENT ON FUNCTION @extschema@._create_key_file() IS
    'Internal. Makes the key file with a new random key, mode 0600, unless there is one.';

CREATE FUNCTION @extschema@.mailroom_rotate_key() RETURNS integer
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', 'mailroom_rotate_key_wrapper';
COMMENT ON FUNCTION @extschema@.mailroom_rotate_key() IS
    'Puts a new random key into the first line of the key file, where it signs for the whole cluster from now on, and keeps the others, which still verify; returns how many keys there are. The file is replaced in one step, not undone by ROLLBACK, and not copied to standbys. Superusers only. Errors: 42501; 58P01, F0000 and 58030 when the file is not good or cannot be replaced, which leaves it as it was.';

SELECT @extschema@._create_key_file();
