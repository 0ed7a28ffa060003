-- mailroom_sender: claims mail and settles it.
--
-- These functions run with the caller's rights, therefore the grants on the tables: a function that ran with its
-- owner's rights would lend them to any trigger on these tables. It sees of a token whether it is still good, and of
-- its mail, once it has claimed it, the link.

GRANT SELECT ON @extschema@._token_ends TO mailroom_sender;
GRANT SELECT ON @extschema@.pauses TO mailroom_sender;

-- Of the outbox, the columns of 85_columns.sql: all but the secrets. A claim reads the secrets through the view.
GRANT SELECT ON @extschema@._mail_secrets, @extschema@._mail_addresses TO mailroom_sender;
GRANT SELECT ON @extschema@.outbox_attachments, @extschema@.outbox_files TO mailroom_sender;
GRANT EXECUTE ON FUNCTION @extschema@.mailroom_attachments(bigint) TO mailroom_sender;

-- What a claim and a settle write: the state, its times and reasons, and the secrets, which are removed. Not the
-- contents of a mail nor its recipients.
GRANT UPDATE (
    secrets, state, transport, send_at, failed_attempts, ambiguous_attempts, ambiguous_alone, last_error, claimed_by, claimed_at,
    claimed_until, provider_id, batch, fallback_from, updated_at, ended_at
) ON @extschema@.outbox TO mailroom_sender;
GRANT SELECT ON @extschema@.outbox_attempts TO mailroom_sender;
GRANT INSERT ON @extschema@._new_attempts TO mailroom_sender;
GRANT SELECT ON @extschema@.outbox_history TO mailroom_sender;
-- Whether events prove that a mail was sent.
GRANT SELECT (outbox_id, type, received_at) ON @extschema@.delivery_events TO mailroom_sender;
GRANT USAGE ON SEQUENCE @extschema@.outbox_attempts_id_seq TO mailroom_sender;
-- `mailroom check` and `mailroom send` tell the versions of library and SQL; the former, what is wrong.
GRANT EXECUTE ON FUNCTION @extschema@._library_version(), @extschema@.mailroom_version(), @extschema@.mailroom_problems() TO mailroom_sender;
GRANT EXECUTE ON FUNCTION
    @extschema@._first_attempt_at(bigint),
    @extschema@._may_have_arrived(bigint),
    @extschema@._proves_sending(@extschema@.event_type),
    @extschema@._proven_state(bigint, timestamptz),
    @extschema@._is_known_to_be_sent(bigint, integer, uuid),
    @extschema@._batch_limit(),
    @extschema@._max_attempts(),
    @extschema@._urgent_priority(),
    @extschema@._status_for(@extschema@.token_action),
    @extschema@._refuse_while_restoring(),
    @extschema@._may_pass_by(text),
    @extschema@._mail_due(timestamptz, boolean, boolean),
    @extschema@._announce_due(timestamptz),
    @extschema@._next_wake(),
    @extschema@._next_lapse(timestamptz),
    @extschema@._transports(text[]),
    @extschema@.mailroom_next_due(text[]),
    @extschema@._claimed(timestamptz),
    @extschema@.mailroom_claim(integer, interval, text, text[]),
    @extschema@.mailroom_claim_group(integer, interval, text, text, text[]),
    @extschema@.mailroom_mark_sent(bigint, text, text, integer, jsonb),
    @extschema@.mailroom_mark_sent_many(bigint[], text[], text, integer[], jsonb[]),
    @extschema@.mailroom_mark_error(bigint, text, interval, boolean, integer, text, integer, boolean, boolean, boolean),
    @extschema@.mailroom_mark_error_many(bigint[], text[], interval[], boolean[], integer[], text, integer[], boolean[], boolean[], uuid[], boolean[]),
    @extschema@.mailroom_release(bigint, text, integer),
    @extschema@.mailroom_release_many(bigint[], text, integer[]),
    @extschema@.mailroom_extend(bigint, interval, text, integer),
    @extschema@.mailroom_extend_many(bigint[], interval, text, integer[]),
    @extschema@._lease(),
    @extschema@._backoff(integer, integer, interval),
    @extschema@._due_again(integer, integer, interval, timestamptz, timestamptz),
    @extschema@._redirect_setting(),
    @extschema@._redirect_to(),
    @extschema@._bare_addresses(text[]),
    -- An index of ended mail calls it.
    @extschema@._search_keys(text[]),
    @extschema@._line_problem(text),
    @extschema@._is_address(text),
    @extschema@.mailroom_address_key(text),
    @extschema@._lock_accounts_and_tokens(boolean),
    @extschema@._session_id(),
    @extschema@._try_lock_group(bigint),
    @extschema@._claimant(text),
    @extschema@._lease_or_default(interval),
    @extschema@._expire_leases(timestamptz, integer),
    @extschema@._expire_claims(tid[], timestamptz),
    @extschema@._note_ended(bigint, bigint, text),
    @extschema@._end_useless(tid[], timestamptz),
    @extschema@._busy_groups(text[], timestamptz),
    @extschema@._free_groups(text[]),
    @extschema@._scan_begin(text),
    @extschema@._scan_parts(text),
    @extschema@._scan_start(text, smallint),
    @extschema@._scan_note(text, smallint, timestamptz, bigint, boolean),
    @extschema@._scan_end(text),
    @extschema@._scan_spend(text, double precision),
    @extschema@._scan_back(text, smallint, timestamptz, bigint),
    @extschema@._put_back(text, tid[]),
    @extschema@._due_ranges(text, boolean, text, boolean),
    @extschema@._note_refused(bigint, text),
    @extschema@._refused(),
    @extschema@._passes_by(text, tid[]),
    @extschema@._judge(tid[], timestamptz),
    @extschema@._look_at_due(text, boolean, smallint, timestamptz, bigint, timestamptz, bigint),
    @extschema@._look_for_due(text, boolean, text, boolean, integer, integer, timestamptz, text[], bigint, integer),
    @extschema@._look_at_group(text, text[], smallint, timestamptz, bigint, timestamptz, integer),
    @extschema@._claim_complete(tid[], text, timestamptz, interval),
    @extschema@._claim_rows(tid[], tid[], text, timestamptz, interval),
    @extschema@._claim_batch(tid[], boolean, text, timestamptz, interval, integer),
    @extschema@._claim_group(text, text[], text, timestamptz, interval, integer),
    @extschema@._end_claim(text, boolean, double precision, boolean, boolean, bigint, timestamptz),
    @extschema@._lock_claimed(bigint[], text, integer[]),
    @extschema@._set_lease_end(bigint[], text, integer[], timestamptz),
    @extschema@._refuse_batch_limit(integer, text),
    @extschema@._redact(text, bigint),
    @extschema@._mask_secrets(text),
    @extschema@._check_parallel(bigint[], integer[]),
    @extschema@._record_late(bigint[], integer[], text, integer[], text[], integer[], text)
TO mailroom_sender;

-- Claims keep to the budgets; SECURITY DEFINER functions count what they take.
GRANT SELECT ON @extschema@.budgets, @extschema@.mailroom_budgets TO mailroom_sender;
GRANT SELECT ON SEQUENCE @extschema@._spent_minute, @extschema@._spent_hour, @extschema@._spent_day,
    @extschema@._spent_month TO mailroom_sender;
GRANT EXECUTE ON FUNCTION
    @extschema@._period_number(@extschema@.budget_period, timestamptz),
    @extschema@._period_start(@extschema@.budget_period, bigint),
    @extschema@._budget_usage(timestamptz),
    @extschema@._budget_limits(timestamptz),
    @extschema@._consume_budget(integer[], boolean),
    @extschema@._refund_budget(timestamptz[], integer[]),
    @extschema@._refund_unclaimed(bigint[], text, timestamptz),
    @extschema@._within_budgets(tid[]),
    @extschema@._wait_for_budgets(tid[], text),
    @extschema@._budget(integer)
TO mailroom_sender;

-- It publishes its transports by a SECURITY DEFINER function, and moves mail to a fallback when one is paused.
GRANT SELECT ON @extschema@.routes TO mailroom_sender;
GRANT SELECT ON @extschema@.transports, @extschema@.deliverers TO mailroom_sender;
GRANT EXECUTE ON FUNCTION
    @extschema@._publish_transports(text, jsonb, text),
    @extschema@._fall_back(text, text[], interval[], integer),
    @extschema@._fall_back_from(text, text, interval, integer, timestamptz),
    @extschema@._move(tid[], text, timestamptz)
TO mailroom_sender;

-- It renders what it sends.
GRANT SELECT ON @extschema@.templates, @extschema@.mailroom_templates TO mailroom_sender;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_preview(text, jsonb, text),
    @extschema@._template(text, text),
    @extschema@._locales(text),
    @extschema@._render(text, text, text, text),
    @extschema@._template_variables(jsonb, timestamptz, text, text, uuid, text[]),
    @extschema@._builtin_templates()
TO mailroom_sender;

-- It leaves out suppressed recipients, whom it sees only as far as they are those of its mail, and records what it left out and who was
-- refused by SECURITY DEFINER functions.
GRANT SELECT (reason) ON @extschema@.suppressions TO mailroom_sender;
GRANT SELECT ON @extschema@._suppressed_recipients TO mailroom_sender;
GRANT EXECUTE ON FUNCTION
    @extschema@._without(text[], text[]),
    @extschema@._record_suppressed(tid[]),
    @extschema@._record_refused(bigint[], text[], text[]),
    @extschema@._record_refused_mails(bigint[]),
    @extschema@._unsubscribe_url(text, text),
    @extschema@._is_unsubscribe_url(text)
TO mailroom_sender;
