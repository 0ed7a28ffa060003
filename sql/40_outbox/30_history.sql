-- History: one row an attempt that did not succeed, or may not have, and a view that tells the whole story of a mail.
--
-- Settles and claims (50_queue/) insert attempts, a purge deletes them with their mail; people read outbox_history.
-- Invariant: what became of each attempt is told by the row of outbox itself or by a row of outbox_attempts.

CREATE TYPE @extschema@.attempt_outcome AS ENUM ('failed', 'ambiguous', 'partial', 'lease_expired', 'late');
COMMENT ON TYPE @extschema@.attempt_outcome IS
    'failed: the mail was not sent; ambiguous: not known; partial: it was sent, but not to the refused recipients; lease_expired: the sender did not settle in time; late: it settled after that, and the mail may have been sent twice.';

CREATE TABLE @extschema@.outbox_attempts (
    id bigserial,
    outbox_id bigint NOT NULL,
    attempt integer,
    outcome @extschema@.attempt_outcome NOT NULL,
    started_at timestamptz,
    ended_at timestamptz NOT NULL,
    claimant text,
    transport @extschema@._transport NOT NULL DEFAULT '',
    response_code integer,
    error text,
    refused_recipients jsonb,
    CONSTRAINT outbox_attempts_pkey PRIMARY KEY (id),
    CONSTRAINT outbox_attempts_ended_at_must_be_finite CHECK (isfinite(ended_at)),
    CONSTRAINT outbox_attempts_claimant_must_not_exceed_1024_octets CHECK (octet_length(claimant) <= 1024),
    CONSTRAINT outbox_attempts_error_must_not_exceed_16384_octets CHECK (octet_length(error) <= 16384),
    CONSTRAINT outbox_attempts_refused_recipients_must_be_an_array CHECK (jsonb_typeof(refused_recipients) = 'array'),
    CONSTRAINT outbox_attempts_refused_recipients_must_not_exceed_16_mb CHECK (octet_length(refused_recipients::text) <= 16777216)
);
COMMENT ON TABLE @extschema@.outbox_attempts IS
    'One row for each attempt that failed, is ambiguous, or did not reach all recipients. Purged with its mail; see outbox_history.';
COMMENT ON COLUMN @extschema@.outbox_attempts.outbox_id IS 'outbox.id';
COMMENT ON COLUMN @extschema@.outbox_attempts.attempt IS
    'Number of the attempt, from 1; NULL if a late sender did not tell it.';
COMMENT ON COLUMN @extschema@.outbox_attempts.outcome IS 'What is known about the attempt.';
COMMENT ON COLUMN @extschema@.outbox_attempts.started_at IS
    'When the mail was claimed; NULL if that is no longer known.';
COMMENT ON COLUMN @extschema@.outbox_attempts.ended_at IS 'When the attempt was settled, or its claim taken back.';
COMMENT ON COLUMN @extschema@.outbox_attempts.claimant IS 'The sender.';
COMMENT ON COLUMN @extschema@.outbox_attempts.transport IS 'The transport that was used; empty for a client.';
COMMENT ON COLUMN @extschema@.outbox_attempts.response_code IS
    'The provider''s status, if it answered; for a partial attempt, that of the first refused recipient.';
COMMENT ON COLUMN @extschema@.outbox_attempts.error IS 'What went wrong, for people; NULL for a late success.';
COMMENT ON COLUMN @extschema@.outbox_attempts.refused_recipients IS
    'For a partial attempt, the refused recipients: [{"recipient": "a@example.com", "response_code": 550, "error": "smtp 550 5.1.1", "is_permanent": true}]; is_permanent is there if the mailbox was refused for good.';

CREATE INDEX outbox_attempts_outbox_id ON @extschema@.outbox_attempts (outbox_id);

-- These two are VOLATILE, so that they read what the statement that calls them has written: a claim takes expired claims back,
-- records their attempts and claims the mail again.
CREATE FUNCTION @extschema@._first_attempt_at(mail bigint) RETURNS timestamptz
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    -- A plan that was made while the table was small must not read all of it later.
    SET enable_seqscan = off
    SET jit = off
AS $$ SELECT min(a.started_at) FROM @extschema@.outbox_attempts a WHERE a.outbox_id = _first_attempt_at.mail AND a.attempt = 1 $$;
COMMENT ON FUNCTION @extschema@._first_attempt_at(bigint) IS
    'Internal. When this mail was claimed for its first attempt, if that failed; NULL if its row was purged.';

CREATE FUNCTION @extschema@._may_have_arrived(mail bigint) RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    -- As above.
    SET enable_seqscan = off
    SET jit = off
AS $$
    SELECT EXISTS (
        SELECT
        FROM @extschema@.outbox_attempts a
        WHERE a.outbox_id = _may_have_arrived.mail
          AND a.outcome IN ('ambiguous', 'lease_expired', 'late')
    )
$$;
COMMENT ON FUNCTION @extschema@._may_have_arrived(bigint) IS
    'Internal. Whether an attempt of this mail may have arrived: it was ambiguous, its lease expired, or its result came too late.';

-- A difference of times that no attempt has may be no interval.
CREATE VIEW @extschema@.outbox_history AS
SELECT
    a.outbox_id, a.attempt, a.outcome::text, a.started_at, a.ended_at,
    CASE
        WHEN a.started_at BETWEEN 'epoch' AND '9999-12-31 UTC' AND a.ended_at BETWEEN 'epoch' AND '9999-12-31 UTC'
        THEN a.ended_at - a.started_at
    END AS duration,
    a.claimant, a.transport, a.response_code, a.error, NULL::text AS provider_id
FROM @extschema@.outbox_attempts a
WHERE a.outcome <> 'partial'
UNION ALL
SELECT
    o.id AS outbox_id, o.failed_attempts + 1,
    CASE o.state WHEN 'sent' THEN coalesce(p.outcome::text, 'sent') ELSE 'sending' END,
    o.claimed_at, o.ended_at,
    CASE
        WHEN o.claimed_at BETWEEN 'epoch' AND '9999-12-31 UTC' AND o.ended_at BETWEEN 'epoch' AND '9999-12-31 UTC'
        THEN o.ended_at - o.claimed_at
    END,
    o.claimed_by, o.transport, p.response_code, p.error, o.provider_id
FROM @extschema@.outbox o
LEFT JOIN @extschema@.outbox_attempts p ON p.outbox_id = o.id AND p.attempt = o.failed_attempts + 1 AND p.outcome = 'partial'
WHERE o.state = 'claimed'
   OR o.state = 'sent' AND (o.claimed_at IS NOT NULL OR o.failed_attempts = 0)
UNION ALL
-- The end of a mail, unless its last attempt already shows it.
SELECT
    o.id, NULL, o.state::text, NULL, o.ended_at, NULL,
    -- An operator; an application that cancels its own mail is only in the reason.
    CASE o.state
        WHEN 'cancelled' THEN (
            SELECT max(a.role)::text FROM @extschema@.operator_actions a WHERE a.outbox_id = o.id AND a.action = 'cancelled'
        )
    END,
    o.transport, NULL,
    CASE o.state
        WHEN 'sent' THEN 'settled by delivery_events ' || (SELECT min(e.id) FROM @extschema@.delivery_events e WHERE e.outbox_id = o.id AND @extschema@._proves_sending(e.type))
        ELSE o.last_error
    END,
    o.provider_id
FROM @extschema@.outbox o
WHERE o.state IN ('cancelled', 'expired', 'suppressed')
   OR o.state IN ('error', 'sent') AND o.claimed_at IS NULL AND (o.state = 'error' OR o.failed_attempts > 0)
UNION ALL
-- What the provider told afterwards.
SELECT
    e.outbox_id, NULL, e.type::text, NULL, e.occurred_at, NULL, NULL, e.transport, NULL, nullif(concat_ws(' ', e.status, e.reason), ''), NULL
FROM @extschema@.delivery_events e
WHERE e.outbox_id IS NOT NULL
UNION ALL
-- What operators did to it.
SELECT
    a.outbox_id, NULL, a.action::text, NULL, a.at, NULL, a.role::text, NULL::@extschema@._transport, NULL,
    CASE a.action
        WHEN 'rescheduled' THEN 'due at ' || (a.detail ->> 'send_at')
        WHEN 'sent_again' THEN 'as mail ' || (a.detail ->> 'mail')
    END,
    NULL
FROM @extschema@.operator_actions a
WHERE a.outbox_id IS NOT NULL
  AND a.action <> 'cancelled';
-- What a settle writes. Without the id: see 85_columns.sql.
CREATE VIEW @extschema@._new_attempts AS
SELECT
    a.outbox_id, a.attempt, a.outcome, a.started_at, a.ended_at, a.claimant, a.transport, a.response_code, a.error, a.refused_recipients
FROM @extschema@.outbox_attempts a;
COMMENT ON VIEW @extschema@._new_attempts IS 'Internal. Takes new rows of outbox_attempts.';

COMMENT ON VIEW @extschema@.outbox_history IS
    'The history of each mail, without addresses and contents: one row for each attempt, one for its end if no attempt shows it, and one for each event and each action of an operator. Example: SELECT * FROM outbox_history WHERE outbox_id = 42 ORDER BY ended_at';
