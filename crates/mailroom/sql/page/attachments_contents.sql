-- The images that the HTML of the mail with the id $1 int8 shows by cid:, in order, for admin: the first ones that have 1 MB together, in base64.
-- content is NULL if the file was deleted.
SELECT
    a.position,
    a.content_id,
    a.content_type,
    translate(encode(f.content, 'base64'), E'\n', '') AS content
FROM (
    SELECT i.position::int4 AS position, i.content_id, i.content_type, i.file_id, sum(i.size) OVER (ORDER BY i.position) AS size
    FROM @extschema@.outbox_attachments i
    WHERE i.outbox_id = $1::int8
      AND i.content_id IS NOT NULL
      AND i.content_type LIKE 'image/%'
      AND i.size <= 1048576
) a
LEFT JOIN @extschema@.outbox_files f ON f.id = ANY (ARRAY[a.file_id])
WHERE a.size <= 1048576
ORDER BY a.position
