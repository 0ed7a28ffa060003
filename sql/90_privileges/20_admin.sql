-- mailroom_admin: all data and all functions but those of superusers.
--
-- Neither TRIGGER nor REFERENCES: a role that may put a trigger or a foreign key on a table acts with the rights of all
-- who write the table, a superuser's among them. EXECUTE on all functions but those of triggers comes from
-- 10_roles.sql.

GRANT SELECT, INSERT, UPDATE, DELETE ON @extschema@.accounts, @extschema@.tokens, @extschema@.outbox, @extschema@.pauses,
    @extschema@.templates, @extschema@.budgets, @extschema@.routes, @extschema@.suppressions TO mailroom_admin;

-- Tables that only functions write, as far as these need it.
GRANT SELECT, INSERT, UPDATE (lane), DELETE ON @extschema@.pending TO mailroom_admin;
GRANT SELECT, INSERT, UPDATE (email), DELETE ON @extschema@.link_requests TO mailroom_admin;
GRANT SELECT, INSERT, DELETE ON @extschema@.outbox_attempts, @extschema@.job_runs TO mailroom_admin;
GRANT SELECT, INSERT, DELETE ON @extschema@.outbox_files, @extschema@.outbox_attachments TO mailroom_admin;
GRANT SELECT ON @extschema@._needed_files TO mailroom_admin;
GRANT SELECT, INSERT, DELETE ON @extschema@.delivery_events TO mailroom_admin;
GRANT SELECT, DELETE ON @extschema@.operator_actions TO mailroom_admin;
GRANT INSERT ON @extschema@._new_actions TO mailroom_admin;
GRANT SELECT, INSERT ON @extschema@._new_files TO mailroom_admin;
GRANT INSERT (mail, ordinal, attachments), SELECT ON @extschema@._new_attachments TO mailroom_admin;
GRANT SELECT, UPDATE (last_seq) ON @extschema@.jobs TO mailroom_admin;
GRANT SELECT, INSERT, UPDATE (last_seq) ON @extschema@._jobs TO mailroom_admin;
GRANT SELECT, INSERT, UPDATE, DELETE ON @extschema@.transports, @extschema@.deliverers TO mailroom_admin;
GRANT SELECT, INSERT, DELETE ON @extschema@.attached, @extschema@._database_identity TO mailroom_admin;
GRANT UPDATE (email, is_displaced) ON @extschema@.attached TO mailroom_admin;
GRANT SELECT ON @extschema@._token_verdicts, @extschema@._token_ends, @extschema@._mail_secrets, @extschema@._mail_addresses, @extschema@._token_ages,
    @extschema@.outbox_history, @extschema@.mailroom_templates, @extschema@.mailroom_attached,
    @extschema@.mailroom_budgets, @extschema@.mailroom_transports, @extschema@.outbox_waits,
    @extschema@._suppressions_in_force, @extschema@._suppressed_recipients TO mailroom_admin;

-- It attaches its own tables by creating triggers with these; on a table that is not attached they only raise an error.
GRANT EXECUTE ON FUNCTION
    @extschema@._attached_insert(),
    @extschema@._attached_update(),
    @extschema@._attached_delete(),
    @extschema@._attached_truncate()
TO mailroom_admin;
GRANT SELECT, INSERT ON @extschema@._new_mail TO mailroom_admin;
GRANT INSERT ON @extschema@._new_attempts, @extschema@._new_job_runs TO mailroom_admin;
GRANT INSERT (ids, change, send_at), SELECT ON @extschema@._own_changes TO mailroom_admin;
GRANT SELECT ON @extschema@._own_item_keys TO mailroom_admin;
GRANT USAGE ON SEQUENCE @extschema@.accounts_id_seq, @extschema@.tokens_id_seq, @extschema@.outbox_id_seq,
    @extschema@.outbox_attempts_id_seq, @extschema@.outbox_files_id_seq, @extschema@.outbox_attachments_id_seq, @extschema@.delivery_events_id_seq, @extschema@.operator_actions_id_seq, @extschema@.job_runs_id_seq, @extschema@.link_requests_id_seq TO mailroom_admin;
GRANT SELECT, UPDATE ON SEQUENCE @extschema@._last_seq, @extschema@._spent_minute, @extschema@._spent_hour,
    @extschema@._spent_day, @extschema@._spent_month TO mailroom_admin;

-- The key file belongs to superusers: these functions refuse other roles, also with EXECUTE.
REVOKE EXECUTE ON FUNCTION @extschema@.mailroom_rotate_key(), @extschema@._create_key_file() FROM mailroom_admin;
-- It calls the function that it is given, and does not ask whether the role may.
REVOKE EXECUTE ON FUNCTION @extschema@._committed_open_tokens(regprocedure, bigint[]) FROM mailroom_admin;
