-- One row for any role: which of menus, columns and buttons it gets, by its privileges, and what the page says of the session.
SELECT
    -- The lists tell why mail waits, and pages of people what became of their links: a sender sees the mail, not these.
    'outbox.state' = ANY (c.names) AND 'outbox_waits.reason' = ANY (c.names) AS sees_mail,
    'outbox.recipients' = ANY (c.names) AND 'outbox.subject' = ANY (c.names) AND 'accounts.email' = ANY (c.names)
        AND 'outbox_waits.reason' = ANY (c.names) AS sees_addresses,
    'outbox.body_html' = ANY (c.names) AND 'outbox.data' = ANY (c.names) AND 'outbox_waits.reason' = ANY (c.names) AS sees_contents,
    'mailroom_transports.state' = ANY (c.names) AND 'mailroom_status' = ANY (f.names) AS sees_transports,
    'mailroom_templates.kind' = ANY (c.names) AND 'mailroom_preview' = ANY (f.names) AS sees_templates,
    'operator_actions.action' = ANY (c.names) AS sees_log,
    'suppressions.address' = ANY (c.names) AS sees_suppressions,
    'mailroom_retry' = ANY (f.names) AS may_retry,
    -- Mail with a link is signed again.
    '_retry_tokens' = ANY (f.names) AS may_retry_links,
    'mailroom_cancel' = ANY (f.names) AS may_cancel,
    'mailroom_reschedule' = ANY (f.names) AS may_reschedule,
    'mailroom_send_again' = ANY (f.names) AS may_send_again,
    'mailroom_retry_failed' = ANY (f.names) AS may_retry_failed,
    'mailroom_pause' = ANY (f.names) AND 'mailroom_resume' = ANY (f.names) AS may_pause,
    'mailroom_wake_worker' = ANY (f.names) AS may_wake,
    'mailroom_suppress' = ANY (f.names) AND '_suppress' = ANY (f.names) AS may_suppress,
    'mailroom_unsuppress' = ANY (f.names) AS may_unsuppress,
    'mailroom_revoke' = ANY (f.names) AS may_revoke,
    'mailroom_request_activation' = ANY (f.names) AND 'mailroom_request_recovery' = ANY (f.names) AS may_request,
    -- The roles of mailroom whose rights it has.
    r.names AS roles,
    u.rolsuper AS is_superuser,
    session_user::text AS session_user,
    current_database()::text AS database,
    e.extversion AS version,
    pg_is_in_recovery() AS in_recovery,
    current_setting('TimeZone') AS time_zone,
    to_char(now(), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS now
FROM pg_extension e
JOIN pg_roles u ON u.rolname = session_user
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(p.proname::text), '{}') AS names
    FROM pg_proc p
    WHERE p.pronamespace = e.extnamespace
      AND has_schema_privilege(e.extnamespace, 'USAGE')
      AND has_function_privilege(p.oid, 'EXECUTE')
) f
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(t.relname || '.' || a.attname), '{}') AS names
    FROM pg_class t
    JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE t.relnamespace = e.extnamespace
      AND t.relname IN (
            'outbox', 'outbox_waits', 'accounts', 'mailroom_transports', 'mailroom_templates', 'operator_actions', 'suppressions'
        )
      AND has_schema_privilege(e.extnamespace, 'USAGE')
      AND has_column_privilege(t.oid, a.attnum, 'SELECT')
) c
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(g.rolname::text ORDER BY g.rolname), '{}') AS names
    FROM pg_roles g
    WHERE g.rolname IN (
            'mailroom_app', 'mailroom_sender', 'mailroom_collector', 'mailroom_monitor', 'mailroom_support', 'mailroom_receiver',
            'mailroom_admin'
        )
      AND pg_has_role(session_user, g.oid, 'USAGE')
) r
WHERE e.extname = 'mailroom'
