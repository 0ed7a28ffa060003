SELECT
    e.extversion,
    pg_catalog.quote_ident(n.nspname),
    pg_catalog.current_database()::pg_catalog.text,
    r.oid,
    e.oid
FROM pg_catalog.pg_extension e
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
LEFT JOIN pg_catalog.pg_roles r ON r.rolname OPERATOR(pg_catalog.=) 'mailroom_sender'
WHERE e.extname OPERATOR(pg_catalog.=) 'mailroom'
