SELECT
    pg_catalog.pg_has_role('mailroom_sender', 'USAGE'),
    pg_catalog.pg_has_role('mailroom_collector', 'USAGE'),
    pg_catalog.pg_is_in_recovery(),
    current_user::pg_catalog.text,
    pg_catalog.current_setting('server_encoding')
