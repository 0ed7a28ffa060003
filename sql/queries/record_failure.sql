INSERT INTO _new_job_runs (started_at, duration, trigger, error)
VALUES (coalesce($1, now()), clock_timestamp() - coalesce($1, now()), $2::job_trigger, $3)
