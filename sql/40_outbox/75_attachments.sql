-- Attachments: the files of mail, stored once, and which mail has which.
--
-- mailroom_add_file and mailroom_send (80_submit.sql) store files through _new_files, and attach them to mail of the
-- caller's through _new_attachments; senders read them with the mail that they claimed; a purge deletes files that no mail
-- needs (60_worker/50_purge.sql). Invariants: only its role attaches a file; the contents of a file do not change; the
-- files of mail that may still be sent stay; outbox.attachment_bytes is what the files of a mail have together.

CREATE DOMAIN @extschema@._file AS bytea
    CONSTRAINT outbox_files_content_must_not_be_empty CHECK (octet_length(VALUE) > 0)
    CONSTRAINT outbox_files_content_must_not_exceed_100_mb CHECK (octet_length(VALUE) <= 104857600);
COMMENT ON DOMAIN @extschema@._file IS 'Internal. Contents of a file, of bounded size.';

CREATE TABLE @extschema@.outbox_files (
    id bigserial,
    content @extschema@._file NOT NULL,
    digest bytea NOT NULL GENERATED ALWAYS AS (sha256(content)) STORED,
    added_by name NOT NULL DEFAULT current_user,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT outbox_files_pkey PRIMARY KEY (id)
);
-- Most files are compressed already.
ALTER TABLE @extschema@.outbox_files ALTER COLUMN content SET STORAGE EXTERNAL;
COMMENT ON TABLE @extschema@.outbox_files IS
    'The contents of attachments. A file is deleted when no mail that may still be sent has it, an hour after it was added at the earliest.';
COMMENT ON COLUMN @extschema@.outbox_files.digest IS 'SHA-256 of the contents.';
COMMENT ON COLUMN @extschema@.outbox_files.added_by IS 'The role that added it, and may attach it.';

CREATE FUNCTION @extschema@._attachments_problem(filenames text[], content_types text[], content_ids text[], has_html boolean) RETURNS text
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_attachments_problem_wrapper';
COMMENT ON FUNCTION @extschema@._attachments_problem(text[], text[], text[], boolean) IS
    'Internal. Why a mail cannot have attachments with these names, types (NULL: that of the extension) and content ids; NULL if it can.';

CREATE FUNCTION @extschema@._content_type(filename text, content_type text) RETURNS text
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_content_type_wrapper';
COMMENT ON FUNCTION @extschema@._content_type(text, text) IS
    'Internal. The type of an attachment: the given one, else that of its extension.';

CREATE TABLE @extschema@.outbox_attachments (
    id bigserial,
    outbox_id bigint NOT NULL,
    position smallint NOT NULL,
    file_id bigint NOT NULL,
    filename text NOT NULL,
    content_type text NOT NULL,
    content_id text,
    size integer NOT NULL,
    digest bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT outbox_attachments_pkey PRIMARY KEY (id),
    CONSTRAINT outbox_attachments_position_key UNIQUE (outbox_id, position),
    -- What types there are may change with a release, and a dump must still come back.
    CONSTRAINT outbox_attachments_texts_must_be_lines CHECK (
        @extschema@._line_problem(concat(filename, content_type, content_id)) IS NULL
        AND greatest(octet_length(filename), octet_length(content_type), octet_length(content_id)) <= 1024
    )
);
COMMENT ON TABLE @extschema@.outbox_attachments IS
    'The attachments of each mail. Purged with it; the contents in outbox_files go earlier.';
COMMENT ON COLUMN @extschema@.outbox_attachments.outbox_id IS 'outbox.id';
COMMENT ON COLUMN @extschema@.outbox_attachments.position IS 'From 1, in the order of the message.';
COMMENT ON COLUMN @extschema@.outbox_attachments.file_id IS 'outbox_files.id; the file may have been deleted since.';
COMMENT ON COLUMN @extschema@.outbox_attachments.content_type IS 'The media type, with its parameters if it has some.';
COMMENT ON COLUMN @extschema@.outbox_attachments.content_id IS
    'By which the HTML refers to it, as cid: and this; NULL for an attachment that the HTML does not show.';
COMMENT ON COLUMN @extschema@.outbox_attachments.size IS 'In octets.';
COMMENT ON COLUMN @extschema@.outbox_attachments.digest IS 'SHA-256 of the contents.';

CREATE INDEX outbox_attachments_file_id ON @extschema@.outbox_attachments (file_id);

CREATE VIEW @extschema@._needed_files AS
SELECT a.file_id
FROM @extschema@.outbox_attachments a
JOIN @extschema@.outbox o ON o.id = a.outbox_id
WHERE o.state IN ('scheduled', 'claimed', 'error');
COMMENT ON VIEW @extschema@._needed_files IS 'Internal. The files of mail that may still be sent; for an error, by mailroom_retry.';

-- The other columns are computed, so that no role can write them.
CREATE VIEW @extschema@._new_files WITH (security_barrier) AS
SELECT f.content, f.id + 0 AS id, f.digest || ''::bytea AS digest
FROM @extschema@.outbox_files f
WHERE f.added_by = current_user;
COMMENT ON VIEW @extschema@._new_files IS 'Internal. Takes files of the current user.';

CREATE FUNCTION @extschema@._max_message_size() RETURNS bigint
    LANGUAGE c STABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_max_message_size_wrapper';
COMMENT ON FUNCTION @extschema@._max_message_size() IS 'Internal. The setting mailroom.max_message_size in octets.';

CREATE FUNCTION @extschema@.mailroom_add_file(content bytea) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    octets CONSTANT integer := octet_length(content);
    largest CONSTANT bigint := @extschema@._max_message_size();
    file bigint;
BEGIN
    IF octets IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'content must not be null',
            DETAIL = 'A file has contents.',
            HINT = 'Pass the bytes of the file.';
    ELSIF octets = 0 OR octets > largest THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'file cannot be added',
            DETAIL = CASE octets WHEN 0 THEN 'It is empty.' ELSE format('It has %s octets, at most %s are allowed.', octets, largest) END,
            HINT = 'Providers refuse empty attachments and large mail; mailroom.max_message_size is the limit here.';
    END IF;
    INSERT INTO @extschema@._new_files AS f (content)
    VALUES (mailroom_add_file.content)
    RETURNING f.id INTO file;
    RETURN file;
END;
$$;
COMMENT ON FUNCTION @extschema@.mailroom_add_file(bytea) IS
    'Stores a file in the caller''s transaction and returns its id, for file_id in attachments of mailroom_send: one file for any number of mails of this role. It is deleted when no mail that may still be sent has it, after an hour at the earliest.';

CREATE FUNCTION @extschema@.mailroom_attachments(mail bigint)
RETURNS TABLE ("position" smallint, filename text, content_type text, content_id text, content bytea)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT a.position, a.filename, a.content_type, a.content_id, f.content::bytea
    FROM @extschema@.outbox_attachments a
    JOIN @extschema@.outbox o ON o.id = a.outbox_id AND o.attachment_bytes IS NOT NULL
    LEFT JOIN @extschema@.outbox_files f ON f.id = a.file_id
    WHERE a.outbox_id = mailroom_attachments.mail
    ORDER BY a.position
$$;
COMMENT ON FUNCTION @extschema@.mailroom_attachments(bigint) IS
    'Returns the attachments of a mail, for a client that has claimed it; those with a content_id are images that the HTML shows. content is NULL once the file was deleted.';

CREATE FUNCTION @extschema@._encoded_size(subject bigint, bodies bigint, attachments bigint) RETURNS bigint
    LANGUAGE c IMMUTABLE PARALLEL SAFE
    AS 'MODULE_PATHNAME', '_encoded_size_wrapper';
COMMENT ON FUNCTION @extschema@._encoded_size(bigint, bigint, bigint) IS
    'Internal. About how many octets a mail has as it is sent, by those of its parts.';

CREATE FUNCTION @extschema@._refuse_size(ordinal integer, transport text, octets bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- As any deliverer published it.
    largest CONSTANT bigint := (
        SELECT max(coalesce(t.max_message_size, '9223372036854775807'::bigint))
        FROM @extschema@.transports t
        WHERE t.name = _refuse_size.transport COLLATE "C"
    );
BEGIN
    IF octets > largest THEN
        PERFORM @extschema@._refuse(
            ordinal, '22023'::text, NULL::text,
            format('It has about %s octets as it is sent, and transport "%s" takes at most %s', octets, transport, largest),
            'Attach less, or use another transport.'::text
        );
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._refuse_size(integer, text, bigint) IS
    'Internal. Raises an error if this transport takes no mail of this size.';

CREATE FUNCTION @extschema@._check_attachments(message @extschema@._message) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    remedy CONSTANT text := 'Each is an object with filename, content (base64) or file_id (of mailroom_add_file), and, if wanted, content_type and content_id.';
    bad record;
BEGIN
    IF jsonb_typeof(message.attachments) <> 'array' THEN
        PERFORM @extschema@._refuse(
            message.ordinal, '22023'::text, NULL::text, format('attachments is a JSON %s, not an array', jsonb_typeof(message.attachments)), remedy
        );
    END IF;
    SELECT e.ordinality AS place, p.fault
    INTO bad
    FROM jsonb_array_elements(message.attachments) WITH ORDINALITY e
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN jsonb_typeof(e.value) <> 'object' THEN format('is a JSON %s, not an object', jsonb_typeof(e.value))
            WHEN e.value - '{filename,content,file_id,content_type,content_id}'::text[] <> '{}' THEN format(
                'has a member "%s"',
                (SELECT min(k) FROM jsonb_object_keys(e.value) k WHERE k NOT IN ('filename', 'content', 'file_id', 'content_type', 'content_id'))
            )
            WHEN (e.value ->> 'content' IS NULL) = (e.value ->> 'file_id' IS NULL) THEN 'needs content or file_id, and not both'
            WHEN e.value ->> 'file_id' IS NOT NULL
                AND (jsonb_typeof(e.value -> 'file_id') <> 'number' OR e.value ->> 'file_id' !~ '^[0-9]{1,18}$')
                THEN 'has a file_id that is no id'
            ELSE (
                SELECT min(format('has a %s that is a JSON %s, not a string', f.key, jsonb_typeof(f.value)))
                FROM jsonb_each(e.value - 'file_id'::text) f
                WHERE jsonb_typeof(f.value) NOT IN ('string', 'null')
            )
        END
    ) p (fault)
    WHERE p.fault IS NOT NULL
    ORDER BY e.ordinality
    LIMIT 1;
    IF FOUND THEN
        PERFORM @extschema@._refuse(message.ordinal, '22023'::text, NULL::text, format('attachments[%s] %s', bad.place, bad.fault), remedy);
    END IF;
END;
$$;
COMMENT ON FUNCTION @extschema@._check_attachments(@extschema@._message) IS
    'Internal. Raises the reason for which the attachments of a message are not of the right form.';

CREATE VIEW @extschema@._new_attachments AS
SELECT NULL::bigint AS mail, NULL::integer AS ordinal, NULL::jsonb AS attachments, NULL::name AS caller
WHERE false;
COMMENT ON VIEW @extschema@._new_attachments IS
    'Internal. Takes the attachments of a mail of the current user that has none and is not claimed: an array of objects with filename, content_type, content_id and file_id. ordinal is that of the message, for errors; caller is set by the trigger.';

CREATE FUNCTION @extschema@._refuse_lost(ordinal integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM @extschema@._refuse(
        ordinal, '55000'::text, NULL::text,
        'A trigger on outbox, outbox_files or outbox_attachments changed or kept out what was written, or triggers are switched off'::text,
        'Mail with attachments needs triggers that leave message_id and attachments as they are, and session_replication_role other than replica.'::text
    );
END;
$$;
COMMENT ON FUNCTION @extschema@._refuse_lost(integer) IS 'Internal. Raises an error for a message whose attachments were not written.';

-- Long because each file that cannot be attached has an error of its own.
CREATE FUNCTION @extschema@._attach_files() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    -- _submit switches it off.
    SET enable_nestloop = on
    SET jit = off
AS $$
<<local>>
DECLARE
    largest CONSTANT bigint := @extschema@._max_message_size();
    files CONSTANT bigint[] := ARRAY(SELECT (e.value ->> 'file_id')::bigint FROM jsonb_array_elements(NEW.attachments) e);
    fault text;
    bad record;
    mail record;
    inserted integer;
    attached bigint;
    total bigint;
BEGIN
    SELECT
        coalesce(octet_length(o.subject), 0)::bigint AS subject,
        coalesce(octet_length(o.body_text), 0)::bigint + coalesce(octet_length(o.body_html), 0) AS bodies,
        -- A template may have HTML.
        o.body_html IS NOT NULL OR o.body_text IS NULL AS has_html,
        o.transport
    INTO mail
    FROM @extschema@.outbox o
    WHERE o.id = NEW.mail
      AND o.enqueued_by = NEW.caller
      AND o.state <> 'claimed'
      AND o.attachment_bytes IS NULL;
    IF NOT FOUND THEN
        -- Not by mailroom_send, which has just inserted it.
        RAISE insufficient_privilege USING
            MESSAGE = 'permission denied to attach files to mail',
            DETAIL = format('Mail %s is another role''s, is claimed, or has attachments.', NEW.mail),
            HINT = 'Pass all attachments to mailroom_send.';
    END IF;
    SELECT @extschema@._attachments_problem(
        array_agg(e.value ->> 'filename' ORDER BY e.ordinality),
        array_agg(e.value ->> 'content_type' ORDER BY e.ordinality),
        array_agg(e.value ->> 'content_id' ORDER BY e.ordinality),
        mail.has_html
    )
    INTO fault
    FROM jsonb_array_elements(NEW.attachments) WITH ORDINALITY e;
    IF fault IS NOT NULL THEN
        PERFORM @extschema@._refuse(
            NEW.ordinal, '22023'::text, NULL::text, fault,
            'The guide on attachments says what names, types and content ids may be.'::text
        );
    END IF;
    -- Until this transaction ends, no purge deletes them.
    PERFORM FROM @extschema@.outbox_files f WHERE f.id = ANY (local.files) ORDER BY f.id FOR KEY SHARE;
    SELECT g.number AS place, g.file_id, f.id IS NOT NULL AS is_there
    INTO bad
    FROM unnest(files) WITH ORDINALITY g (file_id, number)
    LEFT JOIN @extschema@.outbox_files f ON f.id = g.file_id
    WHERE f.id IS NULL
       -- Not _is_callers_role: who may cancel any mail may not read any file.
       OR NOT coalesce(pg_has_role(NEW.caller, to_regrole(quote_ident(f.added_by)), 'USAGE'), false)
    ORDER BY g.number
    LIMIT 1;
    IF FOUND THEN
        PERFORM @extschema@._refuse(
            NEW.ordinal,
            CASE WHEN bad.file_id IS NULL THEN '22023' WHEN bad.is_there THEN '42501' ELSE '42704' END,
            NULL::text,
            format(
                CASE
                    WHEN bad.file_id IS NULL THEN 'attachments[%s].content is empty or no base64'
                    WHEN bad.is_there THEN 'attachments[%s].file_id %s is a file of another role'
                    ELSE 'attachments[%s].file_id: there is no file %s'
                END,
                bad.place, bad.file_id
            ),
            CASE
                WHEN bad.file_id IS NULL THEN 'Encode the bytes of the file with the alphabet of RFC 4648, section 4.'
                ELSE 'Add the file by mailroom_add_file; a file that no mail needs is deleted an hour after it was added.'
            END
        );
    END IF;
    INSERT INTO @extschema@.outbox_attachments (outbox_id, position, file_id, filename, content_type, content_id, size, digest)
    SELECT
        NEW.mail, e.ordinality, f.id, e.value ->> 'filename',
        @extschema@._content_type(e.value ->> 'filename', e.value ->> 'content_type'), e.value ->> 'content_id',
        octet_length(f.content), f.digest
    FROM jsonb_array_elements(NEW.attachments) WITH ORDINALITY e
    JOIN @extschema@.outbox_files f ON f.id = (e.value ->> 'file_id')::bigint;
    GET DIAGNOSTICS inserted = ROW_COUNT;
    attached := (SELECT sum(octet_length(f.content)) FROM unnest(files) g (id) JOIN @extschema@.outbox_files f ON f.id = g.id);
    total := mail.subject + mail.bodies + attached;
    IF total > largest THEN
        PERFORM @extschema@._refuse(
            NEW.ordinal, '22023'::text, NULL::text,
            format('It has %s octets with its attachments, at most %s are allowed', total, largest),
            'mailroom.max_message_size is the limit.'::text
        );
    END IF;
    PERFORM @extschema@._refuse_size(NEW.ordinal, mail.transport::text, @extschema@._encoded_size(mail.subject, mail.bodies, attached));
    UPDATE @extschema@.outbox o
    SET attachment_bytes = local.attached
    WHERE o.id = NEW.mail
      AND o.state <> 'claimed';
    IF NOT FOUND OR inserted <> cardinality(files) THEN
        PERFORM @extschema@._refuse_lost(NEW.ordinal);
    END IF;
    RETURN NEW;
END;
$$;
COMMENT ON FUNCTION @extschema@._attach_files() IS 'Internal. Attaches stored files to a mail of the caller''s.';

CREATE TRIGGER a_note_caller
    INSTEAD OF INSERT ON @extschema@._new_attachments
    FOR EACH ROW
    EXECUTE FUNCTION @extschema@._note_caller();

CREATE TRIGGER attach_files
    INSTEAD OF INSERT ON @extschema@._new_attachments
    FOR EACH ROW
    EXECUTE FUNCTION @extschema@._attach_files();

CREATE FUNCTION @extschema@._outbox_forget() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM @extschema@.outbox_attachments;
    DELETE FROM @extschema@.delivery_events e WHERE e.outbox_id IS NOT NULL;
    DELETE FROM @extschema@.operator_actions a WHERE a.outbox_id IS NOT NULL;
    RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._outbox_forget() IS 'Internal. Deletes the attachments, events and operator actions of all mail, whose ids other mail may get.';

CREATE TRIGGER outbox_forget
    AFTER TRUNCATE ON @extschema@.outbox
    FOR EACH STATEMENT
    EXECUTE FUNCTION @extschema@._outbox_forget();

CREATE FUNCTION @extschema@._decoded(content text) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN nullif(decode(content, 'base64'), '');
EXCEPTION
    WHEN invalid_parameter_value THEN
        RETURN NULL;
END;
$$;
COMMENT ON FUNCTION @extschema@._decoded(text) IS 'Internal. What base64 encodes; NULL if it is none, or nothing.';
