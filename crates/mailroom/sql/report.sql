SELECT
    mailroom_report($1, $2::jsonb),
    extract(epoch FROM current_setting('mailroom.retention', true)::interval)::double precision
