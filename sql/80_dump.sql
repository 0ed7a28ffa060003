-- Dump and restore: which rows pg_dump takes from our tables, and how they come back.
--
-- CREATE EXTENSION in the restored database creates tables and functions; then the rows are loaded as they were: all
-- that people or the worker wrote. Invariants: no link and no signed token is in a dump (I7), so mail that carries one
-- and is still to be sent is dumped as its pending token, and is signed again; nothing is handed out before all rows
-- are there, and triggers do not take restored rows for new ones (src/restore.rs). Not in a dump: the key file, which
-- is not in the database, and what deliverers publish of themselves (transports).

CREATE FUNCTION @extschema@._is_restoring() RETURNS boolean
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_is_restoring_wrapper';
COMMENT ON FUNCTION @extschema@._is_restoring() IS
    'Internal. Whether this session restores a dump; if so, nothing is handed out until it ends.';

CREATE FUNCTION @extschema@._note_restore() RETURNS trigger
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_note_restore_wrapper';
COMMENT ON FUNCTION @extschema@._note_restore() IS
    'Internal. Before rows are inserted into a queue: if they come from a dump, nothing is handed out until this session ends.';

CREATE FUNCTION @extschema@._tokens_before_accounts() RETURNS trigger
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_tokens_before_accounts_wrapper';
COMMENT ON FUNCTION @extschema@._tokens_before_accounts() IS
    'Internal. Allows the tokens of a dump to be loaded before its accounts, as a parallel restore may do.';

CREATE FUNCTION @extschema@._refuse_while_restoring() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_refuse_while_restoring_wrapper';
COMMENT ON FUNCTION @extschema@._refuse_while_restoring() IS
    'Internal. Makes restores of dumps wait until this transaction ends; raises an error while one runs.';

SELECT pg_extension_config_dump('@extschema@.accounts', '');
SELECT pg_extension_config_dump('@extschema@.accounts_id_seq', '');
SELECT pg_extension_config_dump('@extschema@.tokens', '');
SELECT pg_extension_config_dump('@extschema@.tokens_id_seq', '');
SELECT pg_extension_config_dump('@extschema@._last_seq', '');
SELECT pg_extension_config_dump('@extschema@._jobs', '');
SELECT pg_extension_config_dump('@extschema@.job_runs', '');
SELECT pg_extension_config_dump('@extschema@.job_runs_id_seq', '');
SELECT pg_extension_config_dump('@extschema@.pauses', '');
SELECT pg_extension_config_dump('@extschema@.templates', '');
SELECT pg_extension_config_dump('@extschema@.routes', '');
SELECT pg_extension_config_dump('@extschema@.budgets', '');
SELECT pg_extension_config_dump('@extschema@._spent_minute', '');
SELECT pg_extension_config_dump('@extschema@._spent_hour', '');
SELECT pg_extension_config_dump('@extschema@._spent_day', '');
SELECT pg_extension_config_dump('@extschema@._spent_month', '');
SELECT pg_extension_config_dump('@extschema@.link_requests', '');
SELECT pg_extension_config_dump('@extschema@.link_requests_id_seq', '');

-- pg_dump appends this text to SELECT columns FROM table. It calls no function of the extension, because a role that may
-- read all data, and nothing else, makes dumps. The OID of a dropped table may be that of another table where
-- the dump is restored.
SELECT pg_extension_config_dump('@extschema@.attached', $$
    WHERE EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = attached.relation)
$$);
SELECT pg_extension_config_dump('@extschema@.outbox', $$
    WHERE outbox.token_id IS NULL OR outbox.state NOT IN ('scheduled', 'claimed')
$$);
SELECT pg_extension_config_dump('@extschema@.outbox_id_seq', '');
SELECT pg_extension_config_dump('@extschema@.outbox_attempts', $$
    WHERE NOT EXISTS (
        SELECT
        FROM @extschema@.outbox o
        WHERE o.id = outbox_attempts.outbox_id
          AND o.token_id IS NOT NULL
          AND o.state IN ('scheduled', 'claimed')
    )
$$);
SELECT pg_extension_config_dump('@extschema@.outbox_attempts_id_seq', '');
SELECT pg_extension_config_dump('@extschema@.outbox_files', '');
SELECT pg_extension_config_dump('@extschema@.outbox_files_id_seq', '');
SELECT pg_extension_config_dump('@extschema@.outbox_attachments', '');
SELECT pg_extension_config_dump('@extschema@.outbox_attachments_id_seq', '');
SELECT pg_extension_config_dump('@extschema@.delivery_events', '');
SELECT pg_extension_config_dump('@extschema@.delivery_events_id_seq', '');
SELECT pg_extension_config_dump('@extschema@.suppressions', '');
SELECT pg_extension_config_dump('@extschema@.operator_actions', '');
SELECT pg_extension_config_dump('@extschema@.operator_actions_id_seq', '');
-- All columns of the table, in their order, because an application may have added some.
SELECT pg_extension_config_dump('@extschema@.pending', $$
    WHERE true
    UNION ALL
    SELECT n.*
    FROM @extschema@.outbox o
    JOIN @extschema@.tokens t ON t.id = o.token_id
    CROSS JOIN LATERAL (SELECT CASE t.action WHEN 'password_recovery' THEN 0 ELSE 1 END, t.id) l (lane, token_id)
    CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(
        NULL::@extschema@.pending, pg_catalog.jsonb_build_object('lane', l.lane, 'token_id', l.token_id)
    ) n
    WHERE o.state IN ('scheduled', 'claimed')
      AND NOT EXISTS (SELECT FROM @extschema@.pending p WHERE p.lane = l.lane AND p.token_id = l.token_id)
$$);

-- All hand-out starts with one of these three tables; rows of other tables do nothing by themselves.
CREATE TRIGGER pending_note_restore
    BEFORE INSERT ON @extschema@.pending
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._note_restore();

CREATE TRIGGER outbox_note_restore
    BEFORE INSERT ON @extschema@.outbox
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._note_restore();

CREATE TRIGGER link_requests_note_restore
    BEFORE INSERT ON @extschema@.link_requests
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._note_restore();

CREATE TRIGGER tokens_before_accounts
    BEFORE INSERT ON @extschema@.tokens
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._tokens_before_accounts();
