SELECT extract(epoch FROM current_setting('mailroom.retention', true)::interval)::double precision
-- Which loads the library, and with it the setting.
FROM mailroom_version()
