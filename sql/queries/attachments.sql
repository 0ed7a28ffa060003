-- The contents of a file once, with the first mail that has it.
SELECT
    a.outbox_id, a.filename, a.content_type, a.content_id, a.file_id,
    CASE WHEN row_number() OVER (PARTITION BY a.file_id ORDER BY a.outbox_id, a.position) = 1 THEN f.content::bytea END AS content
FROM outbox_attachments a
LEFT JOIN outbox_files f ON f.id = a.file_id
WHERE a.outbox_id = ANY ($1)
ORDER BY a.outbox_id, a.position
