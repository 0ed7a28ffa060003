-- Claims: which due mails a sender gets, and for how long they are its own.
--
-- A claim is a lease: it is committed before anything is sent (I5) and lapses by the clock. Invariants: a
-- row is claimed by one claimant at a time (I2), found with SKIP LOCKED, so that no claimant waits for
-- another (I3); rows of a group are claimed only while no row of it is claimed; what cannot be sent any more
-- ends here, with its reason. Where a scan starts is a hint of the session (src/due.rs). Planning anew for
-- each batch would cost as much as ten of its rows, and statistics of a queue say nothing: plans are generic.

CREATE FUNCTION @extschema@._claimant(claimant text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN coalesce(claimant, session_user || '/' || pg_backend_pid());
END;
$$;
COMMENT ON FUNCTION @extschema@._claimant(text) IS
    'Internal. The name given, or that of this session: its user and process id.';

CREATE FUNCTION @extschema@._term(lease interval) RETURNS interval
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    term CONSTANT interval := coalesce(lease, make_interval(secs => @extschema@._lease()));
BEGIN
    IF term <= interval '0' OR term > interval '1 year' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'lease must be longer than nothing and at most a year',
            DETAIL = format('It is %s.', term),
            HINT = 'Leave it out to use mailroom.lease.';
    END IF;
    RETURN term;
END;
$$;
COMMENT ON FUNCTION @extschema@._term(interval) IS 'Internal. The lease given, or mailroom.lease. Errors: 22023 unless it is positive.';

CREATE FUNCTION @extschema@._take_back(from_lease timestamptz, moment timestamptz, row_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
DECLARE
    places tid[];
BEGIN
    SELECT array_agg(s.place)
    INTO places
    FROM (
        SELECT o.ctid AS place
        FROM @extschema@.outbox o
        WHERE o.state = 'claimed'
          AND o.claimed_until > coalesce(from_lease, '-infinity')
          AND o.claimed_until <= moment
        ORDER BY o.claimed_until
        LIMIT row_limit
        FOR UPDATE SKIP LOCKED
    ) s;
    IF places IS NULL THEN
        RETURN 0;
    END IF;
    INSERT INTO @extschema@.attempts (outbox, attempt, outcome, started_at, ended_at, claimant, error)
    SELECT o.id, o.attempts + 1, 'lapsed', o.claimed_at, moment, o.claimed_by, 'claim lapsed'
    FROM @extschema@.outbox o
    WHERE o.ctid = ANY (places);
    UPDATE @extschema@.outbox o
    SET state = v.next,
        data = CASE WHEN v.next = 'scheduled' OR o.token IS NULL THEN o.data ELSE o.data - '{token,code,link}'::text[] END,
        attempts = o.attempts + 1,
        last_error = 'claim lapsed',
        claimed_by = CASE WHEN v.next = 'scheduled' THEN NULL ELSE o.claimed_by END,
        claimed_at = CASE WHEN v.next = 'scheduled' THEN NULL ELSE o.claimed_at END,
        claimed_until = NULL,
        updated_at = moment,
        ended_at = CASE WHEN v.next = 'scheduled' THEN NULL ELSE moment END
    FROM @extschema@.outbox b
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN b.attempts + 1 >= b.max_attempts THEN 'error'
            WHEN b.expires_at <= moment THEN 'expired'
            ELSE 'scheduled'
        END::@extschema@.outbox_state AS next
    ) v
    WHERE b.ctid = ANY (places)
      AND o.ctid = b.ctid;
    PERFORM @extschema@._mail_due(moment);
    RETURN cardinality(places);
END;
$$;
COMMENT ON FUNCTION @extschema@._take_back(timestamptz, timestamptz, integer) IS
    'Internal. Takes back up to so many claims whose lease ended after from_lease (NULL: ever) and not after moment; each counts as an attempt. Returns how many.';

CREATE FUNCTION @extschema@._free_groups(candidates text[], row_limit integer) RETURNS text[]
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    locked text[];
BEGIN
    -- Whoever claims of a group holds this lock until its claim is committed or gone. Whoever gets it looks
    -- again, in a new statement and hence with a snapshot that has what the holder before committed: one
    -- statement that did both could see the group as it was before that.
    SELECT array_agg(c.group_key)
    INTO locked
    FROM (SELECT DISTINCT u.group_key FROM unnest(candidates) u (group_key) LIMIT row_limit) c
    WHERE pg_try_advisory_xact_lock('@extschema@.outbox'::regclass::oid::integer, hashtext(c.group_key));
    RETURN ARRAY(
        SELECT l.group_key
        FROM unnest(locked) l (group_key)
        WHERE NOT EXISTS (
            SELECT
            FROM @extschema@.outbox o
            WHERE o.state = 'claimed'
              AND o.group_key = l.group_key
        )
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._free_groups(text[], integer) IS
    'Internal. Those of the groups, so many at most, of which no row is claimed; none will be by anybody else before this transaction ends. Needs READ COMMITTED.';

CREATE FUNCTION @extschema@._judge(
    candidates tid[],
    moment timestamptz,
    group_limit integer,
    OUT places tid[],
    OUT groups integer,
    OUT ids bigint[],
    OUT subjects text[],
    OUT texts text[],
    OUT htmls text[]
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    free text[] := '{}';
    bare tid[];
    failed tid[];
    failures text[];
BEGIN
    -- What is of no use any more, whatever group it is in.
    WITH doomed AS MATERIALIZED (
        SELECT
            o.ctid AS place,
            CASE
                WHEN o.expires_at <= moment THEN 'expired'
                WHEN h.token IS NULL THEN 'cancelled'
                ELSE h.final
            END AS final,
            CASE
                WHEN o.expires_at <= moment THEN 'expired before it was sent'
                WHEN h.token IS NULL THEN 'token was deleted'
                ELSE h.reason
            END AS reason
        FROM @extschema@.outbox o
        LEFT JOIN @extschema@._handout h ON h.token = o.token
        WHERE o.ctid = ANY (candidates)
          AND (
              o.expires_at <= moment
              OR (o.token IS NOT NULL AND (h.token IS NULL OR h.final IS NOT NULL))
          )
    ), ended AS (
        UPDATE @extschema@.outbox o
        SET state = d.final,
            data = CASE WHEN o.token IS NULL THEN o.data ELSE o.data - '{token,code,link}'::text[] END,
            last_error = d.reason,
            updated_at = moment,
            ended_at = moment
        FROM doomed d
        WHERE o.ctid = d.place
    )
    SELECT
        coalesce(array_agg(o.ctid) FILTER (WHERE o.group_key IS NULL), '{}'),
        array_agg(o.group_key) FILTER (WHERE o.group_key IS NOT NULL)
    INTO places, free
    FROM @extschema@.outbox o
    WHERE o.ctid = ANY (candidates)
      AND o.ctid NOT IN (SELECT d.place FROM doomed d);

    groups := 0;
    IF free IS NOT NULL THEN
        free := @extschema@._free_groups(free, group_limit);
        groups := cardinality(free);
        places := places || ARRAY(
            SELECT o.ctid
            FROM @extschema@.outbox o
            WHERE o.ctid = ANY (candidates)
              AND o.group_key = ANY (free)
        );
    END IF;

    SELECT array_agg(o.ctid)
    INTO bare
    FROM @extschema@.outbox o
    WHERE o.ctid = ANY (places)
      AND (o.subject IS NULL OR (o.body_text IS NULL AND o.body_html IS NULL));
    IF bare IS NOT NULL THEN
        SELECT
            array_agg(o.id) FILTER (WHERE c.error IS NULL),
            array_agg(c.subject) FILTER (WHERE c.error IS NULL),
            array_agg(c.body_text) FILTER (WHERE c.error IS NULL),
            array_agg(c.body_html) FILTER (WHERE c.error IS NULL),
            array_agg(o.ctid) FILTER (WHERE c.error IS NOT NULL),
            array_agg(c.error) FILTER (WHERE c.error IS NOT NULL)
        INTO ids, subjects, texts, htmls, failed, failures
        FROM @extschema@.outbox o
        CROSS JOIN LATERAL @extschema@._compose(o) c
        WHERE o.ctid = ANY (bare);
        IF failed IS NOT NULL THEN
            UPDATE @extschema@.outbox o
            SET state = 'error',
                data = CASE WHEN o.token IS NULL THEN o.data ELSE o.data - '{token,code,link}'::text[] END,
                last_error = f.failure,
                updated_at = moment,
                ended_at = moment
            FROM unnest(failed, failures) f (place, failure)
            WHERE o.ctid = f.place;
            places := ARRAY(SELECT p FROM unnest(places) p WHERE p <> ALL (failed));
        END IF;
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._judge(tid[], timestamptz, integer) IS
    'Internal. Ends those of the locked rows that cannot be sent any more; returns the places of those that can and whose group is free, of how many groups they are, and what those without subject or body say.';

CREATE FUNCTION @extschema@._next_due(
    after_priority integer,
    OUT priority smallint,
    OUT send_at timestamptz,
    OUT id bigint
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
#variable_conflict use_column
BEGIN
    SELECT o.priority, o.send_at, o.id - 1
    INTO priority, send_at, id
    FROM @extschema@.outbox o
    WHERE o.state = 'scheduled'
      AND o.priority > after_priority
    ORDER BY o.priority, o.send_at, o.id
    LIMIT 1;
END;
$$;
COMMENT ON FUNCTION @extschema@._next_due(integer) IS
    'Internal. The next priority behind this one that anything is scheduled for, and the position just before its first row; NULLs if there is none.';

CREATE FUNCTION @extschema@._pick_due(
    lane smallint,
    after_send_at timestamptz,
    after_id bigint,
    until_send_at timestamptz,
    until_id bigint,
    wanted integer,
    moment timestamptz,
    grouped boolean,
    OUT places tid[],
    OUT special boolean,
    OUT last_send_at timestamptz,
    OUT last_id bigint
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
DECLARE
    ids bigint[];
BEGIN
    SELECT
        array_agg(s.place),
        bool_or(s.special),
        max(s.send_at),
        array_agg(s.id)
    INTO places, special, last_send_at, ids
    FROM (
        SELECT
            o.ctid AS place,
            o.send_at,
            o.id,
            o.token IS NOT NULL OR o.group_key IS NOT NULL OR o.expires_at <= moment
                OR o.subject IS NULL OR (o.body_text IS NULL AND o.body_html IS NULL) AS special
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.priority = lane
          AND (o.send_at, o.id) > (after_send_at, after_id)
          AND (o.send_at, o.id) <= (until_send_at, until_id)
          AND (
              o.group_key IS NULL
              OR (grouped AND (
                  SELECT true
                  FROM @extschema@.outbox h
                  WHERE h.state = 'claimed'
                    AND h.group_key = o.group_key
                  LIMIT 1
              ) IS NULL)
          )
        ORDER BY o.priority, o.send_at, o.id
        LIMIT wanted
        FOR UPDATE OF o SKIP LOCKED
    ) s;
    last_id := ids[cardinality(ids)];
END;
$$;
COMMENT ON FUNCTION @extschema@._pick_due(smallint, timestamptz, bigint, timestamptz, bigint, integer, timestamptz, boolean) IS
    'Internal. Locks up to so many rows of one priority behind a position and up to another, in the order of claims, leaving out groups that are held or, if not grouped, all of them. Returns their places, whether any of them has to be judged, and the last one''s position.';

CREATE FUNCTION @extschema@._lease_out(
    places tid[],
    ids bigint[],
    subjects text[],
    texts text[],
    htmls text[],
    claimant text,
    moment timestamptz,
    term interval
)
    RETURNS SETOF @extschema@.outbox
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
DECLARE
    message record;
    part record;
BEGIN
    FOR part IN
        WITH claimed AS (
            UPDATE @extschema@.outbox o
            SET state = 'claimed',
                claimed_by = claimant,
                claimed_at = moment,
                claimed_until = moment + term,
                updated_at = moment
            WHERE o.ctid = ANY (places)
            RETURNING o AS message, o.priority, o.send_at, o.id
        )
        SELECT c.message, r.*
        FROM claimed c
        LEFT JOIN unnest(ids, subjects, texts, htmls) r (rendered, subject, body_text, body_html) ON r.rendered = c.id
        ORDER BY c.priority, c.send_at, c.id
    LOOP
        message := part.message;
        IF part.rendered IS NOT NULL THEN
            message.subject := part.subject;
            message.body_text := part.body_text;
            message.body_html := part.body_html;
        END IF;
        RETURN NEXT message;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._lease_out(tid[], bigint[], text[], text[], text[], text, timestamptz, interval) IS
    'Internal. Claims locked rows and returns them in the order of claims, with what was composed for those whose ids are given.';

CREATE FUNCTION @extschema@.mailroom_claim(
    batch_limit integer DEFAULT NULL,
    lease interval DEFAULT NULL,
    claimant text DEFAULT NULL
)
    RETURNS SETOF @extschema@.outbox
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    wanted CONSTANT integer := coalesce(batch_limit, @extschema@._batch_limit());
    who CONSTANT text := @extschema@._claimant(claimant);
    term CONSTANT interval := @extschema@._term(lease);
    moment CONSTANT timestamptz := clock_timestamp();
    -- Rows looked at in one call. What cannot be claimed does not count against the limit, and there may be
    -- any number of it; one transaction stays short all the same.
    patience bigint := 10000 + 2 * wanted::bigint;
    -- Locks of groups held at a time, of the server's max_locks_per_transaction * max_connections.
    groups integer := 256;
    -- The lock on a group is of use only to those who then see what was committed meanwhile.
    grouped CONSTANT boolean := current_setting('transaction_isolation') IN ('read committed', 'read uncommitted');
    sweep boolean := @extschema@._due_begin();
    -- Where the scan of each known priority starts, and the one that is being scanned.
    starts record;
    number integer;
    after_priority integer;
    behind integer;
    lane record;
    until_send_at timestamptz;
    until_id bigint;
    picked record;
    judged record;
    asked integer;
    places tid[] := '{}';
    ids bigint[] := '{}';
    subjects text[] := '{}';
    texts text[] := '{}';
    htmls text[] := '{}';
BEGIN
    IF wanted < 1 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'batch_limit must be at least 1',
            DETAIL = format('It is %s.', wanted),
            HINT = 'Leave it out to use mailroom.batch_limit.';
    END IF;
    IF @extschema@._take_back(@extschema@._due_leases(sweep, moment), moment, 1000) > 0 THEN
        -- They are behind this session's position.
        sweep := true;
    END IF;
    SELECT
        coalesce(array_agg(p.priority), '{}') AS priorities,
        coalesce(array_agg(p.send_at), '{}') AS send_ats,
        coalesce(array_agg(p.id), '{}') AS ids
    INTO starts
    FROM @extschema@._due_positions() p
    WHERE NOT sweep;
    <<passes>>
    LOOP
        number := 0;
        after_priority := NULL;
        <<lanes>>
        LOOP
            until_send_at := moment;
            until_id := 9223372036854775807;
            behind := NULL;
            IF sweep THEN
                SELECT n.priority, n.send_at, n.id
                INTO lane
                FROM @extschema@._next_due(coalesce(after_priority, -32769)) n;
                EXIT lanes WHEN lane.priority IS NULL;
                after_priority := lane.priority;
                -- What lies above the position was looked at in the pass before, and may be locked by us.
                behind := array_position(starts.priorities, lane.priority);
                IF behind IS NULL THEN
                    PERFORM @extschema@._due_note(true, lane.priority, lane.send_at, lane.id);
                ELSE
                    until_send_at := least(moment, starts.send_ats[behind]);
                    until_id := starts.ids[behind];
                END IF;
            ELSE
                number := number + 1;
                EXIT lanes WHEN number > cardinality(starts.priorities);
                SELECT starts.priorities[number] AS priority, starts.send_ats[number] AS send_at, starts.ids[number] AS id
                INTO lane;
            END IF;
            WHILE (lane.send_at, lane.id) < (until_send_at, until_id) LOOP
                asked := wanted - cardinality(places);
                SELECT p.*
                INTO picked
                FROM @extschema@._pick_due(
                    lane.priority, lane.send_at, lane.id, until_send_at, until_id, asked, moment,
                    grouped AND groups > 0
                ) p;
                EXIT WHEN picked.places IS NULL;
                IF picked.special THEN
                    SELECT j.* INTO judged FROM @extschema@._judge(picked.places, moment, groups) j;
                    groups := groups - judged.groups;
                    places := places || judged.places;
                    ids := ids || judged.ids;
                    subjects := subjects || judged.subjects;
                    texts := texts || judged.texts;
                    htmls := htmls || judged.htmls;
                ELSE
                    places := places || picked.places;
                END IF;
                lane.send_at := picked.last_send_at;
                lane.id := picked.last_id;
                patience := patience - cardinality(picked.places);
                -- Once all that lay behind is taken, the position may stay where it is.
                IF behind IS NULL OR cardinality(places) >= wanted OR patience <= 0 THEN
                    PERFORM @extschema@._due_note(sweep, lane.priority, lane.send_at, lane.id);
                END IF;
                EXIT lanes WHEN cardinality(places) >= wanted OR patience <= 0;
                EXIT WHEN cardinality(picked.places) < asked;
            END LOOP;
        END LOOP;
        PERFORM @extschema@._due_end(sweep);
        EXIT passes WHEN sweep
            OR cardinality(places) >= wanted
            OR patience <= 0
            OR NOT @extschema@._due_may_sweep();
        sweep := true;
    END LOOP;
    IF NOT sweep AND cardinality(places) < wanted THEN
        -- Something may lie behind this session's position, too dear to look for just now: have senders told
        -- to look again.
        PERFORM @extschema@._announce_due(moment + interval '1 s');
    END IF;
    IF places <> '{}' THEN
        PERFORM @extschema@._claimed(moment + term);
    END IF;
    IF ids = '{}' THEN
        -- Each function that a row passes through copies it, and most rows are complete.
        RETURN QUERY
        WITH claimed AS (
            UPDATE @extschema@.outbox o
            SET state = 'claimed',
                claimed_by = who,
                claimed_at = moment,
                claimed_until = moment + term,
                updated_at = moment
            WHERE o.ctid = ANY (places)
            RETURNING o.*
        )
        SELECT c.*
        FROM claimed c
        ORDER BY c.priority, c.send_at, c.id;
    ELSE
        RETURN QUERY
        SELECT c.* FROM @extschema@._lease_out(places, ids, subjects, texts, htmls, who, moment, term) c;
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_claim(integer, interval, text) IS
    'Claims up to batch_limit (default mailroom.batch_limit) due mails for lease (default mailroom.lease) and returns them by priority, send_at and id. Commit, send, then settle each as the same claimant (default: this session) with mailroom_mark_sent, mailroom_mark_error or mailroom_release. First takes back claims that lapsed, 1000 at most. Mails that expired and token mails that are no longer eligible end with the reason and do not count. Rows of a group of which a row is claimed are left out, as are all rows with a group_key in an isolation level above READ COMMITTED, and those of more than 256 groups in one call. Fewer rows than asked for: nothing else is due, but for what other transactions hold, what came in behind this session''s position while stepping over dead rows is slow (found within 20 times what that takes), and what is left after 10,000 rows could not be claimed. Errors: 22023 for a batch_limit below 1 or a lease that is not positive.';

CREATE FUNCTION @extschema@._next_group(moment timestamptz, passed text[]) RETURNS text
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_sort = off
AS $$
DECLARE
    lane integer := -32769;
    found_key text;
BEGIN
    LOOP
        SELECT o.priority
        INTO lane
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.group_key IS NOT NULL
          AND o.priority > lane
        ORDER BY o.priority, o.send_at, o.id
        LIMIT 1;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        SELECT o.group_key
        INTO found_key
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.group_key IS NOT NULL
          AND o.priority = lane
          AND o.send_at <= moment
          AND o.group_key <> ALL (passed)
          AND (
              SELECT true
              FROM @extschema@.outbox h
              WHERE h.state = 'claimed'
                AND h.group_key = o.group_key
              LIMIT 1
          ) IS NULL
        ORDER BY o.priority, o.send_at, o.id
        LIMIT 1;
        IF FOUND THEN
            RETURN found_key;
        END IF;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._next_group(timestamptz, text[]) IS
    'Internal. The group of the first due row, in the order of claims, whose group is neither held nor passed over; NULL if there is none.';

CREATE FUNCTION @extschema@._pick_group(wanted text, moment timestamptz) RETURNS tid[]
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
AS $$
    SELECT array_agg(s.place)
    FROM (
        SELECT o.ctid AS place
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.group_key = wanted
          AND o.send_at <= moment
        FOR UPDATE SKIP LOCKED
    ) s
$$;
COMMENT ON FUNCTION @extschema@._pick_group(text, timestamptz) IS
    'Internal. Locks the due rows of a group and returns their places; NULL if there are none.';

CREATE FUNCTION @extschema@.mailroom_claim_group(
    lease interval DEFAULT NULL,
    claimant text DEFAULT NULL,
    group_key text DEFAULT NULL
)
    RETURNS SETOF @extschema@.outbox
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted CONSTANT text := group_key;
    term CONSTANT interval := @extschema@._term(lease);
    moment CONSTANT timestamptz := clock_timestamp();
    candidate text := wanted;
    passed text[] := '{}';
    picked tid[];
    judged record;
BEGIN
    PERFORM @extschema@._pass_gate();
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE feature_not_supported USING
            MESSAGE = 'groups can be claimed only in a READ COMMITTED transaction',
            DETAIL = format('This one is %s and cannot see who claimed a group since it began.', upper(current_setting('transaction_isolation'))),
            HINT = 'BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    PERFORM @extschema@._take_back(NULL::timestamptz, moment, 1000);
    -- Each round passes a group over: locked by another transaction, or nothing in it could be sent.
    FOR round IN 1 .. 100 LOOP
        IF wanted IS NULL THEN
            candidate := @extschema@._next_group(moment, passed);
            EXIT WHEN candidate IS NULL;
        END IF;
        IF @extschema@._free_groups(ARRAY[candidate], 1) <> '{}' THEN
            picked := @extschema@._pick_group(candidate, moment);
            SELECT j.* INTO judged FROM @extschema@._judge(picked, moment, 1) j;
            IF cardinality(judged.places) > 0 THEN
                PERFORM @extschema@._claimed(moment + term);
                RETURN QUERY
                SELECT c.*
                FROM @extschema@._lease_out(
                    judged.places, judged.ids, judged.subjects, judged.texts, judged.htmls,
                    @extschema@._claimant(claimant), moment, term
                ) c;
                RETURN;
            END IF;
        END IF;
        EXIT WHEN wanted IS NOT NULL;
        passed := passed || candidate;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_claim_group(interval, text, text) IS
    'Claims all due mails of one group for lease (default mailroom.lease), of group_key or else of the group whose first due mail is next in the order of claims, and returns them in that order. A group of which any row is claimed is passed over. Settle each as after mailroom_claim; the group is free again when the last one is settled or its lease lapsed. No rows: no group is free that has anything due, as far as the first 100 that could not be claimed tell. Errors: 22023 for a lease that is not positive; 0A000 in an isolation level above READ COMMITTED.';
