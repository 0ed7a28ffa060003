-- Budgets: how many recipients all senders together may claim in a minute, an hour, a day and a month.
--
-- mailroom_admin writes the table; every claim keeps to it. Invariants: mail is taken in the order of claims up to the
-- first that does not fit, so that small mail does not overtake large mail without end (I4); mail larger than a whole
-- budget fits while nothing of the period is spent. Periods are calendar periods in UTC. Senders cannot set the counters
-- nor hold their lock: the functions that count are SECURITY DEFINER. They trust senders to give back what they took.

CREATE TYPE @extschema@.budget_period AS ENUM ('minute', 'hour', 'day', 'month');
COMMENT ON TYPE @extschema@.budget_period IS 'Calendar periods in UTC.';

CREATE TABLE @extschema@.budgets (
    period @extschema@.budget_period,
    amount integer NOT NULL,
    reserved_share numeric(4, 3) NOT NULL DEFAULT 0,
    CONSTRAINT budgets_pkey PRIMARY KEY (period),
    CONSTRAINT budgets_amount_must_not_be_negative CHECK (amount >= 0),
    CONSTRAINT budgets_reserved_share_must_be_a_share CHECK (reserved_share BETWEEN 0 AND 1)
);
COMMENT ON TABLE @extschema@.budgets IS
    'How many recipients all senders together may claim in each period; no row means no limit. Mail over the budget waits until the next period; mailroom_budgets shows what is left.';
COMMENT ON COLUMN @extschema@.budgets.amount IS
    'Number of addresses in recipients, cc and bcc, counted with each attempt. 0 stops sending.';
COMMENT ON COLUMN @extschema@.budgets.reserved_share IS
    'The share of the amount, from 0 to 1, that is reserved for urgent mail: priority -10 and less, such as password recoveries.';

CREATE SEQUENCE @extschema@._spent_minute MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._spent_minute IS
    'Internal. The number of the minute, times 2^32, plus what was claimed in it.';
CREATE SEQUENCE @extschema@._spent_hour MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._spent_hour IS
    'Internal. The number of the hour, times 2^32, plus what was claimed in it.';
CREATE SEQUENCE @extschema@._spent_day MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._spent_day IS
    'Internal. The number of the day, times 2^32, plus what was claimed in it.';
CREATE SEQUENCE @extschema@._spent_month MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._spent_month IS
    'Internal. The number of the month, times 2^32, plus what was claimed in it.';

CREATE FUNCTION @extschema@._lock_budgets() RETURNS boolean
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_lock_budgets_wrapper';
COMMENT ON FUNCTION @extschema@._lock_budgets() IS
    'Internal. Makes this session the only one that counts, until _unlock_budgets(); false if another session keeps the lock too long.';

CREATE FUNCTION @extschema@._unlock_budgets() RETURNS void
    LANGUAGE c VOLATILE
    AS 'MODULE_PATHNAME', '_unlock_budgets_wrapper';
COMMENT ON FUNCTION @extschema@._unlock_budgets() IS 'Internal. Releases the lock of _lock_budgets().';

CREATE FUNCTION @extschema@._period_number(period @extschema@.budget_period, moment timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE period
        WHEN 'minute' THEN floor(extract(epoch FROM moment) / 60)
        WHEN 'hour' THEN floor(extract(epoch FROM moment) / 3600)
        WHEN 'day' THEN floor(extract(epoch FROM moment) / 86400)
        WHEN 'month' THEN 12 * extract(year FROM moment AT TIME ZONE 'UTC') + extract(month FROM moment AT TIME ZONE 'UTC') - 1
    END::bigint
$$;
COMMENT ON FUNCTION @extschema@._period_number(@extschema@.budget_period, timestamptz) IS
    'Internal. The number of the minute, hour or day since 1970, or of the month since the year 0, that contains this time.';

CREATE FUNCTION @extschema@._period_start(period @extschema@.budget_period, number bigint) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE period
        WHEN 'minute' THEN to_timestamp(number * 60)
        WHEN 'hour' THEN to_timestamp(number * 3600)
        WHEN 'day' THEN to_timestamp(number * 86400)
        WHEN 'month' THEN make_timestamptz((number / 12)::integer, (number % 12)::integer + 1, 1, 0, 0, 0, 'UTC')
    END
$$;
COMMENT ON FUNCTION @extschema@._period_start(@extschema@.budget_period, bigint) IS
    'Internal. When the period of this number begins, which is when the one before ends.';

CREATE FUNCTION @extschema@._budget_usage(
    moment timestamptz,
    OUT period @extschema@.budget_period,
    OUT amount integer,
    OUT reserve integer,
    OUT spent bigint,
    OUT number bigint,
    OUT counter regclass
)
    RETURNS SETOF record
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        b.period,
        b.amount,
        ceil(b.amount * b.reserved_share)::integer,
        CASE c.count >> 32 WHEN n.number THEN c.count & 4294967295 ELSE 0 END,
        n.number,
        c.counter
    FROM @extschema@.budgets b
    JOIN (
        SELECT 'minute'::@extschema@.budget_period, s.last_value, '@extschema@._spent_minute'::regclass FROM @extschema@._spent_minute s
        UNION ALL
        SELECT 'hour', s.last_value, '@extschema@._spent_hour'::regclass FROM @extschema@._spent_hour s
        UNION ALL
        SELECT 'day', s.last_value, '@extschema@._spent_day'::regclass FROM @extschema@._spent_day s
        UNION ALL
        SELECT 'month', s.last_value, '@extschema@._spent_month'::regclass FROM @extschema@._spent_month s
    ) c (period, count, counter) ON c.period = b.period
    CROSS JOIN LATERAL (
        -- A clock that is set back a little must not make a period's share available twice.
        SELECT CASE c.count >> 32
            WHEN @extschema@._period_number(b.period, _budget_usage.moment) + 1 THEN c.count >> 32
            ELSE @extschema@._period_number(b.period, _budget_usage.moment)
        END
    ) n (number)
$$;
COMMENT ON FUNCTION @extschema@._budget_usage(timestamptz) IS
    'Internal. One row for each budget: its amount, the reserved part, what was claimed in the period of this time, and the sequence that counts it.';

CREATE FUNCTION @extschema@._budget_limits(
    moment timestamptz,
    OUT period @extschema@.budget_period,
    OUT amount integer,
    OUT room bigint,
    OUT largest bigint,
    OUT urgent_room bigint,
    OUT urgent_largest bigint,
    OUT ends timestamptz
)
    RETURNS SETOF record
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        u.period,
        u.amount,
        l.room,
        -- More recipients than a mail can have.
        CASE WHEN u.spent = 0 AND l.room > 0 THEN 2147483647 ELSE l.room END,
        l.urgent_room,
        CASE WHEN u.spent = 0 AND l.urgent_room > 0 THEN 2147483647 ELSE l.urgent_room END,
        @extschema@._period_start(u.period, u.number + 1)
    FROM @extschema@._budget_usage(moment) u
    CROSS JOIN LATERAL (SELECT u.amount - u.reserve - u.spent, u.amount - u.spent) l (room, urgent_room)
$$;
COMMENT ON FUNCTION @extschema@._budget_limits(timestamptz) IS
    'Internal. One row for each budget: how many recipients the next mails may have together, how many a single next mail may have, both for all mail and for urgent mail, and when the period ends.';

CREATE FUNCTION @extschema@._budget(
    size integer DEFAULT 1,
    OUT room bigint,
    OUT frees_at timestamptz,
    OUT urgent_room bigint,
    OUT urgent_frees_at timestamptz,
    OUT reason text,
    OUT largest bigint,
    OUT urgent_largest bigint
)
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        min(greatest(l.room, 0)),
        max(l.ends) FILTER (WHERE l.largest < size),
        min(greatest(l.urgent_room, 0)),
        max(l.ends) FILTER (WHERE l.urgent_largest < size),
        (array_agg(
            format(
                CASE
                    WHEN l.room <= 0 THEN 'the budget of %1$s per %2$s is spent until %3$s UTC'
                    ELSE 'the budget of %1$s per %2$s has no room for %4$s recipients until %3$s UTC'
                END,
                l.amount, l.period, to_char(l.ends AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), size
            )
            ORDER BY l.ends DESC
        ) FILTER (WHERE l.largest < size))[1],
        min(l.largest),
        min(l.urgent_largest)
    FROM @extschema@._budget_limits(clock_timestamp()) l
$$;
COMMENT ON FUNCTION @extschema@._budget(integer) IS
    'Internal. How many recipients all budgets have left, for all mail and for urgent mail; until when a mail of this size does not fit, and why; and how many recipients one mail may have now. All NULL without budgets.';

CREATE FUNCTION @extschema@._consume_budget(sizes integer[], urgent boolean) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    granted integer;
    taken bigint;
    moment timestamptz;
BEGIN
    IF 1 > ANY (sizes) THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'sizes must be positive',
            DETAIL = format('They are %s.', sizes),
            HINT = 'Pass the number of recipients of each mail.';
    END IF;
    IF NOT EXISTS (SELECT FROM @extschema@.budgets) THEN
        RETURN cardinality(sizes);
    END IF;
    IF NOT @extschema@._lock_budgets() THEN
        RETURN 0;
    END IF;
    moment := clock_timestamp();
    SELECT count(*), max(s.total)
    INTO granted, taken
    FROM (
        SELECT u.number, sum(u.size) OVER (ORDER BY u.number) AS total
        FROM unnest(sizes) WITH ORDINALITY u (size, number)
    ) s
    CROSS JOIN (
        SELECT
            min(CASE WHEN urgent THEN l.urgent_room ELSE l.room END) AS room,
            min(CASE WHEN urgent THEN l.urgent_largest ELSE l.largest END) AS largest
        FROM @extschema@._budget_limits(moment) l
    ) b
    WHERE s.total <= b.room
       OR (s.number = 1 AND s.total <= b.largest);
    IF granted > 0 THEN
        PERFORM setval(u.counter, u.number << 32 | u.spent + taken)
        FROM @extschema@._budget_usage(moment) u;
    END IF;
    PERFORM @extschema@._unlock_budgets();
    RETURN granted;
END;
$$;
COMMENT ON FUNCTION @extschema@._consume_budget(integer[], boolean) IS
    'Internal. Takes the recipients of mails of these sizes out of all budgets, in this order up to the first that does not fit; urgent mails may use what is reserved. Returns the number of mails; ROLLBACK does not undo it.';

CREATE FUNCTION @extschema@._refund_budget(taken timestamptz[], sizes integer[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    moment timestamptz;
BEGIN
    IF taken = '{}' OR NOT EXISTS (SELECT FROM @extschema@.budgets) THEN
        RETURN;
    END IF;
    IF @extschema@._lock_budgets() THEN
        moment := clock_timestamp();
        -- What was taken in the first second of a period may have been counted in the one before.
        PERFORM setval(u.counter, u.number << 32 | greatest(0, u.spent - r.returned))
        FROM @extschema@._budget_usage(moment) u
        CROSS JOIN LATERAL (
            SELECT sum(t.size) AS returned
            FROM unnest(taken, sizes) t (moment, size)
            WHERE t.moment >= @extschema@._period_start(u.period, u.number) + interval '1 s'
        ) r
        WHERE u.spent > 0
          AND r.returned > 0;
        PERFORM @extschema@._unlock_budgets();
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._refund_budget(timestamptz[], integer[]) IS
    'Internal. Returns what mails of these sizes took at these times and did not use to the budgets, if the period has not ended.';

CREATE FUNCTION @extschema@._refund_unclaimed(ids bigint[], claimant text, moment timestamptz) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    PERFORM @extschema@._refund_budget(
        -- It was counted in this call, so not before this time: the first second of a period is no exception.
        array_agg(_refund_unclaimed.moment + interval '1 s'), array_agg(cardinality(o.recipients) + cardinality(o.cc) + cardinality(o.bcc))
    )
    FROM @extschema@.outbox o
    WHERE o.id = ANY (_refund_unclaimed.ids)
      -- Another session may have claimed it.
      AND NOT (o.state = 'claimed' AND o.claimed_by = _refund_unclaimed.claimant AND o.claimed_at = _refund_unclaimed.moment)
    HAVING count(*) > 0;
END;
$$;
COMMENT ON FUNCTION @extschema@._refund_unclaimed(bigint[], text, timestamptz) IS
    'Internal. Returns what these mails took at this time to the budgets, for those that this claimant did not claim after all.';

CREATE FUNCTION @extschema@._within_budgets(INOUT ctids tid[], OUT ids bigint[], OUT beyond tid[])
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
DECLARE
    ordered tid[];
    sizes integer[];
    urgent integer;
    granted integer;
BEGIN
    SELECT
        array_agg(o.ctid ORDER BY o.priority, o.send_at, o.id),
        array_agg(o.id ORDER BY o.priority, o.send_at, o.id),
        array_agg(cardinality(o.recipients) + cardinality(o.cc) + cardinality(o.bcc) ORDER BY o.priority, o.send_at, o.id),
        count(*) FILTER (WHERE o.priority <= @extschema@._urgent_priority())
    INTO ordered, ids, sizes, urgent
    FROM @extschema@.outbox o
    WHERE o.ctid = ANY (_within_budgets.ctids);
    granted := @extschema@._consume_budget(sizes, false);
    IF granted < urgent THEN
        granted := granted + @extschema@._consume_budget(sizes[granted + 1:urgent], true);
    END IF;
    -- Rows that were claimed since they were found are not among them.
    ctids := coalesce(ordered[:granted], '{}');
    ids := ids[:granted];
    beyond := coalesce(ordered[granted + 1:], '{}');
END;
$$;
COMMENT ON FUNCTION @extschema@._within_budgets(tid[]) IS
    'Internal. Takes these mails out of all budgets; returns the ctids and ids of those before the first that does not fit, and the ctids of the others, in the order of claims.';

CREATE FUNCTION @extschema@._wait_for_budgets(beyond tid[], scan text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    -- The scan that found them has gone past them.
    PERFORM @extschema@._put_back(scan, beyond);
    -- If it fits now, another session was counting, or a share was returned.
    PERFORM @extschema@._announce_due(coalesce(
        CASE WHEN o.priority <= @extschema@._urgent_priority() THEN b.urgent_frees_at ELSE b.frees_at END,
        clock_timestamp() + interval '1 s'
    ))
    FROM @extschema@.outbox o
    CROSS JOIN LATERAL @extschema@._budget(cardinality(o.recipients) + cardinality(o.cc) + cardinality(o.bcc)) b
    WHERE o.ctid = _wait_for_budgets.beyond[1];
END;
$$;
COMMENT ON FUNCTION @extschema@._wait_for_budgets(tid[], text) IS
    'Internal. Makes this session''s next scan begin with these mails, and the worker look again when the first of them may fit into the budgets.';

CREATE VIEW @extschema@.mailroom_budgets AS
SELECT
    u.period,
    u.amount,
    u.reserve AS reserved,
    u.spent,
    greatest(0, u.amount - u.reserve - u.spent) AS available,
    greatest(0, u.amount - u.spent) AS available_to_urgent,
    @extschema@._period_start(u.period, u.number) AS since,
    @extschema@._period_start(u.period, u.number + 1) AS until
FROM @extschema@._budget_usage(clock_timestamp()) u;
COMMENT ON VIEW @extschema@.mailroom_budgets IS
    'How many recipients were claimed out of each budget in the current period, and how many are left, for all mail and for urgent mail.';

CREATE FUNCTION @extschema@._budgets_changed() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM @extschema@._recheck_at_commit();
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._budgets_changed() IS 'Internal. Makes the worker apply changed budgets at once.';

CREATE TRIGGER budgets_changed
    AFTER INSERT OR UPDATE OR DELETE ON @extschema@.budgets
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._budgets_changed();
