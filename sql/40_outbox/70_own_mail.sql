-- Mail of one's own: what an application may do to the outbox, and cancel and reschedule.
--
-- Everything runs with the caller's rights, who is outbox.enqueued_by, and reaches the outbox through three views:
-- _new_mail takes new mail, _own_mail shows mail of the caller's that is not claimed, _own_item_keys which keys are in
-- use. Scheduled mail that has expired may be ended as expired, as a claim would. Columns are limited by grants, rows by
-- the views. One view is for INSERT and another for UPDATE, because ON CONFLICT DO UPDATE needs both rights on one
-- relation, and would reach and lock rows that the condition hides. Invariant: a row cannot come back from cancelled or
-- expired, because ended_at is not among the columns.

CREATE FUNCTION @extschema@._is_callers_role(enqueued_by name) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    -- The same rule as for ownership anywhere in PostgreSQL, except that the role is known by its name: the mail of a
    -- role that was dropped or renamed is that of the next role by this name.
    SELECT coalesce(pg_has_role(to_regrole(quote_ident(enqueued_by)), 'USAGE'), false)
        OR pg_has_role('mailroom_support', 'USAGE')
        OR pg_has_role('mailroom_admin', 'USAGE')
$$;
COMMENT ON FUNCTION @extschema@._is_callers_role(name) IS
    'Internal. Whether the current user has the rights of the role that enqueued a mail, or of mailroom_support or mailroom_admin.';

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
    EXECUTE 'CREATE VIEW @extschema@._new_mail WITH (security_barrier) AS SELECT ' || names || $view$, o.transport, o.id
        FROM @extschema@.outbox o
        WHERE o.state = 'scheduled'
          AND o.token_id IS NULL
          AND @extschema@._is_callers_role(o.enqueued_by)
          AND (o.transport = '' OR o.transport = @extschema@._default_transport() OR @extschema@._knows_transport(o.transport::text))
          AND @extschema@._bad_address($view$ || mail || $view$) IS NULL
          AND @extschema@._recipients_problem($view$ || mail || $view$) IS NULL
          AND @extschema@._message_problem($view$ || mail || $view$) IS NULL
          AND @extschema@._contents_problem(o.subject::text, o.body_text::text, o.body_html::text, o.kind::text, o.data::jsonb) IS NULL
        WITH CASCADED CHECK OPTION$view$;
END;
$$;
COMMENT ON VIEW @extschema@._new_mail IS 'Internal. Takes new mail of the current user into the outbox.';

DO $$
BEGIN
    EXECUTE 'CREATE VIEW @extschema@._mail_addresses WITH (security_invoker) AS SELECT o.id, '
        || (SELECT string_agg(format('o.%I::text[]', f.name), ' || ') FROM unnest(@extschema@._address_fields()) f (name))
        || ' AS addresses FROM @extschema@.outbox o';
END;
$$;
COMMENT ON VIEW @extschema@._mail_addresses IS 'Internal. All addresses of a mail.';

CREATE VIEW @extschema@._own_mail WITH (security_barrier) AS
SELECT o.id, o.state, o.send_at, o.expires_at, o.last_error, o.item_key, o.updated_at
FROM @extschema@.outbox o
WHERE (o.state IN ('scheduled', 'cancelled') OR (o.state = 'expired' AND o.expires_at <= clock_timestamp()))
  AND (o.token_id IS NOT NULL OR o.kind NOT IN ('activation', 'password_recovery'))
  AND @extschema@._is_callers_role(o.enqueued_by)
  AND isfinite(o.send_at)
  AND (o.expires_at > o.send_at OR o.expires_at <= clock_timestamp()) IS NOT FALSE
  AND isfinite(o.updated_at)
  AND (char_length(o.last_error) <= 1000) IS NOT FALSE
WITH CASCADED CHECK OPTION;
COMMENT ON VIEW @extschema@._own_mail IS 'Internal. Mail of the current user that is scheduled, cancelled or expired.';

-- Keys are a role's own: no role can take, learn of, or make another wait for a key of that role.
CREATE VIEW @extschema@._own_item_keys WITH (security_barrier) AS
SELECT o.item_key, o.id, o.state, coalesce(o.state = 'scheduled' AND o.expires_at <= clock_timestamp(), false) AS has_expired
FROM @extschema@.outbox o
WHERE o.item_key IS NOT NULL
  AND o.enqueued_by = current_user
  AND o.state IN ('scheduled', 'claimed');
COMMENT ON VIEW @extschema@._own_item_keys IS
    'Internal. The item_keys of live mail that the current user itself scheduled, and whether that mail can no longer be sent because it has expired.';

CREATE FUNCTION @extschema@._scheduled(message_ids uuid[])
RETURNS TABLE (message_id uuid, id bigint, enqueued_by name)
    LANGUAGE sql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
    SELECT o.message_id, o.id, o.enqueued_by
    FROM @extschema@.outbox o
    WHERE o.message_id = ANY (message_ids)
$$;
COMMENT ON FUNCTION @extschema@._scheduled(uuid[]) IS 'Internal. The mails with these message_ids, of any role.';

CREATE FUNCTION @extschema@.mailroom_cancel(id bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    -- A row that a sender is claiming at this moment is left to the sender.
    UPDATE @extschema@._own_mail o
    SET state = 'cancelled',
        last_error = 'cancelled by ' || current_user
    WHERE o.id = (
        SELECT s.id
        FROM @extschema@._own_mail s
        WHERE s.id = mailroom_cancel.id
          AND s.state = 'scheduled'
        FOR NO KEY UPDATE SKIP LOCKED
    );
    RETURN FOUND;
END;
$$;
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
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    expiry timestamptz;
BEGIN
    IF mailroom_reschedule.send_at IS NULL OR NOT isfinite(mailroom_reschedule.send_at) THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'send_at must be a finite time',
            DETAIL = format('It is %s.', coalesce(mailroom_reschedule.send_at::text, 'null')),
            HINT = 'Use mailroom_cancel for a mail that is not to be sent at all.';
    END IF;
    SELECT s.expires_at
    INTO expiry
    FROM @extschema@._own_mail s
    WHERE s.id = mailroom_reschedule.id
      AND s.state = 'scheduled'
    FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF expiry <= mailroom_reschedule.send_at THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'mail cannot be rescheduled',
            DETAIL = format('It expires at %s, which is not after %s.', expiry, mailroom_reschedule.send_at),
            HINT = 'Pass an earlier time, or cancel the mail and schedule another.';
    END IF;
    UPDATE @extschema@._own_mail o
    SET send_at = mailroom_reschedule.send_at,
        updated_at = now()
    WHERE o.id = mailroom_reschedule.id;
    PERFORM @extschema@._mail_due(mailroom_reschedule.send_at);
    RETURN true;
END;
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
