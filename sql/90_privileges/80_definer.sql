-- mailroom_definer: what the functions need that it owns.
--
-- Triggers on accounts, tokens and outbox work for people who may not write the tables behind them; an application
-- redeems and requests links without seeing a token, asks who has a message_id, and previews what a template makes of
-- its data; a purge deletes what a sender may not; the rows of an attached table create, change and delete their
-- accounts; the worker pauses itself in a copy; senders count what they claim and publish their transports. It signs nothing: a trigger that an application puts on one of the
-- tables runs with its rights.

-- What mailroom_problems reads.
GRANT SELECT ON @extschema@._token_ages, @extschema@.mailroom_transports, @extschema@.mailroom_budgets TO mailroom_definer;
GRANT EXECUTE ON FUNCTION @extschema@.mailroom_status(), @extschema@._oldest_due(), @extschema@._scheduled_transports(),
    @extschema@._redirect_setting(), @extschema@._budget(integer), @extschema@.mailroom_version(), @extschema@._library_version()
    TO mailroom_definer;

-- INSERT of all columns, so that attached tables work where the owner replaced a default.
GRANT SELECT, INSERT, UPDATE (email, login, status), DELETE ON @extschema@.accounts TO mailroom_definer;
GRANT SELECT, INSERT, UPDATE (email, is_displaced), DELETE ON @extschema@.attached TO mailroom_definer;
GRANT SELECT ON @extschema@.mailroom_attached TO mailroom_definer;

-- Secrets and codes only through _token_verdicts, so that no error message of the server quotes them.
GRANT SELECT (ctid, id, action, account, expires_at, consumed_at, created_at, revoked_at, wrong_codes, sent_again_at),
    INSERT (account, action, secret, code, expires_at, created_at), UPDATE (consumed_at, revoked_at, wrong_codes, sent_again_at),
    DELETE
    ON @extschema@.tokens TO mailroom_definer;
GRANT SELECT, INSERT, UPDATE (lane), DELETE ON @extschema@.pending TO mailroom_definer;
GRANT SELECT, INSERT, UPDATE (email), DELETE ON @extschema@.link_requests TO mailroom_definer;
-- And the columns of 85_columns.sql.
GRANT INSERT (transport), UPDATE (
    secrets, state, send_at, max_attempts, last_error, claimed_by, claimed_at, claimed_until, batch, updated_at, ended_at
), DELETE ON @extschema@.outbox TO mailroom_definer;
-- mailroom_send_again schedules for the role of the original.
GRANT INSERT (enqueued_by) ON @extschema@.outbox TO mailroom_definer;
GRANT USAGE ON SEQUENCE @extschema@.outbox_id_seq TO mailroom_definer;
-- UPDATE of one column is the right to lock rows.
GRANT SELECT, UPDATE (id), DELETE ON @extschema@.outbox_attempts, @extschema@.job_runs TO mailroom_definer;
-- Files, through _new_files, and what mail has them.
GRANT SELECT, INSERT (content), UPDATE (id), DELETE ON @extschema@.outbox_files TO mailroom_definer;
GRANT SELECT, INSERT (outbox_id, position, file_id, filename, content_type, content_id, size, digest), UPDATE (id), DELETE
    ON @extschema@.outbox_attachments TO mailroom_definer;
GRANT UPDATE (attachment_bytes) ON @extschema@.outbox TO mailroom_definer;
GRANT SELECT ON @extschema@._needed_files TO mailroom_definer;
-- What providers report, and its purge.
GRANT SELECT, INSERT (event_key, outbox_id, transport, type, is_permanent, reason, recipient, status, detail, occurred_at), UPDATE (id), DELETE
    ON @extschema@.delivery_events TO mailroom_definer;
-- What operators do, through _new_actions, and its purge.
GRANT SELECT, INSERT (action, outbox_id, detail), UPDATE (id), DELETE ON @extschema@.operator_actions TO mailroom_definer;
GRANT USAGE ON SEQUENCE @extschema@.delivery_events_id_seq, @extschema@.operator_actions_id_seq TO mailroom_definer;
-- To whom no mail is sent.
GRANT SELECT, INSERT, UPDATE (bounces, event_id, since, until), DELETE ON @extschema@.suppressions TO mailroom_definer;
GRANT SELECT ON @extschema@._suppressions_in_force, @extschema@._suppressed_recipients TO mailroom_definer;
GRANT USAGE ON SEQUENCE @extschema@.outbox_files_id_seq, @extschema@.outbox_attachments_id_seq TO mailroom_definer;
-- Through _new_attempts and _new_job_runs.
GRANT INSERT (outbox_id, attempt, outcome, started_at, ended_at, claimant, transport, response_code, error, refused_recipients)
    ON @extschema@.outbox_attempts TO mailroom_definer;
GRANT INSERT (job_type, started_at, duration, collected, skipped, trigger, error) ON @extschema@.job_runs TO mailroom_definer;
GRANT SELECT, INSERT, DELETE ON @extschema@._database_identity TO mailroom_definer;
GRANT SELECT, INSERT, UPDATE ON @extschema@.pauses TO mailroom_definer;
GRANT SELECT ON @extschema@.routes, @extschema@.budgets TO mailroom_definer;
GRANT SELECT, INSERT, UPDATE, DELETE ON @extschema@.transports, @extschema@.deliverers TO mailroom_definer;
-- UPDATE jobs takes tokens from pending.
GRANT SELECT, UPDATE ON SEQUENCE @extschema@._last_seq TO mailroom_definer;
GRANT SELECT, INSERT, UPDATE (last_seq) ON @extschema@._jobs TO mailroom_definer;
GRANT SELECT, UPDATE ON SEQUENCE @extschema@._spent_minute, @extschema@._spent_hour, @extschema@._spent_day,
    @extschema@._spent_month TO mailroom_definer;
GRANT SELECT ON @extschema@._token_verdicts, @extschema@._token_ends, @extschema@.templates,
    @extschema@.mailroom_templates TO mailroom_definer;
GRANT USAGE ON SEQUENCE @extschema@.accounts_id_seq, @extschema@.tokens_id_seq, @extschema@.link_requests_id_seq
    TO mailroom_definer;
GRANT SELECT, UPDATE ON SEQUENCE @extschema@._purged_outbox, @extschema@._purged_tokens, @extschema@._purged_link_requests,
    @extschema@._purged_outbox_attempts, @extschema@._purged_outbox_attachments, @extschema@._purged_outbox_files,
    @extschema@._purged_delivery_events, @extschema@._purged_operator_actions,
    @extschema@._purged_job_runs TO mailroom_definer;
GRANT EXECUTE ON FUNCTION
    @extschema@._fold(text),
    @extschema@._is_address(text),
    @extschema@.mailroom_address_key(text),
    @extschema@._line_problem(text),
    @extschema@._is_restoring(),
    @extschema@._default_transport(),
    @extschema@._contents(@extschema@._mail),
    @extschema@._route(text),
    @extschema@._allows_sender(text[], text),
    @extschema@._knows_transport(text),
    @extschema@._account_is_plain(text, text),
    @extschema@._account_problem(text, text),
    @extschema@._normalised(@extschema@.accounts),
    @extschema@._new_account(@extschema@.accounts),
    @extschema@._changed_account(@extschema@.accounts, @extschema@.accounts),
    @extschema@._refuse_batch_limit(integer, text),
    @extschema@._refuse_while_restoring(),
    @extschema@._lock_accounts_and_tokens(boolean),
    @extschema@._random_secret(),
    @extschema@._random_code(),
    @extschema@._epoch(),
    @extschema@._activation_ttl(),
    @extschema@._recovery_ttl(),
    @extschema@._ttl(@extschema@.token_action),
    @extschema@._log_abuse(text, bigint),
    @extschema@._mail_due(timestamptz, boolean, boolean),
    @extschema@._search_at_commit(),
    @extschema@._urgent_priority(),
    @extschema@._announce(smallint, boolean),
    @extschema@._lane(@extschema@.token_action),
    @extschema@._took(),
    @extschema@._note_progress(bigint),
    @extschema@._take_selected(bigint[], bigint, bigint),
    @extschema@._scan_back(text, smallint, timestamptz, bigint),
    @extschema@._withdraw_mail(bigint[], text),
    @extschema@._open_tokens(bigint[]),
    @extschema@._committed_open_tokens(regprocedure, bigint[]),
    @extschema@._refuse_unseen_tokens(bigint[]),
    @extschema@._revoke_tokens(bigint[], @extschema@.token_action[]),
    @extschema@._find_token_by_link(text),
    @extschema@._link_secret(text),
    @extschema@._verify(text, text, text),
    @extschema@._trimmed(text),
    @extschema@._is_code(text, text),
    @extschema@._status_for(@extschema@.token_action),
    @extschema@._request(text, @extschema@.token_action),
    @extschema@._is_operator(),
    @extschema@._answer_request(bigint, @extschema@.token_action),
    @extschema@._lock_requests(bigint, integer),
    @extschema@._requested(bigint[], integer),
    @extschema@._request_interval(),
    @extschema@._requests_per_hour(),
    @extschema@._batch_limit(),
    @extschema@._is_row_at_fault(text),
    @extschema@._may_pass_by(text),
    @extschema@._sample_secrets(text),
    @extschema@._template_variables(jsonb, timestamptz, text, text, uuid, text[]),
    @extschema@._template(text, text),
    @extschema@._locales(text),
    @extschema@._render(text, text, text, text),
    @extschema@._builtin_templates(),
    @extschema@._retention(),
    @extschema@._announce_due(timestamptz),
    @extschema@._delete_rows(text, tid[]),
    @extschema@._purge_mails(timestamptz, integer),
    @extschema@._purge_by_id(text, text, text[], text, text, integer),
    @extschema@._attachment(oid),
    @extschema@._row_values(name, name, name),
    @extschema@._placeholder_login(),
    @extschema@._displace(oid, bigint, text, text),
    @extschema@._scan_begin(text),
    @extschema@._scan_sweep(text),
    @extschema@._scan_start(text, smallint),
    @extschema@._scan_note(text, smallint, timestamptz, bigint, boolean),
    @extschema@._scan_end(text),
    @extschema@._lock_own_mail(bigint[], name, boolean),
    @extschema@._has_attachments(bigint, jsonb),
    @extschema@._attachments_problem(text[], text[], text[], boolean),
    @extschema@._content_type(text, text),
    @extschema@._decoded(text),
    @extschema@._encoded_size(bigint, bigint, bigint),
    @extschema@._max_message_size(),
    @extschema@._refuse(integer, text, text, text, text),
    @extschema@._refuse_size(integer, text, bigint),
    @extschema@._refuse_lost(integer),
    @extschema@._bare_addresses(text[]),
    @extschema@._search_keys(text[]),
    @extschema@._message_id(),
    @extschema@._copy_mail(bigint),
    @extschema@._receive(text, text, text, bytea),
    @extschema@._read_report(text, text),
    @extschema@._record_events(text, jsonb),
    @extschema@._settle_by_events(bigint[]),
    @extschema@._check_suppression(text[], text),
    @extschema@._list_problem(text),
    @extschema@._visible(text),
    @extschema@._suppress(text[], text, @extschema@.suppression_reason, timestamptz),
    @extschema@._bounce_term(integer),
    @extschema@._suppress_by_events(bigint[]),
    @extschema@._record_refused(bigint[], text[], text[]),
    @extschema@._unsubscribe_url(text, text),
    @extschema@._unsubscriber(text),
    @extschema@._purge_suppressions(integer),
    @extschema@._proves_sending(@extschema@.event_type),
    @extschema@._proven_state(bigint, timestamptz),
    @extschema@._passes_by(text, tid[]),
    @extschema@._note_refused(bigint, text),
    @extschema@._is_callers_role(name, name),
    @extschema@._refuse_attached_twice(oid, text),
    @extschema@._warn_unfollowed(oid, text, text),
    @extschema@._is_text(oid),
    @extschema@._lock_budgets(),
    @extschema@._unlock_budgets(),
    @extschema@._period_number(@extschema@.budget_period, timestamptz),
    @extschema@._period_start(@extschema@.budget_period, bigint),
    @extschema@._budget_usage(timestamptz),
    @extschema@._budget_limits(timestamptz),
    @extschema@._worker_report()
TO mailroom_definer;
