-- Batches: due rows are locked, claimed, rendered and returned.
--
-- mailroom_claim and mailroom_claim_group call _claim_batch with rows that they found. Invariants: contents are returned by
-- the statement that claims, and are no variable and no parameter (I7); a row that cannot be rendered ends as error, and one that
-- an application does not let change stays, and neither holds up the others (I8).

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
    from_address @extschema@._from_address,
    headers jsonb,
    unsubscribe_url text,
    list text,
    attachment_bytes integer,
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

-- Long because it is one statement: the contents of a mail are no variable and no parameter (I7).
CREATE FUNCTION @extschema@._claim_rows(ctids tid[], suppressed tid[], claimant text, moment timestamptz, term interval)
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
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT
            o.ctid AS place, o.kind, coalesce(o.data ->> 'locale', '') AS locale,
            o.subject IS NULL AS lacks_subject,
            o.body_text IS NULL AND o.body_html IS NULL AS lacks_body,
            o.data || coalesce(s.secrets, '{}')
                || CASE WHEN o.list IS NULL THEN '{}' ELSE jsonb_build_object('unsubscribe_link', coalesce(o.unsubscribe_url, u.link)) END AS variables,
            o.expires_at, o.message_id,
            CASE WHEN l.keys IS NULL THEN o.recipients::text[] ELSE @extschema@._without(o.recipients::text[], l.keys) END AS recipients,
            l.keys AS left_out,
            coalesce(o.unsubscribe_url, CASE WHEN @extschema@._is_unsubscribe_url(u.link) THEN u.link END) AS unsubscribe_url
        FROM @extschema@.outbox o
        LEFT JOIN @extschema@._mail_secrets s ON s.place = o.ctid
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN o.ctid = ANY (_claim_rows.suppressed)
                THEN ARRAY(SELECT r.address FROM @extschema@._suppressed_recipients r WHERE r.place = o.ctid)
            END AS keys
            OFFSET 0
        ) l
        CROSS JOIN LATERAL (
            -- A click of one must not unsubscribe another.
            SELECT CASE
                WHEN o.list IS NOT NULL AND o.unsubscribe_url IS NULL AND cardinality(o.recipients::text[] || o.cc::text[] || o.bcc::text[]) = 1
                THEN @extschema@._unsubscribe_url(o.list, o.recipients[1])
            END AS link
            OFFSET 0
        ) u
        WHERE o.ctid = ANY (_claim_rows.ctids)
        ORDER BY o.priority, o.send_at, o.id
    ), template AS MATERIALIZED (
        SELECT d.kind, d.locale AS wanted, t.locale, t.subject, t.body_text, t.body_html
        FROM (SELECT DISTINCT w.kind, w.locale FROM wanted w WHERE w.lacks_subject OR w.lacks_body) d
        CROSS JOIN LATERAL @extschema@._template(d.kind::text, nullif(d.locale, '')) t
    ), composed AS MATERIALIZED (
        SELECT
            m.place, m.variables, m.left_out, m.unsubscribe_url,
            (m.rendered).subject, (m.rendered).body_text, (m.rendered).body_html,
            CASE WHEN m.recipients = '{}' THEN 'suppressed' ELSE 'error' END::@extschema@.outbox_state AS final,
            CASE
                WHEN m.recipients = '{}' THEN 'every address in recipients is suppressed'
                WHEN octet_length(m.variables::text) > 1048576 THEN 'data has more than 1 MB together with the secrets'
                WHEN NOT m.incomplete THEN NULL
                WHEN m.locale IS NULL THEN format('there is no template for kind "%s"', m.kind)
                WHEN (m.rendered).error IS NOT NULL THEN format('template %s/%s, %s', m.kind, m.locale, (m.rendered).error)
            END AS error
        FROM (
            SELECT
                w.place, w.kind, w.variables, w.recipients, w.left_out, w.unsubscribe_url,
                w.lacks_subject OR w.lacks_body AS incomplete, t.locale,
                -- Not in FROM, where each call would fill a tuplestore of its own.
                @extschema@._render(
                    CASE WHEN w.lacks_subject THEN t.subject END,
                    -- The two bodies have the same contents, so a message has both of its own or neither.
                    CASE WHEN w.lacks_body THEN t.body_text END,
                    CASE WHEN w.lacks_body THEN t.body_html END,
                    CASE
                        WHEN t.locale IS NOT NULL
                        THEN @extschema@._template_variables(
                            w.variables, w.expires_at, w.kind::text, t.locale, w.message_id, w.recipients
                        )
                    END
                ) AS rendered
            FROM wanted w
            LEFT JOIN template t ON t.kind = w.kind AND t.wanted = w.locale AND (w.lacks_subject OR w.lacks_body)
        ) m
    ), failed AS (
        UPDATE @extschema@.outbox o
        SET state = c.final,
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
        o.claimed_at, o.ended_at, o.transport, o.item_key, o.group_key, o.kind,
        CASE WHEN c.left_out IS NULL THEN o.recipients ELSE @extschema@._without(o.recipients::text[], c.left_out)::@extschema@._recipients END,
        CASE WHEN c.left_out IS NULL THEN o.cc ELSE @extschema@._without(o.cc::text[], c.left_out)::@extschema@._addresses END,
        CASE WHEN c.left_out IS NULL THEN o.bcc ELSE @extschema@._without(o.bcc::text[], c.left_out)::@extschema@._addresses END,
        o.reply_to, o.from_address, o.headers, c.unsubscribe_url, o.list, o.attachment_bytes,
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
COMMENT ON FUNCTION @extschema@._claim_rows(tid[], tid[], text, timestamptz, interval) IS
    'Internal. Claims locked rows and returns them in the order of claims, with secrets merged into data, missing parts rendered from templates, and of those that have suppressed recipients without these. Rows that cannot be rendered end as error, those without recipients as suppressed, and are not returned.';

-- Each sort and CTE that a row passes through copies it, and most rows are complete.
CREATE FUNCTION @extschema@._claim_complete(ctids tid[], claimant text, moment timestamptz, term interval)
    RETURNS SETOF @extschema@.claimed_mail
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN QUERY
    UPDATE @extschema@.outbox o
    SET state = 'claimed',
        claimed_by = _claim_complete.claimant,
        claimed_at = _claim_complete.moment,
        claimed_until = _claim_complete.moment + _claim_complete.term,
        updated_at = _claim_complete.moment
    WHERE o.ctid = ANY (_claim_complete.ctids)
    RETURNING
        o.id, o.message_id, o.state, o.priority, o.send_at, o.created_at, o.updated_at, o.failed_attempts,
        o.max_attempts, o.ambiguous_attempts, o.ambiguous_alone, o.claimed_until, o.token_id, o.account_id, o.expires_at,
        o.claimed_at, o.ended_at, o.transport, o.item_key, o.group_key, o.kind, o.recipients, o.cc, o.bcc, o.reply_to,
        o.from_address, o.headers, o.unsubscribe_url, o.list, o.attachment_bytes,
        o.subject, o.body_text, o.body_html, o.data, NULL::jsonb, o.last_error, o.claimed_by, o.enqueued_by, o.provider_id,
        o.batch, o.fallback_from;
END;
$$;
COMMENT ON FUNCTION @extschema@._claim_complete(tid[], text, timestamptz, interval) IS
    'Internal. Claims locked rows that have subject and body of their own and no secrets, and returns them by ctid.';

-- Long because a batch is tried, and, if that fails, each of its rows.
CREATE FUNCTION @extschema@._claim_batch(candidates tid[], is_plain boolean, claimant text, moment timestamptz, term interval, row_limit integer)
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
    locked tid[];
    suppressed tid[] := '{}'::tid[];
    failed boolean := false;
BEGIN
    BEGIN
        IF cardinality(candidates) > row_limit THEN
            locked := ARRAY(
                SELECT o.ctid
                FROM unnest(_claim_batch.candidates) WITH ORDINALITY c (place, number)
                JOIN @extschema@.outbox o ON o.ctid = c.place
                WHERE o.state::text = 'scheduled'
                  AND o.send_at <= _claim_batch.moment
                ORDER BY c.number
                LIMIT _claim_batch.row_limit
                FOR NO KEY UPDATE OF o SKIP LOCKED
            );
        ELSE
            locked := ARRAY(
                SELECT o.ctid
                FROM @extschema@.outbox o
                WHERE o.ctid = ANY (_claim_batch.candidates)
                  AND o.state::text = 'scheduled'
                  AND o.send_at <= _claim_batch.moment
                FOR NO KEY UPDATE SKIP LOCKED
            );
        END IF;
        -- A row that another session changes at this moment may be locked in its new version, which was not looked at. No other
        -- row can have taken the place of one that was: the statement that calls this holds a snapshot.
        locked := ARRAY(SELECT l.place FROM unnest(locked) l (place) INTERSECT SELECT c.place FROM unnest(candidates) c (place));
        IF EXISTS (SELECT FROM @extschema@.suppressions s) THEN
            suppressed := ARRAY(SELECT DISTINCT r.place FROM @extschema@._suppressed_recipients r WHERE r.place = ANY (local.locked));
            IF suppressed <> '{}' THEN
                PERFORM @extschema@._record_suppressed(suppressed);
            END IF;
        END IF;
        -- A function in FROM has ended before it returns its first row: if it fails, none was returned. A trigger of the
        -- application may let the UPDATE do nothing. Rows selected by ctid are changed in the order of their ctids.
        IF is_plain AND suppressed = '{}' AND candidates = ARRAY(SELECT u.place FROM unnest(candidates) u (place) ORDER BY u.place) THEN
            RETURN QUERY SELECT m.* FROM @extschema@._claim_complete(locked, claimant, moment, term) m WHERE m.state = 'claimed';
        ELSE
            RETURN QUERY SELECT m.* FROM @extschema@._claim_rows(locked, suppressed, claimant, moment, term) m WHERE m.state = 'claimed';
        END IF;
    EXCEPTION
        WHEN OTHERS THEN
            failed := true;
            IF @extschema@._passes_by(SQLSTATE, candidates) IS NULL THEN
                RAISE;
            END IF;
    END;
    IF NOT failed OR cardinality(candidates) = 1 THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT m.*
    FROM unnest(candidates) c (place)
    CROSS JOIN LATERAL @extschema@._claim_batch(ARRAY[c.place], is_plain, claimant, moment, term, 1) m
    LIMIT row_limit;
END;
$$;
COMMENT ON FUNCTION @extschema@._claim_batch(tid[], boolean, text, timestamptz, interval, integer) IS
    'Internal. Claims the first of these due rows that no other session holds and that can be changed, row_limit at most, and returns them as _claim_rows.';
