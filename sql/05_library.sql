-- The functions whose bodies are in the library, declared by hand so that volatility, strictness and
-- argument names are written where a reader looks for them. Internal names start with an underscore.
-- Nobody but the extension's owner may call them until 90_privileges.sql says otherwise.

-- For the whole script, this file being its first: operators and functions are PostgreSQL's own, whatever
-- somebody put into the schema we are installed in, and every name of ours is written out.
SET LOCAL search_path TO pg_catalog, pg_temp;

-- As servers from August 2023 on do themselves (CVE-2023-39417): such a name could end the quotes that it stands in below.
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
            HINT = 'Install into a schema whose name is without these characters.';
    END IF;
END;
$$;

CREATE FUNCTION @extschema@._fold(value text) RETURNS text
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_fold_wrapper';
COMMENT ON FUNCTION @extschema@._fold(text) IS
    'Internal. In lower case as in the root locale, whatever the locale of the database; in ASCII letters only where the encoding is not known.';

CREATE FUNCTION @extschema@._random_secret() RETURNS bytea
    LANGUAGE c VOLATILE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_random_secret_wrapper';
COMMENT ON FUNCTION @extschema@._random_secret() IS
    'Internal. 32 bytes from the server''s strong random source.';

CREATE FUNCTION @extschema@._random_code() RETURNS text
    LANGUAGE c VOLATILE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_random_code_wrapper';
COMMENT ON FUNCTION @extschema@._random_code() IS
    'Internal. Five decimal digits, uniform over 00000 to 99999, from the server''s strong random source.';

CREATE FUNCTION @extschema@._message_id() RETURNS uuid
    LANGUAGE c VOLATILE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_message_id_wrapper';
COMMENT ON FUNCTION @extschema@._message_id() IS
    'Internal. A UUID of version 7 (RFC 9562): the time in milliseconds and 74 bits from the server''s strong random source.';

CREATE FUNCTION @extschema@._activation_ttl() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_activation_ttl_wrapper';
COMMENT ON FUNCTION @extschema@._activation_ttl() IS 'Internal. mailroom.activation_ttl in seconds.';

CREATE FUNCTION @extschema@._recovery_ttl() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_recovery_ttl_wrapper';
COMMENT ON FUNCTION @extschema@._recovery_ttl() IS 'Internal. mailroom.recovery_ttl in seconds.';

CREATE FUNCTION @extschema@._batch_limit() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_batch_limit_wrapper';
COMMENT ON FUNCTION @extschema@._batch_limit() IS 'Internal. mailroom.batch_limit.';

CREATE FUNCTION @extschema@._max_attempts() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_max_attempts_wrapper';
COMMENT ON FUNCTION @extschema@._max_attempts() IS 'Internal. mailroom.max_attempts.';

CREATE FUNCTION @extschema@._max_message_size() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_max_message_size_wrapper';
COMMENT ON FUNCTION @extschema@._max_message_size() IS 'Internal. mailroom.max_message_size in octets.';

CREATE FUNCTION @extschema@._lease() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_lease_wrapper';
COMMENT ON FUNCTION @extschema@._lease() IS 'Internal. mailroom.lease in seconds.';

CREATE FUNCTION @extschema@._retention() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_retention_wrapper';
COMMENT ON FUNCTION @extschema@._retention() IS 'Internal. mailroom.retention in seconds.';

CREATE FUNCTION @extschema@._default_transport() RETURNS text
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_default_transport_wrapper';
COMMENT ON FUNCTION @extschema@._default_transport() IS 'Internal. mailroom.transport.';

CREATE FUNCTION @extschema@._request_interval() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_request_interval_wrapper';
COMMENT ON FUNCTION @extschema@._request_interval() IS 'Internal. mailroom.request_interval in seconds.';

CREATE FUNCTION @extschema@._requests_per_hour() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_requests_per_hour_wrapper';
COMMENT ON FUNCTION @extschema@._requests_per_hour() IS 'Internal. mailroom.requests_per_hour.';

CREATE FUNCTION @extschema@._is_row_at_fault(code text) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_is_row_at_fault_wrapper';
COMMENT ON FUNCTION @extschema@._is_row_at_fault(text) IS
    'Internal. Whether an error with this SQLSTATE may come from the row that was written.';

CREATE FUNCTION @extschema@._addresses_problem(addresses text[]) RETURNS text
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_addresses_problem_wrapper';
COMMENT ON FUNCTION @extschema@._addresses_problem(text[]) IS
    'Internal. What is wrong with the first element that is no mail address, beginning with its place as in [2]; NULL when all are.';

CREATE FUNCTION @extschema@._locales(wanted text) RETURNS text[]
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_locales_wrapper';
COMMENT ON FUNCTION @extschema@._locales(text) IS
    'Internal. The locales in which to look for a template, best first: the wanted one and its shorter forms, then mailroom.locale and its shorter forms.';

CREATE FUNCTION @extschema@._template_problem(part text, source text) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_template_problem_wrapper';
COMMENT ON FUNCTION @extschema@._template_problem(text, text) IS
    'Internal. Why this source cannot be the part subject, body_text or body_html of a template, with line and column; NULL when it can. Error: 22023 for another part.';

CREATE FUNCTION @extschema@._render(
    subject_source text,
    text_source text,
    html_source text,
    variables text,
    OUT subject text,
    OUT body_text text,
    OUT body_html text,
    OUT error text
) RETURNS SETOF record
    LANGUAGE c STABLE PARALLEL RESTRICTED ROWS 1
    AS 'MODULE_PATHNAME', '_render_wrapper';
COMMENT ON FUNCTION @extschema@._render(text, text, text, text) IS
    'Internal. One row: the parts rendered with these variables, the text of a JSON object; or all NULL but error, which holds no value of a variable. A source that is NULL is not rendered, and nothing is without variables.';

CREATE FUNCTION @extschema@._builtin_templates(
    OUT kind text,
    OUT locale text,
    OUT subject text,
    OUT body_text text,
    OUT body_html text
) RETURNS SETOF record
    LANGUAGE c STABLE PARALLEL SAFE ROWS 3
    AS 'MODULE_PATHNAME', '_builtin_templates_wrapper';
COMMENT ON FUNCTION @extschema@._builtin_templates() IS
    'Internal. The templates that come with the library.';

CREATE FUNCTION @extschema@._sign(action text, secret bytea, code text) RETURNS text
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_sign_wrapper';
COMMENT ON FUNCTION @extschema@._sign(text, bytea, text) IS
    'Internal. The signed token, 86 characters. Errors as mailroom_sign.';

CREATE FUNCTION @extschema@._verify(token text, action text, code text) RETURNS boolean
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_verify_wrapper';
COMMENT ON FUNCTION @extschema@._verify(text, text, text) IS
    'Internal. Whether one of the keys signed this token for this action.';

CREATE FUNCTION @extschema@._urgent_priority() RETURNS smallint
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_urgent_priority_wrapper';
COMMENT ON FUNCTION @extschema@._urgent_priority() IS
    'Internal. -10: mail of this priority or less is urgent, as password recoveries are.';

CREATE FUNCTION @extschema@._link_secret(link text) RETURNS bytea
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_link_secret_wrapper';
COMMENT ON FUNCTION @extschema@._link_secret(text) IS
    'Internal. The 32 bytes of the secret in a signed token, whoever signed it; NULL for anything malformed. Errors: 58P01, 42501, F0000 and 58030 when there is no good key file.';

CREATE FUNCTION @extschema@._is_code(given text, code text) RETURNS boolean
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_is_code_wrapper';
COMMENT ON FUNCTION @extschema@._is_code(text, text) IS
    'Internal. Whether the code that was given is the token''s, compared in constant time; false for what is no code.';

CREATE FUNCTION @extschema@._secrets(action text, secret bytea, code text) RETURNS jsonb
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_secrets_wrapper';
COMMENT ON FUNCTION @extschema@._secrets(text, bytea, text) IS
    'Internal. outbox.secrets of a token''s mail: token (signed), for a password_recovery code, and, when mailroom.link_base_url is set, link. Errors as mailroom_sign.';

CREATE FUNCTION @extschema@._sample_secrets(kind text) RETURNS jsonb
    LANGUAGE c STABLE PARALLEL RESTRICTED
    AS 'MODULE_PATHNAME', '_sample_secrets_wrapper';
COMMENT ON FUNCTION @extschema@._sample_secrets(text) IS
    'Internal. The like of _secrets for a preview, of no use to open anything; NULL for a kind that is no action of a token.';

CREATE FUNCTION @extschema@._account_is_plain(email text, login text) RETURNS boolean
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_account_is_plain_wrapper';
COMMENT ON FUNCTION @extschema@._account_is_plain(text, text) IS
    'Internal. Whether both are ASCII in lower case and may be stored as they are.';

CREATE FUNCTION @extschema@._account_problem(email text, login text) RETURNS text[]
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_account_problem_wrapper';
COMMENT ON FUNCTION @extschema@._account_problem(text, text) IS
    'Internal. The first rule that an email or a login in lower case breaks: the column, the name of the rule and the remedy; NULL when both may be stored, or one is NULL.';

CREATE FUNCTION @extschema@._tokens_check() RETURNS trigger
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_tokens_check_wrapper';
COMMENT ON FUNCTION @extschema@._tokens_check() IS
    'Internal. Refuses what is no token. Error: 23514 with the name of the rule.';

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

CREATE FUNCTION @extschema@._request_worker() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_request_worker_wrapper';
COMMENT ON FUNCTION @extschema@._request_worker() IS
    'Internal. Asks the launcher, once this transaction commits, for a worker in this database.';

CREATE FUNCTION @extschema@._announce(lane smallint) RETURNS smallint
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_announce_wrapper';
COMMENT ON FUNCTION @extschema@._announce(smallint) IS
    'Internal. Has the worker of this database, or the sessions that listen on mailroom.channel, told at COMMIT of a row that was queued in this lane. Returns the lane.';

CREATE FUNCTION @extschema@._mail_due(due timestamptz) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_mail_due_wrapper';
COMMENT ON FUNCTION @extschema@._mail_due(timestamptz) IS
    'Internal. Has the worker of this database, or the sessions that listen on mailroom.outbox_channel, told at COMMIT that a message becomes due, or a claim lapses, at this time. NULL for nothing.';

CREATE FUNCTION @extschema@._announce_due(due timestamptz) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_announce_due_wrapper';
COMMENT ON FUNCTION @extschema@._announce_due(timestamptz) IS
    'Internal. As _mail_due, but tells the worker alone.';

CREATE FUNCTION @extschema@._claimed(until timestamptz) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_claimed_wrapper';
COMMENT ON FUNCTION @extschema@._claimed(timestamptz) IS
    'Internal. Tells the worker when a lease ends, and has this transaction brought to disk when it commits.';

CREATE FUNCTION @extschema@._took() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_took_wrapper';
COMMENT ON FUNCTION @extschema@._took() IS
    'Internal. Has the worker look again if this transaction, which took rows of pending, is rolled back.';

CREATE FUNCTION @extschema@._restores() RETURNS boolean
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_restores_wrapper';
COMMENT ON FUNCTION @extschema@._restores() IS
    'Internal. Whether this session restores a dump; if so, nothing is handed out from now on until it ends.';

CREATE FUNCTION @extschema@._mind_restore() RETURNS trigger
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_mind_restore_wrapper';
COMMENT ON FUNCTION @extschema@._mind_restore() IS
    'Internal. Before rows come into a table that is handed out from: if they come from a dump, nothing is handed out from now on until this session ends.';

CREATE FUNCTION @extschema@._tokens_before_accounts() RETURNS trigger
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_tokens_before_accounts_wrapper';
COMMENT ON FUNCTION @extschema@._tokens_before_accounts() IS
    'Internal. Lets the tokens of a dump come before its accounts, as they may when several sessions restore it.';

CREATE FUNCTION @extschema@._pass_gate() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_pass_gate_wrapper';
COMMENT ON FUNCTION @extschema@._pass_gate() IS
    'Internal. Keeps restores of dumps waiting until this transaction ends. Errors: 55000 while there is one.';

CREATE FUNCTION @extschema@._scan_begin() RETURNS boolean
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_scan_begin_wrapper';
COMMENT ON FUNCTION @extschema@._scan_begin() IS
    'Internal. Begins a scan of pending; true when it must start at the very beginning.';

CREATE FUNCTION @extschema@._scan_position(lane smallint) RETURNS bigint
    LANGUAGE c STABLE
    AS 'MODULE_PATHNAME', '_scan_position_wrapper';
COMMENT ON FUNCTION @extschema@._scan_position(smallint) IS
    'Internal. The token id after which this session''s scan of a lane starts; a hint, never the truth.';

CREATE FUNCTION @extschema@._scan_end(swept boolean, urgent_high bigint, normal_high bigint) RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_scan_end_wrapper';
COMMENT ON FUNCTION @extschema@._scan_end(boolean, bigint, bigint) IS
    'Internal. Ends a scan with the highest token id taken in each lane, NULL for none.';

CREATE FUNCTION @extschema@._due_begin(transport text, groups boolean) RETURNS text
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_begin_wrapper';
COMMENT ON FUNCTION @extschema@._due_begin(text, boolean) IS
    'Internal. Begins a scan for due mail of a transport, or for groups that have any: sweep when it must look at everything, positions when it may start at those, piece when it must look at a piece of what lies behind them, too.';

CREATE FUNCTION @extschema@._due_may_sweep(transport text, groups boolean) RETURNS boolean
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_may_sweep_wrapper';
COMMENT ON FUNCTION @extschema@._due_may_sweep(text, boolean) IS
    'Internal. Whether a scan that found too little may look at everything.';

CREATE FUNCTION @extschema@._due_positions(
    transport text,
    groups boolean,
    OUT priority smallint,
    OUT send_at timestamptz,
    OUT id bigint,
    OUT paused_send_at timestamptz,
    OUT paused_id bigint
)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_positions_wrapper';
COMMENT ON FUNCTION @extschema@._due_positions(text, boolean) IS
    'Internal. Where this session''s scan of each priority starts, urgent first, and where a sweep of it broke off; a hint, never the truth.';

CREATE FUNCTION @extschema@._due_pieces(
    transport text,
    groups boolean,
    OUT priority smallint,
    OUT send_at timestamptz,
    OUT id bigint,
    OUT until_send_at timestamptz,
    OUT until_id bigint
)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_pieces_wrapper';
COMMENT ON FUNCTION @extschema@._due_pieces(text, boolean) IS
    'Internal. If this scan is to look behind its positions, the next piece of each priority from where the last look ended; a hint, never the truth.';

CREATE FUNCTION @extschema@._due_note_piece(
    transport text, groups boolean, priority smallint, send_at timestamptz, id bigint, unfinished boolean
) RETURNS boolean
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_note_piece_wrapper';
COMMENT ON FUNCTION @extschema@._due_note_piece(text, boolean, smallint, timestamptz, bigint, boolean) IS
    'Internal. Notes up to where a piece was looked at, and whether that was not the end of it; whether to look at the next one.';

CREATE FUNCTION @extschema@._due_note(
    transport text, groups boolean, priority smallint, send_at timestamptz, id bigint, back boolean, unfinished boolean
) RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_due_note_wrapper';
COMMENT ON FUNCTION @extschema@._due_note(text, boolean, smallint, timestamptz, bigint, boolean, boolean) IS
    'Internal. Notes up to where a priority was scanned, whether the next scan goes on from there even if it has been further, and of a sweep whether the next one does.';

CREATE FUNCTION @extschema@._due_put_back(transport text, groups boolean, priority smallint, send_at timestamptz, id bigint)
    RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_put_back_wrapper';
COMMENT ON FUNCTION @extschema@._due_put_back(text, boolean, smallint, timestamptz, bigint) IS
    'Internal. Has this session''s next scan of a priority start behind this row at the latest: what was found after it was not claimed.';

CREATE FUNCTION @extschema@._due_end(transport text, groups boolean, swept boolean, mails integer, mail_groups integer) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_due_end_wrapper';
COMMENT ON FUNCTION @extschema@._due_end(text, boolean, boolean, integer, integer) IS
    'Internal. Ends a scan for due mail, having found so many mails of so many groups: what was noted becomes this session''s positions.';

CREATE FUNCTION @extschema@._fallback_cursor(transport text, OUT priority smallint, OUT send_at timestamptz, OUT id bigint)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_fallback_cursor_wrapper';
COMMENT ON FUNCTION @extschema@._fallback_cursor(text) IS
    'Internal. Behind which row this session goes on to look for mail of a paused transport that another may deliver; no row for the beginning.';

CREATE FUNCTION @extschema@._fallback_note(transport text, priority smallint, send_at timestamptz, id bigint) RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_fallback_note_wrapper';
COMMENT ON FUNCTION @extschema@._fallback_note(text, smallint, timestamptz, bigint) IS
    'Internal. Notes up to which row it looked; NULLs for the end.';

CREATE FUNCTION @extschema@._leases_begin(moment timestamptz, OUT after timestamptz, OUT until timestamptz)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_leases_begin_wrapper';
COMMENT ON FUNCTION @extschema@._leases_begin(timestamptz) IS
    'Internal. Begins a look for claims that lapsed by that moment: the ends of lease to look at first.';

CREATE FUNCTION @extschema@._leases_next(came_to timestamptz, OUT after timestamptz, OUT until timestamptz)
    RETURNS SETOF record
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_leases_next_wrapper';
COMMENT ON FUNCTION @extschema@._leases_next(timestamptz) IS
    'Internal. Ends a look for claims that lapsed, at all whose lease ended until then: the ends of lease to look at next, if any.';

CREATE FUNCTION @extschema@._leases_from() RETURNS timestamptz
    LANGUAGE c STABLE
    AS 'MODULE_PATHNAME', '_leases_from_wrapper';
COMMENT ON FUNCTION @extschema@._leases_from() IS
    'Internal. The end of lease from which on this session looks for lapsed claims next.';

CREATE FUNCTION @extschema@._walk_begin(name text) RETURNS bigint
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_walk_begin_wrapper';
COMMENT ON FUNCTION @extschema@._walk_begin(text) IS
    'Internal. Begins a walk of that name over rows that go as it goes: the key behind which this session has to look; NULL for all.';

CREATE FUNCTION @extschema@._walk_from(name text) RETURNS bigint
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_walk_from_wrapper';
COMMENT ON FUNCTION @extschema@._walk_from(text) IS
    'Internal. Where the next walk of that name will begin; NULL for the beginning.';

CREATE FUNCTION @extschema@._walk_end(name text, key bigint) RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_walk_end_wrapper';
COMMENT ON FUNCTION @extschema@._walk_end(text, bigint) IS
    'Internal. Ends a walk, which came up to this key; NULL when there was nothing to see.';

CREATE FUNCTION @extschema@._walk_back(name text, key bigint) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_walk_back_wrapper';
COMMENT ON FUNCTION @extschema@._walk_back(text, bigint) IS
    'Internal. Has the next walk look behind this key again: not all that this one saw is gone.';

CREATE FUNCTION @extschema@._try_lock_group(hash bigint) RETURNS boolean
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_try_lock_group_wrapper';
COMMENT ON FUNCTION @extschema@._try_lock_group(bigint) IS
    'Internal. Locks a group, by hashtextextended(group_key, 0), until this transaction ends; false when somebody else holds it.';

CREATE FUNCTION @extschema@._lock_budgets() RETURNS boolean
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_lock_budgets_wrapper';
COMMENT ON FUNCTION @extschema@._lock_budgets() IS
    'Internal. Lets this session alone count until _unlock_budgets(); false when another one does not come to an end.';

CREATE FUNCTION @extschema@._unlock_budgets() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_unlock_budgets_wrapper';
COMMENT ON FUNCTION @extschema@._unlock_budgets() IS 'Internal. Ends what _lock_budgets() began.';

CREATE FUNCTION @extschema@._epoch() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_epoch_wrapper';
COMMENT ON FUNCTION @extschema@._epoch() IS 'Internal. floor(extract(epoch FROM now())).';

CREATE FUNCTION @extschema@._session_id() RETURNS text
    LANGUAGE c STABLE
    AS 'MODULE_PATHNAME', '_session_id_wrapper';
COMMENT ON FUNCTION @extschema@._session_id() IS
    'Internal. The session as %c of log_line_prefix names it: when its process began and its number, in hexadecimal digits; not used again after a restart.';

CREATE FUNCTION @extschema@._worker_report(
    OUT pid integer,
    OUT since timestamptz,
    OUT last_batch_at timestamptz,
    OUT failures integer,
    OUT next_wake_at timestamptz,
    OUT next_wake_for text
) RETURNS SETOF record
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_worker_report_wrapper';
COMMENT ON FUNCTION @extschema@._worker_report() IS
    'Internal. What the worker of this database tells of itself; no row when there is none.';

CREATE FUNCTION @extschema@._recheck_at_commit() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_recheck_at_commit_wrapper';
COMMENT ON FUNCTION @extschema@._recheck_at_commit() IS
    'Internal. Has the worker look at everything once this transaction commits.';

CREATE FUNCTION @extschema@._log_abuse(what text, account bigint) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_log_abuse_wrapper';
COMMENT ON FUNCTION @extschema@._log_abuse(text, bigint) IS
    'Internal. Writes a LOG line of what somebody tried with the links of an account, locked or limited, once a minute at most for each of both.';

CREATE FUNCTION @extschema@.mailroom_wake_worker() RETURNS boolean
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', 'mailroom_wake_worker_wrapper';
COMMENT ON FUNCTION @extschema@.mailroom_wake_worker() IS
    'Has the worker of this database, and senders that listen on mailroom.outbox_channel, look at everything and try paused transports now; for tests and people, it is never needed. Returns whether there is a worker.';
