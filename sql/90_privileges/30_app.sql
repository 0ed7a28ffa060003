-- mailroom_app: an application. It registers people, redeems the links of mails, and schedules mail.
--
-- It sees no token and no mail but its own, and that only in the columns below. Not mailroom_verify: with a link in
-- hand it tells of any code whether it is the right one, and counts nothing.

-- All columns of ours, because ORMs name each column of a model when they insert and read; the trigger "!check_columns"
-- lets it write only defaults into those that decide something.
GRANT INSERT (id, email, status, login, created_at, status_changed_at, activated_at, suspended_at, unsuspended_at),
    SELECT (id, email, status, login, created_at, status_changed_at, activated_at, suspended_at, unsuspended_at)
    ON @extschema@.accounts TO mailroom_app;
GRANT USAGE ON SEQUENCE @extschema@.accounts_id_seq TO mailroom_app;

-- Redeeming, requesting and revoking links: SECURITY DEFINER functions.
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_peek(text),
    @extschema@.mailroom_redeem(text, text),
    @extschema@.mailroom_revoke(bigint),
    @extschema@.mailroom_request_activation(text),
    @extschema@.mailroom_request_recovery(text),
    @extschema@.mailroom_address_key(text)
TO mailroom_app;

-- It schedules, cancels and reschedules its own mail through _new_mail and _own_changes, column by column, so that direct
-- writes can produce only mail that the functions could have written; 85_columns.sql has most of the columns. Never
-- UPDATE on a view of the outbox: it allows to lock claimed mail, and with INSERT on the same view ON CONFLICT DO UPDATE,
-- which reaches rows that a view hides.
-- The extension owns the views, since the owner of a view may create triggers on it.
GRANT SELECT (id, message_id) ON @extschema@._new_mail TO mailroom_app;
GRANT INSERT (transport) ON @extschema@._new_mail TO mailroom_app;
GRANT SELECT ON @extschema@._own_item_keys TO mailroom_app;
GRANT INSERT (ids, change, send_at), SELECT (done) ON @extschema@._own_changes TO mailroom_app;
GRANT INSERT (content), SELECT (id, digest) ON @extschema@._new_files TO mailroom_app;
GRANT INSERT (mail, ordinal, attachments), SELECT (caller) ON @extschema@._new_attachments TO mailroom_app;
GRANT USAGE ON SEQUENCE @extschema@.outbox_id_seq, @extschema@.outbox_files_id_seq TO mailroom_app;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_send,
    @extschema@.mailroom_send_many(jsonb),
    @extschema@.mailroom_add_file(bytea),
    @extschema@.mailroom_receive(text, jsonb, bytea),
    @extschema@.mailroom_cancel(bigint),
    @extschema@.mailroom_cancel_item(text),
    @extschema@.mailroom_reschedule(bigint, timestamptz),
    @extschema@.mailroom_reschedule_item(text, timestamptz),
    @extschema@._checked(@extschema@._message),
    @extschema@._submit(@extschema@._message[]),
    @extschema@._decided(@extschema@._message[]),
    @extschema@._insert_mail(@extschema@._message[]),
    @extschema@._insert_with_attachments(@extschema@._message[]),
    @extschema@._check_attachments(@extschema@._message),
    @extschema@._refuse_lost(integer),
    @extschema@._decoded(text),
    @extschema@._encoded_size(bigint, bigint, bigint),
    @extschema@._refuse_size(integer, text, bigint),
    @extschema@._max_message_size(),
    @extschema@._item_key_holders(text[]),
    @extschema@._parse_messages(jsonb),
    @extschema@._address_list(text),
    @extschema@._address_fields(),
    @extschema@._message_id(),
    @extschema@._refuse(integer, text, text, text, text),
    @extschema@._refuse_keys(@extschema@._decision[]),
    @extschema@._scheduled(@extschema@._message[]),
    @extschema@._is_callers_role(name, name),
    @extschema@._contents(@extschema@._mail),
    @extschema@._line_problem(text),
    @extschema@._message_problem,
    @extschema@._mail_problem(@extschema@._mail),
    @extschema@._contents_problem(text, text, text, text, jsonb),
    @extschema@._default_transport(),
    @extschema@._route(text),
    @extschema@._knows_transport(text),
    @extschema@._may_send_from(text, text),
    @extschema@._mail_due(timestamptz, boolean, boolean),
    @extschema@._max_attempts()
TO mailroom_app;

-- It reads the templates, which are no secret, and previews them; only roles that may write templates decide about the
-- contents of mail.
GRANT SELECT ON @extschema@.templates, @extschema@.mailroom_templates TO mailroom_app;
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_preview(text, jsonb, text),
    @extschema@._template(text, text),
    @extschema@._locales(text),
    @extschema@._builtin_templates()
TO mailroom_app;

-- Who is not written to, and unsubscribing. Of a list only: what stops all mail to an address stops that of others.
GRANT EXECUTE ON FUNCTION
    @extschema@.mailroom_suppress(text, text, @extschema@.suppression_reason, timestamptz),
    @extschema@.mailroom_suppress_many(text[], text, @extschema@.suppression_reason, timestamptz),
    @extschema@.mailroom_suppressed(text, text),
    @extschema@.mailroom_unsubscribe(text),
    @extschema@.mailroom_unsubscribe_url(text, text),
    @extschema@._check_suppression(text[], text),
    @extschema@._suppress_on_list(text[], text, @extschema@.suppression_reason, timestamptz),
    @extschema@._list_problem(text),
    @extschema@._visible(text)
TO mailroom_app;
