WITH configured AS (
    -- By precedence when a session starts: user and database, user, database, all users.
    SELECT DISTINCT ON (e.name) e.name, e.setting
    FROM pg_db_role_setting d
    CROSS JOIN LATERAL pg_catalog.unnest(d.setconfig) c (entry)
    CROSS JOIN LATERAL (
        SELECT lower(split_part(c.entry, '=', 1)), substr(c.entry, strpos(c.entry, '=') + 1)
    ) e (name, setting)
    WHERE d.setdatabase IN (0::oid, (SELECT b.oid FROM pg_database b WHERE b.datname = current_database()))
      AND d.setrole IN (0::oid, (SELECT r.oid FROM pg_roles r WHERE r.rolname = session_user))
      AND starts_with(e.name, 'mailroom.')
    ORDER BY e.name, d.setrole DESC, d.setdatabase DESC
)
SELECT s.name, coalesce(configured.setting, f.setting, s.boot_val)
FROM pg_settings s
LEFT JOIN configured ON configured.name = s.name
LEFT JOIN pg_file_settings f ON f.name = s.name AND f.applied
WHERE starts_with(s.name, 'mailroom.')
  AND s.context <> 'postmaster'
  -- A setting that was reset falls back to the server's value.
  AND (configured.name IS NOT NULL OR s.source IN ('global', 'database', 'user', 'database user'))
