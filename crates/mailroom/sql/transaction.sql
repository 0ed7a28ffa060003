SELECT
    pg_catalog.set_config('search_path', $1, true),
    pg_catalog.set_config('statement_timeout', $2, true),
    pg_catalog.set_config('lock_timeout', $3, true),
    pg_catalog.set_config('jit', 'off', true),
    -- The policies for mailroom's roles let them through; off would refuse their statements.
    pg_catalog.set_config('row_security', 'on', true),
    -- What was sent must not be forgotten in a crash: it would go out twice.
    pg_catalog.set_config(
        'synchronous_commit',
        CASE pg_catalog.current_setting('synchronous_commit')
            WHEN 'off' THEN 'on'
            ELSE pg_catalog.current_setting('synchronous_commit')
        END,
        true
    ),
    -- Such a database takes any bytes: they come as they are, and are judged here.
    pg_catalog.set_config(
        'client_encoding',
        CASE pg_catalog.current_setting('server_encoding') WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END,
        true
    )
