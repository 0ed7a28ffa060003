-- mailroom_support: to whom mail went and what became of it; another attempt, a copy, a cancellation, or a new link for a
-- person who asks.
--
-- Not the contents of mail, secrets and codes.

GRANT mailroom_monitor TO mailroom_support;
GRANT SELECT ON @extschema@.accounts TO mailroom_support;
GRANT SELECT (id, action, account, expires_at, consumed_at, created_at, revoked_at, wrong_codes, sent_again_at)
    ON @extschema@.tokens TO mailroom_support;
-- The addresses, too: 85_columns.sql.
GRANT SELECT (subject, item_key, group_key, enqueued_by, provider_id) ON @extschema@.outbox TO mailroom_support;
GRANT SELECT (attachment_bytes) ON @extschema@.outbox TO mailroom_support;
-- Not the contents.
GRANT SELECT ON @extschema@.outbox_attachments TO mailroom_support;
GRANT SELECT ON @extschema@.delivery_events TO mailroom_support;
GRANT SELECT ON @extschema@.suppressions TO mailroom_support;
GRANT SELECT (refused_recipients) ON @extschema@.outbox_attempts TO mailroom_support;
GRANT INSERT (ids, change, send_at), SELECT (done) ON @extschema@._own_changes TO mailroom_support;
GRANT SELECT ON @extschema@._token_ends TO mailroom_support;
-- What operators did, itself included, which the functions below record.
GRANT SELECT ON @extschema@.operator_actions TO mailroom_support;
GRANT INSERT ON @extschema@._new_actions TO mailroom_support;
GRANT USAGE ON SEQUENCE @extschema@.operator_actions_id_seq TO mailroom_support;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_cancel(bigint),
    @extschema@.mailroom_reschedule(bigint, timestamptz),
    @extschema@.mailroom_retry(bigint),
    @extschema@.mailroom_send_again(bigint),
    @extschema@.mailroom_retry_failed(text, text, @extschema@.attempt_outcome, integer, timestamptz, integer),
    @extschema@.mailroom_request_activation(text),
    @extschema@.mailroom_request_recovery(text),
    @extschema@.mailroom_revoke(bigint),
    @extschema@._retry(bigint[]),
    @extschema@.mailroom_suppress(text, text, @extschema@.suppression_reason, timestamptz),
    @extschema@.mailroom_suppress_many(text[], text, @extschema@.suppression_reason, timestamptz),
    @extschema@.mailroom_unsuppress(text, text),
    @extschema@.mailroom_suppressed(text, text),
    @extschema@._check_suppression(text[], text),
    @extschema@._suppress(text[], text, @extschema@.suppression_reason, timestamptz),
    @extschema@._suppress_on_list(text[], text, @extschema@.suppression_reason, timestamptz),
    @extschema@._list_problem(text),
    @extschema@._visible(text),
    @extschema@._retryable(text, text, @extschema@.attempt_outcome, integer, timestamptz, integer),
    @extschema@._search_keys(text[]),
    @extschema@._status_for(@extschema@.token_action),
    @extschema@._is_address(text),
    @extschema@._line_problem(text),
    @extschema@.mailroom_address_key(text),
    @extschema@._mail_due(timestamptz, boolean, boolean),
    @extschema@._refuse_batch_limit(integer, text)
TO mailroom_support;

-- What mail of a kind says, with sample values.
GRANT SELECT ON @extschema@.mailroom_templates TO mailroom_support;
GRANT EXECUTE ON FUNCTION @extschema@.mailroom_preview(text, jsonb, text), @extschema@._builtin_templates() TO mailroom_support;
