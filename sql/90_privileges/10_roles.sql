-- Who may do what: PUBLIC nothing, then one matrix in which each line has its reason.
--
-- The roles belong to the cluster, so a second database finds them and DROP EXTENSION leaves them. Six of them are
-- for people and programs. The last, mailroom_definer, is nobody: it owns the functions and views that lend rights, has
-- the rights that these need, and no member. A superuser's functions would lend everything to any trigger they fire, and
-- those of mailroom_admin could be altered by its members, for a superuser to run.

-- Two databases may install at the same time: one waits here for the other, and then finds the roles.
LOCK TABLE pg_catalog.pg_authid IN SHARE ROW EXCLUSIVE MODE;

DO $$
DECLARE
    role_name text;
    held record;
    objection text;
    routine record;
BEGIN
    FOREACH role_name IN ARRAY
        ARRAY[
            'mailroom_app', 'mailroom_sender', 'mailroom_collector', 'mailroom_monitor', 'mailroom_support', 'mailroom_admin',
            'mailroom_definer'
        ]
    LOOP
        IF to_regrole(role_name) IS NULL THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        END IF;
        SELECT r.* INTO held FROM pg_authid r WHERE r.oid = to_regrole(role_name);
        objection := CASE
            WHEN held.rolsuper THEN 'It is a superuser.'
            WHEN role_name <> 'mailroom_definer' THEN NULL
            WHEN held.rolcanlogin THEN 'It may log in.'
            WHEN held.rolcreaterole OR held.rolcreatedb OR held.rolreplication OR held.rolbypassrls
                THEN 'It has attributes that give it powers.'
            WHEN EXISTS (SELECT FROM pg_auth_members m WHERE m.roleid = held.oid) THEN 'It has members.'
            WHEN EXISTS (SELECT FROM pg_auth_members m WHERE m.member = held.oid) THEN 'It is a member of another role.'
        END;
        IF objection IS NOT NULL THEN
            RAISE object_not_in_prerequisite_state USING
                MESSAGE = format('role "%s" cannot be one of mailroom''s', role_name),
                DETAIL = objection,
                HINT = 'Rename it, or take away what it should not have; mailroom makes the role itself when there is none.';
        END IF;
    END LOOP;
    -- What the default privileges of whoever installs gave away goes, so that each object has the grants below and no
    -- others. Types are PUBLIC's anyway.
    FOR held IN
        SELECT o.kind, o.name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee
        FROM pg_depend d
        JOIN pg_extension e ON e.oid = d.refobjid
        CROSS JOIN LATERAL (
            SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, c.relacl, c.relowner
            FROM pg_class c
            WHERE d.classid = 'pg_class'::regclass
              AND c.oid = d.objid
            UNION ALL
            SELECT 'FUNCTION', p.oid::regprocedure::text, p.proacl, p.proowner
            FROM pg_proc p
            WHERE d.classid = 'pg_proc'::regclass
              AND p.oid = d.objid
            UNION ALL
            SELECT 'TYPE', t.oid::regtype::text, t.typacl, t.typowner
            FROM pg_type t
            WHERE d.classid = 'pg_type'::regclass
              AND t.oid = d.objid
        ) o (kind, name, acl, owner)
        CROSS JOIN LATERAL aclexplode(o.acl) a
        WHERE d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND e.extname = 'mailroom'
          AND a.grantee <> o.owner
          AND (a.grantee <> 0 OR o.kind <> 'TYPE')
        GROUP BY 1, 2, 3
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %s CASCADE', held.kind, held.name, held.grantee);
    END LOOP;
    -- Functions are the one kind of object that PUBLIC may use unless told otherwise. Every function of this
    -- extension is taken from it here, and every one that lends its owner's rights is given its owner, so that none
    -- can be forgotten.
    FOR routine IN
        SELECT p.oid::regprocedure AS name, p.prosecdef, p.prorettype = 'trigger'::regtype AS is_trigger
        FROM pg_depend d
        JOIN pg_extension e ON e.oid = d.refobjid
        JOIN pg_proc p ON p.oid = d.objid
        WHERE d.classid = 'pg_proc'::regclass
          AND d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND e.extname = 'mailroom'
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', routine.name);
        IF routine.prosecdef THEN
            EXECUTE format('ALTER FUNCTION %s OWNER TO mailroom_definer', routine.name);
        END IF;
        -- Whoever may call a trigger's function may put it on a table of their own, where it would take strange
        -- rows for ours. The triggers themselves need no such right.
        IF NOT routine.is_trigger THEN
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO mailroom_admin', routine.name);
        END IF;
    END LOOP;
    -- A serial column makes do with another name for its sequence when somebody has the one that is meant; then the
    -- grants below would be on a stranger's.
    FOR routine IN
        SELECT t.relname || '_id_seq' AS name
        FROM pg_depend d
        JOIN pg_extension e ON e.oid = d.refobjid
        JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
        JOIN pg_depend o ON o.classid = 'pg_class'::regclass AND o.objid = s.oid AND o.deptype = 'a'
        JOIN pg_class t ON t.oid = o.refobjid
        WHERE d.classid = 'pg_class'::regclass
          AND d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND e.extname = 'mailroom'
          AND s.relname <> t.relname || '_id_seq'
    LOOP
        RAISE duplicate_table USING MESSAGE = format('relation "%s" already exists', routine.name);
    END LOOP;
END;
$$;

-- Names resolve for whoever has a role.
GRANT USAGE ON SCHEMA @extschema@ TO
    mailroom_app, mailroom_sender, mailroom_collector, mailroom_monitor, mailroom_support, mailroom_admin, mailroom_definer;

-- Views show with their owner's rights. Those that show secrets stay with whoever installs, for mailroom_definer has no
-- right to read these: of a row whose columns a role may read, errors of the server's quote the values.
DO $$
DECLARE
    lent regclass;
BEGIN
    FOR lent IN
        SELECT c.oid
        FROM pg_depend d
        JOIN pg_extension e ON e.oid = d.refobjid
        JOIN pg_class c ON c.oid = d.objid
        WHERE d.classid = 'pg_class'::regclass
          AND d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND e.extname = 'mailroom'
          AND c.relkind = 'v'
          AND c.relname NOT IN ('_mail_secrets', '_token_verdicts')
    LOOP
        EXECUTE format('ALTER VIEW %s OWNER TO mailroom_definer', lent);
    END LOOP;
END;
$$;

-- mailroom_admin: all data and all functions. Neither TRIGGER nor REFERENCES: whoever may put a trigger or a foreign
-- key on a table acts with the rights of everybody who writes it, a superuser's among them.
GRANT SELECT, INSERT, UPDATE, DELETE ON @extschema@.accounts, @extschema@.tokens, @extschema@.outbox, @extschema@.pauses,
    @extschema@.templates, @extschema@.budgets, @extschema@.routes TO mailroom_admin;
-- What only the functions write, as far as they need it.
GRANT SELECT, INSERT, UPDATE (lane), DELETE ON @extschema@.pending TO mailroom_admin;
GRANT SELECT, INSERT, UPDATE (email), DELETE ON @extschema@.link_requests TO mailroom_admin;
GRANT SELECT, INSERT, DELETE ON @extschema@.outbox_attempts, @extschema@.job_runs TO mailroom_admin;
GRANT SELECT ON @extschema@.jobs TO mailroom_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON @extschema@.transports, @extschema@.deliverers TO mailroom_admin;
GRANT SELECT, INSERT, DELETE ON @extschema@.attached, @extschema@._home TO mailroom_admin;
GRANT UPDATE (email, is_displaced) ON @extschema@.attached TO mailroom_admin;
GRANT SELECT ON @extschema@._token_verdicts, @extschema@._token_ends, @extschema@._mail_secrets, @extschema@._token_ages,
    @extschema@.outbox_history, @extschema@.mailroom_templates, @extschema@.mailroom_attached,
    @extschema@.mailroom_budgets, @extschema@.mailroom_transports, @extschema@.outbox_waits TO mailroom_admin;
-- It attaches tables of its own by putting triggers on them; on a table that is not attached these do nothing but fail.
GRANT EXECUTE ON FUNCTION
    @extschema@._attached_insert(),
    @extschema@._attached_update(),
    @extschema@._attached_delete(),
    @extschema@._attached_truncate()
TO mailroom_admin;
GRANT SELECT, INSERT ON @extschema@._new_mail TO mailroom_admin;
GRANT SELECT, UPDATE ON @extschema@._own_mail TO mailroom_admin;
GRANT USAGE ON SEQUENCE @extschema@.accounts_id_seq, @extschema@.tokens_id_seq, @extschema@.outbox_id_seq,
    @extschema@.outbox_attempts_id_seq, @extschema@.job_runs_id_seq, @extschema@.link_requests_id_seq TO mailroom_admin;
GRANT SELECT, UPDATE ON SEQUENCE @extschema@._last_seq, @extschema@._spent_minute, @extschema@._spent_hour,
    @extschema@._spent_day, @extschema@._spent_month TO mailroom_admin;

-- mailroom_app: registers people, and redeems the link of a mail. It sees no token and no mail. Not mailroom_verify:
-- with a link in hand it says of any code whether it is the right one, and counts nothing.
GRANT INSERT (email, login), SELECT (id, email, login, status) ON @extschema@.accounts TO mailroom_app;
GRANT USAGE ON SEQUENCE @extschema@.accounts_id_seq TO mailroom_app;

-- What came of a link, the links that people ask for, and their end: all of it behind these, which lend rights.
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_peek(text),
    @extschema@.mailroom_redeem(text, text),
    @extschema@.mailroom_revoke(bigint),
    @extschema@.mailroom_request_activation(text),
    @extschema@.mailroom_request_recovery(text)
TO mailroom_app;

-- It schedules mail, and takes back or moves mail of its own: through _new_mail and _own_mail, column by column, so that
-- whatever it writes there itself, around the functions, is mail that the functions could have written. Never INSERT and
-- UPDATE on the same one: both together are ON CONFLICT DO UPDATE, which reaches rows that a view hides. The views are
-- the extension's, since whoever owns a view may put triggers on it.
GRANT SELECT (id, message_id) ON @extschema@._new_mail TO mailroom_app;
GRANT INSERT (
    message_id, kind, recipients, cc, bcc, subject, body_text, body_html, data, priority, send_at, expires_at,
    max_attempts, item_key, group_key, transport
) ON @extschema@._new_mail TO mailroom_app;
GRANT SELECT (id, state, send_at, expires_at, item_key) ON @extschema@._own_mail TO mailroom_app;
GRANT UPDATE (state, send_at, last_error, updated_at) ON @extschema@._own_mail TO mailroom_app;
GRANT USAGE ON SEQUENCE @extschema@.outbox_id_seq TO mailroom_app;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_send(text, text, text, text, text, text, text, jsonb, timestamptz, timestamptz, integer, text, text, integer, text, uuid, text),
    @extschema@.mailroom_send_many(jsonb),
    @extschema@.mailroom_cancel(bigint),
    @extschema@.mailroom_cancel_item(text),
    @extschema@.mailroom_reschedule(bigint, timestamptz),
    @extschema@.mailroom_reschedule_item(text, timestamptz),
    @extschema@._submit(@extschema@._message[]),
    @extschema@._insert_mail(@extschema@._message[]),
    @extschema@._parse_messages(jsonb),
    @extschema@._address_list(text),
    @extschema@._json_address_list(jsonb),
    @extschema@._message_id(),
    @extschema@._refuse(integer, text, text, text, text),
    @extschema@._live(text[]),
    @extschema@._scheduled(uuid[]),
    @extschema@._is_own(name),
    @extschema@._addresses_problem(text[]),
    @extschema@._recipients_problem(text[], text[], text[]),
    @extschema@._message_problem(text, text, text, text, jsonb, timestamptz, timestamptz, integer, text, text, integer),
    @extschema@._words_problem(text, text, text, text, jsonb),
    @extschema@._default_transport(),
    @extschema@._route(text),
    @extschema@._knows_transport(text),
    @extschema@._max_message_size(),
    @extschema@._mail_due(timestamptz),
    @extschema@._max_attempts()
TO mailroom_app;
-- It sees the templates, which are no secret, and what they make of its data; what mail says is for those who may
-- write templates.
GRANT SELECT ON @extschema@.templates, @extschema@.mailroom_templates TO mailroom_app;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_preview(text, jsonb, text),
    @extschema@._template(text, text),
    @extschema@._locales(text),
    @extschema@._builtin_templates()
TO mailroom_app;

-- mailroom_sender: claims mails and settles them. These functions run with the caller's rights, hence the grants on the
-- tables: a function that lent its owner's rights would lend them to any trigger on these tables too. It sees of a token
-- whether it is still good, and of its mail, once it has claimed it, the link.
GRANT SELECT ON @extschema@._token_ends TO mailroom_sender;
GRANT SELECT ON @extschema@.pauses TO mailroom_sender;
-- All but the secrets: of a column that a role may not read, no error of the server's quotes the value. A claim reads them
-- through the view.
GRANT SELECT (
    ctid, xmin, id, message_id, state, priority, send_at, created_at, updated_at, failed_attempts, max_attempts,
    ambiguous_attempts, ambiguous_alone, claimed_until, token_id, account_id, expires_at, claimed_at, ended_at, transport, item_key, group_key, kind, recipients,
    cc, bcc, subject, body_text, body_html, data, last_error, claimed_by, enqueued_by, provider_id, batch
) ON @extschema@.outbox TO mailroom_sender;
GRANT SELECT ON @extschema@._mail_secrets TO mailroom_sender;
-- What a claim and a settle write: the state and its story, and the secrets, which go. Not the words of a
-- mail that is there, nor to whom it goes.
GRANT UPDATE (
    secrets, state, transport, send_at, failed_attempts, ambiguous_attempts, ambiguous_alone, last_error, claimed_by, claimed_at,
    claimed_until, provider_id, batch, updated_at, ended_at
) ON @extschema@.outbox TO mailroom_sender;
GRANT SELECT, INSERT ON @extschema@.outbox_attempts TO mailroom_sender;
GRANT SELECT ON @extschema@.outbox_history TO mailroom_sender;
GRANT USAGE ON SEQUENCE @extschema@.outbox_attempts_id_seq TO mailroom_sender;
GRANT EXECUTE ON FUNCTION
    @extschema@._batch_limit(),
    @extschema@._max_attempts(),
    @extschema@._urgent_priority(),
    @extschema@._status_for(@extschema@.token_action),
    @extschema@._pass_gate(),
    @extschema@._is_row_at_fault(text),
    @extschema@._mail_due(timestamptz),
    @extschema@._announce_due(timestamptz),
    @extschema@._next_wake(),
    @extschema@._next_lapse(timestamptz),
    @extschema@._transports(text[]),
    @extschema@._first_due(text, smallint, timestamptz, bigint, timestamptz),
    @extschema@.mailroom_next_due(text[]),
    @extschema@._claimed(timestamptz),
    @extschema@.mailroom_claim(integer, interval, text, text[]),
    @extschema@.mailroom_claim_group(integer, interval, text, text, text[]),
    @extschema@.mailroom_mark_sent(bigint, text, text, integer, jsonb),
    @extschema@.mailroom_mark_sent_many(bigint[], text[], text, integer[], jsonb[]),
    @extschema@.mailroom_mark_error(bigint, text, interval, boolean, integer, text, integer, boolean, boolean),
    @extschema@.mailroom_mark_error_many(bigint[], text[], interval[], boolean[], integer[], text, integer[], boolean[], boolean[], uuid[]),
    @extschema@.mailroom_release(bigint, text, integer),
    @extschema@.mailroom_release_many(bigint[], text, integer[]),
    @extschema@.mailroom_extend(bigint, interval, text, integer),
    @extschema@.mailroom_extend_many(bigint[], interval, text, integer[]),
    @extschema@._lease(),
    @extschema@._backoff(integer, interval),
    @extschema@._redirect_setting(),
    @extschema@._redirect_to(),
    @extschema@._addresses_problem(text[]),
    @extschema@._lock_sources(boolean),
    @extschema@._due_begin(text, boolean),
    @extschema@._due_may_sweep(text, boolean),
    @extschema@._due_positions(text, boolean),
    @extschema@._due_pieces(text, boolean),
    @extschema@._due_note_piece(text, boolean, smallint, timestamptz, bigint, boolean),
    @extschema@._due_note(text, boolean, smallint, timestamptz, bigint, boolean, boolean),
    @extschema@._due_put_back(text, boolean, smallint, timestamptz, bigint),
    @extschema@._due_end(text, boolean, boolean, integer, integer),
    @extschema@._leases_begin(timestamptz),
    @extschema@._leases_next(timestamptz),
    @extschema@._leases_from(),
    @extschema@._session_id(),
    @extschema@._try_lock_group(bigint),
    @extschema@._claimant(text),
    @extschema@._term(interval),
    @extschema@._take_back(timestamptz, integer),
    @extschema@._held_groups(text[], timestamptz),
    @extschema@._free_groups(text[], integer),
    @extschema@._judge(tid[], timestamptz, integer),
    @extschema@._due_lanes(text, boolean, boolean),
    @extschema@._pick_past(text, boolean, text[], integer, smallint, timestamptz, bigint, timestamptz, bigint, integer, timestamptz),
    @extschema@._gather(text, boolean, integer, integer, timestamptz, boolean),
    @extschema@._lease_out(tid[], text, timestamptz, interval),
    @extschema@._pick_group(text, text[], timestamptz, integer),
    @extschema@._held(bigint[], text, integer[]),
    @extschema@._hold_until(bigint[], text, integer[], timestamptz),
    @extschema@._refuse_batch_limit(integer, text),
    @extschema@._redact(text, text[]),
    @extschema@._check_parallel(bigint[], integer[]),
    @extschema@._without_late(bigint[], integer[], text, integer[], text[], integer[], text)
TO mailroom_sender;

-- mailroom_collector: all that, and takes tokens out of pending, signs them, writes the outbox and the diary, answers
-- requests and purges. The worker runs as this role.
GRANT mailroom_sender TO mailroom_collector;
-- A row is locked by whoever may update one of its columns.
GRANT SELECT, UPDATE (lane), DELETE ON @extschema@.pending TO mailroom_collector;
GRANT SELECT ON @extschema@._token_verdicts TO mailroom_collector;
GRANT INSERT ON @extschema@.outbox TO mailroom_collector;
GRANT SELECT, UPDATE ON SEQUENCE @extschema@._last_seq TO mailroom_collector;
GRANT SELECT, INSERT ON @extschema@.job_runs TO mailroom_collector;
GRANT USAGE ON SEQUENCE @extschema@.outbox_id_seq, @extschema@.job_runs_id_seq TO mailroom_collector;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_dequeue(integer),
    @extschema@.mailroom_dequeue_line(integer),
    @extschema@.mailroom_collect(integer),
    @extschema@.mailroom_verify(text, @extschema@.token_action, text),
    @extschema@._secrets(text, bytea, text),
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
    @extschema@._message_id(),
    @extschema@._route(text),
    @extschema@._collect(integer, integer),
    @extschema@._waiting(integer),
    @extschema@._tend(boolean),
    @extschema@._run_batch(integer, text),
    @extschema@._move_in(oid, xid),
    @extschema@._take_over(text),
    @extschema@.mailroom_purge(integer),
    @extschema@._walk_from(text),
    @extschema@._purge(integer)
TO mailroom_collector;

-- Who claims keeps to the budgets, and counts what it takes out of them.
GRANT SELECT ON @extschema@.budgets, @extschema@.mailroom_budgets TO mailroom_sender;
GRANT SELECT, UPDATE ON SEQUENCE @extschema@._spent_minute, @extschema@._spent_hour, @extschema@._spent_day,
    @extschema@._spent_month TO mailroom_sender;
GRANT EXECUTE ON FUNCTION
    @extschema@._period_number(@extschema@.budget_period, timestamptz),
    @extschema@._period_start(@extschema@.budget_period, bigint),
    @extschema@._budget_use(timestamptz),
    @extschema@._lock_budgets(),
    @extschema@._unlock_budgets(),
    @extschema@._budget_limits(timestamptz),
    @extschema@._take_shares(integer[], boolean),
    @extschema@._return_shares(timestamptz[], integer[]),
    @extschema@._return_unclaimed(bigint[], timestamptz),
    @extschema@._within_budgets(tid[]),
    @extschema@._wait_for_budgets(tid[], boolean),
    @extschema@._budget(integer)
TO mailroom_sender;
-- It publishes its transports, and moves mail on when one is paused.
GRANT SELECT ON @extschema@.routes TO mailroom_sender;
GRANT SELECT, INSERT, UPDATE, DELETE ON @extschema@.transports, @extschema@.deliverers TO mailroom_sender;
GRANT EXECUTE ON FUNCTION
    @extschema@._publish_transports(text, jsonb, text),
    @extschema@._fall_back(text, text[], interval[], integer),
    @extschema@._fall_back_from(text, text, interval, integer, timestamptz),
    @extschema@._fallback_cursor(text),
    @extschema@._fallback_note(text, smallint, timestamptz, bigint)
TO mailroom_sender;
-- It composes what it sends.
GRANT SELECT ON @extschema@.templates, @extschema@.mailroom_templates TO mailroom_sender;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_preview(text, jsonb, text),
    @extschema@._template(text, text),
    @extschema@._locales(text),
    @extschema@._render(text, text, text, text),
    @extschema@._template_variables(jsonb, timestamptz, text, text, uuid, text[]),
    @extschema@._builtin_templates()
TO mailroom_sender;

-- Whoever runs the pipeline answers requests, but sees no address and writes no token: this one lends
-- rights. Whether there is anything to answer is asked before.
GRANT SELECT (id) ON @extschema@.link_requests TO mailroom_collector;
GRANT EXECUTE ON FUNCTION @extschema@.mailroom_answer_requests(integer) TO mailroom_collector;

-- mailroom_monitor: counts, ages and reasons, but neither addresses nor contents.
GRANT SELECT ON @extschema@.pending, @extschema@.jobs, @extschema@.job_runs, @extschema@.pauses,
    @extschema@._token_ages, @extschema@.outbox_history TO mailroom_monitor;
-- All but the refused recipients.
GRANT SELECT (id, outbox_id, attempt, outcome, started_at, ended_at, claimant, transport, response_code, error)
    ON @extschema@.outbox_attempts TO mailroom_monitor;
GRANT EXECUTE ON FUNCTION @extschema@.mailroom_status(), @extschema@._worker_report(), @extschema@._redirect_setting(),
    @extschema@._scheduled_transports() TO mailroom_monitor;
GRANT SELECT (
    id, message_id, kind, token_id, account_id, transport, priority, state, send_at, expires_at, failed_attempts, max_attempts,
    ambiguous_attempts, ambiguous_alone, last_error, claimed_by, claimed_at, claimed_until, created_at, updated_at,
    ended_at
) ON @extschema@.outbox TO mailroom_monitor;

-- Which transport delivers what, and in which state each is.
GRANT SELECT ON @extschema@.routes, @extschema@.mailroom_transports, @extschema@.deliverers TO mailroom_monitor;

-- And what is left of the budgets, and why mail waits.
GRANT SELECT ON @extschema@.budgets, @extschema@.mailroom_budgets, @extschema@.outbox_waits TO mailroom_monitor;
GRANT SELECT ON SEQUENCE @extschema@._spent_minute, @extschema@._spent_hour, @extschema@._spent_day,
    @extschema@._spent_month TO mailroom_monitor;
GRANT EXECUTE ON FUNCTION
    @extschema@._period_number(@extschema@.budget_period, timestamptz),
    @extschema@._period_start(@extschema@.budget_period, bigint),
    @extschema@._budget_use(timestamptz),
    @extschema@._urgent_priority(),
    @extschema@._budget_limits(timestamptz),
    @extschema@._budget(integer)
TO mailroom_monitor;

-- mailroom_support: to whom mail went and what became of it, and another try, the end, or a new link for somebody who
-- calls. What mail says, secrets and codes it does not see.
GRANT mailroom_monitor TO mailroom_support;
GRANT SELECT ON @extschema@.accounts TO mailroom_support;
GRANT SELECT (id, action, account, expires_at, consumed_at, created_at, revoked_at, wrong_codes, sent_again_at)
    ON @extschema@.tokens TO mailroom_support;
GRANT SELECT (recipients, cc, bcc, subject, item_key, group_key, enqueued_by, provider_id) ON @extschema@.outbox TO mailroom_support;
GRANT SELECT (refused_recipients) ON @extschema@.outbox_attempts TO mailroom_support;
GRANT SELECT (id, state, send_at, expires_at, item_key), UPDATE (state, send_at, last_error, updated_at)
    ON @extschema@._own_mail TO mailroom_support;
GRANT SELECT ON @extschema@._token_ends TO mailroom_support;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_cancel(bigint),
    @extschema@.mailroom_cancel_item(text),
    @extschema@.mailroom_reschedule(bigint, timestamptz),
    @extschema@.mailroom_reschedule_item(text, timestamptz),
    @extschema@.mailroom_retry(bigint),
    @extschema@.mailroom_retry_failed(text, text, @extschema@.attempt_outcome, integer, timestamptz, integer),
    @extschema@.mailroom_request_activation(text),
    @extschema@.mailroom_request_recovery(text),
    @extschema@.mailroom_revoke(bigint),
    @extschema@._retry(bigint[]),
    @extschema@._live(text[]),
    @extschema@._is_own(name),
    @extschema@._status_for(@extschema@.token_action),
    @extschema@._mail_due(timestamptz),
    @extschema@._refuse_batch_limit(integer, text)
TO mailroom_support;

-- mailroom_definer: what the functions need that it owns. The triggers on accounts, tokens and outbox work for people
-- who may not write the tables behind them; an application redeems and requests links without seeing a token, asks who
-- holds an item_key, and is shown what a template makes of its data; a purge deletes what a sender may not; the rows of
-- an attached table make, change and delete their accounts; the worker pauses itself in a copy. It signs nothing: a
-- trigger that somebody put on one of the tables would run with its rights.
GRANT SELECT, INSERT (email, login), UPDATE (email, login, status), DELETE ON @extschema@.accounts TO mailroom_definer;
GRANT SELECT, INSERT, UPDATE (email, is_displaced), DELETE ON @extschema@.attached TO mailroom_definer;
GRANT SELECT ON @extschema@.mailroom_attached TO mailroom_definer;
-- Secrets and codes through _token_verdicts alone, so that no error of the server's quotes them.
GRANT SELECT (ctid, id, action, account, expires_at, consumed_at, created_at, revoked_at, wrong_codes, sent_again_at),
    INSERT (account, action, secret, code, expires_at, created_at), UPDATE (consumed_at, revoked_at, wrong_codes, sent_again_at),
    DELETE
    ON @extschema@.tokens TO mailroom_definer;
GRANT SELECT, INSERT, UPDATE (lane), DELETE ON @extschema@.pending TO mailroom_definer;
GRANT SELECT, INSERT, UPDATE (email), DELETE ON @extschema@.link_requests TO mailroom_definer;
GRANT SELECT (
    ctid, xmin, id, message_id, state, priority, send_at, created_at, updated_at, failed_attempts, max_attempts,
    ambiguous_attempts, ambiguous_alone, claimed_until, token_id, account_id, expires_at, claimed_at, ended_at, transport, item_key, group_key, kind, recipients,
    cc, bcc, subject, body_text, body_html, data, last_error, claimed_by, enqueued_by, provider_id, batch
), INSERT (
    message_id, kind, recipients, cc, bcc, subject, body_text, body_html, data, priority, send_at, expires_at,
    max_attempts, item_key, group_key, transport
), UPDATE (
    secrets, state, send_at, max_attempts, last_error, claimed_by, claimed_at, claimed_until, updated_at, ended_at
), DELETE ON @extschema@.outbox TO mailroom_definer;
GRANT SELECT, DELETE ON @extschema@.outbox_attempts, @extschema@.job_runs TO mailroom_definer;
GRANT SELECT, INSERT, DELETE ON @extschema@._home TO mailroom_definer;
GRANT SELECT, INSERT, UPDATE ON @extschema@.pauses TO mailroom_definer;
GRANT SELECT ON @extschema@.routes, @extschema@.transports TO mailroom_definer;
GRANT SELECT ON SEQUENCE @extschema@._last_seq TO mailroom_definer;
GRANT SELECT ON @extschema@._token_verdicts, @extschema@._token_ends, @extschema@.templates,
    @extschema@.mailroom_templates TO mailroom_definer;
GRANT USAGE ON SEQUENCE @extschema@.accounts_id_seq, @extschema@.tokens_id_seq, @extschema@.link_requests_id_seq
    TO mailroom_definer;
GRANT SELECT, UPDATE ON SEQUENCE @extschema@._purged_tokens TO mailroom_definer;
GRANT EXECUTE ON FUNCTION
    @extschema@._fold(text),
    @extschema@._restores(),
    @extschema@._default_transport(),
    @extschema@._route(text),
    @extschema@._knows_transport(text),
    @extschema@._account_is_plain(text, text),
    @extschema@._account_problem(text, text),
    @extschema@._normalised(@extschema@.accounts),
    @extschema@._new_account(@extschema@.accounts),
    @extschema@._changed_account(@extschema@.accounts, @extschema@.accounts),
    @extschema@._refuse_batch_limit(integer, text),
    @extschema@._pass_gate(),
    @extschema@._lock_sources(boolean),
    @extschema@._random_secret(),
    @extschema@._random_code(),
    @extschema@._epoch(),
    @extschema@._activation_ttl(),
    @extschema@._recovery_ttl(),
    @extschema@._ttl(@extschema@.token_action),
    @extschema@._log_abuse(text, bigint),
    @extschema@._mail_due(timestamptz),
    @extschema@._announce(smallint),
    @extschema@._lane(@extschema@.token_action),
    @extschema@._took(),
    @extschema@._scan_end(boolean, bigint, bigint),
    @extschema@._withdraw_mail(bigint[], text),
    @extschema@._revoke_tokens(bigint[], @extschema@.token_action[]),
    @extschema@._judge_link(text),
    @extschema@._link_secret(text),
    @extschema@._verify(text, text, text),
    @extschema@._is_code(text, text),
    @extschema@._status_for(@extschema@.token_action),
    @extschema@._request(text, @extschema@.token_action),
    @extschema@._answer_request(bigint, @extschema@.token_action),
    @extschema@._pick_requests(bigint, integer),
    @extschema@._requested(bigint[]),
    @extschema@._request_interval(),
    @extschema@._requests_per_hour(),
    @extschema@._batch_limit(),
    @extschema@._is_row_at_fault(text),
    @extschema@._sample_secrets(text),
    @extschema@._template_variables(jsonb, timestamptz, text, text, uuid, text[]),
    @extschema@._template(text, text),
    @extschema@._locales(text),
    @extschema@._render(text, text, text, text),
    @extschema@._builtin_templates(),
    @extschema@._retention(),
    @extschema@._announce_due(timestamptz),
    @extschema@._walk_begin(text),
    @extschema@._walk_from(text),
    @extschema@._walk_end(text, bigint),
    @extschema@._walk_back(text, bigint),
    @extschema@._purge_mails(timestamptz, integer),
    @extschema@._purge_tokens(bigint, integer),
    @extschema@._attachment(oid),
    @extschema@._displace(oid, bigint, text, text),
    @extschema@._is_text(oid)
TO mailroom_definer;

-- Row-level security that somebody switches on is for applications: for mailroom's own roles every table has a policy
-- that shows all. Members of mailroom_app are applications, and see templates alone.
DO $$
DECLARE
    own regclass;
BEGIN
    FOR own IN
        SELECT c.oid
        FROM pg_depend d
        JOIN pg_extension e ON e.oid = d.refobjid
        JOIN pg_class c ON c.oid = d.objid
        WHERE d.classid = 'pg_class'::regclass
          AND d.refclassid = 'pg_extension'::regclass
          AND d.deptype = 'e'
          AND e.extname = 'mailroom'
          AND c.relkind = 'r'
    LOOP
        EXECUTE format(
            'CREATE POLICY mailroom ON %s TO mailroom_sender, mailroom_collector, mailroom_monitor, mailroom_support, mailroom_admin, mailroom_definer USING (true)',
            own
        );
    END LOOP;
END;
$$;
-- mailroom_send looks for a template with its caller's rights.
CREATE POLICY mailroom_app ON @extschema@.templates FOR SELECT TO mailroom_app USING (true);
