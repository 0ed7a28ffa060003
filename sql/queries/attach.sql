SELECT
    e.extversion,
    pg_catalog.quote_ident(n.nspname),
    d.datname::pg_catalog.text,
    r.oid,
    e.oid,
    d.xmin::pg_catalog.text
FROM pg_catalog.pg_extension e
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
JOIN pg_catalog.pg_database d ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
LEFT JOIN pg_catalog.pg_roles r ON r.rolname OPERATOR(pg_catalog.=) 'mailroom_collector'
WHERE e.extname OPERATOR(pg_catalog.=) 'mailroom'
