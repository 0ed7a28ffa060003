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
    @extschema@.jobs, @extschema@.outbox, @extschema@.attempts, @extschema@.job_runs, @extschema@.pauses,
    @extschema@.templates, @extschema@.requests TO mailroom_admin;
GRANT SELECT ON @extschema@._handout, @extschema@._token_ages, @extschema@._links,
    @extschema@.outbox_history, @extschema@.mailroom_templates TO mailroom_admin;
GRANT SELECT, INSERT, UPDATE ON @extschema@._own_mail TO mailroom_admin;
GRANT ALL ON SEQUENCE @extschema@.accounts_id_seq, @extschema@.tokens_id_seq, @extschema@.outbox_id_seq,
    @extschema@.attempts_id_seq, @extschema@.job_runs_id_seq, @extschema@.requests_id_seq TO mailroom_admin;

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

-- It schedules mail, and takes back or moves mail of its own: through _own_mail, column by column, so that whatever
-- it writes there itself, around the functions, is mail that the functions could have written. The view is the
-- extension's, since whoever owns a view may put triggers on it.
GRANT SELECT (id, message_id, state, send_at, expires_at, item_key) ON @extschema@._own_mail TO mailroom_app;
GRANT INSERT (
    message_id, kind, recipients, cc, bcc, subject, body_text, body_html, data, priority, send_at, expires_at,
    max_attempts, item_key, group_key
) ON @extschema@._own_mail TO mailroom_app;
GRANT UPDATE (state, send_at, last_error, updated_at) ON @extschema@._own_mail TO mailroom_app;
GRANT USAGE ON SEQUENCE @extschema@.outbox_id_seq TO mailroom_app;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_send(text[], text, text, text, text[], text[], text, jsonb, timestamptz, timestamptz, integer, text, text, integer, text),
    @extschema@.mailroom_send(text, text, text, text, text[], text[], text, jsonb, timestamptz, timestamptz, integer, text, text, integer, text),
    @extschema@.mailroom_send_many(jsonb),
    @extschema@.mailroom_cancel(bigint),
    @extschema@.mailroom_cancel(text),
    @extschema@.mailroom_reschedule(bigint, timestamptz),
    @extschema@.mailroom_reschedule(text, timestamptz),
    @extschema@._submit(@extschema@._message[]),
    @extschema@._parse_messages(jsonb),
    @extschema@._refuse(integer, text, text, text, text),
    @extschema@._live(text[]),
    @extschema@._is_own(name),
    @extschema@._addresses_problem(text[]),
    @extschema@._mail_due(timestamptz),
    @extschema@._announce_due(timestamptz),
    @extschema@._outbox_channel(),
    @extschema@._max_attempts()
TO mailroom_app;
-- It sees the templates, which are no secret, and what they make of its data; but it may not render a template of
-- its own making, whose author is trusted with the server's memory.
GRANT SELECT ON @extschema@.templates, @extschema@.mailroom_templates TO mailroom_app;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_preview(text, jsonb, text),
    @extschema@._template(text, text),
    @extschema@._locales(text),
    @extschema@._builtin_templates()
TO mailroom_app;

-- mailroom_sender: takes tokens out of pending, signs them, writes the outbox and the diary, claims mails and
-- settles them. The worker runs as this role. The hand-out functions run with the caller's rights, hence the
-- grants on the tables:
-- a function that lent its owner's rights would lend them to any trigger on these tables too.
GRANT SELECT, UPDATE, DELETE ON @extschema@.pending TO mailroom_sender;
GRANT SELECT ON @extschema@._handout, @extschema@.pauses TO mailroom_sender;
GRANT SELECT, INSERT ON @extschema@.outbox TO mailroom_sender;
-- What a claim and a settle write: the state and its story, and data, from which the secrets go. Not what a
-- mail says or to whom it goes.
GRANT UPDATE (
    data, state, send_at, attempts, last_error, claimed_by, claimed_at, claimed_until, provider_id, updated_at, ended_at
) ON @extschema@.outbox TO mailroom_sender;
GRANT SELECT, INSERT ON @extschema@.attempts TO mailroom_sender;
GRANT SELECT ON @extschema@.outbox_history TO mailroom_sender;
GRANT SELECT, UPDATE ON @extschema@.jobs TO mailroom_sender;
GRANT SELECT, INSERT ON @extschema@.job_runs TO mailroom_sender;
GRANT USAGE ON SEQUENCE @extschema@.outbox_id_seq, @extschema@.attempts_id_seq, @extschema@.job_runs_id_seq
    TO mailroom_sender;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_dequeue(integer),
    @extschema@.mailroom_dequeue_line(integer),
    @extschema@.mailroom_collect(integer),
    @extschema@.mailroom_verify(text, @extschema@.token_action, text),
    @extschema@._batch_limit(),
    @extschema@._max_attempts(),
    @extschema@._random_uuid(),
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
    @extschema@._tend(boolean, boolean),
    @extschema@._mail_due(timestamptz),
    @extschema@._announce_due(timestamptz),
    @extschema@._outbox_channel(),
    @extschema@.mailroom_next_due(),
    @extschema@._claimed(timestamptz),
    @extschema@._run_batch(integer, text),
    @extschema@.mailroom_claim(integer, interval, text),
    @extschema@.mailroom_claim_group(interval, text, text),
    @extschema@.mailroom_mark_sent(bigint, text, text, integer),
    @extschema@.mailroom_mark_sent(bigint[], text[], text, integer[]),
    @extschema@.mailroom_mark_error(bigint, text, interval, boolean, integer, text, integer),
    @extschema@.mailroom_mark_error(bigint[], text[], interval[], boolean[], integer[], text, integer[]),
    @extschema@.mailroom_release(bigint, text, integer),
    @extschema@.mailroom_release(bigint[], text, integer[]),
    @extschema@.mailroom_extend(bigint, interval, text, integer),
    @extschema@.mailroom_extend(bigint[], interval, text, integer[]),
    @extschema@.mailroom_purge(integer),
    @extschema@._lease(),
    @extschema@._backoff(integer),
    @extschema@._due_begin(),
    @extschema@._due_may_sweep(),
    @extschema@._due_positions(),
    @extschema@._due_note(boolean, smallint, timestamptz, bigint),
    @extschema@._due_end(boolean),
    @extschema@._due_leases(boolean, timestamptz),
    @extschema@._compose(@extschema@.outbox),
    @extschema@._claimant(text),
    @extschema@._term(interval),
    @extschema@._take_back(timestamptz, timestamptz, integer),
    @extschema@._free_groups(text[], integer),
    @extschema@._judge(tid[], timestamptz, integer),
    @extschema@._next_due(integer),
    @extschema@._pick_due(smallint, timestamptz, bigint, timestamptz, bigint, integer, timestamptz, boolean),
    @extschema@._lease_out(tid[], bigint[], text[], text[], text[], text, timestamptz, interval),
    @extschema@._next_group(timestamptz, text[]),
    @extschema@._pick_group(text, timestamptz),
    @extschema@._held(bigint[], text, integer[]),
    @extschema@._redact(text, text[], text),
    @extschema@._check_parallel(bigint[], integer[]),
    @extschema@._note_late(bigint[], integer[], text, integer[], text[], integer[], text),
    @extschema@._purge(integer)
TO mailroom_sender;
-- It composes what it sends.
GRANT SELECT ON @extschema@.templates, @extschema@.mailroom_templates TO mailroom_sender;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_preview(text, jsonb, text),
    @extschema@._compose(@extschema@.outbox),
    @extschema@._template(text, text),
    @extschema@._locales(text),
    @extschema@._render(text, text, text, text),
    @extschema@._builtin_templates()
TO mailroom_sender;

-- Whoever runs the pipeline answers requests, but sees no address and writes no token: this one lends the
-- rights of mailroom_admin. Whether there is anything to answer is asked before.
GRANT SELECT (id) ON @extschema@.requests TO mailroom_sender;
GRANT EXECUTE ON FUNCTION @extschema@.mailroom_answer_requests(integer) TO mailroom_sender;

-- mailroom_monitor: counts, ages and reasons, but neither addresses nor contents.
GRANT SELECT ON @extschema@.pending, @extschema@.jobs, @extschema@.job_runs, @extschema@.pauses,
    @extschema@._token_ages, @extschema@.attempts, @extschema@.outbox_history TO mailroom_monitor;
GRANT EXECUTE ON FUNCTION @extschema@.mailroom_status(), @extschema@._worker_report() TO mailroom_monitor;
GRANT SELECT (
    id, message_id, kind, token, account, priority, state, send_at, expires_at, attempts, max_attempts,
    last_error, claimed_by, claimed_at, claimed_until, created_at, updated_at, ended_at
) ON @extschema@.outbox TO mailroom_monitor;

-- The triggers on accounts, tokens and outbox work for people who may not write the tables behind them. They lend
-- the rights of mailroom_admin, not those of the superuser who created the extension.
ALTER FUNCTION @extschema@._accounts_issue_activation() OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@._tokens_activate_account() OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@._tokens_enqueue() OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@._outbox_end() OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@._tokens_withdraw() OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@._tokens_withdraw_all() OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@._accounts_revoke_tokens() OWNER TO mailroom_admin;

-- So does the one function that tells an application who holds an item_key, and the one that shows it a mail.
ALTER FUNCTION @extschema@.mailroom_preview(text, jsonb, text) OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@._live(text[]) OWNER TO mailroom_admin;

-- So do the calls with which an application redeems and requests links, and the answers to requests.
ALTER FUNCTION @extschema@.mailroom_peek(text) OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@.mailroom_redeem(text, text) OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@.mailroom_request_activation(text) OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@.mailroom_request_recovery(text) OWNER TO mailroom_admin;
ALTER FUNCTION @extschema@.mailroom_answer_requests(integer) OWNER TO mailroom_admin;

-- The purge deletes mails, which a sender may not do otherwise.
ALTER FUNCTION @extschema@._purge(integer) OWNER TO mailroom_admin;
