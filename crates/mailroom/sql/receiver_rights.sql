SELECT
    pg_catalog.has_schema_privilege(e.extnamespace, 'USAGE')
        AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE'),
    pg_catalog.pg_is_in_recovery(),
    current_user::pg_catalog.text,
    pg_catalog.current_setting('server_encoding')
FROM pg_catalog.pg_extension e
JOIN pg_catalog.pg_proc p ON p.pronamespace OPERATOR(pg_catalog.=) e.extnamespace
WHERE e.extname OPERATOR(pg_catalog.=) 'mailroom'
  AND p.proname OPERATOR(pg_catalog.=) 'mailroom_report'
