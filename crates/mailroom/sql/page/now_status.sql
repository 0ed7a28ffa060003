-- One row, the state of the database for monitor: mailroom_status() with times as text, spans in seconds, and the number of live deliverers.
SELECT
    s.worker_pid,
    to_char(s.since, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS worker_since,
    s.worker_problem,
    l.deliverers,
    s.paused,
    to_char(s.last_batch_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS last_batch_at,
    s.waiting,
    extract(epoch FROM s.oldest_waiting)::float8 AS oldest_waiting,
    s.scheduled,
    extract(epoch FROM s.oldest_due)::float8 AS oldest_due,
    s.claimed,
    s.failed_in_24_h,
    s.bounced_in_24_h,
    s.complained_in_24_h,
    s.suppressed_in_24_h,
    -- Whether a count stopped at 10,000.
    s.more,
    s.errors_in_a_row,
    to_char(s.next_wake_at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS next_wake_at,
    s.next_wake_for,
    s.transport_state,
    s.transport_reason,
    s.transports_error,
    s.ambiguous,
    s.budget,
    s.redirect_to,
    pg_is_in_recovery() AS in_recovery,
    to_char(now(), 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM') AS now
FROM @extschema@.mailroom_status() s
CROSS JOIN LATERAL (
    SELECT count(*)::int4 AS deliverers
    FROM @extschema@.deliverers d
    WHERE CASE
        WHEN starts_with(d.name, 'mailroom worker/') THEN s.worker_pid IS NOT NULL
        -- They publish every ten minutes.
        ELSE d.updated_at > now() - interval '20 minutes'
    END
) l
