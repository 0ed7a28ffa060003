-- Mail of one's own: what an application may do to the outbox, and cancel and reschedule.
--
-- The functions run with the caller's rights, who is outbox.enqueued_by, and reach the outbox through three views:
-- _new_mail takes new mail, _own_item_keys shows which keys are in use, _own_changes takes what is to become of mail that
-- is scheduled. Columns are limited by grants, rows by the views. No application may update a row, because it could also
-- lock it by SELECT ... FOR UPDATE, even after it was claimed, and the claimant would have to wait. Invariant: an
-- application locks no mail that is claimed.

CREATE FUNCTION @extschema@._is_callers_role(enqueued_by name, caller name) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    -- The same rule as for ownership anywhere in PostgreSQL, except that the role is known by its name: the mail of a
    -- role that was dropped or renamed is that of the next role by this name.
    SELECT coalesce(pg_has_role(caller, to_regrole(quote_ident(enqueued_by)), 'USAGE'), false)
        OR pg_has_role(caller, 'mailroom_support', 'USAGE')
        OR pg_has_role(caller, 'mailroom_admin', 'USAGE')
$$;
COMMENT ON FUNCTION @extschema@._is_callers_role(name, name) IS
    'Internal. Whether the caller has the rights of the role that enqueued a mail, or of mailroom_support or mailroom_admin.';

-- It has the columns of _mail in their order, so that an INSERT needs no list of them. Not by format(): the name of the
-- schema may have a percent sign.
DO $$
DECLARE
    names text;
    mail text;
BEGIN
    SELECT
        string_agg(format('o.%I', a.attname), ', ' ORDER BY a.attnum),
        'ROW(' || string_agg(format('o.%I::%s', a.attname, format_type(a.atttypid, NULL)), ', ' ORDER BY a.attnum) || ')::@extschema@._mail'
    INTO names, mail
    FROM pg_attribute a
    WHERE a.attrelid = '@extschema@._mail'::regclass;
    -- The id is computed, so that no role can write it.
    EXECUTE 'CREATE VIEW @extschema@._new_mail WITH (security_barrier) AS SELECT ' || names || $view$, o.transport, o.id + 0 AS id
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.token_id IS NULL
          AND (o.enqueued_by = current_user OR @extschema@._is_callers_role(o.enqueued_by, current_user))
          AND (o.transport = '' OR o.transport = @extschema@._default_transport() OR @extschema@._knows_transport(o.transport::text))
          AND @extschema@._mail_problem($view$ || mail || $view$) IS NULL
          AND (
              o.subject IS NOT NULL AND (o.body_text IS NOT NULL OR o.body_html IS NOT NULL)
              OR @extschema@._contents_problem(o.subject::text, o.body_text::text, o.body_html::text, o.kind::text, o.data::jsonb) IS NULL
          )
        WITH CASCADED CHECK OPTION$view$;
END;
$$;
COMMENT ON VIEW @extschema@._new_mail IS 'Internal. Takes new mail of the current user into the outbox.';

DO $$
BEGIN
    EXECUTE 'CREATE VIEW @extschema@._mail_addresses WITH (security_invoker) AS SELECT o.id, @extschema@._bare_addresses('
        || (SELECT string_agg(format('o.%I::text[]', f.name), ' || ') FROM unnest(@extschema@._address_fields()) f (name))
        || ') AS addresses FROM @extschema@.outbox o';
END;
$$;
COMMENT ON VIEW @extschema@._mail_addresses IS 'Internal. All addresses of a mail, without names.';

-- Keys are a role's own: no role can take, learn of, or make another wait for a key of that role.
CREATE VIEW @extschema@._own_item_keys WITH (security_barrier) AS
SELECT o.item_key, o.id, o.state, coalesce(o.state = 'scheduled' AND o.expires_at <= clock_timestamp(), false) AS has_expired
FROM @extschema@.outbox o
WHERE o.item_key IS NOT NULL
  AND o.enqueued_by = current_user
  AND o.state IN ('scheduled', 'claimed');
COMMENT ON VIEW @extschema@._own_item_keys IS
    'Internal. The item_keys of live mail that the current user itself scheduled, and whether that mail can no longer be sent because it has expired.';

CREATE FUNCTION @extschema@._scheduled(messages @extschema@._message[])
RETURNS TABLE (ordinal integer, message_id uuid, id bigint, enqueued_by name, is_same boolean)
    LANGUAGE sql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
    SELECT
        m.ordinal, o.message_id, o.id, o.enqueued_by,
        @extschema@._contents(ROW(
            o.recipients, o.cc, o.bcc, o.reply_to, o.subject, o.body_text, o.body_html, o.kind, o.data,
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, o.from_address, o.headers, o.unsubscribe_url, o.list
        )::@extschema@._mail) IS NOT DISTINCT FROM @extschema@._contents(m.mail)
            AND @extschema@._has_attachments(o.id, m.attachments)
    FROM unnest($1) m
    CROSS JOIN LATERAL (
        SELECT
            s.id, s.message_id, s.enqueued_by,
            s.recipients::text[] AS recipients, s.cc::text[] AS cc, s.bcc::text[] AS bcc, s.reply_to::text[] AS reply_to,
            s.subject::text AS subject, s.body_text::text AS body_text, s.body_html::text AS body_html,
            s.kind::text AS kind, s.data::jsonb AS data, s.from_address::text AS from_address,
            s.headers, s.unsubscribe_url, s.list
        FROM @extschema@.outbox s
        WHERE m.is_repeatable
          AND s.message_id = (m.mail).message_id
        OFFSET 0
    ) o
$$;
COMMENT ON FUNCTION @extschema@._scheduled(@extschema@._message[]) IS
    'Internal. The mails, of any role, that have the message_id of one of these messages, and whether the contents are the same.';

CREATE VIEW @extschema@._own_changes AS
SELECT NULL::bigint[] AS ids, NULL::text AS change, NULL::timestamptz AS send_at, NULL::name AS caller, NULL::boolean AS done
WHERE false;
COMMENT ON VIEW @extschema@._own_changes IS
    'Internal. Takes changes of mail of the current user that is scheduled: cancel and reschedule pass by rows that are locked, replace waits for them. If one of the mails cannot be changed, none is, and done is false.';

CREATE FUNCTION @extschema@._lock_own_mail(ids bigint[], caller name, waits boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    one bigint;
BEGIN
    IF EXISTS (
        SELECT
        FROM unnest(ids) u (id)
        WHERE NOT EXISTS (
            SELECT
            FROM @extschema@.outbox o
            WHERE o.id = u.id
              AND (o.token_id IS NOT NULL OR o.kind NOT IN ('activation', 'password_recovery'))
              AND @extschema@._is_callers_role(o.enqueued_by, _lock_own_mail.caller)
            OFFSET 0
        )
    ) THEN
        RAISE no_data_found;
    END IF;
    -- One at a time, so that no row that was claimed after the snapshot stays locked while another is waited for; and in
    -- the order of ids, so that two sessions that replace the same mails cannot deadlock.
    FOREACH one IN ARRAY ids LOOP
        IF waits THEN
            PERFORM FROM @extschema@.outbox o WHERE o.id = local.one AND o.state::text = 'scheduled' FOR NO KEY UPDATE;
        ELSE
            PERFORM FROM @extschema@.outbox o WHERE o.id = local.one AND o.state::text = 'scheduled' FOR NO KEY UPDATE SKIP LOCKED;
        END IF;
        IF NOT FOUND THEN
            RAISE no_data_found;
        END IF;
    END LOOP;
END;
$$;
COMMENT ON FUNCTION @extschema@._lock_own_mail(bigint[], name, boolean) IS
    'Internal. Locks the mails with these ids, in ascending order; raises no_data_found if one is not scheduled, not the caller''s or, unless the call waits, locked.';

-- Long because there are three changes, and what is wrong with one has an error of its own.
CREATE FUNCTION @extschema@._change_own_mail() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    moment CONSTANT timestamptz := clock_timestamp();
    expiry timestamptz;
    changed integer;
BEGIN
    IF (NEW.change IN ('cancel', 'reschedule', 'replace')) IS NOT TRUE THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'change must be cancel, reschedule or replace',
            DETAIL = format('It is %s.', coalesce(quote_literal(NEW.change), 'null')),
            HINT = 'Use mailroom_cancel, mailroom_reschedule or mailroom_send.';
    ELSIF NEW.change = 'reschedule' AND isfinite(NEW.send_at) IS NOT TRUE THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'send_at must be a finite time',
            DETAIL = format('It is %s.', coalesce(NEW.send_at::text, 'null')),
            HINT = 'Use mailroom_cancel for a mail that is not to be sent at all.';
    END IF;
    NEW.ids := ARRAY(SELECT DISTINCT u.id FROM unnest(NEW.ids) u (id) ORDER BY u.id);
    -- A row that was claimed after the snapshot is locked before it is found not to be scheduled; the lock goes with the
    -- subtransaction.
    BEGIN
        PERFORM @extschema@._lock_own_mail(NEW.ids, NEW.caller, NEW.change = 'replace');
    EXCEPTION
        WHEN no_data_found THEN
            NEW.done := false;
            RETURN NEW;
    END;
    IF NEW.change = 'reschedule' THEN
        SELECT min(o.expires_at) INTO expiry FROM @extschema@.outbox o WHERE o.id = ANY (NEW.ids);
        IF expiry <= NEW.send_at THEN
            RAISE object_not_in_prerequisite_state USING
                MESSAGE = 'mail cannot be rescheduled',
                DETAIL = format('It expires at %s, which is not after %s.', expiry, NEW.send_at),
                HINT = 'Pass an earlier time, or cancel the mail and schedule another.';
        END IF;
        UPDATE @extschema@.outbox o
        SET send_at = NEW.send_at,
            updated_at = local.moment
        WHERE o.id = ANY (NEW.ids);
    ELSE
        UPDATE @extschema@.outbox o
        SET state = r.state,
            secrets = NULL,
            last_error = r.reason,
            updated_at = local.moment,
            ended_at = local.moment
        FROM (
            VALUES
                (true, 'expired'::@extschema@.outbox_state, 'expired before it was sent'),
                (false, 'cancelled', CASE NEW.change WHEN 'replace' THEN 'replaced by ' ELSE 'cancelled by ' END || NEW.caller)
        ) r (has_expired, state, reason)
        WHERE o.id = ANY (NEW.ids)
          -- As a claim ends it.
          AND r.has_expired = (NEW.change = 'replace' AND coalesce(o.expires_at <= local.moment, false));
    END IF;
    -- A trigger of the application may keep a row as it is.
    GET DIAGNOSTICS changed = ROW_COUNT;
    NEW.done := changed > 0 AND changed = cardinality(NEW.ids);
    IF NEW.done THEN
        -- One may replace only mail of one's own.
        INSERT INTO @extschema@._new_actions (action, outbox_id, detail)
        SELECT d.action::@extschema@.operator_action, o.id, d.detail
        FROM @extschema@.outbox o
        JOIN (
            VALUES
                ('cancel', 'cancelled', '{}'::jsonb),
                ('reschedule', 'rescheduled', jsonb_build_object('send_at', NEW.send_at))
        ) d (change, action, detail) ON d.change = NEW.change
        WHERE o.id = ANY (NEW.ids)
          AND o.enqueued_by <> NEW.caller;
    END IF;
    IF NEW.change = 'reschedule' THEN
        PERFORM @extschema@._mail_due(NEW.send_at, false, false);
    END IF;
    RETURN NEW;
END;
$$;
COMMENT ON FUNCTION @extschema@._change_own_mail() IS
    'Internal. Cancels, reschedules or, for another mail with the same item_key, replaces scheduled mail of the caller''s.';

-- A function that runs with its owner's rights does not know its caller; this one does. Not a default of the column: a
-- view of the application's own could have another (85_columns.sql).
CREATE FUNCTION @extschema@._note_caller() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.caller := current_user;
    RETURN NEW;
END;
$$;
COMMENT ON FUNCTION @extschema@._note_caller() IS 'Internal. Notes who asks for a change.';

-- Triggers fire in the order of their names.
CREATE TRIGGER a_note_caller
    INSTEAD OF INSERT ON @extschema@._own_changes
    FOR EACH ROW
    EXECUTE FUNCTION @extschema@._note_caller();

CREATE TRIGGER change_own_mail
    INSTEAD OF INSERT ON @extschema@._own_changes
    FOR EACH ROW
    EXECUTE FUNCTION @extschema@._change_own_mail();

CREATE FUNCTION @extschema@.mailroom_cancel(id bigint) RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$ INSERT INTO @extschema@._own_changes (ids, change) VALUES (ARRAY[id], 'cancel') RETURNING coalesce(done, false) $$;
COMMENT ON FUNCTION @extschema@.mailroom_cancel(bigint) IS
    'Cancels a mail of the caller''s that is not claimed, without waiting. Returns false, and changes nothing, if it is claimed, has ended, is locked by another transaction or does not exist.';

CREATE FUNCTION @extschema@.mailroom_cancel_item(item_key text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    RETURN coalesce(
        (SELECT @extschema@.mailroom_cancel(k.id) FROM @extschema@._own_item_keys k WHERE k.item_key = mailroom_cancel_item.item_key),
        false
    );
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_cancel_item(text) IS
    'As mailroom_cancel, for the mail that the current user scheduled with this item_key and that is still to be sent.';

CREATE FUNCTION @extschema@.mailroom_reschedule(id bigint, send_at timestamptz) RETURNS boolean
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO @extschema@._own_changes (ids, change, send_at)
    VALUES (ARRAY[id], 'reschedule', send_at)
    -- Triggers of views do not fire while session_replication_role is replica.
    RETURNING coalesce(done, false)
$$;
COMMENT ON FUNCTION @extschema@.mailroom_reschedule(bigint, timestamptz) IS
    'Changes send_at of a mail of the caller''s that is not claimed, without waiting. Returns false in the cases of mailroom_cancel.';

CREATE FUNCTION @extschema@.mailroom_reschedule_item(item_key text, send_at timestamptz) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
BEGIN
    RETURN coalesce(
        (
            SELECT @extschema@.mailroom_reschedule(k.id, mailroom_reschedule_item.send_at)
            FROM @extschema@._own_item_keys k
            WHERE k.item_key = mailroom_reschedule_item.item_key
        ),
        false
    );
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_reschedule_item(text, timestamptz) IS
    'As mailroom_reschedule, for the mail that the current user scheduled with this item_key and that is still to be sent.';
