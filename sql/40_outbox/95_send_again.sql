-- Sending again: an operator has a mail that has ended sent once more, as a mail of its own.
--
-- For a recipient who lost it or says that it never came; what ended as error is retried instead (50_queue/75_retry.sql).
-- Invariants: the new mail says what the old one said, to the same addresses, and is its role's; the operator reads nothing of
-- it. No link is mailed like that: its secret went when the mail ended.

-- It has the columns of _mail in their order, as _new_mail has. Not by format(): the name of the schema may have a percent sign.
DO $$
DECLARE
    names text;
    contents text;
BEGIN
    SELECT
        string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
        string_agg(
            CASE a.attname
                WHEN 'message_id' THEN '@extschema@._message_id()'
                WHEN 'item_key' THEN 'NULL'
                WHEN 'send_at' THEN 'now()'
                WHEN 'expires_at' THEN 'CASE WHEN o.expires_at > clock_timestamp() THEN o.expires_at END'
                ELSE 'o.' || quote_ident(a.attname)
            END,
            ', ' ORDER BY a.attnum
        )
    INTO names, contents
    FROM pg_attribute a
    WHERE a.attrelid = '@extschema@._mail'::regclass;
    EXECUTE 'CREATE FUNCTION @extschema@._copy_mail(id bigint) RETURNS bigint
        LANGUAGE sql
        SET search_path = pg_catalog, pg_temp
        SET enable_seqscan = off
        SET jit = off
    AS $sql$
        INSERT INTO @extschema@.outbox AS n (' || names || ', transport, enqueued_by)
        SELECT ' || contents || ', o.transport, o.enqueued_by
        FROM @extschema@.outbox o
        WHERE o.id = $1
        RETURNING n.id
    $sql$';
END;
$$;
COMMENT ON FUNCTION @extschema@._copy_mail(bigint) IS
    'Internal. Schedules what an application set of this mail, for its role and due now, as another mail without item_key; returns its id, or NULL if a trigger of the application keeps it out.';

-- Long because each reason not to send a mail again has an error of its own.
CREATE FUNCTION @extschema@.mailroom_send_again(id bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET jit = off
AS $$
<<local>>
DECLARE
    original record;
    files integer;
    mail bigint;
    reason text;
    remedy text;
BEGIN
    -- Locked, so that two sessions count one after the other.
    SELECT o.state, o.attachment_bytes, o.token_id IS NOT NULL OR o.kind IN ('activation', 'password_recovery') AS has_link
    INTO original
    FROM @extschema@.outbox o
    WHERE o.id = mailroom_send_again.id
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- No purge deletes them until this transaction ends.
    PERFORM
    FROM @extschema@.outbox_files f
    WHERE f.id = ANY (ARRAY(SELECT a.file_id FROM @extschema@.outbox_attachments a WHERE a.outbox_id = mailroom_send_again.id))
    ORDER BY f.id
    FOR KEY SHARE;
    GET DIAGNOSTICS files = ROW_COUNT;
    IF original.state < 'sent' THEN
        reason := format('Mail %s is %s.', mailroom_send_again.id, original.state);
        remedy := 'Wait until it has been sent, or use mailroom_reschedule.';
    ELSIF original.has_link THEN
        reason := format('The link of mail %s was removed when it ended.', mailroom_send_again.id);
        remedy := 'Send a new link by mailroom_request_activation or mailroom_request_recovery.';
    ELSIF files < (SELECT count(DISTINCT a.file_id) FROM @extschema@.outbox_attachments a WHERE a.outbox_id = mailroom_send_again.id) THEN
        reason := format('Files of mail %s have been deleted.', mailroom_send_again.id);
        remedy := 'Have the application send it; mailroom keeps files until the mail that has them was sent.';
    ELSIF (
        SELECT count(*)
        FROM @extschema@.operator_actions a
        WHERE a.outbox_id = mailroom_send_again.id
          AND a.action = 'sent_again'
          AND a.at > clock_timestamp() - interval '1 hour'
    ) >= 5 THEN
        reason := format('Mail %s was sent again 5 times within an hour.', mailroom_send_again.id);
        remedy := 'See outbox_history for who did, and for what became of the mails.';
    END IF;
    IF reason IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'mail cannot be sent again',
            DETAIL = reason,
            HINT = remedy;
    END IF;
    mail := @extschema@._copy_mail(id);
    IF mail IS NULL THEN
        -- A trigger of the application kept it out.
        RETURN NULL;
    END IF;
    IF original.attachment_bytes IS NOT NULL THEN
        INSERT INTO @extschema@.outbox_attachments (outbox_id, position, file_id, filename, content_type, content_id, size, digest)
        SELECT local.mail, a.position, a.file_id, a.filename, a.content_type, a.content_id, a.size, a.digest
        FROM @extschema@.outbox_attachments a
        WHERE a.outbox_id = mailroom_send_again.id;
        UPDATE @extschema@.outbox o SET attachment_bytes = original.attachment_bytes WHERE o.id = local.mail;
    END IF;
    INSERT INTO @extschema@._new_actions (action, outbox_id, detail)
    VALUES ('sent_again', mailroom_send_again.id, jsonb_build_object('mail', local.mail));
    RETURN mail;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_send_again(bigint) IS
    'Schedules a copy of a mail that has ended, due now, and returns its outbox.id. Returns NULL if there is no such mail; token mail, and mail whose files are gone, raises an error.';
