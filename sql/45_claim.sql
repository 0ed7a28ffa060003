-- Claims: which due mails a sender gets, and for how long they are its own.
--
-- A claim is a lease: it is committed before anything is sent (I5) and lapses by the clock. Invariants: a
-- row is claimed by one claimant at a time (I2), found with SKIP LOCKED, so that no claimant waits for
-- another (I3); rows of a group are claimed only while no row of it is claimed; what cannot be sent any more
-- ends here, with its reason (47_groups.sql has the groups). Where a scan starts is a hint of the session (src/due.rs). Planning anew for
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

CREATE FUNCTION @extschema@._judge(
    candidates tid[],
    moment timestamptz,
    group_limit integer,
    OUT places tid[],
    OUT groups integer,
    OUT held text[],
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
    keys text[];
    free text[];
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
        array_agg(DISTINCT o.group_key) FILTER (WHERE o.group_key IS NOT NULL)
    INTO places, keys
    FROM @extschema@.outbox o
    WHERE o.ctid = ANY (candidates)
      AND o.ctid NOT IN (SELECT d.place FROM doomed d);

    groups := 0;
    IF keys IS NOT NULL THEN
        free := @extschema@._free_groups(keys, group_limit);
        groups := cardinality(free);
        held := ARRAY(SELECT k FROM unnest(keys) k WHERE k <> ALL (free));
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
    'Internal. Ends those of the locked rows that cannot be sent any more; returns the places of those that can and whose group is free, of how many groups they are, the groups that are not, and what those without subject or body say.';

CREATE FUNCTION @extschema@._next_due(
    of_groups boolean,
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
    IF of_groups THEN
        SELECT o.priority, o.send_at, o.id - 1
        INTO priority, send_at, id
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.group_key IS NOT NULL
          AND o.priority > after_priority
        ORDER BY o.priority, o.send_at, o.id
        LIMIT 1;
    ELSE
        SELECT o.priority, o.send_at, o.id - 1
        INTO priority, send_at, id
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.priority > after_priority
        ORDER BY o.priority, o.send_at, o.id
        LIMIT 1;
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._next_due(boolean, integer) IS
    'Internal. The next priority behind this one that anything is scheduled for, of groups or at all, and the position just before its first row; NULLs if there is none.';

CREATE FUNCTION @extschema@._pick_due(
    lane smallint,
    after_send_at timestamptz,
    after_id bigint,
    until_send_at timestamptz,
    until_id bigint,
    wanted integer,
    moment timestamptz,
    OUT places tid[],
    OUT special boolean,
    OUT seen integer,
    OUT last_send_at timestamptz,
    OUT last_id bigint,
    OUT more boolean
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
        ORDER BY o.priority, o.send_at, o.id
        LIMIT wanted
        FOR UPDATE OF o SKIP LOCKED
    ) s;
    seen := coalesce(cardinality(places), 0);
    last_id := ids[seen];
    more := seen = wanted;
END;
$$;
COMMENT ON FUNCTION @extschema@._pick_due(smallint, timestamptz, bigint, timestamptz, bigint, integer, timestamptz) IS
    'Internal. Locks up to so many rows of one priority behind a position and up to another, in the order of claims. Returns their places, whether any of them has to be judged, how many rows it looked at, the last one''s position, and whether there may be more.';

CREATE FUNCTION @extschema@._pick_past(
    of_groups boolean,
    held text[],
    look integer,
    lane smallint,
    after_send_at timestamptz,
    after_id bigint,
    until_send_at timestamptz,
    until_id bigint,
    wanted integer,
    OUT places tid[],
    OUT special boolean,
    OUT seen integer,
    OUT last_send_at timestamptz,
    OUT last_id bigint,
    OUT more boolean
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
AS $$
DECLARE
    looked record;
    passed integer[];
BEGIN
    -- Not locked, for most of them may be of groups that somebody holds: a person may cancel those meanwhile.
    IF of_groups THEN
        SELECT
            array_agg(w.place) AS places,
            array_agg(w.send_at) AS send_ats,
            array_agg(w.id) AS ids,
            array_agg((w.group_key <> ALL (held)) IS TRUE) AS free
        INTO looked
        FROM (
            SELECT o.ctid AS place, o.send_at, o.id, o.group_key
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.group_key IS NOT NULL
              AND o.priority = lane
              AND (o.send_at, o.id) > (after_send_at, after_id)
              AND (o.send_at, o.id) <= (until_send_at, until_id)
            ORDER BY o.priority, o.send_at, o.id
            LIMIT look
        ) w;
    ELSE
        SELECT
            array_agg(w.place) AS places,
            array_agg(w.send_at) AS send_ats,
            array_agg(w.id) AS ids,
            array_agg(w.group_key IS NULL OR (w.group_key <> ALL (held)) IS TRUE) AS free
        INTO looked
        FROM (
            SELECT o.ctid AS place, o.send_at, o.id, o.group_key
            FROM @extschema@.outbox o
            WHERE o.state = 'scheduled'
              AND o.priority = lane
              AND (o.send_at, o.id) > (after_send_at, after_id)
              AND (o.send_at, o.id) <= (until_send_at, until_id)
            ORDER BY o.priority, o.send_at, o.id
            LIMIT look
        ) w;
    END IF;
    seen := coalesce(cardinality(looked.places), 0);
    more := seen = look;
    passed := ARRAY(
        SELECT u.number::integer
        FROM unnest(looked.free) WITH ORDINALITY u (free, number)
        WHERE u.free
        ORDER BY u.number
        LIMIT wanted
    );
    IF cardinality(passed) = wanted THEN
        more := more OR passed[wanted] < seen;
        seen := passed[wanted];
    END IF;
    last_send_at := looked.send_ats[seen];
    last_id := looked.ids[seen];
    special := true;
    SELECT array_agg(s.place)
    INTO places
    FROM (
        SELECT o.ctid AS place
        FROM @extschema@.outbox o
        WHERE o.ctid = ANY (ARRAY(SELECT looked.places[p] FROM unnest(passed) p))
          AND o.state = 'scheduled'
        FOR UPDATE OF o SKIP LOCKED
    ) s;
END;
$$;
COMMENT ON FUNCTION @extschema@._pick_past(boolean, text[], integer, smallint, timestamptz, bigint, timestamptz, bigint, integer) IS
    'Internal. As _pick_due, for rows of groups or for all, past the rows of the groups named, or of all groups if held is NULL; looks at so many rows at most.';

CREATE FUNCTION @extschema@._gather(
    of_groups boolean,
    wanted integer,
    moment timestamptz,
    OUT places tid[],
    OUT ids bigint[],
    OUT subjects text[],
    OUT texts text[],
    OUT htmls text[]
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    -- Rows looked at in one call. What cannot be claimed does not count against the limit, and there may be
    -- any number of it; one transaction stays short all the same.
    patience bigint := 10000 + 2 * wanted::bigint;
    -- Of those, the part of one priority: what is less urgent gets its turn.
    share bigint;
    -- Locks of groups held at a time, of the server's max_locks_per_transaction * max_connections.
    groups integer := 256;
    -- Groups that were found not to be free; NULL for all. The lock on a group is of use only to those who then
    -- see what was committed meanwhile.
    held text[] := CASE WHEN current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN '{}' END;
    sweep boolean := @extschema@._due_begin(of_groups);
    -- Where the scan of each known priority starts, and the one that is being scanned.
    known record;
    number integer;
    after_priority integer;
    lane record;
    until_send_at timestamptz;
    until_id bigint;
    picked record;
    judged record;
    again boolean := false;
    unfinished boolean;
    broken_off boolean := false;
BEGIN
    places := '{}';
    ids := '{}';
    subjects := '{}';
    texts := '{}';
    htmls := '{}';
    IF @extschema@._take_back(@extschema@._due_leases(sweep, moment), moment, 1000) > 0 THEN
        -- They are behind this session's position.
        sweep := true;
    END IF;
    SELECT
        coalesce(array_agg(p.priority), '{}') AS priorities,
        coalesce(array_agg(p.send_at), '{}') AS send_ats,
        coalesce(array_agg(p.id), '{}') AS ids,
        coalesce(array_agg(p.paused_send_at), '{}') AS paused_send_ats,
        coalesce(array_agg(p.paused_id), '{}') AS paused_ids
    INTO known
    FROM @extschema@._due_positions(of_groups) p;
    <<passes>>
    LOOP
        number := 0;
        after_priority := NULL;
        <<lanes>>
        LOOP
            until_send_at := moment;
            until_id := 9223372036854775807;
            IF sweep THEN
                SELECT n.priority, n.send_at, n.id
                INTO lane
                FROM @extschema@._next_due(of_groups, coalesce(after_priority, -32769)) n;
                EXIT lanes WHEN lane.priority IS NULL;
                after_priority := lane.priority;
                number := array_position(known.priorities, lane.priority);
                IF number IS NULL THEN
                    PERFORM @extschema@._due_note(of_groups, false, lane.priority, lane.send_at, lane.id);
                ELSE
                    IF again THEN
                        -- What lies above the position was looked at in the pass before, and may be locked by us.
                        until_send_at := least(moment, known.send_ats[number]);
                        until_id := known.ids[number];
                    END IF;
                    IF (known.paused_send_ats[number], known.paused_ids[number]) > (lane.send_at, lane.id) THEN
                        lane.send_at := known.paused_send_ats[number];
                        lane.id := known.paused_ids[number];
                    END IF;
                END IF;
            ELSE
                number := number + 1;
                EXIT lanes WHEN number > cardinality(known.priorities);
                SELECT known.priorities[number] AS priority, known.send_ats[number] AS send_at, known.ids[number] AS id
                INTO lane;
            END IF;
            share := greatest(patience / 2, 100);
            unfinished := false;
            WHILE (lane.send_at, lane.id) < (until_send_at, until_id) LOOP
                IF held = '{}' AND NOT of_groups THEN
                    SELECT p.*
                    INTO picked
                    FROM @extschema@._pick_due(
                        lane.priority, lane.send_at, lane.id, until_send_at, until_id, wanted - cardinality(places), moment
                    ) p;
                ELSE
                    SELECT p.*
                    INTO picked
                    FROM @extschema@._pick_past(
                        of_groups, held, least(share, 1000)::integer,
                        lane.priority, lane.send_at, lane.id, until_send_at, until_id, wanted - cardinality(places)
                    ) p;
                END IF;
                EXIT WHEN picked.seen = 0;
                IF picked.places IS NULL THEN
                    NULL;
                ELSIF picked.special THEN
                    SELECT j.* INTO judged FROM @extschema@._judge(picked.places, moment, groups) j;
                    groups := groups - judged.groups;
                    held := CASE WHEN groups > 0 THEN held || judged.held END;
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
                patience := patience - picked.seen;
                share := share - picked.seen;
                -- A sweep that found enough has the next scan go on from here; else what it finds behind the
                -- position leaves the position where it is.
                PERFORM @extschema@._due_note(
                    of_groups, sweep AND cardinality(places) >= wanted, lane.priority, lane.send_at, lane.id
                );
                EXIT WHEN cardinality(places) >= wanted OR NOT picked.more;
                unfinished := patience <= 0 OR share <= 0;
                EXIT WHEN unfinished;
            END LOOP;
            broken_off := broken_off OR unfinished;
            IF sweep AND (unfinished OR known.paused_send_ats[number] IS NOT NULL) THEN
                PERFORM @extschema@._due_pause(
                    of_groups, lane.priority, CASE WHEN unfinished THEN lane.send_at END, CASE WHEN unfinished THEN lane.id END
                );
            END IF;
            EXIT lanes WHEN patience <= 0 OR cardinality(places) >= wanted;
        END LOOP;
        PERFORM @extschema@._due_end(of_groups, sweep);
        EXIT passes WHEN sweep
            OR cardinality(places) >= wanted
            OR patience <= 0
            OR NOT @extschema@._due_may_sweep(of_groups);
        sweep := true;
        again := true;
    END LOOP;
    IF (broken_off OR NOT sweep) AND cardinality(places) < wanted THEN
        -- Something may lie behind this session's position, too dear to look for just now, or beyond what one call
        -- looks at: have senders told to look again.
        PERFORM @extschema@._announce_due(moment + interval '1 s');
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._gather(boolean, integer, timestamptz) IS
    'Internal. Locks up to so many due rows that can be claimed, of groups only or any, in the order of claims; ends those that are of no use any more. Returns their places, and what those without subject or body say.';

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
    found record;
BEGIN
    IF wanted < 1 THEN
        PERFORM @extschema@._refuse_batch_limit(wanted, NULL::text);
    END IF;
    SELECT g.* INTO found FROM @extschema@._gather(false, wanted, moment) g;
    IF found.places <> '{}' THEN
        PERFORM @extschema@._claimed(moment + term);
    END IF;
    IF found.ids = '{}' THEN
        -- Each function that a row passes through copies it, and most rows are complete.
        RETURN QUERY
        WITH claimed AS (
            UPDATE @extschema@.outbox o
            SET state = 'claimed',
                claimed_by = who,
                claimed_at = moment,
                claimed_until = moment + term,
                updated_at = moment
            WHERE o.ctid = ANY (found.places)
            RETURNING o.*
        )
        SELECT c.*
        FROM claimed c
        ORDER BY c.priority, c.send_at, c.id;
    ELSE
        RETURN QUERY
        SELECT c.*
        FROM @extschema@._lease_out(found.places, found.ids, found.subjects, found.texts, found.htmls, who, moment, term) c;
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_claim(integer, interval, text) IS
    'Claims up to batch_limit (default mailroom.batch_limit) due mails for lease (default mailroom.lease) and returns them by priority, send_at and id. Commit, send, then settle each as the same claimant (default: this session) with mailroom_mark_sent, mailroom_mark_error or mailroom_release. First takes back claims that lapsed, 1000 at most. Mails that expired and token mails that are no longer eligible end with the reason and do not count. Rows of a group of which a row is claimed are left out, as are all rows with a group_key in an isolation level above READ COMMITTED, and those of more than 256 groups in one call. Fewer rows than asked for: nothing else is due, but for what other transactions hold, what came in behind this session''s position while stepping over dead rows is slow (found within 20 times what that takes), and what lies behind 10,000 rows that cannot be claimed, half of them of one priority: the session''s next call goes on from there. Errors: 22023 for a batch_limit below 1 or a lease that is not positive.';
