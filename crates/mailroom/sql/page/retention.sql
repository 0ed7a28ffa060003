-- One row for monitor: how long ended mail is kept, in seconds, and the lowest and the highest id of what is there (NULL: no mail).
SELECT
    extract(epoch FROM current_setting('mailroom.retention', true)::interval)::float8 AS retention,
    (SELECT o.id FROM @extschema@.outbox o ORDER BY o.id LIMIT 1) AS lowest_id,
    (SELECT o.id FROM @extschema@.outbox o ORDER BY o.id DESC LIMIT 1) AS highest_id
-- Which loads the library, and with it the setting.
FROM @extschema@.mailroom_version()
