-- mailroom_monitor: counts, ages, states and reasons.
--
-- Neither addresses nor contents nor secrets.

GRANT SELECT ON @extschema@.pending, @extschema@.jobs, @extschema@.job_runs, @extschema@.pauses,
    @extschema@._token_ages, @extschema@.outbox_history TO mailroom_monitor;

-- When links were requested, not for which address.
GRANT SELECT (id, requested_at) ON @extschema@.link_requests TO mailroom_monitor;

-- All columns but refused_recipients.
GRANT SELECT (id, outbox_id, attempt, outcome, started_at, ended_at, claimant, transport, response_code, error)
    ON @extschema@.outbox_attempts TO mailroom_monitor;
-- All columns but recipient and detail.
GRANT SELECT (id, event_key, outbox_id, transport, type, is_permanent, reason, status, occurred_at, received_at)
    ON @extschema@.delivery_events TO mailroom_monitor;
-- All columns but address.
GRANT SELECT (list, reason, bounces, event_id, since, until) ON @extschema@.suppressions TO mailroom_monitor;
GRANT EXECUTE ON FUNCTION @extschema@._proves_sending(@extschema@.event_type), @extschema@._first_read(bigint), @extschema@.mailroom_status(), @extschema@._worker_report(), @extschema@._redirect_setting(),
    @extschema@._scheduled_transports(), @extschema@._oldest_due(), @extschema@.mailroom_problems(), @extschema@._library_version(), @extschema@.mailroom_version() TO mailroom_monitor;
GRANT SELECT (
    id, message_id, kind, token_id, account_id, transport, fallback_from, priority, state, send_at, expires_at, failed_attempts, max_attempts,
    ambiguous_attempts, ambiguous_alone, last_error, claimed_by, claimed_at, claimed_until, created_at, updated_at,
    ended_at
) ON @extschema@.outbox TO mailroom_monitor;

-- Routes, and the state of transports.
GRANT SELECT ON @extschema@.routes, @extschema@.mailroom_transports, @extschema@.deliverers TO mailroom_monitor;

-- What is left of the budgets, and why mail waits.
GRANT SELECT ON @extschema@.budgets, @extschema@.mailroom_budgets, @extschema@.outbox_waits TO mailroom_monitor;
GRANT SELECT ON SEQUENCE @extschema@._spent_minute, @extschema@._spent_hour, @extschema@._spent_day,
    @extschema@._spent_month TO mailroom_monitor;
GRANT EXECUTE ON FUNCTION
    @extschema@._period_number(@extschema@.budget_period, timestamptz),
    @extschema@._period_start(@extschema@.budget_period, bigint),
    @extschema@._budget_usage(timestamptz),
    @extschema@._urgent_priority(),
    @extschema@._budget_limits(timestamptz),
    @extschema@._budget(integer)
TO mailroom_monitor;
