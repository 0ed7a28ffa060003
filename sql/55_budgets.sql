-- Budgets: how many mails may be claimed in a minute, an hour, a day and a month, whoever claims them.
--
-- mailroom_admin writes the table; every claim keeps to it. What was taken
-- is counted in sequences: they are written in place, so that no row of theirs is ever in the way of a
-- count while somebody holds an old snapshot; they are logged, so that a count survives a crash and a failover;
-- and they know no ROLLBACK: a claim that is rolled back has used its share, which errs on the safe side. The
-- number of the period is in the count itself: the first count of a new period begins anew. Calendar periods,
-- UTC. Whoever counts holds a lock for that moment alone, and who does not get it takes nothing. An error and a
-- cancelled statement end it, too.

CREATE TYPE @extschema@.budget_period AS ENUM ('minute', 'hour', 'day', 'month');
COMMENT ON TYPE @extschema@.budget_period IS 'Calendar periods, in UTC.';

CREATE TABLE @extschema@.budgets (
    period @extschema@.budget_period,
    amount integer NOT NULL,
    reserved_share numeric(4, 3) NOT NULL DEFAULT 0,
    CONSTRAINT budgets_pkey PRIMARY KEY (period),
    CONSTRAINT budgets_amount_must_not_be_negative CHECK (amount >= 0),
    CONSTRAINT budgets_reserved_share_must_be_a_share CHECK (reserved_share BETWEEN 0 AND 1)
);
COMMENT ON TABLE @extschema@.budgets IS
    'How many mails may be claimed in each period at most, by all senders together; no row, no limit. What is beyond it waits. See mailroom_budgets for what is left.';
COMMENT ON COLUMN @extschema@.budgets.amount IS 'Mails, each attempt counting as one. 0 stops sending.';
COMMENT ON COLUMN @extschema@.budgets.reserved_share IS
    'The share of the amount, from 0 to 1, that is kept for urgent mail: priority -10 and less, as password recovery has.';

CREATE SEQUENCE @extschema@._spent_minute MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._spent_minute IS 'Internal. The number of the minute, times 2^32, and what was taken in it.';
CREATE SEQUENCE @extschema@._spent_hour MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._spent_hour IS 'Internal. The number of the hour, times 2^32, and what was taken in it.';
CREATE SEQUENCE @extschema@._spent_day MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._spent_day IS 'Internal. The number of the day, times 2^32, and what was taken in it.';
CREATE SEQUENCE @extschema@._spent_month MINVALUE 0 START WITH 0;
COMMENT ON SEQUENCE @extschema@._spent_month IS 'Internal. The number of the month, times 2^32, and what was taken in it.';

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
    'Internal. Which minute, hour or day since 1970, or month since the year 0, this moment is in.';

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

CREATE FUNCTION @extschema@._budget_use(
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
        -- A clock that is put back a little must not give a period's share out twice.
        SELECT CASE c.count >> 32
            WHEN @extschema@._period_number(b.period, moment) + 1 THEN c.count >> 32
            ELSE @extschema@._period_number(b.period, moment)
        END
    ) n (number)
$$;
COMMENT ON FUNCTION @extschema@._budget_use(timestamptz) IS
    'Internal. One row a budget: what may be taken in the period of this moment, how much of that is kept for urgent mail, what was taken, and where that is counted.';

CREATE FUNCTION @extschema@._take_shares(wanted integer, urgent boolean) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    granted integer;
    moment timestamptz;
BEGIN
    IF NOT EXISTS (SELECT FROM @extschema@.budgets) THEN
        RETURN wanted;
    END IF;
    IF NOT @extschema@._lock_budgets() THEN
        RETURN 0;
    END IF;
    moment := clock_timestamp();
    SELECT greatest(0, least(wanted, min(u.amount - CASE WHEN urgent THEN 0 ELSE u.reserve END - u.spent)))
    INTO granted
    FROM @extschema@._budget_use(moment) u;
    IF granted > 0 THEN
        PERFORM setval(u.counter, u.number << 32 | u.spent + granted)
        FROM @extschema@._budget_use(moment) u;
    END IF;
    PERFORM @extschema@._unlock_budgets();
    RETURN granted;
END;
$$;
COMMENT ON FUNCTION @extschema@._take_shares(integer, boolean) IS
    'Internal. Takes so many mails out of all budgets, or as many as all of them have left, urgent ones out of what is reserved too. Returns how many; at once, whatever becomes of the transaction.';

CREATE FUNCTION @extschema@._return_shares(taken timestamptz[]) RETURNS void
    LANGUAGE plpgsql
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
        -- What was taken in a period's first second may have been counted in the one before.
        PERFORM setval(u.counter, u.number << 32 | greatest(0, u.spent - r.returned))
        FROM @extschema@._budget_use(moment) u
        CROSS JOIN LATERAL (
            SELECT count(*) AS returned
            FROM unnest(taken) t (moment)
            WHERE t.moment >= @extschema@._period_start(u.period, u.number) + interval '1 s'
        ) r
        WHERE u.spent > 0
          AND r.returned > 0;
        PERFORM @extschema@._unlock_budgets();
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._return_shares(timestamptz[]) IS
    'Internal. Puts back what was taken at these times and not used, as far as its periods have not ended.';

CREATE FUNCTION @extschema@._within_budgets(places tid[]) RETURNS tid[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    ordered tid[];
    urgent integer;
    granted integer;
BEGIN
    SELECT
        array_agg(o.ctid ORDER BY o.priority, o.send_at, o.id),
        count(*) FILTER (WHERE o.priority <= @extschema@._urgent_priority())
    INTO ordered, urgent
    FROM @extschema@.outbox o
    WHERE o.ctid = ANY (places);
    granted := @extschema@._take_shares(cardinality(ordered), false);
    IF granted < urgent THEN
        granted := granted + @extschema@._take_shares(urgent - granted, true);
    END IF;
    RETURN ordered[1:granted];
END;
$$;
COMMENT ON FUNCTION @extschema@._within_budgets(tid[]) IS
    'Internal. Takes these locked mails out of all budgets; returns the places of those for which there was room, in the order of claims.';

CREATE FUNCTION @extschema@._budget(
    OUT room bigint,
    OUT frees_at timestamptz,
    OUT urgent_room bigint,
    OUT urgent_frees_at timestamptz,
    OUT reason text
)
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        min(greatest(l.room, 0)),
        max(l.ends) FILTER (WHERE l.room <= 0),
        min(greatest(l.urgent_room, 0)),
        max(l.ends) FILTER (WHERE l.urgent_room <= 0),
        (array_agg(
            format(
                'the budget of %s per %s is spent until %s UTC',
                l.amount, l.period, to_char(l.ends AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI')
            )
            ORDER BY l.ends DESC
        ) FILTER (WHERE l.room <= 0))[1]
    FROM (
        SELECT
            u.period,
            u.amount,
            u.amount - u.reserve - u.spent AS room,
            u.amount - u.spent AS urgent_room,
            @extschema@._period_start(u.period, u.number + 1) AS ends
        FROM @extschema@._budget_use(clock_timestamp()) u
    ) l
$$;
COMMENT ON FUNCTION @extschema@._budget() IS
    'Internal. How many mails, and how many urgent ones, all budgets have left; when that is none, until when, and why. NULLs without budgets.';

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
FROM @extschema@._budget_use(clock_timestamp()) u;
COMMENT ON VIEW @extschema@.mailroom_budgets IS
    'What was claimed out of each budget in the present period, and what is left, for all mail and for urgent mail.';

CREATE FUNCTION @extschema@._budgets_changed() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM @extschema@._recheck_at_commit();
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._budgets_changed() IS 'Internal. Has the worker heed new budgets at once.';

CREATE TRIGGER budgets_changed
    AFTER INSERT OR UPDATE OR DELETE ON @extschema@.budgets
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._budgets_changed();
