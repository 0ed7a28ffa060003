-- Claims: a sender makes due mail its own for the time of a lease.
--
-- A claim is committed before anything is sent (I5) and expires by the clock (55_leases.sql). Invariants: a row is
-- claimed by one claimant at a time (I2); rows of a group are claimed only while no other claim of it is in force.
-- Plans are generic: planning a batch again would cost as much as ten of its rows, and statistics of a queue mean
-- nothing.

CREATE FUNCTION @extschema@._session_id() RETURNS text
    LANGUAGE c STABLE
    AS 'MODULE_PATHNAME', '_session_id_wrapper';
COMMENT ON FUNCTION @extschema@._session_id() IS
    'Internal. The session id, as %c in log_line_prefix; not reused after a restart.';

CREATE FUNCTION @extschema@._lease() RETURNS integer
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_lease_wrapper';
COMMENT ON FUNCTION @extschema@._lease() IS 'Internal. The setting mailroom.lease in seconds.';

CREATE FUNCTION @extschema@._claimant(claimant text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF octet_length(claimant) > 1024 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'claimant must have at most 1024 octets',
            DETAIL = format('It has %s.', octet_length(claimant)),
            HINT = 'Leave it out for a name that is unique.';
    END IF;
    RETURN coalesce(claimant, session_user || '/' || @extschema@._session_id());
END;
$$;
COMMENT ON FUNCTION @extschema@._claimant(text) IS
    'Internal. The given name, or one for this session that no other session has or had.';

CREATE FUNCTION @extschema@._lease_or_default(lease interval) RETURNS interval
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    term CONSTANT interval := coalesce(lease, make_interval(secs => @extschema@._lease()));
BEGIN
    IF term <= interval '0' OR term > interval '1 year' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'lease must be positive and at most a year',
            DETAIL = format('It is %s.', term),
            HINT = 'Leave it out to use mailroom.lease.';
    END IF;
    RETURN term;
END;
$$;
COMMENT ON FUNCTION @extschema@._lease_or_default(interval) IS
    'Internal. The given lease, or mailroom.lease; raises an error unless it is positive.';

CREATE FUNCTION @extschema@._claimed(until timestamptz) RETURNS boolean
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_claimed_wrapper';
COMMENT ON FUNCTION @extschema@._claimed(timestamptz) IS
    'Internal. Tells the worker when a lease ends, makes the commit of this transaction synchronous, and begins as _begin_changes.';

-- What a claim returns: a type of its own and not that of the outbox, to which an application may add columns. Domains
-- as in the outbox, so that no value is converted.
CREATE TYPE @extschema@.claimed_mail AS (
    id bigint,
    message_id uuid,
    state @extschema@.outbox_state,
    priority @extschema@._priority,
    send_at timestamptz,
    created_at timestamptz,
    updated_at timestamptz,
    failed_attempts integer,
    max_attempts integer,
    ambiguous_attempts integer,
    ambiguous_alone boolean,
    claimed_until timestamptz,
    token_id bigint,
    account_id bigint,
    expires_at timestamptz,
    claimed_at timestamptz,
    ended_at timestamptz,
    transport @extschema@._transport,
    item_key text,
    group_key text,
    kind @extschema@._kind,
    recipients @extschema@._recipients,
    cc @extschema@._addresses,
    bcc @extschema@._addresses,
    reply_to @extschema@._addresses,
    subject @extschema@._one_line,
    body_text @extschema@._body,
    body_html @extschema@._body,
    data @extschema@._variables,
    secrets jsonb,
    last_error text,
    claimed_by text,
    enqueued_by name,
    provider_id text,
    batch uuid,
    fallback_from @extschema@._transport
);
COMMENT ON TYPE @extschema@.claimed_mail IS
    'A mail as mailroom_claim and mailroom_claim_group return it, with the columns of outbox. Missing parts are rendered from templates, and secrets, here NULL, are merged into data.';

CREATE FUNCTION @extschema@._note_ended(mails bigint, latest bigint, reason text) RETURNS void
    LANGUAGE c VOLATILE STRICT
    AS 'MODULE_PATHNAME', '_note_ended_wrapper';
COMMENT ON FUNCTION @extschema@._note_ended(bigint, bigint, text) IS
    'Internal. Warns that so many mails, the latest with this id, ended as error and no claimant said so; a session warns at most once a minute.';

-- Long because it is one statement: the contents of a mail are no variable (I7).
CREATE FUNCTION @extschema@._claim_rows(ctids tid[], claimant text, moment timestamptz, term interval)
    RETURNS SETOF @extschema@.claimed_mail
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
<<local>>
DECLARE
    claimed bigint;
BEGIN
    -- Rendered within the statement that returns it: the contents of a mail are no variable and no parameter (I7).
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT
            o.ctid AS place, o.kind, coalesce(o.data ->> 'locale', '') AS locale,
            o.subject IS NULL AS lacks_subject,
            o.body_text IS NULL AND o.body_html IS NULL AS lacks_body,
            o.data || coalesce(s.secrets, '{}') AS variables,
            o.expires_at, o.message_id, o.recipients
        FROM @extschema@.outbox o
        LEFT JOIN @extschema@._mail_secrets s ON s.place = o.ctid
        WHERE o.ctid = ANY (_claim_rows.ctids)
        ORDER BY o.priority, o.send_at, o.id
    ), template AS MATERIALIZED (
        SELECT d.kind, d.locale AS wanted, t.locale, t.subject, t.body_text, t.body_html
        FROM (SELECT DISTINCT w.kind, w.locale FROM wanted w WHERE w.lacks_subject OR w.lacks_body) d
        CROSS JOIN LATERAL @extschema@._template(d.kind::text, nullif(d.locale, '')) t
    ), composed AS MATERIALIZED (
        SELECT
            m.place, m.variables, (m.rendered).subject, (m.rendered).body_text, (m.rendered).body_html,
            CASE
                WHEN octet_length(m.variables::text) > 1048576 THEN 'data has more than 1 MB together with the secrets'
                WHEN NOT m.incomplete THEN NULL
                WHEN m.locale IS NULL THEN format('there is no template for kind "%s"', m.kind)
                WHEN (m.rendered).error IS NOT NULL THEN format('template %s/%s, %s', m.kind, m.locale, (m.rendered).error)
            END AS error
        FROM (
            SELECT
                w.place, w.kind, w.variables, w.lacks_subject OR w.lacks_body AS incomplete, t.locale,
                -- Not in FROM, where each call would fill a tuplestore of its own.
                @extschema@._render(
                    CASE WHEN w.lacks_subject THEN t.subject END,
                    -- The two bodies have the same contents, so a message has both of its own or neither.
                    CASE WHEN w.lacks_body THEN t.body_text END,
                    CASE WHEN w.lacks_body THEN t.body_html END,
                    CASE
                        WHEN t.locale IS NOT NULL
                        THEN @extschema@._template_variables(
                            w.variables, w.expires_at, w.kind::text, t.locale, w.message_id, w.recipients::text[]
                        )
                    END
                ) AS rendered
            FROM wanted w
            LEFT JOIN template t ON t.kind = w.kind AND t.wanted = w.locale AND (w.lacks_subject OR w.lacks_body)
        ) m
    ), failed AS (
        UPDATE @extschema@.outbox o
        SET state = 'error',
            secrets = NULL,
            last_error = c.error,
            updated_at = _claim_rows.moment,
            ended_at = _claim_rows.moment
        FROM composed c
        WHERE o.ctid = c.place
          AND c.error IS NOT NULL
    )
    UPDATE @extschema@.outbox o
    SET state = 'claimed',
        claimed_by = _claim_rows.claimant,
        claimed_at = _claim_rows.moment,
        claimed_until = _claim_rows.moment + _claim_rows.term,
        updated_at = _claim_rows.moment
    FROM composed c
    WHERE o.ctid = c.place
      AND c.error IS NULL
    RETURNING
        o.id, o.message_id, o.state, o.priority, o.send_at, o.created_at, o.updated_at, o.failed_attempts,
        o.max_attempts, o.ambiguous_attempts, o.ambiguous_alone, o.claimed_until, o.token_id, o.account_id, o.expires_at,
        o.claimed_at, o.ended_at, o.transport, o.item_key, o.group_key, o.kind, o.recipients, o.cc, o.bcc, o.reply_to,
        coalesce(o.subject, c.subject::@extschema@._one_line),
        coalesce(o.body_text, c.body_text::@extschema@._body),
        coalesce(o.body_html, c.body_html::@extschema@._body),
        c.variables::@extschema@._variables, NULL::jsonb,
        o.last_error, o.claimed_by, o.enqueued_by, o.provider_id, o.batch, o.fallback_from;
    GET DIAGNOSTICS claimed = ROW_COUNT;
    IF claimed < cardinality(ctids) THEN
        -- State as text: there is one index to use. What ended earlier in the same claim has the same time.
        PERFORM @extschema@._note_ended(least(count(*), cardinality(_claim_rows.ctids) - local.claimed), max(o.id), 'it cannot be rendered')
        FROM @extschema@.outbox o
        WHERE o.ended_at = _claim_rows.moment
          AND o.state::text = 'error'
          AND o.claimed_at IS NULL
        HAVING count(*) > 0;
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._claim_rows(tid[], text, timestamptz, interval) IS
    'Internal. Claims locked rows and returns them in the order of claims, with secrets merged into data and missing parts rendered from templates. Rows that cannot be rendered end as error and are not returned.';

-- Long because transports and budgets are gone through in one loop, and rows are returned from within.
CREATE FUNCTION @extschema@.mailroom_claim(
    batch_limit integer DEFAULT NULL,
    lease interval DEFAULT NULL,
    claimant text DEFAULT NULL,
    transports text[] DEFAULT NULL
)
    RETURNS SETOF @extschema@.claimed_mail
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
<<local>>
DECLARE
    wanted integer := coalesce(batch_limit, @extschema@._batch_limit());
    who CONSTANT text := @extschema@._claimant(claimant);
    term CONSTANT interval := @extschema@._lease_or_default(lease);
    moment CONSTANT timestamptz := clock_timestamp();
    names CONSTANT text[] := @extschema@._transports(transports);
    place integer := 1;
    took_back boolean := false;
    careful boolean;
    bad integer := 0;
    -- First all mail; then urgent mail, from what the budgets reserve for it.
    up_to integer := 32767;
    budgeted CONSTANT boolean := EXISTS (SELECT FROM @extschema@.budgets);
    room integer;
    urgent_room integer := 0;
    found record;
    asked CONSTANT integer := wanted;
    total integer := 0;
    claimed integer;
    shares record;
    fits boolean := true;
BEGIN
    IF wanted < 1 THEN
        PERFORM @extschema@._refuse_batch_limit(wanted, NULL::text);
    END IF;
    IF budgeted THEN
        -- Each mail has at least one recipient.
        SELECT b.room, b.urgent_room INTO room, urgent_room FROM @extschema@._budget(1) b;
        wanted := least(wanted, room);
    END IF;
    IF wanted > 0 OR urgent_room > 0 THEN
        PERFORM @extschema@._refuse_while_restoring();
        took_back := @extschema@._expire_leases(moment, 1000) > 0;
    END IF;
    careful := @extschema@._begin_changes();
    FOR round IN 1 .. 100 + cardinality(names) LOOP
        IF up_to = 32767 AND urgent_room > room AND (wanted = 0 OR NOT fits) THEN
            up_to := @extschema@._urgent_priority();
            wanted := least(asked, urgent_room) - total;
            fits := true;
        END IF;
        EXIT WHEN wanted <= 0 OR NOT fits OR place > cardinality(names);
        SELECT g.*
        INTO found
        FROM @extschema@._select_due(names[place], false, up_to, wanted, moment, took_back) g;
        IF found.ctids = '{}' THEN
            IF careful AND up_to = 32767 THEN
                PERFORM @extschema@._forget_bad_rows(names[place]);
            END IF;
            place := place + 1;
            CONTINUE;
        END IF;
        IF budgeted THEN
            SELECT b.* INTO shares FROM @extschema@._within_budgets(found.ctids) b;
            found.ctids := shares.ctids;
            fits := shares.beyond = '{}';
            IF NOT fits THEN
                PERFORM @extschema@._wait_for_budgets(shares.beyond, false);
            END IF;
            CONTINUE WHEN found.ctids = '{}';
        END IF;
        PERFORM @extschema@._claimed(moment + term);
        -- Each function, sort and CTE that a row passes through copies it. Most rows are complete, and most batches are
        -- stored in the order of claims, which is the order in which UPDATE returns rows selected by ctid.
        IF careful THEN
            RETURN QUERY
            SELECT c.* FROM @extschema@._claim_one_by_one(found.ctids, who, moment, term, wanted) c;
        ELSIF found.in_order
            AND found.ctids = ARRAY(SELECT u.place FROM unnest(found.ctids) u (place) ORDER BY u.place)
        THEN
            RETURN QUERY
            UPDATE @extschema@.outbox o
            SET state = 'claimed',
                claimed_by = local.who,
                claimed_at = local.moment,
                claimed_until = local.moment + local.term,
                updated_at = local.moment
            WHERE o.ctid = ANY (found.ctids)
            RETURNING
                o.id, o.message_id, o.state, o.priority, o.send_at, o.created_at, o.updated_at, o.failed_attempts,
                o.max_attempts, o.ambiguous_attempts, o.ambiguous_alone, o.claimed_until, o.token_id, o.account_id, o.expires_at,
                o.claimed_at, o.ended_at, o.transport, o.item_key, o.group_key, o.kind, o.recipients, o.cc, o.bcc, o.reply_to,
                o.subject, o.body_text, o.body_html, o.data, NULL::jsonb, o.last_error, o.claimed_by, o.enqueued_by, o.provider_id, o.batch, o.fallback_from;
        ELSE
            RETURN QUERY
            SELECT c.* FROM @extschema@._claim_rows(found.ctids, who, moment, term) c;
        END IF;
        GET DIAGNOSTICS claimed = ROW_COUNT;
        IF budgeted AND claimed < cardinality(found.ctids) THEN
            PERFORM @extschema@._refund_unclaimed(shares.ids, moment);
        END IF;
        wanted := wanted - claimed;
        total := total + claimed;
        -- Other rows may take the place of rows that could not be rendered or changed.
        IF careful AND claimed < cardinality(found.ctids) THEN
            PERFORM @extschema@._announce_due(moment + interval '1 s');
            bad := bad + cardinality(found.ctids) - claimed;
            IF bad >= 1000 THEN
                -- So that the transaction stays short; the next call goes on behind them.
                place := place + 1;
            END IF;
        ELSIF NOT careful AND fits AND claimed = cardinality(found.ctids) AND wanted > 0 THEN
            place := place + 1;
        END IF;
        IF round = 100 + cardinality(names) THEN
            -- There are more such rows, or a trigger of the application keeps rows unchanged: tell senders to look
            -- again.
            PERFORM @extschema@._announce_due(moment + interval '1 s');
        END IF;
    END LOOP;
    PERFORM @extschema@._end_changes();
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_claim(integer, interval, text, text[]) IS
    'Claims up to batch_limit due mails (default mailroom.batch_limit) of these transports (default: mail that clients deliver) for lease, and returns them by transport, priority, send_at and id. Commit, send, then settle each with mailroom_mark_sent, mailroom_mark_error or mailroom_release.';
