-- Dump and restore: what pg_dump takes along of our tables, and how the rows come back.
--
-- CREATE EXTENSION in the restored database brings tables and functions, then the rows come as they were: all that
-- people or the worker wrote. Invariants: no link and no signed token is in a dump (I7), so mail that carries one and
-- is still to be sent is dumped as its token that waits to be handed out, and is signed anew; nothing is handed out
-- before all rows are there, and triggers do not take restored rows for new ones (src/restore.rs). Not in a dump: the
-- key file, which is no part of the database, and what deliverers publish of themselves (transports).

SELECT pg_extension_config_dump('@extschema@.accounts', '');
SELECT pg_extension_config_dump('@extschema@.accounts_id_seq', '');
SELECT pg_extension_config_dump('@extschema@.tokens', '');
SELECT pg_extension_config_dump('@extschema@.tokens_id_seq', '');
SELECT pg_extension_config_dump('@extschema@._last_seq', '');
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

-- pg_dump puts these words behind SELECT columns FROM table. A table that was dropped has left its number, which may
-- be another table's where the dump is restored.
SELECT pg_extension_config_dump('@extschema@.attached', $$
    WHERE EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = attached.relation)
$$);
SELECT pg_extension_config_dump('@extschema@.outbox', $$
    WHERE token_id IS NULL OR state NOT IN ('scheduled', 'claimed')
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
SELECT pg_extension_config_dump('@extschema@.pending', $$
    UNION
    SELECT @extschema@._lane(t.action), t.id
    FROM @extschema@.outbox o
    JOIN @extschema@.tokens t ON t.id = o.token_id
    WHERE o.state IN ('scheduled', 'claimed')
$$);

-- Whoever hands out starts with one of these three; the rows of other tables do nothing by themselves.
CREATE TRIGGER pending_mind_restore
    BEFORE INSERT ON @extschema@.pending
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._mind_restore();

CREATE TRIGGER outbox_mind_restore
    BEFORE INSERT ON @extschema@.outbox
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._mind_restore();

CREATE TRIGGER link_requests_mind_restore
    BEFORE INSERT ON @extschema@.link_requests
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._mind_restore();

CREATE TRIGGER tokens_before_accounts
    BEFORE INSERT ON @extschema@.tokens
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._tokens_before_accounts();
