-- Who may do what: PUBLIC nothing, then one matrix in which each line has its reason.
--
-- The roles belong to the cluster, so a second database finds them and DROP EXTENSION leaves them.

DO $$
DECLARE
    role_name text;
    routine regprocedure;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['mailroom_app', 'mailroom_sender', 'mailroom_monitor', 'mailroom_admin'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        END IF;
    END LOOP;
    -- Functions are the one kind of object that PUBLIC may use unless told otherwise. Every function of this
    -- extension is taken from it here, so that none can be forgotten.
    FOR routine IN
        SELECT d.objid::regprocedure
        FROM pg_depend d
        JOIN pg_extension e ON e.oid = d.refobjid
        WHERE d.classid = 'pg_proc'::regclass
          AND d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND e.extname = 'mailroom'
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', routine);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO mailroom_admin', routine);
    END LOOP;
END;
$$;

-- Names resolve for whoever has a role.
GRANT USAGE ON SCHEMA @extschema@ TO mailroom_app, mailroom_sender, mailroom_monitor, mailroom_admin;

-- mailroom_admin: all data and all functions, and the rights behind the triggers below. Not TRIGGER: whoever
-- may put a trigger on a table acts with the rights of everybody who writes it, a superuser's among them.
GRANT SELECT, INSERT, UPDATE, DELETE ON @extschema@.accounts, @extschema@.tokens, @extschema@.pending,
    @extschema@.jobs, @extschema@.outbox, @extschema@.job_runs, @extschema@.pauses, @extschema@.requests
    TO mailroom_admin;
GRANT SELECT ON @extschema@._handout, @extschema@._token_ages, @extschema@._links TO mailroom_admin;
GRANT ALL ON SEQUENCE @extschema@.accounts_id_seq, @extschema@.tokens_id_seq, @extschema@.outbox_id_seq,
    @extschema@.job_runs_id_seq, @extschema@.requests_id_seq TO mailroom_admin;

-- mailroom_app: registers people, and checks the link of a mail. It sees no token and no mail.
GRANT INSERT (email, login), SELECT (id, email, login, status) ON @extschema@.accounts TO mailroom_app;
GRANT USAGE ON SEQUENCE @extschema@.accounts_id_seq TO mailroom_app;
GRANT EXECUTE ON FUNCTION @extschema@.mailroom_verify(text, @extschema@.token_action, text) TO mailroom_app;
GRANT EXECUTE ON FUNCTION @extschema@._verify(text, text, text) TO mailroom_app;

-- What came of a link, and the links that people ask for: all of it behind these four, which lend the rights
-- of mailroom_admin.
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_peek(text),
    @extschema@.mailroom_redeem(text, text),
    @extschema@.mailroom_request_activation(text),
    @extschema@.mailroom_request_recovery(text)
TO mailroom_app;

-- mailroom_sender: takes tokens out of pending, signs them, writes the outbox and the diary. The worker
-- runs as this role. The hand-out functions run with the caller's rights, hence the grants on the tables:
-- a function that lent its owner's rights would lend them to any trigger on these tables too.
GRANT SELECT, UPDATE, DELETE ON @extschema@.pending TO mailroom_sender;
GRANT SELECT ON @extschema@._handout, @extschema@.pauses TO mailroom_sender;
GRANT SELECT, INSERT ON @extschema@.outbox TO mailroom_sender;
GRANT SELECT, UPDATE ON @extschema@.jobs TO mailroom_sender;
GRANT SELECT, INSERT ON @extschema@.job_runs TO mailroom_sender;
GRANT USAGE ON SEQUENCE @extschema@.outbox_id_seq, @extschema@.job_runs_id_seq TO mailroom_sender;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_dequeue(integer),
    @extschema@.mailroom_dequeue_line(integer),
    @extschema@.mailroom_collect(integer),
    @extschema@.mailroom_verify(text, @extschema@.token_action, text),
    @extschema@._batch_limit(),
    @extschema@._max_attempts(),
    @extschema@._link_base_url(),
    @extschema@._sign(text, bytea, text),
    @extschema@._verify(text, text, text),
    @extschema@._scan_begin(),
    @extschema@._scan_position(smallint),
    @extschema@._scan_end(boolean, bigint, bigint),
    @extschema@._pick(integer),
    @extschema@._note_progress(bigint),
    @extschema@._dequeue(integer, text),
    @extschema@._enqueue(bigint[]),
    @extschema@._enqueue_singly(bigint[]),
    @extschema@._give_up(bigint, text, text),
    @extschema@._printable(text),
    @extschema@._is_row_at_fault(text),
    @extschema@._collect(integer, integer),
    @extschema@._waiting(integer),
    @extschema@._tend(boolean),
    @extschema@._mail_due(timestamptz),
    @extschema@._announce_due(timestamptz),
    @extschema@._outbox_channel(),
    @extschema@.mailroom_next_due(),
    @extschema@._run_batch(integer, text)
TO mailroom_sender;

-- Whoever runs the pipeline answers requests, but sees no address and writes no token: this one lends the
-- rights of mailroom_admin. Whether there is anything to answer is asked before.
GRANT SELECT (id) ON @extschema@.requests TO mailroom_sender;
GRANT EXECUTE ON FUNCTION @extschema@.mailroom_answer_requests(integer) TO mailroom_sender;

-- mailroom_monitor: counts, ages and reasons, but neither addresses nor contents.
GRANT SELECT ON @extschema@.pending, @extschema@.jobs, @extschema@.job_runs, @extschema@.pauses,
    @extschema@._token_ages TO mailroom_monitor;
GRANT EXECUTE ON FUNCTION @extschema@.mailroom_status(), @extschema@._worker_report() TO mailroom_monitor;
GRANT SELECT (
    id, message_id, kind, token, account, priority, state, send_at, expires_at, attempts, max_attempts,
    last_error, claimed_by, claimed_until, created_at, updated_at, ended_at
) ON @extschema@.outbox TO mailroom_monitor;

-- The triggers on accounts and tokens work for people who may not write the tables behind them. They lend
-- the rights of mailroom_admin, not those of the superuser who created the extension.
ALTER FUNCTION @extschema@._accounts_issue_activation() OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@._tokens_activate_account() OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@._tokens_enqueue() OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@._tokens_withdraw() OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@._tokens_withdraw_all() OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@._accounts_revoke_tokens() OWNER TO mailroom_admin;

-- So do the calls of the application, and the answers to requests.
ALTER FUNCTION @extschema@.mailroom_peek(text) OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@.mailroom_redeem(text, text) OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@.mailroom_request_activation(text) OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@.mailroom_request_recovery(text) OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@.mailroom_answer_requests(integer) OWNER TO mailroom_admin;
