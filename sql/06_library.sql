-- Errors and rules that more than one concept uses.

CREATE FUNCTION @extschema@._fold(value text) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_fold_wrapper';
COMMENT ON FUNCTION @extschema@._fold(text) IS
    'Internal. The text in lower case by the rules of the root locale, independent of the database''s locale; only ASCII letters are folded where the encoding is unknown.';

CREATE FUNCTION @extschema@._is_address(address text) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_is_address_wrapper';
COMMENT ON FUNCTION @extschema@._is_address(text) IS 'Internal. Whether mail can be sent to this text as it is.';

CREATE FUNCTION @extschema@.mailroom_address_key(address text) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', 'mailroom_address_key_wrapper';
COMMENT ON FUNCTION @extschema@.mailroom_address_key(text) IS
    'Returns an address as accounts.email has it: in lower case, the domain in ASCII, without blanks around it. NULL for what is not an address.';

CREATE FUNCTION @extschema@._line_problem(line text) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_line_problem_wrapper';
COMMENT ON FUNCTION @extschema@._line_problem(text) IS
    'Internal. Which control character this text contains, those beyond ASCII and line separators included; NULL if none.';

CREATE FUNCTION @extschema@._visible(value text) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_visible_wrapper';
COMMENT ON FUNCTION @extschema@._visible(text) IS
    'Internal. The text with control and invisible characters written as <U+200B>.';

CREATE FUNCTION @extschema@._epoch() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_epoch_wrapper';
COMMENT ON FUNCTION @extschema@._epoch() IS
    'Internal. The current transaction''s start as epoch seconds: floor(extract(epoch FROM now())).';

CREATE FUNCTION @extschema@._batch_limit() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_batch_limit_wrapper';
COMMENT ON FUNCTION @extschema@._batch_limit() IS 'Internal. The setting mailroom.batch_limit.';

CREATE FUNCTION @extschema@._refuse_batch_limit(batch_limit integer, hint text)
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE invalid_parameter_value USING
        MESSAGE = 'batch_limit must be at least 1',
        DETAIL = format('It is %s.', coalesce(batch_limit::text, 'NULL')),
        HINT = coalesce(hint, 'Leave it out to use mailroom.batch_limit.');
END;
$$;
COMMENT ON FUNCTION @extschema@._refuse_batch_limit(integer, text) IS
    'Internal. Raises the error for a batch_limit below 1.';

CREATE FUNCTION @extschema@._is_row_at_fault(code text) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_is_row_at_fault_wrapper';
COMMENT ON FUNCTION @extschema@._is_row_at_fault(text) IS
    'Internal. Whether an error with this SQLSTATE is about the row that was written.';

CREATE FUNCTION @extschema@._may_pass_by(code text) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_may_pass_by_wrapper';
COMMENT ON FUNCTION @extschema@._may_pass_by(text) IS
    'Internal. Whether other rows may be changed after an error with this SQLSTATE, so that the row that failed is passed by.';

-- In this order: a state before 'sent' is live.
CREATE TYPE @extschema@.outbox_state AS ENUM ('scheduled', 'claimed', 'sent', 'error', 'cancelled', 'expired', 'suppressed');
COMMENT ON TYPE @extschema@.outbox_state IS
    'scheduled and claimed are live; sent, error, cancelled, expired and suppressed are final; suppressed: no recipient was left, see suppressions.';
