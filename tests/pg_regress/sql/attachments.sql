-- Attachments: stored once, judged, attached to mail of one's own, and deleted when no mail needs them.

SET client_min_messages = error;
\set SHOW_CONTEXT never
CREATE EXTENSION mailroom;
\pset format unaligned

-- With contents, by file, and inline.
SELECT mailroom_add_file('PDF') AS file \gset
SELECT mailroom_send(
    'a@example.com', 'S', 'T', '<img src="cid:logo">',
    attachments => jsonb_build_array(
        '{"filename": "a.txt", "content": "aGVsbG8="}'::jsonb,
        jsonb_build_object('filename', 'Größe.pdf', 'file_id', :file),
        '{"filename": "logo.png", "content": "iVBORw0KGgo=", "content_id": "logo", "content_type": null}'::jsonb
    )
) AS mail \gset
SELECT attachment_bytes FROM outbox WHERE id = :mail;
SELECT * FROM mailroom_attachments(:mail);
SELECT position, filename, size, file_id = :file AS is_file FROM outbox_attachments WHERE outbox_id = :mail ORDER BY position;

-- One file for many mails, and what is given several times in a call is stored once.
SELECT count(*) FROM mailroom_send_many((
    SELECT jsonb_agg(jsonb_build_object(
        'recipients', format('a%s@example.com', i), 'subject', 'S', 'body_text', 'T',
        'attachments', CASE WHEN i < 50 THEN jsonb_build_array(
            jsonb_build_object('filename', 'terms.pdf', 'file_id', :file),
            '{"filename": "same.txt", "content": "c2FtZQ=="}'::jsonb
        ) END
    ))
    FROM generate_series(1, 60) i
));
SELECT count(*), count(DISTINCT file_id) FROM outbox_attachments WHERE outbox_id > :mail;
SELECT count(*) FILTER (WHERE attachment_bytes = 7), count(*) FILTER (WHERE attachment_bytes IS NULL) FROM outbox WHERE id > :mail;
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[]') IS NOT NULL AS none;

-- Refused, with the reason.
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '{}');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[7]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a.txt", "content": "QQ==", "url": "x"}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a.txt"}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a.txt", "content": "QQ==", "file_id": 1}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a.txt", "file_id": 1.5}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": 1, "content": "QQ=="}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"content": "QQ=="}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a.txt", "content": "no-base64!"}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a.txt", "content": ""}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a.txt", "file_id": 999999}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a", "content": "QQ=="}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "../a.txt", "content": "QQ=="}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a\r\nX: y.txt", "content": "QQ=="}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a.pdf", "content_type": "image/png", "content": "QQ=="}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a.txt", "content_type": "text", "content": "QQ=="}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a.png", "content_id": "<a>", "content": "QQ=="}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a.png", "content_id": "a", "content": "QQ=="}]');
SELECT mailroom_send('a@example.com', 'S', NULL, '<p>', attachments => '[{"filename": "a.png", "content_id": "a", "content": "QQ=="}, {"filename": "b.png", "content_id": "a", "content": "QQ=="}]');
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => (SELECT jsonb_agg('{"filename": "a.txt", "content": "QQ=="}'::jsonb) FROM generate_series(1, 21)));
SELECT mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T"}, {"recipients": "a@example.com", "subject": "S", "body_text": "T", "attachments": [{"filename": "a.txt", "content": "?"}]}]');
SELECT mailroom_add_file(NULL);
SELECT mailroom_add_file('');
SET mailroom.max_message_size = '1kB';
SELECT mailroom_add_file(convert_to(repeat('a', 1025), 'UTF8'));
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => jsonb_build_array(jsonb_build_object('filename', 'a.txt', 'content', encode(convert_to(repeat('a', 1023), 'UTF8'), 'base64'))));
RESET mailroom.max_message_size;
SELECT count(*) FROM outbox_files;

-- What the transport takes, encoded.
SELECT _publish_transports('a deliverer', '[{"name": "small", "provider": "postmark", "max_message_size": 2000}, {"name": "large", "provider": "smtp"}]');
SELECT name, max_message_size FROM mailroom_transports ORDER BY name;
SELECT mailroom_send('a@example.com', 'S', 'T', transport => 'small', attachments => jsonb_build_array(jsonb_build_object('filename', 'a.txt', 'content', encode(convert_to(repeat('a', 1500), 'UTF8'), 'base64'))));
SELECT mailroom_send('a@example.com', 'S', 'T', transport => 'large', attachments => jsonb_build_array(jsonb_build_object('filename', 'a.txt', 'content', encode(convert_to(repeat('a', 1500), 'UTF8'), 'base64')))) IS NOT NULL AS scheduled;
SELECT mailroom_send('a@example.com', 'S', repeat('a', 1000001), transport => 'small');
SELECT mailroom_send('a@example.com', 'S', repeat('a', 1000001), transport => 'large') IS NOT NULL AS scheduled;

-- A call that is repeated.
SELECT mailroom_send('a@example.com', 'S', 'T', message_id => '0197c5d0-0000-7000-8000-000000000001', attachments => '[{"filename": "a.txt", "content": "aGVsbG8="}]') AS first \gset
SELECT mailroom_send('a@example.com', 'S', 'T', message_id => '0197c5d0-0000-7000-8000-000000000001', attachments => '[{"filename": "a.txt", "content": "aGVsbG8="}]') = :first AS same;
SELECT mailroom_send('a@example.com', 'S', 'T', message_id => '0197c5d0-0000-7000-8000-000000000001', attachments => '[{"filename": "b.txt", "content": "aGVsbG8="}]');
SELECT mailroom_send('a@example.com', 'S', 'T', message_id => '0197c5d0-0000-7000-8000-000000000001', attachments => '[{"filename": "a.txt", "content": "aGVsbA=="}]');
SELECT mailroom_send('a@example.com', 'S', 'T', message_id => '0197c5d0-0000-7000-8000-000000000001', attachments => '[{"filename": "a.txt", "content": "SGVsbG8="}]');
SELECT mailroom_send('a@example.com', 'S', 'T', message_id => '0197c5d0-0000-7000-8000-000000000001', attachments => '[{"filename": "a.txt", "file_id": 999999}]');
SELECT mailroom_send('a@example.com', 'S', 'T', message_id => '0197c5d0-0000-7000-8000-000000000001');
SELECT mailroom_send_many('[{"recipients": "a@example.com", "subject": "S", "body_text": "T", "message_id": "0197c5d0-0000-7000-8000-000000000002"}, {"recipients": "a@example.com", "subject": "S", "body_text": "T", "message_id": "0197c5d0-0000-7000-8000-000000000002", "attachments": [{"filename": "a.txt", "content": "QQ=="}]}]');
SELECT mailroom_send('a@example.com', 'S', 'T', item_key => 'k', attachments => '[{"filename": "a.txt", "content": "QQ=="}]') AS kept \gset
SELECT mailroom_send('a@example.com', 'S', 'T', item_key => 'k', on_conflict => 'replace', attachments => '[{"filename": "b.txt", "content": "QQ=="}]') AS replaced \gset
SELECT outbox_id = :kept AS kept, filename, state FROM outbox_attachments a JOIN outbox o ON o.id = a.outbox_id WHERE o.id IN (:kept, :replaced) ORDER BY o.id;

-- A role attaches its own files, and those of roles that it is a member of.
CREATE ROLE regress_files_app LOGIN IN ROLE mailroom_app;
CREATE ROLE regress_files_other LOGIN IN ROLE mailroom_app;
SET ROLE regress_files_app;
SELECT mailroom_add_file('mine') AS mine \gset
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => jsonb_build_array(jsonb_build_object('filename', 'a.txt', 'file_id', :mine))) IS NOT NULL AS scheduled;
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => '[{"filename": "a.txt", "content": "QQ=="}]') AS mail_of_app \gset
SELECT * FROM outbox_files;
SELECT * FROM outbox_attachments;
SELECT * FROM mailroom_attachments(1);
SET ROLE regress_files_other;
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => jsonb_build_array(jsonb_build_object('filename', 'a.txt', 'file_id', :mine)));
INSERT INTO _new_attachments (mail, ordinal, attachments) VALUES (:mail_of_app, -1, '[]');
SELECT mailroom_send('a@example.com', 'S', 'T') AS other_mail \gset
INSERT INTO _new_attachments (mail, ordinal, attachments) VALUES (:other_mail, -1, jsonb_build_array(jsonb_build_object('filename', 'a/b.txt', 'file_id', :mine)));
SELECT content FROM _new_files;
RESET ROLE;
SET ROLE regress_files_app;
INSERT INTO _new_attachments (mail, ordinal, attachments) VALUES (:mail_of_app, -1, jsonb_build_array(jsonb_build_object('filename', 'b.txt', 'file_id', :mine)));
RESET ROLE;
GRANT regress_files_app TO regress_files_other;
SET ROLE regress_files_other;
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => jsonb_build_array(jsonb_build_object('filename', 'a.txt', 'file_id', :mine))) IS NOT NULL AS scheduled;
RESET ROLE;

-- Who may cancel any mail may neither read any file nor put one into any mail.
GRANT mailroom_support TO regress_files_other;
REVOKE regress_files_app FROM regress_files_other;
SET ROLE regress_files_other;
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => jsonb_build_array(jsonb_build_object('filename', 'a.txt', 'file_id', :mine)));
SELECT mailroom_add_file('theirs') AS theirs \gset
INSERT INTO _new_attachments (mail, ordinal, attachments) VALUES (:mail_of_app, -1, jsonb_build_array(jsonb_build_object('filename', 'a.txt', 'file_id', :theirs)));
SELECT mailroom_send('a@example.com', 'S', 'T') AS other_mail \gset
INSERT INTO _new_attachments (mail, ordinal, attachments) VALUES (:other_mail, -1, jsonb_build_array(jsonb_build_object('filename', 'a/b.txt', 'file_id', :theirs)));
RESET ROLE;

-- Nothing goes out without its files: where triggers do not fire, and where one of the application's changes what was written.
SET session_replication_role = replica;
SELECT mailroom_send('a@example.com', 'lost', 'T', attachments => '[{"filename": "a.txt", "content": "QQ=="}]');
RESET session_replication_role;
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'outbox' THEN
        NEW.message_id := gen_random_uuid();
        RETURN NEW;
    END IF;
    RETURN NULL;
END;
$$;
CREATE TRIGGER meddle BEFORE INSERT ON outbox FOR EACH ROW WHEN (NEW.subject = 'lost') EXECUTE FUNCTION meddle();
SELECT mailroom_send('a@example.com', 'lost', 'T', attachments => '[{"filename": "a.txt", "content": "QQ=="}]');
DROP TRIGGER meddle ON outbox;
CREATE TRIGGER meddle BEFORE INSERT ON outbox_attachments FOR EACH ROW WHEN (NEW.position = 2) EXECUTE FUNCTION meddle();
SELECT mailroom_send('a@example.com', 'lost', 'T', attachments => '[{"filename": "a.txt", "content": "QQ=="}, {"filename": "b.txt", "content": "Qg=="}]');
DROP FUNCTION meddle CASCADE;
SELECT count(*) FROM outbox WHERE subject = 'lost';
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => 'null') IS NOT NULL AS none;

-- By hand, the same rules.
\set VERBOSITY terse
INSERT INTO outbox_attachments (outbox_id, position, file_id, filename, content_type, size, digest) VALUES (1, 7, 1, E'a\nb.txt', 'text/plain', 1, '');
\set VERBOSITY default

-- Deleted an hour after it was added, once no mail that may still be sent has it; its names stay with the mail.
SELECT count(*) AS files FROM outbox_files;
SELECT purged FROM mailroom_purge();
UPDATE outbox_files SET created_at = now() - interval '61 minutes';
INSERT INTO outbox_files (content) VALUES ('new');
SELECT purged FROM mailroom_purge();
SELECT convert_from(content, 'UTF8') FROM outbox_files WHERE id NOT IN (SELECT file_id FROM _needed_files);
UPDATE outbox SET state = 'sent' WHERE id = :mail;
UPDATE outbox SET state = 'error', last_error = 'x' WHERE id = :first;
UPDATE outbox SET state = 'cancelled' WHERE id <> :first AND state = 'scheduled';
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT purged FROM mailroom_purge();
COMMIT;
SELECT purged, more FROM mailroom_purge();
SELECT convert_from(content, 'UTF8') FROM outbox_files ORDER BY id;
SELECT filename, size, content IS NULL AS gone FROM mailroom_attachments(:mail) JOIN outbox_attachments USING (position, filename) WHERE outbox_id = :mail;
SELECT mailroom_send('a@example.com', 'S', 'T', attachments => jsonb_build_array(jsonb_build_object('filename', 'a.txt', 'file_id', :file)));
-- The repeated call still finds its mail.
SELECT mailroom_send('a@example.com', 'S', 'T', message_id => '0197c5d0-0000-7000-8000-000000000001', attachments => '[{"filename": "a.txt", "content": "aGVsbG8="}]') = :first AS same;

-- With the mail, and those of mail that was deleted by hand.
UPDATE outbox SET ended_at = now() - interval '8 days', created_at = now() - interval '8 days' WHERE id = :mail;
DELETE FROM outbox WHERE id = :first;
UPDATE outbox_attachments SET created_at = now() - interval '8 days' WHERE outbox_id = :first;
SELECT purged FROM mailroom_purge();
SELECT count(*) FROM outbox_attachments WHERE outbox_id IN (:mail, :first);


-- Other mail may get the ids.
TRUNCATE outbox RESTART IDENTITY;
SELECT count(*) FROM outbox_attachments;

DROP EXTENSION mailroom;
DROP ROLE regress_files_app, regress_files_other;
